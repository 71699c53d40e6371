"""Intervals of differences over several seeds."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.stats import t

from dubito.measure import Interval

LEVEL = 0.95


def mean_interval(values: npt.ArrayLike) -> Interval:
    """Return the mean over seeds and its Student interval; for one seed there is none.

    For paired differences it shows whether their mean has a significant sign.

    >>> print(mean_interval([0.01, 0.02, 0.03]))
    0.0200 (-0.0048 to 0.0448)
    """
    array = np.asarray(values, dtype=float)
    mean = float(array.mean())
    if array.size < 2:
        return Interval(mean, -np.inf, np.inf)
    half = t.ppf((1 + LEVEL) / 2, array.size - 1) * array.std(ddof=1) / np.sqrt(array.size)
    return Interval(mean, float(mean - half), float(mean + half))


def mean_and_interval(values: npt.ArrayLike) -> str:
    """Format the mean over seeds with its Student interval, if there are several.

    >>> mean_and_interval([0.01, 0.02, 0.03]), mean_and_interval([0.01])
    ('0.0200 (-0.0048 to 0.0448)', '0.0100')
    """
    found = mean_interval(values)
    if np.isinf(found.low):
        return f"{found.value:z.4f}"
    return f"{found.value:z.4f} ({found.low:z.4f} to {found.high:z.4f})"


def points(interval: Interval) -> str:
    """Format a difference of proportions in percentage points, with its interval if any.

    >>> points(mean_interval([0.01, 0.02, 0.03])), points(mean_interval([0.01]))
    ('+2.00 (-0.48 to +4.48)', '+1.00')
    """
    text = f"{100 * interval.value:+.2f}"
    if np.isinf(interval.low):
        return text
    return f"{text} ({100 * interval.low:+.2f} to {100 * interval.high:+.2f})"
