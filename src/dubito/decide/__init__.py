"""From probabilities to the action that costs least, asking a person included."""

from dubito.decide.actions import LeastCosts, expected_costs, least_cost_actions, least_costs
from dubito.decide.classifier import CostSensitiveClassifier
from dubito.decide.combine import combine_posteriors
from dubito.decide.cost_curves import (
    CostCoverageCurve,
    CostPriorCurve,
    cost_coverage_curve,
    cost_over_priors,
)
from dubito.decide.costs import CostMatrix
from dubito.decide.deciding import write_decisions
from dubito.decide.decisions import Decisions
from dubito.decide.error_areas import ErrorAreas, IntervalDecision, error_areas
from dubito.decide.gate import DoubtGate
from dubito.decide.independence import IndependenceTest, independence_test
from dubito.decide.policy import Policy
from dubito.decide.policy_report import PolicyReport
from dubito.decide.pools import LinearPool, LogLinearPool
from dubito.decide.prior_estimates import PriorEstimate, estimate_prior
from dubito.decide.priors import adjust_prior
from dubito.decide.realised import realised_cost
from dubito.decide.regions import DecisionRegions, decision_regions
from dubito.decide.regression import (
    RegressionDecision,
    SquaredLossSplit,
    estimate_or_reject,
    least_expected_loss,
    minkowski_estimate,
    newsvendor_estimate,
    split_squared_loss,
)
from dubito.decide.reject import (
    ThresholdChoice,
    choose_threshold,
    reject_by_threshold,
    reject_threshold,
)
from dubito.decide.savings import CostSaved, cost_saved
from dubito.decide.value import CostReport, cost_report, predicted_risk

__all__ = [
    "CostCoverageCurve",
    "CostMatrix",
    "CostPriorCurve",
    "CostReport",
    "CostSaved",
    "CostSensitiveClassifier",
    "DecisionRegions",
    "Decisions",
    "DoubtGate",
    "ErrorAreas",
    "IndependenceTest",
    "IntervalDecision",
    "LeastCosts",
    "LinearPool",
    "LogLinearPool",
    "Policy",
    "PolicyReport",
    "PriorEstimate",
    "RegressionDecision",
    "SquaredLossSplit",
    "ThresholdChoice",
    "adjust_prior",
    "choose_threshold",
    "combine_posteriors",
    "cost_coverage_curve",
    "cost_over_priors",
    "cost_report",
    "cost_saved",
    "decision_regions",
    "error_areas",
    "estimate_or_reject",
    "estimate_prior",
    "expected_costs",
    "independence_test",
    "least_cost_actions",
    "least_costs",
    "least_expected_loss",
    "minkowski_estimate",
    "newsvendor_estimate",
    "predicted_risk",
    "realised_cost",
    "reject_by_threshold",
    "reject_threshold",
    "split_squared_loss",
    "write_decisions",
]
