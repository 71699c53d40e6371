"""The |r|^q likelihood against SciPy's generalized normal, and what it estimates."""

import numpy as np
import pytest
import torch
from scipy import stats

from dubito import Samples
from dubito.decide import minkowski_estimate
from dubito.errors import BadValueError
from dubito.learn import DeepEnsemble, Gaussian, GeneralizedNormal, Laplace
from dubito.measure import minkowski_loss


@pytest.mark.parametrize("power", [0.3, 1.0, 2.0, 10.0])
def test_losses_and_moments_are_those_of_scipy(power: float) -> None:
    rng = np.random.default_rng(0)
    location, y = rng.normal(size=(2, 50, 1))
    y[0] = location[0]
    likelihood = GeneralizedNormal(power, scale=0.7)
    reference = stats.gennorm(power, location[:, 0], 0.7)
    found = likelihood.losses(torch.tensor(location), torch.tensor(y))
    np.testing.assert_allclose(found.numpy(), -reference.logpdf(y[:, 0]), rtol=1e-12, atol=1e-12)
    predicted = likelihood.predict(torch.tensor(location))
    np.testing.assert_allclose(predicted.stddev.numpy(), reference.std(), rtol=1e-12)
    assert torch.equal(predicted.mean, predicted.mode)
    torch.manual_seed(0)
    drawn = predicted.sample(torch.Size([4000])).numpy()
    if power >= 1:  # else the tails are too long for a test of the variance
        errors = (drawn.mean(axis=0) - location[:, 0]) / (reference.std() / np.sqrt(4000))
        assert np.abs(errors).max() < 4.5
    below = (drawn < location[:, 0] + 0.2).mean()
    assert below == pytest.approx(reference.cdf(location[:, 0] + 0.2).mean(), abs=0.005)


def test_powers_1_and_2_are_laplace_and_gaussian() -> None:
    outputs, y = torch.tensor([[0.5], [2.0]]), torch.tensor([1.0, 1.0])
    zeros = torch.zeros(2, 1)
    laplace = Laplace().losses(torch.cat([outputs, zeros], dim=1), y)
    assert torch.allclose(GeneralizedNormal(1.0).losses(outputs, y), laplace)
    gaussian = Gaussian(variance=0.5).losses(outputs, y)
    assert torch.allclose(GeneralizedNormal(2.0).losses(outputs, y), gaussian)


def test_the_slope_at_0_is_finite_and_several_targets_add_up() -> None:
    outputs = torch.zeros(1, 2, requires_grad=True)
    loss = GeneralizedNormal(0.3, n_targets=2).loss(outputs, torch.tensor([[0.0, 1.0]]))
    torch.autograd.backward(loss)
    assert outputs.grad is not None
    assert outputs.grad.tolist() == [[0.0, pytest.approx(-0.3)]]


@pytest.mark.parametrize("power", [1.5, 2.0, 10.0])
def test_training_finds_the_minimizer_of_the_score(power: float) -> None:
    y = torch.tensor([0.0, 0.0, 0.0, 2.0, 8.0], dtype=torch.float64)
    (center,) = minkowski_estimate(Samples(y.numpy()[np.newaxis]), power)
    t = torch.tensor([[3.0]], dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.LBFGS([t], max_iter=200, line_search_fn="strong_wolfe")

    def step() -> torch.Tensor:
        optimizer.zero_grad()
        loss = GeneralizedNormal(power, scale=4.0).loss(t.expand(5, 1), y)
        torch.autograd.backward(loss)
        return loss

    for _ in range(5):
        optimizer.step(step)  # type: ignore[no-untyped-call]
    assert t.item() == pytest.approx(center, abs=0.02)  # the loss is flat at large powers
    grid = np.linspace(-1, 9, 1001)
    scores = [minkowski_loss(y.numpy(), np.full(5, one), q=power) for one in grid]
    assert grid[int(np.argmin(scores))] == pytest.approx(center, abs=0.02)


def test_scores_are_means_of_powers() -> None:
    rng = np.random.default_rng(0)
    y, predicted, weight = rng.normal(size=(3, 30))
    weight = np.abs(weight)
    for q in (0.3, 1, 2.5):
        expected = np.average(np.abs(y - predicted) ** q, weights=weight)
        assert minkowski_loss(y, predicted, q, sample_weight=weight) == pytest.approx(expected)
    two = minkowski_loss(np.stack([y, y], 1), np.stack([predicted, y], 1), 2)
    assert two == pytest.approx(((y - predicted) ** 2).mean() / 2)
    with pytest.raises(BadValueError, match=r"`q` must be a finite number above 0, got 0"):
        minkowski_loss(y, predicted, 0)


def test_members_need_a_family_that_can_be_mixed() -> None:
    network = torch.nn.Linear(2, 1)
    ensemble = DeepEnsemble([network], likelihood=GeneralizedNormal(4.0))
    with pytest.raises(BadValueError, match=r"got GeneralizedNormal\. Call likelihood\.predict"):
        ensemble(torch.zeros(3, 2))
