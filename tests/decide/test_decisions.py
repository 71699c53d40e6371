"""Decisions: columns with names, the order of review, and a summary line."""

from typing import Any

import numpy as np
import pytest

from dubito import Probabilities
from dubito.decide import Decisions
from dubito.decide.policy.decide import (
    LOWEST_COST,
    OUT_OF_DISTRIBUTION,
    REASONS,
    REJECT_COSTS_LESS,
    RISK_BOUND,
)


def some(**others: Any) -> Decisions:
    fields: dict[str, Any] = {
        "action": np.array([0, 2, 1, 2, 2, 2]),
        "predicted_class": np.array([0, 1, 1, 0, 0, 1]),
        "probability": np.array([0.9, 0.6, 0.8, 0.7, 0.99, 0.5]),
        "expected_cost": np.array([0.1, 0.3, 0.2, 0.3, 0.3, 0.3]),
        "reason": np.array([0, 1, 0, 2, 3, 1]),
        "review_value": np.array([0.0, 0.4, 0.0, 0.5, 0.4, 0.5]),
        "actions": ("approve", "deny", "ask"),
        "classes": ("good", "bad"),
        "reject": 2,
        "calibrated_blocks": (Probabilities(np.full((6, 2), 0.5)),),
    }
    return Decisions(**(fields | others))


def test_reasons_are_numbered_as_they_are_named() -> None:
    numbers = (LOWEST_COST, REJECT_COSTS_LESS, RISK_BOUND, OUT_OF_DISTRIBUTION)
    named = ("lowest_expected_cost", "reject_costs_less", "risk_bound", "out_of_distribution")
    assert tuple(REASONS[number] for number in numbers) == named
    assert len(REASONS) == 4


def test_columns_have_names_for_numbers() -> None:
    columns = some().columns()
    assert list(columns) == [
        "action",
        "class",
        "probability",
        "expected_cost",
        "reason",
        "review_value",
    ]
    assert columns["action"].tolist() == ["approve", "ask", "deny", "ask", "ask", "ask"]
    assert columns["class"].tolist() == ["good", "bad", "bad", "good", "good", "bad"]
    assert columns["reason"].tolist()[2:5] == [REASONS[0], REASONS[2], REASONS[3]]
    assert columns["review_value"].tolist() == [0.0, 0.4, 0.0, 0.5, 0.4, 0.5]
    assert {column.size for column in columns.values()} == {6}


def test_those_are_asked_first_where_it_is_worth_most_and_equals_in_their_order() -> None:
    decisions = some()
    assert decisions.is_rejected.tolist() == [False, True, False, True, True, True]
    assert decisions.review_order.tolist() == [3, 5, 1, 4]
    nobody = some(reject=None)
    assert not nobody.is_rejected.any()
    assert nobody.review_order.tolist() == []


def test_words() -> None:
    assert len(some()) == 6
    assert str(some()) == (
        "6 rows: approve 16.7 %, deny 16.7 %, ask 66.7 %. "
        "Reasons for rejection: lower cost (2 rows), risk bound (1 row), out-of-distribution input "
        "(1 row)."
    )
    assert str(some(reason=np.zeros(6, np.int64))) == (
        "6 rows: approve 16.7 %, deny 16.7 %, ask 66.7 %."
    )


def test_blocks_are_joined_in_their_order() -> None:
    one, other = some(), some(action=np.arange(6) % 3, probability=np.full(6, 0.25))
    whole = Decisions.joined(iter([one, other]), 12)
    for name, column in whole.columns().items():
        parts = [one.columns()[name], other.columns()[name]]
        assert column.tolist() == np.concatenate(parts).tolist()
        assert column.dtype == parts[0].dtype
    assert (whole.actions, whole.classes, whole.reject) == (one.actions, one.classes, 2)


@pytest.mark.parametrize("classes", [(0, 1), (1.5, 2.5), (True, False), ("a", "b")])
def test_classes_keep_their_kind(classes: tuple[Any, ...]) -> None:
    named = some(classes=classes).columns()["class"]
    assert named.tolist() == [classes[k] for k in (0, 1, 1, 0, 0, 1)]
