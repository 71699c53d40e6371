"""Watching models: against each other on the same rows, and against themselves over time."""

from dubito.monitor.compare import Comparison, Difference, compare
from dubito.monitor.drift import Drift, detect_drift
from dubito.monitor.sequential import SequentialAlarm
from dubito.monitor.shifts import DistributionShift

__all__ = [
    "Comparison",
    "Difference",
    "DistributionShift",
    "Drift",
    "SequentialAlarm",
    "compare",
    "detect_drift",
]
