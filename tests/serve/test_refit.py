"""Candidates correct shifts, and are compared with the active policy on the same rows."""

import json
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.calibrate import TemperatureScaling
from dubito.data import Batch
from dubito.decide import CostMatrix, OODGate, Policy, RiskBound
from dubito.serve.http_errors import HTTPError
from dubito.serve.policies import (
    NO_FEATURES,
    TOO_FEW,
    PolicyComparison,
    RefitSample,
    _evaluate,
    _evaluate_policies,
    _refit,
    compare_policies,
)
from dubito.serve.store import NewDecisions, Store
from dubito.serve.weighted_estimates import propensity_weights, sample_by_weight
from studies.common.serving import fitted_policy
from tests.decide.growing import growing
from tests.serve import stored
from tests.serve.stored import draw, drawn_rows, without_draws


def none_kept(_: Any) -> None:
    """Return no features."""


@pytest.fixture(scope="module")
def stored_policy() -> Any:
    return stored.fitted_policy()


def test_a_candidate_is_fitted_to_weighted_labels(stored_policy: Any) -> None:
    rows, _ = drawn_rows(stored_policy, 6000, 0.1, sharper=2.7)
    candidate = _refit(rows, stored_policy, none_kept)
    sample = propensity_weights(rows)
    seen = rows.take(sample.rows)
    alone = TemperatureScaling().fit(Logits(seen.outputs), seen.label, sample.weight)
    found = candidate.calibrator
    assert isinstance(found, TemperatureScaling)
    assert found.temperature_ == pytest.approx(alone.temperature_)
    assert found.temperature_ == pytest.approx(2.7, rel=0.1)
    assert candidate.costs.to_dict() == stored_policy.costs.to_dict()
    after = candidate.report
    (before,) = _evaluate_policies(rows, [stored_policy], none_kept, "labels so far")
    assert after.log_loss_after is not None
    assert before.log_loss_after is not None
    assert after.log_loss_after < before.log_loss_after
    assert before.evaluation == "labels so far"
    assert before.n_rows == after.n_rows == sample.rows.size


@pytest.mark.slow
def test_the_active_report_is_what_the_policy_decides() -> None:
    policy = stored.fitted_policy(risk=RiskBound(0.1), ood=OODGate("entropy", 0.05))
    logits, y = draw(np.random.default_rng(5), 500, 1.8)
    outputs = Logits(logits)
    report = _evaluate(policy, RefitSample(Batch.of(y, outputs), ""), "all")
    decided = policy.decide(outputs)
    paid = np.where(decided.is_rejected, 0.25, decided.action != y)
    assert report.cost.value == pytest.approx(paid.mean())
    assert report.coverage.value == pytest.approx(1 - decided.is_rejected.mean())


@pytest.mark.parametrize("score", ["entropy", ["entropy", "margin_uncertainty"]])
def test_risk_bounds_and_ood_gates_are_kept(score: str | list[str]) -> None:
    policy = stored.fitted_policy(risk=RiskBound(0.1), ood=OODGate(score, 0.05))
    rows, _ = drawn_rows(policy, 2000, 0.1)
    candidate = _refit(rows, policy, none_kept)
    assert candidate.risk is not None
    assert candidate.risk.max_risk == 0.1
    assert candidate.ood is not None
    assert candidate.ood.score_ == score
    assert candidate.ood.alpha == 0.05


def test_the_ood_gate_is_refitted_to_stored_features() -> None:
    rng = np.random.default_rng(0)
    policy = stored.fitted_policy(features=rng.normal(size=(3000, 2)), ood=OODGate(alpha=0.02))
    # Inputs are spread three times as wide now: the old gate rejects most of them.
    features = rng.normal(0, 3, (8000, 2)).astype(np.float32)
    rows, _ = drawn_rows(replace(policy, ood=None), 8000, 0.1)
    assert policy.ood is not None
    is_ood = policy.ood.predict(None, features)
    assert is_ood.mean() > 0.5
    handed = is_ood | (rows.propensity == 1)
    rows = replace(rows, propensity=np.where(handed, 1.0, 0.1))
    logits, y = draw(np.random.default_rng(1), 8000, 1.8)
    assert np.array_equal(logits, rows.outputs)
    rows = replace(rows, label=np.where(handed | rows.is_audit, y, -1))

    def features_of(ids: Any) -> Any:
        return features[np.array(ids, dtype=int)]

    candidate = _refit(rows, policy, features_of)
    gate = candidate.ood
    assert gate is not None
    assert gate.alpha == 0.02
    assert candidate.feature_names == policy.feature_names
    fresh = rng.normal(0, 3, (20_000, 2))
    # A fraction alpha of all rows, not of the rejected ones, is out of distribution.
    assert gate.predict(None, fresh).mean() == pytest.approx(0.02, abs=0.015)
    before, after = _evaluate_policies(rows, [policy, candidate], features_of, "labels so far")
    assert before.reasons["out_of_distribution"] > 0.5
    assert after.reasons["out_of_distribution"] < 0.06
    assert candidate.report.reasons["out_of_distribution"] < 0.06
    sample = propensity_weights(rows)
    assert before.n_rows == after.n_rows == sample_by_weight(sample.weight).size


