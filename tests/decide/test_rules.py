"""Rules: reject wins ties, the bound wins over costs, and knowing is worth what it saves."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from dubito import Logits, Probabilities
from dubito.decide import CostMatrix
from dubito.decide.policy.decide import DecisionRule, _error_probability
from dubito.decide.priors import posteriors
from dubito.decide.row_costs import RowCosts, without_reject
from tests.decide.growing import growing

Array = NDArray[Any]

EVEN = np.full(3, 1 / 3)


def least_by_class(table: Array) -> list[float]:
    """Return the cost of a correct decision in each class.

    To take a single action, such as to answer, is correct in the class where it costs least.
    """
    if len(table) == 1:
        return [min(table[0])] * table.shape[1]
    return [min(row[k] for row in table) for k in range(table.shape[1])]


def saved_by_knowing(table: Array, p: Array) -> float:
    """Return the least mean cost of one action, less the mean of the least costs."""
    without = min(sum(p[k] * row[k] for k in range(p.size)) for row in table)
    return float(without - sum(p[k] * least for k, least in enumerate(least_by_class(table))))


@st.composite
def questions(draw: Any) -> tuple[Array, Array, Array, Array]:
    n_actions, n_classes = draw(st.integers(1, 4)), draw(st.integers(2, 4))
    eighths = st.integers(-8, 16).map(lambda n: n / 8)

    def table(n_rows: int) -> Array:
        row = st.lists(eighths, min_size=n_classes, max_size=n_classes)
        return np.array(draw(st.lists(row, min_size=n_rows, max_size=n_rows)))

    cuts = st.lists(st.integers(0, 16), min_size=n_classes - 1, max_size=n_classes - 1)
    rows = draw(st.lists(cuts, min_size=1, max_size=5))
    p = np.array([np.diff([0, *sorted(row), 16]) / 16 for row in rows])
    row_costs = np.array(draw(st.lists(st.integers(0, 4), min_size=len(p), max_size=len(p)))) / 4
    return p, table(n_actions + 1), table(n_actions + 1), row_costs


@pytest.mark.slow
@given(questions(), st.booleans(), st.sampled_from([None, 0.0, 0.5, 0.75, 1.0]), st.data())
def test_rows_are_decided_as_by_hand(
    question: Any, grows: bool, threshold: float | None, data: Any
) -> None:
    p, base, rate, row_costs = question
    names = [*map(str, range(len(base) - 1)), "reject"]
    costs = CostMatrix(growing(base, rate) if grows else base, names)
    frequencies = np.full(p.shape[1], 1 / p.shape[1])
    is_ood = np.array(data.draw(st.lists(st.booleans(), min_size=len(p), max_size=len(p))))
    rule = DecisionRule(costs, frequencies, threshold)
    found = rule.decide(Probabilities(p), is_ood, row_costs if grows else None)
    for i, row in enumerate(p):
        table = base + (row_costs[i] * rate if grows else 0)
        expected = table @ row
        decided = table[:-1]
        asks = expected[-1] <= expected.min() + 1e-9
        action = int(np.flatnonzero(expected <= expected.min() + 1e-9)[0])
        wrong = row[table[action] > least_by_class(decided)].sum()
        is_bound = threshold is not None and 1 - wrong <= threshold
        reason = 3 if is_ood[i] else 1 if asks else 2 if is_bound else 0
        assert found.reason[i] == reason
        assert found.action[i] == (len(base) - 1 if reason else action)
        assert found.expected_cost[i] == pytest.approx(expected[found.action[i]], abs=1e-9)
        assert found.predicted_class[i] == row.argmax()
        assert found.probability[i] == row.max()
        known = frequencies if reason == 3 else row
        worth = saved_by_knowing(decided, known) if reason else 0.0
        if reason and (np.ptp(base[-1]) or len(base) - 1 in costs.entries[:, 0]):
            worth -= table[-1] @ known
        assert found.review_value[i] == pytest.approx(worth, abs=1e-9)


def test_logits_and_probabilities_are_decided_alike() -> None:
    p = np.random.default_rng(0).dirichlet(np.ones(3), 100)
    rule = DecisionRule(CostMatrix.zero_one(3).with_reject(0.4), EVEN, 0.7)
    one, other = rule.decide(Probabilities(p), None), rule.decide(Logits(np.log(p)), None)
    assert np.array_equal(one.action, other.action)
    assert np.array_equal(one.reason, other.reason)
    assert one.review_value == pytest.approx(other.review_value)


def test_many_classes_are_decided_as_few_are() -> None:
    rng = np.random.default_rng(0)
    p = rng.dirichlet(np.full(100, 0.02), 50)
    rule = DecisionRule(CostMatrix.zero_one(100).with_reject(0.3), np.full(100, 0.01))
    found = rule.decide(Probabilities(p), None)
    is_asked = 1 - p.max(axis=1) >= 0.3
    assert np.array_equal(found.action, np.where(is_asked, 100, p.argmax(axis=1)))
    assert found.review_value == pytest.approx(np.where(is_asked, 1 - p.max(axis=1), 0.0))


def test_without_a_reject_action_nothing_is_rejected() -> None:
    costs = CostMatrix([[0, 2], [1, 0]], ["send home", "treat"])
    found = DecisionRule(costs, np.array([0.5, 0.5])).decide(Probabilities([[0.6, 0.4]]), None)
    assert found.action.tolist() == [1]
    assert found.reason.tolist() == [0]
    assert found.review_value.tolist() == [0.0]
    assert without_reject(costs) is costs


def test_leaving_reject_out() -> None:
    cells = [[0, "fee"], [9, "a + 9"], ["fee", 0]]
    costs = CostMatrix(cells, ["a", "ask", "b"], ["x", "y"], reject="ask")
    rest = without_reject(costs)
    assert rest.actions == ("a", "b")
    assert rest.texts == [[0, "fee"], ["fee", 0]]
    by_row = RowCosts.of({"fee": [3.0], "a": [1.0]}, costs, 1, "test").without_reject()
    assert by_row.costs is rest
    assert [by_row.in_class(k).tolist() for k in (0, 1)] == [[[0], [3]], [[3], [0]]]
    assert rest.classes == ("x", "y")
    assert rest.reject is None


def test_a_decision_is_wrong_where_another_would_have_cost_less() -> None:
    # Both of the last two classes want the second action: taking it is right for either.
    costs = CostMatrix([[0, 2, 2], [1, 0, 0]], ["wait", "act"]).with_reject(0.3)
    shares = np.array([[0.2, 0.5, 0.3], [0.7, 0.2, 0.1]])
    fixed = RowCosts.of(None, costs, 2, "test")
    assert _error_probability(shares, np.array([1, 0]), fixed) == pytest.approx([0.2, 0.3])
    by_row = RowCosts.of(np.stack([costs.array] * 2), costs, 2, "test")
    assert _error_probability(shares, np.array([1, 0]), by_row) == pytest.approx([0.2, 0.3])


def test_posteriors_are_float64() -> None:
    p = np.array([[0.25, 0.75], [0.5, 0.5]], np.float32)
    assert posteriors(Probabilities(p), slice(None)).dtype == np.float64
    assert posteriors(Probabilities(p), np.array([1])) == pytest.approx(np.array([[0.5, 0.5]]))


def test_a_reject_cost_alone_may_differ_by_row() -> None:
    costs = CostMatrix.zero_one(3).with_reject("amount")
    assert without_reject(costs).array.tolist() == CostMatrix.zero_one(3).array.tolist()
