"""Rows in the order of a score, sorted once and summed over as often as needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, final

import numpy as np

from dubito.arrays import FloatArray, IntArray

__all__ = ["Ranks"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Ranks:
    """The order of rows by a score: where each run of equal scores starts, and its score."""

    order: IntArray
    starts: IntArray
    values: FloatArray

    @classmethod
    def of(cls, scores: FloatArray) -> Self:
        """Sort once; weights are summed over the runs as often as needed."""
        order = np.argsort(scores, kind="stable")
        ranked = scores[order]
        is_start = np.ones(ranked.size, dtype=bool)
        is_start[1:] = ranked[1:] != ranked[:-1]
        starts = np.flatnonzero(is_start)
        return cls(order, starts, ranked[starts])

    def sums(self, weight: FloatArray) -> FloatArray:
        """Return the weight of each run."""
        if not self.starts.size:
            return np.zeros(0)
        return np.add.reduceat(weight[self.order], self.starts)
