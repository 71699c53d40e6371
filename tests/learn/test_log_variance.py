import re

import pytest
import torch

from dubito.errors import BadValueError
from dubito.learn import BaseLikelihood, HeteroscedasticGaussian, Laplace, LogitNoise
from dubito.learn.likelihoods import as_floor, beta_weighted, bounded_exp, floored


def test_floors_hold() -> None:
    values = torch.tensor([-9.0, -1.0, 3.0])
    assert floored(values, -2.0).tolist() == [-2.0, -1.0, 3.0]
    assert floored(values, None) is values


def test_below_the_floor_slopes_pass_that_lead_up() -> None:
    values = torch.tensor([-9.0, -9.0, -2.0, 3.0, 3.0], requires_grad=True)
    slopes = torch.tensor([-1.5, 1.5, 1.0, -2.0, 2.0])
    (found,) = torch.autograd.grad(floored(values, -2.0), values, slopes)
    assert found.tolist() == [-1.5, 0.0, 1.0, -2.0, 2.0]


@pytest.mark.parametrize("likelihood", [HeteroscedasticGaussian(), Laplace()])
def test_below_the_floor_an_error_lifts_the_variance(likelihood: BaseLikelihood) -> None:
    outputs = torch.tensor([[0.0, -30.0]], requires_grad=True)
    for target, is_up in ((1.0, True), (0.0, False)):
        loss = likelihood.loss(outputs, torch.tensor([target]))
        (slope,) = torch.autograd.grad(loss, outputs)
        assert bool(slope[0, 1] < 0) is is_up
        assert slope[0, 1] <= 0


def test_below_the_floor_noise_of_logits_learns_too() -> None:
    torch.manual_seed(0)
    outputs = torch.tensor([[2.0, 0.0, -30.0, -30.0]]).repeat(200, 1).requires_grad_()
    loss = LogitNoise(2, floor=-1.0).losses(outputs, torch.ones(200, dtype=torch.int64)).sum()
    (slope,) = torch.autograd.grad(loss, outputs)
    assert (slope[:, 2:] < 0).any()
    assert (slope[:, 2:] <= 0).all()


def test_nothing_overflows() -> None:
    assert bounded_exp(torch.tensor([1e4])).isfinite().all()
    assert beta_weighted(torch.ones(1), torch.tensor([1e4]), 1.0).isfinite().all()


def test_weights_are_powers_of_the_variance() -> None:
    weighted = beta_weighted(torch.tensor([2.0]), torch.tensor([3.0]), 0.5)
    assert weighted.item() == pytest.approx(2 * torch.e**1.5)
    losses = torch.ones(1)
    assert beta_weighted(losses, torch.tensor([3.0]), 0.0) is losses


def test_a_floor_is_finite() -> None:
    assert as_floor(-3, "Laplace") == -3.0
    with pytest.raises(BadValueError) as caught:
        as_floor(float("-inf"), "Laplace")
    wanted = r"`floor` .*, got -inf\. Use floor=-4\.0"
    assert re.search(wanted, str(caught.value))
