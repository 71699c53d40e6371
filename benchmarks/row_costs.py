"""The cost of decisions where every row has costs of its own, beside the usual methods.

    python -m benchmarks.row_costs FOLDER           # all files costs_*.npz of the folder
    python -m benchmarks.row_costs FOLDER --json    # the same figures as JSON

A file holds P(positive) of one or more models (`probs_*val`, `probs_*test`), labels (`y_val`,
`y_test`) and the costs of each row (`cost_mat_val`, `cost_mat_test`: of a false positive, a false
negative, a true positive and a true negative); each model is a set. Everything is fitted on the
validation part, and its cost measured on the test part. Methods: the most probable class (argmax);
one threshold for all rows, the cheapest on the validation part; the action of lowest expected cost
(Bayes minimum risk) with raw probabilities, and with probabilities calibrated by scikit-learn's
logistic regression (sigmoid, beta) or isotonic regression; and `Policy.fit` with its defaults,
whose cost matrix has one column per cell. Costs are relative to the better constant action.
"""

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from sklearn.isotonic import IsotonicRegression
from sklearn.linear_model import LogisticRegression

from dubito import CostMatrix, Policy, Probabilities
from dubito.arrays import FloatArray, IntArray

__all__ = ["main"]

OURS = "dubito"
COSTS = CostMatrix([["tn", "fn"], ["fp", "tp"]], actions=["negative", "positive"])
NAMES = ("fp", "fn", "tp", "tn")
MAX_RATIO, MAX_MEAN_RATIO = 1.01, 1.00
FLOOR = 1e-6  # of probabilities whose logarithm is taken


class Part(NamedTuple):
    """The rows to fit on, or to test on: P(positive), labels, and rows x actions x classes."""

    p: FloatArray
    y: IntArray
    costs: dict[str, FloatArray]

    def paid(self, action: Any) -> float:
        """Return the total cost of actions, 1 for positive."""
        cost, is_positive = self.costs, self.y == 1
        positive = np.where(is_positive, cost["tp"], cost["fp"])
        negative = np.where(is_positive, cost["fn"], cost["tn"])
        return float(np.where(action, positive, negative).sum())

    def least(self, p: FloatArray) -> Any:
        """Return the action of lowest expected cost by some probabilities."""
        cost = self.costs
        return p * cost["tp"] + (1 - p) * cost["fp"] < p * cost["fn"] + (1 - p) * cost["tn"]


