"""How fast networks shall learn from swapped labels: chosen on validation rows, before the studies.

    python -m studies.noisy_recipe            # two minutes
    python -m studies.noisy_recipe --quick    # seconds

Cross-entropy, the plainest of the losses that `noisy_pairs` compares, learns at several rates, held
steady or falling in a line to 0, where 40 % of the pairs' labels are swapped. Figures are on
validation rows, whose labels are as noisy; seeds are none of those of the studies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from studies.common.reporting import StudyReport, markdown_table, mean_and_spread, panels
from studies.common.runs import Arrays
from studies.common.study import Options, Study
from studies.noisy_pairs.training import CACHE_NAME, Pace, Setting, fashion, work

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FIRST_SEED = 100
LEARNING_RATES = (1e-3, 2e-3, 4e-3)
PACES: tuple[Pace, ...] = ("steady", "slowing")


def settings(options: Options) -> list[Setting]:
    """Return the runs: each rate at each pace and seed."""
    return [
        replace(
            fashion(options, "cross-entropy", 0.4, FIRST_SEED + seed), learning_rate=rate, pace=pace
        )
        for seed in options.seeds
        for rate in LEARNING_RATES
        for pace in PACES
    ]


def summarize(found: Mapping[Setting, Arrays]) -> StudyReport:
    """Return the table of validation figures, and its picture."""
    runs: dict[tuple[float, str], list[Arrays]] = {}
    for setting, arrays in found.items():
        runs.setdefault((setting.learning_rate, setting.pace), []).append(arrays)
    losses = {key: [run["validation log loss"][-1] for run in of] for key, of in runs.items()}
    rows = [
        [
            f"{rate:g}, {pace}",
            mean_and_spread(losses[rate, pace]),
            mean_and_spread([run["validation accuracy"][-1] for run in of]),
        ]
        for (rate, pace), of in runs.items()
    ]
    table = markdown_table(
        ["learning rate", "log loss on noisy rows", "accuracy on noisy rows"], rows
    )
    rate, pace = min(losses, key=lambda key: float(np.mean(losses[key])))
    return StudyReport(f"{table}\n\nLowest log loss: {rate:g}, {pace}.", picture(runs))


def picture(runs: Mapping[tuple[float, str], list[Arrays]]) -> Figure:
    """Return the validation loss over epochs."""
    figure = panels(1, 1, size=(6, 4))
    (axes,) = figure.axes
    for (rate, pace), of in runs.items():
        curve = np.mean([run["validation log loss"] for run in of], axis=0)
        style = "-" if pace == "slowing" else "--"
        color = f"C{LEARNING_RATES.index(rate)}"
        epochs = np.arange(1, len(curve) + 1)
        axes.plot(epochs, curve, style, color=color, label=f"{rate:g}, {pace}")
    axes.set(xlabel="epochs", ylabel="validation log loss, labels as noisy", title="cross-entropy")
    axes.legend(frameon=False)
    return figure


main = Study("noisy_recipe", settings, work, summarize, cache_name=CACHE_NAME, n_seeds=2).main

if __name__ == "__main__":
    main()
