"""Calibration and risk control of several labels per row, beside the usual methods.

    python -m benchmarks.multilabel FOLDER           # the files multilabel_*.npz of a folder
    python -m benchmarks.multilabel FOLDER --json    # the figures as JSON
    python -m benchmarks.multilabel --quick          # a small generated set

A file holds probs_cal, labels_cal, probs_test and labels_test, each rows x labels. Methods are
fitted on the first two, label by label except for the temperature, and evaluated on the others:
log loss, Brier score and ECE with 15 equal-width bins of the probability, means over labels.
A probability of 0 for what occurred counts as 1e-12; the output states the log loss with 1e-6, as
in other tables. These may also differ by what methods do with probabilities of 0 and 1: Platt and
beta calibration here do not clip them at 1e-3 before taking log odds, and isotonic regression is
smoothed, which that of scikit-learn is not. Seconds are CPU seconds.

Then thresholds are fitted that promise a recall of 0.9: the mean over rows of the fraction of true
labels found. "one split" fits on the first part and evaluates on the test part, beside MAPIE where
it is installed. "1,000 halves" fits on a random half of the test part and evaluates on the other;
the calibrator was fitted on the first part. "sd" is that of one half, and the standard error of
the mean over halves sd / sqrt(1,000). The promise is a bound from below: as the loss of a new row
may be 1, and thresholds move in steps, the recall on the rows of the fit is higher, and the mean
recall on new rows lies between both.
"""

import argparse
import json
import time
from collections.abc import Callable, Iterator
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.special import expit
from sklearn.calibration import _SigmoidCalibration

from dubito import MultiLabel
from dubito.arrays import FloatArray
from dubito.calibrate import (
    BetaCalibration,
    IsotonicCalibration,
    MultiLabelCalibrator,
    PlattScaling,
)
from dubito.calibrate.binary import BaseBinaryCalibrator
from dubito.doubt import MultiLabelRiskControl

__all__ = ["main"]

OURS = "MultiLabelCalibrator"
N_BINS = 15
FLOOR, HIGH_FLOOR = 1e-12, 1e-6
MAX_RATIO = 1.005  # of the best other method, on each set
RECALL = 0.9  # the promised recall
N_HALVES = 1000
N_TIMES = 3  # of which the fastest counts


class LabelSet(NamedTuple):
    """Probabilities and labels to fit on, and others to evaluate on."""

    name: str
    p: FloatArray
    y: FloatArray
    p_test: FloatArray
    y_test: FloatArray


class Figures(NamedTuple):
    """Means over labels on the test part, and the CPU seconds of fitting and applying."""

    log_loss: float
    brier: float
    ece: float
    seconds: float


Method = Callable[[FloatArray, FloatArray, FloatArray], FloatArray]


def load_sets(folder: Path | None) -> Iterator[LabelSet]:
    """Yield the sets of a folder, or a generated one."""
    if folder is None:
        rng = np.random.default_rng(0)
        common = rng.normal(size=(1600, 1))
        odds = common + rng.normal(size=(1600, 6)) - np.arange(6) / 2
        y = (rng.random(odds.shape) < expit(odds + 0.5 * common)).astype(float)
        p = expit(2 * odds + 0.5)
        yield LabelSet("generated", p[:800], y[:800], p[800:], y[800:])
        return
    for path in sorted(folder.glob("multilabel_*.npz")):
        with np.load(path, allow_pickle=False) as file:
            parts = [
                file[f"{a}_{b}"].astype(float) for b in ("cal", "test") for a in ("probs", "labels")
            ]
        yield LabelSet(path.stem.removeprefix("multilabel_"), *parts)


