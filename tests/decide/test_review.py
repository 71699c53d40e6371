"""Teams of reviewers: plans within capacity, shadow prices, queues and learned error rates."""

import json
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog

from dubito.arrays import FloatArray, IntArray
from dubito.decide import CostMatrix, Reviewer, ReviewTeam, expected_costs, optimal_actions
from dubito.errors import DubitoError


def some_team(*capacities: int, **settings: Any) -> ReviewTeam:
    rates = (0.02, 0.1, 0.25)
    pairs = zip("abc", capacities, rates, strict=False)
    return ReviewTeam([Reviewer(n, capacity=c, error_rate=e, **settings) for n, c, e in pairs])


def some_rows(n_rows: int, n_classes: int = 3, seed: int = 0) -> FloatArray:
    return np.random.default_rng(seed).dirichlet(np.full(n_classes, 0.5), n_rows)


def highest_total(values: FloatArray, capacities: IntArray) -> float:
    """The optimum of the whole linear program, all rows and reviewers at once."""
    n_rows, n_reviewers = values.shape
    by_row = np.kron(np.eye(n_rows), np.ones(n_reviewers))
    by_reviewer = np.kron(np.ones(n_rows), np.eye(n_reviewers))
    limits = np.concatenate([np.ones(n_rows), capacities])
    found = linprog(-values.ravel(), np.vstack([by_row, by_reviewer]), limits, method="highs")
    return float(-found.fun)


def test_values_are_what_asking_saves() -> None:
    p, team = some_rows(30), some_team(1, 1, 1, cost=0.03)
    costs = CostMatrix([[0, 5, 1], [2, 0, 1], [1, 1, 0.5]]).with_reject(0.1)
    plain = CostMatrix(costs.array[:3])
    least = expected_costs(p, plain).min(axis=1)
    for r, rate in enumerate((0.02, 0.1, 0.25)):
        asking = plain.with_review("ask", cost=0.03, error_rate=rate)
        expected = least - expected_costs(p, asking)[:, -1]
        np.testing.assert_allclose(team.values(p, costs)[:, r], expected, atol=1e-12)


def test_values_follow_the_costs_of_each_row() -> None:
    p, amount = some_rows(5, 2), np.array([1.0, 10.0, 100.0, 50.0, 3.0])
    costs = CostMatrix([[0, "amount"], [2, 0]], classes=["legit", "fraud"])
    team = ReviewTeam([Reviewer("a", 1, {"fraud": 0.1, "legit": 0.02}, cost="0.01 * amount")])
    found = team.values(p, costs, {"amount": amount})[:, 0]
    for row, value, one in zip(p, amount, found, strict=True):
        at = ReviewTeam([Reviewer("a", 1, [0.02, 0.1], cost=0.01 * value)])
        fixed = CostMatrix([[0, value], [2, 0]])
        assert one == pytest.approx(at.values([row], fixed)[0, 0])


def test_small_plans_are_the_best_of_all() -> None:
    for seed in range(5):
        p = some_rows(5, seed=seed)
        team = some_team(1, 1, cost=0.02)
        values = team.values(p)
        totals = [
            sum(values[i, r] for i, r in enumerate(plan) if r >= 0)
            for plan in product((-1, 0, 1), repeat=5)
            if plan.count(0) <= 1 and plan.count(1) <= 1
        ]
        assert team.plan(p, method="exact").saving == pytest.approx(max(totals))


@pytest.mark.parametrize("capacities", [(10, 10, 10), (3, 40, 0), (200, 200, 200), (1, 1, 60)])
def test_plans_are_optimal_within_capacity_and_prices_are_marginal(capacities: Any) -> None:
    p, team = some_rows(120), some_team(*capacities, cost=0.01)
    values = team.values(p)
    best = highest_total(values, team.capacities)
    by_prices, exact = team.plan(p), team.plan(p, method="exact")
    for plan in (by_prices, exact):
        assert (plan.used <= team.capacities).all()
        assert plan.saving == pytest.approx(
            sum(values[i, r] for i, r in enumerate(plan.reviewer) if r >= 0)
        )
        assert (plan.value >= 0).all()
    assert exact.saving == pytest.approx(best, rel=1e-9)
    assert 0.99 * best <= by_prices.saving <= best + 1e-9
    for r, price in enumerate(exact.shadow_prices):
        more, less = team.capacities, team.capacities
        more[r] += 1
        less[r] = max(less[r] - 1, 0)
        tolerance = 0.002 * values.max()
        assert price >= highest_total(values, more) - best - tolerance
        assert price <= best - highest_total(values, less) + tolerance or not capacities[r]


