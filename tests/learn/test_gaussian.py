from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats

from dubito.errors import BadValueError
from dubito.learn import Gaussian, HeteroscedasticGaussian


def test_fixed_variance_is_the_likelihood_of_scipy() -> None:
    rng = np.random.default_rng(0)
    outputs, y = rng.normal(size=(2, 30, 3))
    loss = Gaussian(3, variance=0.3).loss(torch.tensor(outputs), torch.tensor(y))
    expected = -stats.norm(outputs, 0.3**0.5).logpdf(y).sum(axis=1).mean()
    assert loss.item() == pytest.approx(expected, rel=1e-12)


def test_fixed_variance_is_squared_error_up_to_constants() -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(2, 50, 1)
    loss = Gaussian(variance=0.5).loss(outputs, y)
    assert torch.allclose(loss, (outputs - y).square().mean() + 0.5 * np.log(np.pi))


def test_own_variance_is_the_likelihood_of_scipy() -> None:
    rng = np.random.default_rng(0)
    mean, log_variance, y = rng.normal(size=(3, 30, 2))
    outputs = torch.tensor(np.hstack([mean, 2 * log_variance]))
    expected = -stats.norm(mean, np.exp(log_variance)).logpdf(y).sum(axis=1)
    losses = HeteroscedasticGaussian(2).losses(outputs, torch.tensor(y))
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    single = HeteroscedasticGaussian(2).loss(outputs.float(), torch.tensor(y))
    assert single.item() == pytest.approx(expected.mean(), rel=1e-6)


@pytest.mark.parametrize("beta", [0.0, 0.5, 1.0])
def test_beta_weighs_slopes_by_a_variance_that_is_held_fixed(beta: float) -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(20, 2, dtype=torch.float64, requires_grad=True), torch.randn(20)
    weight = (beta * outputs[:, 1].detach()).exp()
    mean, log_variance = outputs[:, 0], outputs[:, 1]
    plain = 0.5 * ((y - mean).square() * (-log_variance).exp() + log_variance + np.log(2 * np.pi))
    expected = torch.autograd.grad((weight * plain).mean(), outputs)[0]
    loss = HeteroscedasticGaussian(beta=beta).loss(outputs, y)
    torch.testing.assert_close(torch.autograd.grad(loss, outputs)[0], expected)


def test_of_beta_1_the_mean_learns_as_from_squared_error() -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(20, 2, requires_grad=True), torch.randn(20)
    (slope,) = torch.autograd.grad(HeteroscedasticGaussian(beta=1.0).loss(outputs, y), outputs)
    torch.testing.assert_close(slope[:, 0], (outputs[:, 0] - y).detach() / 20)


def test_predictions_have_the_likelihood_that_was_minimized() -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(10, 4), torch.randn(10, 2)
    likelihood = HeteroscedasticGaussian(2)
    log_likelihood = likelihood.predict(outputs).log_prob(y)
    torch.testing.assert_close(-log_likelihood, likelihood.losses(outputs, y))
    alike = Gaussian(4, variance=0.7)
    targets = torch.randn(10, 4)
    log_likelihood = alike.predict(outputs).log_prob(targets)
    torch.testing.assert_close(-log_likelihood, alike.losses(outputs, targets))
    assert torch.equal(alike.predict(outputs).mode, outputs)


def test_a_single_target_is_never_broadcast() -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(6, 2), torch.randn(6)
    likelihood = HeteroscedasticGaussian()
    assert torch.equal(likelihood.loss(outputs, y), likelihood.loss(outputs, y[:, None]))
    assert likelihood.predict(outputs).log_prob(y).shape == (6,)
    torch.testing.assert_close(
        -likelihood.predict(outputs).log_prob(y), likelihood.losses(outputs, y)
    )


def test_variances_count_from_the_floor_up() -> None:
    outputs = torch.tensor([[0.0, -50.0]])
    likelihood = HeteroscedasticGaussian(floor=-3.0)
    assert likelihood.predict(outputs).variance.item() == pytest.approx(np.exp(-3))
    expected = -stats.norm(0, np.exp(-1.5)).logpdf(0.5)
    assert likelihood.loss(outputs, torch.tensor([0.5])).item() == pytest.approx(expected)


def test_single_unknown_targets_are_left_out() -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(3, 2), torch.randn(3, 2)
    expected = Gaussian().losses(outputs[:, :1], y[:, 0])
    y[0, 1] = torch.nan
    assert torch.equal(Gaussian(2).losses(outputs, y)[0], expected[0])


def test_at_the_lowest_floor_single_precision_still_holds_the_loss() -> None:
    outputs = torch.tensor([[0.0, -200.0], [0.0, 0.0]], requires_grad=True)
    loss = HeteroscedasticGaussian(floor=-60.0).loss(outputs, torch.tensor([1e3, 0.0]))
    assert loss.isfinite()
    assert torch.autograd.grad(loss, outputs)[0].isfinite().all()
    with pytest.raises(BadValueError, match=r"`floor` .*, got -100\. Use floor=-4\.0"):
        HeteroscedasticGaussian(floor=-100)


BAD: list[tuple[Any, str]] = [
    (
        lambda: Gaussian(0),
        r"`n_targets` .*, got 0\. Use n_targets=1",
    ),
    (
        lambda: Gaussian(variance=-1.0),
        r"`variance` .*, got -1\.0\. Use variance=1\.0",
    ),
    (
        lambda: HeteroscedasticGaussian(beta=2),
        r"`beta` .*, got 2\. Divide percentages by 100",
    ),
    (
        lambda: HeteroscedasticGaussian(floor=None),  # type: ignore[arg-type]
        r"`floor` .*, got None\. Use floor=-4\.0",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_what_is_wrong_is_reported(call: Any, message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        call()
