"""Isotonic calibration: a monotone curve from score to probability, with knot reduction."""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass
from typing import Literal, NamedTuple, Self, final

import numpy as np
from scipy.special import logit

from dubito.arrays import FloatArray, IntArray, contiguous, require_bool, require_choice
from dubito.calibrate.binary import GRID, BaseBinaryCalibrator, BinaryRows, ScoredRows
from dubito.calibrate.calibrator import FLOOR
from dubito.data.shards import Shards
from dubito.kernels.nonparametric import add_to_cells, pool_neighbors, read_knots
from dubito.measure.state import require_weight
from dubito.serialization.array_fields import array, require_increasing
from dubito.serialization.fields import MAX_FLOAT, Entry, fitted, number

MAX_LOG_ODDS = 30.0  # no log odds are larger
ROUNDING = 1e-9  # by which a curve in a file may decrease
LOOK_AHEAD = 50  # knots tried beyond the last that fits: time stays linear in the knots
VALUE_ROUNDING = 1e-12  # of values at knots
STEP = 1e-9  # width of a step, in log odds or as a fraction of them; rounding errors are smaller


@final
class IsotonicCalibration(BaseBinaryCalibrator):
    """Fit the increasing curve closest to the labels, linear between its knots.

    For two classes and some thousand rows. An end where all rows have one class is smoothed by
    1 / (n + 1) towards the prior. Exact in memory; for a stream, log odds are rounded by at most
    0.007. The textbook form is ``IsotonicCalibration("step", smooth=False)``.

    Parameters
    ----------
    interpolation : {"linear", "step"}, default="linear"
        Between the scores of two pooled blocks, a line; or a step function, which has the value of
        a block from its lowest score up to the lowest score of the next.
    smooth : bool, default=True
        Smooth ends of probability 0 or 1. Otherwise they stay, up to the floor of 1e-12 that keeps
        log loss finite.

    Attributes
    ----------
    knots_, values_ : array of shape (n_knots,)
        Log odds at the knots, and the calibrated probabilities there.
    n_certain_ : float
        Total weight of the rows at ends of a single class, which are smoothed by default.

    References
    ----------
    Zadrozny and Elkan, "Transforming classifier scores into accurate multiclass probability
    estimates", KDD 2002.

    Examples
    --------
    >>> from dubito.calibrate import IsotonicCalibration
    >>> curve = IsotonicCalibration().fit([0.1, 0.4, 0.5, 0.8, 0.9], [0, 1, 0, 1, 1])
    >>> curve.predict_proba([0.4, 0.5])[:, 1].tolist()
    [0.5, 0.5]
    """

    knots_: FloatArray = fitted(array(None, low=-MAX_LOG_ODDS, high=MAX_LOG_ODDS))
    values_: FloatArray = fitted(array("knots_", low=0, high=1))
    n_certain_: float = fitted(number(0, MAX_FLOAT))

    def __init__(
        self, interpolation: Literal["linear", "step"] = "linear", smooth: bool = True
    ) -> None:
        self.interpolation = interpolation
        self.smooth = smooth

    def _check_params(self) -> None:
        name = type(self).__name__
        require_choice(self.interpolation, ("linear", "step"), "interpolation", name)
        require_bool(self.smooth, "smooth", name)

    def _learn_scores(self, shards: Shards[BinaryRows]) -> None:
        in_memory = shards.in_memory is not None
        scored = shards.map(BinaryRows.as_table)
        self._take(*self._fit_curves(scored, 1, in_memory=in_memory))

    def _fit_curves(
        self, shards: Shards[ScoredRows], n_curves: int, *, in_memory: bool
    ) -> list[Curve]:
        """Return the increasing curve closest to the labels of each class.

        In memory the cells are the distinct scores of positives, which makes the curves exact.
        """
        if in_memory:
            positives = shards.sum(lambda rows: [rows.positives()])
            knots, offsets = _distinct_scores(positives, n_curves)
        else:
            knots, offsets = np.tile(GRID, n_curves), np.arange(n_curves + 1) * GRID.size
        cells = shards.sum(lambda rows: _Cells.of(rows, knots, offsets))
        require_weight(cells.weight.sum(), "A calibrator")
        bounds = offsets + np.arange(offsets.size)  # n knots separate n + 1 cells
        parts = [slice(*bounds[k : k + 2]) for k in range(n_curves)]
        is_step = self.interpolation == "step"
        return [_fit_curve(cells, part, is_step=is_step, smooth=self.smooth) for part in parts]

    def _take(self, curve: Curve) -> None:
        """Use a curve."""
        self.knots_, self.values_, self.n_certain_ = curve

    def _check_fitted(self, entry: Entry) -> None:
        require_increasing(self.knots_, entry.at("knots_"))
        require_increasing(self.values_, entry.at("values_"), least=-ROUNDING)

    def _with_fewer_knots(self, tolerance: float) -> Self:
        twin, used = copy(self), _select_knots(self.knots_, self.values_, tolerance)
        twin.knots_, twin.values_ = self.knots_[used], self.values_[used]
        return twin

    def _calibrated(self, scores: FloatArray) -> FloatArray:
        values = np.interp(scores, self.knots_, self.values_)
        return np.asarray(logit(np.clip(values, FLOOR, 1 - FLOOR)))

    def _describe(self) -> str:
        return (
            f"an increasing curve with {self.knots_.size} knots from {self.values_.min():.3g} to "
            f"{self.values_.max():.3g}; {self.n_certain_:,.0f} rows at its ends"
            f"{' smoothed' if self.smooth else ', of one class'}"
        )


