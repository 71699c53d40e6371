import pytest
import torch

from dubito.errors import BadValueError
from dubito.learn.log_variance import as_floor, beta_weighted, floored, positive


def test_floors_hold() -> None:
    values = torch.tensor([-9.0, -1.0, 3.0])
    assert floored(values, -2.0).tolist() == [-2.0, -1.0, 3.0]
    assert floored(values, None) is values


def test_nothing_overflows() -> None:
    assert positive(torch.tensor([1e4])).isfinite().all()
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
    wanted = "`floor` of Laplace must be a finite number. Got -inf. Try floor=-4.0."
    assert str(caught.value) == wanted
