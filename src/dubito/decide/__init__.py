"""From probabilities to the action of lowest expected cost, rejecting included."""

from typing import TYPE_CHECKING, Any

from dubito.decide.actions import (
    ActionInterval,
    action_intervals,
    expected_costs,
    optimal_actions,
    unused_actions,
)
from dubito.decide.answerers import Answerer, estimate_confusion
from dubito.decide.cascade import Cascade, CascadeDecisions, CascadeReport
from dubito.decide.combine import (
    ConditionalIndependenceTest,
    LinearPool,
    LogLinearPool,
    combine_posteriors,
    conditional_independence_test,
)
from dubito.decide.costs import CostMatrix
from dubito.decide.minkowski import MinkowskiCurve, minkowski_curve
from dubito.decide.multilabel.label_costs import FBeta, LabelCosts
from dubito.decide.multilabel.label_decisions import MultiLabelDecisions, MultiLabelPolicyReport
from dubito.decide.multilabel.label_policy import MultiLabelPolicy
from dubito.decide.policy.decide import Decisions
from dubito.decide.policy.gate import OODGate, RiskBound
from dubito.decide.policy.loading import load_policy, policy_from_json
from dubito.decide.policy.policy import Policy
from dubito.decide.policy.report import PolicyReport
from dubito.decide.policy.table import write_decisions
from dubito.decide.priors import PriorEstimate, adjust_prior, estimate_prior
from dubito.decide.realized import (
    CostCoverageCurve,
    CostPriorCurve,
    cost_coverage_curve,
    cost_prior_curve,
    realized_cost,
)
from dubito.decide.regions import (
    DecisionRegions,
    ErrorAreas,
    IntervalDecision,
    decision_regions,
    error_areas,
)
from dubito.decide.regression.error_costs import ErrorCosts
from dubito.decide.regression.estimates import (
    RegressionDecision,
    SquaredLossDecomposition,
    decompose_squared_loss,
    estimate_or_reject,
    minimum_expected_loss,
    minkowski_estimate,
    newsvendor_estimate,
)
from dubito.decide.regression.regression_policy import RegressionPolicy
from dubito.decide.regression.value_decisions import RegressionDecisions, RegressionPolicyReport
from dubito.decide.reject import (
    ThresholdChoice,
    choose_threshold,
    reject_by_threshold,
    reject_threshold,
)
from dubito.decide.review import Reviewer, ReviewTeam
from dubito.decide.review_planning import ReviewPlan, ReviewQueue
from dubito.decide.value import CostReport, CostSavings, cost_report, cost_savings, expected_risk

if TYPE_CHECKING:
    from dubito.decide.classifier import CostSensitiveClassifier

__all__ = [
    "ActionInterval",
    "Answerer",
    "Cascade",
    "CascadeDecisions",
    "CascadeReport",
    "ConditionalIndependenceTest",
    "CostCoverageCurve",
    "CostMatrix",
    "CostPriorCurve",
    "CostReport",
    "CostSavings",
    "CostSensitiveClassifier",
    "DecisionRegions",
    "Decisions",
    "ErrorAreas",
    "ErrorCosts",
    "FBeta",
    "IntervalDecision",
    "LabelCosts",
    "LinearPool",
    "LogLinearPool",
    "MinkowskiCurve",
    "MultiLabelDecisions",
    "MultiLabelPolicy",
    "MultiLabelPolicyReport",
    "OODGate",
    "Policy",
    "PolicyReport",
    "PriorEstimate",
    "RegressionDecision",
    "RegressionDecisions",
    "RegressionPolicy",
    "RegressionPolicyReport",
    "ReviewPlan",
    "ReviewQueue",
    "ReviewTeam",
    "Reviewer",
    "RiskBound",
    "SquaredLossDecomposition",
    "ThresholdChoice",
    "action_intervals",
    "adjust_prior",
    "choose_threshold",
    "combine_posteriors",
    "conditional_independence_test",
    "cost_coverage_curve",
    "cost_prior_curve",
    "cost_report",
    "cost_savings",
    "decision_regions",
    "decompose_squared_loss",
    "error_areas",
    "estimate_confusion",
    "estimate_or_reject",
    "estimate_prior",
    "expected_costs",
    "expected_risk",
    "load_policy",
    "minimum_expected_loss",
    "minkowski_curve",
    "minkowski_estimate",
    "newsvendor_estimate",
    "optimal_actions",
    "policy_from_json",
    "realized_cost",
    "reject_by_threshold",
    "reject_threshold",
    "unused_actions",
    "write_decisions",
]


def __getattr__(name: str) -> Any:
    if name != "CostSensitiveClassifier":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from dubito.decide.classifier import (
        CostSensitiveClassifier,  # imports scikit-learn, which is slow
    )

    return CostSensitiveClassifier
