"""Conformal prediction sets beside TorchCP and MAPIE, on the same rows in the same run.

    python -m benchmarks.sets FOLDER           # all files cifar100_*.npz of the folder
    python -m benchmarks.sets FOLDER --json    # the same figures as JSON
    python -m benchmarks.sets --quick          # a small generated set

A file holds `logprobs` or `probs`, rows x classes, and `labels`. Figures are means over 20 random
halves, one to fit and one to judge, at a coverage of 90 %: mean size; coverage; the size-stratified
violation, the largest distance of the coverage from 90 % over strata of one size each with at least
50 rows; the same "in bins", over TorchCP's strata of sizes (0-1, 2-3, 4-10, 11-100, 101-1000) with
any rows; and the class gap, the mean distance over classes. An empty set covers nothing, so that a
stratum of size 0 has a violation of 0.9. Ours are the defaults unless stated; penalties are tuned
inside each fit. The rule for that was chosen on generated data and on two other files, but
cifar100_wrn16 was looked at meanwhile: its figures are optimistic, other files are the fair check.
Peers have the penalties of their papers or tune them. What is not installed is left out (pip
install mapie, and with --no-deps torchcp).

The speed is that of fit and predict, 50,000 x 1,000 float32 each, generated: wall and CPU seconds,
the fastest of several runs.
"""

import argparse
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np

from dubito import Logits, Probabilities
from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.doubt import ConformalClassifier

__all__ = ["main"]

LEVEL, N_HALVES, MIN_ROWS = 0.9, 20, 50
STRATA = ((0, 1), (2, 3), (4, 10), (11, 100), (101, 1000))
N_TIMES = 3

Method = Callable[[FloatArray, IntArray, FloatArray], BoolArray]


class Figures(NamedTuple):
    """Means over halves."""

    size: float
    coverage: float
    violation: float
    violation_in_bins: float
    class_gap: float


