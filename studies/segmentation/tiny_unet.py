"""A U-Net small enough to be learned in seconds."""

from __future__ import annotations

from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional


@final
class TinyUNet(nn.Module):
    """Two steps down and two up, for images whose sides are multiples of 4.

    Dropout of whole channels comes at the bottom and before the last layer. After Ronneberger,
    Fischer and Brox, "U-Net: convolutional networks for biomedical image segmentation", 2015.
    """

    def __init__(self, n_outputs: int, widths: tuple[int, int, int], dropout: float) -> None:
        super().__init__()
        first, second, third = widths
        self.top = convolution(1, first)
        self.middle = convolution(first, second)
        self.bottom = nn.Sequential(
            convolution(second, third), convolution(third, third), nn.Dropout2d(dropout)
        )
        self.middle_up = convolution(third + second, second)
        self.top_up = nn.Sequential(convolution(second + first, first), nn.Dropout2d(dropout))
        self.last = nn.Conv2d(first, n_outputs, 1)

    def forward(self, pixels: Tensor) -> Tensor:
        top = self.top(pixels)
        middle = self.middle(functional.max_pool2d(top, 2))
        bottom = self.bottom(functional.max_pool2d(middle, 2))
        found = self.middle_up(
            torch.cat([functional.interpolate(bottom, scale_factor=2), middle], 1)
        )
        found = self.top_up(torch.cat([functional.interpolate(found, scale_factor=2), top], 1))
        outputs: Tensor = self.last(found)
        return outputs


def convolution(n_inputs: int, n_outputs: int) -> nn.Sequential:
    """Return a layer that sees 3 x 3 pixels, its channels on one scale in groups of four."""
    return nn.Sequential(
        nn.Conv2d(n_inputs, n_outputs, 3, padding=1),
        nn.GroupNorm(n_outputs // 4, n_outputs),
        nn.ReLU(),
    )
