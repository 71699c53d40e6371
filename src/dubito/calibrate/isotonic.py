"""Isotonic calibration: a monotone curve from score to probability, with knot reduction."""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
from scipy.special import logit

from dubito.arrays import FloatArray, IntArray, contiguous
from dubito.calibrate.binary import BaseBinaryCalibrator, BinaryRows, HeldScores, Scores
from dubito.calibrate.inputs import FLOOR
from dubito.errors import EmptyStateError
from dubito.kernels.monotone import add_to_cells, pool_neighbors, read_knots
from dubito.serialization.arrays import array, require_increasing
from dubito.serialization.fields import MOST, Entry, declare, number

# Streamed scores are told apart by their cell: they are rounded by at most half a cell, 0.007.
GRID = np.linspace(-28.0, 28.0, 4097)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ScoredRows:
    """Scores of some classes, rows x classes, with labels: codes, or shares where there are any."""

    scores: FloatArray
    codes: IntArray
    soft: FloatArray
    weight: FloatArray

    def positives(self) -> tuple[IntArray, FloatArray]:
        """Return the class and the score of every label, or share of one."""
        classes: IntArray
        if self.soft.shape[0] == self.scores.shape[0]:
            rows, classes = np.nonzero((self.soft > 0) & (self.weight > 0)[:, np.newaxis])
        else:
            rows = np.flatnonzero((self.weight > 0) & (self.codes >= 0))
            classes = self.codes[rows]
        return classes, self.scores[rows, classes]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Curves:
    """A rising curve a class, linear between knots: class k has knots offsets[k] to offsets[k+1].

    `n_certain` is the weight of the rows that each gave 0 or 1 before that was smoothed.
    """

    x: FloatArray
    y: FloatArray
    offsets: IntArray
    n_certain: FloatArray

    def read(self, scores: FloatArray) -> FloatArray:
        """Return the probability of each class's score by itself."""
        values = np.empty(scores.shape)
        arrays = (contiguous(scores), contiguous(self.x), contiguous(self.y))
        read_knots(*arrays, contiguous(self.offsets), values)
        return values


