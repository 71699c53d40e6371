"""Draws follow the Poisson law, and depend on seed and row number alone."""

from itertools import pairwise
from math import exp, factorial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dubito.arrays import freeze
from dubito.kernels.sums import ABOVE, poisson_weights

Floats = NDArray[np.float64]

N_DRAWS = 1_000_000
MAX_ERRORS = 5  # standard errors from the expected value that still pass for chance

each_seed = pytest.mark.parametrize("seed", [0, 1, 2**40, 2**63 - 1])


def weights_of(weights: Any, seed: int, first_row: int = 0) -> Floats:
    weights = np.asarray(weights, np.float64)
    resampled = np.full(weights.size, np.nan)
    poisson_weights(freeze(weights), np.uint64(seed), first_row, resampled)
    return resampled


def draws(seed: int, n_rows: int = N_DRAWS, first_row: int = 0) -> Floats:
    return weights_of(np.ones(n_rows), seed, first_row)


def plain_draw(seed: int, row: int) -> int:
    """Return the draw of a row, by SplitMix64 in whole numbers and the inverse of the law."""
    x = ((row + 1) * 0x9E3779B97F4A7C15 + seed) % 2**64
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) % 2**64
    uniform = ((x ^ (x >> 31)) >> 32) / 2**32
    times, above = 0, 1 - exp(-1)
    while uniform < above:
        times += 1
        above -= exp(-1) / factorial(times)
    return times


def correlation(a: Floats, b: Floats) -> float:
    return float(np.corrcoef(a, b)[0, 1])


@each_seed
def test_draws_match_python_reference(seed: int) -> None:
    rows = [*range(200), 2**31, 2**40]
    got = [int(draws(seed, 1, row)[0]) for row in rows]
    assert got == [plain_draw(seed, row) for row in rows]


@each_seed
def test_mean_and_variance_are_those_of_the_law(seed: int) -> None:
    drawn = draws(seed)
    assert abs(drawn.mean() - 1) < MAX_ERRORS / N_DRAWS**0.5
    # The fourth central moment is 4: the squared deviation has variance 4 - 1.
    assert abs(drawn.var() - 1) < MAX_ERRORS * (3 / N_DRAWS) ** 0.5


@each_seed
def test_frequencies_are_those_of_the_law(seed: int) -> None:
    drawn = draws(seed).astype(np.int64)
    assert drawn.max() <= len(ABOVE)
    for times in range(8):
        p = exp(-1) / factorial(times)
        error = (p * (1 - p) / N_DRAWS) ** 0.5
        assert abs((drawn == times).mean() - p) < MAX_ERRORS * error


def test_draws_are_whole_numbers_from_0_up() -> None:
    drawn = draws(3)
    assert (drawn >= 0).all()
    assert (drawn == np.round(drawn)).all()


@each_seed
def test_the_same_seed_repeats(seed: int) -> None:
    assert (draws(seed, 1000) == draws(seed, 1000)).all()


@pytest.mark.parametrize(("a", "b"), [(0, 1), (1, 2), (0, 2**32), (7, 7 + 2**63)])
def test_seeds_are_uncorrelated(a: int, b: int) -> None:
    assert abs(correlation(draws(a), draws(b))) < MAX_ERRORS / N_DRAWS**0.5


@pytest.mark.parametrize("lag", [1, 2, 64, 1 << 16])
def test_rows_are_uncorrelated(lag: int) -> None:
    drawn = draws(11)
    assert abs(correlation(drawn[lag:], drawn[:-lag])) < MAX_ERRORS / (N_DRAWS - lag) ** 0.5


@given(
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**40),
    st.lists(st.integers(0, 200), max_size=5),
)
def test_any_split_draws_what_the_whole_does(seed: int, first_row: int, cuts: list[int]) -> None:
    whole = draws(seed, 200, first_row)
    ends = [0, *sorted(cuts), 200]
    pieces = [draws(seed, high - low, first_row + low) for low, high in pairwise(ends)]
    assert np.concatenate(pieces).tolist() == whole.tolist()


@pytest.mark.parametrize("weight", [0.01, 0.5, 1.0, 2.0, 7.5, 16.0])
def test_a_weight_is_the_mean_of_a_poisson_law(weight: float) -> None:
    drawn = weights_of(np.full(N_DRAWS, weight), 5)
    for times in range(12):
        p = stats.poisson.pmf(times, weight)
        error = (p * (1 - p) / N_DRAWS) ** 0.5
        assert abs((drawn == times).mean() - p) <= MAX_ERRORS * error


@pytest.mark.parametrize("weight", [17.0, 1000.0, 1e6, 1e99])
def test_large_weights_have_the_mean_and_variance_of_the_law(weight: float) -> None:
    drawn = weights_of(np.full(N_DRAWS, weight), 5)
    assert drawn.min() >= 0
    assert drawn.mean() / weight == pytest.approx(1, abs=MAX_ERRORS / (weight * N_DRAWS) ** 0.5)
    if weight < 1e10:  # beyond, rounding hides the draws
        assert drawn.var() / weight == pytest.approx(1, abs=MAX_ERRORS * (3 / N_DRAWS) ** 0.5)


def test_a_weight_of_0_is_never_drawn() -> None:
    assert not weights_of(np.zeros(1000), 5).any()


def test_no_rows_have_no_draws() -> None:
    assert draws(0, 0).size == 0
