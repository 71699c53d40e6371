"""Images that a network has not learned: unseen classes, digits, corruptions, noise, and fools."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from dubito.learn import CORRUPTIONS, corrupt

KINDS = ("bags and boots", "digits", "corrupted", "shuffled pixels", "noise", "fooling")
SEVERITY = 4
STEP = 0.05  # of a pixel in 0..1


def strangers(
    network: nn.Module, unseen: Tensor, known: Tensor, n_steps: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Return strangers of every kind, as many as there are unseen images.

    `known` are images of known classes to make worse, which are judged in no other way.
    """
    size = len(unseen)
    start = noise(size, generator)
    return {
        "bags and boots": unseen,
        "digits": digits(size),
        "corrupted": every_corruption(known),
        "shuffled pixels": shuffled(known, generator),
        "noise": noise(size, generator),
        "fooling": fooling(network, start, n_steps, generator),
    }


def digits(n_rows: int) -> Tensor:
    """Return the first digits of scikit-learn, enlarged to 28 x 28."""
    images = torch.from_numpy(load_digits().images[:n_rows]).float().unsqueeze(1) / 16
    return functional.interpolate(images, size=(28, 28), mode="bilinear")


def every_corruption(pixels: Tensor) -> Tensor:
    """Return images made worse, an equal share of them in each way."""
    parts = pixels.tensor_split(len(CORRUPTIONS))
    ways = zip(parts, CORRUPTIONS, strict=True)
    return torch.cat([corrupt(part, name, SEVERITY) for part, name in ways])


def shuffled(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Return images whose pixels have changed places, in each image otherwise."""
    flat = pixels.flatten(1)
    places = torch.rand(flat.shape, generator=generator).argsort(1)
    return flat.gather(1, places).reshape(pixels.shape)


def noise(n_rows: int, generator: torch.Generator) -> Tensor:
    """Return images whose pixels are drawn evenly from 0 to 1."""
    return torch.rand((n_rows, 1, 28, 28), generator=generator)


def fooling(network: nn.Module, start: Tensor, n_steps: int, generator: torch.Generator) -> Tensor:
    """Return images moved, by their pixels' gradient, towards certainty of a class drawn at random.

    Steps are Adam's and pixels stay in 0..1. Nguyen, Yosinski and Clune, "Deep neural networks are
    easily fooled", 2015.
    """
    with torch.no_grad():
        n_classes = network(start[:1]).shape[1]
    wanted = torch.randint(n_classes, (len(start),), generator=generator)
    pixels = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([pixels], lr=STEP)
    for _ in range(n_steps):
        # A sum, so that each image moves as if it were alone.
        loss = functional.cross_entropy(network(pixels), wanted, reduction="sum")
        (pixels.grad,) = torch.autograd.grad(loss, [pixels])
        optimizer.step()
        with torch.no_grad():
            pixels.clamp_(0, 1)
    return pixels.detach()
