"""Which labelled rows stand for all rows, and for how many each: what makes figures honest.

Rows that are looked at because the model doubts are no random sample. Those that chance drew are,
and rows that were handed over are all looked at, sooner or later.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.serve.store.records import StoredRows

__all__ = ["Standing", "drawn_by_weight", "rows_taken", "standing_for"]

FEWEST_LABELS = 20  # what weighted labels must be worth, below which nothing is told


@final
@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Numbers of labelled rows, and how many rows each stands for; `unknown` says why none do."""

    rows: IntArray
    weight: FloatArray
    unknown: str = ""

    @property
    def is_known(self) -> bool:
        """Whether they stand for all rows."""
        return not self.unknown


def standing_for(rows: StoredRows) -> Standing:
    """Return the labelled rows that stand for all, weighted by one over their chance to be asked.

    Weights sum to the rows that were let pass and to those that were handed over, so that labels
    which are still to come do not matter. Of rows that were handed over all count once none of them
    waits, until then those that chance drew alone, as the others were looked at in the order of
    what a look is worth. Labels that nobody asked for count only where chance had drawn the row.
    """
    if not len(rows):
        return Standing(np.empty(0, np.int64), np.empty(0), "No row was decided yet.")
    is_known, is_sure = rows.label >= 0, rows.propensity >= 1
    is_asked = rows.is_audit | (is_sure & bool(is_known[is_sure].all()))
    weight = np.zeros(len(rows))
    unknown = ""
    if n_unseen := int((rows.propensity <= 0).sum()):
        unknown = f"{n_unseen:,} rows were let pass while none was drawn at random to be checked."
    for is_here in (~is_sure, is_sure):
        n_rows, used = int(is_here.sum()), is_here & is_known & is_asked & (rows.propensity > 0)
        if used.any():
            weight[used] = 1 / rows.propensity[used]
            weight[used] *= n_rows / weight[used].sum()
        elif n_rows:
            unknown = unknown or waiting(n_rows, bool(is_here[is_sure].any()))
    found = np.flatnonzero(weight)
    if not unknown and worth_of(weight) < FEWEST_LABELS:
        counted = f"{found.size:,} labels are worth {worth_of(weight):.0f} of a plain sample"
        unknown = f"{counted}: {FEWEST_LABELS} or more are needed."
    return Standing(found, weight[found], unknown)


def waiting(n_rows: int, is_sure: bool) -> str:
    """Say which rows nothing is known of."""
    if is_sure:
        asked = f"{n_rows:,} rows that were handed over"
        return f"Of {asked} some wait, and none that was drawn at random has a label yet."
    return f"Of {n_rows:,} rows that were let pass, none that was drawn at random has a label yet."


def worth_of(weight: FloatArray) -> float:
    """Return how many labels of equal weight these are worth, after Kish, 1965."""
    squares = float(weight @ weight)
    return float(weight.sum()) ** 2 / squares if squares else 0.0


def drawn_by_weight(weight: FloatArray, *, seed: int = 0) -> IntArray:
    """Return the numbers of some rows, drawn by their weights: a plain sample of all rows.

    >>> drawn_by_weight(np.array([100.0, 1.0, 100.0, 1.0])).tolist()
    [0, 2]
    """
    luck = np.random.default_rng(seed).random(weight.size)
    return np.flatnonzero(luck * weight.max(initial=0.0) < weight)


def rows_taken(rows: StoredRows, which: IntArray | BoolArray | slice) -> StoredRows:
    """Return some of the rows."""
    return StoredRows(**{one.name: getattr(rows, one.name)[which] for one in fields(rows)})
