"""Fewer knots for the same curve, as far as a bound allows."""

from __future__ import annotations

import numpy as np

from dubito.arrays import FloatArray, IntArray

__all__ = ["few_knots"]

AHEAD = 50  # knots looked at beyond the last one that fits, so that time grows with the knots
ROUNDING = 1e-12  # of values


def few_knots(x: FloatArray, y: FloatArray, bound: float) -> IntArray:
    """Return which knots of a curve to keep, so that it differs nowhere by more than `bound`.

    Greedy: from each knot kept, a straight line goes on to the furthest knot that it can reach
    while it passes all knots between within the bound. The ends, and so all extremes of a rising
    curve, stay.

    >>> few_knots(np.array([0.0, 1.0, 2.0, 3.0]), np.array([0.0, 0.1, 0.2, 0.9]), 0.01).tolist()
    [0, 2, 3]
    """
    bound = max(bound - ROUNDING, 0.0)
    places, values = x.tolist(), y.tolist()
    kept = [0]
    while kept[-1] < len(places) - 1:
        kept.append(furthest(places, values, kept[-1], bound))
    return np.array(kept)


def furthest(places: list[float], values: list[float], start: int, bound: float) -> int:
    """Return the furthest knot that a line from another one reaches within the bound."""
    found, least, most = start + 1, -np.inf, np.inf  # slopes that pass all knots so far
    for k in range(start + 1, len(places)):
        away = places[k] - places[start]
        rise = values[k] - values[start]
        if least <= rise / away <= most:
            found = k
        least, most = max(least, (rise - bound) / away), min(most, (rise + bound) / away)
        if least > most or k - found > AHEAD:
            break
    return found
