"""A candidate is judged on the rows that the active policy is judged on, and learned from none."""

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.decide import Policy
from dubito.serve.comparing import Comparison, compare
from dubito.serve.refitting import refit
from dubito.serve.refusals import RefusedError
from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.documents import text_of_policy
from studies.common.serving import fitted_policy

Add = Callable[..., Any]
DAY = 86_400.0


@pytest.fixture
def add(small_store: Store, policy: Policy) -> Add:
    """Decide rows whose labels are all known, and return their logits and labels."""

    def added(name: str, n_rows: int, ago: float) -> Any:
        rng = np.random.default_rng(n_rows)
        honest = rng.normal(0, 2, (n_rows, 3))
        y = (honest + rng.gumbel(size=honest.shape)).argmax(axis=1)
        logits = (1.5 * honest).astype(np.float32)
        ids = [f"{name}{k}" for k in range(n_rows)]
        outputs = Logits(logits, classes=policy.classes)
        new = NewDecisions.of(
            1,
            ids,
            policy.decide(outputs),
            policy.predict_proba(outputs),
            logits,
            digests=[one.encode() for one in ids],
            is_audit=np.ones(n_rows, np.bool_),
            audit_share=1.0,
            now=time.time() - ago,
        )
        small_store.add_decisions(new)
        small_store.add_labels(ids, y.tolist())
        return logits, y

    return added


def compared(store: Store, active_id: int, candidate_id: int) -> Comparison:
    """Compare two policies of a store."""
    known = {one.id: one for one in store.policies().all}
    rows = store.rows_for_monitor(time.time() - 30 * DAY)
    return compare(store, rows, known[active_id], known[candidate_id])


def cost_of(policy: Policy, logits: Any, y: Any, reject_cost: float) -> float:
    """Return what a policy pays, by hand."""
    action = policy.decide(Logits(logits, classes=policy.classes)).action
    return float(np.where(action == 3, reject_cost, action != y).mean())


def test_an_uploaded_policy_is_judged_on_live_rows(small_store: Store, add: Add) -> None:
    logits, y = add("a", 400, ago=3600.0)
    other = fitted_policy(reject_cost=0.1)
    number = small_store.add_policy(text_of_policy(other))
    found = compared(small_store, 1, number)
    active = small_store.policies().all[0].policy
    assert found.active.cost.value == pytest.approx(cost_of(active, logits, y, 0.3))
    assert found.candidate.cost.value == pytest.approx(cost_of(other, logits, y, 0.1))
    assert found.candidate.cost.value != pytest.approx(other.report.cost.value, rel=0.05)
    assert found.active.n_rows == found.candidate.n_rows == 400
    assert found.rows == "rows of the last 30 days"
    assert found.notes == (
        f"Policy {number} was uploaded: if it learned from these rows, its figures are too good.",
        "Their costs differ: each is judged by its own.",
    )


def test_a_refit_is_judged_by_its_folds_until_rows_came_since(
    small_store: Store, add: Add, policy: Policy
) -> None:
    add("a", 400, ago=3600.0)
    until = time.time()
    before = refit(small_store.rows_for_monitor(), policy, small_store.features_of)
    number = small_store.add_policy(text_of_policy(before), learned_until=until)
    logits, y = add("few", 30, ago=-60.0)
    found = compared(small_store, 1, number)
    assert found.candidate == before.report
    assert found.active.n_rows == found.candidate.n_rows == 400
    assert found.rows.startswith("rows that the candidate was fitted to, by what other folds")
    assert found.notes == ()
    more, z = add("more", 200, ago=-120.0)
    found = compared(small_store, 1, number)
    assert found.active.n_rows == found.candidate.n_rows == 230
    logits, y = np.concatenate([logits, more]), np.concatenate([y, z])
    assert found.candidate.cost.value == pytest.approx(cost_of(before, logits, y, 0.3))
    assert found.rows == "rows decided since the last refit, which neither learned from"


def test_a_policy_is_not_judged_on_rows_that_it_learned_from(
    small_store: Store, add: Add, policy: Policy
) -> None:
    add("a", 400, ago=3600.0)
    rows, until = small_store.rows_for_monitor(), time.time()
    active = small_store.add_policy(
        text_of_policy(refit(rows, policy, small_store.features_of)), learned_until=until
    )
    uploaded = small_store.add_policy(text_of_policy(fitted_policy(reject_cost=0.1)))
    with pytest.raises(RefusedError, match="No row was decided yet"):
        compared(small_store, active, uploaded)
    add("b", 60, ago=-60.0)
    found = compared(small_store, active, uploaded)
    assert found.active.n_rows == found.candidate.n_rows == 60
    again = refit(small_store.rows_for_monitor(), policy, small_store.features_of, seed=1)
    late = small_store.add_policy(text_of_policy(again), learned_until=time.time() + 90)
    with pytest.raises(RefusedError, match="No row was decided yet"):
        compared(small_store, active, late)
