"""Calibrators of one class against the rest: Platt scaling and beta calibration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import expit, log_expit

from dubito.arrays import BoolArray, FloatArray
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.inputs import LabelledRows, log_odds
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import BadValueError, EmptyStateError
from dubito.outputs import Logits, Probabilities
from dubito.serialization.arrays import array, require_each
from dubito.serialization.fields import Entry, declare, integer, number


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

    fitted_fields = declare(n_classes_=integer(2, 2))

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


CLOSE = 1e-9  # what a Newton step promises to gain, below which a fit has ended
MOST_ROUNDS = 100


def _fit_logistic(
    scores: Scores,
    numbers_of: Callable[[FloatArray], FloatArray],
    targets: tuple[float, float],
    start: FloatArray,
    penalty: float,
) -> FloatArray:
    """Return the coefficients of least mean log loss, plus `penalty` times the squared step away.

    `_numbers_of` turns log odds into rows x coefficients. `targets` are what a row of the rest and a
    row of the class count as.
    """

    def sums(rows: BinaryRows, coefficients: FloatArray) -> FloatArray:
        numbers = numbers_of(rows.scores)
        odds = numbers @ coefficients
        wanted = targets[0] + (targets[1] - targets[0]) * rows.targets
        p = expit(odds)
        loss = -(wanted * log_expit(odds) + (1 - wanted) * log_expit(-odds))
        slope = numbers.T @ (rows.weight * (p - wanted))
        bend = (numbers * (rows.weight * p * (1 - p))[:, np.newaxis]).T @ numbers
        return np.concatenate([[rows.weight.sum(), rows.weight @ loss], slope, bend.ravel()])

    def objective(coefficients: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        weight, *rest = scores.sum(lambda rows: sums(rows, coefficients))
        if not weight > 0:
            raise EmptyStateError("A calibrator")
        loss, *derivatives = np.array(rest) / weight
        away = coefficients - start
        slope = np.array(derivatives[: start.size]) + 2 * penalty * away
        bend = np.reshape(derivatives[start.size :], (start.size, start.size))
        return loss + penalty * away @ away, slope, bend + 2 * penalty * np.eye(start.size)

    best = start
    loss, slope, bend = objective(best)
    for _ in range(MOST_ROUNDS):
        step = -np.linalg.solve(bend, slope)
        gain = -slope @ step
        if gain < CLOSE:
            return best + step
        length = 1.0
        while True:
            trial = best + length * step
            tried = objective(trial)
            if tried[0] <= loss - 1e-4 * length * gain or length < 1e-6:
                break
            length /= 2
        best, (loss, slope, bend) = trial, tried
    return best


@final
class PlattScaling(BaseBinaryCalibrator):
    """Fit log odds = slope x log odds + intercept, against Platt's smoothed targets.

    For two classes and few rows; the targets keep it finite on separable data. Platt,
    "Probabilistic outputs for support vector machines", 1999; here on log odds.

    >>> from dubito import Logits
    >>> platt = PlattScaling().fit(Logits([2.0, 1.0, -1.0, -2.0, 2.0]), [1, 1, 0, 0, 0])
    >>> round(platt.slope_, 2), round(platt.intercept_, 2)
    (0.4, -0.53)
    """

    slope_: float
    intercept_: float

    fitted_fields = declare(slope_=number(), intercept_=number())

    def _learn_scores(self, scores: Scores) -> None:
        positive, total = scores.sum(
            lambda rows: np.array([rows.weight @ rows.targets, rows.weight.sum()])
        )
        targets = 1 / (total - positive + 2), (positive + 1) / (positive + 2)
        start = np.array([1.0, 0.0])
        found = _fit_logistic(scores, _with_ones, targets, start, penalty=1e-12)
        self.slope_, self.intercept_ = map(float, found)

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        return self.slope_ * scores + self.intercept_

    def _words(self) -> str:
        verdict = "too high" if self.slope_ < 1 else "too low"
        if self.slope_ <= 0:
            verdict = "the contrary of what was true"
        elif abs(self.slope_ - 1) < 0.005:
            verdict = "right already"
        return f"log odds x {self.slope_:.3g} {self.intercept_:+.3g}: confidence was {verdict}"


def _with_ones(scores: FloatArray) -> FloatArray:
    """Return the scores beside a column of ones."""
    return np.column_stack([scores, np.ones(scores.size)])


@final
class BetaCalibration(BaseBinaryCalibrator):
    """Fit log odds = a log(p) - b log(1 - p) + c with a, b from 0 up.

    For two classes whose confidence is off differently near 0 and near 1. Kull, Silva Filho and
    Flach, "Beta calibration", 2017.

    >>> from dubito import Probabilities
    >>> beta = BetaCalibration().fit(Probabilities([0.9, 0.8, 0.3, 0.2, 0.9, 0.1]), [1, 1, 0, 1, 0, 0])
    >>> beta.predict_proba([0.5]).round(2).tolist()
    [[0.45, 0.55]]
    """

    coefficients_: FloatArray

    fitted_fields = declare(coefficients_=array(3))

    def _learn_scores(self, scores: Scores) -> None:
        is_free = np.ones(3, dtype=bool)
        while True:
            found = self.coefficients_ = _best_of(scores, is_free)
            if found[:2].min() >= 0:
                return
            is_free[np.argmin(found[:2])] = False

    def _check_fitted(self, entry: Entry) -> None:
        is_fine = np.append(self.coefficients_[:2] >= 0, True)
        rule = "two numbers from 0 up, and any third"
        require_each(is_fine, self.coefficients_, entry.at("coefficients_"), rule)

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        return np.asarray(_numbers_of(scores) @ self.coefficients_)

    def _words(self) -> str:
        a, b, c = self.coefficients_
        return f"log odds = {a:.3g} log(p) - {b:.3g} log(1 - p) {c:+.3g}"


def _numbers_of(scores: FloatArray) -> FloatArray:
    """Return log(p), -log(1 - p) and 1 of log odds."""
    return np.column_stack([log_expit(scores), -log_expit(-scores), np.ones(scores.size)])


def _best_of(scores: Scores, is_free: BoolArray) -> FloatArray:
    """Return the best coefficients among those whose others are 0."""
    found = np.zeros(3)
    found[is_free] = _fit_logistic(
        scores,
        lambda values: _numbers_of(values)[:, is_free],
        targets=(0.0, 1.0),
        start=np.array([1.0, 1.0, 0.0])[is_free],
        penalty=1e-6,
    )
    return found
