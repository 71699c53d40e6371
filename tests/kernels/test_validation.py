"""The first invalid entry or row is found at any position, and no other."""

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dubito.arrays import contiguous
from dubito.kernels.row_statistics import CHUNK, FAULTLESS, first_not_finite, probability_faults

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

TOLERANCE = 1e-3

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_width = pytest.mark.parametrize("n_classes", [2, 3, 10, 63, 64, 65, 200, 1000, 1025])


def plain_faults(array: Floats) -> tuple[int, float]:
    furthest = 0.0
    for i, row in enumerate(array.astype(np.float64)):
        distance = abs(float(row.sum()) - 1)
        if not np.isfinite(row).all() or (row < 0).any() or distance > TOLERANCE:
            return i, furthest
        furthest = max(furthest, distance)
    return FAULTLESS, furthest


def some_distributions(n_rows: int, n_classes: int, dtype: Precision) -> Floats:
    rng = np.random.default_rng(n_classes)
    return rng.dirichlet(np.ones(n_classes), n_rows).astype(dtype)


@each_precision
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("size", [1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_first_entry_that_is_not_finite_is_found(dtype: Precision, bad: float, size: int) -> None:
    for place in {0, size // 2, size - 1}:
        flat = np.ones(size, dtype)
        flat[place:] = bad
        assert first_not_finite(contiguous(flat)) == place


@each_precision
@pytest.mark.parametrize("size", [0, 1, CHUNK, 2 * CHUNK + 1])
def test_large_tiny_and_signed_numbers_are_finite(dtype: Precision, size: int) -> None:
    info = np.finfo(dtype)
    numbers = np.array([info.max, info.min, info.tiny, info.smallest_subnormal, -0.0], dtype)
    assert first_not_finite(contiguous(np.resize(numbers, size))) == FAULTLESS


@each_precision
@each_width
def test_distributions_are_faultless_and_their_sums_measured(
    dtype: Precision, n_classes: int
) -> None:
    array = some_distributions(30, n_classes, dtype)
    array[17] *= dtype(1.0005)
    row, furthest = probability_faults(contiguous(array), TOLERANCE)
    assert row == FAULTLESS
    assert furthest == pytest.approx(plain_faults(array)[1], abs=10 * float(np.finfo(dtype).eps))


@each_precision
@each_width
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, -0.25, 1.5, 100.0])
def test_first_row_that_is_no_distribution_is_found(
    dtype: Precision, n_classes: int, bad: float
) -> None:
    for column in {0, n_classes // 2, n_classes - 1}:
        array = some_distributions(9, n_classes, dtype)
        array[4:, column] = bad
        expected, _ = plain_faults(array)
        assert expected == 4
        assert probability_faults(contiguous(array), TOLERANCE)[0] == expected


@each_precision
@each_width
def test_a_negative_entry_is_found_though_the_row_sums_to_one(
    dtype: Precision, n_classes: int
) -> None:
    array = np.zeros((2, n_classes), dtype)
    array[:, 0] = 1
    array[1, -1] = -np.finfo(dtype).smallest_subnormal
    assert probability_faults(contiguous(array), TOLERANCE)[0] == 1


@each_precision
def test_infinities_that_cancel_are_found(dtype: Precision) -> None:
    array = np.array([[np.inf, -np.inf, 1.0]], dtype)
    assert probability_faults(contiguous(array), TOLERANCE)[0] == 0


@each_precision
def test_negative_zero_is_a_probability(dtype: Precision) -> None:
    array = np.array([[1.0, -0.0]], dtype)
    assert probability_faults(contiguous(array), TOLERANCE) == (FAULTLESS, 0.0)


@each_precision
def test_no_rows_have_no_fault(dtype: Precision) -> None:
    assert probability_faults(contiguous(np.empty((0, 3), dtype)), TOLERANCE) == (FAULTLESS, 0.0)
