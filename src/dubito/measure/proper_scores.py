"""Accuracy, log loss and Brier score: sums over rows that need no bins."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass, fields
from typing import Any, Self, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.errors import BadTypeError, EmptyStateError, InfiniteLossWarning, MissingLabelsWarning
from dubito.outputs import TopLabel

__all__ = [
    "ProperScores",
    "ProperScoresState",
    "accuracy",
    "brier_score",
    "labelled_batch",
    "log_loss",
]


@final
@dataclass(frozen=True, slots=True)
class ProperScores:
    """Means over the rows, weighted. What top labels alone cannot tell is None."""

    accuracy: float
    confidence: float
    log_loss: float | None
    brier_score: float | None
    entropy: float | None


@final
@dataclass(frozen=True, slots=True)
class ProperScoresState:
    """Weighted sums that determine accuracy, log loss, Brier score, mean confidence and entropy.

    A row whose class had probability 0 makes log loss infinite: its weight is kept in `impossible`
    apart from the finite sum, with their number in `n_impossible`.
    """

    n_rows: int
    n_missing: int
    n_top_only: int
    n_impossible: int
    weight: float
    correct: float
    confidence: float
    entropy: float
    log_loss: float
    brier_score: float
    impossible: float

    @classmethod
    def of(cls, batch: Batch) -> Self:
        rows, weight = batch.rows, batch.labelled_weight
        sums = dict.fromkeys(("entropy", "log_loss", "brier_score", "impossible"), 0.0)
        n_impossible = 0
        if rows.log_loss is not None and rows.brier_score is not None and rows.entropy is not None:
            is_impossible = np.isinf(rows.log_loss) & (weight > 0)
            n_impossible = int(np.count_nonzero(is_impossible))
            finite = np.where(np.isinf(rows.log_loss), 0.0, rows.log_loss)
            sums = {
                "entropy": dot(weight, rows.entropy),
                "log_loss": dot(weight, finite),
                "brier_score": dot(weight, rows.brier_score),
                "impossible": float(weight[is_impossible].sum()),
            }
        return cls(
            n_rows=len(batch) - batch.n_missing,
            n_missing=batch.n_missing,
            n_top_only=len(batch) if isinstance(batch.outputs, TopLabel) else 0,
            n_impossible=n_impossible,
            weight=float(weight.sum()),
            correct=dot(weight, rows.correct),
            confidence=dot(weight, rows.confidence),
            **sums,
        )

    def __add__(self, other: Self) -> Self:
        return type(self)(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))

    @property
    def value(self) -> ProperScores:
        if not self.weight > 0:
            raise EmptyStateError("A proper score")
        has_all = self.n_top_only == 0
        loss = np.inf if self.impossible > 0 else self.log_loss / self.weight
        return ProperScores(
            accuracy=self.correct / self.weight,
            confidence=self.confidence / self.weight,
            log_loss=loss if has_all else None,
            brier_score=self.brier_score / self.weight if has_all else None,
            entropy=self.entropy / self.weight if has_all else None,
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        return cls(**values)


def dot(weight: FloatArray, values: FloatArray) -> float:
    """Return the weighted sum."""
    return float(np.dot(weight, values))


def labelled_batch(y_true: Any, outputs: Any, sample_weight: Any, caller: str) -> Batch:
    """Return a batch that has what a metric needs, and warn of the labels that are missing."""
    batch = Batch.of(y_true, outputs, sample_weight=sample_weight, caller=caller)
    if batch.truth is None and not isinstance(batch.outputs, TopLabel):
        fix = "the true labels, or TopLabel(confidence, correct)"
        raise BadTypeError("y_true", caller, "the labels", "None", fix)
    if batch.n_missing:
        text = (
            f"{caller}: {batch.n_missing:,} of {len(batch):,} rows have no label and were left out."
        )
        warnings.warn(text, MissingLabelsWarning, stacklevel=4)
    return batch


def score(name: str, y_true: Any, outputs: Any, sample_weight: Any) -> float:
    """Return one of the proper scores, or raise where top labels cannot tell it."""
    batch = labelled_batch(y_true, outputs, sample_weight, name)
    state = ProperScoresState.of(batch)
    value: float | None = getattr(state.value, name)
    if value is None:
        fix = "Logits or Probabilities: a top label says nothing of the other classes"
        raise BadTypeError("outputs", name, "a whole distribution", "TopLabel", fix)
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
    return score("accuracy", y_true, outputs, sample_weight)


def log_loss(y_true: Any, outputs: Any, *, sample_weight: Any = None) -> float:
    """Return the mean of -log(probability of the true class), in nats: lower is better.

    Infinite, with a warning that counts them, if a class of probability exactly 0 happened.

    >>> round(log_loss([0, 1], [[0.5, 0.5], [0.5, 0.5]]), 4)
    0.6931
    """
    return score("log_loss", y_true, outputs, sample_weight)


def brier_score(y_true: Any, outputs: Any, *, sample_weight: Any = None) -> float:
    """Return the mean squared distance to the truth, summed over classes: 0 is best, 2 worst.

    Brier, "Verification of forecasts expressed in terms of probability", 1950. For two classes it
    is twice the figure of those who count the positive class alone.

    >>> brier_score([0], [[0.5, 0.5]])
    0.5
    """
    return score("brier_score", y_true, outputs, sample_weight)
