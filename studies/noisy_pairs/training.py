"""Networks that learn from labels of which pairs of classes are swapped: runs of three studies.

`noisy_recipe` chooses how fast they learn, `noisy_pairs` compares the losses, `votes` what several
views of an image are worth; a run that two of them need is made once.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, final

import numpy as np
import torch
from torch import Tensor, nn

from dubito.arrays import BoolArray, FloatArray
from dubito.doubt import entropy
from dubito.errors import BoundWarning
from dubito.learn import UncertaintyAware, collect_outputs, flip_labels
from dubito.measure import accuracy, expected_calibration_error, log_loss, roc_auc
from studies.common.cifar import cifar10
from studies.common.images import Images, Parts, fashion_mnist
from studies.common.networks import conv_net, seeded
from studies.common.runs import RunResult
from studies.common.study import Options
from studies.common.training import Recipe, slowing, train
from studies.noisy_pairs.losses import Learning, learning
from studies.noisy_pairs.view_votes import VIEWS, seen, vote_accuracies

Pace = Literal["steady", "slowing"]  # of the learning rate: held, or falling in a line to 0
FASHION, CIFAR = "Fashion-MNIST", "CIFAR-10"
PAIRS = {
    FASHION: ((0, 6), (2, 4), (5, 7), (1, 3)),
    CIFAR: ((0, 2), (1, 9), (3, 5), (4, 7)),  # airplane-bird, automobile-truck, cat-dog, deer-horse
}
RATES = (0.0, 0.2, 0.4)
VOTERS = ("cross-entropy", "joint, floor -4", "faithful")
VOTED_RATES = (0.0, 0.4)
N_LAYERS = 3
SPEED: tuple[float, Pace] = (4e-3, "slowing")  # by `noisy_recipe`
CACHE_NAME = "noisy_training"  # the folder of the runs


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """All that a run depends on."""

    data: Literal["Fashion-MNIST", "CIFAR-10"]
    path: Path
    loss: str
    rate: float  # the fraction of rows of the pairs' classes whose label is swapped
    seed: int
    sizes: tuple[int, int, int]  # to learn from, to choose on, to judge by
    n_epochs: int
    width: int
    learning_rate: float  # at the start
    pace: Pace
    batch_rows: int = 64
    views: str = "none"  # in training

    @property
    def recipe(self) -> Recipe:
        """How long and how fast the network learns."""
        return Recipe(self.n_epochs, self.learning_rate, batch_rows=self.batch_rows)

    @property
    def voted(self) -> tuple[str, ...]:
        """The views that vote at test time: those of training, or if there were none, all."""
        if self.loss not in VOTERS or self.rate not in VOTED_RATES or self.data == CIFAR:
            return ()
        return tuple(VIEWS)[1:] if self.views == "none" else (self.views,)

    def parts(self) -> Parts:
        """Return the images, with noisy labels everywhere but in the test."""
        if self.data == FASHION:
            parts = fashion_mnist(*self.sizes, self.seed, self.path)
        else:
            parts = cifar10(self.path, *self.sizes, self.seed)
        return parts._replace(
            train=self.noisy(parts.train, 2 * self.seed),
            validation=self.noisy(parts.validation, 2 * self.seed + 1),
        )

    def noisy(self, images: Images, seed: int) -> Images:
        """Return images with the labels of pairs swapped both ways."""
        flipped = flip_labels(images.labels, self.rate, PAIRS[self.data], random_state=seed)
        return Images(images.pixels, flipped.noisy)


def fashion(options: Options, loss: str, rate: float, seed: int, views: str = "none") -> Setting:
    """Return a run on Fashion-MNIST, of 20,000 rows unless quick."""
    sizes = (128, 60, 60) if options.is_quick else (20_000, 4_000, 10_000)
    size = (1, 4) if options.is_quick else (6, 16)
    return Setting(
        "Fashion-MNIST", options.folder, loss, rate, seed, sizes, *size, *SPEED, views=views
    )


def cifar(path: Path, options: Options, loss: str, rate: float, seed: int) -> Setting:
    """Return a run on CIFAR-10, of 8,000 rows unless quick."""
    sizes = (40, 20, 20) if options.is_quick else (8_000, 2_000, 3_000)
    size = (1, 4) if options.is_quick else (15, 16)
    return Setting("CIFAR-10", path, loss, rate, seed, sizes, *size, *SPEED)


def work(setting: Setting) -> RunResult:
    """Train one network on noisy labels; return its curves, detection by s, and votes."""
    parts = setting.parts()
    generator = seeded(setting.seed)
    used = learning(setting.loss, len(parts.train))
    n_channels = parts.train.pixels.shape[1]
    network = conv_net(N_LAYERS, setting.width, used.likelihood.n_outputs, n_channels=n_channels)
    # A quarter faster on processors. PyTorch's types do not know of it.
    network.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
    curves = Curves(network, parts, used)
    with no_floor_on_purpose():
        train(
            network,
            parts.train,
            curves.noted_loss,
            setting.recipe,
            generator,
            views=VIEWS[setting.views],
            on_epoch=curves.note,
            pace=slowing if setting.pace == "slowing" else None,
        )
    found = {**curves.arrays(), **evaluate(network, parts.test, used, PAIRS[setting.data])}
    for name in setting.voted:
        validation, test = (
            (seen(network, images, name, used.likelihood), images.labels.numpy())
            for images in (parts.validation, parts.test)
        )
        accuracies = vote_accuracies(validation, test)
        found |= {f"{name}: {way}": value for way, value in accuracies.items()}
    return found


@contextmanager
def no_floor_on_purpose() -> Iterator[None]:
    """Let a loss without a floor pass: what becomes of it is shown."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", BoundWarning)
        yield


