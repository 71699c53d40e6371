"""Measure: is the confidence calibrated?"""

from dubito.measure.audit import Audit, audit
from dubito.measure.audit_state import AuditState, BootstrapState
from dubito.measure.binary import BinaryAudit, Confusion, Decile, confusion_at
from dubito.measure.calibration_error import (
    ClasswiseCalibrationState,
    ReliabilityCurve,
    ReliabilityState,
    classwise_calibration_error,
    debiased_calibration_error,
    expected_calibration_error,
    maximum_calibration_error,
    reliability_curve,
)
from dubito.measure.calibration_test import (
    CalibrationTest,
    CalibrationTestState,
    SmoothCalibrationErrorState,
    calibration_test,
    smooth_calibration_error,
)
from dubito.measure.detection import (
    RankingState,
    average_precision,
    false_positive_rate_at_recall,
    roc_auc,
)
from dubito.measure.groups import Disparity, GroupComparison
from dubito.measure.intervals import Interval, confidence_interval, get_scorer, paired_difference
from dubito.measure.multilabel import MultiLabelAudit, MultiLabelState
from dubito.measure.pixels import PixelShards
from dubito.measure.proper_scores import ProperScoresState, accuracy, brier_score, log_loss
from dubito.measure.regression import (
    continuous_ranked_probability_score,
    interval_coverage,
    interval_score,
    minkowski_loss,
    negative_log_likelihood,
    pinball_loss,
    probability_integral_transform,
    sharpness,
)
from dubito.measure.regression_audit import RegressionAudit, RegressionState
from dubito.measure.selective import (
    RiskCoverageCurve,
    area_under_generalized_risk_coverage,
    area_under_risk_coverage,
    coverage_at_risk,
    excess_area_under_risk_coverage,
    risk_coverage_curve,
)
from dubito.measure.state import GroupedState, State

__all__ = [
    "Audit",
    "AuditState",
    "BinaryAudit",
    "BootstrapState",
    "CalibrationTest",
    "CalibrationTestState",
    "ClasswiseCalibrationState",
    "Confusion",
    "Decile",
    "Disparity",
    "GroupComparison",
    "GroupedState",
    "Interval",
    "MultiLabelAudit",
    "MultiLabelState",
    "PixelShards",
    "ProperScoresState",
    "RankingState",
    "RegressionAudit",
    "RegressionState",
    "ReliabilityCurve",
    "ReliabilityState",
    "RiskCoverageCurve",
    "SmoothCalibrationErrorState",
    "State",
    "accuracy",
    "area_under_generalized_risk_coverage",
    "area_under_risk_coverage",
    "audit",
    "average_precision",
    "brier_score",
    "calibration_test",
    "classwise_calibration_error",
    "confidence_interval",
    "confusion_at",
    "continuous_ranked_probability_score",
    "coverage_at_risk",
    "debiased_calibration_error",
    "excess_area_under_risk_coverage",
    "expected_calibration_error",
    "false_positive_rate_at_recall",
    "get_scorer",
    "interval_coverage",
    "interval_score",
    "log_loss",
    "maximum_calibration_error",
    "minkowski_loss",
    "negative_log_likelihood",
    "paired_difference",
    "pinball_loss",
    "probability_integral_transform",
    "reliability_curve",
    "risk_coverage_curve",
    "roc_auc",
    "sharpness",
    "smooth_calibration_error",
]
