"""A step of expectation-maximization agrees with plain NumPy, and climbs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose as close

from dubito.arrays import contiguous
from dubito.kernels.scaling import MIXTURE_ROWS, mixture_step


@pytest.mark.parametrize("n_parts", [1, 2, 3, 7])
@pytest.mark.parametrize("n_rows", [1, 50, MIXTURE_ROWS, MIXTURE_ROWS + 1])
def test_a_step_matches_numpy_reference(n_parts: int, n_rows: int) -> None:
    rng = np.random.default_rng(n_parts)
    parts = rng.random((n_parts, n_rows)) ** 3
    weights = rng.random(n_rows) * (rng.random(n_rows) < 0.8)
    shares = rng.dirichlet(np.ones(n_parts))
    got = np.full(n_parts, np.nan)
    mixture_step(contiguous(parts), contiguous(weights), shares, got)
    mixed = shares @ parts
    close(got, shares * (parts @ (weights / mixed)), rtol=1e-12)
    assert got.sum() == pytest.approx(weights.sum(), rel=1e-12)


def test_every_step_climbs() -> None:
    rng = np.random.default_rng(0)
    parts, weights = contiguous(rng.random((3, 200)) ** 4), contiguous(rng.random(200))
    shares, totals = np.full(3, 1 / 3), []
    for _ in range(20):
        step = np.empty(3)
        mixture_step(parts, weights, shares, step)
        totals.append(weights @ np.log(shares @ parts))
        shares = step / step.sum()
    assert (np.diff(totals) >= 0).all()
    assert totals[-1] > totals[0]
