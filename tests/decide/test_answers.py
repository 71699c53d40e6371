"""Asking reviewers and models who err: expected costs, decisions, and what an answer changes."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubito.arrays import FloatArray
from dubito.calibrate import IdentityCalibrator
from dubito.decide import (
    Answerer,
    CostMatrix,
    Policy,
    Reviewer,
    ReviewTeam,
    action_intervals,
    cost_report,
    estimate_confusion,
    expected_costs,
    optimal_actions,
    realized_cost,
)
from dubito.errors import DubitoError
from dubito.outputs import Logits, Scores


def some_rows(n_rows: int, n_classes: int, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).dirichlet(np.full(n_classes, 0.7), n_rows)


def some_confusion(n_classes: int, seed: int) -> FloatArray:
    table = np.random.default_rng(seed).dirichlet(np.ones(n_classes), n_classes)
    return np.asarray(0.5 * table + 0.5 * np.eye(n_classes))


def brute_force(p: FloatArray, table: FloatArray, confusion: FloatArray, combine: str) -> float:
    """The expected cost after an answer: all rules from answers to actions, or the plain one."""
    n_actions, n_classes = table.shape

    def cost(rule: Any) -> float:
        return float(
            sum(
                p[k] * confusion[k, j] * table[rule[j], k]
                for k in range(n_classes)
                for j in range(n_classes)
            )
        )

    if combine == "replace":
        return cost([int(table[:, j].argmin()) for j in range(n_classes)])
    return min(cost(rule) for rule in product(range(n_actions), repeat=n_classes))


@pytest.mark.parametrize("combine", ["bayes", "replace"])
@pytest.mark.parametrize("is_zero_one", [True, False])
@pytest.mark.parametrize("kind", ["rate", "rates", "confusion"])
def test_expected_costs_are_those_of_all_rules(combine: Any, is_zero_one: bool, kind: str) -> None:
    n_classes, p, rng = 3, some_rows(20, 3), np.random.default_rng(1)
    table = 1 - np.eye(3) if is_zero_one else rng.normal(size=(2, 3)) * 3
    rates = {"rate": 0.2, "rates": [0.1, 0.9, 0.4]}.get(kind)
    confusion = some_confusion(n_classes, 2) if rates is None else None
    price = [0.1, 0.2, 0.3]
    costs = CostMatrix(table).with_review(
        "ann", cost=price, error_rate=rates, confusion=confusion, combine=combine
    )
    likelihoods = costs.reviews[0].likelihoods
    np.testing.assert_allclose(likelihoods.sum(axis=1), 1)
    expected = [
        row @ price + brute_force(row, np.asarray(table), likelihoods, combine) for row in p
    ]
    found = expected_costs(p, costs)
    np.testing.assert_allclose(found[:, -1], expected, rtol=1e-12)
    np.testing.assert_allclose(found[:, :-1], p @ table.T, rtol=1e-12)
    logits = Logits(np.log(p).astype(np.float32))
    np.testing.assert_allclose(expected_costs(logits, costs), found, rtol=1e-5, atol=1e-6)
    action = optimal_actions(p, costs)
    np.testing.assert_allclose(found[np.arange(20), action], found.min(axis=1), atol=1e-9)


def test_many_classes_cost_what_few_do() -> None:
    p = some_rows(5, 40)
    even = CostMatrix.zero_one(40).with_review("ann", error_rate=0.3)
    table = Answerer.of("ann", 40, error_rate=0.3, caller="test").likelihoods
    whole = CostMatrix.zero_one(40).with_review("ann", confusion=table)
    joint = p[:, :, np.newaxis] * table
    expected = (joint.sum(axis=1) - joint.max(axis=1)).sum(axis=1)
    for costs in (even, whole):
        np.testing.assert_allclose(expected_costs(p, costs)[:, -1], expected, rtol=1e-12)


def test_costs_of_rows_are_evaluated_before_and_after_an_answer() -> None:
    p, amount = some_rows(6, 2), np.array([1.0, 5.0, 20.0, 100.0, 0.5, 8.0])
    base = CostMatrix([[0, "amount"], ["fee", 0]], ["pass", "block"])
    costs = base.with_review("ann", cost="0.01 * amount", error_rate=[0.05, 0.2])
    costs = costs.with_review("bob", cost=0.5, error_rate=0.1, combine="replace")
    found = expected_costs(p, costs, {"amount": amount, "fee": np.full(6, 2.0)})
    for row, value, paid in zip(p, amount, found, strict=True):
        table = np.array([[0, value], [2.0, 0]])
        ann, bob = (one.likelihoods for one in costs.reviews)
        assert paid[2] == pytest.approx(0.01 * value + brute_force(row, table, ann, "bayes"))
        assert paid[3] == pytest.approx(0.5 + brute_force(row, table, bob, "replace"))
        one = costs.at({"amount": value, "fee": 2.0})
        np.testing.assert_allclose(expected_costs([row], one)[0], paid)


def test_a_perfect_reviewer_is_worth_perfect_information_and_a_useless_one_nothing() -> None:
    p, table = some_rows(50, 4), np.random.default_rng(3).random((3, 4))
    costs = CostMatrix(table)
    best = expected_costs(p, costs).min(axis=1)
    perfect = expected_costs(p, costs.with_review("ann", error_rate=0))[:, -1]
    np.testing.assert_allclose(perfect, p @ table.min(axis=0))
    useless = costs.with_review("ann", cost=1e-6, error_rate=0.75)
    np.testing.assert_allclose(expected_costs(p, useless)[:, -1], best + 1e-6)
    assert (optimal_actions(p, useless) < 3).all()
    for rate in (0.05, 0.3, 0.75, 0.9):
        bayes = expected_costs(p, costs.with_review("ann", error_rate=rate))[:, -1]
        final = costs.with_review("ann", error_rate=rate, combine="replace")
        assert (bayes <= expected_costs(p, final)[:, -1] + 1e-12).all()
        assert (bayes <= best + 1e-12).all()


def test_the_cheapest_way_to_ask_wins_ties() -> None:
    costs = CostMatrix.zero_one(2).with_review("ann", cost=0.25, error_rate=0)
    assert optimal_actions([[0.75, 0.25]], costs).tolist() == [2]
    both = costs.with_model("large", cost=0.2, error_rate=0).with_reject(0.25)
    assert both.reject_name == "reject"
    assert both.rejecting == (4, 2, 3)
    assert both.deciding == (0, 1)
    rows = [[0.5, 0.5], [0.9, 0.1]]
    assert optimal_actions(rows, both).tolist() == [3, 0]
    wide = CostMatrix.zero_one(40).with_review("ann", cost=0.2, error_rate=0).with_reject(0.2)
    assert optimal_actions(some_rows(3, 40), wide).tolist() == [41] * 3
    equal = both.with_review("bob", cost=0.2, error_rate=0)
    assert optimal_actions(rows, equal).tolist() == [3, 0]


def test_thresholds_of_two_classes_are_where_decisions_change() -> None:
    costs = CostMatrix([[0, 10], [1, 0]], ["pass", "block"])
    costs = costs.with_review("ann", cost=0.1, error_rate=0.1)
    costs = costs.with_review("bob", cost=0.01, error_rate=0.3, combine="replace")
    p = np.linspace(0, 1, 2001)
    taken = np.array(costs.actions)[optimal_actions(np.column_stack([1 - p, p]), costs)]
    found = action_intervals(costs)
    assert [one.action for one in found] == ["pass", "ann", "block"]
    for one in found:
        inside = (p > one.low + 1e-6) & (p < one.high - 1e-6)
        assert set(taken[inside]) == {one.action}


def test_realized_costs_are_means_over_answers() -> None:
    p = some_rows(2000, 3)
    costs = CostMatrix.zero_one(3).with_review("ann", cost=0.05, error_rate=0.1)
    rng = np.random.default_rng(0)
    y = (p.cumsum(axis=1) < rng.random((2000, 1))).sum(axis=1)
    report = cost_report(y, p, costs, n_resamples=40)
    assert report.expected == pytest.approx(expected_costs(p, costs).min(axis=1).mean())
    action = optimal_actions(p, costs)
    answers = (costs.reviews[0].likelihoods[y].cumsum(axis=1) < rng.random((2000, 1))).sum(axis=1)
    after = costs.reviews[0].updated(p, answers).argmax(axis=1)
    paid = np.where(action == 3, 0.05 + (after != y), action != y)
    assert report.realized.value == pytest.approx(paid.mean(), abs=0.02)
    with pytest.raises(DubitoError, match=r"final answers.*'ann' with Bayes"):
        realized_cost(y, action, costs)
    final = CostMatrix.zero_one(3).with_review("ann", cost=0.05, error_rate=0.1, combine="replace")
    assert realized_cost([0, 1], [3, 1], final) == pytest.approx(0.15 / 2)


def test_a_policy_asks_explains_and_is_saved(tmp_path: Path) -> None:
    p = some_rows(400, 2)
    y = (np.random.default_rng(0).random(400) < p[:, 1]).astype(int)
    costs = CostMatrix([[0, 10], [1, 0]], ["pass", "block"], ["legit", "fraud"])
    costs = costs.with_review("ann", cost=0.1, error_rate=0.1).with_review(
        "bob", cost=0.3, confusion=[[9, 1], [0, 10]]
    )
    policy = Policy.fit(p, y, costs=costs, calibrator=IdentityCalibrator())
    decisions = policy.decide(p)
    assert decisions.action.tolist() == optimal_actions(p, costs).tolist()
    is_asked = decisions.is_rejected
    assert is_asked.tolist() == (decisions.action >= 2).tolist()
    least = expected_costs(p, CostMatrix(costs.array[:2])).min(axis=1)
    saved = np.where(is_asked, least - decisions.expected_cost, 0)
    np.testing.assert_allclose(decisions.review_value, saved, atol=1e-12)
    path = tmp_path / "policy.json"
    policy.save(path)
    again = Policy.load(path).decide(p)
    assert again.action.tolist() == decisions.action.tolist()
    row = int(np.flatnonzero(decisions.action == 2)[0])
    text = policy.explain(p, row=row)
    assert "Action: ann, because rejecting costs less than any other action." in text
    assert "Ask ann (an error rate of 10 %, combined by Bayes): pass after 'legit'" in text
    values = json.loads(path.read_text())
    assert values["costs"]["reviews"][0]["name"] == "ann"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "needs an error rate or a confusion matrix, got neither"),
        ({"error_rate": 5}, "between 0 and 1.*got 5"),
        ({"error_rate": [0.1, 0.2, 0.3]}, "one number, or one per class, got 3"),
        ({"confusion": [[1, 0]]}, "must be 2 x 2, true class x answer, got shape"),
        ({"confusion": [[1, 0], [0, 0]]}, "must have answers in every class"),
        ({"confusion": [[1, -1], [0, 1]]}, "at least 0"),
        ({"error_rate": 0.1, "combine": "vote"}, "must be 'bayes' or 'replace', got 'vote'"),
    ],
)
def test_what_is_wrong_with_an_answerer_is_said(settings: Any, message: str) -> None:
    with pytest.raises(DubitoError, match=message):
        CostMatrix.zero_one(2).with_review("ann", **settings)


def test_classes_in_another_order_take_their_errors_along() -> None:
    table = some_confusion(3, 5)
    costs = CostMatrix.zero_one(["a", "b", "c"]).with_review("ann", confusion=table)
    moved = costs.for_classes(("c", "a", "b"), 3)
    order = [2, 0, 1]
    np.testing.assert_allclose(moved.reviews[0].likelihoods, table[np.ix_(order, order)])
    assert CostMatrix.from_dict(moved.to_dict()).to_dict() == moved.to_dict()


def test_a_confusion_matrix_is_estimated_from_answers() -> None:
    table, rng = some_confusion(4, 6), np.random.default_rng(0)
    y = rng.integers(0, 4, 40_000)
    answers = (table[y].cumsum(axis=1) < rng.random((y.size, 1))).sum(axis=1)
    np.testing.assert_allclose(estimate_confusion(y, answers, 4), table, atol=0.02)
    rare = estimate_confusion([0, 0], [0, 0], 3)
    assert (rare > 0).all()
    np.testing.assert_allclose(rare.sum(axis=1), 1)


def mean_cost_of_answers(p: FloatArray, error: FloatArray, combine: str, n: int = 200_000) -> float:
    """The cost of asking about one answer, by drawing answers among 5: the model's, and theirs."""
    rng = np.random.default_rng(0)
    model = (rng.random(n) >= p[1]).astype(int)  # 0 is correct, 1 wrong
    is_wrong = rng.random(n) < np.where(model == 0, error[1], error[0])
    theirs = np.where(is_wrong, rng.integers(1, 5, n), 0)
    taken = theirs
    if combine == "bayes":  # keep the model's answer after all, if fewer are wrong
        taken = min(model, theirs, key=np.count_nonzero)
    return float((np.where(taken == 0, 0.1, 2.0)).mean())


