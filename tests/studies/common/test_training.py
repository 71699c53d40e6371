"""Networks learn by the loss they are given, through the views they are given, by a seed."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from studies.common.images import Images
from studies.common.networks import conv_net, lenet5, seeded
from studies.common.training import Recipe, slowing, train


def images() -> Images:
    """Images whose brighter half is their label."""
    labels = torch.arange(64) % 2
    pixels = torch.zeros(64, 1, 28, 28)
    pixels[labels == 0, :, :14] = 1.0
    pixels[labels == 1, :, 14:] = 1.0
    return Images(pixels, labels)


def loss(outputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
    assert len(rows) == len(labels)
    return functional.cross_entropy(outputs, labels)


@pytest.mark.parametrize("optimizer", ["adam", "adam with l2", "sgd"])
@pytest.mark.parametrize("make", [lambda: lenet5(2, dropout=0.1), lambda: conv_net(2, 4, 2)])
def test_they_learn(optimizer: str, make: object) -> None:
    generator = seeded(0)
    network = make()  # type: ignore[operator]
    recipe = Recipe(15, learning_rate=3e-3, batch_rows=16, optimizer=optimizer)  # type: ignore[arg-type]
    epochs: list[int] = []
    found = train(network, images(), loss, recipe, generator, on_epoch=epochs.append)
    assert epochs == list(range(1, 16))
    assert not found.training
    assert found(images().pixels).argmax(1).tolist() == images().labels.tolist()


def test_a_seed_gives_the_same_network() -> None:
    def made(seed: int) -> Tensor:
        generator = seeded(seed)
        found = train(conv_net(1, 2, 2, norm="batch"), images(), loss, Recipe(1), generator)
        return torch.cat([one.flatten() for one in found.parameters()])

    assert torch.equal(made(0), made(0))
    assert not torch.equal(made(0), made(1))


def test_batches_are_seen_through_one_view_each() -> None:
    seen: list[int] = []

    def first(pixels: Tensor) -> Tensor:
        seen.append(0)
        return pixels

    def second(pixels: Tensor) -> Tensor:
        seen.append(1)
        return pixels.flip(2)

    network = nn.Sequential(nn.Flatten(), nn.Linear(784, 2))
    recipe = Recipe(4, batch_rows=16)
    train(network, images(), loss, recipe, seeded(0), views=(first, second))
    assert len(seen) == 16
    assert set(seen) == {0, 1}


def test_the_pace_is_that_of_the_share_of_steps_done() -> None:
    """Plain steps down a slope of 1: each is as long as the learning rate of its time."""

    def slope(outputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        return network.weight.sum() + 0 * outputs.sum()

    class Still(nn.Module):
        """A network of one weight that does not look at images."""

        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(1))

        def forward(self, pixels: Tensor) -> Tensor:
            return self.weight.expand(len(pixels))

    requested: list[float] = []

    def pace(share_done: float) -> float:
        requested.append(share_done)
        return slowing(share_done)

    network = Still()
    recipe = Recipe(2, learning_rate=0.1, batch_rows=48)  # 64 images: four steps in all
    train(network, images(), slope, recipe, seeded(0), pace=pace)
    assert requested == [0.0, 0.25, 0.5, 0.75, 1.0]
    assert network.weight.item() == pytest.approx(-0.1 * (1 + 0.75 + 0.5 + 0.25), rel=1e-3)
