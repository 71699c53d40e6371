"""Decision regions over two features, and the boundaries between actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np

from dubito.arrays import (
    ArrayResult,
    BoolArray,
    FloatArray,
    IntArray,
    as_count,
    as_finite,
    as_floats,
    freeze,
)
from dubito.calibrate.calibrator import as_class_outputs
from dubito.data.batch import row_statistics
from dubito.decide.actions import MARGIN, expected_costs, least_costs
from dubito.decide.costs import CostMatrix, as_costs
from dubito.errors import BadTypeError, BadValueError

CORNERS = np.array([[0, 0], [0, 1], [1, 1], [1, 0]])  # of a cell, in rows and columns, in turn
TRIANGLES = np.array([[0, 1, 2], [0, 2, 3]])
ROUNDING = 1e-12  # costs this close, relative to their size, are equal
SHORTEST = 1e-9  # of the diagonal of a cell: shorter lines only touch a corner


def _boundaries_of(x: FloatArray, y: FloatArray, costs: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return the lines where the cheapest action changes, for costs of shape y x x x actions.

    They are segments x two ends x two features, with the two actions each lies between. Each cell
    is cut into two triangles on which costs are linear, so that lines meet exactly where three
    actions cost the same.
    """
    least = costs.argmin(axis=2)
    # An action that is cheapest at no grid point has no region.
    actions = np.unique(least)
    rows, columns = _mixed_cells(least)
    corner_rows = rows[:, np.newaxis] + CORNERS[:, 0]
    corner_columns = columns[:, np.newaxis] + CORNERS[:, 1]
    points = np.stack([x[corner_columns], y[corner_rows]], axis=-1)[:, TRIANGLES]
    heights = costs[corner_rows, corner_columns][:, TRIANGLES][..., actions]
    points, heights = points.reshape(-1, 3, 2), heights.reshape(-1, 3, actions.size)
    shortest = SHORTEST * float(np.hypot(x[1] - x[0], y[1] - y[0]))
    segments, between = [np.empty((0, 2, 2))], [np.empty((0, 2), np.int64)]
    for first, second in combinations(range(actions.size), 2):
        lines = _lines_between(points, heights, first, second)
        lines = lines[np.hypot(*(lines[:, 1] - lines[:, 0]).T) > shortest]
        segments.append(lines)
        between.append(np.tile([actions[first], actions[second]], (len(lines), 1)))
    return np.concatenate(segments), np.concatenate(between)


def _mixed_cells(least: IntArray) -> tuple[IntArray, IntArray]:
    """Return row and column of the cells whose corners do not all have the same action."""
    corner = least[:-1, :-1]
    others = least[:-1, 1:], least[1:, 1:], least[1:, :-1]
    rows, columns = np.nonzero(np.logical_or.reduce([corner != other for other in others]))
    return rows, columns


def _lines_between(points: FloatArray, heights: FloatArray, i: int, j: int) -> FloatArray:
    """Return where planes i and j of triangles meet, cut to where no other plane is lower."""
    gap = heights[:, :, i] - heights[:, :, j]
    is_first = gap <= 0
    is_cut = is_first.any(axis=1) & ~is_first.all(axis=1)
    points, heights, gap, is_first = points[is_cut], heights[is_cut], gap[is_cut], is_first[is_cut]
    # One corner is alone on its side; the line crosses both edges from it.
    alone = np.where(is_first.sum(axis=1) == 1, is_first.argmax(axis=1), is_first.argmin(axis=1))
    triangle = np.arange(len(alone))[:, np.newaxis]
    near, far = alone[:, np.newaxis], (alone[:, np.newaxis] + [1, 2]) % 3
    part = (gap[triangle, near] / (gap[triangle, near] - gap[triangle, far]))[..., np.newaxis]
    ends = points[triangle, near] * (1 - part) + points[triangle, far] * part
    costs = heights[triangle, near] * (1 - part) + heights[triangle, far] * part
    low, high, is_kept = _span_of_least(costs, i, j)
    along = np.stack([low, high], axis=1)[is_kept, :, np.newaxis]
    start, end = ends[is_kept, :1], ends[is_kept, 1:]
    return np.asarray(start * (1 - along) + end * along)


