"""A candidate mends what has moved, and stands beside the active policy on the same rows."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.calibrate import TemperatureScaling
from dubito.data.batch import Batch
from dubito.decide import CostMatrix
from dubito.serve.refitting import NOTE, refit, report_on
from dubito.serve.refusals import RefusedError
from dubito.serve.standing import rows_taken, standing_for
from tests.serve.stored import draw, drawn_rows, fitted_policy


@pytest.fixture(scope="module")
def policy() -> Any:
    return fitted_policy()


def test_a_candidate_learns_from_weighted_labels(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 6000, 0.1, sharper=2.7)
    candidate = refit(rows, policy)
    standing = standing_for(rows)
    seen = rows_taken(rows, standing.rows)
    alone = TemperatureScaling().fit(Logits(seen.outputs), seen.label, standing.weight)
    found = candidate.policy.calibrator
    assert isinstance(found, TemperatureScaling)
    assert found.temperature_ == pytest.approx(alone.temperature_)
    assert found.temperature_ == pytest.approx(2.7, rel=0.1)
    assert candidate.policy.costs.to_dict() == policy.costs.to_dict()
    after, before = candidate.policy.report, candidate.active
    assert after.log_loss_after is not None
    assert before.log_loss_after is not None
    assert after.log_loss_after < before.log_loss_after
    assert before.how == "labels so far"
    assert before.n_rows == after.n_rows == standing.rows.size


def test_the_active_report_is_what_the_policy_decides() -> None:
    policy = fitted_policy(max_risk=0.1, doubt="entropy", epsilon=0.05)
    logits, y = draw(np.random.default_rng(5), 500, 1.8)
    outputs = Logits(logits)
    report = report_on(policy, Batch.of(y, outputs), outputs)
    decided = policy.decide(outputs)
    paid = np.where(decided.is_rejected, 0.25, decided.action != y)
    assert report.cost.value == pytest.approx(paid.mean())
    assert report.coverage.value == pytest.approx(1 - decided.is_rejected.mean())


def test_bounds_and_gates_are_kept() -> None:
    policy = fitted_policy(max_risk=0.1, doubt="entropy", epsilon=0.05)
    rows, _ = drawn_rows(policy, 2000, 0.1)
    candidate = refit(rows, policy).policy
    assert candidate.bound is not None
    assert candidate.bound.max_risk == 0.1
    assert candidate.gate is not None
    assert candidate.gate.score == "entropy"
    assert candidate.gate.region.epsilon == 0.05
    features = np.random.default_rng(0).normal(size=(3000, 2))
    featured = fitted_policy(features=features)
    rows, _ = drawn_rows(replace(featured, gate=None), 2000, 0.1)
    kept = refit(rows, featured).policy
    assert kept.gate is featured.gate
    assert kept.report.notes[-1] == NOTE


def test_probabilities_are_taken_as_such(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 1000, 0.2)
    given = replace(rows, outputs=rows.probabilities, is_logits=np.zeros(1000, np.bool_))
    found = refit(given, policy).policy.calibrator
    assert isinstance(found, TemperatureScaling)
    assert found.temperature_ == pytest.approx(1, abs=0.2)


def test_what_cannot_be_refitted_is_refused(policy: Any) -> None:
    rows, _ = drawn_rows(policy, 400, 0.1)
    n_passed = int((rows.propensity < 1).sum())
    unknown = replace(rows, propensity=np.where(rows.propensity < 1, 0.0, 1.0))
    with pytest.raises(RefusedError) as caught:
        refit(unknown, policy)
    assert str(caught.value) == (
        f"{n_passed} rows were let pass while none was drawn at random to be checked. "
        "Try an audit share above 0, and labels of the rows that it draws."
    )
    table = [*(1 - np.eye(3)), [0.25] * 3]
    growing = CostMatrix(table, reject="3", rate=table)
    with pytest.raises(RefusedError) as caught:
        refit(rows, replace(policy, costs=growing))
    assert str(caught.value) == (
        "Costs grow with amounts, which are not kept for a refit. "
        "Try `dubito fit` on a file of your own."
    )
