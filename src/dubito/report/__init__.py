"""Reports as one HTML page, and plots with matplotlib."""

from dubito.report.comparison import comparison_report, drift_report
from dubito.report.content import Section, Verdict, render
from dubito.report.displays import (
    CostDisplay,
    DecisionRegionDisplay,
    ErrorAreasDisplay,
    MinkowskiDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
    UncertaintyMapDisplay,
)
from dubito.report.forecasts import forecast_report
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
