"""Scores of known rows, streamed: exact as long as they are few, ranked in cells beyond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import FloatArray
from dubito.measure.ranking import RankingState

__all__ = ["KnownScores", "ranked"]

MOST = 1_000_000  # different scores that are held
CELLS = MOST // 2  # that are left of them once there are more


@final
@dataclass(frozen=True, slots=True, eq=False)
class KnownScores:
    """Scores of some rows, as parts that are ranked together when they are asked for or too many.

    Up to 1,000,000 different scores are held as they are. Beyond, the rows are cut by rank into
    500,000 cells of equal weight, and scores move up to the largest of their cell: thresholds and
    p-values are never too low, and each such step moves a score past 1/500,000 of the rows at most,
    wherever scores pile up.

    >>> both = KnownScores.of(np.array([0.5, 0.2]), np.ones(2)) + KnownScores.of(np.ones(1), [3])
    >>> both.ranked.doubt.tolist(), both.ranked.weight.tolist()
    ([0.2, 0.5, 1.0], [1.0, 1.0, 3.0])
    """

    parts: tuple[RankingState, ...]
    size: int  # how many scores the parts hold

    @classmethod
    def of(cls, scores: FloatArray, weight: FloatArray) -> KnownScores:
        """Hold the scores of some rows."""
        return cls.of_ranked(ranked(scores, np.asarray(weight, dtype=np.float64)))

    @classmethod
    def of_ranked(cls, state: RankingState) -> KnownScores:
        """Hold scores that are ranked already."""
        return cls((state,), state.doubt.size)

    def __add__(self, other: KnownScores) -> KnownScores:
        both = KnownScores(self.parts + other.parts, self.size + other.size)
        return both if both.size <= MOST else KnownScores.of_ranked(in_cells(both.ranked))

    @property
    def ranked(self) -> RankingState:
        """All scores, rising."""
        if len(self.parts) == 1:
            return self.parts[0]
        scores = np.concatenate([part.doubt for part in self.parts])
        return ranked(scores, np.concatenate([part.weight for part in self.parts]))


def ranked(scores: FloatArray, weight: FloatArray) -> RankingState:
    """Rank scores; none is positive, as all are known."""
    return RankingState.of_scores(np.zeros(len(scores)), scores, weight)


def in_cells(state: RankingState) -> RankingState:
    """Return scores moved up to the largest of their cell, unless there are few different ones."""
    if state.doubt.size <= CELLS:
        return state
    ends = np.cumsum(state.weight)
    cells = np.ceil(ends * (CELLS / ends[-1]))
    is_last = np.append(cells[1:] != cells[:-1], True)
    weight = np.diff(ends[is_last], prepend=0.0)
    return RankingState(state.doubt[is_last], weight, np.zeros(weight.size))
