"""Costs that were paid: every row looked up by hand."""

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose as close

from dubito import Probabilities, TopLabel
from dubito.decide import CostMatrix, realized_cost
from dubito.decide.realized import RealizedCosts
from dubito.errors import BadTypeError, BadValueError, EmptyStateError, MissingLabelsWarning
from tests.decide.growing import growing

COSTS = CostMatrix(
    [[0, 10], [1, 0]], actions=["send home", "treat"], classes=["well", "ill"]
).with_reject([0.5, 0.25], name="ask")


@pytest.mark.slow
@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 5), st.booleans(), st.integers(0, 99))
@settings(max_examples=60)
def test_agrees_with_a_loop_over_rows(
    n_rows: int, n_classes: int, n_actions: int, grows: bool, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    base = rng.normal(size=(n_actions, n_classes)) * 10.0 ** rng.integers(-3, 30)
    rate = rng.random((n_actions, n_classes)) if grows else None
    costs = CostMatrix(base if rate is None else growing(base, rate))
    y, actions = rng.integers(0, n_classes, n_rows), rng.integers(0, n_actions, n_rows)
    row_costs = rng.random(n_rows) * 100 if grows else None
    weight = rng.random(n_rows) + 0.1
    total = 0.0
    for i in range(n_rows):
        paid = base[actions[i], y[i]]
        if rate is not None and row_costs is not None:
            paid += rate[actions[i], y[i]] * row_costs[i]
        total += weight[i] * paid
    found = realized_cost(y, actions, costs, row_costs, sample_weight=weight)
    close(found, total / weight.sum(), rtol=1e-9, atol=1e-12 * np.abs(base).max())
    soft = np.eye(n_classes)[y]
    close(realized_cost(soft, actions, costs, row_costs, sample_weight=weight), found, rtol=1e-9)


def test_labels_and_actions_may_be_names_or_numbers() -> None:
    wanted = (1 + 10 + 0.25) / 3
    for y in (["well", "ill", "ill"], [0, 1, 1], np.array([0, 1, 1], dtype=np.uint8)):
        for actions in (["treat", "send home", "ask"], [1, 0, 2], np.array([1, 0, 2])):
            close(realized_cost(y, actions, COSTS), wanted)


def test_rows_without_a_label_are_left_out() -> None:
    with pytest.warns(MissingLabelsWarning, match="1 of 2 rows have no label"):
        assert realized_cost(["ill", None], [0, 0], COSTS) == 10.0


def test_an_oracle_of_uncertain_labels_still_knows_the_class() -> None:
    costs = CostMatrix([[0, "4 + 0.5 * a"], [2, "1 + a"]])
    soft = np.array([[0.5, 0.5], [0.2, 0.8]])
    judged = RealizedCosts.of(soft, [[0.5, 0.5], [0.9, 0.1]], costs, [0.0, 10.0], None, "test")
    # In class 1: min(4 + a / 2, 1 + a).
    close(judged.oracle, [0.5 * 1, 0.8 * 9])
    close(judged.by_action, [[2.0, 1.5], [0.8 * 9, 0.2 * 2 + 0.8 * 11]])
    plain = RealizedCosts.of([1, 0], [[0.5, 0.5], [0.9, 0.1]], costs, [0.0, 10.0], None, "test")
    close(plain.oracle, [1.0, 0.0])


def test_columns_are_found_by_name() -> None:
    outputs = Probabilities([[0.9, 0.1]], classes=["ill", "well"])
    judged = RealizedCosts.of(["ill"], outputs, COSTS, None, None, "test")
    close(judged.by_action, [[10.0, 0.0, 0.25]])
    assert judged.costs.actions[int(judged.action[0])] == "treat"


@pytest.mark.parametrize(
    ("call", "kind", "message"),
    [
        (
            lambda: realized_cost([0], [3], COSTS),
            BadValueError,
            r"`actions` .*got 3 in row 0\. Use names such as",
        ),
        (
            lambda: realized_cost([0, 1], ["treat", "cure"], COSTS),
            BadValueError,
            r"`actions` .*got 'cure' in row 1\. Use one of 'send",
        ),
        (
            lambda: realized_cost([0], [0.5], COSTS),
            BadTypeError,
            r"`actions` .*got dtype float64\. Pass what optimal_actions returns",
        ),
        (
            lambda: realized_cost([0, 1, 0], [0, 1], COSTS),
            BadValueError,
            r"`y_true`.*length 3\.",
        ),
        (
            lambda: realized_cost([0], [0], [[0, 1], [1, 0]]),  # type: ignore[arg-type]
            BadTypeError,
            r"`costs` .*got list\. Use CostMatrix\(costs\), or CostMatrix\.from_loss\(loss,",
        ),
        (
            lambda: realized_cost([0], [0], COSTS, sample_weight=[0.0]),
            EmptyStateError,
            "The realized cost needs at least 1 labeled row of positive weight, got 0. Pass at "
            "least one labeled row with a positive weight.",
        ),
        (
            lambda: RealizedCosts.of(None, TopLabel([0.5], [1]), COSTS, None, None, "test"),
            BadTypeError,
            r"`outputs` .*got TopLabel\. Pass the whole distribution over classes",
        ),
    ],
)
def test_errors_say_what_to_do(call: Callable[[], Any], kind: type, message: str) -> None:
    with pytest.raises(kind) as raised:
        call()
    assert re.search(message, str(raised.value))
