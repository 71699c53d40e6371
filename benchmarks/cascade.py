"""The cost of cascades of language models, beside the best single model.

    python -m benchmarks.cascade FOLDER           # the files cascade_*.npz of a folder
    python -m benchmarks.cascade FOLDER --json    # the figures as JSON
    python -m benchmarks.cascade --quick          # a small generated set

A file holds correct_test, confidence_test and cost_test, each rows x models: which of the models
answered a question correctly, how confident they were, and what the call cost in dollars. 20
random re-splits: 300 rows to fit, the others to evaluate. A wrong answer costs 1, a dollar 30, 100,
300 or 1,000, and no answer 0.1, 0.2 or 0.3. Costs are means per row over re-splits.

"best single model" answers or abstains by Platt scaling of its confidence, and is chosen by its
cost on the rows of the fit; abstaining without any call is one of the choices. "Cascade" is fitted
by `Cascade.fit`, and then asked row by row what to do next, so that it sees only outputs that it
has paid for. "best in hindsight" is the single model with the lowest cost on the evaluated rows.
The interval of a ratio is that of a mean over re-splits, +/- 2 standard errors; re-splits share
rows, so it does not cover other questions.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from dubito import Cascade, TopLabel
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import PlattScaling

__all__ = ["main"]

PRICES = (30.0, 100.0, 300.0, 1000.0)  # of a dollar
ABSTAIN_COSTS = (0.1, 0.2, 0.3)
N_SPLITS, N_FIT = 20, 300
LEAST = 1e-8  # confidences closer to 0 and 1 count as this close
MAX_RATIO, AIM = 0.99, 0.98  # mean cost relative to the best single model's
MAX_WORST = 1.03  # the same in each set and setting
METHODS = ("always abstain", "best single model", "best in hindsight", "Cascade")
SINGLE, OURS = METHODS[1], METHODS[3]


class Answers(NamedTuple):
    """Answers of several models to the same questions; arrays are rows x models."""

    name: str
    models: tuple[str, ...]
    correct: FloatArray
    confidence: FloatArray
    dollars: FloatArray


def load_sets(folder: Path | None) -> Iterator[Answers]:
    """Yield the sets of a folder, or a generated one."""
    if folder is None:
        rng = np.random.default_rng(0)
        ease = rng.normal(size=(800, 1))
        odds = 2 * ease + np.array([0.0, 1.0, 2.5]) + rng.normal(size=(800, 3))
        correct = (rng.random(odds.shape) < expit(odds)).astype(float)
        dollars = np.array([2e-5, 1e-4, 5e-4]) * rng.lognormal(0, 0.2, (800, 1))
        yield Answers("generated", ("s", "m", "l"), correct, expit(2 * odds + 1), dollars)
        return
    for path in sorted(folder.glob("cascade_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            correct, confidence, dollars = (
                file[f"{one}_test"].astype(float) for one in ("correct", "confidence", "cost")
            )
            models = tuple(map(str, file["models"]))
        name = path.stem.removeprefix("cascade_")
        yield Answers(name, models, correct, confidence, dollars)


def single_costs(data: Answers, price: float, abstain: float, p: FloatArray) -> FloatArray:
    """Return the cost of each row by each model alone, and by abstaining in the last column."""
    answered = np.where(1 - p < abstain, 1 - data.correct, abstain)
    return np.column_stack([price * data.dollars + answered, np.full(len(p), abstain)])


def followed(cascade: Cascade, data: Answers, rows: IntArray, price: float) -> FloatArray:
    """Return the cost of rows when models are called only as the cascade decides."""
    column = {name: data.models.index(name) for name in cascade.tiers}
    prices = {name: price * data.dollars[rows, k] for name, k in column.items()}
    known = {name: np.full(rows.size, np.nan) for name in cascade.tiers}
    cost, is_open = np.zeros(rows.size), np.ones(rows.size, dtype=bool)
    if not cascade.tiers:
        return cost + float(cascade.abstain_cost or 0)
    while is_open.any():
        decisions = cascade.decide(
            {name: one[is_open] for name, one in known.items()},
            costs={name: one[is_open] for name, one in prices.items()},
        )
        names = np.array(decisions.names)
        places = np.flatnonzero(is_open)
        for action in np.unique(names):
            what, _, name = str(action).partition(" ")
            at = places[names == action]
            if what == "call":
                known[name][at] = data.confidence[rows[at], column[name]]
                cost[at] += prices[name][at]
                continue
            is_open[at] = False
            cost[at] += (
                1 - data.correct[rows[at], column[name]]
                if what == "answer"
                else cascade.abstain_cost
            )
    return cost


class Result(NamedTuple):
    """Costs by method, splits x prices x abstention costs x methods; tiers; seconds of a fit."""

    costs: FloatArray
    n_tiers: list[int]
    seconds: float


def evaluate(data: Answers, n_splits: int, n_fit: int) -> Result:
    """Return the cost of each method in each re-split and setting."""
    shape = n_splits, len(PRICES), len(ABSTAIN_COSTS), len(METHODS)
    costs, n_tiers, seconds = np.empty(shape), [], []
    top = np.clip(data.confidence, LEAST, 1 - LEAST)
    for split in range(n_splits):
        order = np.random.default_rng(split).permutation(len(top))
        fit, new = order[:n_fit], order[n_fit:]
        p = np.column_stack(
            [
                PlattScaling().fit(one[fit], hits[fit].astype(int)).predict_proba(one)[:, 1]
                for one, hits in zip(top.T, data.correct.T, strict=True)
            ]
        )
        outputs = {
            name: TopLabel(data.confidence[fit, k], data.correct[fit, k])
            for k, name in enumerate(data.models)
        }
        for i, price in enumerate(PRICES):
            calls = dict(zip(data.models, price * data.dollars[fit].T, strict=True))
            for j, abstain in enumerate(ABSTAIN_COSTS):
                alone = single_costs(data, price, abstain, p)
                start = time.process_time()
                cascade = Cascade.fit(outputs, costs=calls, abstain_cost=abstain)
                seconds.append(time.process_time() - start)
                n_tiers.append(len(cascade.tiers))
                costs[split, i, j] = (
                    abstain,
                    alone[new, alone[fit].mean(axis=0).argmin()].mean(),
                    alone[new].mean(axis=0).min(),
                    followed(cascade, data, new, price).mean(),
                )
    return Result(costs, n_tiers, float(np.mean(seconds)))


def table_lines(data: Answers, result: Result) -> Iterator[str]:
    """Yield the costs of a set, and the ratio of each setting."""
    costs = result.costs
    n_rows, n_models = data.correct.shape
    yield f"{data.name}: {n_models} models, {n_rows:,} rows"
    base = costs[..., METHODS.index(SINGLE)].mean()
    for k, name in enumerate(METHODS):
        mean = costs[..., k].mean()
        yield f"  {name:<18} {mean:.4f}  {mean / base:.4f} of the best single model's"
    shares = np.bincount(result.n_tiers, minlength=4) / len(result.n_tiers)
    counts = ", ".join(f"{k}: {share:.0%}" for k, share in enumerate(shares))
    yield f"  tiers of the cascade: {counts}; {result.seconds:.3f} CPU seconds per fit"
    heads = "".join(f"{f'x {price:,.0f}':>9}" for price in PRICES)
    yield f"  {'Cascade / single':<18}{heads}"
    ratios = setting_ratios(result)
    for j, abstain in enumerate(ABSTAIN_COSTS):
        cells = "".join(f"{one:>9.4f}" for one in ratios[:, j])
        yield f"  {f'abstaining {abstain}':<18}{cells}"


def setting_ratios(result: Result) -> FloatArray:
    """Return the cost of the cascade relative to the single model's, by setting."""
    means = result.costs.mean(axis=0)
    return np.asarray(means[..., METHODS.index(OURS)] / means[..., METHODS.index(SINGLE)])


