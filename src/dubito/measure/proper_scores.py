"""Accuracy, log loss and Brier score."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Annotated, Any, Self, final

import numpy as np

from dubito.arrays import freeze
from dubito.data.batch import Batch
from dubito.errors import BadTypeError, InfiniteLossWarning
from dubito.kernels.sums import N_SCORES, score_sums
from dubito.measure.state import WEIGHT, State, labeled_batch, require_weight
from dubito.outputs import TopLabel
from dubito.serialization.objects import stores_fields


@final
@dataclass(frozen=True, slots=True)
class ProperScores:
    """Weighted means over the rows; None where top labels are not enough.

    For a calibrated model, `entropy` is the expected log loss and 1 - `sharpness` the expected
    Brier score.
    """

    accuracy: float
    confidence: float
    log_loss: float | None
    brier_score: float | None
    entropy: float | None
    sharpness: float | None

    @property
    def gap(self) -> float:
        """Confidence minus accuracy: positive for an over-confident model."""
        return self.confidence - self.accuracy


@final
@stores_fields
@dataclass(frozen=True, slots=True)
class ProperScoresState(State):
    """Sums that determine accuracy, confidence, log loss, Brier score, entropy and sharpness.

    A row whose true class had probability 0 makes log loss infinite: its weight is kept in
    `impossible` apart from the finite sum, and such rows are counted in `n_impossible`.

    Attributes
    ----------
    n_rows, n_missing, n_top_only : int
        Rows with a label, without one, and of which only the top label is known.
    weight : float
        Total weight of the rows with a label.
    correct, confidence, entropy, squares, brier_score, log_loss : float
        Weighted sums of correctness, top-label confidence, entropy, sum of squared probabilities,
        Brier score, and finite log losses.
    impossible : float
        Weight of the rows whose true class had probability 0.
    n_impossible : int
        Their number.

    Examples
    --------
    >>> from dubito.data import Batch
    >>> from dubito.measure import ProperScoresState
    >>> state = ProperScoresState.of(Batch.of([0, 1], [0.1, 0.8]))
    >>> (state + state).value.accuracy
    1.0
    """

    n_rows: int
    n_missing: int
    n_top_only: int
    weight: Annotated[float, WEIGHT]
    correct: Annotated[float, WEIGHT]
    confidence: Annotated[float, WEIGHT]
    entropy: float
    squares: Annotated[float, WEIGHT]
    brier_score: float
    log_loss: float
    impossible: Annotated[float, WEIGHT]
    n_impossible: int

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """Return the sums of a batch.

        Parameters
        ----------
        batch : Batch
            Rows with labels.

        Returns
        -------
        ProperScoresState
            The sums of these rows.
        """
        rows, weight = batch.rows, freeze(batch.labeled_weight)
        sums = np.zeros(N_SCORES)
        # What top labels do not determine is summed as 0 and returned as None.
        others = (rows.entropy, rows.sum_of_squares, rows.brier_score, rows.log_loss)
        known = [rows.confidence if column is None else column for column in others]
        columns = [freeze(column) for column in (rows.correct, rows.confidence, *known)]
        score_sums(weight, *columns, sums)
        is_top_only = isinstance(batch.outputs, TopLabel)
        if is_top_only:
            sums[3:] = 0.0
        counts = (len(batch) - batch.n_missing, batch.n_missing, len(batch) if is_top_only else 0)
        values: list[Any] = [*counts, *sums[:-1].tolist(), int(sums[-1])]
        return cls(*values)

    @property
    def value(self) -> ProperScores:
        require_weight(self.weight, "A proper score")
        known = self.n_top_only == 0
        loss = np.inf if self.impossible > 0 else self.log_loss / self.weight
        return ProperScores(
            accuracy=self.correct / self.weight,
            confidence=self.confidence / self.weight,
            log_loss=loss if known else None,
            brier_score=self.brier_score / self.weight if known else None,
            entropy=self.entropy / self.weight if known else None,
            sharpness=self.squares / self.weight if known else None,
        )

    def score(self, name: str) -> float:
        """Return one of the scores, or raise if there are no rows or only top labels.

        Parameters
        ----------
        name : str
            Such as "accuracy", "log_loss" or "brier_score".

        Returns
        -------
        float
            The mean over all rows.
        """
        require_weight(self.weight, name)
        value: float | None = getattr(self.value, name)
        if value is None:
            rule, fix = "must be class probabilities", "Use Logits or Probabilities"
            raise BadTypeError("outputs", name, rule, "TopLabel", fix)
        return float(value)


def proper_score(
    name: str, y_true: Any, outputs: Any, sample_weight: Any, stacklevel: int = 3
) -> float:
    """Return one of the proper scores, with a warning if that of a user's rows is infinite.

    The warning points at the caller `stacklevel` - 1 calls above this one.
    """
    batch = labeled_batch(y_true, outputs, sample_weight, name, stacklevel + 2)
    state = ProperScoresState.of(batch)
    value = state.score(name)
    if np.isinf(value) and not isinstance(outputs, Batch):
        text = (
            f"log_loss is infinite: {state.n_impossible:,} of {state.n_rows:,} rows have "
            "probability 0 for the true class. Use logits instead of rounded probabilities, or "
            "calibrate first."
        )
        warnings.warn(text, InfiniteLossWarning, stacklevel)
    return value


def accuracy(y_true: Any, outputs: Any = None, *, sample_weight: Any = None) -> float:
    """Return the fraction of rows whose most probable class is the true one.

    On a tie the first class is predicted.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Between 0 and 1; higher is better.

    Examples
    --------
    >>> from dubito.measure import accuracy
    >>> accuracy([0, 1], [[0.9, 0.1], [0.6, 0.4]])
    0.5
    """
    return proper_score("accuracy", y_true, outputs, sample_weight)


def log_loss(y_true: Any, outputs: Any = None, *, sample_weight: Any = None) -> float:
    """Return the mean negative log probability of the true class, in nats.

    Infinite, with a warning that counts the rows, if a true class had probability exactly 0.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        At least 0; lower is better.

    References
    ----------
    Good, "Rational decisions", Journal of the Royal Statistical Society B 1952.

    Examples
    --------
    >>> from dubito.measure import log_loss
    >>> round(log_loss([0, 1], [[0.5, 0.5], [0.5, 0.5]]), 4)
    0.6931
    """
    return proper_score("log_loss", y_true, outputs, sample_weight)


def brier_score(y_true: Any, outputs: Any = None, *, sample_weight: Any = None) -> float:
    """Return the mean squared error of the probabilities, summed over classes.

    For two classes it is twice the value of the convention that counts only the positive class.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels: class names or indices, or label probabilities of shape (n_samples, n_classes).
        Rows whose label is missing are left out, with a warning.
    outputs : array-like, Logits, Probabilities, Members or TopLabel
        Model outputs. A plain array holds probabilities; one column is the positive class.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    float
        Between 0 and 2; lower is better.

    References
    ----------
    Brier, "Verification of forecasts expressed in terms of probability", Monthly Weather Review
    1950.

    Examples
    --------
    >>> from dubito.measure import brier_score
    >>> brier_score([0], [[0.5, 0.5]])
    0.5
    """
    return proper_score("brier_score", y_true, outputs, sample_weight)
