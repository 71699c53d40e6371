"""Invalid costs and unknown names raise errors with a remedy."""

import re
from typing import Any

import numpy as np
import pytest

from dubito.decide import CostMatrix
from dubito.decide.costs import _as_cost_row, as_cost
from dubito.errors import BadTypeError, BadValueError, DubitoError

NAMES = "Try one different name an action, such as ['approve', 'deny']."
CLASSES = "Try one different name a class, such as ['cat', 'dog']."
I2 = np.eye(2)

BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: CostMatrix([[0, np.nan], [1, 0]]),
        BadValueError,
        r"`costs`.*nan in row 0, column 1\.",
    ),
    (
        lambda: CostMatrix([[0, 1], [-np.inf, 0]]),
        BadValueError,
        r"`costs`.*-inf in row 1, column 0\.",
    ),
    (
        lambda: CostMatrix([[0, 1], [1e101, 0]]),
        BadValueError,
        r"`costs` .*got 1e\+101 in row 1, column 0\. Use another unit",
    ),
    (
        lambda: CostMatrix([1, 2]),
        BadValueError,
        r"`costs` .*got shape \(2,\)\. Pass one row per",
    ),
    (
        lambda: CostMatrix(np.zeros((0, 2))),
        BadValueError,
        r"`costs` .*got shape \(0, 2\)\. Pass one row per",
    ),
    (
        lambda: CostMatrix([["a", "b +"]]),
        BadValueError,
        r"`costs` .*got 'b \+', which ends too early in row 0, column 1\. Use numbers, column",
    ),
    (
        lambda: CostMatrix([[0, "fee"], [True, 0]]),
        BadValueError,
        r"`costs` must be a number .*got True in row 1, column 0\.",
    ),
    (
        lambda: CostMatrix([["fee"], [0, 1]]),
        BadValueError,
        r"`costs` has rows of different lengths: row 0 has 1, .*Pass rows of equal length",
    ),
    (
        lambda: CostMatrix(I2, ["a"]),
        BadValueError,
        r"`actions` .*got 1\. Name each action, such",
    ),
    (
        lambda: CostMatrix(I2, ["a", "a"]),
        BadValueError,
        r"`actions` .*got 'a' twice\. Name each action, such",
    ),
    (
        lambda: CostMatrix(I2, ["a", 1]),
        BadTypeError,
        r"`actions` .*got a int\. Name each action, such",
    ),
    (
        lambda: CostMatrix(I2, "ab"),
        BadTypeError,
        r"`actions` .*got 'ab'\. Name each action, such",
    ),
    (
        lambda: CostMatrix(I2, 5),  # type: ignore[arg-type]
        BadTypeError,
        r"`actions` .*got int\. Name each action, such",
    ),
    (
        lambda: CostMatrix(I2, classes=["a", "b", "c"]),
        BadValueError,
        r"`classes` .*got 3\. Name each class once",
    ),
    (
        lambda: CostMatrix(I2, classes=[1, 1]),
        BadValueError,
        r"`classes` .*got 1 twice\. Name each class once",
    ),
    (
        lambda: CostMatrix(I2, classes=[None, "a"]),  # type: ignore[list-item]
        BadTypeError,
        r"`classes` .*got a NoneType\. Name each class once",
    ),
    (
        lambda: CostMatrix(I2, ["a", "b"], reject="c"),
        BadValueError,
        r"`reject` .*got 'c'\. Use reject='b'",
    ),
    (
        lambda: CostMatrix.from_errors(false_positive=np.nan, false_negative=1),
        BadValueError,
        r"`false_positive` .*got nan\. Pass a cost such",
    ),
    (
        lambda: CostMatrix(I2).with_reject([1, 2, 3]),
        BadValueError,
        r"`cost` .*got shape \(3,\)\. Pass 2 numbers",
    ),
    (
        lambda: CostMatrix(I2).with_reject(None),
        BadValueError,
        r"`cost` .*got None\. Pass a cost such",
    ),
    (
        lambda: CostMatrix(I2).with_reject([1, np.inf]),
        BadValueError,
        r"`cost`.*inf in row 1, column 0\.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_invalid_arguments_raise(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert re.search(message, str(caught.value))


def test_numbers_of_any_kind_are_costs() -> None:
    assert as_cost(np.float32(0.5), "cost", "f") == 0.5
    assert as_cost(-3, "cost", "f") == -3.0
    with pytest.raises(BadValueError, match="got True"):
        as_cost(True, "cost", "f")
    assert _as_cost_row(2, 3, "f").tolist() == [2.0, 2.0, 2.0]
    assert _as_cost_row((1, 2), 2, "f").tolist() == [1.0, 2.0]


def test_names_become_plain_values() -> None:
    costs = CostMatrix(I2, np.array(["a", "b"]), np.array([3, 4]))
    assert [type(name) for name in (*costs.actions, *(costs.classes or ()))] == [str, str, int, int]