@pytest.mark.slow
@pytest.mark.parametrize("method", ["prices", "exact"])
def test_one_more_row_and_hour_save_what_planning_again_does(method: Any) -> None:
    rng = np.random.default_rng(0)
    rng.dirichlet([0.8, 0.8], 12)
    p = rng.dirichlet([0.3, 0.3], 400)
    capacities, rates = (20, 28, 17, 42, 26), (0.02, 0.05, 0.1, 0.15, 0.25)
    team = ReviewTeam(
        [
            Reviewer(f"{r}", c, e, rows_per_hour=6.5)
            for r, (c, e) in enumerate(zip(capacities, rates, strict=True))
        ]
    )
    plan, values = team.plan(p, method=method), team.values(p)
    best = highest_total(values, team.capacities)
    assert plan.used[4] < 26
    assert plan.shadow_prices[4] == plan.hour_savings[4] == 0
    for r in range(5):
        more = [team.capacities + n * (np.arange(5) == r) for n in (1, 6, 7)]
        one, six, seven = (highest_total(values, each) - best for each in more)
        tolerance = 1e-9 if method == "exact" else 1e-3
        assert plan.shadow_prices[r] == pytest.approx(one, abs=tolerance)
        assert plan.hour_savings[r] == pytest.approx((six + seven) / 2, abs=6 * tolerance)


@pytest.mark.parametrize("seed", range(6))
def test_more_hours_never_save_more_than_there_is(seed: int) -> None:
    p = np.random.default_rng(seed).dirichlet([0.8, 0.8, 0.8], 14)
    for speed in (12, 500):
        team = some_team(3, 2, 4, cost=0.01, rows_per_hour=speed)
        plan, values = team.plan(p, method="exact"), team.values(p)
        for r, saved in enumerate(plan.hour_savings):
            most = highest_total(values, team.capacities + speed * (np.arange(3) == r))
            assert saved == pytest.approx(most - plan.saving, abs=1e-9)
    slow = ReviewTeam([Reviewer("a", 1, 0.0)]).plan(p[:3])
    assert np.isnan(slow.hour_savings).all()


