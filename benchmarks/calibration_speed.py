"""Fitting time and quality of calibrators compared with peers, in one run.

    python -m benchmarks.calibration_speed            # up to 50,000 x 1,000 float32 logits, 200 MB
    python -m benchmarks.calibration_speed --quick    # few rows, all in one process
    python -m benchmarks.calibration_speed -o FILE    # writes the tables to a file too

Each method runs in a process of its own with two threads, on rows in the form it takes (logits or
probabilities), after a first fit on a few rows. Seconds are the best of up to seven fits that begin
within ten seconds. Memory is what a fit adds, in percent of the matrix. Log loss, Brier score and
ECE are those of as many other rows, at most 10,000. The load of other processes is printed below
each table: times are meaningful on an idle machine only. Peers that are not installed are left out.
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
from benchmarks.datasets import generate_logits
from benchmarks.harness import (
    METHODS,
    N_BINS,
    Figures,
    evaluate,
    in_fresh_process,
    other_cpu_seconds,
    run_quietly,
    timed,
    versions,
)
from benchmarks.peers import Fitted
from benchmarks.penalized import Objectives, objectives

__all__ = ["main"]

MAX_FITS, MAX_SECONDS = 7, 10.0
MAX_TEST_ROWS = 10_000


@dataclass(frozen=True, slots=True)
class Comparison:
    """Methods on the same rows; times are relative to the first."""

    title: str
    n_rows: int
    n_classes: int
    names: tuple[str, ...]
    objective: str | None = None  # of probmetrics, whose objective is compared too

    def smaller(self) -> "Comparison":
        """Return the same with few rows and classes."""
        n_classes = 2 if self.n_classes == 2 else max(self.n_classes // 20, 3)
        return Comparison(self.title, self.n_rows // 50, n_classes, self.names, self.objective)

    @property
    def present(self) -> list[str]:
        """The methods that are installed."""
        return [name for name in self.names if is_installed(name)]


class Run(NamedTuple):
    """Time, memory and metrics of a method."""

    seconds: float
    others: float  # processors used by other processes meanwhile
    growth: float  # of memory, relative to the matrix
    temperature: float | None
    figures: Figures


COMPARISONS = (
    Comparison(
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
    Comparison("Vector", 5_000, 100, ("dubito VectorScaling", "probmetrics svs"), "svs"),
    Comparison(
        "Matrix",
        5_000,
        100,
        ("dubito StructuredMatrixScaling", "dubito MatrixScaling", "probmetrics sms"),
        "sms",
    ),
    Comparison("Vector", 50_000, 1_000, ("dubito VectorScaling", "probmetrics svs")),
    Comparison(
        "One-vs-rest isotonic",
        50_000,
        1_000,
        ("dubito IsotonicCalibration", "scikit-learn isotonic", "netcal IsotonicRegression"),
    ),
    Comparison("Isotonic", 50_000, 2, ("dubito IsotonicCalibration", "scikit-learn isotonic")),
    Comparison(
        "Histogram", 50_000, 2, ("dubito HistogramBinning", "netcal HistogramBinning", "netcal BBQ")
    ),
    Comparison(
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
    Comparison("Beta", 50_000, 2, ("dubito BetaCalibration", "netcal BetaCalibration")),
    Comparison("Selection", 5_000, 10, ("dubito AutoCalibrator", "probmetrics logistic")),
    Comparison("Selection", 50_000, 100, ("dubito AutoCalibrator",)),
)


def run(name: str, n_rows: int, n_classes: int, max_fits: int = MAX_FITS) -> Run:
    """Fit a method several times; predict once."""
    method = METHODS[name]
    n_test = min(n_rows, MAX_TEST_ROWS)
    logits, y = generate_logits(n_rows + n_test, n_classes)
    few = np.arange(min(2 * n_classes, n_rows))
    method.fit(method.takes(logits[few]), few % n_classes)  # loads what there is to load
    inputs, labels = method.takes(logits[:n_rows]), y[:n_rows]
    fits: list[tuple[float, Fitted]] = []

    def fit() -> None:
        fits.append(timed(partial(method.fit, inputs, labels)))

    before = other_cpu_seconds()
    growth = peak_growth(fit) * 2**20 / logits[:n_rows].nbytes
    while len(fits) < max_fits and sum(seconds for seconds, _ in fits) < MAX_SECONDS:
        fit()
    times, fitted = [seconds for seconds, _ in fits], fits[-1][1]
    others = (other_cpu_seconds() - before) / sum(times)
    test = fitted.predict(method.takes(logits[n_rows:]))
    return Run(min(times), others, growth, fitted.temperature, evaluate(test, y[n_rows:]))


def is_installed(name: str) -> bool:
    """Whether a method can be run here."""
    return name in METHODS and METHODS[name].is_installed


def make_table(comparison: Comparison, is_quick: bool) -> list[str]:
    """Run a comparison; return its lines."""
    call = run_quietly if is_quick else in_fresh_process
    size = comparison.n_rows, comparison.n_classes
    runs = {}
    for name in comparison.present:
        print(f"{comparison.title}: {name}", file=sys.stderr, flush=True)
        runs[name] = call(run, name, *size, 1 if is_quick else MAX_FITS)
    title = f"{comparison.title}, {comparison.n_rows:,} x {comparison.n_classes:,}"
    lines = [title, header(), *make_lines(runs)]
    if runs:
        most = max(entry.others for entry in runs.values())
        lines.append(f"processors used by other processes: {max(most, 0):.2f} at most")
    if len(runs) > 1 and "dubito AutoCalibrator" in runs:
        ours, peer = runs["dubito AutoCalibrator"].seconds, runs["probmetrics logistic"].seconds
        lines.append(f"AutoCalibrator takes {ours / peer:.1f} times probmetrics logistic")
    if "float64 reference" in runs and runs.keys() - {"float64 reference"}:
        lines.append(temperature_line(runs))
    if comparison.objective is not None and find_spec("probmetrics"):
        lines.append(objective_line(call(objectives, comparison.objective, *size)))
    return lines


def header() -> str:
    """Return the names of the columns."""
    columns = f"{'seconds':>9} {'x first':>8} {'memory':>8} {'log loss':>9} {'Brier':>7}"
    return f"{'':<32} {columns} {f'ECE ({N_BINS})':>8} {'T':>11}"


def make_lines(runs: dict[str, Run]) -> list[str]:
    """Return a line for each method."""
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
    """Return the error of each temperature."""
    exact = runs["float64 reference"].temperature
    assert exact is not None
    gaps = [
        f"{name} {abs(entry.temperature - exact):.0e}"
        for name, entry in runs.items()
        if entry.temperature is not None and name != "float64 reference"
    ]
    return f"error of T: {', '.join(gaps)}"


def objective_line(found: Objectives) -> str:
    """Return the two values and their difference."""
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
    parser.add_argument("--only", help="run comparisons whose title contains this text")
    parser.add_argument("-o", "--output", type=Path, help="output file for the tables")
    arguments = parser.parse_args()
    wanted = (arguments.only or "").lower()
    comparisons = [one for one in COMPARISONS if wanted in one.title.lower()]
    if arguments.quick:
        comparisons = [one.smaller() for one in comparisons]
    tables = ["\n".join(make_table(one, arguments.quick)) for one in comparisons if one.present]
    text = "\n\n".join([versions(), *tables])
    print(text)
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
