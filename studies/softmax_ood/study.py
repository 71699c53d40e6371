"""Softmax doubt notices strangers, for deep networks extinguish what they have not learned.

    python -m studies.softmax_ood            # 5 networks, six kinds of strangers
    python -m studies.softmax_ood --quick    # seconds: few rows, one seed

Pearce, Brintrup and Zhu, "Understanding softmax confidence and uncertainty", 2021. LeNet5 learns
eight classes of Fashion-MNIST. Strangers are bags and boots, digits of scikit-learn, images made
worse, images with shuffled pixels, noise, and noise optimized to fool (Nguyen, Yosinski and Clune,
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
from studies.common.ood_images import KINDS, fooling, noise, strangers
from studies.common.runs import Arrays, Found
from studies.common.study import Options, Study
from studies.common.training import Recipe, train
from studies.softmax_ood.evaluation import Judge, Seen, first_rows, layers_of, look
from studies.softmax_ood.picture import SCALED
from studies.softmax_ood.reporting import tell
from studies.softmax_ood.scaled_inputs import DIMENSIONS, FACTORS, far_confidence

KNOWN, UNSEEN = range(8), (8, 9)
LIKELIHOOD = Categorical(len(KNOWN))


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """One network of each form, and the images that it learns and meets."""

    seed: int
    n_train: int
    n_validation: int
    n_test: int
    n_strangers: int
    n_fooling_steps: int
    recipe: Recipe
    toy_rows: int
    toy_recipe: Recipe
    folder: Path


def settings(options: Options) -> list[Setting]:
    """Return one setting a seed."""
    if options.is_quick:
        sizes = 300, 160, 120, 30, 4, Recipe(2, learning_rate=5e-3, batch_rows=32), 200, Recipe(1)
    else:
        sizes = 16_000, 4_000, 4_000, 1_000, 100, Recipe(12), 3_000, Recipe(20)
    return [Setting(seed, *sizes, options.folder) for seed in options.seeds]


def work(setting: Setting) -> Found:
    """Return how doubts tell strangers, norms by layer, patterns, scaled inputs and the plane."""
    parts, unseen, spare = parts_of(setting)
    generator = seeded(setting.seed)
    network = lenet5(len(KNOWN))
    untrained = deepcopy(network).eval()
    learn(network, parts.train, setting, generator)
    strange = strangers(network, unseen, spare, setting.n_fooling_steps, generator)
    every = {"known": parts.test.pixels, **strange}
    seen = {name: look(network, pixels) for name, pixels in every.items()}
    judge = Judge(look(network, parts.validation.pixels), parts.validation.labels.numpy())
    return {
        "accuracy": accuracy(parts.test.labels.numpy(), seen["known"].logits),
        **judge.figures(seen),
        "layers": layers_of(network, every),
        "untrained_layers": layers_of(untrained, every),
        "activations": mean_activations(seen, parts.test.labels),
        **scaled(network, judge, every),
        "toy": [
            far_confidence(size, setting.toy_rows, setting.toy_recipe, setting.seed)
            for size in DIMENSIONS
        ],
        **fools(strange["fooling"], seen["fooling"]),
        **in_a_plane(parts, strange, setting),
    }


def parts_of(setting: Setting) -> tuple[Parts, Tensor, Tensor]:
    """Return images of known classes, unseen ones, and known ones to make strangers of.

    Those of the test are the first of their kind, the same for every seed.
    """
    drawing = torch.Generator().manual_seed(setting.seed)
    n_learned = setting.n_train + setting.n_validation
    learned = Images.read(setting.folder, "train").draw(KNOWN, n_learned, drawing)
    rows = torch.arange(n_learned)
    judged = Images.read(setting.folder, "t10k")
    is_unseen = torch.isin(judged.labels, torch.tensor(UNSEEN))
    known = (~is_unseen).nonzero().squeeze(1)
    test = judged.take(known[: setting.n_test])
    spare = judged.take(known[setting.n_test : setting.n_test + setting.n_strangers])
    unseen = judged.take(is_unseen.nonzero().squeeze(1)[: setting.n_strangers])
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
    """Return the mean of each last feature over known images by class, and over strangers."""
    codes = labels.numpy()
    known = [seen["known"].features[codes == label].mean(axis=0) for label in KNOWN]
    strange = [seen[name].features.mean(axis=0) for name in KINDS]
    return np.array([*known, *strange], dtype=np.float32)


def scaled(network: nn.Sequential, judge: Judge, every: dict[str, Tensor]) -> Found:
    """Return confidence in images times a factor, and how many each doubt finds strange."""
    confidence, found = [], []
    for name in SCALED:
        seen = [look(network, factor * every[name]) for factor in FACTORS]
        confidence.append([1 - least_confidence(one.logits).mean() for one in seen])
        found.append([judge.shares_found(one) for one in seen])
    return {"scaled_confidence": confidence, "scaled_found": found}


def fools(pixels: Tensor, seen: Seen) -> Arrays:
    """Return a few images that fool, and what the network says of them."""
    first = pixels[:8, 0]
    said = seen.logits.take(slice(len(first)))
    return {
        "fools": (255 * first).round().to(torch.uint8).numpy(),
        "fools_class": said.array.argmax(axis=1),
        "fools_confidence": 1 - least_confidence(said),
    }


def in_a_plane(parts: Parts, strange: dict[str, Tensor], setting: Setting) -> Found:
    """Return the last features of a network that has two of them, and its region of doubt.

    It has fooling images of its own.
    """
    generator = seeded(setting.seed)
    body = list(lenet5(len(KNOWN)))[:-1]
    network = nn.Sequential(*body, nn.Linear(84, 2), nn.Linear(2, len(KNOWN)))
    learn(network, parts.train, setting, generator)
    judge = Judge(look(network, parts.validation.pixels), parts.validation.labels.numpy())
    start = noise(setting.n_strangers, generator)
    fools_it = fooling(network, start, setting.n_fooling_steps, generator)
    every = {"known": parts.test.pixels, **strange, "fooling": fools_it}
    seen = {name: look(network, pixels) for name, pixels in every.items()}
    features = first_rows([one.features for one in seen.values()])
    figures = judge.figures(seen)
    return {
        "plane_accuracy": accuracy(parts.test.labels.numpy(), seen["known"].logits),
        "plane_features": features,
        "plane_weights": judge.known.weights,
        "plane_bias": judge.known.bias,
        "plane_threshold": judge.threshold("least confidence"),
        "plane_aurocs": figures["aurocs"],
        "plane_found": figures["found"],
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study."""
    Study("softmax_ood", settings, work, tell, n_seeds=5).main(arguments)
