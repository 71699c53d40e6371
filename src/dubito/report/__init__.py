"""Reports as one HTML page, and plots with matplotlib."""

from dubito.report.comparison import comparison_report, drift_report
from dubito.report.content import Section, Verdict
from dubito.report.displays.areas import (
    DecisionRegionDisplay,
    ErrorAreasDisplay,
    MinkowskiDisplay,
    UncertaintyMapDisplay,
)
from dubito.report.displays.curves import CostDisplay, ReliabilityDisplay, RiskCoverageDisplay
from dubito.report.forecasts import forecast_report
from dubito.report.page import render
from dubito.report.reports import Report, make_report

__all__ = [
    "CostDisplay",
    "DecisionRegionDisplay",
    "ErrorAreasDisplay",
    "MinkowskiDisplay",
    "ReliabilityDisplay",
    "Report",
    "RiskCoverageDisplay",
    "Section",
    "UncertaintyMapDisplay",
    "Verdict",
    "comparison_report",
    "drift_report",
    "forecast_report",
    "make_report",
    "render",
]
