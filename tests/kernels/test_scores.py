"""Weighted sums of row numbers are those of plain NumPy, infinite losses counted apart."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dubito.arrays import freeze
from dubito.kernels.sums import N_SCORES, N_SURPRISES, score_sums, surprise_sums

Floats = NDArray[np.floating[Any]]

LOSS_SUM, IMPOSSIBLE, N_IMPOSSIBLE = 6, 7, 8


def sums_of(weights: Any, columns: Any) -> Floats:
    sums = np.full(N_SCORES, np.nan)
    score_sums(freeze(np.asarray(weights, np.float64)), *map(freeze, columns), sums)
    return sums


def plain(weights: Floats, columns: Floats) -> Floats:
    *others, losses = columns
    is_impossible = np.isinf(losses) & (weights > 0)
    finite = np.where(np.isinf(losses), 0, losses)
    sums = [weights.sum(), *((weights * column).sum() for column in others)]
    sums += [(weights * finite).sum(), weights[is_impossible].sum(), is_impossible.sum()]
    return np.array(sums)


def of_losses(weights: list[float], losses: list[float]) -> list[float]:
    columns = np.zeros((6, len(weights)))
    columns[-1] = losses
    return [float(number) for number in sums_of(weights, columns)[LOSS_SUM:]]


@pytest.mark.parametrize("n_rows", [0, 1, 2, 3, 1000])
@pytest.mark.parametrize("share_impossible", [0.0, 0.3, 1.0])
def test_sums_match_numpy_reference(n_rows: int, share_impossible: float) -> None:
    rng = np.random.default_rng(n_rows)
    weights = rng.random(n_rows) * rng.integers(0, 2, n_rows)
    columns = rng.random((6, n_rows))
    columns[-1, rng.random(n_rows) < share_impossible] = np.inf
    assert_allclose(sums_of(weights, columns), plain(weights, columns), rtol=1e-12, atol=1e-300)


def test_each_number_is_summed_in_its_place() -> None:
    sums = sums_of([2.0], np.array([[1.0], [3.0], [5.0], [7.0], [11.0], [13.0]]))
    assert sums.tolist() == [2, 2, 6, 10, 14, 22, 26, 0, 0]


def test_infinite_losses_are_counted_apart() -> None:
    assert of_losses([1.0, 2.0, 4.0], [0.5, np.inf, np.inf]) == [0.5, 6.0, 2.0]


def test_an_infinite_loss_without_weight_does_not_count() -> None:
    assert of_losses([1.0, 0.0], [0.5, np.inf]) == [0.5, 0.0, 0.0]
    assert of_losses([0.0], [np.inf]) == [0.0, 0.0, 0.0]


def test_a_large_loss_is_no_infinite_one() -> None:
    largest = float(np.finfo(np.float64).max)
    assert of_losses([1.0, 1.0], [largest, np.inf]) == [largest, 1.0, 1.0]


def test_no_rows_overwrite_what_was_there_with_zeros() -> None:
    assert sums_of([], np.empty((6, 0))).tolist() == [0.0] * N_SCORES


@pytest.mark.slow
@settings(max_examples=75)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.0, 0.5, 1.0, 3.0]), st.sampled_from([0.0, 0.25, 8.0, np.inf])),
        max_size=40,
    )
)
def test_any_losses_match_numpy_reference(rows: list[tuple[float, float]]) -> None:
    weights, losses = np.array(rows, np.float64).reshape(-1, 2).T
    columns = np.vstack([np.ones((5, losses.size)), losses])
    assert sums_of(weights, columns).tolist() == plain(weights, columns).tolist()


@pytest.mark.parametrize("n_rows", [0, 1, 3, 1000])
@pytest.mark.parametrize("share_impossible", [0.0, 0.3])
def test_sums_of_the_calibration_test_match_numpy_reference(
    n_rows: int, share_impossible: float
) -> None:
    rng = np.random.default_rng(n_rows)
    w = rng.random(n_rows) * rng.integers(0, 2, n_rows)
    correct, c, entropy, variance, losses = rng.uniform(0.01, 1, (5, n_rows))
    losses[rng.random(n_rows) < share_impossible] = np.inf
    sums, uncertainty = np.full(N_SURPRISES, np.nan), 1 - c
    columns = (w, correct, c, uncertainty, entropy, variance, losses)
    surprise_sums(*map(freeze, columns), sums)
    finite = np.where(np.isinf(losses), entropy, losses)
    expected = [
        (np.isinf(losses) & (w > 0)).sum(),
        w.sum(),
        (w * (finite - entropy)).sum(),
        (w * (c - correct)).sum(),
        (w * variance).sum(),
        (w * c * uncertainty).sum(),
        (w * c * (np.log(c) + entropy)).sum(),
        (w * (1 - correct)).sum(),
        (w * uncertainty).sum(),
    ]
    assert_allclose(sums, expected, rtol=1e-12, atol=1e-12)
