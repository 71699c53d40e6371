"""Report of the study of regression noise: one table per task, and the figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from dubito.arrays import FloatArray
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread, panels
from studies.common.runs import Arrays
from studies.common.seeds import mean_interval
from studies.regression_noise.data import Rows, parts_of
from studies.regression_noise.minkowski import NOISE, POWERS, known_center

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


TASKS = {
    "diabetes": "Diabetes",
    "noisy sine": "A sine with growing noise, known everywhere",
    "quiet sine": "A sine of six periods with almost no noise",
}
METHODS = ("one variance", "NLL", "beta-NLL, 0.5", "beta-NLL, 1")
HEADS = ("RMSE", "NLL", "coverage of 90 %", "calibration error", "error of log std")
DIGITS = {"diabetes": 2, "noisy sine": 3, "quiet sine": 4}  # of RMSE
RMSE, NLL, HELD, GAP, OFF = range(len(HEADS))
ONE, PLAIN, HALF, WHOLE = range(len(METHODS))
COLORS = ("#444444", "#d95f02", "#1f78b4", "#1b7837")


def summarize(found: Mapping[Any, Arrays]) -> StudyReport:
    """Return tables, sentences and the figure of all seeds."""
    texts = []
    for task, name in TASKS.items():
        figures = stacked(found, task, "figures")
        texts.append(f"**{name}**\n\n{task_table(task, figures)}\n\n{words(figures)}")
    offsets, spreads, below = (
        stacked(found, "minkowski", entry) for entry in ("offset", "spread", "below")
    )
    texts.append(
        "**Losses |r|^p on skewed noise from 0 to 1**: median "
        f"{NOISE.median():.3f}, mean {NOISE.mean():.3f}, midrange 0.500\n\n"
        + power_table(offsets, spreads, below)
    )
    return StudyReport("\n\n".join(texts), picture(found, offsets))


def stacked(found: Mapping[Any, Arrays], task: str, entry: str) -> FloatArray:
    """Return what all seeds found of a task, seeds first."""
    return np.stack([one[entry] for setting, one in found.items() if setting.task == task])


def task_table(task: str, figures: FloatArray) -> str:
    """Return figures, seeds x methods x (as learned, scaled) x figures, as a table."""
    n_heads = len(HEADS) - (task == "diabetes")  # no one knows its deviations
    digits = (DIGITS[task], 3, 3, 3, 3)
    rows = [
        [
            f"{name}{', scaled' * scaled}",
            *(mean_and_spread(figures[:, row, scaled, k], digits[k]) for k in range(n_heads)),
        ]
        for row, name in enumerate(METHODS)
        for scaled in range(2)
    ]
    return markdown_table(["", *HEADS[:n_heads]], rows)


def words(figures: FloatArray) -> str:
    """Say what a learned variance changes, seed by seed, and what beta changes to that."""
    pairs = (("NLL minus one variance", PLAIN, ONE), ("beta-NLL 0.5 minus NLL", HALF, PLAIN))
    texts = [
        f"{name}: RMSE {difference(figures[:, first, 0, RMSE] - figures[:, second, 0, RMSE])}, "
        f"NLL after scaling {difference(figures[:, first, 1, NLL] - figures[:, second, 1, NLL])}"
        for name, first, second in pairs
    ]
    return f"Paired differences, with 95 % intervals over seeds: {'; '.join(texts)}."


def difference(values: FloatArray) -> str:
    """Return the mean of paired differences, with its interval if there is more than one."""
    return str(mean_interval(values)) if values.size > 1 else f"{values.item():.4f}"


def power_table(offsets: FloatArray, spreads: FloatArray, below: FloatArray) -> str:
    """Return what each power should estimate and what its networks do, seeds x powers each."""
    rows = []
    for k, power in enumerate(POWERS):
        center = known_center(power)
        rows.append(
            [
                f"{power:g}",
                f"{center:.3f}",
                mean_and_spread(offsets[:, k]),
                mean_and_spread(spreads[:, k]),
                f"{NOISE.cdf(center):.3f}",
                mean_and_spread(below[:, k]),
            ]
        )
    heads = ["p", "known center", "network, minus the sine", "its std over x"]
    return markdown_table([*heads, "true fraction below", "observed fraction below"], rows)


def picture(found: Mapping[Any, Arrays], offsets: FloatArray) -> Figure:
    """Draw the noise that was learned, the quiet sine that was not, and the centers of |r|^p."""
    figure = panels(2, 2, size=(5.2, 3.5))
    first, second, third, fourth = figure.axes
    rows = evaluated_rows(found, "noisy sine")
    mean, std = (stacked(found, "noisy sine", one)[0, PLAIN] for one in ("means", "stds"))
    draw_band(first, rows, mean, std)
    draw_deviations(second, rows, stacked(found, "noisy sine", "stds"))
    draw_quiet(third, evaluated_rows(found, "quiet sine"), stacked(found, "quiet sine", "means")[0])
    draw_centers(fourth, offsets)
    return figure


def evaluated_rows(found: Mapping[Any, Arrays], task: str) -> Rows:
    """Return the rows that a task is judged by."""
    setting = next(setting for setting in found if setting.task == task)
    return parts_of(task, setting.sizes, setting.seed).test


def draw_band(axes: Axes, rows: Rows, mean: FloatArray, std: FloatArray) -> None:
    """Draw a network's two deviations beside the known ones."""
    assert rows.mean is not None
    assert rows.std is not None
    x = rows.features[:, 0] + 5
    axes.plot(x[::4], rows.y[::4], ".", color="#bbbbbb", markersize=2)
    for side in (-2, 2):
        axes.plot(x, rows.mean + side * rows.std, "--", color="black", linewidth=0.8)
    axes.plot([], [], "--", color="black", linewidth=0.8, label="known, mean ± 2 deviations")
    axes.fill_between(x, mean - 2 * std, mean + 2 * std, color=COLORS[PLAIN], alpha=0.3, lw=0)
    axes.plot(x, mean, color=COLORS[PLAIN], linewidth=1.2, label="learned by NLL, the same")
    axes.set(title="Noisy sine, first seed", xlabel="x", ylabel="y")
    axes.legend(fontsize=7, frameon=False, loc="upper left")


