"""Calibrators of two classes: their base class, Platt scaling, beta calibration, histograms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, final

import numpy as np
from scipy.special import expit, log_expit, logit

from dubito.arrays import FloatArray, IntArray, require_bool, require_choice
from dubito.calibrate.calibrator import FLOOR, BaseCalibrator, ColumnBlock, LabeledRows, log_odds
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import BadValueError
from dubito.measure.calibration_error import assign, uniform_edges
from dubito.measure.state import require_weight
from dubito.outputs import Logits, Probabilities
from dubito.serialization.array_fields import array, require_each, require_increasing
from dubito.serialization.fields import (
    MAX_FLOAT,
    Entry,
    Omittable,
    boolean,
    fitted,
    integer,
    number,
)

TOLERANCE = 1e-9  # loss that a Newton step predicts to gain, below which a fit has ended
MAX_ROUNDS = 100
MIN_LENGTH = 1e-15  # of a step: where nearly all curvature is saturated, Newton steps are huge
# Cells of streamed scores, which are rounded by at most half a cell, 0.007.
GRID = np.linspace(-28.0, 28.0, 4097)
TIE = 1e-9  # weights or gaps that differ by less than this fraction of their sum are equal
MIN_EDGE = 1e-9  # nearer to 0 or 1, rounding would break the symmetry of the classes
ROUNDING = 1e-12  # by which a probability at an edge may exceed it after a trip through log odds


@final
@dataclass(frozen=True, slots=True, eq=False)
class BinaryRows:
    """Log odds of one class against the rest, the probability of that label, and weights."""

    scores: FloatArray
    targets: FloatArray
    weight: FloatArray

    @property
    def n_columns(self) -> int:
        return 1

    def __len__(self) -> int:
        return int(self.scores.size)

    def take(self, rows: slice) -> BinaryRows:
        return BinaryRows(self.scores[rows], self.targets[rows], self.weight[rows])

    def as_table(self) -> ScoredRows:
        """Return the rows as a table of a single class, whose labels are soft."""
        labels = np.zeros(self.scores.size, dtype=np.int64)
        return ScoredRows(
            self.scores[:, np.newaxis], labels, self.targets[:, np.newaxis], self.weight
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """Scores (rows x classes), labels or soft labels, and weights."""

    scores: FloatArray
    labels: IntArray
    soft_labels: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, batch: Batch) -> ScoredRows:
        """Return the log odds of all classes."""
        rows = LabeledRows.of(batch)
        return cls(log_odds(rows.outputs), rows.labels, rows.soft_labels, rows.weight)

    @property
    def is_soft(self) -> bool:
        """Whether labels are probabilities."""
        return len(self.soft_labels) == len(self.scores)

    def against_rest(self, k: int) -> BinaryRows:
        targets = self.soft_labels[:, k] if self.is_soft else (self.labels == k).astype(np.float64)
        return BinaryRows(np.ascontiguousarray(self.scores[:, k]), targets, self.weight)

    def positives(self) -> tuple[IntArray, FloatArray]:
        """Return the class and the score of every label, soft labels of probability 0 left out."""
        classes: IntArray
        if self.is_soft:
            rows, classes = np.nonzero((self.soft_labels > 0) & (self.weight > 0)[:, np.newaxis])
        else:
            rows = np.flatnonzero((self.weight > 0) & (self.labels >= 0))
            classes = self.labels[rows]
        return classes, self.scores[rows, classes]


def one_vs_rest_shards(shards: Shards, classes: range) -> Iterator[Shards[BinaryRows]]:
    """Yield the rows of each class against the rest: one block in memory, or a stream."""
    if shards.in_memory is not None:
        scored = ScoredRows.of(shards.in_memory)
        n_rows = max(len(scored.scores), 1)
        return (ArrayShards(scored.against_rest(k), n_rows) for k in classes)

    def against_rest(k: int) -> Shards[BinaryRows]:
        return shards.map(lambda batch: ScoredRows.of(batch).against_rest(k))

    return map(against_rest, classes)


class BaseBinaryCalibrator(BaseCalibrator):
    """Base class of calibrators of two classes; `OneVsRest` extends them to any number.

    A subclass implements `_learn_scores` and `_calibrated` on the log odds of the second class.
    """

    n_classes_: int = fitted(integer(2, 2))

    def _learn(self, shards: Shards) -> None:
        if self.n_classes_ != 2:
            name = type(self).__name__
            rule, fix = "supports exactly 2 classes", f"Use OneVsRest({name}())"
            raise BadValueError("", name, rule, f"{self.n_classes_}", fix)
        self._learn_scores(next(one_vs_rest_shards(shards, range(1, 2))))

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        odds = self._calibrated(ColumnBlock(outputs).log_odds[1])
        return np.column_stack([log_expit(-odds), log_expit(odds)])

    def _add_probabilities(self, block: ColumnBlock, weight: float, mixed: FloatArray) -> None:
        odds = self._calibrated(block.log_odds[1])
        mixed[0] += weight * expit(-odds)
        mixed[1] += weight * expit(odds)

    @abstractmethod
    def _learn_scores(self, shards: Shards[BinaryRows]) -> None:
        """Set the parameters of one class against the rest."""

    @abstractmethod
    def _calibrated(self, scores: FloatArray) -> FloatArray:
        """Return calibrated log odds."""


@final
class PlattScaling(BaseBinaryCalibrator):
    """Fit a logistic regression on log odds, with Platt's smoothed targets.

    For two classes and few rows: log odds = slope * log odds + intercept. The smoothed targets
    keep both finite on separable data.

    Parameters
    ----------
    smooth : bool, default=True
        Use Platt's targets, (n1 + 1) / (n1 + 2) for the n1 positives and 1 / (n0 + 2) for the n0
        negatives. Otherwise 1 and 0: the maximum likelihood of a plain logistic regression.

    Attributes
    ----------
    slope_, intercept_ : float
        Coefficients; a slope below 1 if the model was over-confident.

    References
    ----------
    Platt, "Probabilistic outputs for support vector machines", 1999; here on log odds.

    Examples
    --------
    >>> from dubito.calibrate import PlattScaling
    >>> from dubito import Logits
    >>> platt = PlattScaling().fit(Logits([2.0, 1.0, -1.0, -2.0, 2.0]), [1, 1, 0, 0, 0])
    >>> round(platt.slope_, 2), round(platt.intercept_, 2)
    (0.4, -0.53)
    """

    slope_: float = fitted(number())
    intercept_: float = fitted(number())

    def __init__(self, smooth: bool = True) -> None:
        self.smooth = smooth

    def _check_params(self) -> None:
        require_bool(self.smooth, "smooth", type(self).__name__)

    def _learn_scores(self, shards: Shards[BinaryRows]) -> None:
        def features(scores: FloatArray) -> FloatArray:
            return np.column_stack([scores, np.ones(scores.size)])

        positive, total = shards.sum(
            lambda rows: np.array([rows.weight @ rows.targets, rows.weight.sum()])
        )
        smoothed = 1 / (total - positive + 2), (positive + 1) / (positive + 2)
        targets = smoothed if self.smooth else (0.0, 1.0)
        start = np.array([1.0, 0.0])
        found = _fit_logistic(shards, features, targets, start, penalty=1e-12)
        self.slope_, self.intercept_ = map(float, found)

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        return self.slope_ * scores + self.intercept_

    def _describe(self) -> str:
        verdict = "over-confident" if self.slope_ < 1 else "under-confident"
        if self.slope_ <= 0:
            verdict = "scores contradict the labels"
        elif self.slope_ < 1e-6:  # as if all labels are of one class
            verdict = "scores tell nothing about the labels"
        elif abs(self.slope_ - 1) < 0.005:
            verdict = "neither over- nor under-confident"
        sign = "-" if self.intercept_ < 0 else "+"
        return f"log odds = {self.slope_:.3g} z {sign} {abs(self.intercept_):.3g}: {verdict}"


@final
class BetaCalibration(BaseBinaryCalibrator):
    """Fit log odds = a log(p) - b log(1 - p) + c, with a and b non-negative.

    For two classes whose confidence is off differently near 0 and near 1.

    Attributes
    ----------
    coefficients_ : array of shape (3,)
        a, b and c.

    References
    ----------
    Kull, Silva Filho and Flach, "Beta calibration: a well-founded and easily implemented
    improvement on logistic calibration for binary classifiers", AISTATS 2017.

    Examples
    --------
    >>> from dubito.calibrate import BetaCalibration
    >>> from dubito import Probabilities
    >>> p = Probabilities([0.9, 0.8, 0.3, 0.2, 0.9, 0.1])
    >>> beta = BetaCalibration().fit(p, [1, 1, 0, 1, 0, 0])
    >>> beta.predict_proba([0.5]).round(2).tolist()
    [[0.45, 0.55]]
    """

    coefficients_: FloatArray = fitted(array(3))

    def _learn_scores(self, shards: Shards[BinaryRows]) -> None:
        is_free = np.ones(3, dtype=bool)

        def features(scores: FloatArray) -> FloatArray:
            return _beta_features(scores)[:, is_free]

        while True:
            start = np.array([1.0, 1.0, 0.0])[is_free]
            self.coefficients_ = np.zeros(3)
            self.coefficients_[is_free] = _fit_logistic(shards, features, (0.0, 1.0), start, 1e-6)
            slopes = self.coefficients_[:2]
            if slopes.min() >= 0:
                return
            is_free[np.argmin(slopes)] = False

    def _check_fitted(self, entry: Entry) -> None:
        is_valid = np.append(self.coefficients_[:2] >= 0, True)
        rule = "two numbers from 0 up, and any third"
        require_each(is_valid, self.coefficients_, entry.at("coefficients_"), rule)

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        return np.asarray(_beta_features(scores) @ self.coefficients_)

    def _describe(self) -> str:
        a, b, c = self.coefficients_
        sign = "-" if c < 0 else "+"
        return f"log odds = {a:.3g} log(p) - {b:.3g} log(1 - p) {sign} {abs(c):.3g}"


def _beta_features(scores: FloatArray) -> FloatArray:
    """Return log(p), -log(1 - p) and 1 for log odds."""
    return np.column_stack([log_expit(scores), -log_expit(-scores), np.ones(scores.size)])


def _fit_logistic(
    shards: Shards[BinaryRows],
    features_of: Callable[[FloatArray], FloatArray],
    targets: tuple[float, float],
    start: FloatArray,
    penalty: float,
) -> FloatArray:
    """Return the coefficients of lowest mean log loss.

    `features_of` turns log odds into rows x coefficients. `targets` are the label values of the
    rest and of the class. `penalty` multiplies the squared distance from the start.
    """

    def sums(rows: BinaryRows, coefficients: FloatArray) -> FloatArray:
        features = features_of(rows.scores)
        odds = features @ coefficients
        target = targets[0] + (targets[1] - targets[0]) * rows.targets
        p = expit(odds)
        loss = -(target * log_expit(odds) + (1 - target) * log_expit(-odds))
        gradient = features.T @ (rows.weight * (p - target))
        hessian = (features * (rows.weight * p * (1 - p))[:, np.newaxis]).T @ features
        return np.concatenate([[rows.weight.sum(), rows.weight @ loss], gradient, hessian.ravel()])

    def objective(coefficients: FloatArray) -> tuple[float, FloatArray, FloatArray]:
        weight, *rest = shards.sum(lambda rows: sums(rows, coefficients))
        require_weight(weight, "A calibrator")
        loss, *derivatives = np.array(rest) / weight
        away = coefficients - start
        gradient = np.array(derivatives[: start.size]) + 2 * penalty * away
        hessian = np.reshape(derivatives[start.size :], (start.size, start.size))
        return loss + penalty * away @ away, gradient, hessian + 2 * penalty * np.eye(start.size)

    def newton_step(gradient: FloatArray, hessian: FloatArray) -> tuple[FloatArray, float]:
        step = -np.linalg.solve(hessian, gradient)
        return step, float(-gradient @ step)

    return minimize_newton(objective, newton_step, start, TOLERANCE)


def minimize_newton(
    objective: Callable[[FloatArray], tuple[Any, ...]],
    newton_step: Callable[..., tuple[FloatArray, float]],
    start: FloatArray,
    tolerance: float,
) -> FloatArray:
    """Return the minimum of a convex function, by Newton's method with backtracking.

    `objective` returns the value and what `newton_step` takes, which returns the step and the
    decrease that it predicts; below `tolerance`, the last step is taken without a look.
    """
    best = start
    value, *derivatives = objective(best)
    for _ in range(MAX_ROUNDS):
        step, decrease = newton_step(*derivatives)
        if decrease < tolerance:
            return best + step
        length = 1.0
        while True:
            trial = best + length * step
            tried = objective(trial)
            if tried[0] <= value - 1e-4 * length * decrease or length < MIN_LENGTH:
                break
            length /= 2
        best, (value, *derivatives) = trial, tried
    return best


@final
class HistogramBinning(BaseBinaryCalibrator):
    """Replace probabilities by the observed frequency of positives in their bin.

    For two classes and many rows. A bin of a single class is smoothed by 1 / (n + 1) towards the
    prior; an empty bin returns its center. The textbook form is ``smooth=False``.

    Parameters
    ----------
    n_bins : int
        Number of bins.
    strategy : {"uniform", "quantile"}
        Bins of equal width or equal mass. For a stream, equal mass is up to a grid of log odds
        with steps of 0.014.
    closed : {"right", "left"}, default="right"
        Which edge belongs to a bin: (a, b], with 0 in the first bin; or [a, b), with 1 in the last.
    smooth : bool, default=True
        Smooth bins of a single class. Otherwise they give 0 or 1, up to the floor of 1e-12 that
        keeps log loss finite.

    Attributes
    ----------
    edges_ : array of shape (n_bins + 1,)
        Bin edges, from 0 to 1.
    values_ : array of shape (n_bins,)
        Calibrated probability of each bin.
    counts_ : array of shape (n_bins,)
        Total weight of each bin.
    n_certain_ : float
        Total weight in bins of a single class, which are smoothed by default.
    is_left_closed_ : bool
        Whether bins are [a, b).

    References
    ----------
    Zadrozny and Elkan, "Obtaining calibrated probability estimates from decision trees and naive
    Bayesian classifiers", ICML 2001.

    Examples
    --------
    >>> from dubito.calibrate import HistogramBinning
    >>> bins = HistogramBinning(n_bins=2).fit([0.1, 0.2, 0.3, 0.9, 0.8], [0, 0, 1, 1, 0])
    >>> bins.values_.round(2).tolist()
    [0.33, 0.5]
    """

    values_: FloatArray = fitted(array(None, low=0, high=1))
    edges_: FloatArray = fitted(array(None, low=0, high=1))
    counts_: FloatArray = fitted(array("values_", low=0, high=MAX_FLOAT))
    n_certain_: float = fitted(number(0, MAX_FLOAT))
    is_left_closed_: bool = fitted(Omittable(boolean), False)

    def __init__(
        self,
        n_bins: int = 15,
        strategy: Literal["uniform", "quantile"] = "uniform",
        closed: Literal["right", "left"] = "right",
        smooth: bool = True,
    ) -> None:
        self.n_bins = n_bins
        self.strategy = strategy
        self.closed = closed
        self.smooth = smooth

    def _check_params(self) -> None:
        name = type(self).__name__
        uniform_edges(self.n_bins, name)
        require_choice(self.strategy, ("uniform", "quantile"), "strategy", name)
        require_choice(self.closed, ("right", "left"), "closed", name)
        require_bool(self.smooth, "smooth", name)

    def _check_fitted(self, entry: Entry) -> None:
        edges, place = self.edges_, entry.at("edges_")
        require_increasing(edges, place)
        if edges.size != self.values_.size + 1 or (edges[0], edges[-1]) != (0, 1):
            rule = f"{self.values_.size + 1} numbers from 0 to 1, one more than values_"
            raise place.error(rule, f"{edges.size} from {edges[0]:g} to {edges[-1]:g}")

    def _learn_scores(self, shards: Shards[BinaryRows]) -> None:
        edges = self._make_edges(shards)
        self.is_left_closed_ = self.closed == "left"

        def sums(rows: BinaryRows) -> FloatArray:
            bins = self._bins(rows.scores, edges)
            columns = (rows.weight, rows.weight * rows.targets)
            return np.stack([np.bincount(bins, column, edges.size - 1) for column in columns])

        weight, positive = shards.sum(sums)
        require_weight(weight.sum(), "A calibrator")
        prior = (positive.sum() + 0.5) / (weight.sum() + 1)
        is_certain = (weight > 0) & ((positive <= 0) | (positive >= weight))
        extra = is_certain * float(self.smooth)
        smoothed = (positive + prior * extra) / np.maximum(weight + extra, FLOOR)
        self.edges_, self.counts_ = edges, weight
        self.values_ = np.where(weight > 0, smoothed, (edges[1:] + edges[:-1]) / 2)
        self.n_certain_ = float(weight[is_certain].sum())

    def _make_edges(self, shards: Shards[BinaryRows]) -> FloatArray:
        if self.strategy == "uniform":
            return uniform_edges(self.n_bins, type(self).__name__)
        held = shards.in_memory
        if held is not None:
            return _equal_mass_edges(held.scores, held.weight, self.n_bins)
        centers = np.concatenate([[GRID[0]], (GRID[1:] + GRID[:-1]) / 2, [GRID[-1]]])

        def weigh(rows: BinaryRows) -> FloatArray:
            cells = np.searchsorted(GRID, rows.scores)
            return np.bincount(cells, rows.weight, centers.size).astype(np.float64)

        weight = shards.sum(weigh)
        return _equal_mass_edges(centers, weight, self.n_bins)

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        values = self.values_[self._bins(scores, self.edges_)]
        return np.asarray(logit(np.clip(values, FLOOR, 1 - FLOOR)))

    def _bins(self, scores: FloatArray, edges: FloatArray) -> IntArray:
        """Return the bin of each row, from its log odds."""
        if not self.is_left_closed_:
            return assign(expit(scores) * (1 - ROUNDING), edges)
        # Mirrored, so that 1 - p and the other edge of a bin take their places.
        return edges.size - 2 - assign(expit(-scores) * (1 - ROUNDING), 1 - edges[::-1])

    def _describe(self) -> str:
        n_bins, n_empty = self.values_.size, int((self.counts_ == 0).sum())
        return (
            f"{n_bins} bins ({n_empty} empty) from {self.values_.min():.3g} to "
            f"{self.values_.max():.3g}; {self.n_certain_:,.0f} rows in bins of one class"
            f"{', smoothed' if self.smooth else ''}"
        )


def _equal_mass_edges(scores: FloatArray, weight: FloatArray, n_bins: int) -> FloatArray:
    """Return edges, as probabilities, between bins of about equal weight.

    A cut is made in the middle of the gap between scores that is nearest by weight, or of the
    wider of two equally near gaps. Two equally wide ones get no cut: swapping the classes mirrors
    the edges.
    """
    values, place = np.unique(scores[weight > 0], return_inverse=True)
    gaps = np.diff(values)
    if not gaps.size:
        return np.array([0.0, 1.0])
    below = np.cumsum(np.bincount(place, weight[weight > 0]))
    wanted = below[-1] * np.arange(1, n_bins) / n_bins
    right = np.clip(np.searchsorted(below, wanted), 0, gaps.size - 1)
    left = np.maximum(right - 1, 0)
    advantage = np.abs(below[right] - wanted) - np.abs(below[left] - wanted)  # of the left gap
    wider = gaps[left] - gaps[right]
    wider[np.abs(wider) <= TIE * (gaps[left] + gaps[right])] = 0
    advantage = np.where(np.abs(advantage) > TIE * below[-1], advantage, wider)
    nearest = np.where(advantage > 0, left, right)[(advantage != 0) | (left == right)]
    cuts = expit((values[nearest] + values[nearest + 1]) / 2)
    inside = np.unique(cuts[(cuts > MIN_EDGE) & (cuts < 1 - MIN_EDGE)])
    return np.concatenate([[0.0], inside, [1.0]])
