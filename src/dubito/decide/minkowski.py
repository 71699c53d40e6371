"""The number with the least expected |y - t|^q under a distribution made of points and pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import numpy as np

from dubito.arrays import BoolArray, FloatArray
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.outputs import Quantiles, Samples

__all__ = ["LeastPower", "Pieces", "least_powers"]

NARROW = 1e-5  # a piece this narrow beside its distance is a point, to 1e-10 of its share
N_HALVINGS = 54  # as many as a float64 has digits
N_BETWEEN = 8  # candidates a piece, where the expected loss has several valleys
BLOCK_ENTRIES = 1 << 16  # searched many times over, so they should stay in the cache
GOLDEN = (np.sqrt(5) - 1) / 2


@final
@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """A distribution a row: the share `weight` lies evenly between `low` and `high`.

    Points have no width. Scaled so that `values`, the draws or quantiles in rising order, go from
    0 to 1 and no distance overflows: twice `half` is their range.
    """

    low: FloatArray
    high: FloatArray
    weight: FloatArray
    values: FloatArray
    half: FloatArray

    @classmethod
    def of(cls, outputs: Samples | Quantiles) -> Pieces:
        """Draws are points of equal share; between quantiles the density is even.

        Beyond the outermost quantiles it goes on as between the last two, but no further than the
        range of all.
        """
        values = np.moveaxis(outputs.array.astype(np.float64), 1, -1)
        values = np.sort(values.reshape(-1, values.shape[-1]), axis=1)
        half = values[:, -1] / 2 - values[:, 0] / 2
        shifted = values / 2 - values[:, :1] / 2
        scaled = shifted / np.where(half > 0, half, 1.0)[:, np.newaxis]
        if isinstance(outputs, Samples):
            n_draws = values.shape[1]
            return cls(scaled, scaled, np.full(n_draws, 1 / n_draws), values, half)
        share = np.diff(outputs.levels.astype(np.float64), prepend=0.0, append=1.0)
        first, last = scaled[:, :1], scaled[:, -1:]
        if scaled.shape[1] > 1:
            first = -np.minimum(scaled[:, 1:2] * (share[0] / share[1]), 1.0)
            last = 1 + np.minimum((1 - scaled[:, -2:-1]) * (share[-1] / share[-2]), 1.0)
            is_flat = (half <= 0)[:, np.newaxis]
            first, last = np.where(is_flat, 0.0, first), np.where(is_flat, 0.0, last)
        low = np.concatenate([first, scaled], axis=1)
        return cls(low, np.concatenate([scaled, last], axis=1), share, values, half)

    @property
    def is_points(self) -> bool:
        """Whether no piece has a width."""
        return self.high is self.low

    def take(self, rows: slice) -> Pieces:
        """Return a range of rows."""
        low = self.low[rows]
        high = low if self.is_points else self.high[rows]
        return Pieces(low, high, self.weight, self.values[rows], self.half[rows])

    def unscaled(self, t: FloatArray) -> FloatArray:
        """Return values in the unit of the target; what is at a draw is that draw, to the bit."""
        is_here = self.high[:, : self.values.shape[1]] == t[:, np.newaxis]
        here = np.take_along_axis(self.values, is_here.argmax(axis=1)[:, np.newaxis], axis=1)
        with np.errstate(over="ignore"):
            between = self.values[:, 0] + self.half * t + self.half * t
        most = np.finfo(np.float64).max
        return np.where(is_here.any(axis=1), here[:, 0], np.clip(between, -most, most))

    def furthest(self, t: FloatArray) -> FloatArray:
        """Return how far the furthest end lies from each t; 1 where there is but one point."""
        reach = np.maximum(t - self.low[:, 0], self.high[:, -1] - t)
        return np.where(reach > 0, reach, 1.0)

    def quantile(self, level: float) -> FloatArray:
        """Return the scaled value that the share `level` lies below, at draws or between levels."""
        reached = np.cumsum(self.weight)
        # Shares that equal the wish but for rounding reach it.
        piece = min(int(np.searchsorted(reached, level - 1e-12)), reached.size - 1)
        if self.is_points:
            return self.low[:, piece]
        before = reached[piece] - self.weight[piece]
        share = float(np.clip((level - before) / self.weight[piece], 0, 1))
        share = 1.0 if share > 1 - 1e-9 else share
        return np.asarray(self.low[:, piece] * (1 - share) + self.high[:, piece] * share)


@final
@dataclass(frozen=True, slots=True, eq=False)
class LeastPower:
    """Where the expected |y - t|^q is least, and how much it is there."""

    estimate: FloatArray
    loss: FloatArray


def least_powers(pieces: Pieces, q: float) -> LeastPower:
    """Return the best estimate of each row: mean and median at once, else by search."""
    blocks = row_blocks(pieces.low.shape[0], pieces.weight.size, BLOCK_ENTRIES)
    found = map_in_order(lambda rows: least_of_block(pieces.take(rows), q), blocks)
    parts = list(found) or [least_of_block(pieces, q)]
    return LeastPower(
        np.concatenate([part.estimate for part in parts]),
        np.concatenate([part.loss for part in parts]),
    )


def least_of_block(pieces: Pieces, q: float) -> LeastPower:
    """Return the best estimates of a few rows."""
    t = best_of_block(pieces, q)
    # Distances are measured in the largest one, as powers of small ones vanish.
    reach = pieces.furthest(t)
    with np.errstate(over="ignore"):  # a loss beyond the largest float is infinite
        unit = (2 * (pieces.half * reach)) ** q
    return LeastPower(pieces.unscaled(t), unit * mean_power(pieces, t, q, reach))


def best_of_block(pieces: Pieces, q: float) -> FloatArray:
    """Return the scaled best estimates of a few rows."""
    if q == 2:
        return np.asarray(((pieces.low + pieces.high) / 2) @ pieces.weight)
    if q == 1 and pieces.is_points:
        return np.asarray(np.median(pieces.low, axis=1))
    if q == 1:
        return pieces.quantile(0.5)
    return where_slope_turns(pieces, q) if q > 1 else deepest_valley(pieces, q)


def mean_power(pieces: Pieces, t: FloatArray, q: float, unit: FloatArray | float) -> FloatArray:
    """Return the expected (|y - t| / unit)^q of each row."""
    scale = np.asarray(unit)[..., np.newaxis]
    low = (pieces.low - t[:, np.newaxis]) / scale
    if pieces.is_points:
        return np.asarray(np.abs(low) ** q @ pieces.weight)
    high = (pieces.high - t[:, np.newaxis]) / scale
    is_point, width, middle = shape_of(low, high)
    between = (high * np.abs(high) ** q - low * np.abs(low) ** q) / ((q + 1) * width)
    return np.asarray(np.where(is_point, np.abs(middle) ** q, between) @ pieces.weight)


def slope(pieces: Pieces, t: FloatArray, q: float) -> FloatArray:
    """Return how the expected |y - t|^q changes with t, up to a positive factor."""
    reach = pieces.furthest(t)[:, np.newaxis]
    low = (pieces.low - t[:, np.newaxis]) / reach
    if pieces.is_points:
        return np.asarray(-np.sign(low) * np.abs(low) ** (q - 1) @ pieces.weight)
    high = (pieces.high - t[:, np.newaxis]) / reach
    is_point, width, middle = shape_of(low, high)
    between = (np.abs(low) ** q - np.abs(high) ** q) / width
    point = -q * np.sign(middle) * np.abs(middle) ** (q - 1)
    return np.asarray(np.where(is_point, point, between) @ pieces.weight)


def shape_of(low: FloatArray, high: FloatArray) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Return which pieces are as good as points, their widths (1 for points) and middles."""
    width, middle = high - low, (high + low) / 2
    is_point = width <= NARROW * np.abs(middle)
    return is_point, np.where(is_point, 1.0, width), middle


