"""Calibrators of other packages behind one interface."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any, NamedTuple

import numpy as np
from scipy.special import softmax
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.calibration import CalibratedClassifierCV
from sklearn.frozen import FrozenEstimator

from benchmarks import recipes
from dubito.arrays import FloatArray, IntArray

__all__ = ["PEERS", "SLOW_PEERS", "Fitted", "Method", "probabilities"]


class Fitted(NamedTuple):
    """A fitted calibrator: how it predicts, and its temperature if it has one."""

    predict: Callable[[Any], FloatArray]
    temperature: float | None = None


@dataclass(frozen=True, slots=True)
class Method:
    """A calibrator: how it is fitted, the form of its inputs, and how many classes it supports.

    `packages` are the modules it imports, separated by spaces.
    """

    fit: Callable[[Any, IntArray], Fitted]
    takes: Callable[[FloatArray], Any]
    packages: str
    min_classes: int = 2
    max_classes: int = 1_000_000

    @property
    def missing(self) -> list[str]:
        """The packages that are not installed."""
        return [name for name in self.packages.split() if find_spec(name) is None]

    @property
    def is_installed(self) -> bool:
        """Whether its packages are installed."""
        return not self.missing

    def can_take(self, n_classes: int) -> bool:
        """Whether it supports this number of classes."""
        return self.min_classes <= n_classes <= self.max_classes


def unchanged(logits: FloatArray) -> FloatArray:
    """Return the logits."""
    return logits


def probabilities(logits: FloatArray) -> FloatArray:
    """Return probabilities, for packages that do not take logits."""
    result = np.empty_like(logits)
    for start in range(0, len(logits), 1_000):  # float64 for a few rows at a time
        rows = slice(start, start + 1_000)
        result[rows] = softmax(logits[rows].astype(np.float64), axis=1)
    return result


def for_netcal(logits: FloatArray) -> FloatArray:
    """Return probabilities, of the second class alone if there are two.

    In float64: netcal accepts float32, but its optimizers then stop at the start.
    """
    result = probabilities(logits.astype(np.float64))
    return np.ascontiguousarray(result[:, 1]) if result.shape[1] == 2 else result


def tensor(logits: FloatArray) -> Any:
    """Return a tensor on the same memory."""
    return import_module("torch").from_numpy(logits)


def temperature_method(find: Callable[[FloatArray, IntArray], float]) -> Method:
    """Return a method from a function that finds a temperature."""

    def fit(logits: FloatArray, y: IntArray) -> Fitted:
        temperature = find(logits, y)
        return Fitted(lambda rows: np.asarray(softmax(rows / temperature, axis=1)), temperature)

    package = "torch" if find is recipes.lbfgs_temperature else "scipy"
    return Method(fit, unchanged, package)


class Scores(ClassifierMixin, BaseEstimator):
    """A classifier whose inputs are its scores: scikit-learn calibrates classifiers only."""

    def __init__(self, n_classes: int = 2):
        self.n_classes = n_classes

    def fit(self, inputs: Any, y: Any) -> "Scores":
        """Set the classes."""
        self.classes_ = np.arange(self.n_classes)
        return self

    def decision_function(self, scores: FloatArray) -> FloatArray:
        """Return the scores; for two classes, the difference of the second and the first."""
        return scores if self.n_classes > 2 else scores[:, 1] - scores[:, 0]

    def predict(self, scores: FloatArray) -> IntArray:
        """Return the top class."""
        return np.asarray(scores.argmax(axis=1))


def fit_sklearn(method: str, logits: FloatArray, y: IntArray) -> Fitted:
    """Fit scikit-learn's calibration of a fitted classifier.

    It splits rows although nothing is trained: one split is faster than its default of five, and
    does not require five rows per class.
    """
    frozen, rows = FrozenEstimator(Scores(logits.shape[1]).fit(None, None)), np.arange(y.size)
    calibrated = CalibratedClassifierCV(frozen, method=method, cv=[(rows, rows)]).fit(logits, y)
    temperature = None
    if method == "temperature":
        temperature = 1 / float(calibrated.calibrated_classifiers_[0].calibrators[0].beta_)
    return Fitted(calibrated.predict_proba, temperature)


def fit_netcal(name: str, inputs: FloatArray, y: IntArray) -> Fitted:
    """Fit one of netcal's scaling or binning methods."""
    folder = "binning" if name in ("HistogramBinning", "IsotonicRegression", "BBQ") else "scaling"
    calibrator = getattr(import_module(f"netcal.{folder}"), name)()
    calibrator.fit(inputs, y)

    def predict(rows: FloatArray) -> FloatArray:
        result = np.asarray(calibrator.transform(rows))
        return np.column_stack([1 - result, result]) if result.ndim == 1 else result

    temperature = None
    if name == "TemperatureScaling":
        temperature = 1 / float(np.ravel(calibrator.temperature)[0])
    return Fitted(predict, temperature)


