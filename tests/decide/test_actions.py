"""The least of the expected costs, by brute force; ties go to reject, else to the first."""

import re
import tracemalloc
from fractions import Fraction
from typing import Any

import numpy as np
import pandas
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special

from dubito import Logits, Members, Normal, Probabilities, TopLabel
from dubito.data import Batch
from dubito.decide import CostMatrix, expected_costs, optimal_actions
from dubito.decide.actions import least_costs
from dubito.errors import BadTypeError, BadValueError, DubitoError

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

SHAPES = [(1, 1), (1, 2), (7, 2), (300, 3), (1000, 10), (40, 64), (40, 65), (600, 500)]


def slow(p: Any, costs: CostMatrix, tables: Any) -> tuple[list[list[float]], list[int]]:
    """Return expected costs and actions by plain loops; `tables` is rows x actions x classes."""
    found, actions = [], []
    for row, table in zip(p, tables, strict=True):
        ours = [
            sum(float(share) * float(table[a, k]) for k, share in enumerate(row))
            for a in range(costs.n_actions)
        ]
        found.append(ours)
        reject = costs.reject
        is_rejected = reject is not None and ours[reject] <= min(ours) + 1e-9
        actions.append(reject if is_rejected and reject is not None else ours.index(min(ours)))
    return found, actions


def some_costs(rng: Any, n_rows: int, n_classes: int, kind: str) -> tuple[CostMatrix, Any, Any]:
    """Return costs of four actions, row costs, and both as rows x actions x classes."""
    base = rng.normal(0, 2, (4, n_classes))
    names, reject = [f"action {i}" for i in range(4)], None if kind == "fixed" else "action 2"
    tables = np.repeat(base[np.newaxis], n_rows, axis=0)
    if kind == "fixed":
        return CostMatrix(base, names), None, tables
    if kind == "array":
        tables = rng.normal(0, 2, (n_rows, 4, n_classes))
        return CostMatrix(base, names, reject=reject), tables, tables
    fee, amount = rng.random(n_rows) * 5, rng.normal(0, 100, n_rows)
    cells = base.astype(object)
    for a, k in ((0, 0), (2, 0), (3, n_classes - 1)):  # one class with two, and another with one
        cells[a, k] = "min(fee, amount / 50) - 2 * fee"
        tables[:, a, k] = np.minimum(fee, amount / 50) - 2 * fee
    cells[1, 0], tables[:, 1, 0] = "fee", fee
    columns = {"amount": amount, "fee": fee}
    return CostMatrix(cells, names, reject=reject), columns, tables


@pytest.mark.parametrize("is_logits", [True, False])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_brute_force(shape: tuple[int, int], dtype: Precision, is_logits: bool) -> None:
    rng = np.random.default_rng(shape[0] + shape[1])
    logits = rng.normal(0, 3, shape).astype(dtype)
    p = special.softmax(logits.astype(np.float64), axis=1)
    if not is_logits:
        outputs: Any = Probabilities(p.astype(np.float64 if dtype is np.float64 else np.float32))
        p = outputs.array.astype(np.float64)
        p = p / p.sum(axis=1, keepdims=True)
    else:
        outputs = Logits(logits)
    if shape[1] == 1:
        p = outputs.array.astype(np.float64)
        p = special.softmax(p, axis=1) if is_logits else p
    few = slice(0, 40)
    for kind in ("fixed", "cells", "array"):
        costs, row_costs, tables = some_costs(rng, shape[0], p.shape[1], kind)
        found = expected_costs(outputs, costs, row_costs)
        matrix = np.einsum("nk,nak->na", p, tables)
        close(found, matrix, rtol=1e-9, atol=1e-9)
        table, actions = slow(p[few], costs, tables[few])
        close(found[few], table, rtol=1e-9, atol=1e-9)
        least = least_costs(outputs, costs, row_costs)
        assert least.action[few].tolist() == actions
        assert (least.action == optimal_actions(outputs, costs, row_costs)).all()
        close(least.cost, matrix[np.arange(shape[0]), least.action], rtol=1e-9, atol=1e-9)
        close(least.probability, p.max(axis=1), rtol=1e-6)
        assert least.predicted_class.tolist() == outputs.array.argmax(axis=1).tolist()
        others = [number for number in range(4) if number != costs.reject]
        above = np.einsum("nk,nak->na", p, tables - tables.min(axis=1, keepdims=True))
        close(least.excess, above[:, others].min(axis=1), rtol=1e-9, atol=1e-9)
        assert found.dtype == least.cost.dtype == np.float64
        assert least.action.dtype == np.int64


