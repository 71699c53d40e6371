"""Inverse-propensity weighting: labeled rows that represent all rows, with their weights.

Rows are reviewed because the model is uncertain, so labeled rows are not a random sample. Audited
rows are, and of the rejected rows all are reviewed sooner or later.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.formatting import percent, quantity
from dubito.serve.store import StoredRows

MIN_LABELS = 20  # effective number of labels below which metrics are withheld
MAX_UNRESOLVED = 0.02  # fraction by weight; an error rate would be off by no more


@final
@dataclass(frozen=True, slots=True, eq=False)
class WeightedSample:
    """Labeled rows that represent all rows.

    Attributes
    ----------
    rows, weight : array of int, array of float
        Row numbers, and how many rows each of them represents.
    unavailable : str
        Why metrics are withheld; empty if they are not.
    note : str
        Which rows are not represented.
    """

    rows: IntArray
    weight: FloatArray
    unavailable: str = ""
    note: str = ""

    @property
    def frequency(self) -> FloatArray:
        """The weights, scaled to sum to the effective number of rows (Kish, 1965)."""
        scale = _effective_size(self.weight) / max(float(self.weight.sum()), 1.0)
        return np.asarray(self.weight * scale)

    @property
    def is_available(self) -> bool:
        """Whether the sample represents all rows."""
        return not self.unavailable


def propensity_weights(rows: StoredRows) -> WeightedSample:
    """Return labeled rows weighted by the inverse of their probability of being reviewed.

    Weights are normalized separately for accepted and rejected rows, so that labels still to come
    do not matter. Rejected rows all count once each has been reviewed; until then only audited
    ones, because the others are reviewed in order of their review value. Labels that were not
    requested count only if the row was audited. Rows that reviewers could not resolve are not a
    random sample: if they exceed 2 % by weight, metrics are withheld.

    Parameters
    ----------
    rows : StoredRows
        All rows of a period, oldest first.

    Returns
    -------
    WeightedSample
        The labeled rows with their weights, or why metrics are withheld.

    References
    ----------
    Horvitz and Thompson (1952), A generalization of sampling without replacement from a finite
    universe. Kish (1965), Survey Sampling, for the effective sample size.
    """
    empty = np.empty(0, np.int64), np.empty(0)
    if not len(rows):
        return WeightedSample(*empty, "No rows have been decided yet.")
    first = _first_audited(rows)
    if first == len(rows):
        return WeightedSample(*empty, _not_audited(rows))
    since = rows.take(slice(first, None))
    is_labeled = since.label >= 0
    weight, unavailable = _weigh(since, is_labeled | since.is_unresolved)
    n_rows, n_unresolved, fraction = _count_unresolved(since, weight)
    unresolved = f"{n_unresolved:,} of {quantity(n_rows)} ({percent(fraction)} by weight)"
    if fraction > MAX_UNRESOLVED:
        limit = f"above {percent(MAX_UNRESOLVED, 0)}, metrics are withheld"
        reason = f"Reviewers escalated or skipped {unresolved} without a label: {limit}."
        unavailable = unavailable or reason
    notes = []
    if first:
        start = datetime.fromtimestamp(float(since.created[0]), UTC).strftime("%Y-%m-%d %H:%M")
        which = f"{quantity(len(since))} decided since {start} UTC"
        notes.append(f"All metrics but coverage are of the {which}: no earlier row was audited.")
    if n_unresolved:
        notes.append(f"Reviewers could not resolve {unresolved}; these are left out.")
    weight, missing = _weigh(since, is_labeled)
    unavailable, found = unavailable or missing, np.flatnonzero(weight)
    n_effective = _effective_size(weight)
    if not unavailable and n_effective < MIN_LABELS:
        equal = f"equivalent to {n_effective:.0f} of a random sample"
        unavailable = f"{quantity(found.size, 'label')}, {equal}: at least {MIN_LABELS} are needed."
    return WeightedSample(first + found, weight[found], unavailable, " ".join(notes))


def _first_audited(rows: StoredRows) -> int:
    """Return the first row since which unreviewed rows had a chance to be audited."""
    is_unaudited = rows.audit_probability <= 0
    if not (is_unaudited & ((rows.propensity < 1) | _is_waiting(rows))).any():
        return 0
    # Rejected or not: to begin after the last accepted one would leave only rejected rows.
    return int(np.flatnonzero(is_unaudited).max()) + 1


def _is_waiting(rows: StoredRows) -> BoolArray:
    """Return which rejected rows no reviewer has answered."""
    return np.asarray((rows.propensity >= 1) & (rows.label < 0) & ~rows.is_unresolved)


def _weigh(rows: StoredRows, is_reviewed: BoolArray) -> tuple[FloatArray, str]:
    """Return the weights of reviewed rows, and which rows none of them represents."""
    is_rejected = rows.propensity >= 1
    is_complete = is_rejected & (not _is_waiting(rows).any())
    is_audited = rows.is_audit & (rows.audit_probability > 0)
    probability = np.where(is_complete, 1.0, rows.audit_probability)
    weight, unavailable = np.zeros(len(rows)), ""
    for is_here in (~is_rejected, is_rejected):
        n_rows, used = int(is_here.sum()), is_here & is_reviewed & (is_complete | is_audited)
        if used.any():
            weight[used] = 1 / probability[used]
            weight[used] *= n_rows / weight[used].sum()
        elif n_rows:
            unavailable = unavailable or _no_label(n_rows, bool(is_here[is_rejected].any()))
    return weight, unavailable


def _count_unresolved(rows: StoredRows, weight: FloatArray) -> tuple[int, int, float]:
    """Return the number of weighted rows, of unresolved ones, and their fraction by weight."""
    is_unresolved = (rows.label < 0) & (weight > 0)
    fraction = float(weight[is_unresolved].sum() / max(weight.sum(), 1.0))
    return int(np.count_nonzero(weight)), int(np.count_nonzero(is_unresolved)), fraction


def _not_audited(rows: StoredRows) -> str:
    """Return which rows were decided without an audit."""
    n_accepted = int(((rows.audit_probability <= 0) & (rows.propensity < 1)).sum())
    if n_accepted:
        were = "was" if n_accepted == 1 else "were"
        return f"{quantity(n_accepted)} {were} accepted without any being drawn for the audit."
    return _no_label(int((rows.propensity >= 1).sum()), is_rejected=True)


def _no_label(n_rows: int, is_rejected: bool) -> str:
    """Return which rows have no usable label."""
    if is_rejected:
        some = f"Some of {quantity(n_rows, 'rejected row')} still wait for review"
        return f"{some}, and no audited one has a label yet."
    return f"No audited row of {quantity(n_rows, 'accepted row')} has a label yet."


def _effective_size(weight: FloatArray) -> float:
    """Return the effective sample size of weighted rows (Kish, 1965)."""
    squares = float(weight @ weight)
    return float(weight.sum()) ** 2 / squares if squares else 0.0


def sample_by_weight(weight: FloatArray, *, random_state: int = 0) -> IntArray:
    """Return row numbers drawn in proportion to the weights: an unweighted sample of all rows.

    Parameters
    ----------
    weight : array of float
        Weights of the rows.
    random_state : int, default 0
        Seed of the draws.

    Returns
    -------
    array of int
        Row numbers in increasing order.

    Examples
    --------
    >>> sample_by_weight(np.array([100.0, 1.0, 100.0, 1.0])).tolist()
    [0, 2]
    """
    draws = np.random.default_rng(random_state).random(weight.size)
    return np.flatnonzero(draws * weight.max(initial=0.0) < weight)
