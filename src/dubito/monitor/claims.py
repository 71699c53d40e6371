"""What may be said for sure, where several things are asked of the same rows at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from dubito.arrays import FloatArray
from dubito.measure.intervals import Interval

__all__ = ["holm", "normal_p_value", "plain"]


def holm(p_values: Sequence[float]) -> FloatArray:
    """Return p-values adjusted so that all claims below a level hold together at that level.

    Holm, "A simple sequentially rejective multiple test procedure", 1979: valid however the tests
    hang together.

    >>> holm([0.01, 0.04, 0.03]).tolist()
    [0.03, 0.06, 0.06]
    """
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values, kind="stable")
    scaled = values[order] * np.arange(values.size, 0, -1)
    adjusted = np.empty(values.size)
    adjusted[order] = np.minimum(np.maximum.accumulate(scaled), 1.0)
    return adjusted


def normal_p_value(interval: Interval, level: float) -> float:
    """Return the two-sided p-value of 0, of an estimate that varies as its interval says.

    >>> round(normal_p_value(Interval(1.96, 0.0, 3.92), 0.95), 3)
    0.05
    """
    error = (interval.high - interval.low) / (2 * ndtri((1 + level) / 2))
    if error == 0:
        return 1.0 if interval.value == 0 else 0.0
    return float(2 * ndtr(-abs(interval.value) / error))


def plain(value: Any) -> Any:
    """Return a value as JSON holds it: an interval by its names, what is not finite as None."""
    if isinstance(value, Interval):
        return {name: plain(getattr(value, name)) for name in ("value", "low", "high")}
    if isinstance(value, dict):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    return None if isinstance(value, float) and not np.isfinite(value) else value
