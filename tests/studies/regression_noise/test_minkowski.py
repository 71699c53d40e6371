"""Minkowski losses and their centers are those of plain NumPy and SciPy."""

import numpy as np
import pytest
import torch
from scipy import stats

from studies.regression_noise.minkowski import (
    NOISE,
    POWERS,
    known_center,
    minkowski_loss,
    skewed_rows,
)


def test_centers_are_median_and_mean_and_near_the_midrange() -> None:
    assert known_center(1) == pytest.approx(NOISE.median(), abs=1e-6)
    assert known_center(2) == pytest.approx(NOISE.mean(), abs=1e-6)
    grid = np.linspace(0, 1, 2_001)
    draws = NOISE.ppf((np.arange(4_000) + 0.5) / 4_000)
    for power in (1.5, 4.0):
        losses = [np.mean(np.abs(draws - center) ** power) for center in grid]
        assert known_center(power) == pytest.approx(grid[np.argmin(losses)], abs=1e-3)
    assert known_center(16) < known_center(60) < 0.5


@pytest.mark.parametrize("power", POWERS)
def test_the_loss_is_the_norm_and_its_slope_is_that_of_the_powers(power: float) -> None:
    generator = torch.Generator().manual_seed(0)
    y = 3 * torch.randn(50, generator=generator, dtype=torch.float64)
    outputs = torch.zeros(50, 1, dtype=torch.float64, requires_grad=True)
    loss = minkowski_loss(outputs, y, power)
    assert loss.item() == pytest.approx(np.linalg.norm(y.numpy(), power) / 50 ** (1 / power))
    torch.autograd.backward(loss)
    assert outputs.grad is not None
    slope = -np.sign(y.numpy()) * np.abs(y.numpy()) ** (power - 1)
    ratio = outputs.grad.squeeze(1).numpy() / slope
    assert ratio == pytest.approx(ratio[0])


def test_skewed_noise_has_its_quantiles() -> None:
    _, y, sine = skewed_rows(20_000, np.random.default_rng(2))
    assert stats.kstest(y - sine, NOISE.cdf).pvalue > 0.01
