"""Out-of-distribution images: unseen classes, digits, corruptions, noise, fooling images."""

from __future__ import annotations

import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from dubito.learn import CORRUPTIONS, corrupt

KINDS = ("bags and boots", "digits", "corrupted", "shuffled pixels", "noise", "fooling")
SEVERITY = 4
STEP = 0.05  # in units of pixels in [0, 1]


def ood_images(
    network: nn.Module, unseen: Tensor, known: Tensor, n_steps: int, generator: torch.Generator
) -> dict[str, Tensor]:
    """Return OOD images of every kind, as many per kind as there are unseen images.

    `known` are images of known classes that are only used for corruption.
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
    """Return the first digits of scikit-learn, resized to 28 x 28."""
    images = torch.from_numpy(load_digits().images[:n_rows]).float().unsqueeze(1) / 16
    return functional.interpolate(images, size=(28, 28), mode="bilinear")


def every_corruption(pixels: Tensor) -> Tensor:
    """Return corrupted images, an equal fraction with each corruption."""
    parts = pixels.tensor_split(len(CORRUPTIONS))
    ways = zip(parts, CORRUPTIONS, strict=True)
    return torch.cat([corrupt(part, name, SEVERITY) for part, name in ways])


def shuffled(pixels: Tensor, generator: torch.Generator) -> Tensor:
    """Return images with permuted pixels, each with its own permutation."""
    flat = pixels.flatten(1)
    places = torch.rand(flat.shape, generator=generator).argsort(1)
    return flat.gather(1, places).reshape(pixels.shape)


def noise(n_rows: int, generator: torch.Generator) -> Tensor:
    """Return images of uniform noise in [0, 1]."""
    return torch.rand((n_rows, 1, 28, 28), generator=generator)


def fooling(network: nn.Module, start: Tensor, n_steps: int, generator: torch.Generator) -> Tensor:
    """Return images optimized by gradient for high confidence in a random class.

    Adam steps on the pixels, which stay in [0, 1]. Nguyen, Yosinski and Clune, "Deep neural
    networks are easily fooled", 2015.
    """
    with torch.no_grad():
        n_classes = network(start[:1]).shape[1]
    wanted = torch.randint(n_classes, (len(start),), generator=generator)
    pixels = start.clone().requires_grad_()
    optimizer = torch.optim.Adam([pixels], lr=STEP)
    for _ in range(n_steps):
        # A sum, so that images do not influence each other.
        loss = functional.cross_entropy(network(pixels), wanted, reduction="sum")
        (pixels.grad,) = torch.autograd.grad(loss, [pixels])
        optimizer.step()
        with torch.no_grad():
            pixels.clamp_(0, 1)
    return pixels.detach()
