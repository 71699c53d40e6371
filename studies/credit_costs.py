"""Is expected cost with calibrated probabilities competitive for asymmetric credit costs?

    python -m studies.credit_costs FOLDER            # the Statlog files of credit and heart
    python -m studies.credit_costs FOLDER -o FILE    # also writes the tables to FILE

Four ways to act by a logistic regression and by a random forest, on 20 stratified splits of the
Statlog German credit data, which come with the costs: the most probable class; the least expected
cost by probabilities as they are; scikit-learn's threshold, tuned on the cost itself; and dubito,
the least expected cost by calibrated probabilities. The calibrator is chosen on other data.

Splits share rows: intervals are those of Nadeau and Bengio, "Inference for the generalization
error", 2003, where a bootstrap over splits would take them for independent and be too narrow.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from sklearn.base import clone
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import make_scorer
from sklearn.model_selection import (
    StratifiedShuffleSplit,
    TunedThresholdClassifierCV,
    cross_val_predict,
)
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    BetaCalibration,
    PlattScaling,
    TemperatureScaling,
    VectorScaling,
)
from dubito.decide import CostMatrix, CostSensitiveClassifier, optimal_actions, realized_cost
from dubito.measure import Interval

FILE, OTHER_FILE = "german_credit_statlog.npz", "heart_statlog.npz"
COSTS = CostMatrix.from_errors(false_positive=1, false_negative=5)
N_SPLITS, TEST_FRACTION, N_FOLDS = 20, 0.3, 5
LARGEST_LOSS = 0.02  # per row, above the best of the other methods
OURS = "calibrated (dubito)"
DEFAULT = "AutoCalibrator"
CALIBRATORS: Mapping[str, type[BaseCalibrator]] = {
    "AutoCalibrator": AutoCalibrator,
    "BetaCalibration": BetaCalibration,
    "PlattScaling": PlattScaling,
    "TemperatureScaling": TemperatureScaling,
    "VectorScaling": VectorScaling,
}

Table = tuple[FloatArray, IntArray]  # features and labels; class 1 is the one that costs to miss
Costs = Mapping[str, FloatArray]  # mean cost of each method, by split


def models(n_estimators: int) -> Mapping[str, Any]:
    """Return the two models, unfitted."""
    return {
        "logistic": make_pipeline(StandardScaler(), LogisticRegression()),
        "forest": RandomForestClassifier(n_estimators, random_state=0),
    }


def splits(data: Table, n_splits: int) -> Iterator[tuple[IntArray, IntArray]]:
    """Yield rows to learn from and rows to decide, the same ones at every run."""
    yield from StratifiedShuffleSplit(n_splits, test_size=TEST_FRACTION, random_state=0).split(
        *data
    )


def paid(y: IntArray, actions: IntArray) -> float:
    """Return the mean cost of actions."""
    return realized_cost(y, np.asarray(actions, dtype=np.int64), COSTS)


def our_actions(model: Any, calibrator: BaseCalibrator, known: Table, new: FloatArray) -> IntArray:
    """Return dubito's actions for new rows."""
    decider = CostSensitiveClassifier(model, COSTS, calibrator, cv=N_FOLDS).fit(*known)
    return np.asarray(decider.predict(new))


def costs_of_methods(model: Any, calibrator: BaseCalibrator, data: Table, n_splits: int) -> Costs:
    """Return the mean cost of each of the four methods."""
    features, y = data
    scorer = make_scorer(paid, greater_is_better=False)
    found: dict[str, list[float]] = {}
    for fit, rest in splits(data, n_splits):
        known = features[fit], y[fit]
        raw = clone(model).fit(*known).predict_proba(features[rest])
        tuned = TunedThresholdClassifierCV(model, scoring=scorer, cv=N_FOLDS).fit(*known)
        actions = {
            "most probable class": raw.argmax(axis=1),
            "expected cost, raw": optimal_actions(raw, COSTS),
            "tuned threshold": tuned.predict(features[rest]),
            OURS: our_actions(model, calibrator, known, features[rest]),
        }
        for method, taken in actions.items():
            found.setdefault(method, []).append(paid(y[rest], taken))
    return {method: np.array(values) for method, values in found.items()}


def costs_of_calibrators(model: Any, data: Table, n_splits: int) -> Costs:
    """Return the mean cost of expected-cost decisions by calibrator, all on the same folds."""
    features, y = data
    found: dict[str, list[float]] = {}
    for fit, rest in splits(data, n_splits):
        held_out = cross_val_predict(
            model, features[fit], y[fit], cv=N_FOLDS, method="predict_proba"
        )
        raw = clone(model).fit(features[fit], y[fit]).predict_proba(features[rest])
        for name, calibrator in CALIBRATORS.items():
            true_logits = calibrator().fit(held_out, y[fit]).predict_proba(raw)
            found.setdefault(name, []).append(paid(y[rest], optimal_actions(true_logits, COSTS)))
    return {name: np.array(values) for name, values in found.items()}


def chosen(found: Mapping[str, Costs]) -> str:
    """Return the calibrator with the lowest mean cost relative to the best one of each set."""
    excess = {
        name: np.mean(
            [
                costs[name].mean() / max(min(one.mean() for one in costs.values()), 1e-12)
                for costs in found.values()
            ]
        )
        for name in CALIBRATORS
    }
    return min(excess, key=lambda name: float(excess[name]))


