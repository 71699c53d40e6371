"""Networks trained on Fashion-MNIST with different choices, used by several studies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, NamedTuple, Self, final

import numpy as np
from torch import Tensor, nn

from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.data import Batch
from dubito.learn import Categorical, SquaredError, collect_outputs
from dubito.measure import ProperScoresState, ReliabilityState, accuracy
from studies.common.images import FOLDER, Parts, fashion_mnist
from studies.common.networks import conv_net, lenet5, seeded
from studies.common.runs import Arrays, RunResult
from studies.common.training import Recipe, train

N_CLASSES = 10
CACHE_NAME = "image_networks"  # the folder of the runs

parts_of = lru_cache(maxsize=1)(fashion_mnist)  # most runs train on the same images


@final
@dataclass(frozen=True, slots=True)
class Choices:
    """The choices about a network before training."""

    n_layers: int = 3
    width: int = 16
    norm: Literal["none", "batch"] = "none"
    is_lenet5: bool = False  # the three above are then unused
    learning_rate: float = 2e-3
    weight_decay: float = 0.0
    smoothing: float = 0.0
    loss: Literal["cross-entropy", "square", "square on scores"] = "cross-entropy"

    def network(self) -> nn.Sequential:
        """Return the network before it learns."""
        if self.is_lenet5:
            return lenet5(N_CLASSES)
        return conv_net(self.n_layers, self.width, N_CLASSES, norm=self.norm)

    def n_parameters(self) -> int:
        """Return how many numbers the network learns."""
        return sum(one.numel() for one in self.network().parameters())

    def likelihood(self) -> Categorical | SquaredError:
        """Return what is minimized."""
        if self.loss != "cross-entropy":
            return SquaredError(N_CLASSES, on="softmax" if self.loss == "square" else "scores")
        return Categorical(N_CLASSES, label_smoothing=self.smoothing)


@final
@dataclass(frozen=True, slots=True)
class Size:
    """Number of images, and length of training.

    At the end there may be some epochs at a tenth of the learning rate.
    """

    n_train: int
    n_epochs: int
    n_settling: int = 0
    n_validation: int = 5_000
    n_test: int = 10_000


@final
@dataclass(frozen=True, slots=True)
class Trained:
    """One network to train; a followed one is evaluated after each epoch."""

    choices: Choices
    size: Size
    seed: int
    is_followed: bool = False
    folder: Path = field(default=FOLDER, repr=False, compare=False)


class Figures(NamedTuple):
    """Accuracy and calibration metrics of a network."""

    log_loss: float
    error: float
    ece: float  # of 15 bins
    gap: float  # confidence minus accuracy

    @classmethod
    def of(cls, labels: Any, outputs: Logits | FloatArray) -> Self:
        """Return the figures of a network's outputs."""
        batch = Batch.of(labels, outputs)
        scores, bins = ProperScoresState.of(batch).value, ReliabilityState.of(batch)
        assert scores.log_loss is not None
        return cls(scores.log_loss, 1 - scores.accuracy, bins.expected(), scores.gap)


Seen = Mapping[Choices, Mapping[str, FloatArray]]  # figures by name, one entry a seed


def trained(setting: Trained) -> RunResult:
    """Train a network with Adam; return validation and test logits, and feature statistics.

    `curves` of a followed one are epochs x parts (validation, test) x figures.
    """
    size, choices = setting.size, setting.choices
    parts = parts_of(size.n_train, size.n_validation, size.n_test, setting.seed, setting.folder)
    generator = seeded(setting.seed)
    network, likelihood = choices.network(), choices.likelihood()
    curves: list[list[Figures]] = []

    def loss(outputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        return likelihood.loss(outputs, labels)

    def follow(n_epochs: int) -> None:
        if setting.is_followed:
            both = (parts.validation, parts.test)
            found = (collect_outputs(network, one, likelihood=likelihood) for one in both)
            curves.append([Figures.of(one.labels, one.logits) for one in found])

    for n_epochs, rate in ((size.n_epochs, 1.0), (size.n_settling, 0.1)):
        recipe = Recipe(
            n_epochs,
            rate * choices.learning_rate,
            weight_decay=choices.weight_decay,
            batch_rows=32,
            optimizer="adam with l2",
        )
        train(network, parts.train, loss, recipe, generator, on_epoch=follow)
    return {"curves": np.array(curves), **outputs_of(network, parts, likelihood)}


def outputs_of(
    network: nn.Module, parts: Parts, likelihood: Categorical | SquaredError
) -> RunResult:
    """Return validation and test logits, and the feature statistics of all parts."""
    found: dict[str, object] = {}
    for name, images in parts._asdict().items():
        one = collect_outputs(network, images, likelihood=likelihood)
        assert one.features is not None
        assert one.weights is not None
        assert one.labels is not None
        found[f"{name}_scatter"] = scatter_ratio(one.features, one.labels)
        found[f"{name}_cosine"] = template_cosine(one.features, one.labels, one.weights)
        if name == "train":
            found["train_error"] = 1 - accuracy(one.labels, one.logits)
        else:
            found[f"{name}_logits"] = one.logits.array.astype(np.float32)
            found[f"{name}_labels"] = one.labels.astype(np.int8)
    return found


def scatter_ratio(features: FloatArray, labels: IntArray) -> float:
    """Return the features' variance within classes over that between their means.

    The tighter the clusters, the smaller.
    """
    wide = features.astype(np.float64)
    classes, codes = np.unique(labels, return_inverse=True)
    means = np.stack([wide[codes == code].mean(axis=0) for code in range(classes.size)])
    within = np.square(wide - means[codes]).sum()
    between = np.square(means[codes] - wide.mean(axis=0)).sum()
    return float(within / between)


def template_cosine(features: FloatArray, labels: IntArray, weights: FloatArray) -> float:
    """Return the mean cosine between features and the weights of their class.

    Both are centered: a common offset of the weights changes no probability, and a common offset
    of the features acts like a bias.
    """
    rows = features.astype(np.float64) - features.mean(axis=0, dtype=np.float64)
    templates = (weights - weights.mean(axis=0))[labels]
    norms = np.linalg.norm(rows, axis=1) * np.linalg.norm(templates, axis=1)
    return float(((rows * templates).sum(axis=1) / norms).mean())


def by_choices(found: Mapping[Trained, Arrays]) -> Seen:
    """Return the figures of runs by what was chosen: one entry a seed under each name."""
    seen: dict[Choices, list[dict[str, float]]] = {}
    for setting, one in found.items():
        test, validation = (
            Figures.of(one[f"{part}_labels"], Logits(one[f"{part}_logits"]))
            for part in ("test", "validation")
        )
        numbers = {name: float(value) for name, value in one.items() if value.ndim == 0}
        figures = test._asdict() | {"validation_error": validation.error} | numbers
        seen.setdefault(setting.choices, []).append(figures)
    return {
        choices: {name: np.array([row[name] for row in rows]) for name in rows[0]}
        for choices, rows in seen.items()
    }
