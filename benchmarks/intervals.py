"""Conformal intervals at 90 %, beside the usual methods.

    python -m benchmarks.intervals FOLDER           # the files reg_*.npz of a folder
    python -m benchmarks.intervals FOLDER --json    # the figures as JSON
    python -m benchmarks.intervals --quick          # a small generated set

A file holds cal_ and test_ arrays y, quantiles (rows x `levels`), mean, std and features. Both
parts are pooled and split again at random into parts of the same sizes, 20 times. Every method is
fitted on one part of each split and evaluated on the other, from `Quantiles` alone and from
`Normal` alone: coverage, and width and interval score (Winkler score, lower is better) in standard
deviations of y, means over splits. "worst slab" is the coverage of the worst slab of the features:
found on half of the test rows among 1,000 directions, with at least 20 % of them, evaluated on the
other half. Features serve for that only.

Methods in plain NumPy: absolute and normalized residuals (of `Quantiles`, in units of the central
interval's width), CQR, CQR with a threshold for each end, and Mondrian absolute residuals in 5 bins
of the mean or of the width. MAPIE and crepes run where they are installed. Ours is
`ConformalRegressor()` with its default settings, chosen on other data (prototypes were run twice on
reg_bike and reg_concrete before that). Seconds are CPU seconds of fitting and predicting.
"""

import argparse
import json
import time
import warnings
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from scipy.stats import norm
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import KFold
from sklearn.neighbors import KNeighborsRegressor

from dubito import Normal, Quantiles
from dubito.arrays import FloatArray, IntArray
from dubito.doubt import (
    ConformalRegressor,
    JackknifePlusRegressor,
    PredictionIntervals,
    conditional_coverage,
)

__all__ = ["main"]

OURS = "ConformalRegressor"
LEVEL = 0.9
N_SPLITS, N_BINS = 20, 5
MAX_RATIO = 1.01  # of the best other interval score, on each set
MIN_SLABS = {"bike": 0.87, "concrete": 0.85}  # the worst-slab coverage required


class RegressionSet(NamedTuple):
    """Rows of a file: targets, outputs and features, and how many of them are to fit on."""

    name: str
    n_fit: int
    levels: FloatArray
    y: FloatArray
    quantiles: FloatArray
    mean: FloatArray
    std: FloatArray
    features: FloatArray


class Outputs(NamedTuple):
    """Outputs of one kind, as methods need them: declared, and the bounds of 90 % intervals."""

    declared: Any
    center: FloatArray
    width: FloatArray
    low: FloatArray
    high: FloatArray

    def take(self, rows: Any) -> "Outputs":
        """Return some rows."""
        return Outputs(*(one.take(rows) if k == 0 else one[rows] for k, one in enumerate(self)))


class Figures(NamedTuple):
    """Means over splits."""

    coverage: float
    width: float
    interval_score: float
    worst_slab: float
    seconds: float


Bounds = tuple[FloatArray, FloatArray]
Method = Callable[[Outputs, FloatArray, Outputs], Bounds]


