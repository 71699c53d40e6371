"""Point decisions from a predictive distribution: the value with the lowest expected loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import gammaln, ndtri

from dubito.arrays import BoolArray, FloatArray
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.measure.regression import target_batch, values_of
from dubito.outputs import Normal, Quantiles, Samples

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


def _least_powers(pieces: Pieces, q: float) -> LeastPower:
    """Return the best estimate of each row: mean and median at once, else by search."""
    blocks = row_blocks(pieces.low.shape[0], pieces.weight.size, BLOCK_ENTRIES)
    found = map_in_order(lambda rows: _least_of_block(pieces.take(rows), q), blocks)
    parts = list(found) or [_least_of_block(pieces, q)]
    return LeastPower(
        np.concatenate([part.estimate for part in parts]),
        np.concatenate([part.loss for part in parts]),
    )


def _least_of_block(pieces: Pieces, q: float) -> LeastPower:
    """Return the best estimates of a few rows."""
    t = _best_of_block(pieces, q)
    # Distances are measured in the largest one, as powers of small ones vanish.
    reach = pieces.furthest(t)
    with np.errstate(over="ignore"):  # a loss beyond the largest float is infinite
        unit = (2 * (pieces.half * reach)) ** q
    return LeastPower(pieces.unscaled(t), unit * _mean_power(pieces, t, q, reach))


def _best_of_block(pieces: Pieces, q: float) -> FloatArray:
    """Return the scaled best estimates of a few rows."""
    if q == 2:
        return np.asarray(((pieces.low + pieces.high) / 2) @ pieces.weight)
    if q == 1 and pieces.is_points:
        return np.asarray(np.median(pieces.low, axis=1))
    if q == 1:
        return pieces.quantile(0.5)
    return _where_slope_turns(pieces, q) if q > 1 else _deepest_valley(pieces, q)


def _mean_power(pieces: Pieces, t: FloatArray, q: float, unit: FloatArray | float) -> FloatArray:
    """Return the expected (|y - t| / unit)^q of each row."""
    scale = np.asarray(unit)[..., np.newaxis]
    low = (pieces.low - t[:, np.newaxis]) / scale
    if pieces.is_points:
        return np.asarray(np.abs(low) ** q @ pieces.weight)
    high = (pieces.high - t[:, np.newaxis]) / scale
    is_point, width, middle = _shape_of(low, high)
    between = (high * np.abs(high) ** q - low * np.abs(low) ** q) / ((q + 1) * width)
    return np.asarray(np.where(is_point, np.abs(middle) ** q, between) @ pieces.weight)


def _slope(pieces: Pieces, t: FloatArray, q: float) -> FloatArray:
    """Return how the expected |y - t|^q changes with t, up to a positive factor."""
    reach = pieces.furthest(t)[:, np.newaxis]
    low = (pieces.low - t[:, np.newaxis]) / reach
    if pieces.is_points:
        return np.asarray(-np.sign(low) * np.abs(low) ** (q - 1) @ pieces.weight)
    high = (pieces.high - t[:, np.newaxis]) / reach
    is_point, width, middle = _shape_of(low, high)
    between = (np.abs(low) ** q - np.abs(high) ** q) / width
    point = -q * np.sign(middle) * np.abs(middle) ** (q - 1)
    return np.asarray(np.where(is_point, point, between) @ pieces.weight)


def _shape_of(low: FloatArray, high: FloatArray) -> tuple[BoolArray, FloatArray, FloatArray]:
    """Return which pieces are as good as points, their widths (1 for points) and middles."""
    width, middle = high - low, (high + low) / 2
    is_point = width <= NARROW * np.abs(middle)
    return is_point, np.where(is_point, 1.0, width), middle


def _where_slope_turns(pieces: Pieces, q: float) -> FloatArray:
    """Return the only minimum of a convex loss, by halving."""
    t, step = pieces.low[:, 0], pieces.high[:, -1] - pieces.low[:, 0]
    for _ in range(N_HALVINGS):
        step = step / 2
        t = np.where(_slope(pieces, t + step, q) < 0, t + step, t)
    return np.asarray(t + step / 2)


def _candidates_of(pieces: Pieces) -> FloatArray:
    """Return where the least of a loss with several valleys is looked for, in rising order.

    Between points such a loss is concave, so that its least is at a point.
    """
    if pieces.is_points:
        return pieces.low
    left, right = pieces.low[..., np.newaxis], pieces.high[..., np.newaxis]
    inside = left + (right - left) * (np.arange(N_BETWEEN) / N_BETWEEN)
    return np.concatenate([inside.reshape(left.shape[0], -1), pieces.high[:, -1:]], axis=1)


def _deepest_valley(pieces: Pieces, q: float) -> FloatArray:
    """Return the best of all candidates, and inside a piece the least near it."""
    candidates = _candidates_of(pieces)
    losses = np.stack([_mean_power(pieces, t, q, 1.0) for t in candidates.T], axis=1)
    best = losses.argmin(axis=1)[:, np.newaxis]
    start: FloatArray = np.take_along_axis(candidates, best, axis=1)[:, 0]
    if pieces.is_points:
        return start
    last = candidates.shape[1] - 1
    left = np.take_along_axis(candidates, np.maximum(best - 1, 0), axis=1)[:, 0]
    right = np.take_along_axis(candidates, np.minimum(best + 1, last), axis=1)[:, 0]
    found = _golden_section(lambda t: _mean_power(pieces, t, q, 1.0), left, right)
    is_better = _mean_power(pieces, found, q, 1.0) < losses.min(axis=1)
    return np.where(is_better, found, start)


def _golden_section(
    loss: Callable[[FloatArray], FloatArray], left: FloatArray, right: FloatArray
) -> FloatArray:
    """Return where a loss with one valley between two ends is least, to 1e-8 of their distance."""
    for _ in range(40):
        gap = GOLDEN * (right - left)
        inner_left, inner_right = right - gap, left + gap
        is_left = loss(inner_left) < loss(inner_right)
        left, right = np.where(is_left, left, inner_left), np.where(is_left, inner_right, right)
    return np.asarray((left + right) / 2)


TIE = 1e-9  # where rejecting costs this little more, it wins


@final
@dataclass(frozen=True, slots=True, eq=False)
class RegressionDecision:
    """The best estimate a row (or row and target), the loss expected of a row, who is asked."""

    estimate: FloatArray
    expected_loss: FloatArray
    is_rejected: BoolArray


@final
@dataclass(frozen=True, slots=True)
class SquaredLossDecomposition:
    """The mean squared error, the part the model calls noise, and what is left of it."""

    total: float
    noise: float
    model_error: float
    n_rows: int

    def __str__(self) -> str:
        return (
            f"The mean squared error is {self.total:.4g}: {self.noise:.4g} of noise that the model "
            f"expects, and {self.model_error:.4g} that it does not ({self.n_rows:,} rows)."
        )


def minkowski_estimate(outputs: Any, q: float) -> FloatArray:
    """Return the number t of each row whose expected |y - t|^q is least; vectors by coordinate.

    q = 2 is the mean, q = 1 the median, large q the middle of the range. As q goes to 0 it is the
    most frequent of `Samples` that repeat; of a density it comes near the mode, which it meets
    only where there is symmetry (`Normal`). Bishop, "Pattern recognition and machine learning",
    2006, section 1.5.5. `Quantiles` are spread evenly between levels, and so on beyond them.

    >>> from dubito import Samples
    >>> [float(minkowski_estimate(Samples([[0.0, 0.0, 1.0, 7.0]]), q)[0]) for q in (0.1, 1, 2)]
    [0.0, 0.5, 2.0]
    """
    return _least(outputs, q, "minkowski_estimate").estimate


def minimum_expected_loss(outputs: Any, q: float) -> FloatArray:
    """Return the expected |y - t|^q at its best t: the variance at q = 2; vectors by coordinate.

    >>> from dubito import Normal
    >>> minimum_expected_loss(Normal([5.0], [3.0]), q=2).tolist()
    [9.0]
    """
    return _least(outputs, q, "minimum_expected_loss").loss


def estimate_or_reject(outputs: Any, cost: float, q: float = 2) -> RegressionDecision:
    """Return the best estimates, and which rows cost less when a person is asked for `cost`.

    A row's loss is summed over its targets. Rejecting wins a tie.

    >>> from dubito import Normal
    >>> estimate_or_reject(Normal([5.0, 5.0], [3.0, 0.1]), cost=1.0).is_rejected.tolist()
    [True, False]
    """
    price = _as_positive(cost, "cost", "estimate_or_reject", "cost=1.0", is_zero_fine=True)
    found = _least(outputs, q, "estimate_or_reject")
    loss = found.loss if found.loss.ndim == 1 else found.loss.sum(axis=1)
    return RegressionDecision(found.estimate, loss, np.asarray(loss >= price - TIE))


def newsvendor_estimate(outputs: Any, under: float, over: float) -> FloatArray:
    """Return the number of least expected cost, each unit too low costing `under`, too high `over`.

    It is the quantile at under / (under + over); `Quantiles` must reach that far.
    Arrow, Harris and Marschak, "Optimal inventory policy", 1951.

    >>> from dubito import Normal
    >>> newsvendor_estimate(Normal([100.0], [10.0]), under=9, over=1).round(2).tolist()
    [112.82]
    """
    caller = "newsvendor_estimate"
    wrapped = _as_regression(outputs, caller)
    lost = _as_positive(under, "under", caller, "under=1.0")
    level = 1 / (1 + _as_positive(over, "over", caller, "over=1.0") / lost)
    if not 0 < level < 1:
        got, fix = f"{under!r} and {over!r}", "costs in a unit that suits both"
        raise BadValueError("under", caller, "within 1e15 of `over`", got, fix)
    if isinstance(wrapped, Normal):
        mean = wrapped.mean.astype(np.float64)
        return np.asarray(mean + wrapped.std.astype(np.float64) * ndtri(level))
    if isinstance(wrapped, Quantiles):
        _require_level(wrapped, level, caller)
    pieces = Pieces.of(wrapped)
    return _reshaped(pieces.unscaled(pieces.quantile(level)), wrapped)


def decompose_squared_loss(
    y_true: Any, outputs: Any, *, sample_weight: Any = None
) -> SquaredLossDecomposition:
    """Return the mean squared error of the mean, split into noise and model error.

    The noise is the mean variance of the predictions, as they state it; the model error is what is
    left. Below 0, the model states more noise than there is. Means are over rows, summed over
    targets. Of `Samples` the variance is that of the draws (divided by their number). Bishop,
    "Pattern recognition and machine learning", 2006, section 1.5.5.

    >>> from dubito import Normal
    >>> decompose_squared_loss([0.0, 4.0], Normal([1.0, 1.0], [2.0, 1.0])).model_error
    2.5
    """
    caller = "decompose_squared_loss"
    _as_regression(outputs, caller)
    batch = target_batch(y_true, outputs, sample_weight, caller)
    weight = batch.labeled_weight
    if not weight.sum() > 0:
        raise EmptyStateError("The split of the squared loss")
    found = _least(outputs, 2, caller)
    n_rows = weight.size
    squares = ((values_of(batch) - found.estimate) ** 2).reshape(n_rows, -1).sum(axis=1)
    total = float(np.average(squares, weights=weight))
    noise = float(np.average(found.loss.reshape(n_rows, -1).sum(axis=1), weights=weight))
    return SquaredLossDecomposition(total, noise, total - noise, int(np.count_nonzero(weight)))


def _least(outputs: Any, q: float, caller: str) -> LeastPower:
    """Return the best estimate of each row and coordinate, and its loss."""
    wrapped = _as_regression(outputs, caller)
    power = _as_positive(q, "q", caller, "q=2 for the mean, q=1 for the median")
    if isinstance(wrapped, Normal):
        return LeastPower(wrapped.mean.astype(np.float64), _normal_loss(wrapped, power))
    found = _least_powers(Pieces.of(wrapped), power)
    return LeastPower(_reshaped(found.estimate, wrapped), _reshaped(found.loss, wrapped))


def _normal_loss(outputs: Normal, q: float) -> FloatArray:
    """Return the expected |y - mean|^q of a normal distribution."""
    std = outputs.std.astype(np.float64)
    with np.errstate(over="ignore"):  # a loss beyond the largest float is infinite
        if q == 2:
            return np.asarray(std**2)
        log_moment = q / 2 * np.log(2) + gammaln((q + 1) / 2) - np.log(np.pi) / 2
        return np.asarray(np.exp(q * np.log(std) + log_moment))


def _reshaped(flat: FloatArray, outputs: Samples | Quantiles) -> FloatArray:
    """Return one number a row, or a row and target, as the outputs have them."""
    return flat.reshape(outputs.array.shape[0], *outputs.array.shape[2:])


def _require_level(outputs: Quantiles, level: float, caller: str) -> None:
    """Raise where a quantile lies beyond the outermost known ones."""
    first, last = float(outputs.levels[0]), float(outputs.levels[-1])
    if not first - 1e-9 <= level <= last + 1e-9:
        rule = f"such that under / (under + over) is between the levels {first:g} and {last:g}"
        fix = "Quantiles whose levels reach that far"
        raise BadValueError("under", caller, rule, f"{level:g}", fix)


def _as_regression(outputs: Any, caller: str) -> Normal | Samples | Quantiles:
    """Return outputs that are distributions of a number."""
    if not isinstance(outputs, Normal | Samples | Quantiles):
        fix = "wrapping the predictions, say Normal(mean, std)"
        rule = "one of Normal, Samples, Quantiles"
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    return outputs


def _as_positive(
    value: Any, argument: str, caller: str, fix: str, *, is_zero_fine: bool = False
) -> float:
    """Return a finite number above 0, or from 0 up."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    is_fine = is_number and np.isfinite(value) and (value > 0 or (is_zero_fine and value == 0))
    if not is_fine:
        rule = "a finite number, 0 or above" if is_zero_fine else "a finite number above 0"
        raise BadValueError(argument, caller, rule, repr(value), fix)
    return float(value)
