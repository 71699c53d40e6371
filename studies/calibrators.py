"""Temperature scaling is hard to beat: all calibrators, on differently trained networks.

    python -m studies.calibrators            # on the networks of training_choices
    python -m studies.calibrators --quick    # seconds; the numbers mean nothing

Calibrators are fitted on the logits of validation images that no network was trained on, and
evaluated on test images: ECE, log loss and error, networks in rows and methods in columns. Binary
calibrators are used one-vs-rest, vector and matrix scaling on log probabilities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
from sklearn.base import clone

from dubito import Logits
from dubito.arrays import FloatArray
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    BetaCalibration,
    EnsembleTemperatureScaling,
    ForestCalibration,
    HistogramBinning,
    IdentityCalibrator,
    IsotonicCalibration,
    MatrixScaling,
    OneVsRest,
    PlattScaling,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from studies.common.reporting import StudyReport, markdown_table, mean_and_spread, panels
from studies.common.runs import Arrays, RunResult, run_one
from studies.common.study import Options, Study
from studies.training_choices.image_networks import CACHE_NAME, Choices, Figures, Trained, trained
from studies.training_choices.study import SWEEPS
from studies.training_choices.study import settings as all_settings

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


PLAIN, TEMPERATURE = "uncalibrated", "temperature"
METHODS: Mapping[str, BaseCalibrator] = {
    PLAIN: IdentityCalibrator(),
    "histogram": OneVsRest(HistogramBinning()),
    "isotonic": OneVsRest(IsotonicCalibration()),
    "Platt": OneVsRest(PlattScaling()),
    "beta": OneVsRest(BetaCalibration()),
    "forest": ForestCalibration(),
    TEMPERATURE: TemperatureScaling(),
    "ensemble temperature": EnsembleTemperatureScaling(),
    "vector": VectorScaling(input="log_proba"),
    "matrix": MatrixScaling(off_diagonal=0, intercept=0, input="log_proba"),
    "matrix (ODIR)": MatrixScaling(input="log_proba"),
    "structured matrix": StructuredMatrixScaling(),
    "auto": AutoCalibrator(),
}
NETWORKS: Mapping[str, Choices] = {
    "LeNet5": SWEEPS["Loss, LeNet5"]["cross-entropy"],
    "LeNet5, smoothing 0.1": SWEEPS["Loss, LeNet5"]["smoothing 0.1"],
    "LeNet5, square loss": SWEEPS["Loss, LeNet5"]["square loss"],
    "1 layer": SWEEPS["Depth"]["1 layer"],
    "3 layers": SWEEPS["Depth"]["3 layers"],
    "6 layers": SWEEPS["Depth"]["6 layers"],
    "3 layers of 4": SWEEPS["Width"]["4 channels"],
    "3 layers of 32": SWEEPS["Width"]["32 channels"],
    "3 layers, decay 0.005": SWEEPS["Weight decay"]["0.005"],
    "3 layers, batch norm": SWEEPS["Batch norm"]["batch norm, rate 0.002"],
    "6 layers of 32, batch norm": SWEEPS["Old and new"]["6 layers of 32, batch norm"],
}

Results = Mapping[str, FloatArray]  # by network: seeds x methods x metrics


@final
@dataclass(frozen=True, slots=True)
class Calibrated:
    """One network, cached or yet to be trained, and all calibrators on it."""

    network: Trained
    folder: Path = field(repr=False, compare=False)


def settings(options: Options) -> Sequence[Calibrated]:
    """Return the networks that are calibrated, as the study of training choices trains them."""
    wanted = list(NETWORKS.values())[: 2 if options.is_quick else None]
    every = (one for one in all_settings(options) if not one.is_followed)
    folder = options.cache_folder(CACHE_NAME)
    return [Calibrated(one, folder) for one in every if one.choices in wanted]


def work(setting: Calibrated) -> RunResult:
    """Return the metrics of one network, methods x metrics."""
    return {"figures": evaluate(run_one(trained, setting.network, setting.folder))}


def summarize(found: Mapping[Calibrated, Arrays]) -> StudyReport:
    """Return one table per metric, one of all methods relative to temperature, and the figure."""
    runs = {
        label: [run["figures"] for one, run in found.items() if one.network.choices == choices]
        for label, choices in NETWORKS.items()
    }
    results = {label: np.stack(some) for label, some in runs.items() if some}
    networks = [one.network for one in found]
    size, n_seeds = networks[0].size, len({one.seed for one in networks})
    head = (
        f"Calibrators are fitted on {size.n_validation:,} validation images and evaluated on "
        f"{size.n_test:,} test images; {n_seeds} seeds. The best mean of each row is bold."
    )
    tables = [
        figure_table(results, "ece", "ECE in %", 100, 1),
        figure_table(results, "log_loss", "Log loss", 1, 3),
        figure_table(results, "error", "Error in %", 100, 1),
        paired_table(results),
    ]
    return StudyReport("\n\n".join([head, *tables, temperature_words(results)]), picture(results))


def evaluate(run: Arrays) -> FloatArray:
    """Return methods x metrics of one network on test images, fitted on validation images."""
    known, labels = Logits(run["validation_logits"]), run["validation_labels"].astype(int)
    new, truth = Logits(run["test_logits"]), run["test_labels"].astype(int)
    fitted = (clone(method).fit(known, labels) for method in METHODS.values())
    return np.array([Figures.of(truth, one.predict_proba(new)) for one in fitted])


def column(results: Results, key: str) -> FloatArray:
    """Return one metric: networks x seeds x methods."""
    return np.stack(list(results.values()))[..., Figures._fields.index(key)]


def figure_table(results: Results, key: str, title: str, factor: float, digits: int) -> str:
    """Return a table as in Guo et al.: networks in rows, methods in columns."""
    rows = []
    for label, values in zip(results, factor * column(results, key), strict=True):
        cells = [mean_and_spread(one, digits) for one in values.T]
        best = values.mean(axis=0).argmin()
        cells[best] = f"**{cells[best]}**"
        rows.append([label, *cells])
    return markdown_table([title, *METHODS], rows)


def paired_table(results: Results) -> str:
    """Return the difference of each method to temperature scaling, on the same networks."""
    place = list(METHODS).index(TEMPERATURE)
    less = {
        key: column(results, key) - column(results, key)[..., [place]]
        for key in ("ece", "log_loss", "error")
    }
    rows = []
    for number, name in enumerate(METHODS):
        if name != TEMPERATURE:
            cells = [mean_and_spread(one[..., number].mean(axis=0), 4) for one in less.values()]
            lower = [
                f"{(one[..., number] < 0).sum()} of {one[..., number].size}"
                for one in less.values()
            ]
            rows.append([name, *cells, *lower])
    heads = ["ECE", "log loss", "error", "lower ECE", "lower log loss", "lower error"]
    return markdown_table(["Difference to temperature, mean over networks", *heads], rows)


def temperature_words(results: Results) -> str:
    """Describe how often temperature scaling helps, and what is best by log loss."""
    names = list(METHODS)
    before, after = names.index(PLAIN), names.index(TEMPERATURE)
    helped = [
        int((column(results, key)[..., after] < column(results, key)[..., before]).sum())
        for key in ("ece", "log_loss")
    ]
    n_all = column(results, "ece")[..., 0].size
    best = [names[one] for one in column(results, "log_loss").mean(axis=(0, 1)).argsort()[:3]]
    return (
        f"Temperature scaling lowers ECE in {helped[0]} and log loss in {helped[1]} of {n_all} "
        f"networks. The three lowest mean log losses: {', '.join(best)}."
    )


def picture(results: Results) -> Figure:
    """Plot ECE and log loss of all methods, one point per network and a mark at the mean."""
    figure = panels(1, 2, size=(5.2, 4.2))
    names = list(METHODS)
    place = names.index(TEMPERATURE)
    losses = column(results, "log_loss").mean(axis=1)
    shown = {
        "ECE": column(results, "ece").mean(axis=1),
        "log loss minus that of temperature": losses - losses[:, [place]],
    }
    for ax, (title, values) in zip(figure.axes, shown.items(), strict=True):
        for number in range(len(names)):
            heights = np.full(len(values), number)
            ax.plot(values[:, number], heights, "o", color="tab:blue", alpha=0.5, markersize=4)
        ax.plot(values.mean(axis=0), range(len(names)), "|", color="tab:red", markersize=12)
        ax.set_yticks(range(len(names)), names)
        ax.invert_yaxis()
        ax.set_title(title)
    ece, loss = figure.axes
    ece.set_xscale("log")
    mark(ece, [0.005, 0.01, 0.02, 0.05, 0.1])
    loss.set_xscale("symlog", linthresh=0.01)
    mark(loss, [-0.1, -0.01, 0, 0.01, 0.1, 1])
    loss.axvline(0, color="tab:gray", linewidth=0.8)
    figure.supxlabel("one point per network, mean over seeds; red: mean over networks", fontsize=9)
    return figure


def mark(ax: Axes, values: list[float]) -> None:
    """Label only these values on the horizontal axis."""
    ax.set_xticks(values, [f"{value:g}" for value in values])
    ax.minorticks_off()


main = Study("calibrators", settings, work, summarize).main

if __name__ == "__main__":
    main()
