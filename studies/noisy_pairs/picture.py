"""The picture of learning with swapped labels: curves of accuracy and loss, and s by class."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dubito.arrays import FloatArray
from studies.common.reporting import panels
from studies.noisy_pairs.losses import FLOORS, LOSSES
from studies.noisy_pairs.training import PAIRS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from studies.noisy_pairs.reporting import Table


SAID = ("joint, floor -4", "faithful", "slip")
COLORS = {name: f"C{number}" for number, name in enumerate(LOSSES)}


def picture(on_fashion: Table, on_cifar: Table) -> Figure:
    """Return six panels; that of CIFAR-10 is empty where it was left out."""
    figure = panels(2, 3, size=(4.2, 3.3))
    clean, noisy, losses, own, classes, other = figure.axes
    last = on_fashion.rates[-1]
    draw_curves(clean, on_fashion, 0.0, "test accuracy")
    draw_curves(noisy, on_fashion, last, "test accuracy")
    draw_curves(losses, on_fashion, last, "test log loss")
    losses.set_ylim(top=min(losses.get_ylim()[1], 2.5))
    draw_curves(own, on_fashion, last, "training loss", (*FLOORS, "slip"))
    own.set_title(f"The joint loss itself, {last:.0%} swapped")
    draw_classes(classes, on_fashion, last)
    if on_cifar.runs:
        draw_curves(other, on_cifar, on_cifar.rates[-1], "test accuracy")
    else:
        other.set_axis_off()
    handles, labels = clean.get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=5, frameon=False)
    return figure


def draw_curves(
    axes: Axes, table: Table, rate: float, name: str, names: tuple[str, ...] = tuple(LOSSES)
) -> None:
    """Draw the mean over seeds of a curve of each loss."""
    for loss in names:
        curve = mean_of(table, loss, rate, name)
        style = ".--" if loss == "slip" else ".-"
        axes.plot(np.arange(1, len(curve) + 1), curve, style, color=COLORS[loss], label=loss)
    axes.set_xlabel("epoch")
    axes.set_ylabel(name)
    axes.set_title(f"{table.title}, {rate:.0%} swapped")


def draw_classes(axes: Axes, table: Table, rate: float) -> None:
    """Draw the mean s of each class, pairs side by side and clean classes last."""
    swapped = [class_ for pair in PAIRS[table.title] for class_ in pair]
    order = [*swapped, *(class_ for class_ in range(10) if class_ not in swapped)]
    for loss in SAID:
        style = "s--" if loss == "slip" else "o-"
        values = mean_of(table, loss, rate, "s by class")[order]
        axes.plot(range(10), values, style, ms=4, lw=0.8, color=COLORS[loss], label=loss)
    axes.axvspan(len(swapped) - 0.5, 9.5, color="0.93", zorder=0)
    axes.text(8.5, axes.get_ylim()[1], "clean", ha="center", va="top")
    axes.set_xticks(range(10), [str(class_) for class_ in order])
    axes.set_xlabel("class, pairs side by side")
    axes.set_ylabel("mean s")
    axes.set_title(f"What s says, {rate:.0%} swapped")


def mean_of(table: Table, loss: str, rate: float, name: str) -> FloatArray:
    """Return the mean over seeds of a curve."""
    return np.asarray(np.mean([run[name] for run in table.runs[loss, rate]], axis=0))
