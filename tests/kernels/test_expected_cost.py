"""Expected costs a row, against plain NumPy."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from scipy import special

from dubito.arrays import freeze
from dubito.kernels.expected_cost import (
    ACTION,
    CLASS,
    COST,
    EXCESS,
    PROBABILITY,
    narrow_costs,
    narrow_least,
    share_rows,
)


@pytest.mark.slow
@pytest.mark.parametrize("is_logits", [True, False])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(1, 2), (255, 3), (256, 10), (513, 64)])
def test_shares_costs_and_the_least_of_them(
    some_rows: Callable[..., Any], shape: tuple[int, int], dtype: Any, is_logits: bool
) -> None:
    array, logits = some_rows(0, shape, dtype, is_logits)
    p = special.softmax(logits, axis=1) if is_logits else array.astype(np.float64)
    p = p / p.sum(axis=1, keepdims=True)
    shares = np.empty(shape)
    share_rows(freeze(array), is_logits, shares)
    close(shares, p, rtol=1e-12)
    rng = np.random.default_rng(1)
    base = rng.random((4, shape[1]))
    for n_entries in (0, 1, 3 * shape[1]):
        entries = np.column_stack([rng.integers(0, size, n_entries) for size in (4, shape[1], 2)])
        values = rng.random((2, shape[0]))
        expected = p @ base.T
        for a, k, v in entries.tolist():
            expected[:, a] += p[:, k] * values[v]
        result = np.empty((shape[0], 4))
        common = freeze(array), is_logits, freeze(base), freeze(entries), freeze(values)
        narrow_costs(*common, result)
        close(result, expected, rtol=1e-12)
        for reject, margin in ((-1, 0.0), (1, 0.05)):
            choices, numbers = np.empty((2, shape[0]), np.int64), np.empty((3, shape[0]))
            rejects = freeze(np.array([reject] if reject >= 0 else [], np.int64))
            narrow_least(*common, rejects, margin, choices, numbers)
            three = expected[:, :3]
            wanted = three.argmin(axis=1)
            if reject >= 0:
                is_near = three[:, reject] <= three.min(axis=1) + margin
                wanted = np.where(is_near, reject, wanted)
            assert choices[ACTION].tolist() == wanted.tolist()
            paid = expected[np.arange(shape[0]), wanted] + expected[:, 3]
            close(numbers[COST], paid, rtol=1e-12)
            others = [number for number in range(3) if number != reject]
            close(numbers[EXCESS], three[:, others].min(axis=1), rtol=1e-12)
            assert choices[CLASS].tolist() == array.argmax(axis=1).tolist()
            tops = (p if is_logits else array).max(axis=1)
            close(numbers[PROBABILITY], tops, rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_saturated_rows(dtype: Any) -> None:
    top = np.finfo(dtype).max
    array = np.array([[top, -top], [1e4, 0], [0, 0], [-top, -top]], dtype)
    shares = np.empty((4, 2))
    with np.errstate(over="ignore"):
        share_rows(freeze(array), True, shares)
    close(shares, np.array([[1, 0], [1, 0], [0.5, 0.5], [0.5, 0.5]]), atol=1e-300)
    result = np.empty((4, 1))
    narrow_costs(
        freeze(array),
        True,
        freeze(np.array([[0.0, 1.0]])),
        freeze(np.empty((0, 3), np.int64)),
        freeze(np.empty((0, 0))),
        result,
    )
    close(result[:, 0], np.array([0, 0, 0.5, 0.5]), atol=1e-300)
