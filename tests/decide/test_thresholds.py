"""Thresholds of two classes, and actions that never win: compared with a search over p."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito import CostMatrix
from dubito.decide import action_intervals, optimal_actions, unused_actions
from dubito.errors import BadValueError

NUMBERS = st.integers(-5, 20)


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=5), st.booleans())
def test_intervals_are_where_each_action_is_optimal(
    rows: list[tuple[int, int]], has_reject: bool
) -> None:
    costs = CostMatrix(rows, actions=[f"action {k}" for k in range(len(rows))])
    if has_reject:
        costs = costs.with_reject(1.5)
    found = action_intervals(costs)
    assert found[0].low == 0
    assert found[-1].high == pytest.approx(1)
    for one, two in itertools.pairwise(found):
        assert one.high == pytest.approx(two.low)
        assert one.action != two.action
    for one in found:
        middle = (one.low + one.high) / 2
        expected = costs.array @ [1 - middle, middle]
        assert expected[costs.actions.index(one.action)] == pytest.approx(expected.min(), abs=1e-7)


@given(st.lists(st.tuples(NUMBERS, NUMBERS, NUMBERS), min_size=2, max_size=4))
def test_unused_actions_win_once_they_cost_that_much_less(rows: list[tuple[int, ...]]) -> None:
    costs = CostMatrix(rows, actions=[f"action {k}" for k in range(len(rows))])
    p = np.random.default_rng(0).dirichlet([0.5] * 3, 2000)
    taken = {costs.actions[k] for k in np.unique(optimal_actions(p, costs))}
    unused = unused_actions(costs)
    assert not taken & set(unused)
    for name, excess in unused.items():
        k = costs.actions.index(name)
        others = np.delete(costs.array, k, axis=0)
        gaps = (p @ costs.array[k]) - (p @ others.T).min(axis=1)
        assert gaps.min() >= excess - 1e-6  # never cheaper anywhere


def test_a_review_that_costs_too_much_is_named() -> None:
    costs = CostMatrix([[0, 20], [1, 0]], ["pass", "block"], ["ok", "fraud"])
    assert unused_actions(costs.with_reject(0.5, "review")) == {}
    found = unused_actions(costs.with_reject(3.0, "review"))
    assert found == {"review": pytest.approx(3 - 20 / 21, abs=1e-6)}


def test_three_classes_and_rates_have_no_thresholds() -> None:
    with pytest.raises(BadValueError, match="must be constant costs of two classes, got 3 classes"):
        action_intervals(CostMatrix.zero_one(3))
