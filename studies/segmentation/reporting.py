"""What the study of segmentation tells: where doubt is, what a teacher gains, and the picture."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dubito.arrays import FloatArray
from dubito.report import UncertaintyMapDisplay
from studies.common.reporting import Told, markdown_table, mean_and_spread, panels
from studies.common.runs import Arrays
from studies.common.seeds import mean_interval, points
from studies.segmentation.composed_images import N_CLASSES
from studies.segmentation.mean_teacher import WEIGHTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LABELS_ONLY = "labels only"
DOUBTS = ("aleatoric", "epistemic", "total")
ASKED = ("ensemble", "dropout")
QUESTIONS = (
    "borders, inner pixels",
    "borders, all other pixels",
    "inside strange shapes, known ones",
)
PLACES = ("border", "inner", "background", "beside a strange shape", "inside a strange shape")
MAPS = ("image", "drawn", "said", "aleatoric", "epistemic")
TITLES = ("image", "labels as drawn", "ensemble says", "aleatoric", "epistemic")


def tell(found: Mapping[Any, Arrays]) -> Told:
    """Return tables, sentences and the picture of all seeds."""
    doubting = {one: found[one] for one in found if hasattr(one, "has_noisy_borders")}
    noisy, clean = (
        [arrays for one, arrays in doubting.items() if one.has_noisy_borders == wanted]
        for wanted in (True, False)
    )
    teaching = {one: found[one] for one in found if hasattr(one, "strength")}
    texts = [
        "**AUROC of doubt**: the chance that the first has more doubt than the second, pixel by "
        f"pixel\n\n{auroc_table(noisy, clean)}",
        f"**Mean doubt in nats**, by the ensemble; a fair coin has 0.693\n\n"
        f"{mean_table(noisy, clean)}",
        overlaps(noisy, clean),
        f"**With few labeled images**, overlap with true labels\n\n{teacher_table(teaching)}",
    ]
    return Told("\n\n".join(texts), picture(noisy[0]))


def auroc_table(noisy: list[Arrays], clean: list[Arrays]) -> str:
    """Return how well each doubt finds borders and strange shapes."""
    rows = []
    for name, runs in (("noisy borders", noisy), ("true labels", clean)):
        figures = np.stack([one["aurocs"] for one in runs])
        for k, asked in enumerate(ASKED):
            for d, doubt in enumerate(DOUBTS):
                cells = [mean_and_spread(figures[:, k, q, d]) for q in range(len(QUESTIONS))]
                rows.append([f"{name}, {asked}, {doubt}", *cells])
    return markdown_table(["learned from, asked, doubt", *QUESTIONS], rows)


def mean_table(noisy: list[Arrays], clean: list[Arrays]) -> str:
    """Return mean doubts by place, of known images and of those with a strange shape."""
    rows = []
    for name, runs in (("noisy borders", noisy), ("true labels", clean)):
        figures = np.stack([one["means"] for one in runs])[:, 0]
        for d, doubt in enumerate(DOUBTS[:2]):
            cells = [mean_and_spread(figures[:, p, d]) for p in range(len(PLACES))]
            rows.append([f"{name}, {doubt}", *cells])
    return markdown_table(["learned from, doubt", *PLACES], rows)


def overlaps(noisy: list[Arrays], clean: list[Arrays]) -> str:
    """Say how well the ensembles segment."""
    dice = [mean_and_spread([one["overlap"][0] for one in runs]) for runs in (noisy, clean)]
    return (
        f"Dice of the ensembles on known shapes: {dice[0]} learned from noisy borders, {dice[1]} "
        "from true labels."
    )


def chosen(runs: Mapping[Any, Arrays], method: str, seed: int) -> tuple[float, FloatArray]:
    """Return the strength of best validation Dice, and the test's Dice and IoU at it."""
    mine = {one: runs[one] for one in runs if (one.method, one.seed) == (method, seed)}
    best = max(mine, key=lambda one: float(mine[one]["validation"][0]))
    return best.strength, mine[best]["test"]


def teacher_table(runs: Mapping[Any, Arrays]) -> str:
    """Return each way's overlap, and differences of Dice from labels only and the plain teacher."""
    seeds = sorted({one.seed for one in runs})
    ways = (LABELS_ONLY, *WEIGHTS)
    picked = {way: [chosen(runs, way, seed) for seed in seeds] for way in ways}
    test = {way: np.stack([figures for _, figures in picked[way]]) for way in ways}
    plain = next(iter(WEIGHTS))
    rows = []
    for way in ways:
        strengths = ", ".join(f"{strength:g}" for strength, _ in picked[way])
        cells = [mean_and_spread(test[way][:, k]) for k in range(2)]
        for other in (LABELS_ONLY, plain):
            gain = test[way][:, 0] - test[other][:, 0]
            is_due = way != other and way != LABELS_ONLY
            cells.append(points(mean_interval(gain)) if is_due else "")
        rows.append([way, strengths, *cells])
    heads = ["", "strengths chosen", "Dice", "IoU", "Dice less labels only", "less mean teacher"]
    note = "Differences are of the same seed, in points, with 95 % intervals over seeds."
    return f"{markdown_table(heads, rows)}\n\n{note}"


def picture(run: Arrays) -> Figure:
    """Draw images that hold a known and a strange shape, both doubts, and their labels."""
    maps = [run[f"example {name}"] for name in MAPS]
    figure = panels(len(maps[0]), len(MAPS), size=(2.0, 1.75))
    flat, width = figure.axes, len(MAPS)
    rows = [flat[first : first + width] for first in range(0, len(flat), width)]
    for axes, image, drawn, said, *doubts in zip(rows, *maps, strict=True):
        UncertaintyMapDisplay.from_maps(image, *doubts, axes=(axes[0], *axes[3:]))
        for ax, labels in zip(axes[1:3], (drawn, said), strict=True):
            ax.imshow(labels, cmap="viridis", vmin=0, vmax=N_CLASSES)
            ax.set_axis_off()
        for ax, title in zip(axes, TITLES, strict=True):
            ax.set_title(title if axes is rows[0] else "", fontsize=9)
    figure.suptitle(
        "One shape that was learned (blue: T-shirt, teal: bag, green: boot) and one that was not "
        "(yellow)",
        fontsize=10,
    )
    return figure
