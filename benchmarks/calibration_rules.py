"""The development data on which AutoCalibrator's selection rules were chosen, and that choice.

    python -m benchmarks.calibration_rules                  # 22 datasets, needs Fashion-MNIST
    python -m benchmarks.calibration_rules --quick          # the four that need no download
    python -m benchmarks.calibration_rules --more           # other thresholds and candidates too
    python -m benchmarks.calibration_rules --cache FOLDER   # caches the datasets there

Classifiers of different kinds are trained on Fashion-MNIST (Debian's dataset-fashion-mnist), on
scikit-learn's digits and breast cancer and on generated rows; three datasets are shifted between
fit and test. On the fit part of each, AutoCalibrator is fitted with at most 1, 2 and 3 parts and
without a limit (the full mixture); with --more, three parts are also selected with another gain
(CHANCE_GAIN) or number of standard errors (N_STANDARD_ERRORS) that decide, and without some
candidates. Printed is the log loss on the test part relative to that of the full mixture, and
the number of parts. None of these rows is part of another benchmark.
"""

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import numpy as np
from joblib import Memory
from sklearn.datasets import load_breast_cancer, load_digits, make_classification
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import QuadraticDiscriminantAnalysis
from sklearn.ensemble import (
    ExtraTreesClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.neural_network import MLPClassifier

from benchmarks.datasets import Dataset, floored, logs
from benchmarks.harness import evaluate, run_quietly
from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import AutoCalibrator, BaseCalibrator, selection
from dubito.data import load_fashion_mnist

__all__ = ["main"]

N_TRAIN = 4_000
SHIRT = 6
SUITABLE_CALIBRATORS = selection._suitable_calibrators
SHIFTED_ROWS = slice(N_TRAIN, N_TRAIN + 12_000)


def quick_sets() -> Iterator[Dataset]:
    """Yield the datasets that need no download."""
    rng = np.random.default_rng(7)
    sample = load_fashion_mnist()
    logits = np.concatenate([sample.validation_logits, sample.test_logits])
    y = np.concatenate([sample.validation_labels, sample.test_labels]).astype(np.int64)
    yield first_rows("sample", logits, y, sample.validation_labels.size)
    digits = load_digits()
    order = rng.permutation(digits.target.size - 500)
    model = GaussianNB().fit(digits.data[:500], digits.target[:500])
    p = model.predict_proba(digits.data[500:])[order]
    yield first_rows("digits, naive Bayes", logs(p), digits.target[500:][order], 500)
    cancer = load_breast_cancer()
    order = rng.permutation(cancer.target.size)
    features, y = cancer.data[order], cancer.target[order]
    p = GaussianNB().fit(features[:150], y[:150]).predict_proba(features[150:])
    yield first_rows("cancer, naive Bayes", logs(p), y[150:], 180)
    boosting = HistGradientBoostingClassifier(max_iter=60)
    yield generated(2, 6_000, 6, 1, boosting, 1_500, [0.93, 0.07])


def generated(
    n_classes: int,
    n_rows: int,
    n_informative: int,
    seed: int,
    model: Any,
    n_fit: int,
    weights: list[float] | None = None,
) -> Dataset:
    """Return the outputs of a model that was trained on a quarter of generated rows."""
    features, y = make_classification(
        n_rows,
        25,
        n_informative=n_informative,
        n_redundant=5,
        n_classes=n_classes,
        flip_y=0.05,
        weights=weights,
        random_state=seed,
    )
    n_train = n_rows // 4
    p = model.fit(features[:n_train], y[:n_train]).predict_proba(features[n_train:])
    return first_rows(f"generated, {n_classes} classes, {n_rows:,}", logs(p), y[n_train:], n_fit)


def other_sets() -> Iterator[Dataset]:
    """Yield the other generated datasets, and those of Fashion-MNIST."""
    yield generated(2, 12_000, 8, 0, GaussianNB(), 2_000)
    yield generated(3, 9_000, 8, 2, KNeighborsClassifier(15), 1_500)
    yield generated(5, 9_000, 10, 3, RandomForestClassifier(50, random_state=0), 2_500)
    network = MLPClassifier((100,), alpha=0, max_iter=50, random_state=0)
    yield generated(30, 14_000, 20, 4, network, 4_000)
    rng = np.random.default_rng(7)
    pixels, y = read_images()
    order = rng.permutation(y.size)
    pixels, y = pixels[order], y[order]
    features = PCA(40, random_state=0).fit(pixels[:5_000]).transform(pixels).astype(np.float32)
    models = {
        "naive Bayes": (GaussianNB(), 2_500),
        "random forest": (RandomForestClassifier(60, random_state=0), 1_200),
        "extra trees": (ExtraTreesClassifier(30, min_samples_leaf=3, random_state=0), 5_000),
        "boosting": (HistGradientBoostingClassifier(max_iter=40, random_state=0), 2_500),
        "network": (MLPClassifier((128,), alpha=0, max_iter=40, random_state=0), 2_500),
        "logistic": (LogisticRegression(max_iter=200), 500),
        "neighbors": (KNeighborsClassifier(10), 3_000),
        "QDA": (QuadraticDiscriminantAnalysis(), 2_500),
    }
    for place, (name, (model, n_fit)) in enumerate(models.items()):
        rows = slice(N_TRAIN + place * 7_000, N_TRAIN + (place + 1) * 7_000)
        p = model.fit(features[:N_TRAIN], y[:N_TRAIN]).predict_proba(features[rows])
        yield first_rows(f"fashion, {name}", logs(p), y[rows], n_fit)
    is_shirt = (y == SHIRT).astype(np.int64)
    binary = {
        "naive Bayes": (GaussianNB(), 3_000),
        "boosting": (HistGradientBoostingClassifier(max_iter=60, random_state=1), 5_000),
        "network": (MLPClassifier((64,), alpha=0, max_iter=40, random_state=0), 800),
    }
    for place, (name, (model, n_fit)) in enumerate(binary.items()):
        rows = slice(N_TRAIN + place * 8_000, N_TRAIN + (place + 1) * 8_000)
        p = model.fit(features[:N_TRAIN], is_shirt[:N_TRAIN]).predict_proba(features[rows])
        yield first_rows(f"shirts, {name}", logs(p), is_shirt[rows], n_fit)
    later, labels = features[SHIFTED_ROWS], y[SHIFTED_ROWS]
    by_brightness = pixels[SHIFTED_ROWS].mean(axis=1).argsort()
    dark, bright = np.sort(rng.permutation(5_000)[:2_500]), np.arange(7_000, 12_000)
    rows = by_brightness[np.concatenate([dark, bright])]
    for name in ("network", "boosting"):
        p = models[name][0].predict_proba(later[rows])
        yield first_rows(f"brighter, {name}", logs(p), labels[rows], dark.size)
    later[3_000:] += rng.normal(0, 0.5, later.shape).astype(np.float32)[3_000:]
    p = models["naive Bayes"][0].predict_proba(later)
    yield first_rows("noisier, naive Bayes", logs(p), labels, 3_000)


def read_images() -> tuple[FloatArray, IntArray]:
    """Return the images of Fashion-MNIST, rows x pixels in [0, 1], and their labels."""
    from studies.common.images import FOLDER, read_idx

    parts = ("train", "t10k")
    images = [read_idx(FOLDER / f"{part}-images-idx3-ubyte.gz") for part in parts]
    labels = [read_idx(FOLDER / f"{part}-labels-idx1-ubyte.gz") for part in parts]
    pixels = np.concatenate(images).reshape(-1, 784).astype(np.float32) / 255
    return pixels, np.concatenate(labels).astype(np.int64)


def first_rows(name: str, logits: FloatArray, y: Any, n_fit: int) -> Dataset:
    """Return a dataset whose first rows are fitted on, and whose others are tested on."""
    rows = np.arange(len(y))
    return Dataset(name, floored(logits), np.asarray(y, np.int64), ((rows[:n_fit], rows[n_fit:]),))


class Rule(NamedTuple):
    """A way to select: the most parts, other thresholds, a kind of candidate left out."""

    max_parts: int | None = 3
    thresholds: Mapping[str, Any] = {}  # by the names of constants in dubito.calibrate.selection
    without: str = ""

    def fit_and_test(self, entry: Dataset) -> tuple[float, int]:
        """Return the log loss on the test part, and the number of parts."""
        ((fit, test),) = entry.splits
        with patch.multiple(selection, _suitable_calibrators=self._candidates, **self.thresholds):
            fitted = AutoCalibrator(max_parts=self.max_parts)
            fitted.fit(Logits(entry.logits[fit]), entry.y[fit])
        figures = evaluate(fitted.predict_proba(Logits(entry.logits[test])), entry.y[test])
        return figures.log_loss, len(fitted.calibrators_)

    def _candidates(self, *size: Any) -> list[BaseCalibrator]:
        every = SUITABLE_CALIBRATORS(*size)
        return [one for one in every if not self.without or self.without not in repr(one)]


FULL = Rule(None)
RULES = {f"at most {most}": Rule(most) for most in (1, 2, 3)}
MORE_RULES = {
    **{f"chance {gain}": Rule(thresholds={"CHANCE_GAIN": gain}) for gain in (0.0, 1.0, 2.0)},
    **{f"{z} errors": Rule(thresholds={"N_STANDARD_ERRORS": z}) for z in (0.0, 1.0)},
    **{f"no {name}": Rule(without=name) for name in ("Forest", "rbf", "spline", "Isotonic")},
}


def make_table(entries: list[Dataset], rules: dict[str, Rule]) -> list[str]:
    """Return a line per dataset, and the means over datasets."""
    heads = " ".join(f"{name:>12}" for name in ("full mixture", *rules))
    lines = [f"{'':<30} {'fit on':>6} {'K':>3} {heads}"]
    ratios = []
    for entry in entries:
        full, n_full = FULL.fit_and_test(entry)
        found = [rule.fit_and_test(entry) for rule in rules.values()]
        ratios.append([loss / full for loss, _ in found])
        size = f"{entry.name:<30} {entry.splits[0][0].size:>6} {entry.n_classes:>3}"
        cells = [f"{loss / full:.4f} ({n:>2})" for loss, n in found]
        lines.append(
            " ".join(f"{cell:>12}" for cell in (size, f"{full:.4f} ({n_full:>2})", *cells))
        )
    means = np.exp(np.mean(np.log(ratios), axis=0))
    for name, values in {"geometric mean": means, "largest": np.max(ratios, axis=0)}.items():
        lines.append(f"{name:<54}" + "".join(f"{value:>8.4f}     " for value in values).rstrip())
    return lines


def all_sets(is_quick: bool) -> list[Dataset]:
    """Return the development datasets."""
    return [*quick_sets(), *([] if is_quick else other_sets())]


def main() -> None:
    """Print the comparison."""
    raw = argparse.RawTextHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=raw)
    parser.add_argument("--quick", action="store_true", help="four datasets")
    parser.add_argument("--more", action="store_true", help="other thresholds and candidates too")
    parser.add_argument("--cache", type=Path, help="folder that caches the datasets")
    arguments = parser.parse_args()
    make = Memory(arguments.cache, verbose=0).cache(all_sets)
    rules = RULES | (MORE_RULES if arguments.more else {})
    print("Log loss on the test part relative to the full mixture, and the number of parts")
    print("\n".join(run_quietly(make_table, run_quietly(make, arguments.quick), rules)))


if __name__ == "__main__":
    main()