@pytest.mark.parametrize("kept", ["none", "others"])
def test_without_features_the_ood_gate_is_unchanged(kept: str) -> None:
    policy = stored.fitted_policy(
        features=np.random.default_rng(0).normal(size=(3000, 2)), ood=OODGate(alpha=0.05)
    )
    rows, _ = drawn_rows(replace(policy, ood=None), 2000, 0.1)
    found = None if kept == "none" else np.zeros((1, 3), np.float32)
    candidate = _refit(rows, policy, lambda _: found)
    assert candidate.ood is policy.ood
    assert candidate.report.notes[-1] == NO_FEATURES
    (before,) = _evaluate_policies(rows, [policy], lambda _: found, "labels so far")
    assert before.n_rows == propensity_weights(rows).rows.size


def test_an_ood_gate_needs_enough_rows() -> None:
    policy = stored.fitted_policy(ood=OODGate("entropy", 0.001))
    rows, _ = drawn_rows(policy, 2000, 0.1)
    n_rows = sample_by_weight(propensity_weights(rows).weight).size
    candidate = _refit(rows, policy, none_kept)
    assert candidate.ood is policy.ood
    assert candidate.report.notes[-1] == TOO_FEW.format(1000, n_rows)


def test_row_dependent_costs_are_refitted_with_stored_amounts(stored_policy: Any) -> None:
    table = [*(1 - np.eye(3)), [0.25] * 3]
    costs = CostMatrix(growing(np.zeros((4, 3)), table), reject="3")
    grows = replace(stored_policy, costs=costs)
    rows, _ = drawn_rows(stored_policy, 2000, 0.1)
    row_costs = np.random.default_rng(0).uniform(1, 9, 2000)
    texts = [json.dumps({"amount": amount}) for amount in row_costs.tolist()]
    rows = replace(rows, row_costs=np.array(texts, object))
    candidate = _refit(rows, grows, none_kept)
    before, plain, after = _evaluate_policies(
        rows, [grows, stored_policy, candidate], none_kept, "labels"
    )
    sample = propensity_weights(rows)
    seen = rows.take(sample.rows)
    paid = np.where(seen.action == 3, 0.25, seen.action != seen.label) * row_costs[sample.rows]
    expected = np.average(paid, weights=sample.weight)
    assert before.cost.value == pytest.approx(expected, rel=1e-6)
    assert after.cost.value == pytest.approx(expected, rel=0.1)
    paid = np.where(seen.action == 3, 0.25, seen.action != seen.label)
    assert plain.cost.value == pytest.approx(np.average(paid, weights=sample.weight), rel=1e-6)


def test_probabilities_are_refitted(stored_policy: Any) -> None:
    rows, _ = drawn_rows(stored_policy, 1000, 0.2)
    given = replace(rows, outputs=rows.probabilities, is_logits=np.zeros(1000, np.bool_))
    found = _refit(given, stored_policy, none_kept).calibrator
    assert isinstance(found, TemperatureScaling)
    assert found.temperature_ == pytest.approx(1, abs=0.2)


def test_impossible_refits_are_rejected(stored_policy: Any) -> None:
    rows, _ = drawn_rows(stored_policy, 400, 0.1)
    n_passed = int((rows.propensity < 1).sum())
    unknown = without_draws(rows)
    with pytest.raises(HTTPError) as caught:
        _refit(unknown, stored_policy, none_kept)
    assert str(caught.value) == (
        f"{n_passed} rows were accepted without any being drawn for the audit. "
        "Use an audit fraction above 0, and label the rows that it draws."
    )
    table = [*(1 - np.eye(3)), [0.25] * 3]
    costs = CostMatrix(growing(table, table), reject="3")
    with pytest.raises(HTTPError) as caught:
        _refit(rows, replace(stored_policy, costs=costs), none_kept)
    n_labels = propensity_weights(rows).rows.size
    assert str(caught.value) == (
        f"The costs depend on `amount`, and {n_labels} rows have none. "
        "Run `dubito fit` on a file that has them."
    )


Add = Callable[..., Any]
DAY = 86_400.0


