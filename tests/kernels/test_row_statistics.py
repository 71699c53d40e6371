"""The fused row pass matches a float64 NumPy reference, lanes over rows and over classes."""

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.random import Generator
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray

from dubito.arrays import contiguous, freeze
from dubito.kernels import row_statistics as rows
from dubito.kernels.row_statistics import (
    BRIER,
    CONFIDENCE,
    ENTROPY,
    LOG_SUM,
    LOSS,
    N_NUMBERS,
    SQUARES,
    TILE,
    UNCERTAINTY,
    VARIANCE,
)

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

N_CLASSES = (2, 3, 10, 63, 64, 65, 200, 1000, 1025)
TOLERANCE = {np.float32: 1e-5, np.float64: 1e-12}

each_kernel = pytest.mark.parametrize(
    "kernel", [rows.narrow_rows, rows.wide_rows], ids=["narrow", "wide"]
)
each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_width = pytest.mark.parametrize("n_classes", N_CLASSES)


class Pass(NamedTuple):
    predicted: NDArray[np.int32]
    numbers: Floats


def fused(kernel: Any, array: Floats, labels: Any, *, is_logits: bool) -> Pass:
    n_rows = array.shape[0]
    result = Pass(np.empty(n_rows, np.int32), np.full((N_NUMBERS, n_rows), np.nan))
    codes = freeze(np.asarray(labels, np.int64))
    kernel(contiguous(array), codes, is_logits, result.predicted, result.numbers)
    return result


def plain(array: Floats, labels: Any, *, is_logits: bool) -> Pass:
    each = [plain_row(row, label, is_logits) for row, label in zip(array, labels, strict=True)]
    predicted = np.array([top for top, _ in each], np.int32)
    return Pass(predicted, np.array([numbers for _, numbers in each]).reshape(-1, N_NUMBERS).T)


def plain_row(row: Floats, label: int, is_logits: bool) -> tuple[int, list[float]]:
    x = row.astype(np.float64)
    top = int(np.argmax(x))
    is_other = np.arange(x.size) != top
    with np.errstate(over="ignore", divide="ignore"):
        if is_logits:
            distance = x - x[top]
            log_total = np.log1p(np.exp(distance[is_other]).sum())
            log_p, log_sum = distance - log_total, x[top] + log_total
            p = np.exp(log_p)
        else:
            log_p, log_sum, p = np.log(x), 0.0, x
    happens = p > 0
    entropy = -(p[happens] * log_p[happens]).sum()
    variance = (p[happens] * (log_p[happens] + entropy) ** 2).sum()
    truth = (np.arange(x.size) == label).astype(float)
    loss, brier = (0.0, 0.0) if label < 0 else (-log_p[label], ((p - truth) ** 2).sum())
    loss = loss if loss < rows.HIGHEST_LOSS else np.inf
    uncertainty, squares = p[is_other].sum(), (p**2).sum()
    return top, [p[top], uncertainty, entropy, variance, squares, log_sum, loss, brier]


def assert_same(got: Pass, expected: Pass, dtype: Precision) -> None:
    assert got.predicted.tolist() == expected.predicted.tolist()
    rtol, eps = TOLERANCE[dtype], float(np.finfo(dtype).eps)
    for number in (CONFIDENCE, UNCERTAINTY, ENTROPY, LOSS):
        close(got.numbers[number], expected.numbers[number], rtol=rtol, atol=1e-34)
    # A square is off by twice the ratio of its root.
    close(got.numbers[SQUARES], expected.numbers[SQUARES], rtol=2 * rtol)
    # These two may be the difference of larger numbers: they keep their digits, not their ratio.
    for number in (LOG_SUM, BRIER):
        close(got.numbers[number], expected.numbers[number], rtol=rtol, atol=10 * eps)
    # The variance is a mean of squares less the square of a mean, right to the digits of those.
    # What float32 takes for exp(-88) and below, times 88^2 a class, is nothing beside it.
    mean_square = expected.numbers[VARIANCE] + expected.numbers[ENTROPY] ** 2
    off = np.abs(got.numbers[VARIANCE] - expected.numbers[VARIANCE])
    assert (off <= rtol * mean_square + 1e-30).all()


def some_labels(rng: Generator, n_rows: int, n_classes: int) -> NDArray[np.int64]:
    return rng.integers(-1, n_classes, n_rows)


def masked(rng: Generator, shape: tuple[int, int], dtype: Precision) -> Floats:
    logits = rng.normal(size=shape).astype(dtype)
    logits[:, 1:][rng.random((shape[0], shape[1] - 1)) < 0.5] = np.finfo(dtype).min
    return logits


def dominated(rng: Generator, shape: tuple[int, int], dtype: Precision) -> Floats:
    logits = rng.normal(size=shape).astype(dtype)
    logits[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] += 40
    return logits


