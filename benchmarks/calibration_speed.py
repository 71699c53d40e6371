"""How long calibrators take to fit, and how good they are, beside peers, in one run.

    python -m benchmarks.calibration_speed            # up to 50,000 x 1,000 float32 logits, 200 MB
    python -m benchmarks.calibration_speed --quick    # a little of it, all in one process
    python -m benchmarks.calibration_speed -o FILE    # writes the table there too

Each runs in a process of its own, with two threads, on rows in the form it takes (logits or
probabilities), after a first fit on a few rows. Seconds are the best of up to seven fits, as many
as begin within ten seconds. Memory is what a fit adds, in percent of the matrix. Log loss, Brier
score and ECE are those of as many other rows, at most 10,000. What other processes used meanwhile
is told below each table: times count on a quiet machine only. Peers that are not installed are left
out.
"""

import argparse
import sys
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.clock import peak_growth
from benchmarks.contest import (
    CONTESTANTS,
    N_BINS,
    Figures,
    figures_of,
    in_fresh_process,
    others_seconds,
    quietly,
    seconds_of,
    versions,
)
from benchmarks.peers import Fitted
from benchmarks.penalized import Objectives, objectives
from benchmarks.sets import generated

__all__ = ["main"]

MOST_FITS, MOST_SECONDS = 7, 10.0
MOST_TEST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Heat:
    """Contestants on the same rows; others' times are told in the first one's."""

    title: str
    n_rows: int
    n_classes: int
    names: tuple[str, ...]
    objective: str | None = None  # of probmetrics, to be compared too

    def smaller(self) -> "Heat":
        """Return the same with few rows and classes."""
        n_classes = 2 if self.n_classes == 2 else max(self.n_classes // 20, 3)
        return Heat(self.title, self.n_rows // 50, n_classes, self.names, self.objective)

    @property
    def present(self) -> list[str]:
        """The contestants that are installed."""
        return [name for name in self.names if is_present(name)]


class Run(NamedTuple):
    """What a contestant needed, and what it reached."""

    seconds: float
    others: float  # processors that other processes had meanwhile
    growth: float  # of memory, as a share of the matrix
    temperature: float | None
    figures: Figures


HEATS = (
    Heat(
        "Temperature",
        50_000,
        1_000,
        (
            "dubito TemperatureScaling",
            "scikit-learn temperature",
            "probmetrics ts-mix",
            "netcal TemperatureScaling",
            "PyTorch LBFGS recipe",
            "SciPy minimize recipe",
            "float64 reference",
        ),
    ),
    Heat("Vector", 5_000, 100, ("dubito VectorScaling", "probmetrics svs"), "svs"),
    Heat(
        "Matrix",
        5_000,
        100,
        ("dubito StructuredMatrixScaling", "dubito MatrixScaling", "probmetrics sms"),
        "sms",
    ),
    Heat("Vector", 50_000, 1_000, ("dubito VectorScaling", "probmetrics svs")),
    Heat(
        "One-vs-rest isotonic",
        50_000,
        1_000,
        ("dubito IsotonicCalibration", "scikit-learn isotonic", "netcal IsotonicRegression"),
    ),
    Heat("Isotonic", 50_000, 2, ("dubito IsotonicCalibration", "scikit-learn isotonic")),
    Heat(
        "Histogram", 50_000, 2, ("dubito HistogramBinning", "netcal HistogramBinning", "netcal BBQ")
    ),
    Heat(
        "Platt",
        50_000,
        2,
        (
            "dubito PlattScaling",
            "scikit-learn sigmoid",
            "netcal LogisticCalibration",
            "probmetrics logistic",
        ),
    ),
    Heat("Beta", 50_000, 2, ("dubito BetaCalibration", "netcal BetaCalibration")),
    Heat("Choice of all", 5_000, 10, ("dubito AutoCalibrator", "probmetrics logistic")),
)


def run(name: str, n_rows: int, n_classes: int) -> Run:
    """Fit a contestant several times; predict once."""
    contestant = CONTESTANTS[name]
    n_test = min(n_rows, MOST_TEST_ROWS)
    logits, y = generated(n_rows + n_test, n_classes)
    few = np.arange(min(2 * n_classes, n_rows))
    contestant.fit(contestant.takes(logits[few]), few % n_classes)  # loads what there is to load
    inputs, labels = contestant.takes(logits[:n_rows]), y[:n_rows]
    fits: list[tuple[float, Fitted]] = []

    def fit() -> None:
        fits.append(seconds_of(partial(contestant.fit, inputs, labels)))

    before = others_seconds()
    growth = peak_growth(fit) * 2**20 / logits[:n_rows].nbytes
    while len(fits) < MOST_FITS and sum(seconds for seconds, _ in fits) < MOST_SECONDS:
        fit()
    times, fitted = [seconds for seconds, _ in fits], fits[-1][1]
    others = (others_seconds() - before) / sum(times)
    test = fitted.predict(contestant.takes(logits[n_rows:]))
    return Run(min(times), others, growth, fitted.temperature, figures_of(test, y[n_rows:]))


def is_present(name: str) -> bool:
    """Whether a contestant can be run here."""
    return name in CONTESTANTS and CONTESTANTS[name].is_installed


def table_of(heat: Heat, is_quick: bool) -> list[str]:
    """Run a heat; return its lines."""
    call = quietly if is_quick else in_fresh_process
    size = heat.n_rows, heat.n_classes
    runs = {}
    for name in heat.present:
        print(f"{heat.title}: {name}", file=sys.stderr, flush=True)
        runs[name] = call(run, name, *size)
    lines = [f"{heat.title}, {heat.n_rows:,} x {heat.n_classes:,}", header(), *lines_of(runs)]
    if runs:
        most = max(entry.others for entry in runs.values())
        lines.append(f"processors used by others meanwhile: {max(most, 0):.2f} at most")
    if "float64 reference" in runs and runs.keys() - {"float64 reference"}:
        lines.append(temperature_line(runs))
    if heat.objective is not None and find_spec("probmetrics"):
        lines.append(objective_line(call(objectives, heat.objective, *size)))
    return lines


def header() -> str:
    """Return the names of the columns."""
    columns = f"{'seconds':>9} {'x first':>8} {'memory':>8} {'log loss':>9} {'Brier':>7}"
    return f"{'':<32} {columns} {f'ECE ({N_BINS})':>8} {'T':>11}"


def lines_of(runs: dict[str, Run]) -> list[str]:
    """Return a line for each contestant."""
    lines = []
    first = next(iter(runs.values())).seconds if runs else 1.0
    for name, (seconds, _, growth, temperature, figures) in runs.items():
        ratio = seconds / first
        columns = f"{seconds:>9.4f} {ratio:>8.1f} {growth:>+8.0%} {figures.log_loss:>9.5f}"
        last = "" if temperature is None else f"{temperature:>11.8f}"
        lines.append(
            f"{name:<32} {columns} {figures.brier:>7.5f} {figures.ece:>8.5f} {last}".rstrip()
        )
    return lines


def temperature_line(runs: dict[str, Run]) -> str:
    """Return how far each temperature is from the exact one."""
    exact = runs["float64 reference"].temperature
    assert exact is not None
    gaps = [
        f"{name} {abs(entry.temperature - exact):.0e}"
        for name, entry in runs.items()
        if entry.temperature is not None and name != "float64 reference"
    ]
    return f"T off the reference: {', '.join(gaps)}"


def objective_line(found: Objectives) -> str:
    """Return the two values, and which is lower."""
    gap = found.ours - found.theirs
    return (
        f"the same penalized objective: probmetrics {found.theirs:.9f},"
        f" dubito {found.ours:.9f} ({gap:+.1e})"
    )


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="few rows, all in one process")
    parser.add_argument("--only", help="heats whose title holds this text")
    parser.add_argument("-o", "--output", type=Path, help="a file for the tables")
    arguments = parser.parse_args()
    heats = [heat for heat in HEATS if (arguments.only or "").lower() in heat.title.lower()]
    if arguments.quick:
        heats = [heat.smaller() for heat in heats]
    tables = ["\n".join(table_of(heat, arguments.quick)) for heat in heats if heat.present]
    text = "\n\n".join([versions(), *tables])
    print(text)
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
