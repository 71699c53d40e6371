"""The active policy and a candidate on the same labeled rows, which neither learned from."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import final

import numpy as np

from dubito.decide.policy.report import PolicyReport
from dubito.serve.monitor import DAY, WINDOW_DAYS
from dubito.serve.refitting import reports_on
from dubito.serve.refusals import RefusedError
from dubito.serve.standing import rows_taken, standing_for
from dubito.serve.store import Store, StoredPolicy, StoredRows

FEWEST_FRESH = 100  # labels of rows decided since a refit, below which its own folds tell more
UPLOADED = "Policy {} was uploaded: if it learned from these rows, its figures are too good."
OTHER_COSTS = "Their costs differ: each is judged by its own."


@final
@dataclass(frozen=True, slots=True, eq=False)
class Comparison:
    """Reports on the same rows, which these were, and what to bear in mind."""

    active: PolicyReport
    candidate: PolicyReport
    rows: str
    notes: tuple[str, ...]


def compare(
    store: Store, rows: StoredRows, active: StoredPolicy, candidate: StoredPolicy
) -> Comparison:
    """Return what two policies do on labels of the last days, or refuse where nothing is known.

    A policy that was refitted is judged on rows decided since; while these have few labels, on
    those that it was fitted to, each by what the other folds taught.
    """
    until = max(active.learned_until or 0.0, candidate.learned_until or 0.0)
    fresh = rows_taken(rows, rows.created > until)
    is_early = standing_for(fresh).rows.size < FEWEST_FRESH
    if candidate.learned_until is not None and is_early:
        start = candidate.learned_until - WINDOW_DAYS * DAY
        if active.learned_until is None or active.learned_until < start:
            return _in_folds(store, active, candidate, start, candidate.learned_until)
    which = f"rows of the last {WINDOW_DAYS:.0f} days"
    if until > 0:
        which = "rows decided since the last refit, which neither learned from"
    both = [active.policy, candidate.policy]
    try:
        before, after = reports_on(fresh, both, store.features_of, "labels so far")
    except RefusedError as error:
        raise RefusedError(error.status, f"On {which}: {error.problem}", error.fix) from error
    return Comparison(before, after, which, _notes_on(active, candidate))


def _in_folds(
    store: Store, active: StoredPolicy, candidate: StoredPolicy, start: float, until: float
) -> Comparison:
    """Judge a candidate by its own folds, and the active policy on the rows that these are of."""
    rows = store.rows_for_monitor(start)
    rows = rows_taken(rows, rows.created <= until)
    then = replace(rows, label=np.where(rows.labeled <= until, rows.label, -1))
    (before,) = reports_on(then, [active.policy], store.features_of, "labels at the refit")
    which = "rows that the candidate was fitted to, by what other folds of them taught it"
    return Comparison(before, candidate.policy.report, which, _notes_on(active, candidate))


def _notes_on(active: StoredPolicy, candidate: StoredPolicy) -> tuple[str, ...]:
    """Say what to bear in mind."""
    notes = [UPLOADED.format(candidate.id)] if candidate.learned_until is None else []
    if active.policy.costs.to_dict() != candidate.policy.costs.to_dict():
        notes.append(OTHER_COSTS)
    return tuple(notes)