def test_columns_come_from_any_table() -> None:
    costs = CostMatrix([[0, "amount"], ["2 * `a fee`", 0]]).with_reject("min(5, 0.1 * amount)")
    columns = {"amount": [100.0, 20.0], "a fee": [3, 1], "note": ["x", "y"]}
    p = [[0.9, 0.1], [0.5, 0.5]]
    wanted = [[10.0, 5.4, 5.0], [10.0, 1.0, 2.0]]
    numbers = {name: columns[name] for name in ("amount", "a fee")}
    structured = np.array([(3, 100), (1, 20)], [("a fee", "f4"), ("amount", "i8")])
    tables: list[Any] = [
        numbers, structured, pandas.DataFrame(columns), polars.DataFrame(columns),
        pa.table(columns),
    ]  # fmt: skip
    for table in tables:
        close(expected_costs(p, costs, table), wanted)
        batch = Batch.of(None, p, row_costs=table)
        close(expected_costs(p, costs, batch.row_costs), wanted)
        assert batch.take(np.array([1])).row_costs["amount"].tolist() == [20]  # type: ignore[index]
    one = CostMatrix([[0, "amount"], [1, 0]])
    close(expected_costs(p, one, [100, 20]), [[10, 0.9], [10, 0.5]])
    assert costs.columns == ("amount", "a fee")


def test_ties_of_costs_that_grow_go_to_reject_and_else_to_the_first() -> None:
    # The costs of a class share a large part: what they differ by decides.
    cells = [["big", "big + 1"], ["big + 1", "big"], ["big + 0.5", "big + 0.5"]]
    big = {"big": np.array([1e6, -1e6, 0.0, 1e13])}
    for reject, wanted in ((None, 0), ("c", 2)):
        costs = CostMatrix(cells, ["a", "b", "c"], reject=reject)
        assert optimal_actions([[0.5, 0.5]] * 4, costs, big).tolist() == [wanted] * 4
        assert optimal_actions([[0.4, 0.6]] * 3, costs, {"big": big["big"][:3]}).tolist() == [1] * 3


# Sixteenths add up without rounding: what looks like a tie here is one.
@st.composite
def exact_problems(draw: Any) -> tuple[Any, Any, int | None]:
    n_classes = draw(st.integers(2, 5))
    cuts = st.lists(st.integers(0, 16), min_size=n_classes - 1, max_size=n_classes - 1)
    rows = []
    for _ in range(draw(st.integers(1, 5))):
        edges = [0, *sorted(draw(cuts)), 16]
        rows.append(np.diff(edges) / 16)
    n_actions = draw(st.integers(1, 5))
    whole = st.integers(-3, 3).map(float)
    table = draw(hnp.arrays(np.float64, (n_actions, n_classes), elements=whole))
    return np.array(rows), table, draw(st.none() | st.integers(0, n_actions - 1))


@pytest.mark.slow
@settings(max_examples=150)
@given(exact_problems(), st.sampled_from([np.float16, np.float32, np.float64]))
def test_ties_go_to_reject_and_else_to_the_first(problem: Any, dtype: Precision) -> None:
    p, table, reject = problem
    names = [f"action {i}" for i in range(len(table))]
    costs = CostMatrix(table, names, reject=None if reject is None else names[reject])
    expected = []
    for row in p:
        exact = [
            sum(Fraction(s) * Fraction(c) for s, c in zip(row, ours, strict=True)) for ours in table
        ]
        wins = reject is not None and exact[reject] == min(exact)
        expected.append(reject if wins else exact.index(min(exact)))
    assert optimal_actions(p.astype(dtype), costs).tolist() == expected


@pytest.mark.slow
@settings(max_examples=100)
@given(st.data())
def test_zero_one_costs_are_the_most_probable_class(data: Any) -> None:
    dtype: Precision = data.draw(st.sampled_from([np.float32, np.float64]))
    values = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e4, -1e4, 3e38, -3e38, 1e-30]) | st.floats(
        -50, 50, width=16
    )
    shape = (data.draw(st.integers(1, 4)), data.draw(st.sampled_from([2, 3, 10, 66])))
    logits = data.draw(hnp.arrays(dtype, shape, elements=values))
    with np.errstate(over="ignore"):
        p = special.softmax(logits.astype(np.float64), axis=1)
    best = p.max(axis=1, keepdims=True)
    expected = (p >= best * (1 - 1e-12)).argmax(axis=1)
    found = least_costs(Logits(logits), CostMatrix.zero_one(shape[1]))
    assert found.action.tolist() == expected.tolist()
    close(found.cost, 1 - best[:, 0], atol=1e-12)


