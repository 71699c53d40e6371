"""CalArena's protocol on the datasets of a folder: AutoCalibrator compared with all peers.

    python -m benchmarks.calarena FOLDER                # NPZ files of outputs and labels
    python -m benchmarks.calarena FOLDER --json FILE    # writes the metrics of all methods too
    python -m benchmarks.calarena FOLDER --reuse FILE   # takes the metrics of peers from there
    python -m benchmarks.calarena FOLDER -o FILE        # writes the tables to a file too

CalArena (Berta, Holzmüller, Bach and Jordan, 2026, https://github.com/probkit/CalArena) fits each
calibrator on the probabilities of one part with one thread, and ranks calibrators by how often they
have the lower log loss on the other part. To run dubito in CalArena itself, import
`CUSTOM_CALIBRATORS` from here in its `custom_calibrators.py`.

`any_datasets` of benchmarks/datasets.py says which files are read. Every method gets the same
probabilities, floored at 1e-12; a probability of 0 for the true class counts as 1e-12. Peers are
CalArena's calibrators without kernels and ENIR, which are slow, and those of the other benchmarks.
Slow ones (boosted trees, netcal's scaling, unregularized matrix scaling) support at most 10 or 20
classes here. Seconds are those of a fit; two methods run at once.
"""

import argparse
import json
import sys
from collections.abc import Callable
from contextlib import chdir
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Self

import numpy as np

from benchmarks.calibration_quality import Outcome, outcome
from benchmarks.datasets import Dataset, any_datasets
from benchmarks.harness import N_BINS, in_fresh_processes, versions
from benchmarks.ours import BASELINES
from benchmarks.peers import PEERS, SLOW_PEERS, Fitted, Method, probabilities
from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    StructuredMatrixScaling,
    TemperatureScaling,
)

__all__ = ["CUSTOM_CALIBRATORS", "ArenaCalibrator", "main"]

OURS = "dubito-AutoCalibrator"
MAX_CLASSES = {"netcal LogisticCalibration": 20, "netcal BetaCalibration": 10}  # slow above

Outcomes = dict[str, Outcome]  # by dataset name
Results = dict[str, Outcome | str]  # the same, or why the method failed there


class ArenaCalibrator:
    """A calibrator behind CalArena's interface.

    Inputs are probabilities, rows x classes or of the positive class alone, or logits where
    `takes_logits` is set.
    """

    def __init__(self, calibrator: BaseCalibrator, takes_logits: bool = False):
        self.calibrator = calibrator
        self.takes_logits = takes_logits

    def fit(self, p_cal: FloatArray, y_cal: IntArray) -> Self:
        """Fit on the calibration part."""
        self.calibrator.fit(self._outputs(p_cal), np.asarray(y_cal).astype(np.int64))
        return self

    def predict_proba(self, p_test: FloatArray) -> FloatArray:
        """Return calibrated probabilities, rows x classes."""
        return self.calibrator.predict_proba(self._outputs(p_test))

    def _outputs(self, inputs: FloatArray) -> Logits | FloatArray:
        if self.takes_logits:
            return Logits(inputs)
        is_positive = inputs.ndim == 1 or inputs.shape[1] == 1
        return np.column_stack([1 - inputs.ravel(), inputs.ravel()]) if is_positive else inputs


CUSTOM_CALIBRATORS: dict[str, Callable[[], ArenaCalibrator]] = {
    OURS: lambda: ArenaCalibrator(AutoCalibrator()),
    f"{OURS}-one-part": lambda: ArenaCalibrator(AutoCalibrator(max_parts=1)),
    f"{OURS}-full-mixture": lambda: ArenaCalibrator(AutoCalibrator(max_parts=None)),
    "dubito-TemperatureScaling": lambda: ArenaCalibrator(TemperatureScaling()),
    "dubito-StructuredMatrixScaling": lambda: ArenaCalibrator(StructuredMatrixScaling()),
}


def fit_ours(name: str, inputs: FloatArray, y: IntArray) -> Fitted:
    """Fit one of dubito's calibrators as CalArena does."""
    return Fitted(CUSTOM_CALIBRATORS[name]().fit(inputs, y).predict_proba)


def arena_methods() -> dict[str, Method]:
    """Return all methods by name, installed or not: ours, no calibration, and peers."""
    ours = {
        name: Method(partial(fit_ours, name), probabilities, "dubito")
        for name in CUSTOM_CALIBRATORS
    }
    result = {**ours, "none": BASELINES["none"], **PEERS, **SLOW_PEERS}
    limited = {name: replace(PEERS[name], max_classes=most) for name, most in MAX_CLASSES.items()}
    return result | limited


def outcomes_or_errors(name: str, folder: Path) -> Results:
    """Return the outcome of a method on each dataset that it supports, or why it failed there."""
    method, found = arena_methods()[name], Results()
    datasets, _ = any_datasets(folder)
    with TemporaryDirectory() as scratch, chdir(scratch):  # CatBoost writes files
        for entry in datasets:
            if not method.can_take(entry.n_classes):
                continue
            try:
                found[entry.name] = outcome(method, entry)
            except Exception as error:  # of whatever kind: it is printed
                found[entry.name] = f"{type(error).__name__}: {error}".splitlines()[0]
    return found


