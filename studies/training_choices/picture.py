"""The picture of the study of training choices."""

from __future__ import annotations

from collections.abc import Mapping
from textwrap import fill
from typing import TYPE_CHECKING

import numpy as np

from dubito.arrays import FloatArray
from studies.common.reporting import panels
from studies.training_choices.image_networks import Choices, Seen

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


COLORS = {"ece": "tab:red", "error": "tab:blue", "log_loss": "tab:gray"}
NAMES = {"ece": "ECE", "error": "error", "log_loss": "log loss"}


def picture(sweeps: Mapping[str, Mapping[str, Choices]], seen: Seen, curves: FloatArray) -> Figure:
    """Plot one panel per sweep, one of clusters, one over the epochs."""
    figure = panels(2, 4, size=(3.3, 2.9))
    axes = figure.axes
    for ax, (name, sweep) in zip(axes, sweeps.items(), strict=False):
        draw_sweep(ax, name, sweep, seen)
    draw_clusters(axes[6], sweeps["Loss, LeNet5"], seen)
    draw_curves(axes[7], curves)
    axes[0].legend(frameon=False)
    return figure


def draw_sweep(ax: Axes, name: str, sweep: Mapping[str, Choices], seen: Seen) -> None:
    """Plot ECE and error of one sweep, one point per seed and a line of means."""
    places = np.arange(len(sweep))
    for key in ("error", "ece"):
        values = np.array([seen[choices][key] for choices in sweep.values()])
        ax.plot(places, values, "o", color=COLORS[key], markersize=3, alpha=0.5)
        ax.plot(places, values.mean(axis=1), color=COLORS[key], label=NAMES[key])
    label_ticks(ax, list(sweep))
    ax.set_xlim(-0.4, len(sweep) - 0.6)
    ax.set_ylim(bottom=0)
    ax.set_ylabel("fraction of test images")
    ax.set_title(name)


def label_ticks(ax: Axes, labels: list[str]) -> None:
    """Name places 0, 1, ... on the axis, in lines that do not run into each other."""
    width = 44 // len(labels)
    lines = ["\n".join(fill(part, width) for part in label.split(", ")) for label in labels]
    ax.set_xticks(range(len(labels)), lines, fontsize=7.5)


def draw_clusters(ax: Axes, sweep: Mapping[str, Choices], seen: Seen) -> None:
    """Plot the scatter of features within classes by training loss."""
    places = np.arange(len(sweep))
    for part, shift, color in (("train", -0.2, "tab:gray"), ("test", 0.2, "tab:purple")):
        values = np.array([seen[choices][f"{part}_scatter"] for choices in sweep.values()])
        ax.bar(places + shift, values.mean(axis=1), 0.38, color=color, alpha=0.6, label=part)
        ax.plot(places + shift, values, "o", color=color, markersize=3)
    label_ticks(ax, list(sweep))
    ax.set_ylabel("scatter within / between classes")
    ax.set_title("Features of the last layer, LeNet5")
    ax.set_ylim(top=1.2 * ax.get_ylim()[1])
    ax.legend(frameon=False, ncols=2, loc="upper center")


def draw_curves(ax: Axes, curves: FloatArray) -> None:
    """Draw the followed network's test figures over the epochs, seeds thin and their mean."""
    epochs = np.arange(curves.shape[1]) + 1
    for place, key in enumerate(("log_loss", "error", "ece")):
        values = curves[:, :, 1, place]
        ax.plot(epochs, values.T, color=COLORS[key], alpha=0.3, linewidth=0.8)
        ax.plot(epochs, values.mean(axis=0), color=COLORS[key], label=NAMES[key])
    ax.set_xlabel("epochs")
    ax.set_ylim(bottom=0)
    ax.set_ylabel("test figures")
    ax.set_title("LeNet5, 20,000 images")
    ax.legend(frameon=False)
