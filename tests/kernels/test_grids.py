"""Sums on grids are those of plain NumPy, and cells are ordered by uncertainty."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dubito.arrays import freeze
from dubito.kernels.sums import CUT, HALF, cell_bounds, cell_sums, residual_sums

Floats = NDArray[np.floating[Any]]

N_CELLS = 64


def plain_cell(uncertainty: float) -> int:
    near = uncertainty if uncertainty <= 0.5 else 1 - uncertainty
    cell = int(np.float64(near).view(np.int64)) >> CUT
    return cell if uncertainty <= 0.5 else 2 * HALF - cell


def columns(n_rows: int) -> tuple[Floats, Floats, Floats]:
    rng = np.random.default_rng(n_rows)
    near = 10 ** rng.uniform(-6, -0.31, n_rows)
    uncertainty = np.where(rng.random(n_rows) < 0.5, near, 1 - near)
    uncertainty[: n_rows // 3] = 0.5
    weights = rng.random(n_rows) * rng.integers(0, 2, n_rows)
    return uncertainty, weights, rng.random(n_rows)


@pytest.mark.slow
@given(st.lists(st.floats(0.0, 1.0), min_size=1, max_size=40))
def test_bounds_are_the_cells_of_the_extremes(values: list[float]) -> None:
    cells = [plain_cell(value) for value in values]
    assert cell_bounds(freeze(np.array(values))) == (min(cells), max(cells))


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=40))
def test_cells_are_ordered_by_uncertainty(values: list[float]) -> None:
    cells = [plain_cell(value) for value in sorted(values)]
    assert cells == sorted(cells)


@pytest.mark.parametrize("n_rows", [1, 2, 3, 1000])
def test_the_weight_of_a_cell_is_that_of_its_rows(n_rows: int) -> None:
    uncertainty, weights, correct = map(freeze, columns(n_rows))
    first, last = cell_bounds(uncertainty)
    sums = np.zeros((last - first + 1, 2))
    cell_sums(uncertainty, weights, correct, first, sums)
    expected = np.zeros_like(sums)
    for one, weight, right in zip(uncertainty, weights, correct, strict=True):
        expected[plain_cell(one) - first] += [weight, weight * (1 - right)]
    assert_allclose(sums, expected, rtol=1e-12)


@pytest.mark.parametrize("n_rows", [0, 1, 1000])
def test_residuals_are_shared_between_the_nearest_middles(n_rows: int) -> None:
    uncertainty, weights, correct = columns(n_rows)
    confidence = np.concatenate([1 - uncertainty, [0.0, 1.0]])
    weights, correct = np.concatenate([weights, [1, 2]]), np.concatenate([correct, [1, 0]])
    sums = np.zeros(N_CELLS)
    total = residual_sums(freeze(confidence), freeze(correct), freeze(weights), sums)
    middles = (np.arange(N_CELLS) + 0.5) / N_CELLS
    distance = np.abs(np.clip(confidence, middles[0], middles[-1])[:, np.newaxis] - middles)
    shares = np.maximum(1 - distance * N_CELLS, 0)
    assert_allclose(sums, (weights * (correct - confidence)) @ shares, atol=1e-11)
    assert total == pytest.approx(weights.sum())


def test_scores_that_changed_after_validation_are_never_written_outside() -> None:
    odd = freeze(np.array([np.nan, -1.0, 2.0, np.inf, -np.inf, 0.5]))
    ones = freeze(np.ones(odd.size))
    guarded = np.zeros((30, 2))
    cell_sums(odd, ones, ones, HALF, guarded[10:20])
    assert not guarded[:10].any()
    assert not guarded[20:].any()
    flat = np.zeros(30)
    residual_sums(odd, ones, ones, flat[10:20])
    assert not flat[:10].any()
    assert not flat[20:].any()
