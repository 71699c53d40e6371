"""dubito's calibrators as contestants, beside those that do nothing and that do it exactly."""

from collections.abc import Callable

import numpy as np
from scipy.special import softmax

from benchmarks.peers import Contestant, Fitted, as_they_are, by_temperature
from benchmarks.recipes import exact_temperature
from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
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

__all__ = ["OURS", "YARDSTICKS"]


def contestant(make: Callable[[], BaseCalibrator], is_binary: bool = False) -> Contestant:
    """Return a calibrator of ours as a contestant.

    One of two classes takes more of them by taking each against the rest.
    """

    def fit(outputs: Logits, y: IntArray) -> Fitted:
        is_split = is_binary and outputs.n_classes > 2
        calibrator = (OneVsRest(make()) if is_split else make()).fit(outputs, y)
        return Fitted(calibrator.predict_proba, getattr(calibrator, "temperature_", None))

    return Contestant(fit, Logits, "dubito")


def fit_nothing(logits: FloatArray, y: IntArray) -> Fitted:
    """Leave the outputs as they are."""
    return Fitted(lambda rows: np.asarray(softmax(rows, axis=1)))


OURS = {
    "dubito TemperatureScaling": contestant(TemperatureScaling),
    "dubito EnsembleTemperatureScaling": contestant(EnsembleTemperatureScaling),
    "dubito VectorScaling": contestant(lambda: VectorScaling(regularization=1.0)),
    "dubito MatrixScaling": contestant(MatrixScaling),
    "dubito StructuredMatrixScaling": contestant(
        lambda: StructuredMatrixScaling(regularization=1.0)
    ),
    "dubito ForestCalibration": contestant(ForestCalibration),
    "dubito PlattScaling": contestant(PlattScaling, is_binary=True),
    "dubito BetaCalibration": contestant(BetaCalibration, is_binary=True),
    "dubito HistogramBinning": contestant(HistogramBinning, is_binary=True),
    "dubito IsotonicCalibration": contestant(IsotonicCalibration, is_binary=True),
    "dubito AutoCalibrator": contestant(AutoCalibrator),
}
YARDSTICKS = {
    "none": Contestant(fit_nothing, as_they_are, "scipy"),
    "float64 reference": by_temperature(exact_temperature),
}
