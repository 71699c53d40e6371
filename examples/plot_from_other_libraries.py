"""
From scikit-learn, netcal, MAPIE and Evidently
==============================================

You know one of these libraries. This page does the same with dubito, side by side, and shows the
same number. Then it shows the line that you would add.

scikit-learn runs here in any case. Where one of the others is not installed, its figure is one that
was recorded with the version named beside it.
"""

from collections.abc import Callable
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

import matplotlib.pyplot as plt
import numpy as np
from scipy.special import softmax
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression
from sklearn.svm import LinearSVC

from dubito import ConformalClassifier, ConformalRegressor, Logits, Probabilities
from dubito.calibrate import PlattScaling, TemperatureScaling
from dubito.data import load_fashion_mnist
from dubito.doubt import PredictionSets
from dubito.measure import expected_calibration_error
from dubito.monitor import detect_drift

# Recorded in a run with all of them installed.
RECORDED = {
    "netcal": ("1.4.0", {"ECE": 0.0852123718, "temperature": 2.8291763619}),
    "mapie": ("1.6.0", {"interval width": 3.6542355670}),
    "evidently": ("0.4.36", {"Wasserstein": 1.0095161914}),
}
rows: list[tuple[str, str, float, float]] = []


def beside(library: str, figure: str, theirs: Callable[[], float], ours: float) -> None:
    """Note a figure of a library, or the recorded one where it is not installed, beside ours."""
    try:
        found, its_version = float(theirs()), version(library)
    except (ImportError, PackageNotFoundError):
        its_version, recorded = RECORDED[library]
        found, its_version = recorded[figure], f"{its_version}, recorded"
    rows.append((f"{library} {its_version}", figure, found, ours))
    print(f"{library} {its_version}: {figure} {found:.6f}, dubito {ours:.6f}")


# %%
# scikit-learn: ``CalibratedClassifierCV``
# ----------------------------------------
# Platt scaling of a fitted support vector machine, on held-out rows.

X, y = load_breast_cancer(return_X_y=True)
X = (X - X.mean(axis=0)) / X.std(axis=0)
svm = LinearSVC(C=0.01).fit(X[:200], y[:200])
theirs = CalibratedClassifierCV(FrozenEstimator(svm), method="sigmoid").fit(X[200:400], y[200:400])
scores = Logits(svm.decision_function(X))
platt = PlattScaling().fit(scores.take(slice(200, 400)), y[200:400])
p_theirs = theirs.predict_proba(X[400:])[:, 1]
p_ours = platt.predict_proba(scores.take(slice(400, 569)))[:, 1]
beside("scikit-learn", "mean probability", p_theirs.mean, p_ours.mean())
print(f"largest difference of 169 probabilities: {np.abs(p_theirs - p_ours).max():.1e}")

# %%
# What to add: ``AutoCalibrator()`` in place of ``PlattScaling()`` chooses the calibrator by
# cross-validation, and ``CalibratedClassifier(svm, AutoCalibrator())`` is a scikit-learn
# estimator.
#
# netcal: ``ECE`` and ``TemperatureScaling``
# ------------------------------------------
# netcal takes probabilities; in dubito the outputs are declared, and stay logits.

sample = load_fashion_mnist()
known, new = Logits(sample.validation_logits), Logits(sample.test_logits)
p_known, p_new = (softmax(one.array.astype(float), axis=1) for one in (known, new))


def netcal_ece() -> float:
    """Return the ECE according to netcal."""
    return import_module("netcal.metrics").ECE(15).measure(p_new, sample.test_labels)


def netcal_temperature() -> float:
    """Return the temperature according to netcal, which fits its inverse."""
    scaling = import_module("netcal.scaling").TemperatureScaling()
    scaling.fit(p_known, sample.validation_labels)
    return 1 / float(np.ravel(scaling.temperature)[0])


scaling = TemperatureScaling().fit(known, sample.validation_labels)
beside("netcal", "ECE", netcal_ece, expected_calibration_error(sample.test_labels, new))
beside("netcal", "temperature", netcal_temperature, scaling.temperature_)

# %%
# What to add: ``audit(labels, Logits(logits))`` prints the ECE with its interval, and the value
# that a calibrated model of this size would have.
#
# MAPIE: split conformal prediction
# ---------------------------------

rng = np.random.default_rng(0)
inputs = rng.normal(size=(900, 3))
target = inputs @ [1.0, 2.0, 3.0] + rng.normal(size=900)
model = LinearRegression().fit(inputs[:300], target[:300])
middle, last = slice(300, 600), slice(600, 900)


def mapie_width() -> float:
    """Return the mean width of 90 % intervals according to MAPIE."""
    regressor = import_module("mapie.regression").SplitConformalRegressor(
        model, confidence_level=0.9, prefit=True
    )
    regressor.conformalize(inputs[middle], target[middle])
    bounds = regressor.predict_interval(inputs[last])[1][:, :, 0]
    return (bounds[:, 1] - bounds[:, 0]).mean()


conformal = ConformalRegressor(level=0.9, method="absolute")
conformal.fit(model.predict(inputs[middle]), target[middle])
width = conformal.predict(model.predict(inputs[last])).width.mean()
beside("mapie", "interval width", mapie_width, width)

# %%
# What to add: without ``method="absolute"`` the widths follow the spread of each row, and
# ``conditional_coverage`` shows where coverage falls short. Sets of classes are the same call
# with class probabilities:

sets: PredictionSets = ConformalClassifier(level=0.9, method="lac").fit(
    Probabilities(p_known), sample.validation_labels
).predict(Probabilities(p_new))  # fmt: skip
print(
    f"sets hold {sets.sizes.mean():.3f} classes and cover {sets.coverage(sample.test_labels):.3f}"
)

# %%
# Evidently: drift of the confidence
# ----------------------------------
# Evidently's Wasserstein distance is in standard deviations of the reference.

now = Logits(sample.corrupted_logits)
before, after = (softmax(one.array.astype(float), axis=1).max(axis=1) for one in (known, now))


def evidently_distance() -> float:
    """Return the Wasserstein distance of confidences according to Evidently."""
    import_module("evidently")
    pandas, core = import_module("pandas"), import_module("evidently.core")
    test = import_module("evidently.calculations.stattests").wasserstein_stat_test
    kind = core.ColumnType.Numerical
    return test(pandas.Series(before), pandas.Series(after), kind, 0.1).drift_score


drift = detect_drift(known, now)
beside("evidently", "Wasserstein", evidently_distance, drift.wasserstein / before.std())

# %%
# What to add: the verdict says what to do about it.

print(drift.verdict)

# %%
# All of them at once: the difference relative to the figure.

fig, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
names = [f"{library}\n{figure}" for library, figure, _, _ in rows]
gaps = [max(abs(ours / theirs - 1), 1e-10) for _, _, theirs, ours in rows]
ax.barh(names, gaps)
ax.invert_yaxis()
ax.tick_params(axis="y", labelsize=8)
text = ax.set(xscale="log", xlim=(1e-10, 1), xlabel="|dubito / other - 1|")
