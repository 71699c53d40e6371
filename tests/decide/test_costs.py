"""Names decide what is a row: every way to write the same costs gives the same matrix."""

import copy
import json
import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dubito.decide import CostMatrix
from dubito.decide.costs import as_costs
from dubito.errors import BadTypeError, BadValueError, DubitoError
from tests.decide.growing import growing

LOSS = [[0.0, 1000.0, 3.0], [1.0, 0.0, 4.0]]  # truth x decision, as texts print it


def same(one: CostMatrix, other: CostMatrix) -> bool:
    return json.dumps(one.to_dict()) == json.dumps(other.to_dict())


def test_what_a_matrix_knows() -> None:
    costs = CostMatrix([[0, 5], [1, 0], [2, 2]], ["no", "yes", "ask"], ["-", "+"], reject="ask")
    assert costs.array.tolist() == [[0.0, 5.0], [1.0, 0.0], [2.0, 2.0]]
    assert costs.array.dtype == np.float64
    assert (costs.actions, costs.classes, costs.reject) == (("no", "yes", "ask"), ("-", "+"), 2)
    assert (costs.n_actions, costs.n_classes, costs.columns) == (3, 2, ())


def test_actions_without_names_are_the_classes_or_numbers() -> None:
    assert CostMatrix(np.eye(2), classes=["a", 7]).actions == ("a", "7")
    assert CostMatrix(np.eye(2)).actions == ("0", "1")
    assert CostMatrix([[1, 2]], classes=["a", "b"]).actions == ("0",)


def test_the_action_called_reject_is_it_unless_another_is_named() -> None:
    assert CostMatrix(np.eye(2), ["reject", "go"]).reject == 0
    assert CostMatrix(np.eye(2), ["reject", "go"], reject="go").reject == 1
    assert CostMatrix(np.eye(2), ["stay", "go"]).reject is None


def test_the_matrix_is_a_copy_that_nobody_writes_to() -> None:
    mine = np.zeros((2, 2))
    costs = CostMatrix(mine)
    mine[0, 0] = 9
    assert costs.array[0, 0] == 0
    assert not costs.array.flags.writeable
    assert not CostMatrix([[0, "fee"]]).entries.flags.writeable
    assert mine.flags.writeable
    with pytest.raises(AttributeError):
        costs.reject = 1  # type: ignore[misc]


def test_zero_one_by_number_and_by_names() -> None:
    assert CostMatrix.zero_one(3).array.tolist() == [[0, 1, 1], [1, 0, 1], [1, 1, 0]]
    named = CostMatrix.zero_one(["cat", "dog"])
    assert named.actions == named.classes == ("cat", "dog")
    assert CostMatrix.zero_one(np.int64(1)).array.tolist() == [[0.0]]


def test_the_orientation_is_said_and_not_seen() -> None:
    textbook = CostMatrix.from_loss(LOSS, rows="truth", classes=["ill", "well"])
    turned = CostMatrix.from_loss(np.transpose(LOSS), rows="actions", classes=["ill", "well"])
    grows = CostMatrix.from_loss([[0, "a"], ["b", "1"]], rows="truth")
    assert grows.texts == [[0, "b"], ["a", 1]]
    assert textbook.array.tolist() == [[0, 1], [1000, 0], [3, 4]]
    assert same(textbook, turned)
    assert textbook.array.flags.c_contiguous
    square = CostMatrix.from_loss([[0, 1000], [1, 0]], rows="truth")
    assert square.array.tolist() == [[0, 1], [1000, 0]]


def test_errors_and_utilities_are_costs() -> None:
    costs = CostMatrix.from_errors(
        false_positive=1, false_negative=5, true_positive=-2, true_negative=0.5
    )
    assert costs.array.tolist() == [[0.5, 5.0], [1.0, -2.0]]
    named = CostMatrix.from_errors(
        false_positive=1, false_negative=5, classes=["ill", "well"], pos_label="ill"
    )
    assert named.array.tolist() == [[5, 0], [0, 1]]
    assert (named.actions, named.classes) == (("well", "ill"), ("ill", "well"))
    gains = CostMatrix.from_utilities([[3, -1], [0, 2]], ["a", "b"])
    assert gains.array.tolist() == [[-3.0, 1.0], [0.0, -2.0]]
    assert CostMatrix.from_utilities([[3, "a + b"]]).texts == [[-3, "-(a + b)"]]
    by_errors = CostMatrix.from_errors(false_positive="fee", false_negative="amount", pos_label=1)
    assert by_errors.texts == [[0, "amount"], ["fee", 0]]
    assert not np.signbit(gains.array[1, 0])