def by_label(fit: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]) -> Method:
    """Return a method that handles each label by itself; one outcome only leaves it unchanged."""

    def run(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
        result = new.copy()
        for k in range(y.shape[1]):
            is_known = ~np.isnan(y[:, k])
            labels = y[is_known, k]
            if labels.min() < labels.max():
                result[:, k] = fit(p[is_known, k], labels, new[:, k])
        return result

    return run


def binary(calibrator: type[BaseBinaryCalibrator]) -> Method:
    """Return a calibrator of two classes as a method."""
    return by_label(lambda p, y, new: calibrator().fit(p, y.astype(int)).predict_proba(new)[:, 1])


def sigmoid(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
    """Return scikit-learn's sigmoid calibration, which is fitted on probabilities."""
    return np.asarray(_SigmoidCalibration().fit(p, y).predict(new))


def joint(**settings: str | bool) -> Method:
    """Return our calibrator with settings as a method."""

    def run(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
        return MultiLabelCalibrator(**settings).fit(MultiLabel(p), y).predict_proba(MultiLabel(new))  # type: ignore[arg-type]

    return run


METHODS: dict[str, Method] = {
    "uncalibrated": lambda p, y, new: new,
    "sigmoid": by_label(sigmoid),
    "Platt": binary(PlattScaling),
    "isotonic": binary(IsotonicCalibration),
    "beta": binary(BetaCalibration),
    "one temperature": joint(base="temperature", other_labels=False),
    f"{OURS}, each label alone": joint(other_labels=False),
    OURS: joint(),
}


def figures(method: Method, data: LabelSet) -> Figures:
    """Return the figures of a method on a set."""
    start = time.process_time()
    p = np.asarray(method(data.p, data.y, data.p_test))
    seconds = time.process_time() - start
    y, is_known = data.y_test, ~np.isnan(data.y_test)
    loss = -np.log(np.maximum(np.where(y == 1, p, 1 - p), FLOOR))
    each = [
        (loss[known, k].mean(), ((p - y)[known, k] ** 2).mean(), ece(y[known, k], p[known, k]))
        for k, known in enumerate(is_known.T)
        if known.any()
    ]
    log_loss, brier, error = map(float, np.mean(each, axis=0))
    return Figures(log_loss, brier, error, seconds)


def ece(y: FloatArray, p: FloatArray) -> float:
    """Return the expected calibration error of the probability of one label."""
    bins = np.clip(np.ceil(p * N_BINS) - 1, 0, N_BINS - 1).astype(int)
    return float(np.abs(np.bincount(bins, p - y, N_BINS)).sum() / y.size)


class Control(NamedTuple):
    """Recall and labels per row of sets, with the sd of the recall or CPU seconds.

    `fitted` is the recall on the rows of the fit.
    """

    recall: float
    labels_per_row: float
    sd: float | None = None
    seconds: float | None = None
    fitted: float | None = None


def recall_of(contains: FloatArray, y: FloatArray) -> float:
    """Return the mean fraction of true labels found, over rows that have any."""
    truth = np.nan_to_num(y)
    n_true = truth.sum(axis=1)
    return float(((contains * truth).sum(axis=1)[n_true > 0] / n_true[n_true > 0]).mean())


def ours_of(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
    """Return the sets of our risk control."""
    return np.asarray(MultiLabelRiskControl(target=RECALL).fit(p, y).predict(new).contains)


def mapie_of(p: FloatArray, y: FloatArray, new: FloatArray) -> FloatArray:
    """Return the sets of MAPIE's conformal risk control, whose inputs are the probabilities."""
    kind = import_module("mapie.risk_control").MultiLabelClassificationController
    control = kind(lambda x: x, risk="recall", target_level=RECALL)
    return np.asarray(control.calibrate(p, y.astype(int)).predict(new)[:, :, 0])


def controls(data: LabelSet, n_halves: int) -> dict[str, Control]:
    """Return how well a promised recall is kept, and with how many labels per row."""
    calibrator = MultiLabelCalibrator().fit(MultiLabel(data.p), data.y)
    peers = {"MAPIE": mapie_of} if find_spec("mapie") else {}
    found = {}
    for name, run in {**peers, "MultiLabelRiskControl": ours_of}.items():
        seconds = []
        for _ in range(N_TIMES):
            start = time.process_time()
            sets = run(data.p, data.y, data.p_test)
            seconds.append(time.process_time() - start)
        figures = recall_of(sets, data.y_test), float(sets.sum(axis=1).mean())
        found[f"{name}, one split"] = Control(*figures, seconds=min(seconds))
    outputs = {"uncalibrated": data.p_test, "calibrated": calibrator.predict_proba(data.p_test)}
    for name, p in outputs.items():
        rng, results = np.random.default_rng(0), []
        for _ in range(n_halves):
            order = rng.permutation(len(p))
            fit, new = np.array_split(order, 2)
            both = np.concatenate([fit, new])
            sets = ours_of(p[fit], data.y_test[fit], p[both])
            recall = recall_of(sets[fit.size :], data.y_test[new])
            fitted = recall_of(sets[: fit.size], data.y_test[fit])
            results.append((recall, sets[fit.size :].sum(axis=1).mean(), fitted))
        recall, size, fitted = map(float, np.mean(results, axis=0))
        error = float(np.std(results, axis=0)[0])
        found[f"{name}, {n_halves:,} halves"] = Control(recall, size, error, fitted=fitted)
    return found


def control_verdicts(kept: dict[str, dict[str, Control]], n_halves: int) -> Iterator[str]:
    """Yield how the promise was kept, and how many labels it took."""
    for name, rows in kept.items():
        for how in ("uncalibrated", "calibrated"):
            one = rows[f"{how}, {n_halves:,} halves"]
            above = one.recall - RECALL
            error = (one.sd or 0.0) / n_halves**0.5
            yield (
                f"recall, {name}, {how}: {above:+.4f} from the promise "
                f"({(one.fitted or 0) - RECALL:+.4f} on the rows of the fit), "
                f"{above / (one.sd or 1):+.2f} sd of one half, {above / error:+.1f} standard "
                "errors of the mean"
            )
        few, many = (
            rows[f"{how}, {n_halves:,} halves"].labels_per_row
            for how in ("calibrated", "uncalibrated")
        )
        yield f"labels per row, {name}: {few / many:.4f} of those without calibration"
        ours, peer = rows["MultiLabelRiskControl, one split"], rows.get("MAPIE, one split")
        if peer is not None and ours.seconds and peer.seconds:
            yield (
                f"labels per row, {name}: {ours.labels_per_row / peer.labels_per_row:.4f} of "
                f"MAPIE, at {peer.seconds / ours.seconds:,.0f} times its speed"
            )


def verdicts(table: dict[str, dict[str, Figures]]) -> Iterator[str]:
    """Yield how our log loss and Brier score compare with the best other method."""
    others = [name for name in METHODS if not name.startswith(OURS)]
    for k, what in enumerate(("log loss", "Brier score")):
        for name, rows in table.items():
            best = min(others, key=lambda one: rows[one][k])
            ratio = rows[OURS][k] / rows[best][k]
            yield f"{what}, {name}: {ratio:.4f} of the best ({best}; at most {MAX_RATIO})"
        means = {one: float(np.mean([rows[one][k] for rows in table.values()])) for one in METHODS}
        best = min(others, key=lambda one: means[one])
        ratio = means[OURS] / means[best]
        yield f"{what}, mean over sets: {ratio:.4f} of the best method ({best}; at most 1)"


def note_on_zeros(data: LabelSet) -> str:
    """Return how many probabilities are 0 or 1, and what log loss they cost by the floor."""
    is_hard = ((data.p_test == 0) | (data.p_test == 1)).mean()
    floored = data._replace(p_test=np.clip(data.p_test, HIGH_FLOOR, 1 - HIGH_FLOOR))
    losses = [figures(METHODS["uncalibrated"], one).log_loss for one in (data, floored)]
    return (
        f"{is_hard:.1%} of the probabilities are 0 or 1: uncalibrated log loss {losses[0]:.4f} if "
        f"0 counts as {FLOOR:g}, {losses[1]:.4f} as {HIGH_FLOOR:g}"
    )


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
        parser.error(f"{options.folder} has no files multilabel_*.npz")
    table = {one.name: {name: figures(run, one) for name, run in METHODS.items()} for one in sets}
    lines = list(verdicts(table))
    n_halves = 50 if options.quick else N_HALVES
    kept = {one.name: controls(one, n_halves) for one in sets}
    kept_lines = list(control_verdicts(kept, n_halves))
    if options.json:
        plain = {
            name: {one: row._asdict() for one, row in rows.items()} for name, rows in table.items()
        }
        control = {
            name: {one: row._asdict() for one, row in rows.items()} for name, rows in kept.items()
        }
        result = {"calibration": plain, "recall_control": control, "verdicts": lines + kept_lines}
        print(json.dumps(result, indent=1))
        return
    for data in sets:
        n_rows, n_labels = data.p.shape
        print(
            f"{data.name}: {n_labels} labels, {n_rows:,} rows to fit, {len(data.p_test):,} to test"
        )
        print(f"{'':<38} {'log loss':>9} {'Brier':>8} {'ECE':>8} {'seconds':>8}")
        for name, row in table[data.name].items():
            scores = " ".join(
                f"{one:>{width}.4f}" for one, width in zip(row[:3], (9, 8, 8), strict=True)
            )
            print(f"{name:<38} {scores} {row.seconds:>8.2f}")
        print(f"{note_on_zeros(data)}\n")
    print("\n".join(lines))
    title = f"A recall of {RECALL} promised"
    print(f"\n{title:<42} {'recall':>8} {'sd':>8} {'labels':>8} {'seconds':>8}")
    for name, rows in kept.items():
        for how, one in rows.items():
            error, seconds = (
                "" if value is None else f"{value:.4f}" for value in (one.sd, one.seconds)
            )
            line = f"{one.recall:>8.4f} {error:>8} {one.labels_per_row:>8.3f} {seconds:>8}"
            print(f"{f'{name}, {how}':<42} {line}")
    print("\n" + "\n".join(kept_lines))


if __name__ == "__main__":
    main()
