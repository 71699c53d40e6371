"""Accuracy, log loss and Brier score: sums over rows that need no bins."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np

from dubito.arrays import freeze
from dubito.data.batch import Batch
from dubito.errors import BadTypeError, EmptyStateError, InfiniteLossWarning
from dubito.kernels.sums import N_SCORES, score_sums
from dubito.measure.state import from_plain, labeled_batch, pooled, to_plain
from dubito.outputs import TopLabel


@final
@dataclass(frozen=True, slots=True)
class ProperScores:
    """Means over the rows, weighted. What top labels alone cannot tell is None.

    `entropy` is the log loss, and 1 - `sharpness` the Brier score, that a calibrated model would
    show.
    """

    accuracy: float
    confidence: float
    log_loss: float | None
    brier_score: float | None
    entropy: float | None
    sharpness: float | None

    @property
    def gap(self) -> float:
        """Confidence less accuracy: above 0 is over-confident."""
        return self.confidence - self.accuracy


@final
@dataclass(frozen=True, slots=True)
class ProperScoresState:
    """Weighted sums that determine accuracy, log loss, Brier score, confidence, entropy, sharpness.

    A row whose class had probability 0 makes log loss infinite: its weight is kept in `impossible`
    apart from the finite sum, with their number in `n_impossible`.
    """

    n_rows: int
    n_missing: int
    n_top_only: int
    weight: float
    correct: float
    confidence: float
    entropy: float
    squares: float
    brier_score: float
    log_loss: float
    impossible: float
    n_impossible: int

    @classmethod
    def of(cls, batch: Batch) -> Self:
        rows, weight = batch.rows, freeze(batch.labeled_weight)
        sums = np.zeros(N_SCORES)
        # Of top labels only, what is not known is summed as 0 and told as None.
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

    def __add__(self, other: Self) -> Self:
        return pooled(self, other)

    @property
    def value(self) -> ProperScores:
        if not self.weight > 0:
            raise EmptyStateError("A proper score")
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
        """Return one of the scores, or raise where there is none: no rows, or top labels only."""
        if not self.weight > 0:
            raise EmptyStateError(name)
        value: float | None = getattr(self.value, name)
        if value is None:
            fix = "Logits or Probabilities: a top label says nothing of the other classes"
            raise BadTypeError("outputs", name, "a whole distribution", "TopLabel", fix)
        return float(value)

    def to_dict(self) -> dict[str, Any]:
        return to_plain(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return from_plain(cls, values)


def _score(name: str, y_true: Any, outputs: Any, sample_weight: Any) -> float:
    """Return one of the proper scores, and warn where it is infinite."""
    state = ProperScoresState.of(labeled_batch(y_true, outputs, sample_weight, name))
    value = state.score(name)
    if np.isinf(value):
        text = (
            f"log_loss is infinite: in {state.n_impossible:,} of {state.n_rows:,} rows the class "
            "that happened had probability 0. Try logits instead of rounded probabilities, or "
            "a calibrator."
        )
        warnings.warn(text, InfiniteLossWarning, stacklevel=3)
    return value


def accuracy(y_true: Any, outputs: Any, *, sample_weight: Any = None) -> float:
    """Return the share of rows whose most probable class is the true one (on a tie, the first).

    >>> accuracy([0, 1], [[0.9, 0.1], [0.6, 0.4]])
    0.5
    """
    return _score("accuracy", y_true, outputs, sample_weight)


def log_loss(y_true: Any, outputs: Any, *, sample_weight: Any = None) -> float:
    """Return the mean of -log(probability of the true class), in nats: lower is better.

    Infinite, with a warning that counts them, if a class of probability exactly 0 happened.

    >>> round(log_loss([0, 1], [[0.5, 0.5], [0.5, 0.5]]), 4)
    0.6931
    """
    return _score("log_loss", y_true, outputs, sample_weight)


def brier_score(y_true: Any, outputs: Any, *, sample_weight: Any = None) -> float:
    """Return the mean squared distance to the truth, summed over classes: 0 is best, 2 worst.

    Brier, "Verification of forecasts expressed in terms of probability", 1950. For two classes it
    is twice the figure of those who count the positive class alone.

    >>> brier_score([0], [[0.5, 0.5]])
    0.5
    """
    return _score("brier_score", y_true, outputs, sample_weight)