def where_slope_turns(pieces: Pieces, q: float) -> FloatArray:
    """Return the only minimum of a convex loss, by halving."""
    t, step = pieces.low[:, 0], pieces.high[:, -1] - pieces.low[:, 0]
    for _ in range(N_HALVINGS):
        step = step / 2
        t = np.where(slope(pieces, t + step, q) < 0, t + step, t)
    return np.asarray(t + step / 2)


def candidates_of(pieces: Pieces) -> FloatArray:
    """Return where the least of a loss with several valleys is looked for, in rising order.

    Between points such a loss is concave, so that its least is at a point.
    """
    if pieces.is_points:
        return pieces.low
    left, right = pieces.low[..., np.newaxis], pieces.high[..., np.newaxis]
    inside = left + (right - left) * (np.arange(N_BETWEEN) / N_BETWEEN)
    return np.concatenate([inside.reshape(left.shape[0], -1), pieces.high[:, -1:]], axis=1)


def deepest_valley(pieces: Pieces, q: float) -> FloatArray:
    """Return the best of all candidates, and inside a piece the least near it."""
    candidates = candidates_of(pieces)
    losses = np.stack([mean_power(pieces, t, q, 1.0) for t in candidates.T], axis=1)
    best = losses.argmin(axis=1)[:, np.newaxis]
    start: FloatArray = np.take_along_axis(candidates, best, axis=1)[:, 0]
    if pieces.is_points:
        return start
    last = candidates.shape[1] - 1
    left = np.take_along_axis(candidates, np.maximum(best - 1, 0), axis=1)[:, 0]
    right = np.take_along_axis(candidates, np.minimum(best + 1, last), axis=1)[:, 0]
    found = golden_section(lambda t: mean_power(pieces, t, q, 1.0), left, right)
    is_better = mean_power(pieces, found, q, 1.0) < losses.min(axis=1)
    return np.where(is_better, found, start)


def golden_section(
    loss: Callable[[FloatArray], FloatArray], left: FloatArray, right: FloatArray
) -> FloatArray:
    """Return where a loss with one valley between two ends is least, to 1e-8 of their distance."""
    for _ in range(40):
        gap = GOLDEN * (right - left)
        inner_left, inner_right = right - gap, left + gap
        is_left = loss(inner_left) < loss(inner_right)
        left, right = np.where(is_left, left, inner_left), np.where(is_left, inner_right, right)
    return np.asarray((left + right) / 2)
