"""Bins are closed on the right, and their sums are those of a plain loop."""

from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray
from scipy import special

from dubito.arrays import freeze
from dubito.kernels.bins import bin_indices, reliability_sums, tempered_gaps

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


def test_the_neighbors_of_an_edge_fall_on_their_own_side() -> None:
    edges = np.linspace(0, 1, 16)
    values = [np.nextafter(edges[2], 0), edges[2], np.nextafter(edges[2], 1)]
    assert indices_of(values, edges) == [1, 1, 2]


def test_values_beyond_the_edges_belong_to_the_outer_bins() -> None:
    assert indices_of([-1.0, 1.0000001, 7.0], [0.0, 0.5, 1.0]) == [0, 1, 1]


def test_a_single_bin_holds_everything() -> None:
    assert indices_of([0.0, 0.3, 1.0], [0.0, 1.0]) == [0, 0, 0]


@pytest.mark.slow
@settings(max_examples=75)
@given(
    st.lists(st.floats(0, 1), max_size=20),
    st.lists(st.floats(0, 1, exclude_min=True, exclude_max=True), max_size=20, unique=True),
)
def test_indices_of_any_bins_match_python_reference(
    values: list[float], inner: list[float]
) -> None:
    edges = [0.0, *sorted(inner), 1.0]
    values = [*values, *edges]
    assert indices_of(values, edges) == [plain_index(value, edges) for value in values]


class Columns(NamedTuple):
    confidence: Floats
    uncertainty: Floats
    correct: Floats
    weights: Floats


def some_columns(n_rows: int) -> Columns:
    rng = np.random.default_rng(n_rows)
    confidence = rng.choice([0.0, 0.25, 0.5, 0.6, 1.0], n_rows)
    weights = rng.random(n_rows) * rng.integers(0, 2, n_rows)
    return Columns(confidence, 1 - confidence, rng.random(n_rows), weights)


def sums_of(columns: Columns, edges: list[float], sums: Floats | None = None) -> Floats:
    sums = np.zeros((6, len(edges) - 1)) if sums is None else sums
    given = (*columns, np.full(len(columns.weights), 0.5), np.array(edges))
    reliability_sums(*map(freeze, given), sums)
    return sums


def plain_sums(columns: Columns, edges: list[float]) -> Floats:
    sums = np.zeros((6, len(edges) - 1))
    for confidence, uncertainty, correct, weight in zip(*columns, strict=True):
        if weight > 0:
            variance = weight * confidence * uncertainty
            each = [weight, 2 * weight**2, weight * confidence, weight * correct, variance, 1]
            sums[:, plain_index(confidence, edges)] += each
    return sums


@pytest.mark.parametrize("n_rows", [0, 1, 1000])
@pytest.mark.parametrize("edges", [[0.0, 1.0], [0.0, 0.25, 0.5, 0.75, 1.0]], ids=["one", "four"])
def test_sums_match_numpy_reference(n_rows: int, edges: list[float]) -> None:
    columns = some_columns(n_rows)
    assert_allclose(sums_of(columns, edges), plain_sums(columns, edges), rtol=1e-12)


def test_a_bin_without_rows_holds_exactly_nothing() -> None:
    sums = sums_of(some_columns(1000), [0.0, 0.25, 0.5, 0.75, 0.99, 1.0])
    assert not sums[:, 3].any()


def test_rows_without_weight_are_not_counted_whatever_they_hold() -> None:
    rows = Columns(np.array([0.4, 0.4]), np.array([0.6, np.inf]), np.ones(2), np.array([2.0, 0.0]))
    expected = [[2.0], [8.0], [0.8], [2.0], [2 * 0.4 * 0.6], [1.0]]
    assert_allclose(sums_of(rows, [0.0, 1.0]), expected, rtol=1e-15)


def test_the_variance_of_a_saturated_row_keeps_its_digits() -> None:
    rows = Columns(np.ones(1), np.array([1e-30]), np.ones(1), np.ones(1))
    assert sums_of(rows, [0.0, 1.0])[4].tolist() == [1e-30]


def test_sums_add_to_what_is_there() -> None:
    columns, edges = some_columns(50), [0.0, 0.5, 1.0]
    twice = sums_of(columns, edges, sums_of(columns, edges))
    assert_allclose(twice, 2 * plain_sums(columns, edges), rtol=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("is_logits", [True, False])
def test_gaps_of_tempered_rows_are_those_of_a_plain_softmax(
    some_rows: Any, dtype: type, is_logits: bool
) -> None:
    array, logits = some_rows(0, (30, 7), dtype, is_logits)
    rng = np.random.default_rng(0)
    correct, weight = rng.random(30), rng.integers(0, 3, 30).astype(np.float64)
    betas, edges = np.geomspace(1e-3, 1e3, 700), np.linspace(0, 1, 11)  # more than one block
    sums = np.zeros((700, 10))
    arguments = (array, correct, weight, betas)
    tempered_gaps(*map(freeze, arguments), is_logits, 1e-12, freeze(edges), sums)
    for beta, found in zip(betas, sums, strict=True):
        confidence = special.softmax(beta * logits, axis=1).max(axis=1)
        expected = np.zeros(10)
        for p, is_right, w in zip(confidence, correct, weight, strict=True):
            expected[plain_index(p, edges.tolist())] += w * (p - is_right)
        assert_allclose(found, expected, atol=1e-9)
