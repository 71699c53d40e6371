"""Plots drawn with matplotlib, in the way of scikit-learn's displays."""

from dubito.report.displays.areas import (
    DecisionRegionDisplay,
    ErrorAreasDisplay,
    UncertaintyMapDisplay,
)
from dubito.report.displays.curves import CostDisplay, ReliabilityDisplay, RiskCoverageDisplay

__all__ = [
    "CostDisplay",
    "DecisionRegionDisplay",
    "ErrorAreasDisplay",
    "ReliabilityDisplay",
    "RiskCoverageDisplay",
    "UncertaintyMapDisplay",
]
