"""Decision regions over two features, and the boundaries between actions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray, as_finite, as_floats, freeze
from dubito.data.batch import row_statistics
from dubito.decide.actions import MARGIN, as_class_outputs, expected_costs, least_costs
from dubito.decide.costs import CostMatrix, as_costs
from dubito.errors import BadTypeError, BadValueError

CORNERS = np.array([[0, 0], [0, 1], [1, 1], [1, 0]])  # of a cell, in rows and columns, in turn
TRIANGLES = np.array([[0, 1, 2], [0, 2, 3]])
ROUNDING = 1e-12  # costs as close as this, as a share of their size, are the same
SHORTEST = 1e-9  # of the diagonal of a cell: what is shorter is a line that touches a corner


@final
@dataclass(frozen=True, slots=True, eq=False)
class Boundaries:
    """Line segments x two ends x two features, and the two actions each lies between."""

    segments: FloatArray
    between: IntArray


def _boundaries_of(x: FloatArray, y: FloatArray, costs: FloatArray) -> Boundaries:
    """Return where the least of `costs`, y x x x actions, passes from one action to another.

    Each cell is cut into two triangles, in which costs are taken as planes through their corners:
    lines then meet exactly where three actions cost the same.
    """
    least = costs.argmin(axis=2)
    # An action that is nowhere the least has no region, be it least between two points.
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
    return Boundaries(np.concatenate(segments), np.concatenate(between))


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
    # One corner is alone on its side; the line crosses both edges that leave it.
    alone = np.where(is_first.sum(axis=1) == 1, is_first.argmax(axis=1), is_first.argmin(axis=1))
    triangle = np.arange(len(alone))[:, np.newaxis]
    near, far = alone[:, np.newaxis], (alone[:, np.newaxis] + [1, 2]) % 3
    share = (gap[triangle, near] / (gap[triangle, near] - gap[triangle, far]))[..., np.newaxis]
    ends = points[triangle, near] * (1 - share) + points[triangle, far] * share
    costs = heights[triangle, near] * (1 - share) + heights[triangle, far] * share
    low, high, is_kept = _span_of_least(costs, i, j)
    along = np.stack([low, high], axis=1)[is_kept, :, np.newaxis]
    start, end = ends[is_kept, :1], ends[is_kept, 1:]
    return np.asarray(start * (1 - along) + end * along)


def _span_of_least(costs: FloatArray, i: int, j: int) -> tuple[FloatArray, FloatArray, BoolArray]:
    """Return from where to where along each line i and j are the least, and whether anywhere."""
    own = costs[:, :, [i]]
    above = costs - own + ROUNDING * (np.abs(costs) + np.abs(own))
    above[:, :, [i, j]] = 1.0  # against themselves there is nothing to cut
    start, end = above[:, 0], above[:, 1]
    rises, falls = (start < 0) & (end >= 0), (start >= 0) & (end < 0)
    crossing = start / np.where(rises | falls, start - end, 1.0)
    low = np.where(rises, crossing, 0.0).max(axis=1)
    high = np.where(falls, crossing, 1.0).min(axis=1)
    return low, high, (low < high) & ~((start < 0) & (end < 0)).any(axis=1)


MOST_POINTS = 2000  # along a side, four million altogether


@final
@dataclass(frozen=True, slots=True, eq=False)
class DecisionRegions:
    """The action at each point of a grid over two features, and the lines between regions.

    `action`, `cost` and `confidence` (the largest posterior) have a row for each of `y` and a
    column for each of `x`. `segments` are lines x two ends x two features, along which the two
    actions `between` cost the same. `share` is the part of the area each action takes, counted on
    the grid.
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
    share: FloatArray


