"""A step of expectation-maximisation agrees with plain NumPy, and climbs."""

import numpy as np
import pytest
from numpy.testing import assert_allclose as close

from dubito.arrays import contiguous
from dubito.kernels.mixture import mixture_step


@pytest.mark.parametrize("n_parts", [1, 2, 3, 7])
def test_a_step_agrees_with_the_twin(n_parts: int) -> None:
    rng = np.random.default_rng(n_parts)
    likelihoods = rng.random((50, n_parts)) ** 3
    weights = rng.random(50) * (rng.random(50) < 0.8)
    shares = rng.dirichlet(np.ones(n_parts))
    got = np.full(n_parts, np.nan)
    total = mixture_step(contiguous(likelihoods), contiguous(weights), shares, got)
    mixed = likelihoods @ shares
    assert total == pytest.approx(weights @ np.log(mixed), rel=1e-12)
    close(got, (weights / mixed) @ (likelihoods * shares), rtol=1e-12)
    assert got.sum() == pytest.approx(weights.sum(), rel=1e-12)


def test_every_step_climbs() -> None:
    rng = np.random.default_rng(0)
    likelihoods, weights = contiguous(rng.random((200, 3)) ** 4), contiguous(rng.random(200))
    shares, totals = np.full(3, 1 / 3), []
    for _ in range(20):
        step = np.empty(3)
        totals.append(mixture_step(likelihoods, weights, shares, step))
        shares = step / step.sum()
    assert (np.diff(totals) >= 0).all()
    assert totals[-1] > totals[0]
