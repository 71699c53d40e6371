"""Directions and heaps of least distances, against NumPy; slack decides what is measured."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose as close

from dubito.arrays import contiguous
from dubito.kernels.distances import nearest_rows, unit_rows

Precision = type[np.floating[Any]]

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@each_precision
@pytest.mark.parametrize("power", [-300, -150, -30, 0, 30, 150, 300])
def test_rows_of_any_size_get_length_1(dtype: Precision, power: int) -> None:
    rows = np.random.default_rng(0).normal(0, 1, (20, 33))
    scaled = (rows * 10.0**power).astype(np.float64 if abs(power) > 30 else dtype)
    result = np.full(rows.shape, np.nan, dtype)
    unit_rows(contiguous(scaled), result)
    expected = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    close(result, expected, rtol=1e-13 if dtype is np.float64 else 1e-6)


def test_rows_of_zeros_stay_and_the_smallest_numbers_have_a_direction() -> None:
    least = np.finfo(np.float64).smallest_subnormal
    rows = np.array([[0.0, -0.0], [least, 0.0], [least, -least], [1.7e308, 1.7e308]])
    result = np.full(rows.shape, np.nan)
    unit_rows(contiguous(rows), result)
    root = np.sqrt(0.5)
    close(result, [[0, 0], [1, 0], [root, -root], [root, root]], rtol=1e-15)


def distances(known: Any, queries: Any, k: int, slack: float, products: Any) -> Any:
    heaps = np.full((len(queries), k), np.inf)
    nearest_rows(
        contiguous(products.astype(np.float32)),
        contiguous((np.square(known).sum(axis=1) / 2).astype(np.float32)),
        contiguous(known),
        contiguous(queries.astype(np.float64)),
        contiguous(np.linalg.norm(queries.astype(np.float64), axis=1)),
        contiguous(np.full(len(queries), slack)),
        1.0,
        heaps,
    )
    return heaps


@each_precision
@pytest.mark.parametrize("k", [1, 2, 7, 200])
def test_heaps_hold_the_least_distances(dtype: Precision, k: int) -> None:
    rng = np.random.default_rng(0)
    known, queries = rng.normal(0, 1, (200, 9)).astype(dtype), rng.normal(0, 1, (30, 9))
    heaps = distances(known, queries, k, 1e-3, queries @ known.T)
    gaps = known[np.newaxis].astype(np.float64) - queries[:, np.newaxis]
    expected = np.sort(np.linalg.norm(gaps, axis=2), axis=1)[:, :k]
    close(np.sort(heaps, axis=1), expected, rtol=1e-13)
    close(heaps[:, 0], expected[:, -1], rtol=1e-13)


@pytest.mark.slow
@settings(max_examples=50)
@given(st.integers(0, 10_000), st.floats(1e-6, 0.5))
def test_keys_that_are_off_by_less_than_the_slack_do_no_harm(seed: int, off: float) -> None:
    rng = np.random.default_rng(seed)
    known, queries = rng.normal(0, 1, (100, 4)), rng.normal(0, 1, (5, 4))
    products = queries @ known.T + off * rng.choice([-1, 1], (5, 100))
    heaps = distances(known, queries, 3, off * 1.01 + 1e-5, products)
    gaps = np.linalg.norm(known[np.newaxis] - queries[:, np.newaxis], axis=2)
    close(heaps[:, 0], np.sort(gaps, axis=1)[:, 2], rtol=1e-13)


@pytest.mark.parametrize("product", [np.nan, np.inf, -np.inf])
def test_products_that_say_nothing_are_not_believed(product: float) -> None:
    known, queries = np.arange(70.0).reshape(-1, 1), np.array([[33.2]])
    heaps = distances(known, queries, 1, np.inf, np.full((1, 70), product))
    close(heaps, [[0.2]], rtol=1e-12)