def _span_of_least(costs: FloatArray, i: int, j: int) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return the part of each line where i and j are cheapest, and whether there is one."""
    own = costs[:, :, [i]]
    above = costs - own + ROUNDING * (np.abs(costs) + np.abs(own))
    above[:, :, [i, j]] = 1.0  # no cut against themselves
    start, end = above[:, 0], above[:, 1]
    rises, falls = (start < 0) & (end >= 0), (start >= 0) & (end < 0)
    crossing = start / np.where(rises | falls, start - end, 1.0)
    low = np.where(rises, crossing, 0.0).max(axis=1)
    high = np.where(falls, crossing, 1.0).min(axis=1)
    return low, high, (low < high) & ~((start < 0) & (end < 0)).any(axis=1)


MAX_POINTS = 2000  # per side, four million in total


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DecisionRegions(ArrayResult):
    """The optimal action at each point of a grid over two features, and the decision boundaries.

    Attributes
    ----------
    x, y : array of float
        The grid along each feature.
    action : array of int, y x x
        The index of the optimal action.
    cost : array of float, y x x
        Its expected cost.
    confidence : array of float, y x x
        The largest posterior.
    actions : tuple of str
        The names of the actions.
    reject : int or None
        The index of the reject action.
    segments : array, lines x 2 ends x 2 features
        The boundaries.
    between : array of int, lines x 2
        The two actions that cost the same along each line.
    area_fraction : array of float
        The fraction of the area of each action.
    """

    x: FloatArray
    y: FloatArray
    action: IntArray
    cost: FloatArray
    confidence: FloatArray
    actions: tuple[str, ...]
    reject: int | None
    segments: FloatArray
    between: IntArray
    area_fraction: FloatArray


def decision_regions(
    posterior: Callable[[FloatArray], Any],
    x: Any,
    y: Any,
    costs: CostMatrix | None = None,
    *,
    n_points: int = 200,
) -> DecisionRegions:
    """Return the optimal action over a rectangle of two features.

    Parameters
    ----------
    posterior : callable
        A function of features, rows x 2, that returns outputs, such as `model.predict_proba`.
    x, y : tuple of float
        The lowest and the highest value of each feature.
    costs : CostMatrix, optional
        By default every error costs 1.
    n_points : int, default 200
        The number of grid points per side.

    Returns
    -------
    DecisionRegions

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 1.5.

    Examples
    --------
    >>> from scipy.special import expit
    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> found = decision_regions(lambda z: expit(z[:, 0]), (-5, 5), (0, 1), costs)
    >>> found.area_fraction.round(2).tolist()
    [0.39, 0.39, 0.22]
    """
    caller = "decision_regions"
    n_points = as_count(n_points, "n_points", caller, 2, MAX_POINTS, example=200)
    side_x = np.linspace(*_as_range(x, "x", caller), n_points)
    side_y = np.linspace(*_as_range(y, "y", caller), n_points)
    outputs = _outputs_on(posterior, side_x, side_y, caller)
    if costs is None:
        costs = CostMatrix.zero_one(outputs.classes or outputs.n_classes)
    table = as_constant_costs(costs, caller)
    least, shape = least_costs(outputs, table), (n_points, n_points)
    expected = expected_costs(outputs, table).reshape(*shape, -1)
    if table.reject is not None:
        expected[..., table.reject] -= MARGIN
    segments, between = _boundaries_of(side_x, side_y, expected)
    action = least.action.reshape(shape)
    return DecisionRegions(
        x=freeze(side_x),
        y=freeze(side_y),
        action=freeze(action),
        cost=freeze(least.cost.reshape(shape)),
        confidence=freeze(row_statistics(outputs, None).confidence.reshape(shape)),
        actions=table.actions,
        reject=table.reject,
        segments=freeze(segments),
        between=freeze(between),
        area_fraction=freeze(_area_fractions(action, table.n_actions)),
    )


def _outputs_on(posterior: Any, x: FloatArray, y: FloatArray, caller: str) -> Any:
    """Return the outputs at each grid point, row by row."""
    if not callable(posterior):
        rule, fix = "must be a function of features, rows x 2", "Pass model.predict_proba"
        raise BadTypeError("posterior", caller, rule, type(posterior).__name__, fix)
    features = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    n_rows = len(features)
    outputs = as_class_outputs(posterior(features), caller, "posterior(features)")
    if outputs.n_rows != n_rows:
        rule = f"must have {n_rows:,} rows, one per point"
        fix = "Return one row of outputs per row of features"
        raise BadValueError("posterior(features)", caller, rule, f"{outputs.n_rows:,}", fix)
    return outputs


def _area_fractions(action: IntArray, n_actions: int) -> FloatArray:
    """Return the fraction of the area of each action; points at an edge count half."""
    side = np.ones(len(action))
    side[[0, -1]] = 0.5
    area = np.bincount(action.ravel(), np.outer(side, side).ravel(), n_actions)
    return np.asarray(area / side.sum() ** 2)


def as_constant_costs(costs: Any, caller: str) -> CostMatrix:
    """Return costs without expressions, as grid points have no row costs."""
    table = as_costs(costs, "costs", caller)
    if table.columns:
        rule, got = "must have no expressions of columns", f"{table.expressions[0]}"
        fix = f"Use costs.at({{{table.columns[0]!r}: ...}}), the costs of one row"
        raise BadValueError("costs", caller, rule, got, fix)
    return table


def _as_range(value: Any, argument: str, caller: str) -> tuple[float, float]:
    """Return the lowest and the highest value of a feature."""
    array = as_finite(as_floats(value, argument, caller), argument, caller)
    if array.shape != (2,) or not 0 < float(array[1]) - float(array[0]) < np.inf:
        shown = f"{array.tolist()}" if array.size <= 4 else f"shape {array.shape}"
        rule, fix = "must be the lowest and the highest value", f"Pass {argument}=(0, 1)"
        raise BadValueError(argument, caller, rule, shown, fix)
    return float(array[0]), float(array[1])
