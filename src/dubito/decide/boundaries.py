"""Lines along which two actions cost the same, between the points of a grid."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations
from typing import final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray

__all__ = ["Boundaries", "boundaries_of"]

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


def boundaries_of(x: FloatArray, y: FloatArray, costs: FloatArray) -> Boundaries:
    """Return where the least of `costs`, y x x x actions, passes from one action to another.

    Each cell is cut into two triangles, in which costs are taken as planes through their corners:
    lines then meet exactly where three actions cost the same.
    """
    least = costs.argmin(axis=2)
    # An action that is nowhere the least has no region, be it least between two points.
    actions = np.unique(least)
    rows, columns = mixed_cells(least)
    corner_rows = rows[:, np.newaxis] + CORNERS[:, 0]
    corner_columns = columns[:, np.newaxis] + CORNERS[:, 1]
    points = np.stack([x[corner_columns], y[corner_rows]], axis=-1)[:, TRIANGLES]
    heights = costs[corner_rows, corner_columns][:, TRIANGLES][..., actions]
    points, heights = points.reshape(-1, 3, 2), heights.reshape(-1, 3, actions.size)
    shortest = SHORTEST * float(np.hypot(x[1] - x[0], y[1] - y[0]))
    segments, between = [np.empty((0, 2, 2))], [np.empty((0, 2), np.int64)]
    for first, second in combinations(range(actions.size), 2):
        lines = lines_between(points, heights, first, second)
        lines = lines[np.hypot(*(lines[:, 1] - lines[:, 0]).T) > shortest]
        segments.append(lines)
        between.append(np.tile([actions[first], actions[second]], (len(lines), 1)))
    return Boundaries(np.concatenate(segments), np.concatenate(between))


def mixed_cells(least: IntArray) -> tuple[IntArray, IntArray]:
    """Return row and column of the cells whose corners do not all have the same action."""
    corner = least[:-1, :-1]
    others = least[:-1, 1:], least[1:, 1:], least[1:, :-1]
    rows, columns = np.nonzero(np.logical_or.reduce([corner != other for other in others]))
    return rows, columns


def lines_between(points: FloatArray, heights: FloatArray, i: int, j: int) -> FloatArray:
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
    low, high, is_kept = span_of_least(costs, i, j)
    along = np.stack([low, high], axis=1)[is_kept, :, np.newaxis]
    start, end = ends[is_kept, :1], ends[is_kept, 1:]
    return np.asarray(start * (1 - along) + end * along)


def span_of_least(costs: FloatArray, i: int, j: int) -> tuple[FloatArray, FloatArray, BoolArray]:
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
