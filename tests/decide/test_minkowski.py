"""Distributions in pieces: every search against a grid, every extreme finite."""

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import integrate

from dubito import Quantiles, Samples
from dubito.decide.regression import Pieces, _least_powers

Floats = NDArray[np.floating[Any]]

POWERS = [0.01, 0.3, 0.9, 1.0, 1.3, 2.0, 3.0, 7.5]


def plain_loss(values: Floats, levels: Floats | None, t: float, q: float) -> float:
    """Return the expected |y - t|^q of one row: a mean over draws, or integrals between levels."""
    if levels is None:
        return float(np.mean(np.abs(values - t) ** q))
    shares = np.diff(levels, prepend=0.0, append=1.0)
    span = values[-1] - values[0]
    below = min((values[1] - values[0]) * shares[0] / shares[1], span)
    above = min((values[-1] - values[-2]) * shares[-1] / shares[-2], span)
    knots = [values[0] - below, *values, values[-1] + above]
    total = 0.0
    for (a, b), share in zip(itertools.pairwise(knots), shares, strict=True):
        if a == b:
            total += share * abs(a - t) ** q
        else:
            ends = [a, t, b] if a < t < b else [a, b]
            area = sum(
                integrate.quad(lambda y: abs(y - t) ** q, c, d, epsabs=1e-11)[0]
                for c, d in itertools.pairwise(ends)
            )
            total += share * area / (b - a)
    return float(total)


@pytest.mark.parametrize("q", POWERS)
def test_no_grid_point_beats_the_estimate_from_draws(q: float) -> None:
    draws = np.random.default_rng(1).gamma(2.0, 1.0, (6, 17)).round(1)
    found = _least_powers(Pieces.of(Samples(draws)), q)
    for row, t, loss in zip(draws, found.estimate, found.loss, strict=True):
        grid = np.concatenate([np.linspace(row.min() - 1, row.max() + 1, 4001), row])
        losses = np.mean(np.abs(row[:, np.newaxis] - grid) ** q, axis=0)
        close(loss, plain_loss(row, None, t, q), rtol=1e-9)
        assert loss <= losses.min() * (1 + 1e-9)
        close(loss, losses.min(), rtol=2e-3)


@pytest.mark.parametrize("q", POWERS)
def test_no_grid_point_beats_the_estimate_from_quantiles(q: float) -> None:
    levels = np.array([0.05, 0.25, 0.5, 0.6, 0.95])
    rows = np.random.default_rng(2).gamma(2.0, 1.0, (3, 5))
    rows = np.sort(np.concatenate([rows, [[0.0, 1.0, 1.0, 1.0, 2.0]]]), axis=1)
    found = _least_powers(Pieces.of(Quantiles(rows, levels)), q)
    for row, t, loss in zip(rows, found.estimate, found.loss, strict=True):
        close(loss, plain_loss(row, levels, t, q), rtol=1e-7)
        grid = np.concatenate([np.linspace(row[0] - 0.5, row[-1] + 0.5, 61), row])
        assert loss <= min(plain_loss(row, levels, g, q) for g in grid) * (1 + 1e-7)


@pytest.mark.parametrize("q", [1.5, 2.0, 4.0])
def test_narrow_pieces_are_measured_without_cancellation(q: float) -> None:
    row = np.array([[0.0, 1.0, 1.0 + 1e-9, 1.0 + 2e-9, 3.0]])
    levels = np.array([0.1, 0.3, 0.5, 0.7, 0.9])
    points = np.array([[0.0, 1.0, 1.0, 1.0, 3.0]])
    near = _least_powers(Pieces.of(Quantiles(row, levels)), q)
    same = _least_powers(Pieces.of(Quantiles(points, levels)), q)
    close(near.loss, same.loss, rtol=1e-8)
    close(near.estimate, same.estimate, rtol=1e-7)


