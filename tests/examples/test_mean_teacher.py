"""The mean teacher learns from images without labels, and its certainty is between 0 and 1."""

import pytest
import torch
from torch import nn

from examples import mean_teacher


@pytest.mark.slow
def test_every_way_learns_digits(capsys: pytest.CaptureFixture[str]) -> None:
    torch.set_num_threads(1)
    found = mean_teacher.main(n_steps=60, n_seeds=1)
    assert list(found) == list(mean_teacher.WAYS)
    assert all(values[0] > 0.5 for values in found.values())
    assert "weighted by uncertainty" in capsys.readouterr().out


def test_certainty_is_1_minus_relative_entropy() -> None:
    class Fixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.drop = nn.Dropout(0.5)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            dropped: torch.Tensor = self.drop(torch.zeros_like(x))
            return dropped + x

    sure, unsure = 100 * torch.eye(10)[:1], torch.zeros(1, 10)
    found = mean_teacher.certainty(Fixed(), torch.cat([sure, unsure]), 0)
    assert found.tolist() == pytest.approx([1.0, 0.0], abs=1e-6)