def overflowing(rng: Generator, shape: tuple[int, int], dtype: Precision) -> Floats:
    info = np.finfo(dtype)
    return rng.choice(np.array([info.min, info.max, 0], dtype), shape)


LOGITS: dict[str, Callable[[Generator, tuple[int, int], Precision], Floats]] = {
    "plain": lambda rng, shape, dtype: rng.normal(0, 3, shape).astype(dtype),
    "one class dominates": dominated,
    "ties": lambda rng, shape, dtype: rng.integers(0, 3, shape).astype(dtype),
    "all the same": lambda rng, shape, dtype: np.full(shape, 7, dtype),
    "signed zeros": lambda rng, shape, dtype: rng.choice(np.array([-0.0, 0.0], dtype), shape),
    "saturated": lambda rng, shape, dtype: rng.choice(np.array([-1e4, 1e4], dtype), shape),
    "masked": masked,
    "spread that overflows": overflowing,
    "tiny": lambda rng, shape, dtype: rng.normal(0, 1e-30, shape).astype(dtype),
}


def one_hot(rng: Generator, shape: tuple[int, int], dtype: Precision) -> Floats:
    return np.eye(shape[1], dtype=dtype)[rng.integers(0, shape[1], shape[0])]


def with_zeros(rng: Generator, shape: tuple[int, int], dtype: Precision) -> Floats:
    shares = rng.random(shape) * (rng.random(shape) < 0.5)
    shares[:, 0] += 1e-3
    return np.asarray(shares / shares.sum(axis=1, keepdims=True), dtype)


