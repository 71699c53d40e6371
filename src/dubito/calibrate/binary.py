"""Calibrators of one class against the rest: each a function of that class's log odds."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import log_expit

from dubito.arrays import FloatArray
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.rows import LabelledRows, log_odds
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import BadValueError
from dubito.kept_checks import entries, whole
from dubito.outputs import Logits, Probabilities

__all__ = ["BaseBinaryCalibrator", "BinaryRows", "HeldScores", "Scores", "scores_by_class"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class BinaryRows:
    """Log odds of a class, how much of each label is that class, and weights."""

    scores: FloatArray
    targets: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, rows: LabelledRows, scores: FloatArray, k: int) -> BinaryRows:
        """Return what the labels of some rows say of class k."""
        is_soft = rows.soft.shape[0] == rows.codes.size
        targets = rows.soft[:, k] if is_soft else (rows.codes == k).astype(np.float64)
        return cls(np.ascontiguousarray(scores[:, k]), targets, rows.weight)


class Scores(ABC):
    """The rows of one class against the rest, wherever they are."""

    @abstractmethod
    def sum(self, function: Callable[[BinaryRows], Any]) -> Any:
        """Return the sum of `function` over all rows."""


@final
@dataclass(frozen=True, slots=True, eq=False)
class HeldScores(Scores):
    """Rows in memory."""

    rows: BinaryRows

    def sum(self, function: Callable[[BinaryRows], Any]) -> Any:
        return function(self.rows)


@final
@dataclass(frozen=True, slots=True, eq=False)
class StreamedScores(Scores):
    """Rows that are read anew for every sum."""

    shards: Shards
    k: int

    def sum(self, function: Callable[[BinaryRows], Any]) -> Any:
        def of_batch(batch: Batch) -> Any:
            rows = LabelledRows.of(batch)
            return function(BinaryRows.of(rows, log_odds(rows.outputs), self.k))

        return self.shards.sum(of_batch)


def scores_by_class(shards: Shards, classes: range) -> Iterator[Scores]:
    """Yield the rows of each of some classes against the rest."""
    if isinstance(shards, ArrayShards):
        rows = LabelledRows.of(shards.batch)
        scores = log_odds(rows.outputs)
        yield from (HeldScores(BinaryRows.of(rows, scores, k)) for k in classes)
    else:
        yield from (StreamedScores(shards, k) for k in classes)


class BaseBinaryCalibrator(BaseCalibrator):
    """Calibrates the second of two classes; `OneVsRest` makes it one for any number."""

    learned_checks = entries(n_classes_=whole(2, 2))

    def _learn(self, shards: Shards) -> None:
        if self.n_classes_ != 2:
            name = type(self).__name__
            rule, fix = "over 2 classes", f"OneVsRest({name}())"
            raise BadValueError("outputs", name, rule, f"{self.n_classes_} classes", fix)
        self._learn_scores(next(scores_by_class(shards, range(1, 2))))

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        odds = self._calibrated(log_odds(outputs)[:, 1])
        return np.column_stack([log_expit(-odds), log_expit(odds)])

    @abstractmethod
    def _learn_scores(self, scores: Scores) -> None:
        """Set whatever is learned of one class against the rest."""

    @abstractmethod
    def _calibrated(self, scores: FloatArray) -> FloatArray:
        """Return calibrated log odds."""