class Curve(NamedTuple):
    """Knots of an increasing curve, its values there, and the weight at ends that were smoothed."""

    x: FloatArray
    y: FloatArray
    n_certain: float


def interpolate_curves(curves: list[Curve], scores: FloatArray) -> FloatArray:
    """Return the value of each class's curve at its scores, classes x rows."""
    knots, heights, _ = zip(*curves, strict=True)
    offsets = np.cumsum([0, *map(len, knots)])
    values = np.empty(scores.shape)
    columns = (scores, np.concatenate(knots), np.concatenate(heights), offsets)
    read_knots(*map(contiguous, columns), values)
    return values


def _distinct_scores(
    positives: list[tuple[IntArray, FloatArray]], n_curves: int
) -> tuple[FloatArray, IntArray]:
    """Return the distinct scores of each class, increasing, and where each class starts."""
    classes, scores = (np.concatenate(parts) for parts in zip(*positives, strict=True))
    order = np.lexsort((scores, classes))
    classes, scores = classes[order], scores[order]
    is_new = np.ones(scores.size, dtype=bool)
    is_new[1:] = (np.diff(scores) != 0) | (np.diff(classes) != 0)
    counts = np.bincount(classes[is_new], minlength=n_curves)
    return scores[is_new], np.concatenate([[0], np.cumsum(counts)])


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Cells:
    """Sums over cells of each class's score; adding two pools their rows."""

    weight: FloatArray
    positive: FloatArray
    low: FloatArray
    high: FloatArray

    @classmethod
    def of(cls, rows: ScoredRows, knots: FloatArray, offsets: IntArray) -> _Cells:
        cells = np.tile([0.0, 0.0, np.inf, -np.inf], (knots.size + offsets.size - 1, 1))
        columns = (rows.scores, rows.labels, rows.soft_labels, rows.weight, knots, offsets)
        add_to_cells(*map(contiguous, columns), cells)
        return cls(*cells.T)

    def __add__(self, other: _Cells) -> _Cells:
        return _Cells(
            self.weight + other.weight,
            self.positive + other.positive,
            np.minimum(self.low, other.low),
            np.maximum(self.high, other.high),
        )


