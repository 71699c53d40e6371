"""What was found, shown: pictures to draw on, and reports to hand on."""

from dubito.report.blocks import Section, Verdict
from dubito.report.displays import (
    CostDisplay,
    DecisionRegionDisplay,
    DoubtMapDisplay,
    ErrorAreasDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
)
from dubito.report.page import render
from dubito.report.reports import Report, report
from dubito.report.watching import comparison_report, drift_report

__all__ = [
    "CostDisplay",
    "DecisionRegionDisplay",
    "DoubtMapDisplay",
    "ErrorAreasDisplay",
    "ReliabilityDisplay",
    "Report",
    "RiskCoverageDisplay",
    "Section",
    "Verdict",
    "comparison_report",
    "drift_report",
    "render",
    "report",
]