@final
@dataclass(frozen=True, slots=True, eq=False)
class Cells:
    """Rows gathered along each class's score; adding two pools their rows."""

    weight: FloatArray
    positive: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, rows: ScoredRows, knots: FloatArray, offsets: IntArray) -> Cells:
        """Return the cells of some rows."""
        cells = np.tile([0.0, 0.0, np.inf, -np.inf], (knots.size + offsets.size - 1, 1))
        columns = (rows.scores, rows.codes, rows.soft, rows.weight, knots, offsets)
        add_to_cells(*(contiguous(column) for column in columns), cells)
        return cls(*cells.T)

    def __add__(self, other: Cells) -> Cells:
        return Cells(
            self.weight + other.weight,
            self.positive + other.positive,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


Sum = Callable[[Callable[[ScoredRows], Any]], Any]


def fit_curves(sum_over: Sum, n_curves: int, *, is_held: bool) -> Curves:
    """Return the rising curves closest to the labels, one a class.

    `sum_over` sums a function over all rows; `is_held` says that they are in memory.
    """
    if is_held:
        found = sum_over(lambda rows: [rows.positives()])
        knots, offsets = _different_scores(found, n_curves)
    else:
        knots, offsets = np.tile(GRID, n_curves), np.arange(n_curves + 1) * GRID.size
    cells = sum_over(lambda rows: Cells.of(rows, knots, offsets))
    if not cells.weight.sum() > 0:
        raise EmptyStateError("A calibrator")
    return _curves_of(cells, offsets)


def _different_scores(
    found: list[tuple[IntArray, FloatArray]], n_curves: int
) -> tuple[FloatArray, IntArray]:
    """Return each class's different scores, rising, class after class, and where each starts."""
    classes = np.concatenate([part for part, _ in found])
    scores = np.concatenate([part for _, part in found])
    order = np.lexsort((scores, classes))
    classes, scores = classes[order], scores[order]
    is_new = np.ones(scores.size, dtype=bool)
    is_new[1:] = (np.diff(scores) != 0) | (np.diff(classes) != 0)
    counts = np.bincount(classes[is_new], minlength=n_curves)
    return scores[is_new], np.concatenate([[0], np.cumsum(counts)])


def _curves_of(cells: Cells, offsets: IntArray) -> Curves:
    """Return each class's rising curve, nowhere 0 or 1."""
    bounds = offsets + np.arange(offsets.size)  # n knots make n + 1 cells
    curves = [_curve_of(cells, slice(*bounds[k : k + 2])) for k in range(offsets.size - 1)]
    xs, ys, n_certain = zip(*curves, strict=True)
    ends = np.cumsum([x.size for x in xs])
    return Curves(np.concatenate(xs), np.concatenate(ys), np.append(0, ends), np.array(n_certain))


def _curve_of(cells: Cells, part: slice) -> tuple[FloatArray, FloatArray, float]:
    """Return the knots of the rising curve through some cells, its values, and `n_certain`."""
    columns = (cells.positive, cells.weight, cells.low, cells.high)
    blocks = _pooled([np.array(column[part]) for column in columns])
    positive, weight = (column[part].sum() for column in columns[:2])
    blocks, n_certain = _with_smooth_ends(blocks, prior=(positive + 0.5) / (weight + 1))
    positive, weight, low, high = blocks
    x = np.stack([low, high], axis=1).ravel()
    y = np.repeat(positive / weight, 2)
    is_new = np.append(True, np.diff(x) > 0)  # a block of one score is one knot
    return x[is_new], y[is_new], n_certain


def _pooled(cells: list[FloatArray]) -> list[FloatArray]:
    """Return cells (positive weight, weight, lowest and highest score), pooled until they rise."""
    n_blocks = pool_neighbors(*cells)
    return [column[:n_blocks] for column in cells]


def _with_smooth_ends(blocks: list[FloatArray], prior: float) -> tuple[list[FloatArray], float]:
    """Add one row of the prior to an end that is 0 or 1, pool again, and count the rows there.

    That is (s + prior) / (n + 1): smoothed by 1 / (n + 1) towards the prior. Pooling again keeps
    the curve rising.
    """
    positive, weight = blocks[:2]
    is_certain = (positive <= 0) | (positive >= weight)  # of rising blocks, only ends can be
    n_certain = float(weight[is_certain].sum())
    positive[is_certain] += prior
    weight[is_certain] += 1
    return _pooled(blocks), n_certain


AHEAD = 50  # knots looked at beyond the last one that fits, so that time grows with the knots
REDUCTION_ROUNDING = 1e-12  # of values


def _few_knots(x: FloatArray, y: FloatArray, bound: float) -> IntArray:
    """Return which knots of a curve to keep, so that it differs nowhere by more than `bound`.

    Greedy: from each knot kept, a straight line goes on to the furthest knot that it can reach
    while it passes all knots between within the bound. The ends, and so all extremes of a rising
    curve, stay.

    >>> _few_knots(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 0.1, 0.2, 0.9]), 0.01).tolist()
    [0, 2, 3]
    """
    bound = max(bound - REDUCTION_ROUNDING, 0.0)
    places, values = x.tolist(), y.tolist()
    kept = [0]
    while kept[-1] < len(places) - 1:
        kept.append(_furthest(places, values, kept[-1], bound))
    return np.array(kept)


def _furthest(places: list[float], values: list[float], start: int, bound: float) -> int:
    """Return the furthest knot that a line from another one reaches within the bound."""
    found, least, most = start + 1, -np.inf, np.inf  # slopes that pass all knots so far
    for k in range(start + 1, len(places)):
        away = places[k] - places[start]
        rise = values[k] - values[start]
        if least <= rise / away <= most:
            found = k
        least, most = max(least, (rise - bound) / away), min(most, (rise + bound) / away)
        if least > most or k - found > AHEAD:
            break
    return found


REACH = 30.0  # log odds are never beyond
ROUNDING = 1e-9  # by which a curve may fall


@final
class IsotonicCalibration(BaseBinaryCalibrator):
    """Fit the rising curve closest to the labels, linear between its knots.

    For two classes and some thousand rows. An end that is all one class is smoothed by 1 / (n + 1)
    towards the prior. Exact in memory; of a stream, that of log odds rounded by at most 0.007.
    Zadrozny and Elkan, "Transforming classifier scores", 2002.

    >>> curve = IsotonicCalibration().fit([0.1, 0.4, 0.5, 0.8, 0.9], [0, 1, 0, 1, 1])
    >>> curve.predict_proba([0.4, 0.5])[:, 1].tolist()
    [0.5, 0.5]
    """

    knots_: FloatArray
    values_: FloatArray
    n_certain_: float

    fitted_fields = declare(
        knots_=array(None, low=-REACH, high=REACH),
        values_=array("knots_", low=0, high=1),
        n_certain_=number(0, MOST),
    )

    def _learn_scores(self, scores: Scores) -> None:
        def sum_over(function: Callable[[ScoredRows], Any]) -> Any:
            return scores.sum(lambda rows: function(_as_column(rows)))

        self._take(fit_curves(sum_over, 1, is_held=isinstance(scores, HeldScores)))

    def _take(self, curves: Curves, k: int = 0) -> Self:
        part = slice(curves.offsets[k], curves.offsets[k + 1])
        self.knots_, self.values_ = curves.x[part], curves.y[part]
        self.n_certain_ = float(curves.n_certain[k])
        return self

    def _check_fitted(self, entry: Entry) -> None:
        require_increasing(self.knots_, entry.at("knots_"))
        require_increasing(self.values_, entry.at("values_"), least=-ROUNDING)

    def _thinned(self, bound: float) -> Self:
        twin, kept = copy(self), _few_knots(self.knots_, self.values_, bound)
        twin.knots_, twin.values_ = self.knots_[kept], self.values_[kept]
        return twin

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        values = np.interp(scores, self.knots_, self.values_)
        return np.asarray(logit(np.clip(values, FLOOR, 1 - FLOOR)))

    def _words(self) -> str:
        return (
            f"a rising curve with {self.knots_.size} knots from {self.values_.min():.3g} to "
            f"{self.values_.max():.3g}; {self.n_certain_:,.0f} rows at its ends smoothed"
        )


def _as_column(rows: BinaryRows) -> ScoredRows:
    """Return the rows of one class as a table of one column."""
    codes = np.zeros(rows.scores.size, dtype=np.int64)
    return ScoredRows(rows.scores[:, np.newaxis], codes, rows.targets[:, np.newaxis], rows.weight)
