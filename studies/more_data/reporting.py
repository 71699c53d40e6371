"""Report of the study of more data: tables by number of rows, and the figure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np

from dubito import Probabilities
from dubito.arrays import FloatArray
from dubito.doubt import entropy
from studies.common.asking import FIGURES
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread, panels
from studies.common.runs import Arrays

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PAIR = (1, 8)  # trousers and bags
GROUPS = {"swapped pair": PAIR, "easy classes": (5, 7, 9), "hard classes": (0, 2, 3, 4, 6)}
KINDS = (*GROUPS, "digits")
WAYS = ("stopped", "to the end")
METHODS = ("one network", "ensemble of 5", "ensemble of 10", "Monte Carlo dropout")
WAYS_IN_FULL = ("stopped at their lowest validation loss", "trained to the end")
COLORS = ("#d95f02", "#1b7837", "#1f78b4", "#7570b3", "#444444", "#e7298a")
PARTS = ("total", "aleatoric", "epistemic")


STOPPED, END = range(len(WAYS))
ONE, FIVE, TEN, DROPOUT = range(len(METHODS))
ACCURACY, ECE, LOG_LOSS = range(len(FIGURES))
TOTAL, ALEATORIC, EPISTEMIC = range(len(PARTS))
DETECTORS = {
    "one network, entropy": (ONE, TOTAL),
    "ensemble of 5, epistemic": (FIVE, EPISTEMIC),
    "ensemble of 10, aleatoric": (TEN, ALEATORIC),
    "ensemble of 10, epistemic": (TEN, EPISTEMIC),
    "ensemble of 10, total": (TEN, TOTAL),
    "Monte Carlo dropout, epistemic": (DROPOUT, EPISTEMIC),
}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Results:
    """All runs: each array is seeds x numbers of rows x stopping x methods x ...."""

    sizes: tuple[int, ...]
    known_level: float
    figures: FloatArray
    uncertainties: FloatArray
    aurocs: FloatArray

    @classmethod
    def of(cls, found: Mapping[Any, Arrays]) -> Self:
        """Put runs in order."""
        seeds = sorted({one.seed for one in found})
        sizes = sorted({one.n_rows for one in found})
        by_run = {(one.seed, one.n_rows): arrays for one, arrays in found.items()}
        stacks = [
            np.array([[by_run[seed, size][name] for size in sizes] for seed in seeds])
            for name in ("figures", "uncertainties", "aurocs")
        ]
        rate = next(iter(found)).swap_rate
        level = float(entropy(Probabilities([[1 - rate, rate]]))[0])
        return cls(tuple(sizes), level, *stacks)

    @property
    def heads(self) -> list[str]:
        """The heads of a table by number of rows."""
        return ["", *(f"{size:,} rows" for size in self.sizes)]


def summarize(found: Mapping[Any, Arrays]) -> StudyReport:
    """Return tables, sentences and the figure of all runs."""
    results = Results.of(found)
    pairs = list(product(range(len(WAYS)), range(len(KINDS))))
    names = [f"{KINDS[kind]}, {WAYS[way]}" for way, kind in pairs]
    texts = [
        f"**{PARTS[part].capitalize()} uncertainty** of the ensemble of 10, in nats\n\n"
        + table(results, names, [results.uncertainties[:, :, w, TEN, k, part] for w, k in pairs])
        for part in (ALEATORIC, EPISTEMIC)
    ]
    texts.append("**The swapped pair by method**, stopped, in nats\n\n" + pair_table(results))
    texts.extend(
        f"**{name[0].upper()}{name[1:]}** on test images, whose labels have the same noise\n\n"
        + figure_table(results, number)
        for number, name in enumerate(FIGURES)
    )
    texts.append("**AUROC** of uncertainty, digits vs. test images\n\n" + detector_table(results))
    return StudyReport("\n\n".join([*texts, *words(results)]), picture(results))


def table(results: Results, names: Sequence[str], columns: Sequence[FloatArray]) -> str:
    """Return means and spreads by number of rows, of arrays of seeds x numbers of rows."""
    rows = [
        [name, *(mean_and_spread(values) for values in array.T)]
        for name, array in zip(names, columns, strict=True)
    ]
    return markdown_table(results.heads, rows)


def pair_table(results: Results) -> str:
    """Return the uncertainties of the swapped pair by method."""
    requested = list(product((FIVE, TEN, DROPOUT), (ALEATORIC, EPISTEMIC)))
    names = [f"{METHODS[method]}, {PARTS[part]}" for method, part in requested]
    return table(
        results, names, [results.uncertainties[:, :, STOPPED, m, 0, part] for m, part in requested]
    )


def figure_table(results: Results, number: int) -> str:
    """Return one metric by stopping rule and method."""
    requested = list(product(range(len(WAYS)), range(len(METHODS))))
    names = [f"{METHODS[method]}, {WAYS[way]}" for way, method in requested]
    return table(results, names, [results.figures[:, :, w, m, number] for w, m in requested])


def detector_table(results: Results) -> str:
    """Return how well uncertainties separate digits from clothes."""
    requested = list(product(range(len(WAYS)), DETECTORS))
    names = [f"{name}, {WAYS[way]}" for way, name in requested]
    arrays = [results.aurocs[:, :, way, *DETECTORS[name]] for way, name in requested]
    return table(results, names, arrays)


def words(results: Results) -> list[str]:
    """Describe what stays, what shrinks, and the gain of an ensemble with few and many rows."""
    first, last = (f"{size:,}" for size in (results.sizes[0], results.sizes[-1]))
    texts = [
        f"The true entropy of the swapped pair's labels is {results.known_level:.3f} nats, "
        "for any number of rows."
    ]
    for way, name in enumerate(WAYS_IN_FULL):
        uncertainties = results.uncertainties[:, :, way, TEN]
        aleatoric = uncertainties[:, :, 0, ALEATORIC]
        epistemic = uncertainties[..., EPISTEMIC].mean(axis=0)
        shrinking = [
            f"{kind} {epistemic[0, i] / epistemic[-1, i]:.1f}" for i, kind in enumerate(KINDS)
        ]
        gains = (
            results.figures[:, :, way, ONE, LOG_LOSS] - results.figures[:, :, way, TEN, LOG_LOSS]
        )
        texts.append(
            f"Networks {name}: from {first} to {last} rows the pair's aleatoric uncertainty goes "
            f"from {mean_and_spread(aleatoric[:, 0])} to {mean_and_spread(aleatoric[:, -1])}; "
            "the ratio of first to last epistemic uncertainty (means over seeds; below 1 it "
            f"grew) is {', '.join(shrinking)}. "
            "The log loss of the ensemble of 10 is lower than that of one network by "
            f"{mean_and_spread(gains[:, 0])} with {first} rows and {mean_and_spread(gains[:, -1])} "
            f"with {last}."
        )
    return texts


def picture(results: Results) -> Figure:
    """Plot uncertainties and AUROC above, log loss and calibration error below."""
    figure = panels(2, 3, size=(4.2, 3.3))
    axes = figure.axes
    for number, part in enumerate((ALEATORIC, EPISTEMIC)):
        for kind, name in enumerate(KINDS):
            draw(axes[number], results, results.uncertainties[:, :, :, TEN, kind, part], name, kind)
        axes[number].set_title(f"{PARTS[part]} uncertainty, ensemble of 10", fontsize=9)
        axes[number].set_ylabel("nats")
    axes[0].axhline(results.known_level, color=COLORS[0], linestyle=":", linewidth=1.2)
    axes[0].set_ylim(0, 1.6)
    axes[1].set_yscale("log")
    for kind, (name, place) in enumerate(DETECTORS.items()):
        draw(axes[2], results, results.aurocs[:, :, :, *place], name, kind)
    axes[2].set_title("AUROC, digits vs. clothes", fontsize=9)
    axes[2].set_ylabel("AUROC")
    axes[2].set_ylim(0.4, 1)
    for axis, number in zip(axes[3:], (LOG_LOSS, ECE, ACCURACY), strict=True):
        for method, name in enumerate(METHODS):
            draw(axis, results, results.figures[:, :, :, method, number], name, method)
        axis.set_title(f"{FIGURES[number]}, labels with noise", fontsize=9)
        axis.set_ylabel(FIGURES[number])
    style: dict[str, Any] = {"fontsize": 7, "frameon": False, "ncols": 2}
    style |= {"columnspacing": 0.8, "handlelength": 1.2}
    for number in (0, 3):
        axes[number].legend(loc="upper center", **style)
    axes[2].legend(loc="lower center", **style)
    title = (
        "What more data does: solid lines stopped at the lowest validation loss, dashed to the end"
    )
    figure.suptitle(f"{title}; dotted: the noise added")
    return figure


def draw(axes: Axes, results: Results, figures: FloatArray, name: str, number: int) -> None:
    """Plot seeds x numbers of rows x stopping rules, one line each."""
    for way, line in enumerate(("-", "--")):
        style: dict[str, Any] = {
            "color": COLORS[number],
            "marker": "o",
            "markersize": 3,
            "linewidth": 1.3,
        }
        label = name if way == STOPPED else None
        axes.plot(results.sizes, figures[:, :, way].mean(0), line, label=label, **style)
    axes.set_xscale("log")
    axes.set_xticks(results.sizes, [f"{size:,}" for size in results.sizes])
    axes.minorticks_off()
    axes.set_xlabel("training rows")
