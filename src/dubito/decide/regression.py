"""From the distribution of a number to one number: the one whose expected loss is least."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import gammaln, ndtri

from dubito.arrays import BoolArray, FloatArray
from dubito.decide.minkowski import LeastPower, Pieces, least_powers
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.measure.regression import target_batch, values_of
from dubito.outputs import Normal, Quantiles, Samples

__all__ = [
    "RegressionDecision",
    "SquaredLossDecomposition",
    "decompose_squared_loss",
    "estimate_or_reject",
    "minimum_expected_loss",
    "minkowski_estimate",
    "newsvendor_estimate",
]

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
    return least(outputs, q, "minkowski_estimate").estimate


def minimum_expected_loss(outputs: Any, q: float) -> FloatArray:
    """Return the expected |y - t|^q at its best t: the variance at q = 2; vectors by coordinate.

    >>> from dubito import Normal
    >>> minimum_expected_loss(Normal([5.0], [3.0]), q=2).tolist()
    [9.0]
    """
    return least(outputs, q, "minimum_expected_loss").loss


def estimate_or_reject(outputs: Any, cost: float, q: float = 2) -> RegressionDecision:
    """Return the best estimates, and which rows cost less when a person is asked for `cost`.

    A row's loss is summed over its targets. Rejecting wins a tie.

    >>> from dubito import Normal
    >>> estimate_or_reject(Normal([5.0, 5.0], [3.0, 0.1]), cost=1.0).is_rejected.tolist()
    [True, False]
    """
    price = as_positive(cost, "cost", "estimate_or_reject", "cost=1.0", is_zero_fine=True)
    found = least(outputs, q, "estimate_or_reject")
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
    wrapped = as_regression(outputs, caller)
    lost = as_positive(under, "under", caller, "under=1.0")
    level = 1 / (1 + as_positive(over, "over", caller, "over=1.0") / lost)
    if not 0 < level < 1:
        got, fix = f"{under!r} and {over!r}", "costs in a unit that suits both"
        raise BadValueError("under", caller, "within 1e15 of `over`", got, fix)
    if isinstance(wrapped, Normal):
        mean = wrapped.mean.astype(np.float64)
        return np.asarray(mean + wrapped.std.astype(np.float64) * ndtri(level))
    if isinstance(wrapped, Quantiles):
        require_level(wrapped, level, caller)
    pieces = Pieces.of(wrapped)
    return reshaped(pieces.unscaled(pieces.quantile(level)), wrapped)


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
    as_regression(outputs, caller)
    batch = target_batch(y_true, outputs, sample_weight, caller)
    weight = batch.labeled_weight
    if not weight.sum() > 0:
        raise EmptyStateError("The split of the squared loss")
    found = least(outputs, 2, caller)
    n_rows = weight.size
    squares = ((values_of(batch) - found.estimate) ** 2).reshape(n_rows, -1).sum(axis=1)
    total = float(np.average(squares, weights=weight))
    noise = float(np.average(found.loss.reshape(n_rows, -1).sum(axis=1), weights=weight))
    return SquaredLossDecomposition(total, noise, total - noise, int(np.count_nonzero(weight)))


def least(outputs: Any, q: float, caller: str) -> LeastPower:
    """Return the best estimate of each row and coordinate, and its loss."""
    wrapped = as_regression(outputs, caller)
    power = as_positive(q, "q", caller, "q=2 for the mean, q=1 for the median")
    if isinstance(wrapped, Normal):
        return LeastPower(wrapped.mean.astype(np.float64), normal_loss(wrapped, power))
    found = least_powers(Pieces.of(wrapped), power)
    return LeastPower(reshaped(found.estimate, wrapped), reshaped(found.loss, wrapped))


def normal_loss(outputs: Normal, q: float) -> FloatArray:
    """Return the expected |y - mean|^q of a normal distribution."""
    std = outputs.std.astype(np.float64)
    with np.errstate(over="ignore"):  # a loss beyond the largest float is infinite
        if q == 2:
            return np.asarray(std**2)
        log_moment = q / 2 * np.log(2) + gammaln((q + 1) / 2) - np.log(np.pi) / 2
        return np.asarray(np.exp(q * np.log(std) + log_moment))


def reshaped(flat: FloatArray, outputs: Samples | Quantiles) -> FloatArray:
    """Return one number a row, or a row and target, as the outputs have them."""
    return flat.reshape(outputs.array.shape[0], *outputs.array.shape[2:])


def require_level(outputs: Quantiles, level: float, caller: str) -> None:
    """Raise where a quantile lies beyond the outermost known ones."""
    first, last = float(outputs.levels[0]), float(outputs.levels[-1])
    if not first - 1e-9 <= level <= last + 1e-9:
        rule = f"such that under / (under + over) is between the levels {first:g} and {last:g}"
        fix = "Quantiles whose levels reach that far"
        raise BadValueError("under", caller, rule, f"{level:g}", fix)


def as_regression(outputs: Any, caller: str) -> Normal | Samples | Quantiles:
    """Return outputs that are distributions of a number."""
    if not isinstance(outputs, Normal | Samples | Quantiles):
        fix = "wrapping the predictions, say Normal(mean, std)"
        rule = "one of Normal, Samples, Quantiles"
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    return outputs


def as_positive(
    value: Any, argument: str, caller: str, fix: str, *, is_zero_fine: bool = False
) -> float:
    """Return a finite number above 0, or from 0 up."""
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    is_fine = is_number and np.isfinite(value) and (value > 0 or (is_zero_fine and value == 0))
    if not is_fine:
        rule = "a finite number, 0 or above" if is_zero_fine else "a finite number above 0"
        raise BadValueError(argument, caller, rule, repr(value), fix)
    return float(value)
