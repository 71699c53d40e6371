"""Why a network is confident of inputs that it never saw: fooling inputs, rays and patterns.

Usage: python examples/fooling_inputs.py [FOLDER]

Needs PyTorch and Matplotlib. A network learns the digits 0 to 7. Noise is then optimized by
gradient ascent on the confidence (Nguyen, Yosinski and Clune, "Deep neural networks are easily
fooled", 2015), inputs move away along rays (Hein, Andriushchenko and Bitterwolf, "Why ReLU networks
yield high-confidence predictions far away from the training data", 2019), and sets of active units
are compared with those of training images (Pearce, Brintrup and Zhu, "Understanding softmax
confidence and uncertainty", 2021). Writes a picture of each to FOLDER.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import NamedTuple

import matplotlib as mpl
import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional

from dubito import Logits
from dubito.arrays import FloatArray
from dubito.doubt import (
    MahalanobisDistance,
    activation_patterns,
    least_confidence,
    ray_confidence,
)
from dubito.measure import roc_auc

mpl.use("Agg")
from matplotlib import pyplot as plt

N_CLASSES = 8  # 8 and 9 are never learned
FACTORS = np.geomspace(0.1, 100, 40)
N_STEPS, STEP = 100, 0.05
COLORS = {"known": "#555555", "unseen": "#d95f02", "noise": "#1f78b4", "fooling": "#e7298a"}


class Seen(NamedTuple):
    """What a network makes of some images; `hidden` are the outputs of its ReLUs."""

    images: FloatArray
    hidden: FloatArray
    features: FloatArray
    logits: Logits

    @property
    def confidence(self) -> FloatArray:
        """The largest probability of each image."""
        return 1 - least_confidence(self.logits)


def main(folder: Path, n_epochs: int = 100) -> dict[str, Seen]:
    """Train the network, print what it makes of each kind of input, and draw the pictures."""
    torch.manual_seed(0)
    images, labels = load_digits(return_X_y=True)
    pixels, y = torch.from_numpy(images / 16).float(), torch.from_numpy(labels)
    known = (y < N_CLASSES).nonzero()[:, 0]
    train, test = known[: len(known) // 2], known[len(known) // 2 :]
    network = trained(pixels[train], y[train], n_epochs)
    noise = torch.rand(200, 64)
    seen = {
        "known": look(network, pixels[test]),
        "unseen": look(network, pixels[y >= N_CLASSES]),
        "noise": look(network, noise),
        "fooling": look(network, fooling_inputs(network, noise)),
    }
    reference = look(network, pixels[train])
    distance = MahalanobisDistance(normalize=True).fit(reference.features, y[train].numpy())
    print(f"{'':<10} {'confidence':>10} {'same pattern':>13} {'units apart':>12}  AUROC of")
    print(f"{'':<10} {'mean':>10} {'fraction':>13} {'median':>12}  confidence distance patterns")
    patterns = {
        name: activation_patterns(one.hidden, reference.hidden) for name, one in seen.items()
    }
    for name, one in seen.items():
        found = patterns[name]
        figures = f"{one.confidence.mean():>10.3f} {(found.n_shared > 0).mean():>13.3f}"
        line = f"{name:<10} {figures} {np.median(found.distance):>12.0f}"
        if name != "known":
            own = seen["known"]
            scores = [
                (-one.confidence, -own.confidence),
                (distance.score(one.features), distance.score(own.features)),
                (found.distance, patterns["known"].distance),
            ]
            aurocs = [
                roc_auc(np.repeat([True, False], [a.size, b.size]), np.concatenate([a, b]))
                for a, b in scores
            ]
            line += f"  {aurocs[0]:>10.3f} {aurocs[1]:>8.3f} {aurocs[2]:>8.3f}"
        print(line)
    folder.mkdir(parents=True, exist_ok=True)
    draw_fooling(seen, folder / "fooling.png")
    draw_rays(network, pixels[train], seen, folder / "rays.png")
    draw_patterns(seen, reference, folder / "patterns.png")
    return seen


def trained(images: Tensor, labels: Tensor, n_epochs: int) -> nn.Sequential:
    """Return a network with two hidden layers."""
    network = nn.Sequential(
        *(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU()), nn.Linear(32, N_CLASSES)
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=3e-3)
    for _ in range(n_epochs):
        for rows in torch.split(torch.randperm(len(images)), 64):
            optimizer.zero_grad()
            loss = functional.cross_entropy(network(images[rows]), labels[rows])
            torch.autograd.backward(loss)
            optimizer.step()
    return network.eval()


def look(network: nn.Sequential, images: Tensor) -> Seen:
    """Return what a network makes of images."""
    with torch.no_grad():
        first = network[:2](images)
        last = network[2:4](first)
        logits = Logits(network[4](last).numpy())
    return Seen(images.numpy(), torch.cat([first, last], dim=1).numpy(), last.numpy(), logits)


def fooling_inputs(network: nn.Module, start: Tensor) -> Tensor:
    """Return images optimized from noise for confidence in their top class, within [0, 1]."""
    images = start.clone().requires_grad_()
    wanted = network(start).argmax(1)
    for _ in range(N_STEPS):
        confidence = functional.log_softmax(network(images), dim=1).gather(1, wanted[:, None])
        (gradient,) = torch.autograd.grad(confidence.sum(), [images])
        with torch.no_grad():
            images += STEP * gradient / gradient.norm(dim=1, keepdim=True).clamp_min(1e-12)
            images.clamp_(0, 1)
    return images.detach()


def draw_fooling(seen: dict[str, Seen], path: Path) -> None:
    """Show noise before and after, with the network's predictions."""
    figure, grid = plt.subplots(2, 6, figsize=(8, 3.4), layout="constrained")
    for row, name in zip(grid, ("noise", "fooling"), strict=True):
        one = seen[name]
        for axes, image, logits, confidence in zip(
            row, one.images, one.logits.array, one.confidence, strict=False
        ):
            axes.imshow(image.reshape(8, 8), cmap="gray", vmin=0, vmax=1)
            axes.set_title(f"{logits.argmax()}: {confidence:.1%}", fontsize=9)
            axes.axis("off")
    figure.suptitle("Noise (top), and after gradient ascent on the confidence (bottom)")
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_rays(network: nn.Sequential, train: Tensor, seen: dict[str, Seen], path: Path) -> None:
    """Plot the confidence along rays from the mean of the training images."""
    linear = [one for one in network if isinstance(one, nn.Linear)]
    layers = [(one.weight.detach().numpy(), one.bias.detach().numpy()) for one in linear]
    origin = train.mean(dim=0).numpy()
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, one in seen.items():
        rays = ray_confidence(layers, origin, one.images[:200] - origin, FACTORS)
        axes.plot(FACTORS, rays.confidence.mean(axis=0), color=COLORS[name], label=name)
        print(f"rays through {name}: the limit is 1 for {(rays.limit == 1).mean():.1%}")
    axes.axvline(1, color="#bbbbbb", linewidth=1)
    axes.set_xscale("log")
    axes.set_xlabel("factor: 1 is the image itself, 0 the mean of the training images")
    axes.set_ylabel("mean confidence")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


def draw_patterns(seen: dict[str, Seen], reference: Seen, path: Path) -> None:
    """Plot in how many units the nearest training image differs."""
    figure, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    for name, one in seen.items():
        distance = activation_patterns(one.hidden, reference.hidden).distance
        values, counts = np.unique(distance, return_counts=True)
        axes.step(values, np.cumsum(counts) / distance.size, where="post", color=COLORS[name],
                  label=name)  # fmt: skip
    axes.set_xlabel(f"units (of {reference.hidden.shape[1]}) that differ from the nearest "
                    "training image")  # fmt: skip
    axes.set_ylabel("fraction of images")
    axes.legend(frameon=False)
    figure.savefig(path, dpi=120)
    plt.close(figure)


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "fooling"))
