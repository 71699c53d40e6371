"""dubito's calibrators as methods, and two baselines: no calibration, and an exact temperature."""

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import softmax

from benchmarks.peers import Fitted, Method, temperature_method, unchanged
from benchmarks.recipes import exact_temperature
from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import (
    AutoCalibrator,
    BetaCalibration,
    EnsembleTemperatureScaling,
    ForestCalibration,
    HistogramBinning,
    IsotonicCalibration,
    MatrixScaling,
    OneVsRest,
    PlattScaling,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)

__all__ = ["BASELINES", "OURS"]


def method(make: Callable[[], Any], is_binary: bool = False) -> Method:
    """Return a calibrator as a method; one for two classes becomes one-vs-rest for more."""

    def fit(outputs: Logits, y: IntArray) -> Fitted:
        is_split = is_binary and outputs.n_classes > 2
        calibrator = (OneVsRest(make()) if is_split else make()).fit(outputs, y)
        return Fitted(calibrator.predict_proba, getattr(calibrator, "temperature_", None))

    return Method(fit, Logits, "dubito")


def fit_identity(logits: FloatArray, y: IntArray) -> Fitted:
    """Leave the outputs unchanged."""
    return Fitted(lambda rows: np.asarray(softmax(rows, axis=1)))


OURS = {
    "dubito TemperatureScaling": method(TemperatureScaling),
    "dubito EnsembleTemperatureScaling": method(EnsembleTemperatureScaling),
    "dubito VectorScaling": method(lambda: VectorScaling(1.0, input="log_proba")),
    "dubito MatrixScaling": method(lambda: MatrixScaling(input="log_proba")),
    "dubito StructuredMatrixScaling": method(lambda: StructuredMatrixScaling(regularization=1.0)),
    "dubito ForestCalibration": method(ForestCalibration),
    "dubito PlattScaling": method(PlattScaling, is_binary=True),
    "dubito BetaCalibration": method(BetaCalibration, is_binary=True),
    "dubito HistogramBinning": method(HistogramBinning, is_binary=True),
    "dubito IsotonicCalibration": method(IsotonicCalibration, is_binary=True),
    "dubito AutoCalibrator": method(AutoCalibrator),
    "dubito AutoCalibrator, mixture": method(lambda: AutoCalibrator(max_parts=None)),
}
BASELINES = {
    "none": Method(fit_identity, unchanged, "scipy"),
    "float64 reference": temperature_method(exact_temperature),
}