@final
@dataclass(slots=True, eq=False)
class Curves:
    """What is noted after each epoch: the training's own loss, and how rows left out are judged."""

    network: nn.Module
    parts: Parts
    used: Learning
    batch_losses: list[float] = field(default_factory=list)
    rows: list[tuple[float, ...]] = field(default_factory=list)

    def noted_loss(self, outputs: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """Return the loss of a batch, and note it."""
        found = self.used.loss(outputs, y, rows)
        self.batch_losses.append(found.item())
        return found

    def note(self, _: int) -> None:
        """Note an epoch."""
        row = [float(np.mean(self.batch_losses))]
        self.batch_losses.clear()
        for images in (self.parts.validation, self.parts.test):
            said = collect_outputs(self.network, images, likelihood=self.used.likelihood)
            row += [log_loss(said.labels, said.logits), accuracy(said.labels, said.logits)]
        self.rows.append(tuple(row))

    def arrays(self) -> dict[str, Any]:
        """Return the curves by name; those of validation are against noisy labels."""
        names = (
            "training loss",
            *("validation log loss", "validation accuracy"),
            *("test log loss", "test accuracy"),
        )
        return dict(zip(names, np.array(self.rows).T, strict=True))


def evaluate(
    network: nn.Module, test: Images, used: Learning, pairs: tuple[tuple[int, int], ...]
) -> dict[str, Any]:
    """Return how well a network's doubts find noisy classes and its own errors, on true labels."""
    said = collect_outputs(network, test, likelihood=used.likelihood)
    labels = test.labels.numpy()
    uncertainties: dict[str, FloatArray] = {"entropy": entropy(said.logits)}
    if isinstance(used.likelihood, UncertaintyAware):
        uncertainties["s"] = log_variances(network, test, used.likelihood)
    is_noisy = np.isin(labels, pairs)
    is_wrong = said.logits.array.argmax(axis=1) != labels
    found: dict[str, Any] = {
        "ECE": expected_calibration_error(labels, said.logits),
        "accuracy by class": [1 - is_wrong[labels == class_].mean() for class_ in range(10)],
    }
    for name, score in uncertainties.items():
        found[f"{name} for noisy classes"] = auroc_or_guess(is_noisy, score)
        found[f"{name} for errors"] = auroc_or_guess(is_wrong, score)
        found[f"{name} by class"] = [score[labels == class_].mean() for class_ in range(10)]
    return found


def auroc_or_guess(is_outlier: BoolArray, score: FloatArray) -> float:
    """Return AUROC, or that of a guess where a network that hardly learned has all rows wrong."""
    return 0.5 if is_outlier.all() or not is_outlier.any() else roc_auc(is_outlier, score)


def log_variances(network: nn.Module, images: Images, likelihood: UncertaintyAware) -> FloatArray:
    """Return s of each image."""
    with torch.no_grad():
        found = [likelihood.log_variance(network(pixels)) for pixels, _ in images]
    return torch.cat(found).double().numpy()
