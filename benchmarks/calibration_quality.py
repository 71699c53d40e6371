"""Log loss, Brier score and ECE after calibration, beside peers, on real outputs of real models.

    python -m benchmarks.calibration_quality FOLDER               # NPZ files of outputs and labels
    python -m benchmarks.calibration_quality FOLDER --cache FILE  # caches the results of peers
    python -m benchmarks.calibration_quality --quick              # two small generated datasets
    python -m benchmarks.calibration_quality FOLDER -o FILE       # writes the tables to a file too
    python -m benchmarks.calibration_quality FOLDER --only 'probmetrics logistic'  # of the peers

Every dataset is split into five fixed random halves, to fit on and to test on; metrics are means
over the five. Every method gets the same probabilities, floored at 1e-12, or their logits. A
probability of 0 for the true class counts as 1e-12. Each method runs in a process of its own with
two threads; seconds are those of a fit, on a machine that need not have been idle. Peers that are
not installed are left out.

The rules by which AutoCalibrator selects its parts were chosen on other data: `python -m
benchmarks.calibration_rules` shows them.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.datasets import Dataset, real_datasets, small_datasets
from benchmarks.harness import (
    METHODS,
    N_BINS,
    Figures,
    evaluate,
    in_fresh_process,
    run_quietly,
    timed,
    versions,
)
from benchmarks.peers import PEERS, Method

__all__ = ["main"]

PLAIN = "dubito TemperatureScaling"
OURS = "dubito AutoCalibrator"
FULL = "dubito AutoCalibrator, mixture"
STRONG_PEER = "probmetrics logistic"
RULES = (
    "AutoCalibrator selects by rules that were chosen on other data than these: "
    "python -m benchmarks.calibration_rules shows that choice."
)


class Outcome(NamedTuple):
    """Metrics and fitting time of a method on a dataset, means over splits."""

    log_loss: float
    brier: float
    ece: float
    torchmetrics_ece: float  # torchmetrics' of the same probabilities
    seconds: float


Outcomes = dict[str, Outcome]  # by dataset name


def load_datasets(folder: Path | None) -> Iterator[Dataset]:
    """Return the real datasets of a folder, or the small ones."""
    return small_datasets() if folder is None else real_datasets(folder)


def outcomes(name: str, folder: Path | None) -> Outcomes:
    """Return the outcome of a method on every dataset that it supports."""
    method = METHODS[name]
    return {
        entry.name: outcome(method, entry)
        for entry in load_datasets(folder)
        if method.can_take(entry.n_classes)
    }


def outcome(method: Method, entry: Dataset) -> Outcome:
    """Fit and test a method on every split of a dataset."""
    figures, seconds = [], []
    for fit, test in entry.splits:
        call = partial(method.fit, method.takes(entry.logits[fit]), entry.y[fit])
        time, fitted = timed(call)
        seconds.append(time)
        probabilities = fitted.predict(method.takes(entry.logits[test]))
        figures.append(evaluate(probabilities, entry.y[test]))
    means = Figures(*np.mean(figures, axis=0).tolist())
    return Outcome(*means, seconds=float(np.mean(seconds)))


def all_outcomes(
    folder: Path | None, cache: Path | None, only: Sequence[str] = ()
) -> dict[str, Outcomes]:
    """Run the chosen installed methods (default: all), except peers whose outcomes are cached."""
    known = json.loads(cache.read_text()) if cache is not None and cache.exists() else {}
    call = run_quietly if folder is None else in_fresh_process
    found: dict[str, Outcomes] = {}
    for name, method in METHODS.items():
        if name == "float64 reference" or not method.is_installed:
            continue
        if only and name not in only:
            continue
        if name not in known or name not in PEERS:
            print(name, file=sys.stderr, flush=True)
            known[name] = call(outcomes, name, folder)
        found[name] = {entry: Outcome(*values) for entry, values in known[name].items()}
        if cache is not None:
            cache.write_text(json.dumps({peer: known[peer] for peer in PEERS if peer in known}))
    return found


class DatasetResult(NamedTuple):
    """The outcomes of AutoCalibrator, of its full mixture and of the best peer on a dataset."""

    entry: Dataset
    none: Outcome
    plain: Outcome
    ours: Outcome
    full: Outcome
    best_name: str
    best: Outcome
    strong_peer: Outcome | None

    @property
    def to_best(self) -> float:
        """Our log loss relative to the best peer's."""
        return self.ours.log_loss / self.best.log_loss

    @property
    def to_full(self) -> float:
        """The log loss of the default relative to that of the full mixture."""
        return self.ours.log_loss / self.full.log_loss

    @property
    def to_strong_peer(self) -> float:
        """Our log loss relative to that of the strong peer, NaN if it is not installed."""
        return (
            np.nan if self.strong_peer is None else self.ours.log_loss / self.strong_peer.log_loss
        )

    @property
    def full_to_strong_peer(self) -> float:
        """The same for the full mixture."""
        return self.to_strong_peer / self.to_full


def result_on(found: dict[str, Outcomes], entry: Dataset) -> DatasetResult:
    """Return the outcomes on a dataset."""
    here = {name: entries[entry.name] for name, entries in found.items() if entry.name in entries}
    best = min((name for name in here if name in PEERS), key=lambda name: here[name].log_loss)
    four = here["none"], here[PLAIN], here[OURS], here[FULL]
    return DatasetResult(entry, *four, best, here[best], here.get(STRONG_PEER))