def test_a_reject_costs_one_number_or_one_a_class() -> None:
    costs = CostMatrix(np.eye(2))
    one = costs.with_reject(0.25)
    assert one.array[2].tolist() == [0.25, 0.25]
    assert (one.reject, one.actions) == (2, ("0", "1", "reject"))
    assert costs.with_reject("0.1 * fee").texts[2] == ["0.1 * fee"] * 2
    assert costs.with_reject(["fee", 2]).texts[2] == ["fee", 2]
    each = costs.with_reject(np.array([1, 2], np.float32), name="ask")
    assert each.array[2].tolist() == [1.0, 2.0]
    assert (each.reject, each.actions[2]) == (2, "ask")
    assert costs.reject is None


def test_columns_follow_the_names_of_a_model() -> None:
    costs = CostMatrix([[1, 2, 3]], ["act"], ["a", "b", "0"]).with_reject(9)
    turned = costs.for_classes((0, "a", "b"), 3)
    assert turned.array[0].tolist() == [3, 1, 2]
    grows = CostMatrix([["x", "y", 3]], ["act"], ["a", "b", "0"]).for_classes((0, "a", "b"), 3)
    assert grows.texts == [[3, "x", "y"]]
    assert (turned.classes, turned.reject) == ((0, "a", "b"), 1)
    assert costs.for_classes(None, 3) is costs
    assert costs.for_classes(("a", "b", "0"), 3) is costs
    assert CostMatrix.zero_one(2).for_classes(("x", "y"), 2).classes is None


finite = st.floats(-1e100, 1e100)
tables = hnp.arrays(np.float64, st.tuples(st.integers(1, 4), st.integers(1, 4)), elements=finite)


@pytest.mark.slow
@given(tables, st.booleans(), st.data())
def test_kept_and_read_again_it_is_the_same(table: Any, grows: bool, data: Any) -> None:
    names = st.text(max_size=5) | st.integers() | st.booleans()
    size = table.shape[1]
    unique = st.lists(names, min_size=size, max_size=size, unique=True)
    classes = data.draw(st.none() | unique)
    cells = growing(table, table / 2) if grows else table
    costs = CostMatrix(cells, classes=None)
    if classes is not None and table.shape[0] != table.shape[1]:
        costs = CostMatrix(cells, classes=classes)
    again = CostMatrix.from_dict(json.loads(json.dumps(costs.to_dict())))
    assert same(again, costs)
    assert again.expressions == costs.expressions
    if not grows:
        assert again.array.tolist() == table.tolist()
    for restored in (pickle.loads(pickle.dumps(costs)), copy.deepcopy(costs)):
        assert same(restored, costs)
        assert not restored.array.flags.writeable


def test_files(tmp_path: Path) -> None:
    by_action, by_truth, kept = (tmp_path / name for name in ("a.csv", "t.csv", "c.json"))
    by_action.write_text("action,well,ill\nhome,0,10\ntreat,1,0\nreject,.5,.5\n")
    by_truth.write_text("Truth , home, treat, reject\nwell,0,1,.5\n\nill,10,0,.5\n")
    costs = CostMatrix.from_csv(by_action)
    assert costs.array.tolist() == [[0, 10], [1, 0], [0.5, 0.5]]
    assert (costs.actions, costs.classes) == (("home", "treat", "reject"), ("well", "ill"))
    assert costs.reject == 2
    assert same(CostMatrix.from_csv(by_truth), costs)
    assert CostMatrix.from_csv(by_truth, reject="home").reject == 0
    kept.write_text(json.dumps(costs.to_dict()))
    assert same(CostMatrix.from_json(kept), costs)


def whole(**changes: Any) -> dict[str, Any]:
    return {**CostMatrix.zero_one(2).to_dict(), **changes}


BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: CostMatrix.zero_one(0),
        BadValueError,
        r"`classes` .*got 0\. Pass the number of",
    ),
    (
        lambda: CostMatrix.zero_one("ab"),
        BadTypeError,
        r"`classes` .*got 'ab'\. Use CostMatrix\.zero_one\(3\)",
    ),
    (
        lambda: CostMatrix.zero_one(2.5),  # type: ignore[arg-type]
        BadTypeError,
        r"`classes` .*got float\. Use CostMatrix\.zero_one\(3\)",
    ),
    (
        lambda: CostMatrix.from_loss(LOSS, rows="rows"),  # type: ignore[arg-type]
        BadValueError,
        r"`rows` .*got 'rows'\. Use rows='truth' for a",
    ),
    (
        lambda: CostMatrix.zero_one(2).with_reject(0.1).with_reject(0.2, "again"),
        BadValueError,
        r"with_reject .*got one that already has 'reject'\. Change the costs of",
    ),
    (
        lambda: CostMatrix.zero_one(3).for_classes(None, 2),
        BadValueError,
        r"cost matrix has 3 classes, got outputs with 2\. Use one cost column",
    ),
    (
        lambda: CostMatrix.zero_one(["a", "b"]).for_classes(("a", "c"), 2),
        BadValueError,
        r"has the classes .*got outputs with \('a', 'c'\)\. Use the same names",
    ),
    (
        lambda: as_costs([[0, 1], [1, 0]], "costs", "f"),
        BadTypeError,
        r"`costs` .*got list\. Use CostMatrix\(costs\), or CostMatrix\.from_loss\(loss,",
    ),
    (
        lambda: CostMatrix.from_dict([]),
        BadTypeError,
        "CostMatrix.from_dict: `values` must be a dict that `to_dict` returned, got a list. "
        "Restore the values as they were written.",
    ),
    (
        lambda: CostMatrix.from_dict(whole(format=2)),
        BadTypeError,
        "CostMatrix.from_dict: `values` must have format 1, got format 2. "
        "Use the version of dubito that wrote it.",
    ),
    (
        lambda: CostMatrix.from_dict(whole(more=1)),
        BadValueError,
        "CostMatrix.from_dict: `values` must have no other keys than actions, classes, costs, "
        "reject, pos_label, reviews, got 'more'. Restore the values as they were written.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_invalid_arguments_raise(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert re.search(message, str(caught.value))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=100)
@given(st.sampled_from(sorted(whole())), json_values)
def test_whatever_is_read_is_costs_or_a_clear_error(key: str, value: Any) -> None:
    try:
        costs = CostMatrix.from_dict(whole(**{key: value}))
    except DubitoError:
        return
    assert np.isfinite(costs.array).all()
    assert len(costs.actions) == costs.n_actions


@pytest.mark.parametrize(
    ("pos_label", "classes", "column"),
    [
        (1, None, 1),
        (0, None, 0),
        (1, (0, 1), 1),
        (1, (False, True), 1),
        (True, (1, 0), 0),
        (1, ("0", "1"), 1),
        (0, (True, False), 1),
        ("stay", ("churn", "stay"), 1),
        ("churn", ("churn", "stay"), 0),
    ],
)
def test_the_positive_class_is_found_by_its_name(pos_label: Any, classes: Any, column: int) -> None:
    costs = CostMatrix.from_errors(false_positive=5, false_negative=100, pos_label=pos_label)
    costs = CostMatrix.from_dict(costs.with_reject(3).to_dict())
    found = costs.for_classes(classes, 2)
    assert found.array[:2, column].tolist() == [100, 0]
    assert found.array[:2, 1 - column].tolist() == [0, 5]
    assert (found.pos_label, found.reject, found.classes) == (None, 2, classes)
    if classes is not None:
        assert found.actions == (str(classes[1 - column]), str(classes[column]), "reject")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: CostMatrix.from_errors(
                false_positive=1, false_negative=2, classes=["churn", "stay"]
            ),
            "must be one of the classes ('churn', 'stay'), got 1. "
            "Pass pos_label='churn' or pos_label='stay' to from_errors.",
        ),
        (
            lambda: CostMatrix.from_errors(
                false_positive=1, false_negative=2, pos_label="churn"
            ).for_classes(None, 2),
            "must be one of the classes (0, 1), got 'churn'. Pass pos_label=0 or pos_label=1 to "
            "from_errors, or name the classes of the outputs.",
        ),
        (
            lambda: CostMatrix(np.eye(3), pos_label=1),
            "must be None with classes, or with other than 2 columns, got 1. Leave it out.",
        ),
    ],
)
def test_the_positive_class_is_never_inferred(make: Any, message: str) -> None:
    with pytest.raises(BadValueError) as caught:
        make()
    assert str(caught.value) == f"CostMatrix: `pos_label` {message}"
