"""Monitoring: model comparison on the same rows, drift between periods, sequential alarms."""

from dubito.monitor.compare import Comparison, Difference, compare
from dubito.monitor.drift import Drift, detect_drift
from dubito.monitor.forecasts import ForecastCoverage, forecast_coverage
from dubito.monitor.metrics import DistributionShift
from dubito.monitor.sequential import SequentialAlarm

__all__ = [
    "Comparison",
    "Difference",
    "DistributionShift",
    "Drift",
    "ForecastCoverage",
    "SequentialAlarm",
    "compare",
    "detect_drift",
    "forecast_coverage",
]
