"""One training loop; the loss and the views are those of the study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import ceil
from typing import Literal, final

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import LambdaLR

from studies.common.images import Images

Loss = Callable[[Tensor, Tensor, Tensor], Tensor]  # of outputs, labels and the rows' numbers
Pace = Callable[[float], float]  # factor of the learning rate, by the fraction of steps done
View = Callable[[Tensor], Tensor]


@final
@dataclass(frozen=True, slots=True)
class Recipe:
    """Length and learning rate of the training of a network.

    Decay is decoupled by "adam" (AdamW); by "adam with l2" and "sgd" it is part of the gradient.
    """

    n_epochs: int
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    batch_rows: int = 64
    optimizer: Literal["adam", "adam with l2", "sgd"] = "adam"

    def optimizer_of(self, network: nn.Module) -> torch.optim.Optimizer:
        """Return the optimizer."""
        if self.optimizer == "adam":
            return torch.optim.AdamW(
                network.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay
            )
        if self.optimizer == "adam with l2":
            return torch.optim.Adam(
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
    pace: Pace | None = None,
) -> nn.Module:
    """Train a network in place and return it in evaluation mode.

    With `views`, a random one is applied to each batch. `on_epoch` is called with
    the number of epochs done, the network in evaluation mode. The learning rate stays as it is
    unless `pace` says otherwise.
    """
    optimizer = recipe.optimizer_of(network)
    n_steps = recipe.n_epochs * ceil(len(images) / recipe.batch_rows)
    schedule = pace and LambdaLR(optimizer, lambda step: pace(step / n_steps))
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
            if schedule:
                schedule.step()
        network.eval()
        if on_epoch is not None:
            on_epoch(epoch + 1)
    return network.eval()


def slowing(share_done: float) -> float:
    """Return a learning-rate schedule that decreases linearly to 0."""
    return 1 - share_done
