"""Report of the study of segmentation: uncertainty by place, gain of a teacher, figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dubito.arrays import FloatArray
from dubito.report import UncertaintyMapDisplay
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread, panels
from studies.common.runs import Arrays
from studies.common.seeds import mean_interval, points
from studies.segmentation.composed_images import N_CLASSES
from studies.segmentation.mean_teacher import WEIGHTS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


LABELS_ONLY = "labels only"
SCORES = ("aleatoric", "epistemic", "total")
ASKED = ("ensemble", "dropout")
QUESTIONS = (
    "borders, inner pixels",
    "borders, all other pixels",
    "inside OOD shapes, known shapes",
)
PLACES = ("border", "inner", "background", "beside an OOD shape", "inside an OOD shape")
MAPS = ("image", "drawn", "said", "aleatoric", "epistemic")
TITLES = ("image", "labels", "ensemble prediction", "aleatoric", "epistemic")


def summarize(found: Mapping[Any, Arrays]) -> StudyReport:
    """Return tables, sentences and the figure of all seeds."""
    uncertainty_runs = {one: found[one] for one in found if hasattr(one, "has_noisy_borders")}
    noisy, clean = (
        [arrays for one, arrays in uncertainty_runs.items() if one.has_noisy_borders == wanted]
        for wanted in (True, False)
    )
    teaching = {one: found[one] for one in found if hasattr(one, "strength")}
    texts = [
        "**AUROC of uncertainty**: the probability that the first has the higher score, pixel by "
        f"pixel\n\n{auroc_table(noisy, clean)}",
        f"**Mean uncertainty in nats**, of the ensemble; a fair coin has 0.693\n\n"
        f"{mean_table(noisy, clean)}",
        overlaps(noisy, clean),
        f"**With few labeled images**, overlap with true labels\n\n{teacher_table(teaching)}",
    ]
    return StudyReport("\n\n".join(texts), picture(noisy[0]))


def auroc_table(noisy: list[Arrays], clean: list[Arrays]) -> str:
    """Return how well each doubt finds borders and unseen shapes."""
    rows = []
    for name, runs in (("noisy borders", noisy), ("true labels", clean)):
        figures = np.stack([one["aurocs"] for one in runs])
        for k, requested in enumerate(ASKED):
            for d, uncertainty in enumerate(SCORES):
                cells = [mean_and_spread(figures[:, k, q, d]) for q in range(len(QUESTIONS))]
                rows.append([f"{name}, {requested}, {uncertainty}", *cells])
    return markdown_table(["trained on, model, uncertainty", *QUESTIONS], rows)


def mean_table(noisy: list[Arrays], clean: list[Arrays]) -> str:
    """Return mean doubts by place, of known images and of those with an unseen shape."""
    rows = []
    for name, runs in (("noisy borders", noisy), ("true labels", clean)):
        figures = np.stack([one["means"] for one in runs])[:, 0]
        for d, uncertainty in enumerate(SCORES[:2]):
            cells = [mean_and_spread(figures[:, p, d]) for p in range(len(PLACES))]
            rows.append([f"{name}, {uncertainty}", *cells])
    return markdown_table(["trained on, uncertainty", *PLACES], rows)


def overlaps(noisy: list[Arrays], clean: list[Arrays]) -> str:
    """Say how well the ensembles segment."""
    dice = [mean_and_spread([one["overlap"][0] for one in runs]) for runs in (noisy, clean)]
    return (
        f"Dice of the ensembles on known shapes: {dice[0]} trained on noisy borders, {dice[1]} "
        "on true labels."
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
    heads = ["", "weights chosen", "Dice", "IoU", "Dice minus labels only", "minus mean teacher"]
    note = "Paired differences in points, with 95 % intervals over seeds."
    return f"{markdown_table(heads, rows)}\n\n{note}"


def picture(run: Arrays) -> Figure:
    """Draw images that hold a known and an unseen shape, both doubts, and their labels."""
    maps = [run[f"example {name}"] for name in MAPS]
    figure = panels(len(maps[0]), len(MAPS), size=(2.0, 1.75))
    flat, width = figure.axes, len(MAPS)
    rows = [flat[first : first + width] for first in range(0, len(flat), width)]
    for axes, image, drawn, said, *uncertainties in zip(rows, *maps, strict=True):
        UncertaintyMapDisplay.from_maps(image, *uncertainties, axes=(axes[0], *axes[3:]))
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
