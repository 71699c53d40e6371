"""Outputs of regressors: a distribution per row, and mixtures of the members or components."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple, final

import numpy as np

from dubito.arrays import (
    BoolArray,
    FloatArray,
    RandomState,
    as_count,
    as_distributions,
    as_finite,
    as_floats,
    as_numbers,
    draw_seed,
    freeze,
    own,
    require_bool,
    require_choice,
    require_everywhere,
)
from dubito.errors import BadValueError
from dubito.outputs.base import BaseOutputs, set_fields


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Normal(BaseOutputs):
    """A normal distribution per row.

    Parameters
    ----------
    mean : array of shape (n_rows,) or (n_rows, n_targets)
        Means.
    std : array of the shape of `mean`
        Standard deviations, above 0.

    Examples
    --------
    >>> from dubito import Normal
    >>> Normal(mean=[1.0, 2.0], std=[0.5, 0.1]).n_rows
    2
    """

    axes = ("row", "target")
    mean: FloatArray
    std: FloatArray

    def __init__(self, mean: Any, std: Any) -> None:
        shape = "rows, or rows x targets"
        means = as_numbers(mean, "mean", "Normal", shape=shape, dimensions=(1, 2))
        means, stds = _with_stds(means, mean, std, ("mean", "std"), "Normal")
        set_fields(self, mean=means, std=stds)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Samples(BaseOutputs):
    """Draws from the predictive distribution of each row.

    Parameters
    ----------
    array : array of shape (n_rows, n_draws) or (n_rows, n_draws, n_targets)
        The draws.

    Examples
    --------
    >>> from dubito import Samples
    >>> Samples([[1.0, 1.2, 0.9], [3.0, 2.5, 2.8]]).n_rows
    2
    """

    axes = ("row", "draw", "target")
    array: FloatArray

    def __init__(self, array: Any) -> None:
        shape = "rows x draws (x targets)"
        draws = as_numbers(array, "array", "Samples", shape=shape, dimensions=(2, 3))
        set_fields(self, array=own(draws, array))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quantiles(BaseOutputs):
    """Quantiles of the predictive distribution of each row.

    Parameters
    ----------
    array : array of shape (n_rows, n_levels) or (n_rows, n_levels, n_targets)
        Quantiles, which must not decrease along the levels.
    levels : array of shape (n_levels,)
        Their probability levels, increasing, strictly between 0 and 1.
    rearrange : bool, default=False
        Sort each row whose quantiles cross, which is never further from the true quantiles
        (Chernozhukov, Fernandez-Val and Galichon, "Quantile and probability curves without
        crossing", Econometrica 2010). `n_rearranged` counts them. Crossed rows are an error
        otherwise.

    Attributes
    ----------
    rearranged : array of bool, shape (n_rows,), or None
        Which rows were sorted; None without `rearrange`.

    Examples
    --------
    >>> from dubito import Quantiles
    >>> Quantiles([[1.0, 2.0, 4.0]], levels=[0.1, 0.5, 0.9]).n_rows
    1
    >>> crossed = Quantiles([[2.0, 1.0], [3.0, 3.5]], levels=[0.1, 0.9], rearrange=True)
    >>> crossed.array.tolist(), crossed.n_rearranged
    ([[1.0, 2.0], [3.0, 3.5]], 1)
    """

    axes = ("row", "level", "target")
    array: FloatArray
    levels: FloatArray
    rearranged: BoolArray | None

    def __init__(self, array: Any, levels: Any, rearrange: bool = False) -> None:
        require_bool(rearrange, "rearrange", "Quantiles")
        shape = "rows x levels (x targets)"
        values = as_numbers(array, "array", "Quantiles", shape=shape, dimensions=(2, 3))
        checked = as_levels(levels, "Quantiles")
        if checked.size != values.shape[1]:
            rule = f"must have one level for each of the {values.shape[1]} columns"
            got, fix = f"{checked.size}", "State the level of every column"
            raise BadValueError("levels", "Quantiles", rule, got, fix)
        is_crossed = values[:, 1:] < values[:, :-1]
        rows = np.asarray(is_crossed.any(axis=tuple(range(1, values.ndim))))
        if rows.any() and not rearrange:
            raise _crossed(values, checked, is_crossed, int(rows.sum()))
        ordered = own(np.sort(values, axis=1) if rows.any() else values, array)
        rearranged = freeze(rows) if rearrange else None
        set_fields(self, array=ordered, levels=own(checked, levels), rearranged=rearranged)

    @property
    def n_rearranged(self) -> int:
        """The number of rows whose quantiles crossed and were sorted."""
        return 0 if self.rearranged is None else int(self.rearranged.sum())


def require_one_target(outputs: Normal | Samples | Quantiles, caller: str, fix: str) -> None:
    """Raise unless outputs are of one target per row.

    Parameters
    ----------
    outputs : Normal, Samples or Quantiles
        Outputs of a regression.
    caller : str
        The public function that was called, for error messages.
    fix : str
        The remedy that the error states.
    """
    shape = outputs.mean.shape if isinstance(outputs, Normal) else outputs.array.shape
    if len(shape) == len(outputs.axes):
        rule, got = "must have one target", f"{shape[-1]} targets"
        raise BadValueError("outputs", caller, rule, got, fix)


def _crossed(
    values: FloatArray, levels: FloatArray, is_crossed: BoolArray, n_crossed: int
) -> BadValueError:
    """Return the error for quantiles that decrease, at the first row that has some."""
    row, left, *target = (int(one) for one in np.argwhere(is_crossed)[0])
    low, high = (float(values[(row, k, *target)]) for k in (left, left + 1))
    n_digits = next(k for k in range(4, 18) if f"{low:.{k}g}" != f"{high:.{k}g}")
    texts = [f"{x:.{n_digits}g} at level {levels[k]:g}" for k, x in enumerate((low, high), left)]
    several = f" in {n_crossed:,} of {len(values):,} rows, first" if len(values) > 1 else ""
    rule, fix = f"has crossing quantiles{several}:", "Pass rearrange=True to sort these rows"
    got = f"{texts[1]} is below {texts[0]}"
    return BadValueError("array", "Quantiles", rule, got, fix, row, left + 1)


def as_levels(value: Any, caller: str) -> FloatArray:
    """Return the levels of quantiles, increasing between 0 and 1."""
    levels = as_numbers(value, "levels", caller, shape="one number per column")
    is_rising = (levels > np.append(0.0, levels[:-1])) & (levels < 1)
    if not is_rising.all():
        rule, fix = "must increase strictly between 0 and 1", "Use levels such as [0.1, 0.5, 0.9]"
        raise BadValueError("levels", caller, rule, f"{levels.tolist()}", fix)
    return levels


ROOT = float(np.sqrt(2))
N_HALVINGS = 50  # of the interval that holds a quantile


class BaseMixture(BaseOutputs):
    """A mixture of distributions per row, with the components on the first axis.

    All densities are of each target by itself; several targets of a row are independent given the
    component.
    """

    __slots__ = ()

    axes: ClassVar[tuple[str, ...]] = ("component", "row", "target")
    remedy: ClassVar[str] = "Pass its .normal (moment-matched), .quantiles(levels) or .sample()"
    means: FloatArray
    stds: FloatArray
    weights: Any  # components x rows

    @property
    def family(self) -> str:
        """What kind of distributions the components are."""
        return "normal"

    @property
    def mean(self) -> FloatArray:
        """The mean of each row (and target), in float64."""
        # Relative to the first component: the mean of equal means is exact.
        first = self.means[0].astype(np.float64)
        return np.asarray(first + self._average(self.means - first))

    @property
    def variance(self) -> FloatArray:
        """The variance of each row: that within components plus that between their means."""
        return self._within() + self._between()

    @property
    def normal(self) -> Normal:
        """The normal distribution with the same mean and variance (moment-matched).

        The mixture itself may be skewed or have several modes: its `quantiles` or a `sample` keep
        that.
        """
        return Normal(self.mean, np.sqrt(self.variance))

    def log_density(self, y: Any) -> FloatArray:
        """Return the log density of targets.

        Parameters
        ----------
        y : array-like of shape (n_rows,) or (n_rows, n_targets)
            Targets, one for each row (and target).

        Returns
        -------
        ndarray of the shape of `y`
            Log densities in float64.
        """
        z = self._standardized(y, "log_density")
        logs = _family(self.family).log_density(z) - np.log(self.stds)
        highest = logs.max(axis=0)
        return np.asarray(np.log(self._average(np.exp(logs - highest))) + highest)

    def cdf(self, y: Any) -> FloatArray:
        """Return the probability of a target of at most `y`.

        Parameters
        ----------
        y : array-like of shape (n_rows,) or (n_rows, n_targets)
            Targets, one for each row (and target).

        Returns
        -------
        ndarray of the shape of `y`
            Probabilities in float64.
        """
        return self._average(_family(self.family).cdf(self._standardized(y, "cdf")))

    def quantiles(self, levels: Any) -> Quantiles:
        """Return quantiles of each row, found by bisection.

        Parameters
        ----------
        levels : array-like of shape (n_levels,)
            Probability levels, increasing, strictly between 0 and 1.

        Returns
        -------
        Quantiles
            The quantiles, for every function that takes regression outputs.
        """
        family, checked = _family(self.family), as_levels(levels, type(self).__name__)
        found = []
        for level in checked.tolist():
            # The quantile of a mixture lies between those of its components.
            ends = self.means + self.stds * family.quantile(level)
            low, high = ends.min(axis=0), ends.max(axis=0)
            for _ in range(N_HALVINGS):
                middle = low / 2 + high / 2
                z = (middle - self.means) / self.stds
                is_below = self._average(family.cdf(z)) < level
                low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
            found.append(high)
        return Quantiles(np.maximum.accumulate(np.stack(found, axis=1), axis=1), checked)

    def sample(self, n_samples: int = 100, random_state: RandomState = 0) -> Samples:
        """Return draws from each row: first the component, then the targets.

        Parameters
        ----------
        n_samples : int, default=100
            The number of draws per row.
        random_state : int, RandomState or None, default=0
            The seed.

        Returns
        -------
        Samples
            The draws, for every function that takes regression outputs.
        """
        caller = f"{type(self).__name__}.sample"
        shape = self.n_rows, as_count(n_samples, "n_samples", caller, example=100)
        random = np.random.default_rng(draw_seed(random_state, caller))
        uniforms, chosen = random.random(shape), np.zeros(shape, np.int64)
        for end in np.cumsum(self.weights, axis=0)[:-1]:
            chosen += uniforms > end[:, np.newaxis]
        rows = np.arange(self.n_rows)[:, np.newaxis]
        noise = _family(self.family).noise(random, (*shape, *self.means.shape[2:]))
        return Samples(self.means[chosen, rows] + self.stds[chosen, rows] * noise)

    def _average(self, values: FloatArray) -> FloatArray:
        """Return the weighted mean over the components, in float64."""
        weights = self.weights.reshape(*self.weights.shape, *(1,) * (values.ndim - 2))
        return np.asarray((weights * values).sum(axis=0, dtype=np.float64))

    def _within(self) -> FloatArray:
        """Return the mean variance of the components."""
        return self._average(np.square(self.stds.astype(np.float64)))

    def _between(self) -> FloatArray:
        """Return the variance of the components' means, exactly 0 if they are equal."""
        return self._average(np.square(self.means - self.mean))

    def _standardized(self, y: Any, method: str) -> FloatArray:
        """Return targets relative to each component, in its standard deviations."""
        caller, shape = f"{type(self).__name__}.{method}", self.means.shape[1:]
        targets = as_finite(as_floats(y, "y", caller), "y", caller)
        if targets.shape != shape:
            rule, got = f"must have the shape {shape} of the rows", f"shape {targets.shape}"
            raise BadValueError("y", caller, rule, got, "Pass one target per row")
        return np.asarray((targets - self.means.astype(np.float64)) / self.stds)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RegressionMembers(BaseMixture):
    """Predictive distributions of an ensemble, or of several stochastic forward passes.

    The predictive distribution is the mixture of the members, with equal weights. For metrics and
    decisions take its `normal`, its `quantiles` or a `sample`.

    Parameters
    ----------
    means : array of shape (n_passes, n_rows) or (n_passes, n_rows, n_targets)
        The mean that each member predicts.
    stds : array of the shape of `means`
        The standard deviations that they predict, above 0.
    family : {"normal", "laplace"}, default="normal"
        What kind of distributions these are.

    Examples
    --------
    >>> from dubito import RegressionMembers
    >>> members = RegressionMembers([[1.0], [3.0]], [[2.0], [2.0]])
    >>> members.mean, members.aleatoric_variance, members.epistemic_variance
    (array([2.]), array([4.]), array([1.]))
    """

    axes = ("pass", "row", "target")
    means: FloatArray
    stds: FloatArray
    family: Literal["normal", "laplace"]

    def __init__(
        self, means: Any, stds: Any, family: Literal["normal", "laplace"] = "normal"
    ) -> None:
        require_choice(family, ("normal", "laplace"), "family", "RegressionMembers")
        _set_moments(self, means, stds, "passes x rows (x targets)")
        set_fields(self, family=family)

    @property
    def n_passes(self) -> int:
        """The number of passes."""
        return len(self.means)

    @property
    def weights(self) -> FloatArray:
        """The weights of the members, passes x rows: all equal."""
        return np.full(self.means.shape[:2], 1 / self.n_passes)

    @property
    def aleatoric_variance(self) -> FloatArray:
        """The mean of the members' variances: noise in the data."""
        return self._within()

    @property
    def epistemic_variance(self) -> FloatArray:
        """The variance of the members' means: what the model does not know."""
        return self._between()


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class NormalMixture(BaseMixture):
    """A mixture of normal distributions per row.

    Use it where targets are skewed or have several branches. For metrics and decisions take its
    `quantiles` or a `sample`; its `normal` has the same mean and variance, but one mode.

    Parameters
    ----------
    means : array of shape (n_components, n_rows) or (n_components, n_rows, n_targets)
        The means of the components.
    stds : array of the shape of `means`
        Their standard deviations, above 0.
    weights : array of shape (n_components, n_rows)
        Their weights, which sum to 1 in each row.

    Examples
    --------
    >>> from dubito import NormalMixture
    >>> branches = NormalMixture([[-1.0], [1.0]], [[0.1], [0.1]], [[0.5], [0.5]])
    >>> branches.quantiles([0.25, 0.75]).array.round(3).tolist()
    [[-1.0, 1.0]]
    >>> branches.normal.mean.tolist(), branches.normal.std.round(3).tolist()
    ([0.0], [1.005])
    """

    means: FloatArray
    stds: FloatArray
    weights: FloatArray

    def __init__(self, means: Any, stds: Any, weights: Any) -> None:
        _set_moments(self, means, stds, "components x rows (x targets)")
        given = as_floats(weights, "weights", "NormalMixture")
        if given.shape != self.means.shape[:2]:
            rule = f"must be components x rows, {self.means.shape[:2]}"
            got, fix = f"shape {given.shape}", "Pass one weight per component and row"
            raise BadValueError("weights", "NormalMixture", rule, got, fix)
        rows = as_distributions(np.ascontiguousarray(given.T), "weights", "NormalMixture")
        set_fields(self, weights=own(rows.T, weights))


class _Family(NamedTuple):
    """A family of distributions with mean 0 and variance 1."""

    cdf: Callable[[FloatArray], FloatArray]
    quantile: Callable[[float], float]
    log_density: Callable[[FloatArray], FloatArray]
    noise: Callable[[np.random.Generator, tuple[int, ...]], FloatArray]


def _family(name: str) -> _Family:
    """Return a family by name."""
    if name == "laplace":
        return _Family(
            cdf=lambda z: 0.5 - np.sign(z) * np.expm1(-ROOT * np.abs(z)) / 2,
            quantile=lambda p: float(-np.sign(p - 0.5) * np.log1p(-2 * abs(p - 0.5)) / ROOT),
            log_density=lambda z: -ROOT * np.abs(z) - np.log(2) / 2,
            noise=lambda random, shape: random.laplace(0, 1 / ROOT, shape),
        )
    from scipy.special import ndtr, ndtri

    return _Family(
        cdf=ndtr,
        quantile=ndtri,
        log_density=lambda z: -0.5 * (np.square(z) + np.log(2 * np.pi)),
        noise=lambda random, shape: random.standard_normal(shape),
    )


def _set_moments(outputs: BaseMixture, means: Any, stds: Any, shape: str) -> None:
    """Set the validated means and standard deviations of a mixture."""
    caller = type(outputs).__name__
    mean = as_finite(as_floats(means, "means", caller), "means", caller)
    if mean.ndim not in (2, 3) or 0 in (len(mean), *mean.shape[2:]):  # there may be no rows
        rule, fix = f"must be {shape}", "Use np.stack([first, second, ...])"
        raise BadValueError("means", caller, rule, f"shape {mean.shape}", fix)
    mean, std = _with_stds(mean, means, stds, ("means", "stds"), caller)
    set_fields(outputs, means=mean, stds=std)


def _with_stds(
    means: FloatArray, given: Any, stds: Any, names: tuple[str, str], caller: str
) -> tuple[FloatArray, FloatArray]:
    """Return means, read from what was given, and their standard deviations, validated."""
    of_means, name = names
    std = as_finite(as_floats(stds, name, caller), name, caller)
    if std.shape != means.shape:
        rule, got = f"must have the shape of `{of_means}`, {means.shape}", f"shape {std.shape}"
        raise BadValueError(name, caller, rule, got, _shape_remedy(name, std, means))
    require_everywhere(std > 0, std, name, caller, "must be positive", "Set a floor, such as 1e-6")
    return own(means, given), own(std, stds)


def _shape_remedy(name: str, stds: FloatArray, means: FloatArray) -> str:
    """Return what to do about standard deviations of another shape than the means.

    >>> _shape_remedy("std", np.ones(2), np.zeros((3, 2)))
    'Pass np.broadcast_to(std, (3, 2))'
    """
    try:
        np.broadcast_to(stds, means.shape)
    except ValueError:
        return "Pass one standard deviation per mean"
    return f"Pass np.broadcast_to({name}, {means.shape})"
