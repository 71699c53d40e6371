"""The monitor follows the labels, and a candidate changes nothing until it is activated."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from sqlalchemy import text

from dubito import Logits
from dubito.calibrate import TemperatureScaling
from dubito.decide import OODGate, Policy
from dubito.serve.store import NewDecisions, Store
from dubito.serve.weighted_estimates import propensity_weights
from tests.serve.pages.conftest import Person
from tests.serve.stored import draw, fitted_policy


def decide_many(store: Store, policy: Policy, n: int, audit_fraction: float) -> Any:
    """Return labels of rows that are decided, and which of them are reviewed."""
    rng = np.random.default_rng(3)
    logits, y = draw(rng, n, 2.4)
    outputs, is_audit = Logits(logits), rng.random(n) < audit_fraction
    policy_id = store.active_id()
    assert policy_id is not None
    new = NewDecisions.of(
        policy_id,
        [f"r{k}" for k in range(n)],
        policy.decide(outputs),
        logits,
        digests=[k.to_bytes(16, "big") for k in range(n)],
        is_audit=is_audit,
        audit_probability=audit_fraction,
    )
    store.add_decisions(new)
    return y, is_audit | new.is_rejected


@pytest.fixture
def known(store: Store, policy: Policy) -> None:
    store.delete_before(1e12)
    y, is_reviewed = decide_many(store, policy, 800, 0.3)
    rows = np.flatnonzero(is_reviewed)
    store.add_labels([f"r{k}" for k in rows], y[rows].tolist())


def test_without_labels_nothing_is_claimed(anna: Person) -> None:
    page = anna.get("/monitor")
    assert "0 labels in the last 30 days; 4 rows wait for" in page
    assert page.count(">unknown<") == 3
    assert "No audited row has a label yet." in page


def test_the_monitor_moves_with_every_label(anna: Person, store: Store) -> None:
    anna.get("/review")
    anna.post("/review", item="d<b>", answer="label:1")
    assert "1 label in the last 30 days; 3 rows wait for" in anna.get("/monitor")


@pytest.mark.slow
@pytest.mark.usefixtures("known")
def test_a_candidate_is_shown_before_anyone_activates_it(anna: Person, store: Store) -> None:
    before = store.active_id()
    page = anna.get("/monitor")
    assert ">unknown<" not in page
    assert "Activate policy" not in page
    answer = anna.post("/monitor/refit")
    assert (answer.status, answer.headers["location"]) == (303, "/monitor#policies")
    assert store.active_id() == before
    page = anna.get("/monitor")
    assert "candidate on rows that the candidate was fitted to, by cross-validation" in page
    newest = store.list_policies()[-1].id
    assert f"Activate policy {newest}" in page
    assert anna.post("/monitor/activate", policy=str(newest)).headers["location"] == "/monitor"
    assert store.active_id() == newest
    page = anna.get("/monitor")
    assert f"Active policy: {newest}" in page
    assert "No rows have been decided yet." in page


@pytest.mark.usefixtures("known")
def test_a_previously_active_policy_is_no_candidate_and_none_is_stored_twice(
    anna: Person, store: Store
) -> None:
    for _ in range(2):
        assert anna.post("/monitor/refit").status == 303
        assert [one.id for one in store.list_policies()] == [1, 2]
    assert store.list_policies()[1].trained_until is not None
    anna.post("/monitor/activate", policy="2")
    answer = anna.post("/monitor/refit")
    assert answer.status == 409
    again = "The labels so far give policy 2 again, which is or was active."
    assert again in answer.text
    assert "Roll back to policy 1" in anna.get("/monitor")
    assert anna.post("/monitor/rollback").headers["location"] == "/monitor#policies"
    page = anna.get("/monitor")
    assert "Active policy: 1" in page
    assert "was active" in page
    assert "Roll back" not in page
    assert "candidate. Calibrator" not in page
    assert "Activate policy" not in page
    assert again in anna.post("/monitor/refit").text
    assert len(store.list_policies()) == 2


@pytest.mark.usefixtures("known")
def test_an_uploaded_candidate_is_evaluated_on_live_rows(
    anna: Person, store: Store, policy: Policy
) -> None:
    logits, y = draw(np.random.default_rng(0), 1000, 0.4)
    other = Policy.fit(Logits(logits), y, costs=policy.costs, calibrator=TemperatureScaling())
    number = store.add_policy(other.to_json())
    page = anna.get("/monitor")
    assert "candidate on rows of the last 30 days; 95\u00a0% confidence intervals" in page
    assert f"Policy {number} was uploaded: if it was fitted to these rows" in page
    table = page[page.index("candidate on rows of") :]
    (line,) = re.findall(r"log loss</\w+>(.*?)</tr>", table, re.DOTALL)[:1]
    active, candidate = map(float, re.findall(r"\d\.\d{4}", line))
    rows = store.decisions_since()
    sample = propensity_weights(rows)
    seen = rows.take(sample.rows)
    p = other.predict_proba(Logits(seen.outputs))[np.arange(len(seen)), seen.label]
    assert candidate == pytest.approx(-np.average(np.log(p), weights=sample.weight), abs=1e-4)
    assert candidate > active + 0.5


def test_older_rows_are_left_out(anna: Person, store: Store) -> None:
    assert "Last 30 days: 5 rows decided" in anna.get("/monitor")
    long_ago = text("UPDATE decisions SET created = created - 31 * 86400 WHERE id = 'a'")
    store.write(lambda connection: connection.execute(long_ago).rowcount)
    assert "Last 30 days: 4 rows decided" in anna.get("/monitor")


@pytest.mark.slow
@pytest.mark.usefixtures("known")
def test_only_an_admin_may_refit_or_activate(store: Store) -> None:
    ben = Person(store, "ben", ["review"]).sign_in()
    assert "Refit to the labels so far" not in ben.get("/monitor")
    for address in ("/monitor/refit", "/monitor/activate", "/monitor/rollback"):
        answer = ben.post(address, policy="1")
        assert answer.status == 403
        assert "The token needs the scope admin." in answer.text
    assert len(store.list_policies()) == 1


def test_impossible_actions_are_reported(anna: Person, store: Store) -> None:
    answer = anna.post("/monitor/refit")
    assert answer.status == 409
    assert "Use an audit fraction above 0, and label the rows that it draws." in answer.text
    for policy in ("", "x", "-1", "9" * 12):
        assert anna.post("/monitor/activate", policy=policy).status == 422
    missing = anna.post("/monitor/activate", policy="99")
    assert missing.status == 404
    assert "There is no policy 99." in missing.text


def test_a_candidate_that_cannot_be_compared_is_still_shown(
    anna: Person, store: Store, policy: Policy
) -> None:
    other = replace(policy, provenance={**policy.provenance, "created": "2026-01-01"})
    store.add_policy(other.to_json())
    page = anna.get("/monitor")
    assert "compared yet. On rows of the last 30 days: No audited row of 2 accepted rows" in page
    assert "Activate policy 2" in page


def test_a_refit_uses_the_features_of_rows(anna: Person, store: Store) -> None:
    store.delete_before(1e12)
    rng = np.random.default_rng(0)
    policy = fitted_policy(features=rng.normal(size=(3000, 2)), ood=OODGate(alpha=0.05))
    policy_id = store.add_policy(policy.to_json())
    store.activate(policy_id)
    anna.app.state.service.catalog.refresh()
    features = rng.normal(0, 3, (600, 2)).astype(np.float32)
    logits, y = draw(rng, 600, 1.8)
    outputs = Logits(logits)
    for rows, kept in ((slice(0, 500), features[:500]), (slice(500, 600), None)):
        names = [f"f{k}" for k in range(rows.start, rows.stop)]
        some = outputs.take(rows)
        new = NewDecisions.of(
            policy_id,
            names,
            policy.decide(some, features[rows]),
            some.array,
            digests=[name.encode() for name in names],
            is_audit=np.ones(len(names), np.bool_),
            audit_probability=1.0,
            features=kept,
        )
        store.add_decisions(new)
        store.add_labels(names, y[rows].tolist())
        assert anna.post("/monitor/refit").status == 303
    both = [one.policy for one in store.list_policies()[-2:]]
    learned, as_before = (one.ood for one in both if isinstance(one, Policy))
    assert policy.ood is not None
    assert learned is not None
    assert as_before is not None
    assert policy.ood.predict(None, features).mean() > 0.4
    assert learned.predict(None, features).mean() == pytest.approx(0.05, abs=0.03)
    assert as_before.to_dict() == policy.ood.to_dict()
    note = "The OOD gate is unchanged: some rows have no features."
    assert note in anna.get("/monitor")
