"""How far is stated confidence from truth?"""

from dubito.measure.audit import Audit, AuditState, audit
from dubito.measure.calibration_error import (
    ReliabilityCurve,
    ReliabilityState,
    expected_calibration_error,
    maximum_calibration_error,
    reliability_curve,
)
from dubito.measure.proper_scores import (
    ProperScores,
    ProperScoresState,
    accuracy,
    brier_score,
    log_loss,
)
from dubito.measure.state import State

__all__ = [
    "Audit",
    "AuditState",
    "ProperScores",
    "ProperScoresState",
    "ReliabilityCurve",
    "ReliabilityState",
    "State",
    "accuracy",
    "audit",
    "brier_score",
    "expected_calibration_error",
    "log_loss",
    "maximum_calibration_error",
    "reliability_curve",
]