@pytest.mark.parametrize("combine", ["bayes", "replace"])
def test_who_is_asked_about_an_answer_gives_one(combine: Any) -> None:
    wrong = np.array([0.99, 0.6, 0.2, 0.02])
    p = np.column_stack([wrong, 1 - wrong])
    base = CostMatrix([[2.0, 0.1]], ["answer"], ["wrong", "correct"])
    for rates in ([0.25, 0.25], [0.3, 0.05], [0.9, 0.9], [0.0, 0.0]):
        costs = base.with_review("ann", cost=0.05, error_rate=rates, combine=combine)
        found = expected_costs(p, costs)[:, -1]
        drawn = [mean_cost_of_answers(row, np.array(rates), combine) + 0.05 for row in p]
        np.testing.assert_allclose(found, drawn, atol=0.02)
        team = ReviewTeam([Reviewer("ann", 1, rates, cost=0.05, combine=combine)])
        saved = expected_costs(p, base)[:, 0] - found
        np.testing.assert_allclose(team.values(p, base)[:, 0], saved, atol=1e-12)
        by_row = CostMatrix([["amount", 0.1]], ["answer"], ["wrong", "correct"]).with_review(
            "ann", cost=0.05, error_rate=rates, combine=combine
        )
        same = expected_costs(p, by_row, {"amount": np.full(4, 2.0)})[:, -1]
        np.testing.assert_allclose(same, found)


