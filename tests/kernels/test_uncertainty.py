"""All uncertainty scores match a reference of higher precision, lanes over rows and classes."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.random import Generator
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray

from dubito.arrays import contiguous
from dubito.kernels import uncertainty as kernels
from dubito.kernels.uncertainty import (
    ENERGY,
    ENTROPY,
    LEAST_CONFIDENCE,
    MARGIN_UNCERTAINTY,
    N_SCORES,
    TILE,
)

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

TOLERANCE = {np.float32: 5e-7, np.float64: 2e-14}

each_kernel = pytest.mark.parametrize(
    "kernel", [kernels.narrow_scores, kernels.wide_scores], ids=["narrow", "wide"]
)
each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_width = pytest.mark.parametrize("n_classes", [2, 3, 10, 63, 64, 65, 257, 1000, 1025])


def fused(kernel: Any, array: Floats, *, is_logits: bool) -> Floats:
    result = np.full((N_SCORES, len(array) + 1), np.nan)
    kernel(contiguous(array), is_logits, result[:, : len(array)])
    assert np.isnan(result[:, -1]).all()
    return result[:, :-1]


def plain(array: Floats, *, is_logits: bool) -> Floats:
    x = np.sort(array.astype(np.longdouble), axis=1)[:, ::-1]
    with np.errstate(divide="ignore"):
        distance = x - x[:, :1] if is_logits else np.log(x) - np.log(x[:, :1])
    shares = np.exp(distance)
    rest = shares[:, 1:].sum(axis=1)
    total, log_total = 1 + rest, np.log1p(rest)
    spread = (shares * np.where(shares > 0, distance, 0)).sum(axis=1)
    margin = (rest + shares[:, 1]) / total
    energy = -(x[:, 0] * is_logits + log_total)
    reference = np.stack([rest / total, log_total - spread / total, margin, energy])
    return reference.astype(np.float64)


def assert_same(got: Floats, expected: Floats, dtype: Precision) -> None:
    for number in (LEAST_CONFIDENCE, ENTROPY, MARGIN_UNCERTAINTY):
        close(got[number], expected[number], rtol=TOLERANCE[dtype], atol=1e-36)
    eps = float(np.finfo(dtype).eps)
    close(got[ENERGY], expected[ENERGY], rtol=TOLERANCE[dtype], atol=10 * eps)


def dominated(rng: Generator, shape: tuple[int, int], dtype: Precision) -> Floats:
    logits = rng.normal(0, 2, shape)
    logits[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] += rng.uniform(0, 80, shape[0])
    return logits.astype(dtype)


def overflowing(rng: Generator, shape: tuple[int, int], dtype: Precision) -> Floats:
    info = np.finfo(dtype)
    return rng.choice(np.array([info.min, info.max, 0], dtype), shape)


def nearly_sure(rng: Generator, shape: tuple[int, int], dtype: Precision) -> Floats:
    shares = 10.0 ** rng.uniform(-36, -8, shape)
    shares[np.arange(shape[0]), rng.integers(0, shape[1], shape[0])] = 1
    return shares.astype(dtype)


def with_zeros(rng: Generator, shape: tuple[int, int], dtype: Precision) -> Floats:
    shares = rng.random(shape) * (rng.random(shape) < 0.5)
    shares[:, 0] += 1e-3
    return np.asarray(shares / shares.sum(axis=1, keepdims=True), dtype)


LOGITS: dict[str, Callable[[Generator, tuple[int, int], Precision], Floats]] = {
    "plain": lambda rng, shape, dtype: rng.normal(0, 3, shape).astype(dtype),
    "far from 0": lambda rng, shape, dtype: rng.normal(1e3, 3, shape).astype(dtype),
    "one class dominates": dominated,
    "ties": lambda rng, shape, dtype: rng.integers(0, 3, shape).astype(dtype),
    "all the same": lambda rng, shape, dtype: np.full(shape, 7, dtype),
    "saturated": lambda rng, shape, dtype: rng.choice(np.array([-1e4, 1e4], dtype), shape),
    "spread that overflows": overflowing,
}
PROBABILITIES: dict[str, Callable[[Generator, tuple[int, int], Precision], Floats]] = {
    "plain": lambda rng, shape, dtype: rng.dirichlet(np.ones(shape[1]), shape[0]).astype(dtype),
    "uniform": lambda rng, shape, dtype: np.full(shape, 1 / shape[1], dtype),
    "one-hot": lambda rng, shape, dtype: np.eye(shape[1], dtype=dtype)[
        rng.integers(0, shape[1], shape[0])
    ],
    "nearly sure": nearly_sure,
    "with zeros": with_zeros,
}


@each_kernel
@each_precision
@each_width
@pytest.mark.parametrize("case", LOGITS)
def test_uncertainty_of_logits_matches_numpy_reference(
    kernel: Any, dtype: Precision, n_classes: int, case: str
) -> None:
    array = LOGITS[case](np.random.default_rng(n_classes), (20, n_classes), dtype)
    expected = plain(array, is_logits=True)
    assert_same(fused(kernel, array, is_logits=True), expected, dtype)


@each_kernel
@each_precision
@each_width
@pytest.mark.parametrize("case", PROBABILITIES)
def test_uncertainty_of_probabilities_matches_numpy_reference(
    kernel: Any, dtype: Precision, n_classes: int, case: str
) -> None:
    array = PROBABILITIES[case](np.random.default_rng(n_classes), (20, n_classes), dtype)
    expected = plain(array, is_logits=False)
    assert_same(fused(kernel, array, is_logits=False), expected, dtype)


@each_kernel
@each_precision
@pytest.mark.parametrize("n_rows", [0, 1, TILE - 1, TILE, TILE + 1, 2 * TILE + 7])
def test_any_number_of_rows_fills_every_row(kernel: Any, dtype: Precision, n_rows: int) -> None:
    array = np.random.default_rng(n_rows).normal(size=(n_rows, 5)).astype(dtype)
    expected = plain(array, is_logits=True)
    assert_same(fused(kernel, array, is_logits=True), expected, dtype)


@each_kernel
@each_precision
@pytest.mark.parametrize("n_classes", [2, 7, 100])
def test_scores_of_logits_differ_however_certain_the_row(
    kernel: Any, dtype: Precision, n_classes: int
) -> None:
    logits = np.zeros((700, n_classes), dtype)
    logits[:, n_classes // 2] = np.arange(700)
    numbers = fused(kernel, logits, is_logits=True)
    # Beyond the range of float32, too: what is left is in float64.
    close(numbers[LEAST_CONFIDENCE, 20:], (n_classes - 1) * np.exp(-np.arange(20, 700.0)), 1e-6)
    assert (np.diff(numbers[:3], axis=1) < 0).all()


@st.composite
def nasty_logits(draw: Any) -> Floats:
    dtype: Precision = draw(st.sampled_from([np.float32, np.float64]))
    info = np.finfo(dtype)
    special = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e4, -1e4, float(info.min), float(info.tiny)])
    anything = st.floats(-(2.0**99), 2.0**99, width=32 if dtype is np.float32 else 64)
    shape = draw(st.tuples(st.integers(1, 4), st.sampled_from([2, 3, 65])))
    array: Floats = draw(hnp.arrays(dtype, shape, elements=special | anything))
    return array


@pytest.mark.slow
@settings(max_examples=75)
@given(nasty_logits())
def test_scores_of_extreme_logits_stay_in_their_ranges(array: Floats) -> None:
    narrow = fused(kernels.narrow_scores, array, is_logits=True)
    wide = fused(kernels.wide_scores, array, is_logits=True)
    assert_same(narrow, wide, array.dtype.type)
    least, entropy, margin, _ = wide
    n_classes = array.shape[1]
    assert np.isfinite(wide).all()
    assert ((least >= 0) & (least <= 1 - 1 / n_classes + 1e-6)).all()
    assert ((entropy >= 0) & (entropy <= np.log(n_classes) + 1e-6)).all()
    assert ((margin >= least) & (margin <= 1)).all()


@pytest.mark.slow
@each_kernel
@settings(max_examples=50)
@given(array=nasty_logits(), seed=st.integers(0, 100))
def test_the_order_of_the_classes_does_not_matter(kernel: Any, array: Floats, seed: int) -> None:
    order = np.random.default_rng(seed).permutation(array.shape[1])
    before = fused(kernel, array, is_logits=True)
    after = fused(kernel, array[:, order], is_logits=True)
    assert_same(after, before, array.dtype.type)
