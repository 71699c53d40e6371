"""What was found, shown: pictures to draw on, and reports to hand on."""

from dubito.report.blocks import Section, Verdict
from dubito.report.comparison import comparison_report, drift_report
from dubito.report.displays import (
    CostDisplay,
    DecisionRegionDisplay,
    ErrorAreasDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
    UncertaintyMapDisplay,
)
from dubito.report.page import render
from dubito.report.reports import Report, make_report

__all__ = [
    "CostDisplay",
    "DecisionRegionDisplay",
    "ErrorAreasDisplay",
    "ReliabilityDisplay",
    "Report",
    "RiskCoverageDisplay",
    "Section",
    "UncertaintyMapDisplay",
    "Verdict",
    "comparison_report",
    "drift_report",
    "make_report",
    "render",
]
