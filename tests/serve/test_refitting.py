"""A candidate mends what has moved, and stands beside the active policy on the same rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.calibrate import TemperatureScaling
from dubito.data.batch import Batch
from dubito.decide import CostMatrix, OODGate, RiskBound
from dubito.serve.refitting import NO_FEATURES, TOO_FEW, KnownRows, _report_on, refit, reports_on
from dubito.serve.refusals import RefusedError
from dubito.serve.standing import drawn_by_weight, rows_taken, standing_for
from tests.serve.stored import draw, drawn_rows, fitted_policy, without_draws


def none_kept(_: Any) -> None:
    """Return no features."""


@pytest.fixture(scope="module")
def policy() -> Any:
    return fitted_policy()


def test_a_candidate_learns_from_weighted_labels(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 6000, 0.1, sharper=2.7)
    candidate = refit(rows, policy, none_kept)
    standing = standing_for(rows)
    seen = rows_taken(rows, standing.rows)
    alone = TemperatureScaling().fit(Logits(seen.outputs), seen.label, standing.weight)
    found = candidate.calibrator
    assert isinstance(found, TemperatureScaling)
    assert found.temperature_ == pytest.approx(alone.temperature_)
    assert found.temperature_ == pytest.approx(2.7, rel=0.1)
    assert candidate.costs.to_dict() == policy.costs.to_dict()
    after = candidate.report
    (before,) = reports_on(rows, [policy], none_kept, "labels so far")
    assert after.log_loss_after is not None
    assert before.log_loss_after is not None
    assert after.log_loss_after < before.log_loss_after
    assert before.how == "labels so far"
    assert before.n_rows == after.n_rows == standing.rows.size


def test_the_active_report_is_what_the_policy_decides() -> None:
    policy = fitted_policy(risk=RiskBound(0.1), ood=OODGate("entropy", 0.05))
    logits, y = draw(np.random.default_rng(5), 500, 1.8)
    outputs = Logits(logits)
    report = _report_on(policy, KnownRows(outputs, Batch.of(y, outputs), ""), "all")
    decided = policy.decide(outputs)
    paid = np.where(decided.is_rejected, 0.25, decided.action != y)
    assert report.cost.value == pytest.approx(paid.mean())
    assert report.coverage.value == pytest.approx(1 - decided.is_rejected.mean())


def test_bounds_and_gates_are_kept() -> None:
    policy = fitted_policy(risk=RiskBound(0.1), ood=OODGate("entropy", 0.05))
    rows, _ = drawn_rows(policy, 2000, 0.1)
    candidate = refit(rows, policy, none_kept)
    assert candidate.risk is not None
    assert candidate.risk.max_risk == 0.1
    assert candidate.ood is not None
    assert candidate.ood.score_ == "entropy"
    assert candidate.ood.alpha == 0.05


def test_what_is_strange_is_learned_anew_from_features_that_were_kept() -> None:
    rng = np.random.default_rng(0)
    policy = fitted_policy(features=rng.normal(size=(3000, 2)), ood=OODGate(alpha=0.02))
    # Inputs spread three times as wide by now: the old gate hands over most of them.
    features = rng.normal(0, 3, (8000, 2)).astype(np.float32)
    rows, _ = drawn_rows(replace(policy, ood=None), 8000, 0.1)
    assert policy.ood is not None
    is_strange = policy.ood.predict(None, features)
    assert is_strange.mean() > 0.5
    handed = is_strange | (rows.propensity == 1)
    rows = replace(rows, propensity=np.where(handed, 1.0, 0.1))
    logits, y = draw(np.random.default_rng(1), 8000, 1.8)
    assert np.array_equal(logits, rows.outputs)
    rows = replace(rows, label=np.where(handed | rows.is_audit, y, -1))

    def features_of(ids: Any) -> Any:
        return features[np.array(ids, dtype=int)]

    candidate = refit(rows, policy, features_of)
    gate = candidate.ood
    assert gate is not None
    assert gate.alpha == 0.02
    assert candidate.feature_names == policy.feature_names
    fresh = rng.normal(0, 3, (20_000, 2))
    # Of rows that stand for all, not of those that were handed over, a share epsilon is strange.
    assert gate.predict(None, fresh).mean() == pytest.approx(0.02, abs=0.015)
    before, after = reports_on(rows, [policy, candidate], features_of, "labels so far")
    assert before.reasons["out_of_distribution"] > 0.5
    assert after.reasons["out_of_distribution"] < 0.06
    assert candidate.report.reasons["out_of_distribution"] < 0.06
    standing = standing_for(rows)
    assert before.n_rows == after.n_rows == drawn_by_weight(standing.weight).size


@pytest.mark.parametrize("kept", ["none", "others"])
def test_without_features_strange_inputs_are_told_as_before(kept: str) -> None:
    policy = fitted_policy(
        features=np.random.default_rng(0).normal(size=(3000, 2)), ood=OODGate(alpha=0.05)
    )
    rows, _ = drawn_rows(replace(policy, ood=None), 2000, 0.1)
    found = None if kept == "none" else np.zeros((1, 3), np.float32)
    candidate = refit(rows, policy, lambda _: found)
    assert candidate.ood is policy.ood
    assert candidate.report.notes[-1] == NO_FEATURES
    (before,) = reports_on(rows, [policy], lambda _: found, "labels so far")
    assert before.n_rows == standing_for(rows).rows.size


def test_a_gate_needs_rows_enough_to_tell_what_is_rare() -> None:
    policy = fitted_policy(ood=OODGate("entropy", 0.001))
    rows, _ = drawn_rows(policy, 2000, 0.1)
    n_rows = drawn_by_weight(standing_for(rows).weight).size
    candidate = refit(rows, policy, none_kept)
    assert candidate.ood is policy.ood
    assert candidate.report.notes[-1] == TOO_FEW.format(1000, n_rows)


def test_costs_that_grow_with_amounts_are_refitted_on_those_that_were_kept(policy: Any) -> None:
    table = [*(1 - np.eye(3)), [0.25] * 3]
    growing = replace(policy, costs=CostMatrix(np.zeros((4, 3)), reject="3", rate=table))
    rows, _ = drawn_rows(policy, 2000, 0.1)
    row_costs = np.random.default_rng(0).uniform(1, 9, 2000)
    rows = replace(rows, amount=row_costs)
    candidate = refit(rows, growing, none_kept)
    before, plain, after = reports_on(rows, [growing, policy, candidate], none_kept, "labels")
    standing = standing_for(rows)
    seen = rows_taken(rows, standing.rows)
    paid = np.where(seen.action == 3, 0.25, seen.action != seen.label) * row_costs[standing.rows]
    expected = np.average(paid, weights=standing.weight)
    assert before.cost.value == pytest.approx(expected, rel=1e-6)
    assert after.cost.value == pytest.approx(expected, rel=0.1)
    paid = np.where(seen.action == 3, 0.25, seen.action != seen.label)
    assert plain.cost.value == pytest.approx(np.average(paid, weights=standing.weight), rel=1e-6)


def test_probabilities_are_taken_as_such(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 1000, 0.2)
    given = replace(rows, outputs=rows.probabilities, is_logits=np.zeros(1000, np.bool_))
    found = refit(given, policy, none_kept).calibrator
    assert isinstance(found, TemperatureScaling)
    assert found.temperature_ == pytest.approx(1, abs=0.2)


def test_what_cannot_be_refitted_is_refused(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 400, 0.1)
    n_passed = int((rows.propensity < 1).sum())
    unknown = without_draws(rows)
    with pytest.raises(RefusedError) as caught:
        refit(unknown, policy, none_kept)
    assert str(caught.value) == (
        f"{n_passed} rows were let pass while none was drawn at random to be checked. "
        "Try an audit share above 0, and labels of the rows that it draws."
    )
    table = [*(1 - np.eye(3)), [0.25] * 3]
    growing = CostMatrix(table, reject="3", rate=table)
    with pytest.raises(RefusedError) as caught:
        refit(rows, replace(policy, costs=growing), none_kept)
    n_labels = standing_for(rows).rows.size
    assert str(caught.value) == (
        f"Costs depend on row costs, and {n_labels} rows came without. "
        "Try `dubito fit` on a file of your own."
    )
