"""The figure of the study: threshold, norms, activations, scaled and fooling inputs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dubito import Logits
from dubito.arrays import FloatArray
from dubito.doubt import least_confidence
from studies.common.ood_images import KINDS
from studies.common.reporting import panels
from studies.softmax_ood.evaluation import LAYERS
from studies.softmax_ood.scaled_inputs import DIMENSIONS, FACTORS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


Stacks = dict[str, npt.NDArray[Any]]

SCALED = ("known", "digits", "noise")
CLASSES = ("T-shirt", "Trouser", "Pullover", "Dress", "Coat", "Sandal", "Shirt", "Sneaker")
KNOWN_COLOR = "#555555"
COLORS = ("#d95f02", "#1f78b4", "#66a61e", "#a6761d", "#7570b3", "#e7298a")
GRID = 300  # points a side
FRACTION_SHOWN = 0.9  # of points, along each axis: a few outliers would shrink the rest to a dot


def picture(stacks: Stacks) -> Figure:
    """Draw all panels; rows and images are those of the first seed."""
    figure = panels(2, 3, size=(4.9, 4.1))
    axes = figure.axes
    first = {name: stack[0] for name, stack in stacks.items()}
    draw_region(axes[0], first)
    draw_layer(axes[1], first["layer_sample"])
    draw_norms(axes[2], stacks)
    draw_activations(axes[3], first["activations"])
    draw_scaled(axes[4], stacks)
    draw_fools(axes[5], first)
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(
        handles, names, loc="outside lower center", ncols=len(names), markerscale=2, frameon=False
    )
    figure.suptitle(
        "Softmax uncertainty on OOD inputs; individual rows and images are from the first seed"
    )
    return figure


def draw_region(axes: Axes, first: Stacks) -> None:
    """Plot two penultimate features, and the region that least confidence flags."""
    known, *ood = first["plane_features"]
    points = np.concatenate([known, *ood[:-1]])  # fooling images lie anywhere
    low, high = np.quantile(points, [(1 - FRACTION_SHOWN) / 2, (1 + FRACTION_SHOWN) / 2], axis=0)
    margin = 0.08 * (high - low)
    x, y = (np.linspace(*ends, GRID) for ends in zip(low - margin, high + margin, strict=True))
    grid = np.stack(np.meshgrid(x, y), axis=-1).reshape(-1, 2)
    logits = grid @ first["plane_weights"].T + first["plane_bias"]
    is_ood = least_confidence(Logits(logits)) > first["plane_threshold"]
    shape = GRID, GRID
    axes.contourf(x, y, is_ood.reshape(shape), levels=[0.5, 1.5], colors=["#ffd9a8"])
    borders = logits.argmax(axis=1).reshape(shape)
    axes.contour(
        x, y, borders, levels=np.arange(len(CLASSES)) + 0.5, colors="#bbbbbb", linewidths=0.6
    )
    axes.scatter(known[:, 0], known[:, 1], s=5, color=KNOWN_COLOR, label="known", linewidths=0)
    for name, rows, color in zip(KINDS, ood, COLORS, strict=True):
        axes.scatter(rows[:80, 0], rows[:80, 1], s=9, color=color, label=name, linewidths=0)
    axes.set_xlim(x[0], x[-1])
    axes.set_ylim(y[0], y[-1])
    axes.set_xlabel("first of two penultimate features")
    axes.set_ylabel("second")
    axes.set_title("shaded: flagged by least confidence (5 % of known)", fontsize=9)


def draw_layer(axes: Axes, sample: FloatArray) -> None:
    """Draw norm and familiarity of single images."""
    for name, rows, color in zip(("known", *KINDS), sample, (KNOWN_COLOR, *COLORS), strict=True):
        size = 5 if name == "known" else 8
        shown = rows if name == "known" else rows[:80]
        axes.scatter(shown[:, 0], shown[:, 1], s=size, color=color, label=name, linewidths=0)
    axes.set_xlabel("norm of the penultimate features")
    axes.set_ylabel("familiarity: largest cosine with a class's weights")
    axes.set_title("norm and familiarity, 84 features", fontsize=9)


def draw_norms(axes: Axes, stacks: Stacks) -> None:
    """Draw norms relative to known images by layer, before and after training."""
    places = np.arange(len(LAYERS))
    for key, line in (("layers", "-"), ("untrained_layers", ":")):
        norms = stacks[key][..., 0]
        ratios = (norms[:, 1:] / norms[:, :1]).mean(axis=0)
        for name, ratio, color in zip(KINDS, ratios, COLORS, strict=True):
            label = name if line == "-" else None
            axes.plot(places, ratio, line, color=color, marker="o", markersize=3, label=label)
    axes.axhline(1, color=KNOWN_COLOR, linewidth=1)
    axes.set_xticks(places, [name.replace(" ", "\n") for name in LAYERS], fontsize=8)
    axes.set_ylabel("median norm relative to known images")
    axes.set_title("norms layer by layer (dotted: before training)", fontsize=9)


def draw_activations(axes: Axes, activations: FloatArray) -> None:
    """Plot the mean of each penultimate feature, sorted by the class that activates it most.

    Units that no known class activates come last.
    """
    known = activations[: len(CLASSES)]
    most = known.max(axis=0)
    order = np.lexsort((-most, np.where(most > 0, known.argmax(axis=0), len(CLASSES))))
    axes.imshow(activations[:, order], aspect="auto", cmap="magma", interpolation="nearest")
    axes.axhline(len(CLASSES) - 0.5, color="white", linewidth=1.5)
    axes.set_yticks(range(len(activations)), [*CLASSES, *KINDS], fontsize=8)
    axes.set_xlabel("penultimate features, by the class that activates them most")
    axes.set_title("mean activations: bright is strong", fontsize=9)


def draw_scaled(axes: Axes, stacks: Stacks) -> None:
    """Plot confidence over the factor by which inputs are multiplied."""
    colors = dict(zip(("known", *KINDS), (KNOWN_COLOR, *COLORS), strict=True))
    for name, means in zip(SCALED, stacks["scaled_confidence"].mean(axis=0), strict=True):
        axes.plot(FACTORS, means, "-o", markersize=3, color=colors[name], label=f"images, {name}")
    blues = ("#08306b", "#4292c6", "#9ecae1")
    toy = stacks["toy"][:, :, 0].mean(axis=0)
    for size, means, color in zip(DIMENSIONS, toy, blues, strict=True):
        axes.plot(
            FACTORS, means[1:], "--s", markersize=3, color=color, label=f"toy, {size} dimensions"
        )
        axes.axhline(means[0], color=color, linewidth=0.8, linestyle=":")  # known rows
    axes.set_xscale("log")
    axes.set_xticks(FACTORS, [str(factor) for factor in FACTORS])
    axes.minorticks_off()
    axes.set_xlabel("factor")
    axes.set_ylabel("mean confidence")
    axes.set_title("inputs times a factor", fontsize=9)
    axes.legend(fontsize=7, frameon=False)


def draw_fools(axes: Axes, first: Stacks) -> None:
    """Show fooling images, with the network's predictions."""
    axes.axis("off")
    axes.set_title("noise optimized to fool", fontsize=9)
    rows = zip(first["fools"], first["fools_class"], first["fools_confidence"], strict=True)
    for number, (image, label, confidence) in enumerate(rows):
        column, row = number % 4, number // 4
        inset = axes.inset_axes((column / 4 + 0.01, 0.52 - 0.5 * row, 0.23, 0.4))
        inset.imshow(image, cmap="gray", vmin=0, vmax=255)
        inset.set_title(f"{CLASSES[label]}\n{confidence:.1%}", fontsize=7)
        inset.axis("off")
