"""Watching models: against each other on the same rows, and against themselves over time."""

from dubito.watch.compare import Comparison, Difference, compare
from dubito.watch.drift import Drift, drift
from dubito.watch.sequential import SequentialAlarm
from dubito.watch.shifts import Shift

__all__ = ["Comparison", "Difference", "Drift", "SequentialAlarm", "Shift", "compare", "drift"]
