"""Bins are closed on the right, and their sums are those of a plain loop."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dubito.arrays import freeze
from dubito.kernels.bins import bin_indices, bin_sums

Floats = NDArray[np.floating[Any]]


def indices_of(values: Any, edges: Any) -> list[int]:
    values, edges = np.asarray(values, np.float64), np.asarray(edges, np.float64)
    indices = np.full(values.size, -99)
    bin_indices(freeze(values), freeze(edges), indices)
    return [int(index) for index in indices]


def plain_index(value: float, edges: list[float]) -> int:
    for i, right in enumerate(edges[1:]):
        if value <= right:
            return i
    return len(edges) - 2


@pytest.mark.parametrize(
    ("value", "index"),
    [(0.0, 0), (-0.0, 0), (0.1, 0), (0.25, 0), (0.2500001, 1), (0.5, 1), (0.75, 2), (1.0, 3)],
)
def test_an_edge_belongs_to_the_bin_on_its_left(value: float, index: int) -> None:
    assert indices_of([value], [0.0, 0.25, 0.5, 0.75, 1.0]) == [index]


def test_the_neighbours_of_an_edge_fall_on_their_own_side() -> None:
    edges = np.linspace(0, 1, 16)
    values = [np.nextafter(edges[2], 0), edges[2], np.nextafter(edges[2], 1)]
    assert indices_of(values, edges) == [1, 1, 2]


def test_values_beyond_the_edges_belong_to_the_outer_bins() -> None:
    assert indices_of([-1.0, 1.0000001, 7.0], [0.0, 0.5, 1.0]) == [0, 1, 1]


def test_a_single_bin_holds_everything() -> None:
    assert indices_of([0.0, 0.3, 1.0], [0.0, 1.0]) == [0, 0, 0]


@settings(deadline=None, max_examples=150)
@given(
    st.lists(st.floats(0, 1), max_size=20),
    st.lists(st.floats(0, 1, exclude_min=True, exclude_max=True), max_size=20, unique=True),
)
def test_any_bins_agree_with_the_twin(values: list[float], inner: list[float]) -> None:
    edges = [0.0, *sorted(inner), 1.0]
    values = [*values, *edges]
    assert indices_of(values, edges) == [plain_index(value, edges) for value in values]


@pytest.mark.parametrize("n_rows", [0, 1, 1000])
def test_sums_agree_with_the_twin(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    indices, weights = rng.integers(0, 4, n_rows), rng.random(n_rows)
    columns = rng.normal(size=(3, n_rows))
    sums = np.zeros((3, 5))
    bin_sums(freeze(indices), freeze(weights), freeze(columns), sums)
    expected = [
        [(weights * column)[indices == index].sum() for index in range(5)] for column in columns
    ]
    assert_allclose(sums, expected, rtol=1e-12, atol=1e-15)


def test_sums_add_to_what_is_there() -> None:
    sums = np.array([[1.0, 2.0]])
    bin_sums(freeze(np.array([1, 1])), freeze(np.ones(2)), freeze(np.ones((1, 2))), sums)
    assert sums.tolist() == [[1.0, 4.0]]
