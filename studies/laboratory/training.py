"""One plain loop of training, whose loss and views are the study's own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, final

import torch
from torch import Tensor, nn

from studies.laboratory.images import Images

__all__ = ["Loss", "Recipe", "View", "train"]

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of outputs, labels and the rows' numbers
View = Callable[[Tensor], Tensor]


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """How long and how fast a network learns."""

    n_epochs: int
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    batch_rows: int = 64
    optimizer: Literal["adam", "sgd"] = "adam"

    def optimizer_of(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return what moves the weights."""
        if self.optimizer == "adam":
            return torch.optim.AdamW(
                network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay
            )
        return torch.optim.SGD(
            network.parameters(),
            lr=self.learning_rate,
            momentum=0.9,
            nesterov=True,
            weight_decay=self.weight_decay,
        )


def train(
    network: nn.Module,
    images: Images,
    loss: Loss,
    recipe: Recipe,
    generator: torch.Generator,
    *,
    views: tuple[View, ...] = (),
    on_epoch: Callable[[int], None] | None = None,
) -> nn.Module:
    """Train a network in place and return it in evaluation mode.

    With `views` each batch is seen through one of them, drawn at random. `on_epoch` is called with
    the number of epochs done, the network in evaluation mode.
    """
    optimizer = recipe.optimizer_of(network)
    for epoch in range(recipe.n_epochs):
        network.train()
        order = torch.randperm(len(images), generator=generator)
        for rows in torch.split(order, recipe.batch_rows):
            pixels = images.pixels[rows]
            if views:
                pixels = views[int(torch.randint(len(views), (1,), generator=generator))](pixels)
            found = loss(network(pixels), images.labels[rows], rows)
            optimizer.zero_grad()
            torch.autograd.backward(found)
            optimizer.step()
        network.eval()
        if on_epoch is not None:
            on_epoch(epoch + 1)
    return network.eval()
