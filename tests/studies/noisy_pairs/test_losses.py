"""The slip pairs each s with the errors of all rows; the losses are those of their names."""

import pytest
import torch

from dubito.learn import UncertaintyAware
from studies.noisy_pairs.losses import LOSSES, learning, slipped

ROWS = torch.arange(5)


def outputs_and_labels() -> tuple[torch.Tensor, torch.Tensor]:
    """Possible outputs of a network for five rows, and their labels."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(5, 11, generator=generator), torch.tensor([0, 3, 9, 3, 1])


def test_the_slip_is_the_mean_over_all_pairs_of_rows() -> None:
    outputs, labels = outputs_and_labels()
    total = 0.0
    for s in outputs[:, -1]:
        for row, label in zip(outputs[:, :-1].softmax(1), labels, strict=True):
            error = sum((float(k == label) - p) ** 2 for k, p in enumerate(row))
            total += float(0.5 * (torch.exp(-s) * error + 10 * s))
    assert slipped(outputs, labels, ROWS).item() == pytest.approx(total / 25, rel=1e-5)


def test_shuffling_s_changes_the_loss_but_not_the_slip() -> None:
    outputs, labels = outputs_and_labels()
    shuffled = outputs.clone()
    shuffled[:, -1] = outputs[:, -1].flip(0)
    slips = [slipped(one, labels, ROWS).item() for one in (outputs, shuffled)]
    right = [UncertaintyAware(10).loss(one, labels).item() for one in (outputs, shuffled)]
    assert slips[0] == pytest.approx(slips[1], rel=1e-5)
    assert right[0] != pytest.approx(right[1], rel=1e-3)


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.filterwarnings("ignore:UncertaintyAware without a floor")
def test_every_loss_has_a_slope(name: str) -> None:
    used = learning(name, n_rows=5)
    outputs, labels = outputs_and_labels()
    outputs = outputs[:, : used.likelihood.n_outputs].clone().requires_grad_()
    torch.autograd.backward(used.loss(outputs, labels, ROWS))
    assert outputs.grad is not None
    assert outputs.grad.isfinite().all()
    assert outputs.grad.abs().sum() > 0
