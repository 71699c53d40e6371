"""Which labeled rows stand for all rows, and for how many each: what makes figures honest.

Rows that are looked at because the model doubts are no random sample. Those that chance drew are,
and rows that were handed over are all looked at, sooner or later.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from datetime import UTC, datetime
from typing import final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.report.formatting import percentage, quantity
from dubito.serve.store.records import StoredRows

FEWEST_LABELS = 20  # what weighted labels must be worth, below which nothing is told
MOST_UNSETTLED = 0.02  # of all rows: a share of wrong ones would be off by no more


@final
@dataclass(frozen=True, slots=True, eq=False)
class Standing:
    """Numbers of labeled rows, and how many rows each stands for; `unknown` says why none do.

    `note` says which rows they do not stand for.
    """

    rows: IntArray
    weight: FloatArray
    unknown: str = ""
    note: str = ""

    @property
    def is_known(self) -> bool:
        """Whether they stand for all rows."""
        return not self.unknown


def standing_for(rows: StoredRows) -> Standing:
    """Return the labeled rows that stand for all, weighted by one over their chance to be asked.

    Weights sum to the rows that were let pass and to those that were handed over, so that labels
    which are still to come do not matter. Of rows that were handed over all count once readers have
    seen each, until then those that chance drew alone, as the others were looked at in the order of
    what a look is worth. Labels that nobody asked for count only where chance had drawn the row.
    Rows that readers could not settle are no random sample: where they are many, nothing is told.
    """
    none = np.empty(0, np.int64)
    if not len(rows):
        return Standing(none, np.empty(0), "No row was decided yet.")
    first = _first_asked(rows)
    if first == len(rows):
        return Standing(none, np.empty(0), _undrawn(rows))
    since = rows_taken(rows, slice(first, None))
    is_known = since.label >= 0
    weight, unknown = _weights_of(since, is_known | since.is_unsettled)
    unknown = unknown or _unsettled(since, weight)
    weight, missing = _weights_of(since, is_known)
    unknown, found = unknown or missing, np.flatnonzero(weight)
    if not unknown and _worth_of(weight) < FEWEST_LABELS:
        known = f"{quantity(found.size, 'label')} {'is' if found.size == 1 else 'are'}"
        worth = f"worth {_worth_of(weight):.0f} of a plain sample"
        unknown = f"{known} {worth}: {FEWEST_LABELS} or more are needed."
    return Standing(first + found, weight[found], unknown, _left_out(rows, first))


def _first_asked(rows: StoredRows) -> int:
    """Return the number of the first row since which chance drew some of those that nobody saw."""
    is_blind = rows.audit_share <= 0
    if not (is_blind & ((rows.propensity < 1) | _waits(rows))).any():
        return 0
    # Handed over or not: to begin after the last that was let pass would leave only the others.
    return int(np.flatnonzero(is_blind).max()) + 1


def _waits(rows: StoredRows) -> BoolArray:
    """Return which rows were handed over and have not been seen by a reader."""
    return np.asarray((rows.propensity >= 1) & (rows.label < 0) & ~rows.is_unsettled)


def _weights_of(rows: StoredRows, is_seen: BoolArray) -> tuple[FloatArray, str]:
    """Return how many rows each of those that were seen stands for, and what none stands for."""
    is_sure = rows.propensity >= 1
    is_whole = is_sure & (not _waits(rows).any())
    is_asked = is_seen & (is_whole | (rows.is_audit & (rows.audit_share > 0)))
    chance = np.where(is_whole, 1.0, rows.audit_share)
    weight, unknown = np.zeros(len(rows)), ""
    for is_here in (~is_sure, is_sure):
        n_rows, used = int(is_here.sum()), is_here & is_asked
        if used.any():
            weight[used] = 1 / chance[used]
            weight[used] *= n_rows / weight[used].sum()
        elif n_rows:
            unknown = unknown or _waiting(n_rows, bool(is_here[is_sure].any()))
    return weight, unknown


def _unsettled(rows: StoredRows, weight: FloatArray) -> str:
    """Say that readers could not settle too many of the rows that stand for all."""
    n_rows, n_unsettled, share = _unsettled_share(rows, weight)
    if share <= MOST_UNSETTLED:
        return ""
    told = f"Readers passed on {n_unsettled:,} of {quantity(n_rows)} that would stand for all"
    most = f"figures are told up to {percentage(MOST_UNSETTLED, 0)}"
    return f"{told} ({percentage(share)} by weight), and nobody settled them: {most}."


def _unsettled_share(rows: StoredRows, weight: FloatArray) -> tuple[int, int, float]:
    """Return how many rows have a weight, how many of them are unsettled, and their share of it."""
    is_lost = (rows.label < 0) & (weight > 0)
    share = float(weight[is_lost].sum() / max(weight.sum(), 1.0))
    return int(np.count_nonzero(weight)), int(np.count_nonzero(is_lost)), share


def _left_out(rows: StoredRows, first: int) -> str:
    """Say which rows figures are not about."""
    notes, since = [], rows_taken(rows, slice(first, None))
    if first:
        when = datetime.fromtimestamp(float(since.created[0]), UTC).strftime("%Y-%m-%d %H:%M")
        what = f"{quantity(len(since))} decided since {when} UTC"
        notes.append(f"All but coverage is of the {what}: before, none was drawn at random.")
    weight, _ = _weights_of(since, (since.label >= 0) | since.is_unsettled)
    n_rows, n_unsettled, share = _unsettled_share(since, weight)
    if n_unsettled:
        lost = f"{n_unsettled:,} of {quantity(n_rows)} that would stand for all"
        notes.append(f"Readers could not settle {lost} ({percentage(share)} by weight): left out.")
    return " ".join(notes)


def _undrawn(rows: StoredRows) -> str:
    """Say of which rows none was drawn at random."""
    n_unseen = int(((rows.audit_share <= 0) & (rows.propensity < 1)).sum())
    if n_unseen:
        were = "was" if n_unseen == 1 else "were"
        passed = f"{quantity(n_unseen)} {were} let pass"
        return f"{passed} while none was drawn at random to be checked."
    return _waiting(int((rows.propensity >= 1).sum()), is_sure=True)


def _waiting(n_rows: int, is_sure: bool) -> str:
    """Say which rows nothing is known of."""
    if is_sure:
        asked = f"{quantity(n_rows)} that {'was' if n_rows == 1 else 'were'} handed over"
        return f"Of {asked} some wait, and none that was drawn at random has a label yet."
    passed = f"{quantity(n_rows)} that {'was' if n_rows == 1 else 'were'} let pass"
    return f"Of {passed}, none that was drawn at random has a label yet."


def _worth_of(weight: FloatArray) -> float:
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
