"""Sums in the inverse temperature match a float64 NumPy reference, narrow and wide."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special

from dubito.arrays import contiguous, freeze
from dubito.kernels import scaling as temperature
from dubito.kernels.scaling import TILE

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]
Make = Callable[..., tuple[Floats, NDArray[np.float64]]]

FLOOR = 1e-12
N_CLASSES = (2, 10, 17, 64, 65, 1025)
TOLERANCE = {np.float32: 3e-6, np.float64: 1e-12}

each_kernel = pytest.mark.parametrize(
    "kernel",
    [temperature.narrow_temperature_sums, temperature.wide_temperature_sums],
    ids=["narrow", "wide"],
)
each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_width = pytest.mark.parametrize("n_classes", N_CLASSES)
each_meaning = pytest.mark.parametrize("is_logits", [True, False], ids=["logits", "probabilities"])


def some_weights(seed: int, codes: NDArray[np.int64]) -> NDArray[np.float64]:
    rng = np.random.default_rng(seed)
    weight = rng.random(codes.size) * (rng.random(codes.size) < 0.8)
    return np.where(codes < 0, 0.0, weight)


def plain_labels(codes: Any, n_classes: int) -> NDArray[np.float64]:
    return np.asarray(np.eye(n_classes)[np.maximum(codes, 0)])


def plain_sums(
    z: NDArray[np.float64], q: NDArray[np.float64], weight: Any, beta: float
) -> NDArray[np.float64]:
    p = special.softmax(beta * z, axis=1)
    mean = (p * z).sum(axis=1)
    loss = special.logsumexp(beta * z, axis=1) - beta * (q * z).sum(axis=1)
    slope = beta * (mean - (q * z).sum(axis=1))
    bend = beta**2 * (p * (z - mean[:, np.newaxis]) ** 2).sum(axis=1)
    return np.array([weight.sum(), weight @ loss, weight @ slope, weight @ bend])


def fused_sums(
    kernel: Any, array: Floats, codes: Any, soft: Any, weight: Any, beta: float, is_logits: bool
) -> NDArray[np.float64]:
    scores, sums = np.full(len(array), np.nan), np.zeros(4)
    labels = contiguous(np.asarray(codes, np.int64)), contiguous(soft)
    temperature.label_scores(contiguous(array), *labels, is_logits, FLOOR, scores)
    rows = contiguous(array), freeze(scores), contiguous(weight)
    kernel(*rows, beta, is_logits, FLOOR, sums)
    return sums


def assert_same(got: Floats, expected: Floats, dtype: Precision, reach: float) -> None:
    """Slope and bend are differences: right to the digits of x and x^2, whose size is `reach`."""
    close(got[0], expected[0], rtol=1e-12)
    off = np.abs(got - expected)
    size = expected[0] * np.array([0, 1 + reach, 1 + reach, (1 + reach) ** 2])
    assert (off[1:] <= TOLERANCE[dtype] * size[1:]).all()


@each_kernel
@each_precision
@each_width
@each_meaning
@pytest.mark.parametrize("beta", [0.125, 1.0, 3.0])
def test_sums_match_numpy_reference(
    some_rows: Make, kernel: Any, dtype: Precision, n_classes: int, is_logits: bool, beta: float
) -> None:
    array, z = some_rows(n_classes, (40, n_classes), dtype, is_logits)
    codes = np.random.default_rng(n_classes).integers(-1, n_classes, 40)
    weight = some_weights(n_classes, codes)
    assert (weight == 0).any()
    assert (weight > 0).any()
    got = fused_sums(kernel, array, codes, np.empty((0, n_classes)), weight, beta, is_logits)
    q = plain_labels(codes, n_classes)
    assert_same(got, plain_sums(z, q, weight, beta), dtype, beta * 10)


@each_kernel
@each_precision
@pytest.mark.parametrize("n_classes", [2, 10, 200])
@each_meaning
def test_label_probabilities_give_expected_scores(
    some_rows: Make, kernel: Any, dtype: Precision, n_classes: int, is_logits: bool
) -> None:
    array, z = some_rows(n_classes, (40, n_classes), dtype, is_logits)
    soft = np.random.default_rng(n_classes).dirichlet(np.full(n_classes, 0.3), 40)
    codes = np.where(np.arange(40) % 7 == 0, -1, 0)
    weight = some_weights(n_classes, codes)
    got = fused_sums(kernel, array, codes, soft, weight, 0.75, is_logits)
    assert_same(got, plain_sums(z, soft, weight, 0.75), dtype, 0.75 * 15)


@each_kernel
@each_precision
@pytest.mark.parametrize("n_rows", [0, 1, TILE - 1, TILE, TILE + 1, 2 * TILE + 7])
def test_any_number_of_rows_is_summed(
    some_rows: Make, kernel: Any, dtype: Precision, n_rows: int
) -> None:
    array, z = some_rows(n_rows, (n_rows, 5), dtype, is_logits=True)
    codes = np.random.default_rng(n_rows).integers(0, 5, n_rows)
    weight = np.ones(n_rows)
    got = fused_sums(kernel, array, codes, np.empty((0, 5)), weight, 0.5, True)
    expected = plain_sums(z, plain_labels(codes, 5), weight, 0.5)
    assert_same(got, expected, dtype, 10)


@each_kernel
@each_precision
def test_sums_are_added_to_what_is_there(some_rows: Make, kernel: Any, dtype: Precision) -> None:
    array = contiguous(some_rows(0, (9, 4), dtype, is_logits=True)[0])
    scores, weight = freeze(array[:, 1].astype(np.float64)), contiguous(np.ones(9))
    once, twice = np.zeros(4), np.zeros(4)
    kernel(array, scores, weight, 1.0, True, FLOOR, once)
    for _ in range(2):
        kernel(array, scores, weight, 1.0, True, FLOOR, twice)
    close(twice, 2 * once, rtol=1e-14)
    assert once[0] == 9


@each_kernel
@each_precision
@pytest.mark.parametrize("beta", [1e-6, 1.0, 1e4])
def test_sums_of_saturated_rows_stay_finite(kernel: Any, dtype: Precision, beta: float) -> None:
    array = np.random.default_rng(0).choice(np.array([-1e4, 0, 1e4], dtype), (30, 5))
    codes, weight = np.arange(30) % 5, np.ones(30)
    got = fused_sums(kernel, array, codes, np.empty((0, 5)), weight, beta, True)
    assert np.isfinite(got).all()
    b = float(dtype(beta))
    expected = plain_sums(array.astype(np.float64), plain_labels(codes, 5), weight, b)
    close(got[:3], expected[:3], rtol=1e-5)


@each_precision
@each_meaning
@pytest.mark.parametrize("n_classes", [2, 10, 200])
def test_label_scores_read_the_label(
    some_rows: Make, dtype: Precision, is_logits: bool, n_classes: int
) -> None:
    array, z = some_rows(1, (30, n_classes), dtype, is_logits)
    codes = np.random.default_rng(1).integers(0, n_classes, 30)
    soft = np.random.default_rng(2).dirichlet(np.ones(n_classes), 30)
    scores = np.full(30, np.nan)
    rows = contiguous(array), contiguous(codes)
    none = contiguous(np.empty((0, n_classes)))
    temperature.label_scores(*rows, none, is_logits, FLOOR, scores)
    close(scores, z[np.arange(30), codes], rtol=1e-14)
    temperature.label_scores(*rows, contiguous(soft), is_logits, FLOOR, scores)
    close(scores, (soft * z).sum(axis=1), rtol=1e-12, atol=1e-12)


@each_precision
@each_meaning
@pytest.mark.parametrize("n_classes", [2, 10, 200])
@pytest.mark.parametrize("beta", [1e-6, 0.5, 1.0, 4.0])
def test_tempered_rows_are_distances_from_the_top(
    some_rows: Make, dtype: Precision, is_logits: bool, n_classes: int, beta: float
) -> None:
    array, z = some_rows(3, (30, n_classes), dtype, is_logits)
    tempered = np.full(array.shape, np.nan, dtype)
    temperature.temper_rows(contiguous(array), beta, is_logits, FLOOR, tempered)
    expected = beta * (z - z.max(axis=1, keepdims=True))
    eps = float(np.finfo(dtype).eps)
    close(tempered, expected, rtol=4 * eps, atol=30 * eps * beta)
    assert (tempered.max(axis=1) == 0).all()


@each_precision
def test_no_difference_is_rounded_to_a_tie(dtype: Precision) -> None:
    least = np.nextafter(dtype(0), dtype(1))
    logits = np.array([[0, least], [least, 0], [1, np.nextafter(dtype(1), dtype(2))]], dtype)
    tempered = np.full(logits.shape, np.nan, dtype)
    temperature.temper_rows(contiguous(logits), 1e-6, True, FLOOR, tempered)
    assert tempered.argmax(axis=1).tolist() == [1, 0, 1]
    assert ((tempered < 0) == (logits < logits.max(axis=1, keepdims=True))).all()
