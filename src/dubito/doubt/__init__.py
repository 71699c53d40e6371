"""What the model does not know, and why: scores where larger always means more uncertain."""

from typing import Any

from dubito.doubt.activations import (
    ActivationPatterns,
    RayConfidence,
    SoftmaxDecomposition,
    activation_patterns,
    familiarity,
    feature_norm,
    mental_model,
    negative_feature_norm,
    ray_confidence,
    softmax_decomposition,
    unfamiliarity,
)
from dubito.doubt.conformal.classifier import ConformalClassifier, PredictionSets, SetDiagnosis
from dubito.doubt.conformal.conditional_coverage import ConditionalCoverage, conditional_coverage
from dubito.doubt.conformal.online import OnlineConformal
from dubito.doubt.conformal.predictive_system import (
    ConformalPredictiveSystem,
    PredictiveDistributions,
)
from dubito.doubt.conformal.predictor import DensityRatio, estimate_density_ratio
from dubito.doubt.conformal.regressor import ConformalRegressor, PredictionIntervals
from dubito.doubt.conformal.risk_control import MultiLabelRiskControl, RiskControl
from dubito.doubt.densities import ClassConditionalDensity, JointDensity
from dubito.doubt.diagnosis import OODDiagnosis, diagnose_ood
from dubito.doubt.ensembles import UncertaintyDecomposition, Vote, decompose_uncertainty, vote
from dubito.doubt.feature_distances import MahalanobisDistance, NearestNeighborDistance
from dubito.doubt.laplace import BayesianLogisticRegression, laplace_last_layer
from dubito.doubt.last_layer import SCALE, DecisionBoundaryDistance, ReAct, VirtualLogitMatching
from dubito.doubt.outliers import ConformalOutlierDetector
from dubito.doubt.scores import (
    LabelUncertainty,
    UncertaintyScores,
    energy,
    entropy,
    generalized_entropy,
    label_uncertainty,
    least_confidence,
    margin_uncertainty,
    uncertainty_scores,
)

__all__ = [
    "ActivationPatterns",
    "BayesianLogisticRegression",
    "ClassConditionalDensity",
    "ConditionalCoverage",
    "ConformalClassifier",
    "ConformalOutlierDetector",
    "ConformalPredictiveSystem",
    "ConformalRegressor",
    "DecisionBoundaryDistance",
    "DensityRatio",
    "JackknifePlusRegressor",
    "JointDensity",
    "LabelUncertainty",
    "MahalanobisDistance",
    "MultiLabelRiskControl",
    "NearestNeighborDistance",
    "OODDiagnosis",
    "OnlineConformal",
    "PredictionIntervals",
    "PredictionSets",
    "PredictiveDistributions",
    "RayConfidence",
    "ReAct",
    "RiskControl",
    "SCALE",
    "SetDiagnosis",
    "SoftmaxDecomposition",
    "UncertaintyDecomposition",
    "UncertaintyScores",
    "VirtualLogitMatching",
    "Vote",
    "activation_patterns",
    "conditional_coverage",
    "decompose_uncertainty",
    "diagnose_ood",
    "energy",
    "entropy",
    "estimate_density_ratio",
    "familiarity",
    "feature_norm",
    "generalized_entropy",
    "label_uncertainty",
    "laplace_last_layer",
    "least_confidence",
    "margin_uncertainty",
    "mental_model",
    "negative_feature_norm",
    "ray_confidence",
    "softmax_decomposition",
    "uncertainty_scores",
    "unfamiliarity",
    "vote",
]


def __getattr__(name: str) -> Any:
    if name != "JackknifePlusRegressor":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # It imports scikit-learn, which is slow.
    from dubito.doubt.conformal.jackknife import JackknifePlusRegressor

    return JackknifePlusRegressor
