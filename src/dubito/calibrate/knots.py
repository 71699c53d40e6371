"""Monotone curves from score to probability, one a class: how isotonic calibration is fitted.

A class's rows are gathered in cells along its score. In memory a cell begins at the score of each
positive row: those that follow up to the next are never parted from it, so that this is exact.
Streamed, cells are a fixed grid of log odds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, contiguous
from dubito.errors import EmptyStateError
from dubito.kernels.monotone import add_to_cells, pool_neighbors, read_knots

__all__ = ["Cells", "Curves", "GRID", "ScoredRows", "fit_curves"]

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
        knots, offsets = different_scores(found, n_curves)
    else:
        knots, offsets = np.tile(GRID, n_curves), np.arange(n_curves + 1) * GRID.size
    cells = sum_over(lambda rows: Cells.of(rows, knots, offsets))
    if not cells.weight.sum() > 0:
        raise EmptyStateError("A calibrator")
    return curves_of(cells, offsets)


def different_scores(
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


def curves_of(cells: Cells, offsets: IntArray) -> Curves:
    """Return each class's rising curve, nowhere 0 or 1."""
    bounds = offsets + np.arange(offsets.size)  # n knots make n + 1 cells
    curves = [curve_of(cells, slice(*bounds[k : k + 2])) for k in range(offsets.size - 1)]
    xs, ys, n_certain = zip(*curves, strict=True)
    ends = np.cumsum([x.size for x in xs])
    return Curves(np.concatenate(xs), np.concatenate(ys), np.append(0, ends), np.array(n_certain))


def curve_of(cells: Cells, part: slice) -> tuple[FloatArray, FloatArray, float]:
    """Return the knots of the rising curve through some cells, its values, and `n_certain`."""
    columns = (cells.positive, cells.weight, cells.low, cells.high)
    blocks = pooled([np.array(column[part]) for column in columns])
    positive, weight = (column[part].sum() for column in columns[:2])
    blocks, n_certain = with_smooth_ends(blocks, prior=(positive + 0.5) / (weight + 1))
    positive, weight, low, high = blocks
    x = np.stack([low, high], axis=1).ravel()
    y = np.repeat(positive / weight, 2)
    is_new = np.append(True, np.diff(x) > 0)  # a block of one score is one knot
    return x[is_new], y[is_new], n_certain


def pooled(cells: list[FloatArray]) -> list[FloatArray]:
    """Return cells (positive weight, weight, lowest and highest score), pooled until they rise."""
    n_blocks = pool_neighbors(*cells)
    return [column[:n_blocks] for column in cells]


def with_smooth_ends(blocks: list[FloatArray], prior: float) -> tuple[list[FloatArray], float]:
    """Add one row of the prior to an end that is 0 or 1, pool again, and count the rows there.

    That is (s + prior) / (n + 1): smoothed by 1 / (n + 1) towards the prior. Pooling again keeps
    the curve rising.
    """
    positive, weight = blocks[:2]
    is_certain = (positive <= 0) | (positive >= weight)  # of rising blocks, only ends can be
    n_certain = float(weight[is_certain].sum())
    positive[is_certain] += prior
    weight[is_certain] += 1
    return pooled(blocks), n_certain
