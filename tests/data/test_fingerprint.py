"""Which rows were these?"""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito import Logits, Normal, Probabilities
from dubito.data import ArrayShards, Batch
from dubito.data.shards import fingerprint


def mark(**changes: Any) -> str:
    given: dict[str, Any] = {
        "y_true": [0, 1],
        "outputs": Logits([[0.0, 1.0], [2.0, 0.0]], classes=[0, 1]),
        "ids": ["a", "b"],
        "groups": ["x", None],
        "features": np.eye(2),
        "row_costs": [1.0, 2.0],
    }
    return fingerprint(ArrayShards(Batch.of(**{**given, **changes})))


def test_the_same_rows_have_the_same_fingerprint() -> None:
    assert mark() == mark()
    assert len(mark()) == len("sha256:") + 64


@pytest.mark.parametrize(
    "changes",
    [
        {"y_true": [1, 1]},
        {"y_true": None},
        {"outputs": Logits([[0.0, 1.0], [2.0, 1e-12]], classes=[0, 1])},
        {"outputs": Logits([[0.0, 1.0], [2.0, 0.0]])},
        {"outputs": Logits(np.array([[0.0, 1.0], [2.0, 0.0]], np.float32), classes=[0, 1])},
        {"outputs": Probabilities([[0.0, 1.0], [1.0, 0.0]], classes=[0, 1])},
        {"ids": ["a", "c"]},
        {"groups": ["x", "y"]},
        {"features": 2 * np.eye(2)},
        {"row_costs": [1.0, 3.0]},
        {"sample_weight": [1.0, 2.0]},
    ],
)
def test_any_change_of_the_rows_changes_it(changes: dict[str, Any]) -> None:
    assert mark(**changes) != mark()


def test_where_rows_stand_counts_for_nothing() -> None:
    batch = Batch.of([0.5], Normal([0.0], [1.0]))
    moved = replace(batch, first_row=7)
    assert fingerprint(ArrayShards(moved)) == fingerprint(ArrayShards(batch))


def test_the_order_of_rows_matters() -> None:
    batch = Batch.of(np.arange(5) % 2, np.linspace(0.1, 0.9, 5))
    turned = batch.take(np.arange(5)[::-1])
    assert fingerprint(ArrayShards(turned)) != fingerprint(ArrayShards(batch))