def decision_regions(
    posterior: Callable[[FloatArray], Any],
    x: Any,
    y: Any,
    costs: CostMatrix | None = None,
    *,
    n_points: int = 200,
) -> DecisionRegions:
    """Return the action of least expected cost over a rectangle of two features.

    `posterior` takes features, rows x 2, and returns outputs, as `model.predict_proba` does. `x`
    and `y` are the lowest and the highest value of each feature. Without `costs` each error costs
    1. Bishop, "Pattern recognition and machine learning", 2006, section 1.5.

    >>> from scipy.special import expit
    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> decision_regions(lambda z: expit(z[:, 0]), (-5, 5), (0, 1), costs).share.round(2).tolist()
    [0.39, 0.39, 0.22]
    """
    caller = "decision_regions"
    n_points = _as_n_points(n_points, caller)
    side_x = np.linspace(*_as_range(x, "x", caller), n_points)
    side_y = np.linspace(*_as_range(y, "y", caller), n_points)
    outputs = _outputs_on(posterior, side_x, side_y, caller)
    if costs is None:
        table = CostMatrix.zero_one(outputs.n_classes if not outputs.classes else outputs.classes)
    else:
        table = as_constant_costs(costs, caller)
    least, shape = least_costs(outputs, table), (n_points, n_points)
    expected = expected_costs(outputs, table).reshape(*shape, -1)
    if table.reject is not None:
        expected[..., table.reject] -= MARGIN
    lines = _boundaries_of(side_x, side_y, expected)
    action = least.action.reshape(shape)
    return DecisionRegions(
        x=freeze(side_x),
        y=freeze(side_y),
        action=freeze(action),
        cost=freeze(least.cost.reshape(shape)),
        confidence=freeze(row_statistics(outputs, None).confidence.reshape(shape)),
        actions=table.actions,
        reject=table.reject,
        segments=freeze(lines.segments),
        between=freeze(lines.between),
        share=freeze(_shares_of(action, table.n_actions)),
    )


def _outputs_on(posterior: Any, x: FloatArray, y: FloatArray, caller: str) -> Any:
    """Return what a posterior says at each point, rows of the grid one after the other."""
    if not callable(posterior):
        rule, fix = "a function of features, rows x 2", "`model.predict_proba`"
        raise BadTypeError("posterior", caller, rule, type(posterior).__name__, fix)
    columns, rows = np.meshgrid(x, y)
    features = np.stack([columns.ravel(), rows.ravel()], axis=1)
    n_rows = len(features)
    outputs = as_class_outputs(posterior(features), "posterior(features)", caller)
    if outputs.n_rows != n_rows:
        rule, fix = f"of {n_rows:,} rows, one a point", "a function that keeps the rows it is given"
        raise BadValueError("posterior(features)", caller, rule, f"{outputs.n_rows:,}", fix)
    return outputs


def _shares_of(action: IntArray, n_actions: int) -> FloatArray:
    """Return the part of the area each action takes; a point at the edge stands for half a cell."""
    side = np.ones(len(action))
    side[[0, -1]] = 0.5
    area = np.bincount(action.ravel(), np.outer(side, side).ravel(), n_actions)
    return np.asarray(area / side.sum() ** 2)


def as_constant_costs(costs: Any, caller: str) -> CostMatrix:
    """Return costs that do not grow with an amount, as points have none."""
    table = as_costs(costs, "costs", caller)
    if table.rate is not None:
        rule, fix = "without a rate, as points have no row_costs", "the costs at one amount"
        raise BadValueError("costs", caller, rule, "a rate", fix)
    return table


def _as_range(value: Any, argument: str, caller: str) -> tuple[float, float]:
    """Return the lowest and the highest value of a feature."""
    array = as_finite(as_floats(value, argument, caller), argument, caller)
    if array.shape != (2,) or not 0 < float(array[1]) - float(array[0]) < np.inf:
        shown = f"{array.tolist()}" if array.size <= 4 else f"shape {array.shape}"
        rule, fix = "the lowest and the highest value", f"{argument}=(0, 1)"
        raise BadValueError(argument, caller, rule, shown, fix)
    return float(array[0]), float(array[1])


def _as_n_points(n_points: Any, caller: str) -> int:
    """Return how many points a side has."""
    is_whole = isinstance(n_points, int | np.integer) and not isinstance(n_points, bool)
    if not is_whole or not 2 <= n_points <= MOST_POINTS:
        rule = f"a whole number from 2 to {MOST_POINTS:,}"
        raise BadValueError("n_points", caller, rule, repr(n_points), "n_points=200")
    return int(n_points)
