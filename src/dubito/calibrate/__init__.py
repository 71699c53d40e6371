"""Calibrators: from model outputs to calibrated probabilities and predictive distributions."""

from typing import TYPE_CHECKING, Any

from dubito.calibrate.auto import AutoCalibrator
from dubito.calibrate.binary import BetaCalibration, HistogramBinning, PlattScaling
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.confidence import ConfidenceCalibrator
from dubito.calibrate.cross_validation import (
    CalibrationEvidence,
    LossDecomposition,
    RegressionEvidence,
    cross_validate_calibrator,
    decompose_loss,
)
from dubito.calibrate.forest import ForestCalibration
from dubito.calibrate.isotonic import IsotonicCalibration
from dubito.calibrate.matrix import MatrixScaling, StructuredMatrixScaling, VectorScaling
from dubito.calibrate.multilabel import MultiLabelCalibrator
from dubito.calibrate.one_vs_rest import OneVsRest
from dubito.calibrate.quantile_recalibration import QuantileRecalibration
from dubito.calibrate.regression import VarianceScaling
from dubito.calibrate.selection import IdentityCalibrator
from dubito.calibrate.temperature import EnsembleTemperatureScaling, TemperatureScaling

if TYPE_CHECKING:
    from dubito.calibrate.classifier import CalibratedClassifier

__all__ = [
    "AutoCalibrator",
    "BaseCalibrator",
    "BetaCalibration",
    "CalibratedClassifier",
    "CalibrationEvidence",
    "ConfidenceCalibrator",
    "EnsembleTemperatureScaling",
    "ForestCalibration",
    "HistogramBinning",
    "IdentityCalibrator",
    "IsotonicCalibration",
    "LossDecomposition",
    "MatrixScaling",
    "MultiLabelCalibrator",
    "OneVsRest",
    "PlattScaling",
    "QuantileRecalibration",
    "RegressionEvidence",
    "StructuredMatrixScaling",
    "TemperatureScaling",
    "VarianceScaling",
    "VectorScaling",
    "cross_validate_calibrator",
    "decompose_loss",
]


def __getattr__(name: str) -> Any:
    if name != "CalibratedClassifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # It imports scikit-learn, which is slow.
    from dubito.calibrate.classifier import CalibratedClassifier

    return CalibratedClassifier
