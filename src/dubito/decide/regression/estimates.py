"""Point decisions from a predictive distribution: the value with the lowest expected loss."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
from scipy.special import gammaln, ndtri

from dubito.arrays import ArrayResult, BoolArray, FloatArray, as_number
from dubito.data.argument_order import require_order
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.measure.regression import target_batch, values_of
from dubito.outputs import Normal, Quantiles, Samples

NARROW = 1e-5  # a piece this narrow relative to its distance is a point, to 1e-10
N_HALVINGS = 54  # the number of bits of a float64
N_BETWEEN = 8  # candidates per piece, where the expected loss has several minima
BLOCK_ENTRIES = 1 << 16  # searched many times, so they should stay in the cache
GOLDEN = (np.sqrt(5) - 1) / 2


@final
@dataclass(frozen=True, slots=True, eq=False)
class Pieces:
    """A piecewise uniform distribution per row: probability `weight` between `low` and `high`.

    Points have no width. `values`, the sorted draws or quantiles, are scaled to 0 to 1 so that no
    distance overflows; `half` is half their range.
    """

    low: FloatArray
    high: FloatArray
    weight: FloatArray
    values: FloatArray
    half: FloatArray

    @classmethod
    def of(cls, outputs: Samples | Quantiles) -> Pieces:
        """Draws are points of equal weight; between quantiles the density is uniform.

        Beyond the outermost quantiles the density continues as between the last two, at most as
        far as their range.
        """
        values = np.moveaxis(outputs.array.astype(np.float64), 1, -1)
        values = np.sort(values.reshape(-1, values.shape[-1]), axis=1)
        half = values[:, -1] / 2 - values[:, 0] / 2
        shifted = values / 2 - values[:, :1] / 2
        scaled = shifted / np.where(half > 0, half, 1.0)[:, np.newaxis]
        if isinstance(outputs, Samples):
            n_draws = values.shape[1]
            return cls(scaled, scaled, np.full(n_draws, 1 / n_draws), values, half)
        weight = np.diff(outputs.levels.astype(np.float64), prepend=0.0, append=1.0)
        first, last = scaled[:, :1], scaled[:, -1:]
        if scaled.shape[1] > 1:
            first = -np.minimum(scaled[:, 1:2] * (weight[0] / weight[1]), 1.0)
            last = 1 + np.minimum((1 - scaled[:, -2:-1]) * (weight[-1] / weight[-2]), 1.0)
            is_flat = (half <= 0)[:, np.newaxis]
            first, last = np.where(is_flat, 0.0, first), np.where(is_flat, 0.0, last)
        low = np.concatenate([first, scaled], axis=1)
        return cls(low, np.concatenate([scaled, last], axis=1), weight, values, half)

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
        """Return values in the unit of the target; at a draw exactly that draw."""
        is_here = self.high[:, : self.values.shape[1]] == t[:, np.newaxis]
        here = np.take_along_axis(self.values, is_here.argmax(axis=1)[:, np.newaxis], axis=1)
        with np.errstate(over="ignore"):
            between = self.values[:, 0] + self.half * t + self.half * t
        most = np.finfo(np.float64).max
        return np.where(is_here.any(axis=1), here[:, 0], np.clip(between, -most, most))

    def furthest(self, t: FloatArray) -> FloatArray:
        """Return the distance of the furthest end from each t, 1 for a single point."""
        reach = np.maximum(t - self.low[:, 0], self.high[:, -1] - t)
        return np.where(reach > 0, reach, 1.0)

    def quantile(self, level: float) -> FloatArray:
        """Return the scaled quantile at a level, at draws or between levels."""
        reached = np.cumsum(self.weight)
        # Sums that equal the level up to rounding reach it.
        piece = min(int(np.searchsorted(reached, level - 1e-12)), reached.size - 1)
        if self.is_points:
            return self.low[:, piece]
        before = reached[piece] - self.weight[piece]
        part = float(np.clip((level - before) / self.weight[piece], 0, 1))
        part = 1.0 if part > 1 - 1e-9 else part
        return np.asarray(self.low[:, piece] * (1 - part) + self.high[:, piece] * part)


class LeastPower(NamedTuple):
    """The minimizer of the expected |y - t|^q of each row, and the minimum."""

    estimate: FloatArray
    loss: FloatArray


def _least_powers(pieces: Pieces, q: float) -> LeastPower:
    """Return the best estimate of each row: mean and median in closed form, others by search."""
    blocks = row_blocks(pieces.low.shape[0], pieces.weight.size, BLOCK_ENTRIES)
    found = map_in_order(lambda rows: _least_of_block(pieces.take(rows), q), blocks)
    estimates, losses = zip(*(list(found) or [_least_of_block(pieces, q)]), strict=True)
    return LeastPower(np.concatenate(estimates), np.concatenate(losses))


def _least_of_block(pieces: Pieces, q: float) -> LeastPower:
    """Return the best estimates of a few rows."""
    t = _best_of_block(pieces, q)
    # Distances are relative to the largest, as powers of small ones underflow.
    reach = pieces.furthest(t)
    with np.errstate(over="ignore"):  # a loss beyond the largest float is infinite
        unit = (2 * (pieces.half * reach)) ** q
    return LeastPower(pieces.unscaled(t), unit * _mean_power(pieces, t, q, reach))


def _best_of_block(pieces: Pieces, q: float) -> FloatArray:
    """Return the scaled best estimates of a few rows."""
    if q == 2:
        return np.asarray(((pieces.low + pieces.high) / 2) @ pieces.weight)
    if q == 1:
        is_points = pieces.is_points
        return np.asarray(np.median(pieces.low, axis=1)) if is_points else pieces.quantile(0.5)
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
    """Return the derivative of the expected |y - t|^q in t, up to a positive factor."""
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
    """Return the minimizer of a convex loss, by bisection."""
    t, step = pieces.low[:, 0], pieces.high[:, -1] - pieces.low[:, 0]
    for _ in range(N_HALVINGS):
        step = step / 2
        t = np.where(_slope(pieces, t + step, q) < 0, t + step, t)
    return np.asarray(t + step / 2)


def _candidates_of(pieces: Pieces) -> FloatArray:
    """Return the candidates for the minimum of a loss with several minima, increasing.

    Between points such a loss is concave, so its minimum is at a point.
    """
    if pieces.is_points:
        return pieces.low
    left, right = pieces.low[..., np.newaxis], pieces.high[..., np.newaxis]
    inside = left + (right - left) * (np.arange(N_BETWEEN) / N_BETWEEN)
    return np.concatenate([inside.reshape(left.shape[0], -1), pieces.high[:, -1:]], axis=1)


def _deepest_valley(pieces: Pieces, q: float) -> FloatArray:
    """Return the best candidate, refined inside a piece."""
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
    """Return the minimizer of a unimodal loss between two ends, to 1e-8 of their distance."""
    for _ in range(40):
        gap = GOLDEN * (right - left)
        inner_left, inner_right = right - gap, left + gap
        is_left = loss(inner_left) < loss(inner_right)
        left, right = np.where(is_left, left, inner_left), np.where(is_left, inner_right, right)
    return np.asarray((left + right) / 2)


TIE = 1e-9  # reject wins where it costs at most this much more


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RegressionDecision(ArrayResult):
    """Estimates of minimum expected loss, with a reject option.

    Attributes
    ----------
    estimate : array of float
        The best estimate per row, or per row and target.
    expected_loss : array of float
        The expected loss per row.
    is_rejected : array of bool
        Which rows are rejected.
    """

    estimate: FloatArray
    expected_loss: FloatArray
    is_rejected: BoolArray


@final
@dataclass(frozen=True, slots=True)
class SquaredLossDecomposition:
    """The mean squared error as predicted noise plus model error.

    Attributes
    ----------
    total : float
        The mean squared error.
    noise : float
        The mean predicted variance.
    model_error : float
        The rest; negative if the model predicts more noise than there is.
    n_rows : int
        Labeled rows with a positive weight.
    """

    total: float
    noise: float
    model_error: float
    n_rows: int

    def __str__(self) -> str:
        return (
            f"Mean squared error {self.total:.4g}: {self.noise:.4g} predicted noise and "
            f"{self.model_error:.4g} model error ({self.n_rows:,} rows)."
        )


def minkowski_estimate(outputs: Any, q: float) -> FloatArray:
    """Return the estimate t per row that minimizes the expected |y - t|^q.

    q = 2 is the mean, q = 1 the median, and large q tends to the middle of the range. As q goes to
    0 it tends to the mode of repeated `Samples`, and for densities to a point near the mode.

    Parameters
    ----------
    outputs : Normal, Samples or Quantiles
        Predictive distributions. `Quantiles` are taken as uniform between levels. Vectors are
        treated by coordinate.
    q : float
        The power, above 0.

    Returns
    -------
    array of float

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 1.5.5.

    Examples
    --------
    >>> from dubito.decide import minkowski_estimate
    >>> from dubito import Samples
    >>> [float(minkowski_estimate(Samples([[0.0, 0.0, 1.0, 7.0]]), q)[0]) for q in (0.1, 1, 2)]
    [0.0, 0.5, 2.0]
    """
    return _least(outputs, q, "minkowski_estimate").estimate


def minimum_expected_loss(outputs: Any, q: float) -> FloatArray:
    """Return the minimum over t of the expected |y - t|^q, such as the variance at q = 2.

    Parameters
    ----------
    outputs : Normal, Samples or Quantiles
        Predictive distributions. Vectors are treated by coordinate.
    q : float
        The power, above 0.

    Returns
    -------
    array of float

    Examples
    --------
    >>> from dubito.decide import minimum_expected_loss
    >>> from dubito import Normal
    >>> minimum_expected_loss(Normal([5.0], [3.0]), q=2).tolist()
    [9.0]
    """
    return _least(outputs, q, "minimum_expected_loss").loss


def estimate_or_reject(outputs: Any, cost: float, q: float = 2) -> RegressionDecision:
    """Return the best estimates, and which rows to reject because that costs less.

    Parameters
    ----------
    outputs : Normal, Samples or Quantiles
        Predictive distributions.
    cost : float
        The cost of rejecting a row. Rejecting wins ties.
    q : float, default 2
        The power of the loss |y - t|^q, summed over the targets of a row.

    Returns
    -------
    RegressionDecision

    Examples
    --------
    >>> from dubito.decide import estimate_or_reject
    >>> from dubito import Normal
    >>> estimate_or_reject(Normal([5.0, 5.0], [3.0, 0.1]), cost=1.0).is_rejected.tolist()
    [True, False]
    """
    price = as_number(cost, "cost", "estimate_or_reject", 0, fix="Use cost=1.0")
    estimate, losses = _least(outputs, q, "estimate_or_reject")
    loss = losses if losses.ndim == 1 else losses.sum(axis=1)
    return RegressionDecision(estimate, loss, np.asarray(loss >= price - TIE))


def newsvendor_estimate(outputs: Any, under: float, over: float) -> FloatArray:
    """Return the estimate of minimum expected cost when errors cost differently by direction.

    It is the quantile at the level under / (under + over), as in the newsvendor problem.

    Parameters
    ----------
    outputs : Normal, Samples or Quantiles
        Predictive distributions; the levels of `Quantiles` must reach the level.
    under, over : float
        The cost per unit of an estimate that is too low, or too high.

    Returns
    -------
    array of float

    References
    ----------
    Arrow, Harris and Marschak, "Optimal inventory policy", 1951.

    Examples
    --------
    >>> from dubito.decide import newsvendor_estimate
    >>> from dubito import Normal
    >>> newsvendor_estimate(Normal([100.0], [10.0]), under=9, over=1).round(2).tolist()
    [112.82]
    """
    caller = "newsvendor_estimate"
    wrapped = _as_regression(outputs, caller)
    lost = as_number(under, "under", caller, 0, fix="Use under=1.0", is_open=True)
    paid = as_number(over, "over", caller, 0, fix="Use over=1.0", is_open=True)
    level = 1 / (1 + paid / lost)
    if not 0 < level < 1:
        got, fix = f"{under!r} and {over!r}", "Use costs of similar size"
        rule = "must be within a factor of 1e15 of `over`"
        raise BadValueError("under", caller, rule, got, fix)
    if isinstance(wrapped, Normal):
        mean = wrapped.mean.astype(np.float64)
        return np.asarray(mean + wrapped.std.astype(np.float64) * ndtri(level))
    if isinstance(wrapped, Quantiles):
        first, last = float(wrapped.levels[0]), float(wrapped.levels[-1])
        if not first - 1e-9 <= level <= last + 1e-9:
            rule = f"must have under / (under + over) between the levels {first:g} and {last:g}"
            fix = "Pass Quantiles with a wider range of levels"
            raise BadValueError("under", caller, rule, f"{level:g}", fix)
    pieces = Pieces.of(wrapped)
    return _reshaped(pieces.unscaled(pieces.quantile(level)), wrapped)


def decompose_squared_loss(
    y_true: Any, outputs: Any, *, sample_weight: Any = None
) -> SquaredLossDecomposition:
    """Return the mean squared error of the predictive mean as noise plus model error.

    Parameters
    ----------
    y_true : array
        Targets.
    outputs : Normal, Samples or Quantiles
        Predictive distributions; the noise is their mean variance (for `Samples`, that of the
        draws, divided by their number).
    sample_weight : array, optional
        Weights of the rows.

    Returns
    -------
    SquaredLossDecomposition
        Means over rows of sums over targets.

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 1.5.5.

    Examples
    --------
    >>> from dubito.decide import decompose_squared_loss
    >>> from dubito import Normal
    >>> decompose_squared_loss([0.0, 4.0], Normal([1.0, 1.0], [2.0, 1.0])).model_error
    2.5
    """
    caller = "decompose_squared_loss"
    require_order(y_true, outputs, caller)
    _as_regression(outputs, caller)
    batch = target_batch(y_true, outputs, sample_weight, caller)
    weight = batch.labeled_weight
    if not weight.sum() > 0:
        raise EmptyStateError("The decomposition of the squared loss")
    estimate, loss = _least(outputs, 2, caller)
    squares = (values_of(batch) - estimate) ** 2
    sums = [one.reshape(weight.size, -1).sum(axis=1) for one in (squares, loss)]
    total, noise = (float(np.average(one, weights=weight)) for one in sums)
    return SquaredLossDecomposition(total, noise, total - noise, int(np.count_nonzero(weight)))


def _least(outputs: Any, q: float, caller: str) -> LeastPower:
    """Return the best estimate of each row and coordinate, and its loss."""
    wrapped = _as_regression(outputs, caller)
    fix = "Use q=2 for the mean, q=1 for the median"
    power = as_number(q, "q", caller, 0, fix=fix, is_open=True)
    if isinstance(wrapped, Normal):
        return LeastPower(wrapped.mean.astype(np.float64), _normal_loss(wrapped, power))
    estimate, loss = _least_powers(Pieces.of(wrapped), power)
    return LeastPower(_reshaped(estimate, wrapped), _reshaped(loss, wrapped))


def _normal_loss(outputs: Normal, q: float) -> FloatArray:
    """Return the expected |y - mean|^q of a normal distribution."""
    std = outputs.std.astype(np.float64)
    with np.errstate(over="ignore"):  # a loss beyond the largest float is infinite
        if q == 2:
            return np.asarray(std**2)
        log_moment = q / 2 * np.log(2) + gammaln((q + 1) / 2) - np.log(np.pi) / 2
        return np.asarray(np.exp(q * np.log(std) + log_moment))


def _reshaped(flat: FloatArray, outputs: Samples | Quantiles) -> FloatArray:
    """Return one number per row, or per row and target, as in the outputs."""
    return flat.reshape(outputs.array.shape[0], *outputs.array.shape[2:])


def _as_regression(outputs: Any, caller: str) -> Normal | Samples | Quantiles:
    """Return the outputs of a regression."""
    if not isinstance(outputs, Normal | Samples | Quantiles):
        rule, fix = "must be Normal, Samples or Quantiles", "Wrap them, as in Normal(mean, std)"
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    return outputs