def load_sets(folder: Path | None) -> Iterator[RegressionSet]:
    """Yield the sets of a folder, or a generated one."""
    if folder is None:
        rng = np.random.default_rng(0)
        x = rng.normal(size=(1200, 3))
        std = np.exp(x[:, 1] / 2)
        y = x[:, 0] + std * rng.normal(size=1200)
        levels = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
        spread = norm.ppf(levels) * (0.7 * std)[:, None]
        mean = x[:, 0] + 0.2 * rng.normal(size=1200)
        yield RegressionSet("generated", 600, levels, y, mean[:, None] + spread, mean, std, x)
        return
    for path in sorted(folder.glob("reg_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            parts = [
                np.concatenate([file[f"cal_{one}"], file[f"test_{one}"]]).astype(float)
                for one in ("y", "quantiles", "mean", "std", "features")
            ]
            n_fit, levels = len(file["cal_y"]), file["levels"].astype(float)
        yield RegressionSet(path.stem.removeprefix("reg_"), n_fit, levels, *parts)


def outputs_of(data: RegressionSet) -> dict[str, Outputs]:
    """Return both kinds of outputs of a set."""
    tail = (1 - LEVEL) / 2
    ends = [int(np.abs(data.levels - p).argmin()) for p in (tail, 0.5, 1 - tail)]
    low, center, high = data.quantiles[:, ends].T
    reach = norm.ppf(1 - tail) * data.std
    quantiles = Quantiles(data.quantiles, data.levels)
    return {
        "Quantiles": Outputs(quantiles, center, high - low, low, high),
        "Normal": Outputs(
            Normal(data.mean, data.std), data.mean, data.std, data.mean - reach, data.mean + reach
        ),
    }


def threshold(scores: FloatArray, level: float = LEVEL) -> float:
    """Return the ceil((n + 1) level)-th of n scores."""
    rank = int(np.ceil((scores.size + 1) * level - 1e-9))
    return float(np.sort(scores)[rank - 1]) if rank <= scores.size else np.inf


def absolute(fit: Outputs, y: FloatArray, new: Outputs) -> Bounds:
    """Return intervals of the same width for all rows."""
    reach = threshold(np.abs(y - fit.center))
    return new.center - reach, new.center + reach


def normalized(fit: Outputs, y: FloatArray, new: Outputs) -> Bounds:
    """Return intervals in units of the stated spread."""
    floor = 1e-6 * np.median(fit.width)
    factor = threshold(np.abs(y - fit.center) / np.maximum(fit.width, floor))
    reach = factor * np.maximum(new.width, floor)
    return new.center - reach, new.center + reach


def cqr(fit: Outputs, y: FloatArray, new: Outputs) -> Bounds:
    """Return conformalized quantile regression, with one threshold for both ends."""
    reach = threshold(np.maximum(fit.low - y, y - fit.high))
    return new.low - reach, new.high + reach


def asymmetric_cqr(fit: Outputs, y: FloatArray, new: Outputs) -> Bounds:
    """Return conformalized quantile regression, with a threshold for each end."""
    each = (1 + LEVEL) / 2
    return new.low - threshold(fit.low - y, each), new.high + threshold(y - fit.high, each)


def mondrian(by: str) -> Method:
    """Return absolute residuals with a threshold in each of 5 bins of outputs."""

    def run(fit: Outputs, y: FloatArray, new: Outputs) -> Bounds:
        known, wanted = getattr(fit, by), getattr(new, by)
        edges = np.quantile(known, np.arange(1, N_BINS) / N_BINS)
        bins, new_bins = np.searchsorted(edges, known), np.searchsorted(edges, wanted)
        sizes = np.abs(y - fit.center)
        reach = np.array([threshold(sizes[bins == k]) for k in range(N_BINS)])[new_bins]
        return new.center - reach, new.center + reach

    return run


def ours(fit: Outputs, y: FloatArray, new: Outputs) -> Bounds:
    """Return the intervals of ConformalRegressor with its default settings."""
    found = ConformalRegressor(LEVEL).fit(fit.declared, y).predict(new.declared)
    return found.low, found.high


def mapie_split(score: str) -> Method:
    """Return MAPIE's split conformal intervals of predictions, whose inputs are the predictions."""

    def run(fit: Outputs, y: FloatArray, new: Outputs) -> Bounds:
        regressor = import_module("mapie.regression").SplitConformalRegressor(
            _Column(0), confidence_level=LEVEL, conformity_score=score, prefit=True
        )
        regressor.conformalize(fit.center[:, None], y)
        _, found = regressor.predict_interval(new.center[:, None])
        return found[:, 0, 0], found[:, 1, 0]

    return run


def mapie_cqr(is_symmetric: bool) -> Method:
    """Return MAPIE's conformalized quantile regression, whose inputs are the quantiles."""

    def run(fit: Outputs, y: FloatArray, new: Outputs) -> Bounds:
        known, wanted = (np.stack([o.low, o.high, o.center], axis=1) for o in (fit, new))
        regressor = import_module("mapie.regression").ConformalizedQuantileRegressor(
            [_Column(0), _Column(1), _Column(2)], confidence_level=LEVEL, prefit=True
        )
        regressor.conformalize(known, y)
        _, found = regressor.predict_interval(wanted, symmetric_correction=is_symmetric)
        return found[:, 0, 0], found[:, 1, 0]

    return run


def crepes(is_normalized: bool, is_mondrian: bool = False) -> Method:
    """Return the intervals of crepes."""

    def run(fit: Outputs, y: FloatArray, new: Outputs) -> Bounds:
        settings: dict[str, Any] = {}
        applied: dict[str, Any] = {}
        if is_normalized:
            settings["sigmas"], applied["sigmas"] = fit.width, new.width
        if is_mondrian:
            edges = np.quantile(fit.width, np.arange(1, N_BINS) / N_BINS)
            settings["bins"] = np.searchsorted(edges, fit.width)
            applied["bins"] = np.searchsorted(edges, new.width)
        regressor = import_module("crepes").ConformalRegressor().fit(y - fit.center, **settings)
        found = regressor.predict_int(new.center, confidence=LEVEL, **applied)
        return found[:, 0], found[:, 1]

    return run


class _Column:
    """A fitted regressor whose prediction is a column of its input."""

    def __init__(self, column: int) -> None:
        self.column = column
        self.is_fitted_ = True

    def fit(self, x: FloatArray, y: FloatArray) -> "_Column":
        return self

    def predict(self, x: FloatArray) -> FloatArray:
        return np.asarray(x[:, self.column])

    def __sklearn_is_fitted__(self) -> bool:
        return True


def methods() -> dict[str, Method]:
    """Return all methods that can run here, ours last."""
    found: dict[str, Method] = {
        "absolute residuals": absolute,
        "normalized residuals": normalized,
        "CQR": cqr,
        "CQR, asymmetric": asymmetric_cqr,
        "Mondrian, 5 bins of the mean": mondrian("center"),
        "Mondrian, 5 bins of the width": mondrian("width"),
    }
    if find_spec("mapie"):
        found["MAPIE split, absolute"] = mapie_split("absolute")
        found["MAPIE CQR"] = mapie_cqr(True)
        found["MAPIE CQR, asymmetric"] = mapie_cqr(False)
    if find_spec("crepes"):
        found["crepes, normalized"] = crepes(True)
        found["crepes, Mondrian"] = crepes(False, True)
        found["crepes, normalized Mondrian"] = crepes(True, True)
    return {**found, OURS: ours}


def jackknife_difference() -> float:
    """Return the largest difference of our jackknife+ and CV+ bounds from those of MAPIE."""
    peers, rng = import_module("mapie.regression"), np.random.default_rng(0)
    x, new = rng.normal(size=(80, 3)), rng.normal(size=(40, 3))
    y = x @ [1.0, -2.0, 0.5] + rng.normal(size=80)
    largest = 0.0
    for model in (LinearRegression(), KNeighborsRegressor(3)):
        for cv, theirs in ((None, -1), (KFold(5), KFold(5))):
            peer = peers.CrossConformalRegressor(model, confidence_level=LEVEL, cv=theirs)
            _, bounds = peer.fit_conformalize(x, y).predict_interval(new)
            found = JackknifePlusRegressor(model, LEVEL, cv).fit(x, y).predict_interval(new)
            both = np.stack([found.low, found.high], axis=1) - bounds[:, :, 0]
            largest = max(largest, float(np.abs(both).max()))
    return largest


def splits(data: RegressionSet, n_splits: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield the rows to fit on and the others, at random but the same for all methods."""
    for seed in range(n_splits):
        order = np.random.default_rng(seed).permutation(data.y.size)
        yield order[: data.n_fit], order[data.n_fit :]


def figures(run: Method, data: RegressionSet, outputs: Outputs, n_splits: int) -> Figures:
    """Return the figures of a method on a set."""
    results, sd = [], float(data.y.std())
    for fit, new in splits(data, n_splits):
        start = time.process_time()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of peers
            low, high = run(outputs.take(fit), data.y[fit], outputs.take(new))
        seconds = time.process_time() - start
        y = data.y[new]
        misses = np.maximum(low - y, 0) + np.maximum(y - high, 0)
        score = (high - low + 2 / (1 - LEVEL) * misses).mean()
        is_covered = (low <= y) & (y <= high)
        found = PredictionIntervals(np.minimum(low, high), high)
        slab = conditional_coverage(y, found, features=data.features[new]).worst_slab
        assert slab is not None
        width = (high - low).mean()
        results.append((is_covered.mean(), width / sd, score / sd, slab.coverage, seconds))
    return Figures(*map(float, np.mean(results, axis=0)))


def verdicts(table: dict[str, dict[str, Figures]]) -> Iterator[str]:
    """Yield how our interval score and worst-slab coverage compare with the limits and others."""
    for name, rows in table.items():
        best = min((one for one in rows if one != OURS), key=lambda one: rows[one].interval_score)
        ratio = rows[OURS].interval_score / rows[best].interval_score
        word, slab = "within" if ratio <= MAX_RATIO else "above", rows[OURS].worst_slab
        yield (
            f"interval score, {name}: {ratio:.4f} of the best ({best}), {word} {MAX_RATIO}; "
            f"worst slab {slab:.3f}{_judged_slab(name, slab)}, of others {_highest_slab(rows)}"
        )


def _judged_slab(name: str, coverage: float) -> str:
    """Return whether the worst slab of a set of data is covered as required, if that is.

    >>> _judged_slab("bike, quantiles", 0.86), _judged_slab("wine", 0.86)
    (', below 0.87', '')
    """
    for part, least in MIN_SLABS.items():
        if part in name:
            return f", {'below' if coverage < least else 'at least'} {least}"
    return ""


def _highest_slab(rows: dict[str, Figures]) -> str:
    """Return the highest worst-slab coverage of other methods, and whose it is."""
    best = max((one for one in rows if one != OURS), key=lambda one: rows[one].worst_slab)
    return f"at most {rows[best].worst_slab:.3f} ({best})"


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
    sets = list(load_sets(options.folder))
    if not sets:
        parser.error(f"{options.folder} has no files reg_*.npz")
    n_splits = 3 if options.quick else N_SPLITS
    table = {
        f"{data.name}, {kind}": {
            name: figures(run, data, outputs, n_splits) for name, run in methods().items()
        }
        for data in sets
        for kind, outputs in outputs_of(data).items()
    }
    lines = list(verdicts(table))
    if find_spec("mapie"):
        lines.append(f"jackknife+ and CV+: bounds within {jackknife_difference():.0e} of MAPIE's")
    if options.json:
        plain = {
            name: {one: row._asdict() for one, row in rows.items()} for name, rows in table.items()
        }
        print(json.dumps({"intervals": plain, "verdicts": lines}, indent=1))
        return
    sizes = {data.name: (data.n_fit, data.y.size - data.n_fit) for data in sets}
    for name, rows in table.items():
        n_fit, n_new = sizes[name.rpartition(", ")[0]]
        print(f"{name}: {n_splits} splits, {n_fit:,} rows to fit, {n_new:,} to test")
        titles = ("coverage", "width", "score", "worst slab", "seconds")
        print(f"{'':<32}" + "".join(f"{title:>11}" for title in titles))
        for one, row in rows.items():
            print(f"{one:<32}" + "".join(f"{value:>11.3f}" for value in row))
        print()
    print("\n".join(lines))


if __name__ == "__main__":
    main()
