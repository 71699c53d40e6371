"""Noise in the labels shows at borders, ignorance on unseen shapes, and a teacher may use both.

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
from studies.common.runs import RunResult
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
from studies.segmentation.reporting import LABELS_ONLY, SCORES, summarize
from studies.segmentation.tiny_unet import TinyUNet

LIKELIHOOD = LogitNoise(N_CLASSES, n_samples=5)  # to learn by
ASKING = LogitNoise(N_CLASSES, n_samples=20)
N_EXAMPLES = 3
STRENGTHS = (1.0, 10.0)


@final
@dataclass(frozen=True, slots=True)
class UncertaintySetting:
    """An ensemble trained on labels with noisy borders, or on true ones."""

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
    """One method to learn from few labeled and many unlabeled images."""

    seed: int
    method: str
    strength: float
    n_labeled: int
    n_unlabeled: int
    n_validation: int
    n_test: int
    lesson: Lesson
    folder: Path


Setting = UncertaintySetting | TeacherSetting


def settings(options: Options) -> list[Setting]:
    """Return both ensembles and all methods of each seed."""
    ways = [(LABELS_ONLY, 0.0)]
    ways += [(name, strength) for name in WEIGHTS for strength in STRENGTHS]
    found: list[Setting] = []
    for seed in options.seeds:
        found += [uncertainty_setting(options, seed, has_noise) for has_noise in (True, False)]
        found += [teacher_setting(options, seed, *way) for way in ways]
    return found


def uncertainty_setting(options: Options, seed: int, has_noisy_borders: bool) -> UncertaintySetting:
    """Return the setting of one ensemble."""
    if options.is_quick:
        few = Recipe(1, 1e-2, batch_rows=12)
        return UncertaintySetting(seed, has_noisy_borders, 24, 8, few, options.folder, 2, 2)
    recipe = Recipe(12, 1e-2, batch_rows=16)
    return UncertaintySetting(seed, has_noisy_borders, 1_000, 300, recipe, options.folder)


def teacher_setting(options: Options, seed: int, method: str, strength: float) -> TeacherSetting:
    """Return the setting of one method."""
    if options.is_quick:
        few = Lesson(3, 4, n_passes=2)
        return TeacherSetting(seed, method, strength, 4, 8, 4, 8, few, options.folder)
    lesson = Lesson(600, 16)
    return TeacherSetting(seed, method, strength, 20, 500, 100, 300, lesson, options.folder)


def work(setting: Setting) -> RunResult:
    """Return the detection by uncertainty, or the overlap of one method."""
    if isinstance(setting, UncertaintySetting):
        return uncertainty_runs(setting)
    return teaching(setting)


def teaching(setting: TeacherSetting) -> RunResult:
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
        # In practice there are no true labels to choose by.
        "validation": overlap(parts.validation.drawn.numpy(), said[0], N_CLASSES),
        "test": overlap(parts.test.truth.numpy(), said[1], N_CLASSES),
    }


def uncertainty_runs(setting: UncertaintySetting) -> RunResult:
    """Return AUROCs and mean uncertainties by place, of ensemble and passes, and examples."""
    parts = composed_parts(setting.n_train, 0, setting.n_test, setting.seed, setting.folder)
    first = setting.seed * setting.n_members
    members = [trained(setting, parts.train, first + k) for k in range(setting.n_members)]
    known, ood = parts.test, parts.ood
    of_ensemble = [
        uncertainty_maps(ASKING, [network(part.pixels) for network in members])
        for part in (known, ood)
    ]
    network = members[0].train()  # nothing in it but dropout knows of training
    of_passes = [
        uncertainty_maps(ASKING, [network(part.pixels) for _ in range(setting.n_passes)])
        for part in (known, ood)
    ]
    found = [evaluate(parts, *maps) for maps in (of_ensemble, of_passes)]
    return {
        "aurocs": [aurocs for aurocs, _ in found],
        "means": [means for _, means in found],
        "overlap": overlap(known.truth.numpy(), of_ensemble[0].prediction, N_CLASSES),
        **examples(ood, of_ensemble[1]),
    }


def trained(setting: UncertaintySetting, images: Composed, seed: int) -> nn.Module:
    """Return a network that gives logits and their noise for each pixel."""
    generator = seeded(seed)
    network = TinyUNet(LIKELIHOOD.n_outputs, setting.widths, setting.dropout)
    labels = images.drawn if setting.has_noisy_borders else images.truth

    def loss(outputs: Tensor, y: Tensor, _: Tensor) -> Tensor:
        return LIKELIHOOD.loss(outputs, y)

    train(network, Images(images.pixels, labels), loss, setting.recipe, generator, pace=slowing)
    return network.requires_grad_(False)


def places(images: Composed) -> dict[str, BoolArray]:
    """Return the places of pixels: at borders, inside known or OOD shapes, or elsewhere.

    Only inner pixels of shapes count: OOD shapes are thinner, and borders are noisy anyway.
    """
    truth, is_border = images.truth.numpy(), borders(images.truth).numpy()
    return {
        "border": is_border,
        "inner": ~is_border & (truth > 0),
        "background": ~is_border & (truth == 0),
        "unseen": ~is_border & (truth == N_CLASSES),
        "known": ~is_border & (truth > 0) & (truth < N_CLASSES),
    }


def evaluate(
    parts: ComposedParts, known: UncertaintyMaps, ood: UncertaintyMaps
) -> tuple[FloatArray, FloatArray]:
    """Return AUROCs, questions x uncertainties, and means, places x uncertainties."""
    at, among = places(parts.test), places(parts.ood)
    aurocs, means = [], []
    for name in SCORES:
        here, there = getattr(known, name), getattr(ood, name)
        aurocs.append(
            [
                separation(here[at["border"]], here[at["inner"]]),
                separation(here[at["border"]], here[~at["border"]]),
                separation(there[among["unseen"]], there[among["known"]]),
            ]
        )
        of_known = [here[at[place]].mean() for place in ("border", "inner", "background")]
        means.append([*of_known, *(there[among[place]].mean() for place in ("known", "unseen"))])
    return np.transpose(aurocs), np.transpose(means)


def separation(doubtful: FloatArray, others: FloatArray) -> float:
    """Return the probability that a pixel of the first has the higher value."""
    is_first = np.repeat([True, False], [doubtful.size, others.size])
    return roc_auc(is_first, np.concatenate([doubtful, others]))


def examples(images: Composed, maps: UncertaintyMaps) -> RunResult:
    """Return some images with their maps."""
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
    Study("segmentation", settings, work, summarize).main(arguments)