@pytest.mark.parametrize("seed", range(12))
def test_exact_plans_are_optimal_with_ties(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n_rows, n_reviewers, n_classes = rng.integers((20, 1, 2), (60, 5, 5))
    p = np.round(rng.dirichlet(np.full(n_classes, 0.5), n_rows), 1 + seed % 2)
    p /= p.sum(axis=1, keepdims=True)
    capacities = rng.integers(0, n_rows // 2, n_reviewers)
    capacities[rng.random(n_reviewers) < 0.3] = 0
    rates = np.round(rng.uniform(0, 0.4, n_reviewers), 1)
    team = ReviewTeam([Reviewer(f"{r}", int(capacities[r]), e) for r, e in enumerate(rates)])
    plan = team.plan(p, method="exact")
    assert (plan.used <= capacities).all()
    assert plan.saving == pytest.approx(highest_total(team.values(p), capacities), abs=1e-9)


@pytest.mark.parametrize("seed", [5, 12, 72])
def test_exact_plans_of_one_reviewer_take_the_best_rows(seed: int) -> None:
    rng = np.random.default_rng(seed)
    fraud = np.round(rng.random(60), 2)
    p, capacity = np.column_stack([1 - fraud, fraud]), int(rng.integers(1, 40))
    team = ReviewTeam([Reviewer("a", capacity, 0.1)])
    plan = team.plan(p, method="exact")
    assert plan.used[0] <= capacity
    best = np.sort(np.maximum(team.values(p)[:, 0], 0))[-capacity:].sum()
    assert plan.saving == pytest.approx(best, abs=1e-9)


def test_equal_rows_and_equal_reviewers_share_the_work() -> None:
    team = ReviewTeam([Reviewer(name, capacity=3, error_rate=0.1) for name in "ab"])
    plan = team.plan(np.full((10, 2), 0.5))
    assert plan.used.tolist() == [3, 3]
    assert plan.shadow_prices == pytest.approx([0.4, 0.4], abs=0.01)
    assert not team.plan([[1.0, 0.0]] * 3).used.any()


def test_decisions_by_priced_costs_are_those_of_the_plan() -> None:
    p = some_rows(2000)
    team = some_team(100, 100, 100, cost=0.01)
    plan = team.plan(p)
    costs = plan.team.costs(CostMatrix.zero_one(3).with_reject(0.1))
    asked = np.maximum(optimal_actions(p, costs) - 3, -1)
    # Two reviewers can be worth the same at their prices: only whether to ask is determined.
    assert ((asked >= 0) == (plan.reviewer >= 0)).mean() > 0.99


def test_a_queue_never_exceeds_capacity_and_comes_close_to_the_plan() -> None:
    p, team = some_rows(4000), some_team(200, 200, 200)
    plan = team.plan(p[:2000])
    half = ReviewTeam([Reviewer(n, 200, e) for n, e in zip("abc", (0.02, 0.1, 0.25), strict=True)])
    queue = half.with_shadow_prices(plan.shadow_prices).queue(2000)
    values = half.values(p[2000:])
    parts = [queue.assign(values[:1500]), queue.assign(values[1500:])]
    chosen = np.concatenate(parts)
    used = np.bincount(chosen[chosen >= 0], minlength=3)
    assert (used <= 200).all()
    assert (queue.left == 200 - used).all()
    saved = sum(values[i, r] for i, r in enumerate(chosen) if r >= 0)
    assert saved > 0.97 * half.plan(p[2000:]).saving
    cold = half.queue(2000)  # without prices
    chosen = cold.assign(values)
    assert (np.bincount(chosen[chosen >= 0], minlength=3) <= 200).all()
    assert sum(values[i, r] for i, r in enumerate(chosen) if r >= 0) > 0.85 * saved
    assert (cold.assign(values) == -1).mean() > 0.9  # nothing is left


def test_an_hour_is_no_longer_than_it_is() -> None:
    team = ReviewTeam([Reviewer("a", 100, 0.02, rows_per_hour=3)])
    queue = team.queue(40)
    chosen = queue.assign(np.full((40, 1), 0.5), hours=np.repeat([0.2, 1.0, 1.9, 2.5], 10))
    assert [int((chosen[k : k + 10] == 0).sum()) for k in (0, 10, 20, 30)] == [3, 3, 0, 3]


def test_error_rates_are_learned_and_shrunk() -> None:
    rng = np.random.default_rng(0)
    rates = np.array([0.02, 0.1, 0.3])
    team = ReviewTeam([Reviewer(name, 9, 0.1) for name in "abc"])
    who, y = np.repeat([0, 1, 2], 4000), rng.integers(0, 3, 12_000)
    wrong = rng.random(12_000) < rates[who]
    answers = np.where(wrong, (y + 1) % 3, y)
    names = np.array(list("abc"))[who]
    found = team.learn(names, y, answers, n_classes=3).answerers(None, 3)
    for r, one in enumerate(found):
        observed = [wrong[(who == r) & (y == k)].mean() for k in range(3)]
        np.testing.assert_allclose(1 - np.diag(one.likelihoods), observed, atol=0.01)
        assert one.likelihoods[0, 1] == pytest.approx(observed[0], abs=0.01)  # always the next one
    few = [*range(10), *range(4000, 4010), *range(8000, 8010)]
    small = team.learn(names[few], y[few], answers[few], n_classes=3).answerers(None, 3)
    shrunk = [1 - np.diag(one.likelihoods).mean() for one in small]
    assert max(shrunk) - min(shrunk) < 0.25
    assert all(0 < one < 0.5 for one in shrunk)
    stated = ReviewTeam([Reviewer("a", 9, 0.01), Reviewer("b", 9, 0.1)])
    twice = stated.learn(["b"] * 5, [0] * 5, [0] * 5, n_classes=2)
    again = twice.learn(["b"] * 5, [1] * 5, [0] * 5)
    assert again.reviewers[1].counts is not None
    assert again.reviewers[1].counts.tolist() == [[5, 0], [5, 0]]
    assert again.reviewers[0].counts is not None
    unchanged, changed = again.answerers(None, 2)
    np.testing.assert_allclose(np.diag(unchanged.likelihoods), 0.99)
    assert 1 - changed.likelihoods[1, 1] > 1 - changed.likelihoods[0, 0] > 0


def test_a_stated_rate_counts_as_twenty_answers_per_class() -> None:
    team = ReviewTeam([Reviewer("ann", 9, 0.01), Reviewer("eve", 9, 0.25)])

    def rates(name: str, truth: list[int], answers: list[int]) -> FloatArray:
        learned = team.learn([name] * len(truth), truth, answers, n_classes=2)
        return np.stack([1 - np.diag(one.likelihoods) for one in learned.answerers(None, 2)])

    ann, eve = rates("ann", [0], [1])  # one wrong answer
    np.testing.assert_allclose(ann[0], 1.2 / 21)
    assert 0.01 < ann[1] < ann[0]
    np.testing.assert_allclose(eve, 0.25)
    ann, eve = rates("eve", [0] * 200, [0] * 200)  # no fraud seen
    assert eve[0] < 0.03
    assert 0.19 < eve[1] < 0.25
    ann, eve = rates("eve", [0] * 200 + [1] * 5, [0] * 205)  # every fraud missed
    np.testing.assert_allclose(ann, 0.01)
    assert 0.25 < eve[1] < 0.4


def test_a_second_opinion_pays_where_the_first_leaves_doubt() -> None:
    team = ReviewTeam([Reviewer("a", 9, 0.2), Reviewer("b", 9, 0.1, cost=0.05)])
    agreed = team.update([[0.8, 0.2]], "a", [0])
    np.testing.assert_allclose(agreed.array, [[0.64 / 0.68, 0.04 / 0.68]])
    assert team.values(agreed)[0, 1] < 0
    doubted = team.update([[0.8, 0.2]], "a", [1])
    np.testing.assert_allclose(doubted.array, [[0.5, 0.5]])
    assert team.values(doubted)[0, 1] == pytest.approx(0.5 - 0.1 - 0.05)


def test_a_team_is_saved_and_read(tmp_path: Path) -> None:
    team = some_team(4, 5, cost="0.1 * amount", rows_per_hour=6.0, skills=["x", "y"])
    team = team.learn(["a"], [0], [1], n_classes=2).with_shadow_prices([0.5, 0.0])
    path = tmp_path / "team.json"
    team.save(path)
    again = ReviewTeam.load(path)
    assert again.to_dict() == team.to_dict()
    path.write_text('[{"name": "ann", "capacity": 3, "error_rate": {"x": 0.1, "y": 0.2}}]')
    listed = ReviewTeam.load(path)
    assert listed.answerers(("y", "x"), 2)[0].error_rate.tolist() == [0.2, 0.1]  # type: ignore[union-attr]
    for content, message in [
        ("[", "not JSON"),
        ('[{"name": "ann"}]', "no 'capacity'"),
        ('[{"name": "ann", "capacity": -1}]', "from 0|at least 0"),
        ('[{"name": "a", "capacity": 1}]', "error_rate` must be given"),
        (
            json.dumps([{"name": "a", "capacity": 1, "error_rate": 0.1}] * 2),
            "entry 1 and entry 2 .*'a'",
        ),
        (json.dumps({"team": []}), "team"),
    ]:
        path.write_text(content)
        with pytest.raises(DubitoError, match=message):
            ReviewTeam.load(path)


def test_a_team_is_a_table(tmp_path: Path) -> None:
    path = tmp_path / "team.csv"
    path.write_text(
        "name,capacity_per_day,capacity_per_hour,hours_per_day,error_rate,cost,skills\n"
        "ann,40,,,0.02,0.1 * amount,\n"
        "bob,,6,,0.1,2,card | takeover\n"
        "cy,20,5,3,0.1,,legit\n"
        "dee,,5,3.5,0.1,,\n"
    )
    ann, bob, cy, dee = ReviewTeam.load(path).reviewers
    assert (ann.capacity, ann.error_rate, ann.cost, ann.skills) == (40, 0.02, "0.1 * amount", None)
    assert (bob.capacity, bob.rows_per_hour, bob.cost) == (48, 6, 2)
    assert bob.skills == ("card", "takeover")
    assert (cy.capacity, cy.rows_per_hour, cy.cost) == (20, 5, 0)
    assert dee.capacity == 17
    path.write_text("name;capacity_per_day;error_rate\nann;40;0,02\n")
    assert ReviewTeam.load(path).reviewers[0].error_rate == 0.02
    path.with_suffix(".json").write_text('{"class": "Policy", "format": 1, "report": {}}')
    with pytest.raises(DubitoError, match=r"it holds 'Policy', not a ReviewTeam\. Write a list"):
        ReviewTeam.load(path.with_suffix(".json"))
    for content, message in [
        ("", "it has no column `name`. The columns are name, capacity_per_day or"),
        ("name,wage\nann,3\n", "unknown column 'wage'. The columns are name"),
        ("name,error_rate\nann,0.1\n", "row 'ann' has no capacity. Fill in capacity_per_day"),
        ("name,capacity_per_day\nann,3,4\n", "row 'ann' has 3 cells instead of 2"),
        ("name,capacity_per_day\nann,many\n", "row 1, column capacity_per_day .*'many'"),
        ("name,capacity_per_day\nann,1.5\n", "capacity"),
        (
            "name,capacity_per_day,error_rate\nann,1,2\n",
            "row 1, column error_rate .* from 0 to 1, got 2.0. .* divide percentages by 100",
        ),
        ("name,capacity_per_day\nann,1\n", "row 1, column error_rate must be given"),
        ("name,capacity_per_day\n,3\n", "row 1 has no name. Fill in"),
        ("name,capacity_per_day,error_rate\na,3,0\na,4,0\n", "row 1 and row 2 .*'a'. Name each"),
        ("name,capacity_per_day\n", "must be reviewers, got none"),
    ]:
        path.write_text(content)
        with pytest.raises(DubitoError, match=message):
            ReviewTeam.load(path)


def test_skills_are_respected() -> None:
    p = np.array([[0.5, 0.4, 0.1], [0.4, 0.5, 0.1], [0.1, 0.4, 0.5]])
    team = ReviewTeam([Reviewer("a", 9, 0.1, skills=["0", "2"]), Reviewer("b", 1, 0.2)])
    found = team.values(p)
    assert np.isneginf(found).tolist() == [[False, False], [True, False], [False, False]]
    for method in ("prices", "exact"):
        assert team.plan(p, method=method).reviewer.tolist() == [0, 1, 0]
    assert team.plan(p[[1, 1]]).used.tolist() == [0, 1]
    assert team.queue(3).assign(found).tolist() == [0, 1, 0]
    full = team.prices(found, [0, 1])
    assert full[0] == pytest.approx(found[[0, 2], 0].max(), abs=0.01)  # bob reviews the other row
    prices = team.prices(team.values(p[[1, 1, 2]]))
    assert prices[0] == pytest.approx(0, abs=1e-3)
    assert prices[1] > 0.1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Reviewer("a", capacity=1.5), "capacity.*got 1.5"),  # type: ignore[arg-type]
        (lambda: Reviewer("a", 1, 0.1, confusion=[[1, 0], [0, 1]]), "Pass one of the two"),
        (lambda: Reviewer("a", 1, 0.1, cost=-0.1), "cost.*-0.1"),
        (
            lambda: CostMatrix.zero_one(2).with_review("a", cost=-0.1, error_rate=0.1),
            "cost.* must be at least 0, got -0.1",
        ),
        (
            lambda: ReviewTeam([Reviewer("a", 1, confusion=[[1, 0], [0.2, 0.7]])]).values([[1, 0]]),
            "fractions that sum to 1, got a sum of 0.9",
        ),
        (lambda: ReviewTeam([]), "must be reviewers, got none"),
        (lambda: some_team(1).plan([[0.5, 0.5]], method="best"), "'prices' or 'exact'"),  # type: ignore[arg-type]
        (lambda: Reviewer("a", 1), "error_rate.* must be given, got none"),
        (
            lambda: ReviewTeam([Reviewer("a", 1, {"x": 0.1})]).values([[1, 0]]),
            "classes 0, 1, got x",
        ),
        (
            lambda: some_team(1, skills=["x"]).values([[1, 0]]),
            "skills.* must be among the classes 0, 1, got x",
        ),
        (lambda: some_team(1).learn(["b"], [0], [0], n_classes=2), "one of a, got 'b'"),
        (lambda: some_team(1).learn(["a"], [2], [0], n_classes=2), "from 0 to 1, got 2"),
        (lambda: some_team(1).update([[0.5, 0.5]], "b", [0]), "one of a, got 'b'"),
        (lambda: Reviewer("x", 3, 2), "error_rate.* between 0 and 1, got 2"),
        (lambda: Reviewer("x", 3, {"a": 0.1, "b": -1}), "error_rate.* between 0 and 1, got -1"),
        (
            lambda: some_team(1, 1).queue(10).assign(np.ones((9, 2)), np.arange(5)),
            r"hours.* one per row, got shape \(5,\). Pass 9 hours",
        ),
        (
            lambda: some_team(1, 1).queue(10).assign(np.ones((9, 3))),
            "rows x 2 reviewers, got shape",
        ),
    ],
)
def test_what_is_wrong_is_said(call: Any, message: str) -> None:
    with pytest.raises(DubitoError, match=message):
        call()


def test_a_plan_prints_what_one_more_hour_saves() -> None:
    team = ReviewTeam([Reviewer("ann", 1, 0.0, rows_per_hour=10), Reviewer("bob", 2, 0.3)])
    plan = team.plan([[0.5, 0.5]] * 2 + [[0.9, 0.1]])
    lines = str(plan).splitlines()
    cost = "expected cost 1.1000 without review, 0.4000 with this plan."
    assert lines[0] == f"3 rows, 2 reviews: {cost}"
    assert lines[1].split("  ")[0] == ""
    assert "one more hour" in lines[1]
    assert lines[2].split()[:3] == ["ann", "1", "1"]
    assert plan.columns()["reviewer"].tolist() == ["ann", "bob", ""]