def test_equal_classes_among_many_are_a_tie_whatever_the_order_of_the_sum() -> None:
    rng = np.random.default_rng(0)
    for n_classes in (10, 100):
        p = rng.dirichlet(np.ones(n_classes), 2000)
        first, second = 3, n_classes - 2
        p[:, first] = p[:, second] = p.max(axis=1)
        p /= p.sum(axis=1, keepdims=True)
        found = optimal_actions(p, CostMatrix.zero_one(n_classes))
        assert found.tolist() == p.argmax(axis=1).tolist()


def test_tiny_expected_costs_still_distinguish_actions() -> None:
    costs = CostMatrix([[0, 2], [0, 1]])
    assert optimal_actions(Logits([[60.0, 0.0]]), costs).tolist() == [1]
    gains = CostMatrix([[-5, 2], [-5, 1]])
    assert optimal_actions(Logits([[60.0, 0.0]]), gains).tolist() == [1]


def test_reject_wins_within_its_margin_only() -> None:
    for n_classes in (2, 80):
        p = np.zeros((3, n_classes))
        p[:, 0] = [0.75 + 5e-10, 0.75 + 2e-9, 0.75]
        p[:, 1] = 1 - p[:, 0]
        costs = CostMatrix.zero_one(n_classes).with_reject(0.25)
        assert optimal_actions(p, costs).tolist() == [n_classes, 0, n_classes]


def test_fraud_costs_that_grow_with_the_amount() -> None:
    # Letting a fraud pass costs its amount, a check costs 20.
    costs = CostMatrix([[0, "amount"], [20, 20]], ["pass", "check"], ["fine", "fraud"])
    p, row_costs = [[0.9, 0.1]] * 3, [100, 1000, 0]
    close(expected_costs(p, costs, row_costs), [[10, 20], [100, 20], [0, 20]])
    assert optimal_actions(p, costs, row_costs).tolist() == [0, 1, 0]
    assert optimal_actions(p, costs, np.array(row_costs, np.float32)).tolist() == [0, 1, 0]


def test_members_decide_by_their_mean_and_one_column_is_the_positive_class() -> None:
    costs = CostMatrix.from_errors(false_positive=1, false_negative=1)
    members = Members([[[0.9, 0.1]], [[0.2, 0.8]]])
    close(expected_costs(members, costs), [[0.45, 0.55]])
    close(expected_costs([0.3], costs), [[0.3, 0.7]])


def test_columns_are_found_by_name() -> None:
    costs = CostMatrix([[0, 9], [1, 0]], ["home", "treat"], ["well", "ill"])
    turned = Probabilities([[0.2, 0.8]], classes=["ill", "well"])
    close(expected_costs(turned, costs), [[1.8, 0.8]])


def test_views_in_any_order_and_no_rows_at_all() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (6, 50)).T
    costs = CostMatrix(rng.random((3, 6)).T[:, ::-1].T)
    expected = special.softmax(logits, axis=1) @ costs.array.T
    close(expected_costs(Logits(logits), costs), expected)
    assert expected_costs(np.zeros((0, 6)), costs).shape == (0, 3)
    assert optimal_actions(np.zeros((0, 6)), costs).shape == (0,)


@pytest.mark.slow
def test_blocks_and_threads_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for shape in ((250_000, 10), (5000, 100)):
        logits = Logits(rng.normal(0, 2, shape).astype(np.float32))
        costs = CostMatrix.zero_one(shape[1]).with_reject(0.1)
        monkeypatch.delenv("DUBITO_THREADS", raising=False)
        many = least_costs(logits, costs)
        monkeypatch.setenv("DUBITO_THREADS", "1")
        one = least_costs(logits, costs)
        assert (many.action == one.action).all()
        assert (many.cost == one.cost).all()
        p = special.softmax(logits.array.astype(np.float64), axis=1)
        close(many.cost, np.minimum(1 - p.max(axis=1), 0.1), atol=1e-9)


