"""Rows ranked by an uncertainty score, the basis of selective and detection metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, as_finite, as_floats, freeze, require_dimensions
from dubito.data.batch import Batch, Ranks
from dubito.errors import EmptyStateError
from dubito.kernels.sums import CUT, HALF, cell_bounds, cell_sums
from dubito.measure.state import State

GRID_STEP = 2.0 ** (CUT - 52)  # a grid cell's width, in parts of its doubt or its confidence
MOST_CELLS_A_ROW = 32  # above, it is faster to sort the rows than to go through all cells


def as_scores(doubt: Any, caller: str) -> FloatArray:
    """Return one finite uncertainty score per row."""
    scores = as_finite(as_floats(doubt, "doubt", caller), "doubt", caller)
    require_dimensions(scores, (1,), "doubt", caller, "one number per row")
    return scores


def _on_grid(doubt: FloatArray) -> FloatArray:
    """Return scores between 0 and 1 moved to a fixed grid that keeps their order.

    The grid is relative to the score below 1/2 and to the confidence above: finest near 0, where
    good models are, and near 1, where models of many classes are. Rows that share a cell differ by
    less than one part in 1,024.
    """
    return np.where(doubt <= 0.5, _shortened(doubt), 1 - _shortened(1 - doubt))


def _shortened(values: FloatArray) -> FloatArray:
    """Return numbers truncated to 10 bits after the leading one."""
    bits = values.astype(np.float64).view(np.int64)
    return (bits >> CUT << CUT).view(np.float64)


def _doubt_of(cells: IntArray) -> FloatArray:
    """Return the scores of grid cells."""
    near = (np.where(cells <= HALF, cells, 2 * HALF - cells) << CUT).view(np.float64)
    return np.where(cells <= HALF, near, 1 - near)


@final
@dataclass(frozen=True, slots=True, eq=False)
class RankingState(State):
    """For each distinct uncertainty score, ascending: the weight of its rows, and of the positives.

    Positives are errors or outliers. In memory the scores are exact; streamed, they lie on a fixed
    grid, which bounds their number.
    """

    doubt: FloatArray
    weight: FloatArray
    positive: FloatArray

    @classmethod
    def of(cls, batch: Batch, *, is_gridded: bool = False) -> Self:
        """Rank the rows of a batch by least confidence; positives are the errors."""
        rows, weight = batch.rows, batch.labeled_weight
        if is_gridded and len(batch):
            return cls.of_cells(freeze(rows.least_confidence), freeze(weight), freeze(rows.correct))
        return cls.of_ranks(rows.ranks, weight, weight * (1 - rows.correct))

    @classmethod
    def of_cells(cls, doubt: FloatArray, weight: FloatArray, correct: FloatArray) -> Self:
        """Sum weights over the cells of the grid."""
        first, last = cell_bounds(doubt)
        if last - first > MOST_CELLS_A_ROW * doubt.size:
            return cls.of_ranks(Ranks.of(_on_grid(doubt)), weight, weight * (1 - correct))
        sums = np.zeros((last - first + 1, 2))
        cell_sums(doubt, weight, correct, first, sums)
        held = np.flatnonzero(sums[:, 0])
        return cls(_doubt_of(held + first), sums[held, 0], sums[held, 1])

    @classmethod
    def of_ranks(cls, ranks: Ranks, weight: FloatArray, positive: FloatArray) -> Self:
        """Sum weights over the ties of a ranking; ties without weight are left out."""
        total = ranks.sums(weight)
        held = total > 0
        return cls(ranks.values[held], total[held], ranks.sums(positive)[held])

    @classmethod
    def of_scores(cls, is_positive: FloatArray, doubt: FloatArray, weight: FloatArray) -> Self:
        """Rank any scores; `is_positive` is 0, 1 or a fraction."""
        is_plain = doubt.size > 0 and doubt.min() >= 0 and doubt.max() <= 1
        if is_plain and (weight == 1).all() and ((is_positive == 0) | (is_positive == 1)).all():
            return cls._of_rows(is_positive, doubt)
        return cls.of_ranks(Ranks.of(doubt), weight, weight * is_positive)

    @classmethod
    def _of_rows(cls, is_positive: FloatArray, doubt: FloatArray) -> Self:
        """Rank scores between 0 and 1 of rows without weights, sorted together with their labels.

        The bits of such scores are in their order. Below them, a bit holds the label.
        """
        bits = (doubt.astype(np.float64) + 0.0).view(np.int64)  # 0.0 also for -0.0
        keys = np.sort((bits << 1) | is_positive.astype(np.int64))
        bits = keys >> 1
        starts = np.append(0, np.flatnonzero(bits[1:] != bits[:-1]) + 1)
        count = np.diff(starts, append=bits.size)
        positive = np.add.reduceat(keys & 1, starts)
        return cls(bits[starts].view(np.float64), count * 1.0, positive * 1.0)

    @classmethod
    def pooled(cls, states: Sequence[Self]) -> Self:
        """Add several states at once: sorting them together is faster than one by one."""
        columns = (np.concatenate([getattr(one, f.name) for one in states]) for f in fields(cls))
        return cls.of_ranks(Ranks.of(next(columns)), *columns)

    def __add__(self, other: Self) -> Self:
        return type(self).pooled([self, other])

    @property
    def value(self) -> RankingState:
        """The state itself, from which selective and detection metrics are computed."""
        if not self.weight.size:
            raise EmptyStateError("A ranking")
        return self
