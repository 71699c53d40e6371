"""The page on scores of answers: thresholds, and a policy on rows that it was not fitted on."""

import re

import numpy as np
import pytest
from scipy.special import expit

from dubito import CostMatrix, Policy, Scores
from dubito.calibrate.held_out_answers import HeldOutAnswers
from dubito.data import ArrayShards, Batch
from dubito.decide import RiskBound
from dubito.report import make_report
from dubito.report.sections.answers import _threshold_table


def made(n_rows: int, seed: int) -> tuple[Scores, np.ndarray]:
    rng = np.random.default_rng(seed)
    odds = rng.normal(1, 2, n_rows)
    judge = odds + rng.normal(0, 1, n_rows)
    scores = Scores({"c": expit(2 * odds), "judge": judge}, confidence="c")
    return scores, rng.random(n_rows) < expit(odds)


def test_thresholds_count_held_out_answers() -> None:
    scores, correct = made(150, 0)
    found = HeldOutAnswers.cross_fit(ArrayShards(Batch.of(correct, scores)), 0, "test")
    rows = {row[0]: row for row in _threshold_table(found, None).rows}
    is_given = found.p_correct >= 0.8
    _, n_rows, coverage, _, risk, _ = rows["0.8"]
    assert n_rows == f"{is_given.sum()}"
    assert coverage == f"{100 * is_given.mean():.1f} %"
    assert risk == f"{100 * (1 - correct[is_given].mean()):.1f} %"
    # Rows are held out: the fit of all rows gives another P(correct).
    assert list(found.separations())[-1].roc_auc is not None
    assert found.evaluation == "cross-fitted in 5 folds"


@pytest.mark.slow
def test_a_policy_is_evaluated_on_other_rows() -> None:
    scores, correct = made(150, 0)
    policy = Policy.fit(scores, correct, costs=CostMatrix.for_answers().with_reject(0.2))
    other, truth = made(400, 1)
    report = make_report(truth, other, policy=policy)
    answered = ~policy.decide(other).is_rejected
    percent = f"{100 * answered.mean():.1f} % of the answers are given"
    assert report.verdict.startswith(f"Answer from calibrated P(correct) 0.8 on: {percent}")
    assert "0.8, the policy" in re.sub(r"\s+", " ", report.html)
    nobody = Policy.fit(scores, correct, costs=CostMatrix.for_answers(100).with_reject(0.2))
    assert make_report(truth, other, policy=nobody).verdict.startswith("Every answer is rejected.")


def test_a_risk_bound_above_the_costs_is_the_threshold_of_the_policy() -> None:
    scores, correct = made(600, 0)
    costs = CostMatrix.for_answers().with_reject(0.2)
    policy = Policy.fit(scores, correct, costs=costs, risk=RiskBound(max_risk=0.06))
    assert policy.risk is not None
    other, truth = made(400, 1)
    found = HeldOutAnswers.cross_fit(ArrayShards(Batch.of(truth, other)), 0, "test")
    marked = [row for row in _threshold_table(found, policy).rows if "the policy" in row[0]]
    [(name, n_rows, *_)] = marked
    assert name == f"{policy.risk.threshold_:.3g}, the policy (risk bound)"
    assert policy.risk.threshold_ > 0.8
    assert n_rows == f"{(found.p_correct >= policy.risk.threshold_).sum()}"


def test_p_correct_of_few_answers_is_estimated() -> None:
    costs = CostMatrix.for_answers().with_reject(0.2)
    few = Policy.fit(*made(30, 0), costs=costs)
    assert few.report.is_better
    assert str(few).startswith("By estimated P(correct)")
    assert str(Policy.fit(*made(600, 0), costs=costs)).startswith("By calibrated P(correct)")