def fit_probmetrics(name: str, inputs: FloatArray, y: IntArray) -> Fitted:
    """Fit one of probmetrics' calibrators of probabilities, by its short name or its class."""
    module = import_module("probmetrics.calibrators")
    is_class = name.endswith("Calibrator")
    calibrator = getattr(module, name)() if is_class else module.get_calibrator(name)
    calibrator.fit(inputs, y)
    return Fitted(calibrator.predict_proba)


def fit_probmetrics_temperature(logits: Any, y: IntArray) -> Fitted:
    """Fit probmetrics' temperature on logits, the faster of its two interfaces."""
    torch, wrap = import_module("torch"), import_module("probmetrics.distributions")
    calibrator = import_module("probmetrics.calibrators").get_calibrator("ts-mix")
    calibrator.fit_torch(wrap.CategoricalLogits(logits), torch.from_numpy(y))

    def predict(rows: Any) -> FloatArray:
        result = calibrator.predict_proba_torch(wrap.CategoricalLogits(rows))
        return np.asarray(result.get_probs())

    return Fitted(predict, 1 / float(calibrator.cal_.invtemp_))


def fit_betacal(inputs: FloatArray, y: IntArray) -> Fitted:
    """Fit beta calibration with its authors' package."""
    calibrator = import_module("betacal").BetaCalibration("abm").fit(inputs[:, 1], y)

    def predict(rows: FloatArray) -> FloatArray:
        positive = np.asarray(calibrator.predict(rows[:, 1]))
        return np.column_stack([1 - positive, positive])

    return Fitted(predict)


def fit_venn_abers(inputs: FloatArray, y: IntArray) -> Fitted:
    """Return inductive Venn-Abers predictors, one-vs-rest: the package fits when it predicts."""
    calibrator = import_module("venn_abers").VennAbersCalibrator()

    def predict(rows: FloatArray) -> FloatArray:
        kind = "one_vs_all"
        result = calibrator.predict_proba(p_cal=inputs, y_cal=y, p_test=rows, va_type=kind)
        return np.asarray(result)

    return Fitted(predict)


def peers() -> dict[str, Method]:
    """Return the calibrators of other packages by name, installed or not."""
    result = {
        "PyTorch LBFGS recipe": temperature_method(recipes.lbfgs_temperature),
        "SciPy minimize recipe": temperature_method(recipes.minimize_temperature),
    }
    for method in ("temperature", "sigmoid", "isotonic"):
        fit = partial(fit_sklearn, method)
        result[f"scikit-learn {method}"] = Method(fit, unchanged, "sklearn")
    for name in ("TemperatureScaling", "LogisticCalibration", "BetaCalibration"):
        fit = partial(fit_netcal, name)
        result[f"netcal {name}"] = Method(fit, for_netcal, "netcal")
    for name, most in {"HistogramBinning": 10**6, "IsotonicRegression": 10**6, "BBQ": 99}.items():
        fit = partial(fit_netcal, name)
        result[f"netcal {name}"] = Method(fit, for_netcal, "netcal", 2, most)
    result["probmetrics ts-mix"] = Method(fit_probmetrics_temperature, tensor, "probmetrics")
    limits = {"logistic": (2, 10**6), "svs": (3, 10**6), "sms": (3, 10**6)}
    for name, (least, most) in {**limits, "quadratic-scaling": (2, 2)}.items():
        fit = partial(fit_probmetrics, name)
        result[f"probmetrics {name}"] = Method(fit, probabilities, "probmetrics", least, most)
    return result


def slow_peers() -> dict[str, Method]:
    """Return the rest of CalArena's methods: boosted trees, splines and others by name."""
    result = {
        "betacal": Method(fit_betacal, probabilities, "betacal", 2, 2),
        "venn-abers": Method(fit_venn_abers, probabilities, "venn_abers"),
    }
    others = {
        "ETSCalibrator": ("", 2, 10**6),
        "CDFSplineCalibrator": ("", 2, 2),
        "MLISplineCalibrator": ("splinecalib", 2, 10**6),
        "cir": ("cir_model", 2, 10**6),
        "dircal": ("dirichletcal", 3, 10**6),
        "VectorScalingCalibrator": ("", 3, 10**6),
        "MatrixScalingCalibrator": ("", 3, 10),  # slow above, as the following are
        "LightGBMCalibrator": ("lightgbm", 2, 20),
        "XGBoostCalibrator": ("xgboost", 2, 20),
        "CatBoostCalibrator": ("catboost", 2, 20),
    }
    for name, (package, least, most) in others.items():
        fit = partial(fit_probmetrics, name)
        packages = f"probmetrics {package}"
        method = Method(fit, probabilities, packages, least, most)
        result[f"probmetrics {name.removesuffix('Calibrator')}"] = method
    return result


PEERS = peers()
SLOW_PEERS = slow_peers()
