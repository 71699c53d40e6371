"""OOD images are what they are called: same pixels elsewhere, noise, and images that fool."""

import pytest
import torch
from torch import Tensor, nn

from dubito.learn import CORRUPTIONS, corrupt
from studies.common.ood_images import (
    KINDS,
    SEVERITY,
    digits,
    every_corruption,
    fooling,
    noise,
    ood_images,
    shuffled,
)


def drawing() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(784, 20), nn.ReLU(), nn.Linear(20, 4))


def confidence(pixels: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = network()(pixels).softmax(1).amax(1)
    return found


def test_there_are_as_many_of_each_kind() -> None:
    unseen, known = noise(10, drawing()), noise(10, drawing())
    found = ood_images(network(), unseen, known, 1, drawing())
    assert tuple(found) == KINDS
    assert all(one.shape == (10, 1, 28, 28) for one in found.values())
    assert all(0 <= one.min() < one.max() <= 1 for one in found.values())


def test_shuffled_images_keep_their_pixels() -> None:
    images = noise(4, drawing())
    found = shuffled(images, drawing())
    assert torch.equal(found.flatten(1).sort(1).values, images.flatten(1).sort(1).values)
    places = [
        (one.flatten() == first.flatten()[0]).nonzero().item()
        for one, first in zip(found, images, strict=True)
    ]
    assert len(set(places)) > 1


def test_every_way_has_its_share() -> None:
    images = noise(10, drawing())
    found = every_corruption(images)
    for number, name in enumerate(CORRUPTIONS):
        part = slice(2 * number, 2 * number + 2)
        assert torch.equal(found[part], corrupt(images[part], name, SEVERITY))


def test_digits_are_enlarged() -> None:
    found = digits(3)
    assert found.shape == (3, 1, 28, 28)
    assert found[0, 0, :, :4].max() < found[0, 0, :, 8:20].max()


@pytest.mark.usefixtures("one_thread")
def test_images_are_moved_towards_certainty_and_stay_images() -> None:
    start = noise(6, drawing())
    kept = start.clone()
    found = fooling(network(), start, 60, drawing())
    assert torch.equal(start, kept)
    assert found.min() >= 0
    assert found.max() <= 1
    assert confidence(found).min() > 0.6 > confidence(start).max()
    alone = fooling(network(), start[:1], 60, drawing())
    assert torch.allclose(alone, found[:1], atol=1e-3)