def test_a_careless_reviewer_of_answers_is_worth_little() -> None:
    costs = CostMatrix.for_answers()
    names = [("a", 0.25), ("b", 0.5), ("c", 0.9), ("d", 0.995), ("e", 0.0)]
    team = ReviewTeam([Reviewer(name, 1, rate) for name, rate in names])
    np.testing.assert_allclose(team.values([[0.99, 0.01]], costs), [[0.74, 0.49, 0.09, 0, 0.99]])
    np.testing.assert_allclose(team.values([[0.2, 0.8]], costs), [[0, 0, 0, 0, 0.2]])


def test_a_policy_of_scores_asks_someone_about_answers() -> None:
    rng = np.random.default_rng(0)
    score = rng.normal(size=600)
    is_correct = rng.random(600) < 1 / (1 + np.exp(-1.5 * score))
    costs = CostMatrix.for_answers().with_review("ann", cost=0.05, error_rate=0.02)
    policy = Policy.fit(Scores(score), is_correct, costs=costs)
    decisions = policy.decide(Scores(score))
    p = decisions.probabilities[:, 1]
    assert (decisions.action == (1 - p >= 0.07)).all()  # a wrong answer costs 1
    assert policy.report.cost.value < 0.08
    assert [one.action for one in policy.thresholds] == ["ann", "answer"]
    assert policy.thresholds[0].high == pytest.approx(0.93)
    row = int(p.argmin())
    assert "take the answer of ann where it differs" in policy.explain(Scores(score), row=row)
