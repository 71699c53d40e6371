"""The small networks of the studies."""

from __future__ import annotations

from typing import Literal

import torch
from torch import nn


def lenet5(n_outputs: int = 10, *, dropout: float = 0.0) -> nn.Sequential:
    """Return LeNet5 with ReLU and max pooling, for images of 1 x 28 x 28.

    Dropout, where there is any, comes before each linear layer.
    """
    return nn.Sequential(
        *(nn.Conv2d(1, 6, 5, padding=2), nn.ReLU(), nn.MaxPool2d(2)),
        *(nn.Conv2d(6, 16, 5), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        *(*dropouts(dropout), nn.Linear(400, 120), nn.ReLU()),
        *(*dropouts(dropout), nn.Linear(120, 84), nn.ReLU()),
        *(*dropouts(dropout), nn.Linear(84, n_outputs)),
    )


def conv_net(
    n_layers: int,
    width: int,
    n_outputs: int = 10,
    *,
    n_channels: int = 1,
    norm: Literal["none", "batch"] = "none",
    dropout: float = 0.0,
) -> nn.Sequential:
    """Return convolutions of 3 x 3, halved in size after the first two, then one linear layer.

    All have `width` channels; what is left is averaged to 7 x 7.
    """
    layers: list[nn.Module] = []
    for number in range(n_layers):
        layers.append(nn.Conv2d(n_channels if number == 0 else width, width, 3, padding=1))
        layers.extend([nn.BatchNorm2d(width)] if norm == "batch" else [])
        layers.append(nn.ReLU())
        layers.extend([nn.MaxPool2d(2)] if number < 2 else [])
    layers += [nn.AdaptiveAvgPool2d(7), nn.Flatten(), *dropouts(dropout)]
    return nn.Sequential(*layers, nn.Linear(49 * width, n_outputs))


def dropouts(rate: float) -> list[nn.Module]:
    """Return a dropout layer, or none if the rate is 0."""
    return [nn.Dropout(rate)] if rate else []


def seeded(seed: int) -> torch.Generator:
    """Seed the initialization of networks, and return a generator for the order of rows."""
    torch.manual_seed(seed)
    return torch.Generator().manual_seed(seed)
