"""More data reduce epistemic uncertainty, and leave aleatoric uncertainty unchanged.

    python -m studies.more_data            # 250 to 16,000 rows, ensembles of 1, 5 and 10
    python -m studies.more_data --quick    # seconds: few rows, one seed

Kendall and Gal, "What uncertainties do we need in Bayesian deep learning for computer vision?",
2017, and of few data and ensembles Lakshminarayanan, Pritzel and Blundell, "Simple and scalable
predictive uncertainty estimation using deep ensembles", 2017. LeNet5 on Fashion-MNIST, where
trousers and bags, which look like nothing else, are labeled as each other with a chance of 0.3 in
all parts: whoever knows all there is to know doubts their labels by 0.611 nats. Each network
takes the same number of steps. It is judged at the end, and as it was when the loss of its
validation rows, a quarter as many as it learns from, was least.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, final

import numpy as np
import torch
from torch import Tensor, nn

from dubito import Logits, Members
from dubito.arrays import FloatArray, IntArray
from dubito.doubt import decompose_uncertainty, entropy
from dubito.learn import Categorical, DeepEnsemble, flip_labels
from dubito.measure import log_loss, roc_auc
from studies.common.asking import dropout_passes, figures_of, members_over
from studies.common.images import Images, Parts, fashion_mnist
from studies.common.networks import lenet5, seeded
from studies.common.ood_images import digits
from studies.common.runs import RunResult
from studies.common.study import Options, Study
from studies.common.training import Recipe, train
from studies.more_data.reporting import GROUPS, METHODS, PAIR, WAYS, summarize

LIKELIHOOD = Categorical(10)
BATCH_ROWS = 64
VALIDATION, TEST = 1_000, 2_000  # seeds of their labels, none of which training has


@final
@dataclass(frozen=True, slots=True)
class Setting:
    """Ten networks and one with dropout, learned from so many rows."""

    seed: int
    n_rows: int
    n_steps: int
    n_test: int
    n_ood: int
    folder: Path
    n_members: int = 10
    swap_rate: float = 0.3
    dropout: float = 0.2
    n_passes: int = 20

    @property
    def recipe(self) -> Recipe:
        """As many epochs as make the steps."""
        return Recipe(max(1, self.n_steps * BATCH_ROWS // self.n_rows), batch_rows=BATCH_ROWS)


def settings(options: Options) -> list[Setting]:
    """Return one setting a seed and number of rows."""
    sizes = (64, 256) if options.is_quick else (250, 1_000, 4_000, 16_000)
    n_steps, n_test, n_ood = (12, 200, 100) if options.is_quick else (1_250, 4_000, 1_797)
    return [
        Setting(seed, n_rows, n_steps, n_test, n_ood, options.folder)
        for seed in options.seeds
        for n_rows in sizes
    ]


def work(setting: Setting) -> RunResult:
    """Return figures, doubts by kind of image, and AUROC of OOD images, by way and method."""
    rows, test_rows = setting.n_rows, setting.n_test
    parts = fashion_mnist(rows, rows // 4, test_rows, setting.seed, setting.folder)
    learned = Parts(
        swapped(parts.train, setting, setting.seed),
        swapped(parts.validation, setting, setting.seed + VALIDATION),
        swapped(parts.test, setting, TEST),
    )
    first = setting.seed * (setting.n_members + 1)
    seeds = range(first, first + setting.n_members)
    networks = [trained(seed, learned, setting, dropout=0.0) for seed in seeds]
    dropping = trained(first + setting.n_members, learned, setting, setting.dropout)
    shown, labels = parts.test.labels.numpy(), learned.test.labels.numpy()
    ood_images = digits(setting.n_ood)
    found: list[Evaluated] = []
    for way in range(len(WAYS)):
        ask = Asking([one[way] for one in networks], dropping[way], setting.n_passes)
        known, ood = ask.all(parts.test.pixels), ask.all(ood_images)
        found.extend(mean_of(known[name], ood[name], shown, labels) for name in METHODS)
    by_name = zip(Evaluated._fields, zip(*found, strict=True), strict=True)
    shape = len(WAYS), len(METHODS)
    return {name: np.reshape(arrays, (*shape, *arrays[0].shape)) for name, arrays in by_name}


def swapped(images: Images, setting: Setting, seed: int) -> Images:
    """Return images with trousers and bags labeled as each other by chance."""
    noisy = flip_labels(images.labels, setting.swap_rate, [PAIR], random_state=seed).noisy
    return Images(images.pixels, noisy)


def trained(
    seed: int, parts: Parts, setting: Setting, dropout: float
) -> tuple[nn.Sequential, nn.Sequential]:
    """Return LeNet5 as it was at the least validation loss, and as it is at the end."""
    generator = seeded(seed)
    network = lenet5(dropout=dropout)
    best, least = deepcopy(network), np.inf

    def loss(outputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        return LIKELIHOOD.loss(outputs, labels)

    def keep_best(epoch: int) -> None:
        nonlocal least
        with torch.no_grad():
            outputs = Logits(network(parts.validation.pixels).numpy())
        reached = log_loss(parts.validation.labels.numpy(), outputs)
        if reached < least:
            least = reached
            best.load_state_dict(network.state_dict())

    train(network, parts.train, loss, setting.recipe, generator, on_epoch=keep_best)
    return best.eval(), network


@final
class Asking:
    """One network, ensembles of 5 and of 10, and passes with dropout."""

    def __init__(
        self, networks: Sequence[nn.Module], dropping: nn.Sequential, n_passes: int
    ) -> None:
        self.ensemble = DeepEnsemble(networks, likelihood=LIKELIHOOD)
        self.passes = dropout_passes(dropping, n_passes, LIKELIHOOD)

    def all(self, pixels: Tensor) -> dict[str, list[Members]]:
        """Return what each method says of images, as often as the networks allow."""
        members = members_over(self.ensemble, pixels)
        return {
            "one network": grouped(members, 1),
            "ensemble of 5": grouped(members, 5),
            "ensemble of 10": grouped(members, 10),
            "Monte Carlo dropout": [members_over(self.passes, pixels)],
        }


def grouped(members: Members, size: int) -> list[Members]:
    """Return smaller ensembles that share no member."""
    starts = range(0, members.n_passes, size)
    return [Members(members.array[start : start + size]) for start in starts]


class Evaluated(NamedTuple):
    """What is found of one method: figures, doubts (kinds of image x parts), AUROC by part."""

    figures: FloatArray
    uncertainties: FloatArray
    aurocs: FloatArray


def mean_of(
    known: Sequence[Members], ood: Sequence[Members], shown: IntArray, labels: IntArray
) -> Evaluated:
    """Return the means over ensembles of one kind."""
    each = [evaluate(*both, shown, labels) for both in zip(known, ood, strict=True)]
    return Evaluated(*(np.mean(arrays, axis=0) for arrays in zip(*each, strict=True)))


def evaluate(known: Members, ood: Members, shown: IntArray, labels: IntArray) -> Evaluated:
    """Return what is found of some members, by what images show and how they are labeled."""
    figures = figures_of(labels, known.mean)
    ours, theirs = split(known), split(ood)
    of_known = [ours[:, np.isin(shown, classes)].mean(axis=1) for classes in GROUPS.values()]
    is_ood = np.repeat([False, True], [ours.shape[1], theirs.shape[1]])
    aurocs = [roc_auc(is_ood, part) for part in np.concatenate([ours, theirs], axis=1)]
    return Evaluated(figures, np.array([*of_known, theirs.mean(axis=1)]), np.array(aurocs))


def split(members: Members) -> FloatArray:
    """Return total, aleatoric and epistemic doubt; one network's is taken for aleatoric."""
    if members.n_passes == 1:
        total = entropy(members.mean)
        return np.stack([total, total, np.zeros_like(total)])
    uncertainty = decompose_uncertainty(members)
    return np.stack([uncertainty.total, uncertainty.aleatoric, uncertainty.epistemic])


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study."""
    Study("more_data", settings, work, summarize).main(arguments)