def nearly_sure(rng: Generator, shape: tuple[int, int], dtype: Precision) -> Floats:
    shares = 10.0 ** rng.uniform(-37, -8, shape)
    shares[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = 1
    return shares.astype(dtype)


PROBABILITIES: dict[str, Callable[[Generator, tuple[int, int], Precision], Floats]] = {
    "plain": lambda rng, shape, dtype: rng.dirichlet(np.ones(shape[1]), shape[0]).astype(dtype),
    "uniform": lambda rng, shape, dtype: np.full(shape, 1 / shape[1], dtype),
    "one-hot": one_hot,
    "with zeros": with_zeros,
    "nearly sure": nearly_sure,
}


@each_kernel
@each_precision
@each_width
@pytest.mark.parametrize("case", LOGITS)
def test_statistics_of_logits_match_numpy_reference(
    kernel: Any, dtype: Precision, n_classes: int, case: str
) -> None:
    rng = np.random.default_rng(n_classes)
    array = LOGITS[case](rng, (20, n_classes), dtype)
    labels = some_labels(rng, 20, n_classes)
    expected = plain(array, labels, is_logits=True)
    assert_same(fused(kernel, array, labels, is_logits=True), expected, dtype)


@each_kernel
@each_precision
@each_width
@pytest.mark.parametrize("case", PROBABILITIES)
def test_statistics_of_probabilities_match_numpy_reference(
    kernel: Any, dtype: Precision, n_classes: int, case: str
) -> None:
    rng = np.random.default_rng(n_classes)
    array = PROBABILITIES[case](rng, (20, n_classes), dtype)
    labels = some_labels(rng, 20, n_classes)
    expected = plain(array, labels, is_logits=False)
    assert_same(fused(kernel, array, labels, is_logits=False), expected, dtype)


@each_kernel
@each_precision
@pytest.mark.parametrize("n_rows", [0, 1, TILE - 1, TILE, TILE + 1, 2 * TILE + 7])
def test_any_number_of_rows_fills_every_row(kernel: Any, dtype: Precision, n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    array = rng.normal(size=(n_rows, 5)).astype(dtype)
    labels = some_labels(rng, n_rows, 5)
    expected = plain(array, labels, is_logits=True)
    assert_same(fused(kernel, array, labels, is_logits=True), expected, dtype)


@each_kernel
@each_width
def test_uncertainty_of_float32_logits_keeps_its_ratio_down_to_1e_30(
    kernel: Any, n_classes: int
) -> None:
    rng = np.random.default_rng(n_classes)
    lead = np.linspace(0, 69 + np.log(n_classes), 400)
    logits = rng.normal(size=(400, n_classes)).astype(np.float32)
    logits[:, n_classes // 2] = logits.max(axis=1) + lead
    logits[::2, : n_classes // 2] = -1e4
    uncertainty = plain(logits, np.full(400, -1), is_logits=True).numbers[UNCERTAINTY]
    got = fused(kernel, logits, np.full(400, -1), is_logits=True).numbers[UNCERTAINTY]
    is_in_range = uncertainty >= 1e-30
    assert uncertainty.min() < 1e-28
    close(got[is_in_range], uncertainty[is_in_range], rtol=1e-5)


@each_kernel
@each_precision
@pytest.mark.parametrize("n_classes", [2, 10, 65, 1025])
def test_on_a_tie_the_first_class_wins(kernel: Any, dtype: Precision, n_classes: int) -> None:
    logits = np.full((2, n_classes), -1, dtype)
    first, last = n_classes // 2 - 1, n_classes - 1
    logits[0, [first, last]] = [-0.0, 0.0]
    logits[1, [first, last]] = [0.0, -0.0]
    assert fused(kernel, logits, [0, 0], is_logits=True).predicted.tolist() == [first, first]


@each_kernel
@each_precision
@pytest.mark.parametrize("n_classes", [2, 10, 65])
def test_a_class_of_probability_zero_that_happens_makes_the_loss_infinite_and_nothing_else(
    kernel: Any, dtype: Precision, n_classes: int
) -> None:
    array = np.eye(n_classes, dtype=dtype)
    numbers = fused(kernel, array, np.roll(np.arange(n_classes), 1), is_logits=False).numbers
    assert (numbers[LOSS] == np.inf).all()
    assert np.isfinite(np.delete(numbers, LOSS, axis=0)).all()
    assert (numbers[BRIER] == 2).all()


@each_kernel
@each_precision
@pytest.mark.parametrize("is_logits", [True, False])
def test_a_missing_label_leaves_the_other_numbers_alone(
    kernel: Any, dtype: Precision, is_logits: bool
) -> None:
    array = np.random.default_rng(0).dirichlet(np.ones(4), 9).astype(dtype)
    labeled = fused(kernel, array, np.full(9, 2), is_logits=is_logits).numbers
    missing = fused(kernel, array, np.full(9, -1), is_logits=is_logits).numbers
    assert (missing[:LOSS] == labeled[:LOSS]).all()
    assert not missing[LOSS:].any()


def nasty_logits(draw: Any, dtype: Precision) -> Floats:
    info = np.finfo(dtype)
    special = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e4, -1e4, float(info.min), float(info.tiny)])
    anything = st.floats(-(2.0**99), 2.0**99, width=32 if dtype is np.float32 else 64)
    shape = draw(st.tuples(st.integers(1, 4), st.sampled_from([2, 3, 65])))
    array: Floats = draw(hnp.arrays(dtype, shape, elements=special | anything))
    return array


@st.composite
def logits_and_labels(draw: Any) -> tuple[Floats, NDArray[np.int64]]:
    array = nasty_logits(draw, draw(st.sampled_from([np.float32, np.float64])))
    n_rows, n_classes = array.shape
    return array, draw(hnp.arrays(np.int64, n_rows, elements=st.integers(-1, n_classes - 1)))


@pytest.mark.slow
@settings(max_examples=75)
@given(logits_and_labels())
def test_numbers_of_nasty_logits_stay_in_their_ranges(
    given_rows: tuple[Floats, NDArray[np.int64]],
) -> None:
    array, labels = given_rows
    n_classes = array.shape[1]
    narrow = fused(rows.narrow_rows, array, labels, is_logits=True)
    wide = fused(rows.wide_rows, array, labels, is_logits=True)
    assert_same(narrow, wide, array.dtype.type)
    confidence, uncertainty, entropy, variance, squares, _, loss, brier = wide.numbers
    slack = 1e-6
    assert np.isfinite(np.delete(wide.numbers, LOSS, axis=0)).all()
    assert (np.isfinite(loss) | (loss == np.inf)).all()
    assert ((confidence >= 1 / n_classes - slack) & (confidence <= 1)).all()
    close(confidence + uncertainty, 1, rtol=1e-15)
    assert ((entropy >= 0) & (entropy <= np.log(n_classes) + slack)).all()
    assert (variance >= 0).all()
    assert ((squares >= 1 / n_classes - slack) & (squares <= 1 + slack)).all()
    assert (loss >= 0).all()
    assert ((brier >= 0) & (brier <= 2 + slack)).all()


@pytest.mark.slow
@each_kernel
@settings(max_examples=50)
@given(given_rows=logits_and_labels(), seed=st.integers(0, 100))
def test_permuting_the_classes_permutes_the_answer(
    kernel: Any, given_rows: tuple[Floats, NDArray[np.int64]], seed: int
) -> None:
    array, labels = given_rows
    order = np.random.default_rng(seed).permutation(array.shape[1])
    place = np.argsort(order)
    before = fused(kernel, array, labels, is_logits=True)
    after = fused(kernel, array[:, order], np.where(labels < 0, -1, place[labels]), is_logits=True)
    top = np.take_along_axis(array, before.predicted[:, np.newaxis], axis=1)
    has_one_top = (array == top).sum(axis=1) == 1
    assert (order[after.predicted] == before.predicted)[has_one_top].all()
    # On a tie another class may be the predicted one, which changes how the sums are rounded.
    tolerance = TOLERANCE[array.dtype.type]
    close(after.numbers, before.numbers, rtol=tolerance, atol=10 * tolerance)