def draw_deviations(axes: Axes, rows: Rows, stds: FloatArray) -> None:
    """Draw the deviations of all methods, means and ranges over seeds."""
    assert rows.std is not None
    x = rows.features[:, 0] + 5
    axes.plot(x, rows.std, "--", color="black", linewidth=1, label="known")
    for row, name in enumerate(METHODS):
        lines = stds[:, row]
        axes.fill_between(x, lines.min(0), lines.max(0), color=COLORS[row], alpha=0.12, lw=0)
        axes.plot(x, lines.mean(0), color=COLORS[row], linewidth=1.2, label=name)
    axes.set(title="Noisy sine, all seeds: mean and range", xlabel="x", ylabel="standard deviation")
    axes.set_ylim(0, 1.5 * float(rows.std.max()))
    axes.legend(fontsize=7, frameon=False, loc="upper left")


def draw_quiet(axes: Axes, rows: Rows, means: FloatArray) -> None:
    """Draw which means follow the quiet sine."""
    assert rows.mean is not None
    x = rows.features[:, 0]
    axes.plot(x, rows.mean, color="#bbbbbb", linewidth=3, label="known")
    for row in (PLAIN, HALF):
        axes.plot(x, means[row], color=COLORS[row], linewidth=1.1, label=METHODS[row])
    axes.set(title="Quiet sine, means of the first seed", xlabel="x", ylabel="y")
    axes.set_ylim(-0.6, 0.85)
    axes.legend(fontsize=7, frameon=False, loc="upper center", ncols=3)


def draw_centers(axes: Axes, offsets: FloatArray) -> None:
    """Draw what each power estimates beside what it should."""
    powers = np.geomspace(1, 20, 13)
    axes.plot(
        powers, [known_center(float(power)) for power in powers], color="black", label="known"
    )
    for number, line in enumerate(offsets):
        label = "networks, one dot each" if number == 0 else None
        axes.plot(POWERS, line, "o", color=COLORS[HALF], markersize=4, alpha=0.6, label=label)
    names = {"median": NOISE.median(), "mean": NOISE.mean(), "midrange": 0.5}
    for name, height in names.items():
        axes.axhline(height, color="#999999", linestyle=":", linewidth=0.9)
        axes.text(20, height + 0.006, name, ha="right", fontsize=7, color="#666666")
    axes.set_xscale("log")
    axes.set_xticks(POWERS, [f"{power:g}" for power in POWERS])
    axes.minorticks_off()
    axes.set(title="Losses |r|^p on skewed noise", xlabel="p", ylabel="above the sine")
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(0, 0.93))
