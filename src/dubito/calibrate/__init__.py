"""What is the honest probability?"""

from dubito.calibrate.auto import AutoCalibrator
from dubito.calibrate.beta import BetaScaling
from dubito.calibrate.calibrator import AbstractCalibrator
from dubito.calibrate.candidates import AsItCame
from dubito.calibrate.classifier import CalibratedClassifier
from dubito.calibrate.forest import ForestCalibration
from dubito.calibrate.histogram import HistogramBinning
from dubito.calibrate.isotonic import IsotonicCalibration
from dubito.calibrate.matrix import MatrixScaling, StructuredMatrixScaling
from dubito.calibrate.mixture import TemperatureMixture
from dubito.calibrate.one_vs_rest import OneVsRest, OneVsRestCounts
from dubito.calibrate.platt import PlattScaling
from dubito.calibrate.quantile_recalibration import QuantileRecalibration
from dubito.calibrate.refinement import RefinementSplit, refinement_split
from dubito.calibrate.regression import VarianceScaling
from dubito.calibrate.temperature import TemperatureScaling
from dubito.calibrate.vector import VectorScaling

__all__ = [
    "AbstractCalibrator",
    "AsItCame",
    "AutoCalibrator",
    "BetaScaling",
    "CalibratedClassifier",
    "ForestCalibration",
    "HistogramBinning",
    "IsotonicCalibration",
    "MatrixScaling",
    "OneVsRest",
    "OneVsRestCounts",
    "PlattScaling",
    "QuantileRecalibration",
    "RefinementSplit",
    "StructuredMatrixScaling",
    "TemperatureMixture",
    "TemperatureScaling",
    "VarianceScaling",
    "VectorScaling",
    "refinement_split",
]