def make_table(results: list[DatasetResult]) -> list[str]:
    """Return a line per dataset."""
    heads = f"{'none':>8} {'plain T':>8} {'auto':>8} {'best peer':>8}  {'':<28} {'/ best':>7}"
    last = f"{'Brier':>7} {'best':>7} {f'ECE ({N_BINS})':>8} {'best':>7}"
    columns = f"{heads} {'/ logistic':>10} {'/ full':>7} {last}"
    return [f"{'':<21} {'n':>6} {'K':>4} {columns}", *map(make_line, results)]


def make_line(one: DatasetResult) -> str:
    """Return the line of a dataset."""
    size = f"{one.entry.name:<21} {one.entry.y.size:>6} {one.entry.n_classes:>4}"
    losses = f"{one.none.log_loss:>8.5f} {one.plain.log_loss:>8.5f} {one.ours.log_loss:>8.5f}"
    ratios = f"{one.to_best:>7.4f} {one.to_strong_peer:>10.4f} {one.to_full:>7.4f}"
    others = (
        f"{one.ours.brier:>7.4f} {one.best.brier:>7.4f} {one.ours.ece:>8.4f} {one.best.ece:>7.4f}"
    )
    return f"{size} {losses} {one.best.log_loss:>9.5f}  {one.best_name:<28} {ratios} {others}"


def summary(results: list[DatasetResult]) -> list[str]:
    """Return the summary over datasets."""
    worst = max(results, key=lambda one: one.to_best)
    families: dict[str, list[DatasetResult]] = {}
    for one in results:
        families.setdefault(one.entry.family, []).append(one)

    def mean(name: str, among: list[DatasetResult]) -> float:
        return float(np.mean([getattr(one, name) for one in among]))

    def over_families(name: str) -> float:
        return float(np.mean([mean(name, members) for members in families.values()]))

    to_full = {name: mean("to_full", members) for name, members in families.items()}
    largest = max(to_full, key=lambda name: to_full[name])
    n_better = sum(one.to_best < 1 for one in results)
    return [
        f"mean log loss relative to {STRONG_PEER}, {len(families)} distinct datasets: "
        f"{over_families('to_strong_peer'):.4f}; of the full mixture "
        f"{over_families('full_to_strong_peer'):.4f}",
        f"with every llama prompt as its own dataset, {len(results)}: "
        f"{mean('to_strong_peer', results):.4f}; of the full mixture "
        f"{mean('full_to_strong_peer', results):.4f}",
        f"relative to the full mixture: {over_families('to_full'):.4f}; "
        f"largest {to_full[largest]:.4f} ({largest})",
        f"below the best peer there on {n_better} of {len(results)}; "
        f"largest relative to it: {worst.to_best:.4f} ({worst.entry.name})",
        RULES,
    ]


def methods_table(found: dict[str, Outcomes], names: list[str]) -> list[str]:
    """Return a line per method: means over the datasets it supports."""
    heads = f"{'sets':>5} {'/ none':>8} {'/ logistic':>10} {'Brier':>7} {f'ECE ({N_BINS})':>8}"
    lines = [f"{'':<32} {heads} {'torchmetrics':>12} {'seconds':>9}"]
    for name, entries in found.items():
        taken = [entry for entry in names if entry in entries]
        means = Outcome(*np.mean([entries[entry] for entry in taken], axis=0).tolist())
        none, strong_peer = (
            relative(entries, found.get(to), taken) for to in ("none", STRONG_PEER)
        )
        ratios = f"{len(taken):>5} {none:>8.4f} {strong_peer:>10.4f}"
        figures = f"{means.brier:>7.4f} {means.ece:>8.5f} {means.torchmetrics_ece:>12.5f}"
        lines.append(f"{name:<32} {ratios} {figures} {means.seconds:>9.4f}")
    return lines


def relative(entries: Outcomes, to: Outcomes | None, names: list[str]) -> float:
    """Return the mean ratio of two log losses over datasets, NaN if one is missing."""
    if to is None:
        return np.nan
    return float(np.mean([entries[name].log_loss / to[name].log_loss for name in names]))


def report(found: dict[str, Outcomes], folder: Path | None) -> str:
    """Return all tables as text."""
    results = [result_on(found, entry) for entry in load_datasets(folder)]
    regular = [one for one in results if not one.entry.is_shift]
    shifts = [one for one in results if one.entry.is_shift]
    names = [one.entry.name for one in regular]
    parts = [
        [versions()],
        ["Log loss on the other half, by dataset", *make_table(regular), *summary(regular)],
        ["Means over the datasets that each method supports", *methods_table(found, names)],
    ]
    if shifts:
        title = "Fitted on one dataset, tested on another; not part of the means"
        parts.insert(2, [title, *make_table(shifts)])
    return "\n\n".join("\n".join(lines) for lines in parts)


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, nargs="?", help="NPZ files of outputs and labels")
    parser.add_argument(
        "--quick", action="store_true", help="two small datasets, all in one process"
    )
    parser.add_argument(
        "--only", action="append", default=[], help="a method to run, e.g. 'probmetrics logistic'"
    )
    parser.add_argument("--cache", type=Path, help="JSON file that caches the results of peers")
    parser.add_argument("-o", "--output", type=Path, help="output file for the tables")
    arguments = parser.parse_args()
    if (arguments.folder is None) != arguments.quick:
        parser.error("pass either FOLDER or --quick")
    only = [OURS, FULL, "none", PLAIN, *arguments.only] if arguments.only else []
    text = report(all_outcomes(arguments.folder, arguments.cache, only), arguments.folder)
    print(text)
    if arguments.output is not None:
        arguments.output.parent.mkdir(parents=True, exist_ok=True)
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
