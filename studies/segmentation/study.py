"""Noise in the labels shows at borders, ignorance on strange shapes, and a teacher may use both.

    python -m studies.segmentation            # 3 seeds
    python -m studies.segmentation --quick    # seconds: few images, one seed

Kendall and Gal, "What uncertainties do we need in Bayesian deep learning for computer vision?",
2017. Images are made of two shapes of Fashion-MNIST before a texture. In the labels to learn from,
pixels at borders are shape or background by the toss of a coin, so that their noise is known:
log 2. Controls learn from true labels. Ensembles and passes with dropout are then asked about known
shapes, and about shapes that were never learned. With few labeled images a mean teacher (see
`mean_teacher`) stands beside labels only; how strongly it pulls is chosen on validation images.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import final

import numpy as np
from torch import Tensor, nn

from dubito.arrays import BoolArray, FloatArray
from dubito.learn import LogitNoise, UncertaintyMaps, uncertainty_maps
from dubito.measure import roc_auc
from studies.common.images import Images
from studies.common.networks import seeded
from studies.common.runs import Found
from studies.common.study import Options, Study
from studies.common.training import Recipe, slowing, train
from studies.segmentation.composed_images import (
    N_CLASSES,
    Composed,
    ComposedParts,
    borders,
    composed_parts,
)
from studies.segmentation.mean_teacher import WEIGHTS, Lesson, taught
from studies.segmentation.overlap import overlap
from studies.segmentation.reporting import DOUBTS, LABELS_ONLY, tell
from studies.segmentation.tiny_unet import TinyUNet

LIKELIHOOD = LogitNoise(N_CLASSES, n_samples=5)  # to learn by
ASKING = LogitNoise(N_CLASSES, n_samples=20)
N_EXAMPLES = 3
STRENGTHS = (1.0, 10.0)


@final
@dataclass(frozen=True, slots=True)
class DoubtSetting:
    """An ensemble that learns from labels with noisy borders, or from true ones."""

    seed: int
    has_noisy_borders: bool
    n_train: int
    n_test: int
    recipe: Recipe
    folder: Path
    n_members: int = 4
    n_passes: int = 10
    widths: tuple[int, int, int] = (16, 24, 32)
    dropout: float = 0.1


@final
@dataclass(frozen=True, slots=True)
class TeacherSetting:
    """One way to learn from few labeled images and many without labels."""

    seed: int
    method: str
    strength: float
    n_labeled: int
    n_unlabeled: int
    n_validation: int
    n_test: int
    lesson: Lesson
    folder: Path


Setting = DoubtSetting | TeacherSetting


def settings(options: Options) -> list[Setting]:
    """Return both ensembles and all ways of each seed."""
    ways = [(LABELS_ONLY, 0.0)]
    ways += [(name, strength) for name in WEIGHTS for strength in STRENGTHS]
    found: list[Setting] = []
    for seed in options.seeds:
        found += [doubt_setting(options, seed, has_noise) for has_noise in (True, False)]
        found += [teacher_setting(options, seed, *way) for way in ways]
    return found


def doubt_setting(options: Options, seed: int, has_noisy_borders: bool) -> DoubtSetting:
    """Return the setting of one ensemble."""
    if options.is_quick:
        few = Recipe(1, 1e-2, batch_rows=12)
        return DoubtSetting(seed, has_noisy_borders, 24, 8, few, options.folder, 2, 2)
    recipe = Recipe(12, 1e-2, batch_rows=16)
    return DoubtSetting(seed, has_noisy_borders, 1_000, 300, recipe, options.folder)


def teacher_setting(options: Options, seed: int, method: str, strength: float) -> TeacherSetting:
    """Return the setting of one way to learn."""
    if options.is_quick:
        few = Lesson(3, 4, n_passes=2)
        return TeacherSetting(seed, method, strength, 4, 8, 4, 8, few, options.folder)
    lesson = Lesson(600, 16)
    return TeacherSetting(seed, method, strength, 20, 500, 100, 300, lesson, options.folder)


def work(setting: Setting) -> Found:
    """Return how well doubt finds what it should, or how well one way to learn does."""
    if isinstance(setting, DoubtSetting):
        return doubting(setting)
    return teaching(setting)


def teaching(setting: TeacherSetting) -> Found:
    """Return Dice and IoU on validation and test images."""
    parts = composed_parts(
        setting.n_labeled + setting.n_unlabeled,
        setting.n_validation,
        setting.n_test,
        setting.seed,
        setting.folder,
    )
    labeled = parts.train.take(slice(0, setting.n_labeled))
    teacher = taught(
        setting.lesson,
        (labeled.pixels, labeled.drawn),
        parts.train.pixels[setting.n_labeled :],
        strength=setting.strength,
        weight=WEIGHTS.get(setting.method),
        seed=setting.seed,
    )
    said = [teacher(part.pixels).argmax(1).numpy() for part in (parts.validation, parts.test)]
    return {
        # Nobody has true labels to choose by.
        "validation": overlap(parts.validation.drawn.numpy(), said[0], N_CLASSES),
        "test": overlap(parts.test.truth.numpy(), said[1], N_CLASSES),
    }


def doubting(setting: DoubtSetting) -> Found:
    """Return AUROCs and mean doubts by place, of the ensemble and of passes, and examples."""
    parts = composed_parts(setting.n_train, 0, setting.n_test, setting.seed, setting.folder)
    first = setting.seed * setting.n_members
    members = [trained(setting, parts.train, first + k) for k in range(setting.n_members)]
    known, strange = parts.test, parts.strange
    of_ensemble = [
        uncertainty_maps(ASKING, [network(part.pixels) for network in members])
        for part in (known, strange)
    ]
    network = members[0].train()  # nothing in it but dropout knows of training
    of_passes = [
        uncertainty_maps(ASKING, [network(part.pixels) for _ in range(setting.n_passes)])
        for part in (known, strange)
    ]
    found = [judged(parts, *maps) for maps in (of_ensemble, of_passes)]
    return {
        "aurocs": [aurocs for aurocs, _ in found],
        "means": [means for _, means in found],
        "overlap": overlap(known.truth.numpy(), of_ensemble[0].prediction, N_CLASSES),
        **examples(strange, of_ensemble[1]),
    }


def trained(setting: DoubtSetting, images: Composed, seed: int) -> nn.Module:
    """Return a network that gives logits and their noise for each pixel."""
    generator = seeded(seed)
    network = TinyUNet(LIKELIHOOD.n_outputs, setting.widths, setting.dropout)
    labels = images.drawn if setting.has_noisy_borders else images.truth

    def loss(outputs: Tensor, y: Tensor, _: Tensor) -> Tensor:
        return LIKELIHOOD.loss(outputs, y)

    train(network, Images(images.pixels, labels), loss, setting.recipe, generator, pace=slowing)
    return network.requires_grad_(False)


def places(images: Composed) -> dict[str, BoolArray]:
    """Return which pixels are where: at borders, inside of shapes, elsewhere, of which shapes.

    Of shapes only inner pixels count: strange ones are thinner, and borders are doubtful anyway.
    """
    truth, is_border = images.truth.numpy(), borders(images.truth).numpy()
    return {
        "border": is_border,
        "inner": ~is_border & (truth > 0),
        "background": ~is_border & (truth == 0),
        "strange": ~is_border & (truth == N_CLASSES),
        "known": ~is_border & (truth > 0) & (truth < N_CLASSES),
    }


def judged(
    parts: ComposedParts, known: UncertaintyMaps, strange: UncertaintyMaps
) -> tuple[FloatArray, FloatArray]:
    """Return AUROCs, questions x doubts, and mean doubts, places x doubts."""
    at, among = places(parts.test), places(parts.strange)
    aurocs, means = [], []
    for name in DOUBTS:
        here, there = getattr(known, name), getattr(strange, name)
        aurocs.append(
            [
                told_apart(here[at["border"]], here[at["inner"]]),
                told_apart(here[at["border"]], here[~at["border"]]),
                told_apart(there[among["strange"]], there[among["known"]]),
            ]
        )
        of_known = [here[at[place]].mean() for place in ("border", "inner", "background")]
        means.append([*of_known, *(there[among[place]].mean() for place in ("known", "strange"))])
    return np.transpose(aurocs), np.transpose(means)


def told_apart(doubtful: FloatArray, others: FloatArray) -> float:
    """Return the chance that a pixel of the first has more doubt than one of the others."""
    is_first = np.repeat([True, False], [doubtful.size, others.size])
    return roc_auc(is_first, np.concatenate([doubtful, others]))


def examples(images: Composed, maps: UncertaintyMaps) -> Found:
    """Return some images with what is to be seen of them."""
    some = slice(0, N_EXAMPLES)
    entries = {
        "image": images.pixels[some, 0].numpy(),
        "drawn": images.drawn[some].numpy(),
        "said": maps.prediction[some],
        "aleatoric": maps.aleatoric[some],
        "epistemic": maps.epistemic[some],
    }
    return {f"example {name}": array.astype(np.float32) for name, array in entries.items()}


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the study."""
    Study("segmentation", settings, work, tell).main(arguments)