@pytest.mark.slow
def test_no_copy_of_the_matrix_is_made() -> None:
    logits = np.random.default_rng(0).normal(0, 2, (200_000, 40)).astype(np.float32)
    logits.flags.writeable = False  # outputs share it then
    before = logits[::1000].copy()
    costs = CostMatrix.zero_one(40).with_reject(0.1)
    optimal_actions(Logits(logits), costs)  # compiles every kernel that large inputs use
    tracemalloc.start()
    try:
        optimal_actions(Logits(logits), costs)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        assert peak < 40 * len(logits) + 2e6  # two choices and three numbers of each row
    assert peak < logits.nbytes
    assert (logits[::1000] == before).all()


GROWS = CostMatrix([[0, "1 / amount"], ["2 * amount", 0]])
TWO = CostMatrix([[0, "amount"], ["fee", 0]], ["pass", "block"], ["legit", "fraud"])
PLAIN = CostMatrix.zero_one(2)
P = [[0.5, 0.5]] * 2
KINDS = "Logits, Probabilities, Members or an array of probabilities"

BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: optimal_actions(P, GROWS),
        BadTypeError,
        r"`row_costs` .*'amount', got None\. Pass row_costs=\{'amount': ",
    ),
    (
        lambda: expected_costs(P, GROWS, [1, 0]),
        BadValueError,
        r"`row_costs` must give a finite cost by `0,1=1 / amount`, got a division by 0 in row 1\.",
    ),
    (
        lambda: expected_costs(P, GROWS, [1, 1e100]),
        BadValueError,
        r"`row_costs` .*`1,0=2 \* amount`, got a size above 1e\+100 in row 1\.",
    ),
    (
        lambda: expected_costs(P, GROWS, [1, np.nan]),
        BadValueError,
        r"`row_costs`.*nan in row 1\.",
    ),
    (
        lambda: expected_costs(P, GROWS, [1]),
        BadValueError,
        r"`row_costs`.*length 1\.",
    ),
    (
        lambda: expected_costs(P, GROWS, [[1, 2], [3, 4]]),
        BadValueError,
        r"`row_costs` must .*one number per row",
    ),
    (
        lambda: expected_costs(P, TWO, [1, 2]),
        BadTypeError,
        r"`row_costs` must have the columns 'amount', 'fee', got list\. Pass a dict or a data",
    ),
    (
        lambda: expected_costs(P, TWO, {"amount": [1, 2], "cost": [1, 2]}),
        BadValueError,
        r"`row_costs` .*'amount', 'fee', got 'amount', 'cost'\. Add 'fee', or change",
    ),
    (
        lambda: expected_costs(P, TWO, {"amount": [1, 2], "fee": [1, np.inf]}),
        BadValueError,
        r"`row_costs\['fee'\]` .*got inf in row 1\.",
    ),
    (
        lambda: expected_costs(P, TWO, {"amount": [1, 2], "fee": ["1", "2"]}),
        BadTypeError,
        r"`row_costs\['fee'\]` must be an array of real numbers, got text",
    ),
    (
        lambda: expected_costs(P, PLAIN, np.ones((2, 3, 2))),
        BadValueError,
        r"`row_costs` must be rows x 2 actions x 2 classes.* got shape \(2, 3, 2\)\.",
    ),
    (
        lambda: expected_costs(P, PLAIN, [np.ones((2, 2)), [[1, 2], [3, np.nan]]]),
        BadValueError,
        r"`row_costs` must be finite, got nan in row 1",
    ),
    (
        lambda: least_costs(P, PLAIN, [1, 2]),
        BadValueError,
        r"`row_costs` .*got a list\. Leave it out, or use expressions such as CostMatrix\(\[\[0",
    ),
    (
        lambda: least_costs(TopLabel([0.5], [1]), PLAIN),
        BadTypeError,
        r"`outputs` .*got TopLabel\. Pass the whole distribution over classes",
    ),
    (
        lambda: expected_costs(Normal([0.5], [1]), PLAIN),
        BadTypeError,
        r"`outputs` .*got Normal\. Pass the whole distribution over classes",
    ),
    (
        lambda: expected_costs(P, np.eye(2)),  # type: ignore[arg-type]
        BadTypeError,
        r"`costs` .*got ndarray\. Use CostMatrix\(costs\), or CostMatrix\.from_loss\(loss,",
    ),
    (
        lambda: expected_costs(P, CostMatrix.zero_one(3)),
        BadValueError,
        r"cost matrix .*got outputs with 2\. Use one cost column",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_invalid_arguments_raise(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert re.search(message, str(caught.value))