def corrected_interval(values: FloatArray, test_to_train: float) -> Interval:
    """Return the mean over random splits of the same rows, with its 95 % interval.

    `test_to_train` is how many rows are tested on for each one that is learned from; with 0 it is
    Student's interval, of draws that share no rows.
    """
    n = values.size
    error = np.sqrt((1 / n + test_to_train) * values.var(ddof=1))
    reach = float(stats.t.ppf(0.975, n - 1) * error)
    mean = float(values.mean())
    return Interval(mean, mean - reach, mean + reach)


def over_splits(values: FloatArray) -> Interval:
    """Return the corrected interval for the splits of this study."""
    return corrected_interval(values, TEST_FRACTION / (1 - TEST_FRACTION))


def method_table(costs: Costs) -> list[str]:
    """Return one line per method: its cost, and the difference to ours."""
    lines = [f"{'':<22} {'cost per row':>26} {'dubito minus this':>29}"]
    for method, values in costs.items():
        gap = over_splits(costs[OURS] - values)
        less = "" if method == OURS else f"{gap.value:+.4f} ({gap.low:+.4f} to {gap.high:+.4f})"
        lines.append(f"{method:<22} {over_splits(values)!s:>26} {less:>29}".rstrip())
    return lines


def verdict(model: str, costs: Costs) -> str:
    """Compare ours with the best of the others."""
    best = min(
        (method for method in costs if method != OURS),
        key=lambda method: float(costs[method].mean()),
    )
    gap = over_splits(costs[OURS] - costs[best])
    side = "below" if gap.value < 0 else "above"
    significance = "significant" if gap.low > 0 or gap.high < 0 else "no significant difference"
    is_held = gap.value <= LARGEST_LOSS
    return (
        f"{model}: dubito costs {abs(gap.value):.4f} per row {side} the best of the others "
        f"({best};\n  {significance}), {'within' if is_held else 'NOT within'} the allowance of "
        f"{LARGEST_LOSS:g}."
    )


def table_of_calibrators(found: Mapping[str, Costs]) -> list[str]:
    """Return one line per calibrator: its mean cost on each set."""
    lines = [f"{'':<20}" + "".join(f" {name:>24}" for name in found)]
    for name in CALIBRATORS:
        cells = "".join(f" {costs[name].mean():>24.4f}" for costs in found.values())
        lines.append(f"{name:<20}{cells}")
    return lines


def report(credit: Table, others: Mapping[str, Table], n_splits: int, n_estimators: int) -> str:
    """Return the tables, and sentences that summarize them."""
    kinds = models(n_estimators)
    elsewhere = {
        f"{name}, {kind}": costs_of_calibrators(model, data, n_splits)
        for name, data in others.items()
        for kind, model in kinds.items()
    }
    choice = chosen(elsewhere)
    by_method = {
        kind: costs_of_methods(model, CALIBRATORS[choice](), credit, n_splits)
        for kind, model in kinds.items()
    }
    here = {
        f"credit, {kind}": costs_of_calibrators(model, credit, n_splits)
        for kind, model in kinds.items()
    }
    parts = [
        [
            f"{credit[1].size:,} rows, {n_splits} stratified splits, {TEST_FRACTION:.0%} for "
            "testing; an accepted bad loan costs 5,\na rejected good loan 1. 95 % intervals in "
            "brackets, corrected for overlapping splits."
        ],
        [verdict(kind, costs) for kind, costs in by_method.items()],
        *([kind, *method_table(costs)] for kind, costs in by_method.items()),
        [
            f"The calibrator is {choice}, chosen on other data at the same costs: its cost "
            "relative\nto the best one is lowest on average over these columns.",
            *table_of_calibrators(elsewhere),
            *(words(name, costs) for name, costs in elsewhere.items()),
        ],
        [
            "Cost of each on the credit data, which were not used for the choice:",
            *table_of_calibrators(here),
            *(words(name, costs) for name, costs in here.items()),
        ],
    ]
    return "\n\n".join("\n".join(lines) for lines in parts)


def words(name: str, costs: Costs) -> str:
    """List the calibrators that differ significantly from the default."""
    gaps = {one: over_splits(values - costs[DEFAULT]) for one, values in costs.items()}
    differing = [
        f"{one} {gap.value:+.4f}" for one, gap in gaps.items() if gap.low > 0 or gap.high < 0
    ]
    return f"{name}: significantly different from {DEFAULT}: {', '.join(differing) or 'none'}."


def read(path: Path) -> Table:
    """Return features and labels of a Statlog file."""
    with np.load(path) as data:
        return data["X"].astype(np.float64), data["y"].astype(np.int64)


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the tables, and write them to a file if requested."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, help=f"holds {FILE} and {OTHER_FILE}")
    parser.add_argument("--quick", action="store_true", help="2 splits, 5 trees, one other set")
    parser.add_argument("-o", type=Path, help="write the tables to this file")
    requested = parser.parse_args(arguments)
    others = {"heart": read(requested.folder / OTHER_FILE)}
    if not requested.quick:
        features, y = load_breast_cancer(return_X_y=True)
        others["breast cancer"] = features, 1 - y
    size = (2, 5) if requested.quick else (N_SPLITS, 100)
    with threadpool_limits(1):  # with matrices this small, threads cost more than they save
        text = report(read(requested.folder / FILE), others, *size)
    print(text)
    if requested.o is not None:
        requested.o.write_text(f"{text}\n")


if __name__ == "__main__":
    main()
