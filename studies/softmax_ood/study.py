"""Softmax confidence detects OOD inputs, because deep networks attenuate unknown features.

    python -m studies.softmax_ood            # 5 networks, six kinds of OOD input
    python -m studies.softmax_ood --quick    # seconds: few rows, one seed

Pearce, Brintrup and Zhu, "Understanding softmax confidence and uncertainty", 2021. LeNet5 learns
eight classes of Fashion-MNIST. OOD inputs are bags and boots, digits of scikit-learn, corrupted
images, images with shuffled pixels, noise, and noise optimized to fool (Nguyen, Yosinski and Clune,
"Deep neural networks are easily fooled", 2015). Inputs are also scaled up (Hein, Andriushchenko and
Bitterwolf, "Why ReLU networks yield high-confidence predictions far away from the training data",
2019). Distances and regions are learned from validation images. A second network, whose last
features are two numbers, is there for its picture.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
import torch
from torch import Tensor, nn

from dubito.arrays import FloatArray
from dubito.doubt import least_confidence
from dubito.learn import Categorical
from dubito.measure import accuracy
from studies.common.images import Images, Parts
from studies.common.networks import lenet5, seeded
from studies.common.ood_images import KINDS, fooling, noise, ood_images
from studies.common.runs import Arrays, RunResult
from studies.common.study import Options, Study
from studies.common.training import Recipe, train
from studies.softmax_ood.evaluation import OODEvaluator, Seen, first_rows, layers_of, look
from studies.softmax_ood.picture import SCALED
from studies.softmax_ood.reporting import summarize
from studies.softmax_ood.scaled_inputs import DIMENSIONS, FACTORS, far_confidence

KNOWN, UNSEEN = range(8), (8, 9)
LIKELIHOOD = Categorical(len(KNOWN))


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """One network of each form, and its images."""

    seed: int
    n_train: int
    n_validation: int
    n_test: int
    n_ood: int
    n_fooling_steps: int
    recipe: Recipe
    toy_rows: int
    toy_recipe: Recipe
    folder: Path


def settings(options: Options) -> list[Setting]:
    """Return one setting per seed."""
    if options.is_quick:
        sizes = 300, 160, 120, 30, 4, Recipe(2, learning_rate=5e-3, batch_rows=32), 200, Recipe(1)
    else:
        sizes = 16_000, 4_000, 4_000, 1_000, 100, Recipe(12), 3_000, Recipe(20)
    return [Setting(seed, *sizes, options.folder) for seed in options.seeds]


def work(setting: Setting) -> RunResult:
    """Return detection by score, norms by layer, patterns, scaled inputs and the plane."""
    parts, unseen, spare = parts_of(setting)
    generator = seeded(setting.seed)
    network = lenet5(len(KNOWN))
    untrained = deepcopy(network).eval()
    learn(network, parts.train, setting, generator)
    ood = ood_images(network, unseen, spare, setting.n_fooling_steps, generator)
    every = {"known": parts.test.pixels, **ood}
    seen = {name: look(network, pixels) for name, pixels in every.items()}
    evaluator = OODEvaluator(
        look(network, parts.validation.pixels), parts.validation.labels.numpy()
    )
    return {
        "accuracy": accuracy(parts.test.labels.numpy(), seen["known"].logits),
        **evaluator.figures(seen),
        "layers": layers_of(network, every),
        "untrained_layers": layers_of(untrained, every),
        "activations": mean_activations(seen, parts.test.labels),
        **scaled(network, evaluator, every),
        "toy": [
            far_confidence(size, setting.toy_rows, setting.toy_recipe, setting.seed)
            for size in DIMENSIONS
        ],
        **fools(ood["fooling"], seen["fooling"]),
        **in_a_plane(parts, ood, setting),
    }


def parts_of(setting: Setting) -> tuple[Parts, Tensor, Tensor]:
    """Return images of known classes, of unseen classes, and known ones to corrupt.

    Test images are the first of their kind, the same for every seed.
    """
    drawing = torch.Generator().manual_seed(setting.seed)
    n_learned = setting.n_train + setting.n_validation
    learned = Images.read(setting.folder, "train").draw(KNOWN, n_learned, drawing)
    rows = torch.arange(n_learned)
    evaluate = Images.read(setting.folder, "t10k")
    is_unseen = torch.isin(evaluate.labels, torch.tensor(UNSEEN))
    known = (~is_unseen).nonzero().squeeze(1)
    test = evaluate.take(known[: setting.n_test])
    spare = evaluate.take(known[setting.n_test : setting.n_test + setting.n_ood])
    unseen = evaluate.take(is_unseen.nonzero().squeeze(1)[: setting.n_ood])
    parts = Parts(
        learned.take(rows[: setting.n_train]), learned.take(rows[setting.n_train :]), test
    )
    return parts, unseen.pixels, spare.pixels


def learn(
    network: nn.Sequential, images: Images, setting: Setting, generator: torch.Generator
) -> None:
    """Train a network in place."""

    def loss(outputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        return LIKELIHOOD.loss(outputs, labels)

    train(network, images, loss, setting.recipe, generator)


def mean_activations(seen: dict[str, Seen], labels: Tensor) -> FloatArray:
    """Return the mean of each penultimate feature, by known class and by kind of OOD input."""
    codes = labels.numpy()
    known = [seen["known"].features[codes == label].mean(axis=0) for label in KNOWN]
    ood = [seen[name].features.mean(axis=0) for name in KINDS]
    return np.array([*known, *ood], dtype=np.float32)


def scaled(network: nn.Sequential, evaluator: OODEvaluator, every: dict[str, Tensor]) -> RunResult:
    """Return the confidence for scaled images, and the fraction flagged by each score."""
    confidence, found = [], []
    for name in SCALED:
        seen = [look(network, factor * every[name]) for factor in FACTORS]
        confidence.append([1 - least_confidence(one.logits).mean() for one in seen])
        found.append([evaluator.flagged_fractions(one) for one in seen])
    return {"scaled_confidence": confidence, "scaled_found": found}


def fools(pixels: Tensor, seen: Seen) -> Arrays:
    """Return a few fooling images, and the network's predictions."""
    first = pixels[:8, 0]
    said = seen.logits.take(slice(len(first)))
    return {
        "fools": (255 * first).round().to(torch.uint8).numpy(),
        "fools_class": said.array.argmax(axis=1),
        "fools_confidence": 1 - least_confidence(said),
    }