def run_all(folder: Path, reused: Path | None) -> dict[str, Results]:
    """Run every installed method on every dataset, except peers whose metrics are known."""
    known = {} if reused is None else json.loads(reused.read_text())
    found: dict[str, Results] = {
        name: {
            entry: one if isinstance(one, str) else Outcome(**one) for entry, one in here.items()
        }
        for name, here in known.items()
        if name not in CUSTOM_CALIBRATORS
    }
    installed = [name for name, method in arena_methods().items() if method.is_installed]
    names = [name for name in installed if name not in found]
    calls = [(name, folder) for name in names]
    results = in_fresh_processes(outcomes_or_errors, calls, n_processes=2, n_threads=1)
    for name, result in zip(names, results, strict=True):
        print(name, file=sys.stderr, flush=True)
        found[name] = result
    return found


def sets_table(found: dict[str, Outcomes], entries: list[Dataset]) -> list[str]:
    """Return a line per dataset, and the means over datasets."""
    width = max(len(entry.name) for entry in entries)
    columns = f"{'none':>8} {'auto':>8} {'best peer':>9} {'/ best':>7} {'/ full':>7}"
    lines = [f"{'':<{width}} {'fit on':>6} {'K':>4} {columns}  best peer"]
    losses = []
    for entry in entries:
        here = {
            name: given[entry.name].log_loss for name, given in found.items() if entry.name in given
        }
        best = min(here.keys() & {*PEERS, *SLOW_PEERS}, key=lambda name: here[name])
        ours, peer, full = here[OURS], here[best], here[f"{OURS}-full-mixture"]
        losses.append((ours, peer, full))
        size = f"{entry.name:<{width}} {entry.splits[0][0].size:>6} {entry.n_classes:>4}"
        ratios = f"{ours / peer:>7.4f} {ours / full:>7.4f}"
        lines.append(f"{size} {here['none']:>8.5f} {ours:>8.5f} {peer:>9.5f} {ratios}  {best}")
    auto, peers, mixture = np.transpose(losses)
    worst = int(np.argmax(auto / peers))
    return [
        *lines,
        f"mean log loss {auto.mean():.5f}, of the best peer of each dataset {peers.mean():.5f}",
        f"mean ratio to the best peer of each dataset: {np.mean(auto / peers):.4f} (full mixture "
        f"{np.mean(mixture / peers):.4f}); lower on {np.sum(auto < peers)} of {len(entries)}; "
        f"largest {auto[worst] / peers[worst]:.4f} ({entries[worst].name})",
    ]


def methods_table(found: dict[str, Outcomes]) -> list[str]:
    """Return a line per method: our wins against it, and means over the datasets it supports."""
    columns = f"{'sets':>4} {'our wins':>8} {'ours / it':>9} {'log loss':>8} {'Brier':>7}"
    lines = [f"{'':<34} {columns} {f'ECE ({N_BINS})':>8} {'seconds':>8}  lower than ours on"]
    for name, here in found.items():
        ratios = {entry: found[OURS][entry].log_loss / one.log_loss for entry, one in here.items()}
        means = Outcome(*np.mean(list(here.values()), axis=0).tolist())
        wins = np.mean([ratio < 1 for ratio in ratios.values()])
        against = f"{wins:>8.2f} {np.mean(list(ratios.values())):>9.4f}"
        against = f"{'':>18}" if name == OURS else against
        figures = f"{means.log_loss:>8.5f} {means.brier:>7.5f} {means.ece:>8.5f}"
        lower = [entry for entry, ratio in ratios.items() if ratio > 1]
        shown = ", ".join(lower[:3]) + (f" and {len(lower) - 3} more" if len(lower) > 3 else "")
        lines.append(
            f"{name:<34} {len(here):>4} {against} {figures} {means.seconds:>8.3f}  {shown}".rstrip()
        )
    return lines


def report(results: dict[str, Results], folder: Path) -> str:
    """Return the tables as text."""
    entries, left_out = any_datasets(folder)
    found: dict[str, Outcomes] = {}
    remarks = [f"{file} left out: {reason}" for file, reason in left_out.items()]
    for name, method in arena_methods().items():
        if name not in results:
            remarks.append(f"{name} left out: {', '.join(method.missing)} not installed")
            continue
        here = results[name].items()
        succeeded = {entry: one for entry, one in here if isinstance(one, Outcome)}
        found |= {name: succeeded} if succeeded else {}
        remarks += [f"{name} failed on {entry}: {e}" for entry, e in here if isinstance(e, str)]
    parts = [
        [versions(n_threads=1)],
        ["Log loss on the test part, by dataset", *sets_table(found, entries)],
        ["Means over the datasets that each method supports", *methods_table(found)],
        remarks,
    ]
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, help="NPZ files of outputs and labels")
    parser.add_argument("--json", type=Path, help="output file for the metrics of all methods")
    parser.add_argument("--reuse", type=Path, help="former --json file: its peers do not run again")
    parser.add_argument("-o", "--output", type=Path, help="output file for the tables")
    arguments = parser.parse_args()
    if not any_datasets(arguments.folder)[0]:
        parser.error(f"{arguments.folder} has no NPZ file of class probabilities and labels")
    results = run_all(arguments.folder, arguments.reuse)
    text = report(results, arguments.folder)
    print(text)
    if arguments.json is not None:
        plain: dict[str, Any] = {
            name: {
                entry: one if isinstance(one, str) else one._asdict() for entry, one in here.items()
            }
            for name, here in results.items()
        }
        arguments.json.write_text(json.dumps(plain, indent=1))
    if arguments.output is not None:
        arguments.output.write_text(text + "\n")


if __name__ == "__main__":
    main()
