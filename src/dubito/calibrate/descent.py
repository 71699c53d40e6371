"""L-BFGS: the least of a smooth convex loss, from a guess of its curvature."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from dubito.arrays import FloatArray

__all__ = ["descend"]

MOST_ROUNDS = 500
MOST_PAIRS = 20  # steps that are remembered
SHORTEST = 1e-12  # part of a step; below, rounding hides what is gained
LEAST_GAIN = 1e-4  # of what the slope promises, for a step to be taken
LEAST_LEFT = 0.1  # of what is to be gained, that a step is trusted to leave


class Pair(NamedTuple):
    """A step and by how much it changed the slope."""

    step: FloatArray
    change: FloatArray
    product: float


def descend(
    loss: Callable[[FloatArray], tuple[float, FloatArray]],
    start: FloatArray,
    first: tuple[float, FloatArray],
    guess: Callable[[FloatArray], FloatArray],
    close: float,
) -> FloatArray:
    """Return where a loss is least, to about `close`.

    `loss` gives value and slope, `first` are those of the start, `guess` is the inverse curvature
    times a slope, as known beforehand; what steps show of the curvature is put on top. The last
    step is taken unseen, once it leaves less than `close` if it does as well as the one before.

    >>> import numpy as np
    >>> bowl = lambda x: (float((x - 3) @ (x - 3)), 2 * (x - 3))
    >>> start = np.zeros(2)
    >>> descend(bowl, start, bowl(start), lambda slope: slope / 3, 1e-12).round(4).tolist()
    [3.0, 3.0]
    """
    x, (value, slope) = start, first
    pairs: deque[Pair] = deque(maxlen=MOST_PAIRS)
    before = 0.0
    for _ in range(MOST_ROUNDS):
        step = -inverse_times(slope, pairs, guess)
        promise = -float(np.vdot(slope, step))
        left = min(max(promise / before, LEAST_LEFT), 1.0) if before > 0 else 1.0
        if promise * left < 2 * close:
            return x + step
        before = promise
        length = 1.0
        tried, new_slope = loss(x + step)
        while tried > value - LEAST_GAIN * length * promise and length > SHORTEST:
            bend = tried - value + length * promise  # of the parabola through what is known
            length *= min(max(0.5 * length * promise / bend, 0.1), 0.5)
            tried, new_slope = loss(x + length * step)
        if not tried < value:
            break
        change = new_slope - slope
        product = length * float(np.vdot(step, change))
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
        shares.append(float(np.vdot(step, slope)) / product)
        slope = slope - shares[-1] * change
    result = guess(slope)
    for (step, change, product), share in zip(pairs, reversed(shares), strict=True):
        result = result + (share - float(np.vdot(change, result)) / product) * step
    return result