def in_a_plane(parts: Parts, ood: dict[str, Tensor], setting: Setting) -> RunResult:
    """Return the features of a network with two penultimate features, and its threshold.

    It has its own fooling images.
    """
    generator = seeded(setting.seed)
    body = list(lenet5(len(KNOWN)))[:-1]
    network = nn.Sequential(*body, nn.Linear(84, 2), nn.Linear(2, len(KNOWN)))
    learn(network, parts.train, setting, generator)
    evaluator = OODEvaluator(
        look(network, parts.validation.pixels), parts.validation.labels.numpy()
    )
    start = noise(setting.n_ood, generator)
    fools_it = fooling(network, start, setting.n_fooling_steps, generator)
    every = {"known": parts.test.pixels, **ood, "fooling": fools_it}
    seen = {name: look(network, pixels) for name, pixels in every.items()}
    features = first_rows([one.features for one in seen.values()])
    figures = evaluator.figures(seen)
    return {
        "plane_accuracy": accuracy(parts.test.labels.numpy(), seen["known"].logits),
        "plane_features": features,
        "plane_weights": evaluator.known.weights,
        "plane_bias": evaluator.known.bias,
        "plane_threshold": evaluator.threshold("least confidence"),
        "plane_aurocs": figures["aurocs"],
        "plane_found": figures["found"],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study."""
    Study("softmax_ood", settings, work, summarize, n_seeds=5).main(arguments)