def verdicts(results: dict[str, Result]) -> Iterator[str]:
    """Yield how the limits hold."""
    each = []
    for name, one in results.items():
        by_split = one.costs.mean(axis=(1, 2))
        ours, single = by_split[:, METHODS.index(OURS)], by_split[:, METHODS.index(SINGLE)]
        ratio = ours.mean() / single.mean()
        error = 2 * np.std(ours - ratio * single) / single.mean() / np.sqrt(len(ours))
        each.append(ratio)
        yield f"cost, {name}: {ratio:.4f} +/- {error:.4f} of the best single model's"
    mean = float(np.mean(each))
    limits = f"at most {MAX_RATIO}, aim {AIM}"
    yield f"cost, mean over sets: {mean:.4f} of the best single model's ({limits})"
    worst = max((float(setting_ratios(one).max()), name) for name, one in results.items())
    yield f"cost, worst set and setting: {worst[0]:.4f} ({worst[1]}; at most {MAX_WORST})"


def main() -> None:
    """Print the tables."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, nargs="?")
    parser.add_argument("--quick", action="store_true", help="a small generated set")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    if (options.folder is None) != options.quick:
        parser.error("pass a folder, or --quick")
    sets = list(load_sets(options.folder))
    if not sets:
        parser.error(f"{options.folder} has no files cascade_*.npz")
    n_splits = 1 if options.quick else N_SPLITS
    results = {one.name: evaluate(one, n_splits, N_FIT) for one in sets}
    lines = list(verdicts(results))
    if options.json:
        found = {
            name: {
                "costs": dict(zip(METHODS, one.costs.mean(axis=(0, 1, 2)).tolist(), strict=True)),
                "ratios": setting_ratios(one).tolist(),
                "seconds_per_fit": one.seconds,
            }
            for name, one in results.items()
        }
        print(json.dumps({"sets": found, "verdicts": lines}, indent=1))
        return
    for data in sets:
        print("\n".join(table_lines(data, results[data.name])) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
