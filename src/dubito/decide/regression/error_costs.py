"""What an error of a decided value costs, and the value of lowest expected cost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Annotated, Any, ClassVar, NamedTuple, final

import numpy as np
from scipy.special import ndtr, ndtri

from dubito.arrays import FloatArray, as_number
from dubito.data.expressions import HIGHEST_COST
from dubito.decide.regression.estimates import Pieces, minimum_expected_loss, minkowski_estimate
from dubito.errors import BadValueError
from dubito.formatting import join_words
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.outputs import Normal, Quantiles, Samples
from dubito.serialization.fields import Check, converted, list_of, number, optional
from dubito.serialization.objects import Record, stores_fields

Regression = Normal | Samples | Quantiles

CALLER = "ErrorCosts"
HIGHEST_ERROR = 1e15  # of a breakpoint or a value: sums with these stay exact enough
BLOCK_ENTRIES = 1 << 16  # searched many times, so they should stay in the cache
N_HALVINGS = 64
ROUNDING = 1e-12  # a slope below this fraction of all its changes counts as 0
REACH, N_STEPS = 8.0, 65  # of the grid around each breakpoint, in standard deviations
FAR = 40.0  # standard deviations: the density there is 0
MAX_FLOAT = float(np.finfo(np.float64).max)


class BestValues(NamedTuple):
    """The value of lowest expected cost of each row, and that cost."""

    value: FloatArray
    cost: FloatArray


def _numbers(highest: float, low: float | None = None) -> Check:
    """Check for a list of numbers, as a tuple."""
    return converted(tuple, list_of(number(-highest if low is None else low, highest)))


@final
@stores_fields
@dataclass(frozen=True)
class ErrorCosts(Record):
    """What a decided value costs, by its error: the value minus the truth.

    A piecewise linear function through breakpoints, which falls up to one of them and rises from
    there on. `ErrorCosts.linear` (the newsvendor's costs), `absolute` and `squared` are short for
    the usual ones.

    Parameters
    ----------
    errors : sequence of float
        The breakpoints, at least 3 and increasing: negative where the value is below the truth.
        The first and the last line continue beyond the outermost ones.
    costs : sequence of float
        The cost at each of them, at least 0. The outermost lines may be level, so that large
        errors all cost the same.
    values : sequence of float, optional
        The values that may be decided, such as order quantities; any number if None.
    square : float, optional
        The cost of a squared error of 1, instead of breakpoints.

    Examples
    --------
    >>> from dubito import ErrorCosts
    >>> from dubito import Normal
    >>> costs = ErrorCosts.linear(under=9, over=1)
    >>> costs.of_errors([-2.0, 3.0]).tolist()
    [18.0, 3.0]
    >>> best = costs.best(Normal([100.0], [10.0]))
    >>> best.value.round(2).tolist(), best.cost.round(2).tolist()
    ([112.82], [17.55])
    >>> ErrorCosts.linear(9, 1, values=[80, 100, 120]).best(Normal([100.0], [10.0])).value
    array([120.])
    """

    has_header: ClassVar[bool] = False

    errors: Annotated[Sequence[float], _numbers(HIGHEST_ERROR)] = ()
    costs: Annotated[Sequence[float], _numbers(HIGHEST_COST, 0)] = ()
    values: Annotated[Sequence[float] | None, optional(_numbers(HIGHEST_ERROR))] = None
    square: Annotated[float | None, optional(number(0, HIGHEST_COST))] = None

    def __post_init__(self) -> None:
        for name in ("errors", "costs", "values"):
            given = getattr(self, name)
            if given is not None:
                object.__setattr__(self, name, _as_numbers(given, name))
        if self.values is not None and (not self.values or _falls(self.values)):
            rule, fix = "must be distinct, in increasing order", "Use values=[0, 10, 20]"
            raise BadValueError("values", CALLER, rule, f"{[*self.values]}"[:60], fix)
        if self.square is not None:
            fix = "Use ErrorCosts.squared()"
            as_number(self.square, "square", CALLER, 0, fix=fix, is_open=True)
            if self.errors or self.costs:
                rule = "must be None beside breakpoints"
                raise BadValueError("square", CALLER, rule, f"{self.square:g}", fix)
            return
        _check_breakpoints(self.errors, self.costs)

    @classmethod
    def linear(cls, under: float, over: float, values: Any = None) -> ErrorCosts:
        """Return costs in proportion to the error: `under` or `over` per unit.

        Parameters
        ----------
        under, over : float
            The cost per unit of a value that is below the truth, and of one that is above it.
        values : sequence of float, optional
            The values that may be decided.

        Returns
        -------
        ErrorCosts
            The best value is the quantile at the level under / (under + over): the newsvendor's
            critical fractile.
        """
        for name, cost in (("under", under), ("over", over)):
            as_number(cost, name, "ErrorCosts.linear", 0, fix=f"Use {name}=1.0", is_open=True)
        return cls((-1.0, 0.0, 1.0), (float(under), 0.0, float(over)), values)

    @classmethod
    def absolute(cls, values: Any = None) -> ErrorCosts:
        """Return the absolute error as cost: the best value is the median.

        Parameters
        ----------
        values : sequence of float, optional
            The values that can be decided, e.g. package sizes; by default any number.

        Returns
        -------
        ErrorCosts
            A cost of 1 per unit of error.
        """
        return cls.linear(1.0, 1.0, values)

    @classmethod
    def squared(cls, square: float = 1.0, values: Any = None) -> ErrorCosts:
        """Return the squared error, times a factor, as cost: the best value is the mean.

        Parameters
        ----------
        square : float, default 1
            The factor of the squared error.
        values : sequence of float, optional
            The values that can be decided, e.g. package sizes; by default any number.

        Returns
        -------
        ErrorCosts
            A cost of `square` times the squared error.
        """
        return cls(values=values, square=float(square))

    @property
    def fractile(self) -> float | None:
        """The level of the quantile that is the best value; None unless the costs are linear."""
        if self.square is not None or self._kinks.at.size != 1:
            return None
        return float(-self._kinks.first_slope / self._kinks.changes[0])

    @property
    def lowest(self) -> float:
        """The cost of the best value if the truth is known."""
        return 0.0 if self.square is not None else min(self.costs)

    def of_errors(self, errors: Any) -> FloatArray:
        """Return the cost of each error.

        Parameters
        ----------
        errors : array of float
            Values minus the truth.

        Returns
        -------
        array of float
        """
        e = np.asarray(errors, np.float64)
        with np.errstate(over="ignore"):
            if self.square is not None:
                return np.minimum(self.square * e**2, MAX_FLOAT)
            at, costs = np.array(self.errors), np.array(self.costs)
            first, *_, last = np.diff(costs) / np.diff(at)
            beyond = first * np.minimum(e - at[0], 0) + last * np.maximum(e - at[-1], 0)
            return np.asarray(np.interp(e, at, costs) + beyond)

    def expected(self, outputs: Regression, values: FloatArray) -> FloatArray:
        """Return the expected cost of one value per row.

        Parameters
        ----------
        outputs : Normal, Samples or Quantiles
            Predictive distributions of one target; `Quantiles` are uniform between levels.
        values : array of shape (n_rows,)
            Decided values.

        Returns
        -------
        array of float
        """
        found: FloatArray
        with np.errstate(over="ignore", invalid="ignore"):
            if self.square is not None:
                bias = values - minkowski_estimate(outputs, 2)
                found = self.square * (minimum_expected_loss(outputs, 2) + bias**2)
            elif isinstance(outputs, Normal):
                found = _normal_cost(outputs, values, self._kinks)
            else:
                found = _in_blocks(outputs, lambda some, t: _cost_of(some, t, self._kinks), values)
        return np.asarray(np.clip(np.nan_to_num(found, nan=MAX_FLOAT), self.lowest, MAX_FLOAT))

    def best(self, outputs: Regression) -> BestValues:
        """Return the value of lowest expected cost of each row, and that cost.

        Exact for `Samples` and for `Quantiles`, which are uniform between levels; for `Normal` to
        rounding if the slopes of the costs only increase. On a tie, it is the lowest.

        Parameters
        ----------
        outputs : Normal, Samples or Quantiles
            Predictive distributions of one target.

        Returns
        -------
        BestValues
        """
        if self.values is not None:
            return self._best_of(self.values, outputs)
        with np.errstate(over="ignore", invalid="ignore"):
            if self.square is not None:
                value = minkowski_estimate(outputs, 2)
            elif isinstance(outputs, Normal):
                value = _best_normal(outputs, self._kinks)
            else:
                value = _in_blocks(outputs, lambda some, _: _best_of_block(some, self._kinks))
        value = np.clip(np.nan_to_num(value), -MAX_FLOAT, MAX_FLOAT)
        return BestValues(value, self.expected(outputs, value))

    def _best_of(self, values: Sequence[float], outputs: Regression) -> BestValues:
        """Return the best of some values for each row."""
        found = BestValues(np.full(outputs.n_rows, values[0]), np.full(outputs.n_rows, np.inf))
        for one in values:
            cost = self.expected(outputs, np.full(outputs.n_rows, one))
            is_better = cost < found.cost * (1 - ROUNDING)
            value = np.where(is_better, one, found.value)
            found = BestValues(value, np.where(is_better, cost, found.cost))
        return found

    @cached_property
    def _kinks(self) -> _Kinks:
        at, costs = np.array(self.errors), np.array(self.costs)
        slopes = np.diff(costs) / np.diff(at)
        changes = np.diff(slopes)
        is_kink = np.abs(changes) > ROUNDING * np.abs(slopes).max()
        return _Kinks(at[1:-1][is_kink], changes[is_kink], float(slopes[0]), at[1], costs[1])

    def __str__(self) -> str:
        if self.square is not None:
            text = "squared error" if self.square == 1 else f"{self.square:g} x squared error"
        elif self._kinks.at.tolist() == [0.0] and not self.lowest:
            under, over = -self._kinks.first_slope, self._kinks.last_slope
            text = f"{under:g} per unit below the truth, {over:g} per unit above it"
            text = "absolute error" if under == over == 1 else text
        else:
            pairs = zip(self.errors, self.costs, strict=True)
            points = [f"{cost:g} at an error of {error:g}" for error, cost in pairs]
            text = f"piecewise linear, {join_words(points, 6)}"
        if self.values is None:
            return text
        return f"{text}; values {join_words([f'{one:g}' for one in self.values], 6)}"


class _Kinks(NamedTuple):
    """A piecewise linear function by the changes of its slope.

    c(e) = cost + first_slope * (e - origin) + sum_j changes_j * max(e - at_j, 0).
    """

    at: FloatArray
    changes: FloatArray
    first_slope: float
    origin: float
    cost: float

    @property
    def last_slope(self) -> float:
        return float(self.first_slope + self.changes.sum())

    @property
    def is_convex(self) -> bool:
        return bool((self.changes > 0).all())

    @property
    def rounding(self) -> float:
        """A slope this small is 0."""
        return ROUNDING * (abs(self.first_slope) + float(np.abs(self.changes).sum()))

    def pairs(self) -> list[tuple[float, float]]:
        return list(zip(self.at.tolist(), self.changes.tolist(), strict=True))


def _as_numbers(values: Any, argument: str) -> tuple[float, ...]:
    """Return finite numbers as a tuple."""
    highest = HIGHEST_COST if argument == "costs" else HIGHEST_ERROR
    array = np.asarray(values)
    is_fine = array.ndim == 1 and array.dtype.kind in "iuf" and array.size < 10_000
    if array.size == 0 and array.ndim == 1:
        return ()
    if not is_fine or not (np.abs(array) <= highest).all():
        rule = f"must be a list of numbers of at most {highest:g}"
        fix = f"Use {argument}=[0, 10, 20]"
        raise BadValueError(argument, CALLER, rule, repr(values)[:60], fix)
    return tuple(float(one) for one in array.tolist())


def _falls(values: Sequence[float]) -> bool:
    """Whether numbers do not increase strictly."""
    return any(b <= a for a, b in pairwise(values))


def _check_breakpoints(errors: Sequence[float], costs: Sequence[float]) -> None:
    """Raise unless costs fall and then rise over increasing errors."""
    if len(errors) < 3 or _falls(errors):
        rule, fix = "must be at least 3 increasing numbers", "Use errors=[-1, 0, 1]"
        raise BadValueError("errors", CALLER, rule, f"{[*errors]}"[:60], fix)
    if len(costs) != len(errors) or min(costs) < 0:
        rule = f"must be {len(errors)} numbers of at least 0, one per error"
        raise BadValueError("costs", CALLER, rule, f"{[*costs]}"[:60], "Use costs=[1, 0, 1]")
    steps = np.diff(costs)
    slopes = steps / np.diff(errors)
    if not np.isfinite(slopes).all() or np.abs(slopes).max() > HIGHEST_COST:
        rule, fix = "must change slowly enough for a finite slope", "Move the errors apart"
        raise BadValueError("costs", CALLER, rule, f"{[*costs]}"[:60], fix)
    signs = np.sign(steps[steps != 0])
    if not ((np.diff(signs) >= 0).all() and signs.size and signs[0] < 0 < signs[-1]):
        rule = "must fall and then rise, so that errors of both directions cost something"
        fix = "Use costs=[1, 0, 1] with errors=[-1, 0, 1]"
        raise BadValueError("costs", CALLER, rule, f"{[*costs]}"[:60], fix)


def _normal_cost(outputs: Normal, values: FloatArray, kinks: _Kinks) -> FloatArray:
    """Return the expected cost of a value by the normal loss function."""
    mean, std = outputs.mean.astype(np.float64), outputs.std.astype(np.float64)
    ahead = values - mean
    found = kinks.cost + kinks.first_slope * (ahead - kinks.origin)
    for at, change in kinks.pairs():
        z = np.maximum((ahead - at) / std, -FAR)
        density = np.exp(-0.5 * np.square(np.minimum(z, FAR))) / np.sqrt(2 * np.pi)
        # E max(z - Z, 0); in the lower tail the terms cancel, so it is cut off at 0.
        found = found + change * std * np.maximum(z * ndtr(z) + density, 0.0)
    return np.asarray(found)


def _normal_slope(ahead: FloatArray, std: FloatArray, kinks: _Kinks) -> FloatArray:
    """Return the derivative of the expected cost at a distance above the mean."""
    found = np.full(ahead.shape, kinks.first_slope)
    for at, change in kinks.pairs():
        found += change * ndtr((ahead - at) / std)
    return found


def _best_normal(outputs: Normal, kinks: _Kinks) -> FloatArray:
    """Return the best value of each row, by bisection of the derivative.

    If slopes only increase, the best value lies between those of the first and the last kink
    alone. Otherwise it is looked for on a grid around each kink first.
    """
    mean, std = outputs.mean.astype(np.float64), outputs.std.astype(np.float64)
    if kinks.is_convex:
        level = -kinks.first_slope / kinks.changes.sum()
        low, high = (at + std * ndtri(level) for at in (kinks.at[0], kinks.at[-1]))
        return mean + (high if kinks.at.size == 1 else _turn(low, high, std, kinks))
    best, least = np.zeros(std.size), np.full(std.size, np.inf)
    for at in kinks.at.tolist():
        for z in np.linspace(-REACH, REACH, N_STEPS).tolist():
            cost = _normal_cost(outputs, mean + (at + z * std), kinks)
            is_better = cost < least
            best, least = np.where(is_better, at + z * std, best), np.where(is_better, cost, least)
    step = 2 * REACH / (N_STEPS - 1) * std
    found = _turn(best - step, best + step, std, kinks)
    return mean + np.where(_normal_cost(outputs, mean + found, kinks) <= least, found, best)


def _turn(low: FloatArray, high: FloatArray, std: FloatArray, kinks: _Kinks) -> FloatArray:
    """Return how far above the mean the derivative turns positive, between two distances."""
    for _ in range(N_HALVINGS):
        middle = low / 2 + high / 2
        is_below = _normal_slope(middle, std, kinks) < 0
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return np.asarray(high)


def _in_blocks(outputs: Samples | Quantiles, function: Any, values: Any = None) -> FloatArray:
    """Return a function of the pieces of a few rows at a time, and of a value of each row."""
    pieces = Pieces.of(outputs)
    blocks = row_blocks(pieces.low.shape[0], pieces.weight.size, BLOCK_ENTRIES) or [slice(0, 0)]

    def of_rows(rows: slice) -> FloatArray:
        some = _Uniforms.of(pieces.take(rows))
        return np.asarray(function(some, None if values is None else values[rows]))

    return np.concatenate(list(map_in_order(of_rows, blocks)))


class _Uniforms(NamedTuple):
    """Pieces in the unit of the target: probability `weight` from `low` to `high`."""

    low: FloatArray
    high: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, pieces: Pieces) -> _Uniforms:
        values = pieces.values
        if pieces.is_points:
            return cls(values, values, pieces.weight)
        half, below, above = pieces.half, pieces.low[:, 0], pieces.high[:, -1] - 1
        first = values[:, 0] + half * below + half * below
        last = values[:, -1] + half * above + half * above
        low = np.column_stack([np.minimum(first, values[:, 0]), values])
        return cls(low, np.column_stack([values, np.maximum(last, values[:, -1])]), pieces.weight)

    def below(self, x: FloatArray, tolerance: FloatArray) -> FloatArray:
        """Return the probability of at most x."""
        ahead = (x + tolerance)[:, np.newaxis] - self.low
        width = self.high - self.low
        part = np.where(width > 0, ahead / np.where(width > 0, width, 1.0), ahead >= 0)
        return np.asarray(np.clip(part, 0, 1) @ self.weight)


def _cost_of(some: _Uniforms, values: FloatArray, kinks: _Kinks) -> FloatArray:
    """Return the expected cost of a value of each row."""
    low, high = (values[:, np.newaxis] - one for one in (some.low, some.high))  # errors
    middle = low / 2 + high / 2
    found = kinks.cost + kinks.first_slope * (middle @ some.weight - kinks.origin)
    width = low - high
    for at, change in kinks.pairs():
        inside = np.square(low - at) / np.where(width > 0, 2 * width, 1.0)
        over = np.where(high >= at, middle - at, np.where(low > at, inside, 0.0))
        found = found + change * (over @ some.weight)
    return np.asarray(found)


def _best_of_block(some: _Uniforms, kinks: _Kinks) -> FloatArray:
    """Return the best value of a few rows.

    Between the breakpoints, where an edge of a piece meets a kink, the derivative is linear.
    """
    if some.high is some.low:
        return _best_of_draws(some.low, kinks)
    edges = np.column_stack([some.low, some.high[:, -1]])
    points = np.concatenate([edges + at for at in kinks.at.tolist()], axis=1)
    points.sort(axis=1)
    return (_first_turn if kinks.is_convex else _best_turn)(some, points, kinks)


def _slope_at(some: _Uniforms, values: FloatArray, kinks: _Kinks, side: float = 1.0) -> FloatArray:
    """Return the derivative of the expected cost to the right of values, or to their left."""
    found = np.full(values.shape, kinks.first_slope)
    for at, change in kinks.pairs():
        # An edge plus a kink, minus the kink, is the edge only up to rounding.
        rounding = 4 * np.finfo(np.float64).eps * (np.abs(values) + abs(at))
        found += change * some.below(values - at, side * rounding)
    return found


def _first_turn(some: _Uniforms, points: FloatArray, kinks: _Kinks) -> FloatArray:
    """Return where the increasing derivative turns positive, by bisection of breakpoints."""
    rows, n_points = np.arange(points.shape[0]), points.shape[1]
    before, after = np.full(rows.size, -1), np.full(rows.size, n_points - 1)
    for _ in range(int(np.ceil(np.log2(n_points + 1)))):
        middle = (before + after) // 2
        is_open = after - before > 1
        is_turned = _slope_at(some, points[rows, np.maximum(middle, 0)], kinks) >= -kinks.rounding
        after = np.where(is_open & is_turned, middle, after)
        before = np.where(is_open & ~is_turned, middle, before)
    left, right = points[rows, np.maximum(before, 0)], points[rows, after]
    return _root_between(some, left, right, kinks)


def _root_between(
    some: _Uniforms, left: FloatArray, right: FloatArray, kinks: _Kinks
) -> FloatArray:
    """Return the root of the derivative between neighboring breakpoints, else the right one."""
    start, end = _slope_at(some, left, kinks), _slope_at(some, right, kinks, side=-1.0)
    is_inside = (start < 0) & (end > 0)
    part = start / np.where(is_inside, start - end, 1.0)
    return np.where(is_inside, left + np.clip(part, 0, 1) * (right - left), right)


def _best_turn(some: _Uniforms, points: FloatArray, kinks: _Kinks) -> FloatArray:
    """Return the best of all breakpoints and of all roots of the derivative between them."""
    best, least = points[:, 0], np.full(points.shape[0], np.inf)
    lefts = np.concatenate([points[:, :1], points[:, :-1]], axis=1)
    for left, right in zip(lefts.T, points.T, strict=True):
        for value in (_root_between(some, left, right, kinks), right):
            cost = _cost_of(some, value, kinks)
            is_better = cost < least * (1 - ROUNDING)
            best, least = np.where(is_better, value, best), np.where(is_better, cost, least)
    return best


def _best_of_draws(draws: FloatArray, kinks: _Kinks) -> FloatArray:
    """Return the best value for draws: the cost is linear between draws shifted by kinks."""
    n_rows, n_draws = draws.shape
    points = np.concatenate([draws + at for at in kinks.at.tolist()], axis=1)
    jumps = np.broadcast_to(np.repeat(kinks.changes / n_draws, n_draws), points.shape)
    order = np.argsort(points, axis=1, kind="stable")
    points, jumps = (np.take_along_axis(one, order, axis=1) for one in (points, jumps))
    slopes = kinks.first_slope + np.cumsum(jumps, axis=1)
    rises = np.cumsum(slopes[:, :-1] * np.diff(points, axis=1), axis=1)
    costs = np.concatenate([np.zeros((n_rows, 1)), rises], axis=1)
    size = np.abs(costs).max(axis=1, keepdims=True)
    is_least = costs <= costs.min(axis=1, keepdims=True) + ROUNDING * size
    return np.asarray(points[np.arange(n_rows), is_least.argmax(axis=1)])