@pytest.fixture
def add(small_store: Store, policy: Policy) -> Add:
    """Decide rows whose labels are all known, and return their logits and labels."""

    def added(name: str, n_rows: int, ago: float) -> Any:
        rng = np.random.default_rng(n_rows)
        calibrated = rng.normal(0, 2, (n_rows, 3))
        y = (calibrated + rng.gumbel(size=calibrated.shape)).argmax(axis=1)
        logits = (1.5 * calibrated).astype(np.float32)
        ids = [f"{name}{k}" for k in range(n_rows)]
        outputs = Logits(logits, classes=policy.classes)
        new = NewDecisions.of(
            1,
            ids,
            policy.decide(outputs),
            logits,
            digests=[one.encode() for one in ids],
            is_audit=np.ones(n_rows, np.bool_),
            audit_probability=1.0,
            created=time.time() - ago,
        )
        small_store.add_decisions(new)
        small_store.add_labels(ids, y.tolist())
        return logits, y

    return added


def compared(store: Store, active_id: int, candidate_id: int) -> PolicyComparison:
    """Compare two policies of a store."""
    known = {one.id: one for one in store.list_policies()}
    rows = store.decisions_since(time.time() - 30 * DAY)
    return compare_policies(store, rows, known[active_id], known[candidate_id])


def cost_of(policy: Policy, logits: Any, y: Any, reject_cost: float) -> float:
    """Return the mean cost of a policy."""
    action = policy.decide(Logits(logits, classes=policy.classes)).action
    return float(np.where(action == 3, reject_cost, action != y).mean())


def test_an_uploaded_policy_is_evaluated_on_live_rows(small_store: Store, add: Add) -> None:
    logits, y = add("a", 400, ago=3600.0)
    other = fitted_policy(reject_cost=0.1)
    number = small_store.add_policy(other.to_json())
    found = compared(small_store, 1, number)
    active = small_store.list_policies()[0].policy
    assert isinstance(active, Policy)
    assert found.active.cost.value == pytest.approx(cost_of(active, logits, y, 0.3))
    assert found.candidate.cost.value == pytest.approx(cost_of(other, logits, y, 0.1))
    assert found.candidate.cost.value != pytest.approx(other.report.cost.value, rel=0.05)
    assert found.active.n_rows == found.candidate.n_rows == 400
    assert found.rows == "rows of the last 30 days"
    assert found.notes == (
        f"Policy {number} was uploaded: if it was fitted to these rows, its metrics are "
        "optimistic.",
        "Their costs differ: each policy is evaluated with its own.",
    )


def test_a_refit_is_cross_validated_until_new_rows_arrive(
    small_store: Store, add: Add, policy: Policy
) -> None:
    add("a", 400, ago=3600.0)
    until = time.time()
    before = _refit(small_store.decisions_since(), policy, small_store.find_features)
    number = small_store.add_policy(before.to_json(), trained_until=until)
    logits, y = add("few", 30, ago=-60.0)
    found = compared(small_store, 1, number)
    assert found.candidate == before.report
    assert found.active.n_rows == found.candidate.n_rows == 400
    assert found.rows.startswith("rows that the candidate was fitted to, by cross-validation")
    assert found.notes == ()
    more, z = add("more", 200, ago=-120.0)
    found = compared(small_store, 1, number)
    assert found.active.n_rows == found.candidate.n_rows == 230
    logits, y = np.concatenate([logits, more]), np.concatenate([y, z])
    assert found.candidate.cost.value == pytest.approx(cost_of(before, logits, y, 0.3))
    assert found.rows == "rows decided since the last refit, which neither was fitted to"


def test_a_policy_is_not_evaluated_on_its_training_rows(
    small_store: Store, add: Add, policy: Policy
) -> None:
    add("a", 400, ago=3600.0)
    rows, until = small_store.decisions_since(), time.time()
    active = small_store.add_policy(
        _refit(rows, policy, small_store.find_features).to_json(), trained_until=until
    )
    uploaded = small_store.add_policy(fitted_policy(reject_cost=0.1).to_json())
    with pytest.raises(HTTPError, match="No rows have been decided yet"):
        compared(small_store, active, uploaded)
    add("b", 60, ago=-60.0)
    found = compared(small_store, active, uploaded)
    assert found.active.n_rows == found.candidate.n_rows == 60
    again = _refit(small_store.decisions_since(), policy, small_store.find_features)
    again = replace(again, provenance={**again.provenance, "random_state": 1})
    late = small_store.add_policy(again.to_json(), trained_until=time.time() + 90)
    with pytest.raises(HTTPError, match="No rows have been decided yet"):
        compared(small_store, active, late)
