"""Curves and regions drawn with matplotlib, one class a picture, in the way of scikit-learn."""

from dubito.report.displays.costs import CostDisplay
from dubito.report.displays.error_areas import ErrorAreasDisplay
from dubito.report.displays.regions import DecisionRegionDisplay
from dubito.report.displays.reliability import ReliabilityDisplay
from dubito.report.displays.risk_coverage import RiskCoverageDisplay
from dubito.report.displays.uncertainty_maps import UncertaintyMapDisplay

__all__ = [
    "CostDisplay",
    "DecisionRegionDisplay",
    "ErrorAreasDisplay",
    "ReliabilityDisplay",
    "RiskCoverageDisplay",
    "UncertaintyMapDisplay",
]