def load(folder: Path | None) -> Iterator[tuple[str, FloatArray, IntArray]]:
    """Yield the name, the probabilities and the labels of each set."""
    if folder is None:
        yield ("generated", *generated(1200, 20))
        return
    for path in sorted(folder.glob("cifar100_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            is_log = "logprobs" in file
            p = file["logprobs" if is_log else "probs"].astype(np.float64)
            labels = file["labels"].astype(np.int64)
        p = np.exp(p) if is_log else p
        yield path.stem.removeprefix("cifar100_"), p / p.sum(axis=1, keepdims=True), labels


def generated(n_rows: int, n_classes: int) -> tuple[FloatArray, IntArray]:
    """Return probabilities that are too sharp, and labels."""
    rng = np.random.default_rng(0)
    logits = rng.standard_normal((n_rows, n_classes), dtype=np.float32) * 2
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    odds = np.exp(1.5 * logits)
    return (odds / odds.sum(axis=1, keepdims=True)).astype(np.float32), labels


def ours(method: Any, **settings: Any) -> Method:
    """Return our sets as a method."""

    def run(p: FloatArray, y: IntArray, new: FloatArray) -> BoolArray:
        fitted = ConformalClassifier(LEVEL, method, **settings).fit(Probabilities(p), y)
        return fitted.predict(Probabilities(new)).contains

    return run


def _skip_unused_parts() -> None:
    """Let TorchCP be imported without what its graphs and losses need, and its sets do not."""
    if "torchcp" in sys.modules:
        return
    package, unused = ModuleType("torchcp"), ModuleType("torchsort")
    package.__spec__ = spec = find_spec("torchcp")
    package.__path__ = list((spec and spec.submodule_search_locations) or [])
    vars(unused).update(soft_rank=None, soft_sort=None)
    sys.modules.update(torchcp=package, torchsort=unused)


def torchcp(score: str, **settings: Any) -> Method:
    """Return the sets of TorchCP, from log probabilities."""

    def run(p: FloatArray, y: IntArray, new: FloatArray) -> BoolArray:
        torch = import_module("torch")
        _skip_unused_parts()
        scores = import_module("torchcp.classification.score")
        predictor = import_module("torchcp.classification.predictor").SplitPredictor(
            getattr(scores, score)(score_type="softmax", **settings), alpha=1 - LEVEL
        )
        known, fresh = (torch.from_numpy(np.log(np.maximum(one, 1e-38))) for one in (p, new))
        predictor.calculate_threshold(known, torch.from_numpy(y), 1 - LEVEL)
        sets = predictor.predict_with_logits(fresh)
        return np.asarray(sets).astype(bool)

    return run


def mapie(score: str) -> Method:
    """Return the sets of MAPIE, whose model returns the probabilities it is given."""

    def run(p: FloatArray, y: IntArray, new: FloatArray) -> BoolArray:
        classification = import_module("mapie.classification")
        base = import_module("sklearn.base")

        class Given(base.ClassifierMixin, base.BaseEstimator):  # type: ignore[name-defined]
            classes_ = np.arange(p.shape[1])
            fitted_ = True

            def fit(self, x: Any, y: Any) -> Any:
                return self

            def predict_proba(self, x: Any) -> Any:
                return np.asarray(x)

            def predict(self, x: Any) -> Any:
                return np.asarray(x).argmax(axis=1)

        kind = classification.SplitConformalClassifier
        sets = kind(Given(), confidence_level=LEVEL, conformity_score=score, prefit=True)
        known, fresh = (one / one.sum(axis=1, keepdims=True) for one in (p, new))
        return np.asarray(sets.conformalize(known, y).predict_set(fresh)[1][:, :, 0])

    return run


OURS: dict[str, Method] = {
    "dubito LAC": ours("lac"),
    "dubito APS": ours("aps"),
    "dubito APS, randomized": ours("aps", randomize=True),
    "dubito RAPS, tuned": ours("raps"),
    "dubito RAPS (0.01, 5)": ours("raps", penalty=0.01, k_reg=5, allow_empty=True),
    "dubito SAPS, tuned": ours("saps"),
    "dubito SAPS (0.05)": ours("saps", penalty=0.05, allow_empty=True),
    "dubito LAC, by class": ours("lac", conditional="class"),
    "dubito LAC, by cluster": ours("lac", conditional="cluster"),
}
PEERS: dict[str, dict[str, Method]] = {
    "torchcp": {
        "TorchCP LAC": torchcp("LAC"),
        "TorchCP APS": torchcp("APS"),
        "TorchCP RAPS (0.01, 5)": torchcp("RAPS", penalty=0.01, kreg=5),
        "TorchCP SAPS (0.05)": torchcp("SAPS", weight=0.05),
    },
    "mapie": {
        "MAPIE LAC": mapie("lac"),
        "MAPIE APS": mapie("aps"),
        "MAPIE RAPS, tuned": mapie("raps"),
    },
}


def judged(contains: BoolArray, y: IntArray) -> Figures:
    """Return the figures of some sets."""
    size, covered = contains.sum(axis=1), contains[np.arange(len(y)), y]
    count, hits = np.bincount(size), np.bincount(size, covered)
    is_large = count >= MIN_ROWS
    violation = np.abs(hits[is_large] / count[is_large] - LEVEL).max(initial=0.0)
    in_bins = [covered[(size >= low) & (size <= high)] for low, high in STRATA]
    by_bin = max(abs(one.mean() - LEVEL) for one in in_bins if one.size)
    rows = np.bincount(y)
    gaps = np.abs(np.bincount(y, covered)[rows > 0] / rows[rows > 0] - LEVEL)
    numbers = (size.mean(), covered.mean(), violation, by_bin, gaps.mean())
    return Figures(*map(float, numbers))


def over_halves(method: Method, p: FloatArray, y: IntArray, n_halves: int) -> Figures:
    """Return the mean figures of a method over random halves."""
    found = []
    for seed in range(n_halves):
        fit, new = np.array_split(np.random.default_rng(seed).permutation(len(y)), 2)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of classes with few rows
            found.append(judged(method(p[fit], y[fit], p[new]), y[new]))
    return Figures(*map(float, np.mean(found, axis=0)))


def speeds(n_rows: int, n_classes: int, peers: dict[str, Method]) -> dict[str, tuple[float, float]]:
    """Return wall and CPU seconds of fit and predict by method."""
    p, y = generated(n_rows, n_classes)
    outputs, logits = Probabilities(p), Logits(np.log(p))

    def run(wrapped: Any, method: Any, **settings: Any) -> Callable[[], Any]:
        fitted = ConformalClassifier(LEVEL, method, **settings)
        return lambda: fitted.fit(wrapped, y).predict(wrapped)

    calls: dict[str, Callable[[], Any]] = {
        "dubito LAC": run(outputs, "lac"),
        "dubito LAC, logits": run(logits, "lac"),
        "dubito APS": run(outputs, "aps"),
        "dubito APS, logits": run(logits, "aps"),
        "dubito RAPS (0.01, 5)": run(outputs, "raps", penalty=0.01, k_reg=5),
        "dubito RAPS, tuned": run(outputs, "raps"),
        "dubito SAPS, tuned": run(outputs, "saps"),
    }
    for name in ("TorchCP LAC", "TorchCP APS", "TorchCP RAPS (0.01, 5)", "MAPIE LAC", "MAPIE APS"):
        if name in peers:
            calls[name] = lambda peer=peers[name]: peer(p, y, p)  # type: ignore[misc]
    found = {}
    for name, call in calls.items():
        times = []
        for _ in range(N_TIMES if name.startswith("dubito") else 1):
            start = time.perf_counter(), time.process_time()
            call()
            times.append((time.perf_counter() - start[0], time.process_time() - start[1]))
        found[name] = (min(one[0] for one in times), min(one[1] for one in times))
    return found


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument(
        "--quick", action="store_true", help="few splits; generated rows without a folder"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if options.folder is None and not options.quick:
        parser.error("pass a folder, or --quick")
    sets = list(load(options.folder))
    if not sets:
        parser.error(f"{options.folder} has no files cifar100_*.npz")
    absent = [name for name in PEERS if find_spec(name) is None or options.quick]
    peers = {
        label: run
        for name, some in PEERS.items()
        if name not in absent
        for label, run in some.items()
    }
    n_halves = 3 if options.quick else N_HALVES
    table = {
        name: {one: over_halves(run, p, y, n_halves) for one, run in {**OURS, **peers}.items()}
        for name, p, y in sets
    }
    shape = (2000, 50) if options.quick else (50_000, 1000)
    seconds = speeds(*shape, peers)
    if options.json:
        plain = {k: {one: row._asdict() for one, row in rows.items()} for k, rows in table.items()}
        times = {name: {"wall": wall, "cpu": cpu} for name, (wall, cpu) in seconds.items()}
        print(json.dumps({"sets": plain, "seconds": times, "left_out": absent}, indent=1))
        return
    for name, p, y in sets:
        print(f"{name}: {len(y):,} rows, {p.shape[1]} classes, {n_halves} halves at {LEVEL:.0%}\n")
        columns = f"{'size':>7} {'coverage':>9} {'violation':>10} {'in bins':>8} {'class gap':>10}"
        print(f"{'':<26} {columns}")
        for one, row in table[name].items():
            print(
                f"{one:<26} {row.size:>7.2f} {row.coverage:>9.3f} {row.violation:>10.3f} "
                f"{row.violation_in_bins:>8.3f} {row.class_gap:>10.3f}"
            )
        print()
    print(f"fit and predict, {shape[0]:,} x {shape[1]:,} each; wall and CPU seconds\n")
    for name, (wall, cpu) in seconds.items():
        print(f"{name:<26} {wall:>7.2f} {cpu:>9.2f}")
    for name in absent:
        print(f"\n{name} is not installed, and was left out.")


if __name__ == "__main__":
    main()