def sets(folder: Path) -> Iterator[tuple[str, Part, Part]]:
    """Yield the name of each model of each file, and its rows."""
    for path in sorted(folder.glob("costs_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            for key in sorted(file):
                if key.startswith("probs_") and key.endswith("_val"):
                    model = key.removesuffix("_val")
                    parts = [
                        Part(
                            file[f"{model}_{part}"].astype(np.float64),
                            file[f"y_{part}"].astype(np.int64),
                            dict(zip(NAMES, file[f"cost_mat_{part}"].astype(float).T, strict=True)),
                        )
                        for part in ("val", "test")
                    ]
                    kind = model.removeprefix("probs").strip("_")
                    name = path.stem.removeprefix("costs_") + (f", {kind}" if kind else "")
                    yield name, parts[0], parts[1]


def threshold_of(part: Part) -> float:
    """Return the threshold from which on "positive" is the cheapest in total."""
    order = np.argsort(-part.p, kind="stable")
    cost, is_positive = part.costs, part.y == 1
    more = np.where(is_positive, cost["tp"] - cost["fn"], cost["fp"] - cost["tn"])[order]
    total = np.append(0.0, np.cumsum(more))
    ends = np.append(True, np.append(np.diff(part.p[order]) != 0, True))  # never within a tie
    best = int(np.argmin(np.where(ends, total, np.inf)))
    return np.inf if best == 0 else float(part.p[order][best - 1])


def logistic(features: Callable[[FloatArray], FloatArray], fit: Part, test: Part) -> FloatArray:
    """Return probabilities of a logistic regression without a penalty."""
    model = LogisticRegression(C=1e12, max_iter=10_000)
    model.fit(features(fit.p), fit.y)
    return np.asarray(model.predict_proba(features(test.p))[:, 1])


def isotonic(fit: Part, test: Part) -> FloatArray:
    """Return probabilities of an isotonic regression."""
    model = IsotonicRegression(out_of_bounds="clip").fit(fit.p, fit.y)
    return np.asarray(model.predict(test.p))


def beta_features(p: FloatArray) -> FloatArray:
    """Return the two logarithms of beta calibration."""
    clipped = np.clip(p, FLOOR, 1 - FLOOR)
    return np.column_stack([np.log(clipped), -np.log(1 - clipped)])


def policy_actions(fit: Part, test: Part) -> Any:
    """Return what a policy with default settings decides."""
    policy = Policy.fit(Probabilities(fit.p), fit.y, costs=COSTS, row_costs=fit.costs)
    return policy.decide(Probabilities(test.p), row_costs=test.costs).action


METHODS: dict[str, Callable[[Part, Part], Any]] = {
    "argmax": lambda fit, test: test.p > 0.5,
    "one threshold": lambda fit, test: test.p >= threshold_of(fit),
    "raw": lambda fit, test: test.least(test.p),
    "sigmoid": lambda fit, test: test.least(logistic(lambda p: p[:, np.newaxis], fit, test)),
    "isotonic": lambda fit, test: test.least(isotonic(fit, test)),
    "beta": lambda fit, test: test.least(logistic(beta_features, fit, test)),
    OURS: policy_actions,
}


def measure(folder: Path) -> dict[str, dict[str, float]]:
    """Return the relative cost of each method on each set."""
    found = {}
    for name, fit, test in sets(folder):
        constant = min(test.paid(np.full(test.y.size, action)) for action in (False, True))
        found[name] = {way: test.paid(act(fit, test)) / constant for way, act in METHODS.items()}
    if not found:
        raise SystemExit(f"{folder} has no files costs_*.npz.")
    return found


def summary(found: dict[str, dict[str, float]]) -> dict[str, Any]:
    """Return the ratios that are to be small, and whether they are."""
    others = [name for name in METHODS if name != OURS]
    ratios = {key: one[OURS] / min(one[way] for way in others) for key, one in found.items()}
    means = {way: float(np.mean([one[way] for one in found.values()])) for way in METHODS}
    best = min(others, key=lambda way: means[way])
    mean_ratio = means[OURS] / means[best]
    return {
        "sets": found,
        "ratios_to_best": ratios,
        "means": means,
        "best_single_method": best,
        "mean_ratio": mean_ratio,
        "is_within_limits": max(ratios.values()) <= MAX_RATIO and mean_ratio <= MAX_MEAN_RATIO,
    }


def main() -> None:
    """Print the table."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("folder", type=Path, help="the folder of the files")
    parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args()
    result = summary(measure(options.folder))
    if options.json:
        print(json.dumps(result, indent=2))
        return
    print("Total cost on the test part, relative to the better constant action\n")
    print(f"{'':<28}" + "".join(f"{way:>15}" for way in METHODS) + f"{'ratio to best':>15}")
    for name, one in {**result["sets"], "mean": result["means"]}.items():
        ratio = result["ratios_to_best"].get(name)
        end = "" if ratio is None else f"{ratio:>15.4f}"
        print(f"{name:<28}" + "".join(f"{one[way]:>15.4f}" for way in METHODS) + end)
    worst = max(result["ratios_to_best"].values())
    print(f"\nlargest ratio to the best method of a set: {worst:.4f} (at most {MAX_RATIO:g})")
    print(
        f"mean over sets, to the best single method ({result['best_single_method']}): "
        f"{result['mean_ratio']:.4f} (at most {MAX_MEAN_RATIO:.2f})"
    )


if __name__ == "__main__":
    main()
