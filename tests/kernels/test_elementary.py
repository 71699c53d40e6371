"""exp and log are right to the last digits, and integers order floats as floats do."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numba import njit
from numpy.typing import NDArray

from dubito.kernels.compile import FAST
from dubito.kernels.elementary import (
    exponential,
    exponential_less_1,
    highest,
    logarithm,
    logarithm_past_1,
    ordered,
    tangent,
)

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def on_arrays(function: Callable[[Any], Any]) -> Any:
    def fill(values: Any, results: Any) -> None:
        for i in range(values.size):
            results[i] = function(values[i])

    return njit(**FAST)(fill)


exponentials, logarithms, orders = map(on_arrays, (exponential, logarithm, ordered))
logarithms_past_1 = on_arrays(logarithm_past_1)
exponentials_less_1, tangents = map(on_arrays, (exponential_less_1, tangent))


@njit(**FAST)  # type: ignore[untyped-decorator]
def highest_of_row(row: Any) -> Any:
    return highest(row)  # type: ignore[no-untyped-call]


def applied(kernel: Any, values: Floats) -> Floats:
    results = np.empty_like(values)
    kernel(values, results)
    return results


def units_in_the_last_place(got: Floats, exact: NDArray[np.longdouble]) -> float:
    return float(np.max(np.abs(got - exact) / np.spacing(np.abs(exact).astype(got.dtype))))


@pytest.mark.slow
@each_precision
def test_exponential_is_right_to_one_and_a_half_units(dtype: Precision) -> None:
    lowest = np.log(np.finfo(dtype).tiny)
    everywhere = np.linspace(lowest, 0, 1_000_003)
    near_zero = -np.logspace(-30, np.log10(-lowest), 200_000)
    x = np.concatenate([everywhere[1:], near_zero[:-1], [0.0, -0.0]]).astype(dtype)
    exact = np.exp(x.astype(np.longdouble))
    assert units_in_the_last_place(applied(exponentials, x), exact) <= 1.5


@each_precision
def test_exponential_of_nothing_is_exactly_one(dtype: Precision) -> None:
    assert applied(exponentials, np.array([0.0, -0.0], dtype)).tolist() == [1.0, 1.0]


@each_precision
def test_exponential_below_the_normal_numbers_is_zero(dtype: Precision) -> None:
    lowest = np.log(np.finfo(dtype).tiny)
    x = np.array([lowest - 0.4, -1e3, -1e4, np.finfo(dtype).min, -np.inf], dtype)
    assert applied(exponentials, x).tolist() == [0.0] * 5


@each_precision
def test_exponential_never_falls_back_as_it_rises(dtype: Precision) -> None:
    x = np.linspace(-800, 0, 1_000_003).astype(dtype)
    steps = np.diff(applied(exponentials, x).astype(np.float64))
    # One unit in the last place may be lost where the polynomial changes.
    assert (steps >= -2 * np.finfo(dtype).eps * np.exp(x[1:].astype(np.float64))).all()


@pytest.mark.slow
@each_precision
def test_logarithm_is_right_to_two_and_a_half_units(dtype: Precision) -> None:
    info = np.finfo(dtype)
    rng = np.random.default_rng(0)
    everywhere = np.exp(rng.uniform(np.log(info.tiny), np.log(info.max), 500_000))
    around_one = rng.uniform(0.5, 1.5, 500_000)
    close_to_one = 1 - np.logspace(-15, -1, 200_000)
    x = np.concatenate([everywhere, around_one, close_to_one]).astype(dtype)
    x = x[x != 1]
    exact = np.log(x.astype(np.longdouble))
    assert units_in_the_last_place(applied(logarithms, x), exact) <= 2.5


@each_precision
def test_logarithm_of_one_is_zero_and_of_nothing_is_finite(dtype: Precision) -> None:
    info = np.finfo(dtype)
    x = np.array([1.0, 0.0, info.smallest_subnormal, info.tiny], dtype)
    lowest = np.log(info.tiny)
    assert applied(logarithms, x).tolist() == [0.0, lowest, lowest, lowest]


def test_logarithm_past_one_keeps_the_smallest_numbers() -> None:
    rng = np.random.default_rng(0)
    x = np.concatenate([10 ** rng.uniform(-300, 3, 500_000), rng.uniform(0, 10, 500_000)])
    exact = np.log1p(x.astype(np.longdouble))
    assert units_in_the_last_place(applied(logarithms_past_1, x), exact) <= 3.5
    assert applied(logarithms_past_1, np.zeros(1)).tolist() == [0.0]


@each_precision
def test_ordered_compares_as_floats_do(dtype: Precision) -> None:
    info = np.finfo(dtype)
    rising = np.array([-np.inf, info.min, -1, -info.tiny, -info.smallest_subnormal, 0], dtype)
    x = np.concatenate([rising, -rising[::-1]])
    integers = np.empty(x.size, np.int64)
    orders(x, integers)
    is_less = x[:, np.newaxis] < x
    assert (is_less == (integers[:, np.newaxis] < integers)).all()
    assert ((x[:, np.newaxis] == x) == (integers[:, np.newaxis] == integers)).all()


@each_precision
def test_the_highest_of_a_row_is_numpys(dtype: Precision) -> None:
    info = np.finfo(dtype)
    edges = np.array(
        [info.min, -1, -info.tiny, -info.smallest_subnormal, -0.0, 0, info.tiny, 1, info.max], dtype
    )
    rng = np.random.default_rng(0)
    for size in (1, 2, 7, 64, 200):
        for _ in range(20):
            row = rng.choice(edges, size).astype(dtype)
            assert highest_of_row(row) == row.max()
            row = (rng.normal(size=size) - 3).astype(dtype)
            assert highest_of_row(row) == row.max()


def test_exponential_less_1_is_right_to_three_units() -> None:
    x = np.concatenate([np.linspace(0, 700, 200_003)[1:], np.logspace(-300, 2, 50_001)])
    exact = np.expm1(x.astype(np.longdouble))
    assert units_in_the_last_place(applied(exponentials_less_1, x), exact) <= 3
    assert applied(exponentials_less_1, np.zeros(1)).tolist() == [0.0]


def test_tangent_is_right_to_six_units() -> None:
    x = np.concatenate([np.linspace(-1.2, 1.2, 200_002), np.logspace(-300, 0, 50_001)])
    exact = np.tan(x.astype(np.longdouble))
    assert units_in_the_last_place(applied(tangents, x), exact) <= 6
    assert applied(tangents, np.zeros(1)).tolist() == [0.0]


FUNCTIONS = [
    exponential,
    exponential_less_1,
    highest,
    logarithm,
    logarithm_past_1,
    ordered,
    tangent,
]


@pytest.mark.parametrize("function", FUNCTIONS)
def test_outside_a_kernel_they_raise(function: Callable[[float], float]) -> None:
    with pytest.raises(NotImplementedError, match="only inside a kernel"):
        function(0.5)
