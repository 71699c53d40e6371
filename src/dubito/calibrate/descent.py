"""L-BFGS: the least of a smooth convex loss, from a guess of its curvature."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from dubito.arrays import FloatArray

__all__ = ["descend"]

MOST_ROUNDS = 500
MOST_PAIRS = 20  # steps that are remembered
SHORTEST = 1e-12  # part of a step; below, rounding hides what is gained
LEAST_GAIN = 1e-4  # of what the slope promises, for a step to be taken


class Pair(NamedTuple):
    """A step and by how much it changed the slope."""

    step: FloatArray
    change: FloatArray
    product: float


def descend(
    loss: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    guess: Callable[[FloatArray], FloatArray],
    close: float,
) -> FloatArray:
    """Return where a loss is least, to about `close`.

    `loss` gives value and slope, `guess` the inverse curvature times a slope, as known beforehand;
    what steps show of the curvature is put on top.

    >>> import numpy as np
    >>> bowl = lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3))
    >>> descend(bowl, np.zeros(2), lambda slope: slope / 3, 1e-12).round(4).tolist()
    [3.0, 3.0]
    """
    x, (value, slope) = start, loss(start)
    pairs: deque[Pair] = deque(maxlen=MOST_PAIRS)
    for _ in range(MOST_ROUNDS):
        step = -inverse_times(slope, pairs, guess)
        promise = -float((slope * step).sum())
        if promise < 2 * close:
            break
        length = 1.0
        tried, new_slope = loss(x + step)
        while tried > value - LEAST_GAIN * length * promise and length > SHORTEST:
            bend = tried - value + length * promise  # of the parabola through what is known
            length *= min(max(0.5 * length * promise / bend, 0.1), 0.5)
            tried, new_slope = loss(x + length * step)
        if not tried < value:
            break
        change = new_slope - slope
        product = length * float((step * change).sum())
        if product > 0:
            pairs.append(Pair(length * step, change, product))
        x, value, slope = x + length * step, tried, new_slope
    return x


def inverse_times(
    slope: FloatArray, pairs: deque[Pair], guess: Callable[[FloatArray], FloatArray]
) -> FloatArray:
    """Return the inverse curvature times a slope: the guess, corrected by every pair."""
    shares = []
    for step, change, product in reversed(pairs):
        shares.append(float((step * slope).sum()) / product)
        slope = slope - shares[-1] * change
    result = guess(slope)
    for (step, change, product), share in zip(pairs, reversed(shares), strict=True):
        result = result + (share - float((change * result).sum()) / product) * step
    return result
