"""Report of the study of shift: tables by severity and by corruption, and the figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dubito.arrays import FloatArray
from dubito.learn import CORRUPTIONS
from studies.common.asking import FIGURES
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread, panels
from studies.common.runs import Arrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


METHODS = (
    "plain",
    "temperature",
    "dropout, one pass",
    "Monte Carlo dropout",
    "ensemble",
    "ensemble and temperature",
)
N_SEVERITIES = 6  # the first is none
SEVERITY_NAMES = ["clean", *(f"severity {number}" for number in range(1, N_SEVERITIES))]
COLORS = ("#444444", "#d95f02", "#a6cee3", "#1f78b4", "#66a61e", "#1b7837")
MARKS = ("o", "s", "v", "^", "D", "P")
PLAIN, TEMPERATURE, ASKED_ONCE, PASSES, ENSEMBLE, BOTH = range(len(METHODS))
ACCURACY, ECE, LOG_LOSS = range(len(FIGURES))


def summarize(found: Mapping[Any, Arrays]) -> StudyReport:
    """Return tables, sentences and the figure of all seeds."""
    figures = np.stack([one["figures"] for one in found.values()])
    temperatures = np.stack([one["temperatures"] for one in found.values()])
    needed = np.stack([one["needed_temperatures"] for one in found.values()])
    texts = [
        f"**{name}** by severity, mean of {len(CORRUPTIONS)} corruptions\n\n"
        + severity_table(figures[..., number])
        for number, name in enumerate(FIGURES)
    ]
    differences = figures - figures[:, [PLAIN]]
    texts.append(
        "**Log loss minus that of the plain network**, same seed and images\n\n"
        + severity_table(differences[..., LOG_LOSS], digits=4)
    )
    texts.append("**ECE** by corruption, mean of severities 1 to 5\n\n" + corruption_table(figures))
    texts.append(
        "**Optimal temperature of plain networks**, fitted on the test images; above 1 they "
        "are over-confident, below 1 under-confident\n\n" + needed_table(needed)
    )
    return StudyReport(
        "\n\n".join([*texts, *words(figures, temperatures, needed)]), picture(figures)
    )


def severity_table(figures: FloatArray, digits: int = 3) -> str:
    """Return one figure, seeds x methods x corruptions x severities, by method and severity."""
    means = figures.mean(axis=2)
    rows = [
        [name, *(mean_and_spread(means[:, row, s], digits) for s in range(N_SEVERITIES))]
        for row, name in enumerate(METHODS)
    ]
    return markdown_table(["", *SEVERITY_NAMES], rows)


def corruption_table(figures: FloatArray) -> str:
    """Return ECE by method and corruption."""
    means = figures[:, :, :, 1:, ECE].mean(axis=3)
    rows = [
        [name, *(mean_and_spread(means[:, row, kind]) for kind in range(len(CORRUPTIONS)))]
        for row, name in enumerate(METHODS)
    ]
    return markdown_table(["", *CORRUPTIONS], rows)


def needed_table(needed: FloatArray) -> str:
    """Return the optimal temperatures, seeds x corruptions x severities."""
    rows = [
        [name, *(mean_and_spread(one, 2) for one in needed[:, kind].T)]
        for kind, name in enumerate(CORRUPTIONS)
    ]
    return markdown_table(["", *SEVERITY_NAMES], rows)


def words(figures: FloatArray, temperatures: FloatArray, needed: FloatArray) -> list[str]:
    """Describe how often each method wins, and how often plain networks are under-confident."""
    clean = figures[:, :, 0, 0]
    gain = clean[:, PLAIN, LOG_LOSS] - clean[:, ENSEMBLE, LOG_LOSS]
    shifted = figures[:, :, :, 1:]
    n_all = shifted[:, 0, ..., 0].size
    beyond = (shifted - shifted[:, [PLAIN]])[:, :, :, -1, ECE].mean(axis=2)
    differences = [
        f"{name} {mean_and_spread(beyond[:, row])}"
        for row, name in enumerate(METHODS)
        if row != PLAIN
    ]
    return [
        "On clean test images the ensemble's log loss is below that of its mean member by "
        f"{mean_and_spread(gain, 4)} (smallest over seeds: {gain.min():.4f}); ECE after "
        f"temperature is {clean[:, TEMPERATURE, ECE].max():.4f} for single networks and "
        f"{clean[:, BOTH, ECE].max():.4f} for the ensemble in the worst seed.",
        f"Of {n_all} shifts (corruption, severity, seed), lowest log loss: "
        f"{wins(shifted[..., LOG_LOSS])}. Lowest ECE: {wins(shifted[..., ECE])}.",
        f"ECE at severity 5 minus that of plain, same seed: {', '.join(differences)}.",
        "The temperature fitted on clean validation images is "
        f"{mean_and_spread(temperatures.mean(axis=1), 2)}. {under_confident(needed[:, :, 1:])}",
    ]


def under_confident(needed: FloatArray) -> str:
    """Describe how often the optimal temperature is below 1."""
    is_below = needed < 1
    counts = ", ".join(f"{name} {is_below[:, kind].sum()}" for kind, name in enumerate(CORRUPTIONS))
    return f"Plain networks are under-confident in {is_below.sum()} of {is_below.size}: {counts}."


def wins(figures: FloatArray) -> str:
    """Describe how often each method has the lowest value."""
    counts = np.bincount(figures.argmin(axis=1).ravel(), minlength=len(METHODS))
    order = np.argsort(-counts, kind="stable")
    return ", ".join(f"{METHODS[one]} {counts[one]}" for one in order if counts[one])


def picture(figures: FloatArray) -> Figure:
    """Plot all metrics over severities, and ECE for each corruption."""
    figure = panels(2, 4, size=(3.3, 2.9))
    axes = figure.axes
    for number, name in enumerate(FIGURES):
        draw(axes[number], figures[..., number].mean(axis=2), f"{name}, mean of corruptions")
        axes[number].set_ylabel(name)
    for kind, name in enumerate(CORRUPTIONS):
        draw(axes[3 + kind], figures[:, :, kind, :, ECE], f"ECE, {name}")
        axes[3 + kind].set_ylabel("ECE")
    handles, names = axes[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(METHODS), frameon=False)
    figure.suptitle(
        "Test images of Fashion-MNIST with corruptions; temperatures are fitted on clean images"
    )
    return figure


def draw(axes: Axes, figures: FloatArray, title: str) -> None:
    """Plot one metric of all methods: means and ranges over seeds."""
    severities = np.arange(N_SEVERITIES)
    for row, name in enumerate(METHODS):
        lines = figures[:, row]
        axes.fill_between(
            severities, lines.min(axis=0), lines.max(axis=0), color=COLORS[row], alpha=0.15, lw=0
        )
        style: dict[str, Any] = {
            "color": COLORS[row],
            "marker": MARKS[row],
            "markersize": 3.5,
            "linewidth": 1.3,
        }
        axes.plot(severities, lines.mean(axis=0), label=name, **style)
    axes.set_title(title, fontsize=9)
    axes.set_xticks(severities, ["clean", *map(str, severities[1:])])
    axes.set_xlabel("severity")
