"""Costs that are none, and names that name nothing, are refused in words."""

from typing import Any

import numpy as np
import pytest

from dubito.decide.costs import CostMatrix, _as_cost_row, _as_number
from dubito.errors import BadTypeError, BadValueError, DubitoError

NAMES = "Try one different name an action, such as ['approve', 'deny']."
CLASSES = "Try one different name a class, such as ['cat', 'dog']."
I2 = np.eye(2)

BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: CostMatrix([[0, np.nan], [1, 0]]),
        BadValueError,
        "CostMatrix: `costs` must be finite, got nan in row 0, column 1. Give a cost for every "
        "action in every class.",
    ),
    (
        lambda: CostMatrix([[0, 1], [-np.inf, 0]]),
        BadValueError,
        "CostMatrix: `costs` must be finite, got -inf in row 1, column 0. Give a cost for every "
        "action in every class.",
    ),
    (
        lambda: CostMatrix([[0, 1], [1e101, 0]]),
        BadValueError,
        "`costs` of CostMatrix must be of size 1e+100 at most. Got 1e+101 in row 1, column 0. "
        "Try other units.",
    ),
    (
        lambda: CostMatrix([1, 2]),
        BadValueError,
        "CostMatrix: `costs` must be actions x classes, got shape (2,). Pass a table of numbers.",
    ),
    (
        lambda: CostMatrix(np.zeros((0, 2))),
        BadValueError,
        "`costs` of CostMatrix must be 1 action or more. Got shape (0, 2). "
        "Try one row of costs an action.",
    ),
    (
        lambda: CostMatrix([["a", "b"]]),
        BadTypeError,
        "CostMatrix: `costs` must be an array of real numbers, got text (dtype <U1). Convert it "
        "with `.astype(float)`.",
    ),
    (
        lambda: CostMatrix(I2, rate=[[1, 2]]),
        BadValueError,
        "`rate` of CostMatrix must be shaped as the costs, (2, 2). Got shape (1, 2). "
        "Try 0 where a cost does not grow.",
    ),
    (
        lambda: CostMatrix(I2, ["a"]),
        BadValueError,
        f"`actions` of CostMatrix must be 2 names, one an action. Got 1. {NAMES}",
    ),
    (
        lambda: CostMatrix(I2, ["a", "a"]),
        BadValueError,
        f"`actions` of CostMatrix must be all different. Got 'a' twice. {NAMES}",
    ),
    (
        lambda: CostMatrix(I2, ["a", 1]),
        BadTypeError,
        f"`actions` of CostMatrix must be texts. Got a int. {NAMES}",
    ),
    (
        lambda: CostMatrix(I2, "ab"),
        BadTypeError,
        f"`actions` of CostMatrix must be a list of texts, one an action. Got 'ab'. {NAMES}",
    ),
    (
        lambda: CostMatrix(I2, 5),  # type: ignore[arg-type]
        BadTypeError,
        f"`actions` of CostMatrix must be a list of texts, one an action. Got int. {NAMES}",
    ),
    (
        lambda: CostMatrix(I2, classes=["a", "b", "c"]),
        BadValueError,
        f"`classes` of CostMatrix must be 2 names, one a class. Got 3. {CLASSES}",
    ),
    (
        lambda: CostMatrix(I2, classes=[1, 1]),
        BadValueError,
        f"`classes` of CostMatrix must be all different. Got 1 twice. {CLASSES}",
    ),
    (
        lambda: CostMatrix(I2, classes=[None, "a"]),  # type: ignore[list-item]
        BadTypeError,
        f"`classes` of CostMatrix must be text or numbers. Got a NoneType. {CLASSES}",
    ),
    (
        lambda: CostMatrix(I2, ["a", "b"], reject="c"),
        BadValueError,
        "`reject` of CostMatrix must be one of the actions ('a', 'b'). Got 'c'. Try reject='b'.",
    ),
    (
        lambda: CostMatrix.from_errors(false_positive=np.nan, false_negative=1),
        BadValueError,
        "`false_positive` of CostMatrix.from_errors must be a number of size 1e+100 at most. "
        "Got nan. Try a cost such as 0.1.",
    ),
    (
        lambda: CostMatrix(I2).with_reject([1, 2, 3]),
        BadValueError,
        "`cost` of CostMatrix.with_reject must be one number, or one a class. Got shape (3,). "
        "Try 2 numbers.",
    ),
    (
        lambda: CostMatrix(I2).with_reject(None),
        BadValueError,
        "`cost` of CostMatrix.with_reject must be a number of size 1e+100 at most. Got None. "
        "Try a cost such as 0.1.",
    ),
    (
        lambda: CostMatrix(I2).with_reject([1, np.inf]),
        BadValueError,
        "CostMatrix.with_reject: `cost` must be finite, got inf in row 1. Drop such rows, or fix "
        "what produced them.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_told(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message


def test_numbers_of_any_kind_are_costs() -> None:
    assert _as_number(np.float32(0.5), "cost", "f") == 0.5
    assert _as_number(-3, "cost", "f") == -3.0
    with pytest.raises(BadValueError, match="Got True"):
        _as_number(True, "cost", "f")
    assert _as_cost_row(2, 3, "f").tolist() == [2.0, 2.0, 2.0]
    assert _as_cost_row((1, 2), 2, "f").tolist() == [1.0, 2.0]


def test_names_become_plain_values() -> None:
    costs = CostMatrix(I2, np.array(["a", "b"]), np.array([3, 4]))
    assert [type(name) for name in (*costs.actions, *(costs.classes or ()))] == [str, str, int, int]