def test_the_estimate_of_many_quantiles_nears_that_of_the_law_itself() -> None:
    levels = np.arange(1, 2000) / 2000
    row = -np.log1p(-levels)[np.newaxis]  # exponential: q = 3 solved from its moments
    found = _least_powers(Pieces.of(Quantiles(row, levels)), 3.0).estimate[0]
    # The slope of E|y - t|^3 is 3 (t^2 - 2t + 2 - 4 exp(-t)); its root:
    roots = np.linspace(1.2, 1.6, 400001)
    wanted = roots[np.argmin(np.abs(roots**2 - 2 * roots + 2 - 4 * np.exp(-roots)))]
    close(found, wanted, atol=5e-3)


@pytest.mark.slow
def test_a_small_power_finds_no_mode_of_a_skewed_density() -> None:
    levels = np.arange(1, 400) / 400
    row = -np.log1p(-levels)[np.newaxis]
    found = _least_powers(Pieces.of(Quantiles(row, levels)), 1e-6).estimate[0]
    close(found, 0.3725, atol=0.02)  # the root of the exponential integral Ei; the mode is 0


@pytest.mark.slow
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 3), st.integers(1, 6)),
        elements=st.floats(-1e308, 1e308) | st.sampled_from([0.0, 1.0, -1.0, 1e-310]),
    ),
    st.sampled_from([1e-300, 0.5, 1.0, 1.0000001, 2.0, 3.7, 1e6]),
)
@settings(max_examples=150)
def test_estimates_lie_in_the_range_of_the_draws_whatever_they_are(draws: Floats, q: float) -> None:
    levels = (np.arange(draws.shape[1]) + 1) / (draws.shape[1] + 1)
    for outputs in (Samples(draws), Quantiles(np.sort(draws, axis=1), levels)):
        found = _least_powers(Pieces.of(outputs), q)
        low, high = draws.min(axis=1), draws.max(axis=1)
        # Draws bound their estimates; quantiles may be left by the range they span.
        beyond = np.abs(draws).max(axis=1) * 1e-12
        if isinstance(outputs, Quantiles):
            beyond = beyond + (high / 2 - low / 2)
        assert (found.estimate / 2 >= low / 2 - beyond).all()
        assert (found.estimate / 2 <= high / 2 + beyond).all()
        assert not np.isnan(found.loss).any()
        assert (found.loss >= 0).all()


@pytest.mark.parametrize("q", [0.5, 1.0, 1.5, 2.0])
def test_the_order_of_draws_and_the_blocks_do_not_matter(q: float) -> None:
    draws = np.random.default_rng(3).normal(size=(3000, 41))
    whole = _least_powers(Pieces.of(Samples(draws)), q)
    turned = _least_powers(Pieces.of(Samples(draws[::-1, ::-1])), q)
    close(whole.estimate, turned.estimate[::-1], rtol=0, atol=1e-13)
    one = _least_powers(Pieces.of(Samples(draws[2500:2501])), q)
    close(whole.estimate[2500:2501], one.estimate, rtol=0, atol=1e-13)


def test_a_large_power_takes_the_middle_of_the_range() -> None:
    found = _least_powers(Pieces.of(Samples([[0.0, 0.0, 0.0, 10.0]])), 1e5)
    close(found.estimate, 5.0, rtol=1e-4)
    assert found.loss[0] == np.inf


def test_tails_go_on_evenly_but_no_further_than_the_range() -> None:
    pieces = Pieces.of(Quantiles([[0.0, 1.0, 4.0], [2.0, 2.0, 2.0]], [0.1, 0.5, 0.9]))
    close(pieces.low[:, 0] * 4, [-0.25, 0.0])
    close(pieces.high[:, -1] * 4, [4.75, 0.0])
    lopsided = Pieces.of(Quantiles([[0.0, 1.0, 2.0]], [0.9, 0.95, 0.99]))
    close(lopsided.low[:, 0] * 2, -2.0)
    alone = _least_powers(Pieces.of(Quantiles([[3.0]], [0.5])), 1.7)
    assert (alone.estimate.tolist(), alone.loss.tolist()) == ([3.0], [0.0])


def test_no_rows_have_no_estimates() -> None:
    assert _least_powers(Pieces.of(Samples(np.empty((0, 3)))), 1.5).estimate.shape == (0,)
