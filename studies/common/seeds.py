"""What several seeds say together of a difference that each of them shows."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.stats import t

from dubito.measure import Interval

LEVEL = 0.95


def mean_interval(values: npt.ArrayLike) -> Interval:
    """Return the mean over seeds and Student's interval of it; of one seed, no interval at all.

    Of paired differences it tells whether the next seed is likely to show the same sign on average.

    >>> print(mean_interval([0.01, 0.02, 0.03]))
    0.0200 (-0.0048 to 0.0448)
    """
    array = np.asarray(values, dtype=float)
    mean = float(array.mean())
    if array.size < 2:
        return Interval(mean, -np.inf, np.inf)
    half = t.ppf((1 + LEVEL) / 2, array.size - 1) * array.std(ddof=1) / np.sqrt(array.size)
    return Interval(mean, float(mean - half), float(mean + half))


def points(interval: Interval) -> str:
    """Return a difference of shares in percentage points, with its interval if it has one.

    >>> points(mean_interval([0.01, 0.02, 0.03])), points(mean_interval([0.01]))
    ('+2.00 (-0.48 to +4.48)', '+1.00')
    """
    text = f"{100 * interval.value:+.2f}"
    if np.isinf(interval.low):
        return text
    return f"{text} ({100 * interval.low:+.2f} to {100 * interval.high:+.2f})"