def _fit_curve(cells: _Cells, part: slice, *, is_step: bool, smooth: bool) -> Curve:
    """Return knots and values of the increasing curve through some cells, and `n_certain`."""
    columns = (cells.positive, cells.weight, cells.low, cells.high)
    blocks = _pool_violators([np.array(column[part]) for column in columns])
    positive, weight = (column[part].sum() for column in columns[:2])
    prior = (positive + 0.5) / (weight + 1)
    blocks, n_certain = _smooth_ends(blocks, prior if smooth else None)
    positive, weight, low, high = blocks
    x = np.stack([low, high], axis=1).ravel()
    y = np.repeat(positive / weight, 2)
    is_new = np.append(True, np.diff(x) > 0)  # a block of one score is one knot
    curve = Curve(x[is_new], y[is_new], n_certain)
    return _as_steps(curve, low, positive / weight) if is_step else curve


def _as_steps(curve: Curve, low: FloatArray, values: FloatArray) -> Curve:
    """Return a curve that jumps, within a part in 10^9, just below the lowest score of a block."""
    width = STEP * np.maximum(np.abs(low[1:]), 1)
    x = np.concatenate([low[1:] - 2 * width, low[1:] - width, curve.x])
    y = np.concatenate([values[:-1], values[1:], curve.y])
    # Blocks that are nearer to each other than a step stay as they are.
    is_apart = low[1:] - 2 * width > curve.x[np.searchsorted(curve.x, low[1:]) - 1]
    is_used = np.concatenate([is_apart, is_apart, np.ones(curve.x.size, dtype=bool)])
    order = np.argsort(x[is_used], kind="stable")
    return Curve(x[is_used][order], y[is_used][order], curve.n_certain)


def _pool_violators(cells: list[FloatArray]) -> list[FloatArray]:
    """Pool cells (positive weight, weight, lowest and highest score) until they increase."""
    n_blocks = pool_neighbors(*cells)
    return [column[:n_blocks] for column in cells]


def _smooth_ends(blocks: list[FloatArray], prior: float | None) -> tuple[list[FloatArray], float]:
    """Smooth ends of 0 or 1 to (s + prior) / (n + 1), pool again, and return the weight there.

    Without a prior they stay as they are.
    """
    positive, weight = blocks[:2]
    is_certain = (positive <= 0) | (positive >= weight)  # of increasing blocks, only the ends
    n_certain = float(weight[is_certain].sum())
    if prior is None:
        return blocks, n_certain
    positive[is_certain] += prior
    weight[is_certain] += 1
    return _pool_violators(blocks), n_certain


def _select_knots(x: FloatArray, y: FloatArray, tolerance: float) -> IntArray:
    """Return which knots to keep so that the curve changes by at most `tolerance`.

    Greedy: from each knot, a line goes to the furthest knot that it reaches while it passes all
    knots between within the tolerance. The ends, and so all extremes of the curve, stay.

    >>> _select_knots(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 0.1, 0.2, 0.9]), 0.01).tolist()
    [0, 2, 3]
    """
    tolerance = max(tolerance - VALUE_ROUNDING, 0.0)
    places, values = x.tolist(), y.tolist()
    used = [0]
    while used[-1] < len(places) - 1:
        used.append(_furthest_knot(places, values, used[-1], tolerance))
    return np.array(used)


def _furthest_knot(places: list[float], values: list[float], start: int, tolerance: float) -> int:
    """Return the furthest knot that a line from another one reaches within the tolerance."""
    found, lowest, highest = start + 1, -np.inf, np.inf  # slopes that pass all knots so far
    for k in range(start + 1, len(places)):
        away = places[k] - places[start]
        rise = values[k] - values[start]
        if lowest <= rise / away <= highest:
            found = k
        lowest = max(lowest, (rise - tolerance) / away)
        highest = min(highest, (rise + tolerance) / away)
        if lowest > highest or k - found > LOOK_AHEAD:
            break
    return found
