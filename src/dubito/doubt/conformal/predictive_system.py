"""Conformal predictive systems: a whole calibrated distribution per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, final

import numpy as np

from dubito.arrays import (
    ArrayResult,
    FloatArray,
    IntArray,
    RandomState,
    as_fraction,
    as_numbers,
    draw_seed,
    freeze,
)
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.doubt.conformal.local_scale import stated_spread
from dubito.doubt.conformal.predictor import READ_ROWS
from dubito.doubt.conformal.regressor import (
    MIN_ROWS,
    POINTS,
    BaseConformalRegression,
    PredictionIntervals,
    kind_of,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.measure.regression import values_of
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseOutputs, Quantiles
from dubito.outputs.regression import as_levels
from dubito.serialization.fields import Entry, fitted, one_of
from dubito.serialization.objects import clone

Method = Literal["absolute", "normalized", "adaptive"]

SPREAD_METHODS: tuple[Method, ...] = ("normalized", "absolute", "adaptive")
# Supported methods by kind of outputs: the default for few rows first.
METHODS: dict[str, tuple[Method, ...]] = {
    POINTS: ("absolute", "adaptive"),
    **dict.fromkeys(("Normal", "Samples", "Quantiles"), SPREAD_METHODS),
}
LARGEST = 8e307  # scores beyond this are clipped: they and their differences stay finite
TINY = float(np.finfo(np.float64).tiny)


@final
class ConformalPredictiveSystem(BaseConformalRegression):
    """Predictive distributions that are calibrated at every level (split conformal).

    The distribution of a row is that of the calibration errors, around the row's center and in
    units of its scale. If rows are exchangeable, the probability that it gives to targets up to
    the true one (PIT) is uniform: exactly for `cdf(y, tau)` with uniform `tau`, otherwise to
    within 1 / (n + 1). `ConformalRegressor` gives intervals of one level alone.

    Parameters
    ----------
    level : float, default=0.9
        The level of central intervals that matters most: "adaptive" balances their tails.
    method : {"absolute", "normalized", "adaptive"}, optional
        The scale: the same for all rows, that which the outputs state, or one that is learned from
        a random half of the rows (`ConformalRegressor`). By default "adaptive" from 100 rows on,
        otherwise "normalized", or "absolute" for an array of predictions.
    random_state : int, RandomState or None, default=0
        The seed of the rows that "adaptive" learns from.

    Attributes
    ----------
    weighted_scores_ : dict
        The sorted scores of calibration rows with their weights, by group ("all" without).
    kind_, method_ : str
        The kind of outputs and the method in the fit.
    levels_ : tuple of float or None
        The levels of `Quantiles` in the fit.
    local_scale_ : LocalScale or None
        The learned center and scale.

    References
    ----------
    Vovk, Petej, Nouretdinov, Manokhin and Gammerman, "Computationally efficient versions of
    conformal predictive distributions", 2020.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.doubt import ConformalPredictiveSystem
    >>> system = ConformalPredictiveSystem().fit(np.zeros(9), np.arange(1.0, 10.0))
    >>> found = system.predict(np.array([100.0]))
    >>> found.cdf([105.0]).tolist(), found.quantile([0.1, 0.9]).array.tolist()
    ([0.5], [[101.0, 109.0]])
    >>> found.interval(0.8)
    PredictionIntervals(shape (1,), mean low 101, mean high 109)
    """

    method_: Method = fitted(one_of(*SPREAD_METHODS))

    method_names = ("absolute", "normalized", "adaptive")
    methods = METHODS
    learned = ("method_", "local_scale_")
    unbounded = "intervals of this level are infinite"

    def __init__(
        self,
        level: float = 0.9,
        method: Method | None = None,
        random_state: RandomState = 0,
    ) -> None:
        self.level = level
        self.method = method
        self.random_state = random_state

    def predict(self, outputs: Any, groups: Any = None) -> PredictiveDistributions:
        """Return the predictive distribution of each row.

        Parameters
        ----------
        outputs : Normal, Samples, Quantiles or array-like of shape (n_rows,)
            Outputs of the kind of the fit, `Quantiles` at its levels.
        groups : array-like of shape (n_rows,), optional
            The group of each row, if the fit had groups: each has scores of its own (Mondrian).

        Returns
        -------
        PredictiveDistributions
            With `cdf`, `quantile` and `interval`.
        """
        caller = f"{type(self).__name__}.predict"
        wrapped = self._checked_outputs(outputs, caller)
        names, positions = self._fitted_groups(groups, wrapped.n_rows, caller)
        assert self.weighted_scores_ is not None
        known = list(self.weighted_scores_)
        group = np.array([known.index(name) for name in names], dtype=np.int64)[positions]
        scores = tuple(_Scores(**one) for one in self.weighted_scores_.values())
        center, below, above = map(freeze, self._spread(wrapped))
        return PredictiveDistributions(center, below, above, group, scores)

    def _check_fitted(self, entry: Entry) -> None:
        super()._check_fitted(entry)
        if self.weighted_scores_ is None or list(self.weighted_scores_) != list(self.thresholds_):
            raise entry.at("weighted_scores_").error("the scores of each group", "others")

    def _prepare(
        self, shards: Shards, ratio: FloatArray | None
    ) -> tuple[Self, Shards, FloatArray | None]:
        scorer, name = clone(self), type(self).__name__
        if ratio is not None:
            rule, fix = "must be None", "Use ConformalRegressor for intervals under covariate shift"
            raise BadTypeError("density_ratio", name, rule, "ratios", fix)
        if shards.in_memory is None:
            raise BadTypeError("outputs", name, "must be in memory", "a stream", READ_ROWS)
        batch, used = self._checked_rows(shards.in_memory)
        default = METHODS[kind_of(batch.outputs)][0]
        scorer.method_ = self.method or ("adaptive" if used.size >= MIN_ROWS else default)
        scorer.level_, scorer.local_scale_ = float(self.level), None
        if scorer.method_ == "adaptive" and used.size:
            warn_of_missing(batch.n_missing, len(batch), name, stacklevel=4)
            shuffled = np.random.default_rng(draw_seed(self.random_state, name)).permutation(used)
            scorer._learn_scale(batch.take(shuffled[: used.size // 2]))
            batch = batch.take(shuffled[used.size // 2 :])
        # With weights, all scores are kept.
        return scorer, ArrayShards(batch), np.ones(len(batch))

    def _scores(self, batch: Batch) -> FloatArray:
        return _signed_distances(values_of(batch), *self._spread(batch.outputs))

    def _spread(self, outputs: BaseOutputs) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return the center of rows, and the scales below and above it, which are never 0."""
        stated = stated_spread(outputs, self.level_)
        if self.local_scale_ is not None:
            stated = self.local_scale_.apply(stated)
        elif self.method_ != "normalized":
            one = np.ones(outputs.n_rows)
            return stated.center, one, one
        return stated.center, np.maximum(stated.below, TINY), np.maximum(stated.above, TINY)


def _signed_distances(
    y: FloatArray, center: FloatArray, below: FloatArray, above: FloatArray
) -> FloatArray:
    """Return the distances of targets from the center, in the units below and above it."""
    with np.errstate(over="ignore"):
        errors = y - center
        scores = errors / np.where(errors < 0, below, above)
    return np.clip(scores, -LARGEST, LARGEST)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _Scores:
    """Sorted distinct scores of a group, with their weights."""

    scores: FloatArray
    weight: FloatArray
    total: float

    def cdf(self, scores: FloatArray, tau: FloatArray) -> FloatArray:
        """Return the conformal distribution function at some scores."""
        reached = np.append(0.0, np.cumsum(self.weight))
        below = reached[np.searchsorted(self.scores, scores, "left")]
        ties = reached[np.searchsorted(self.scores, scores, "right")] - below
        return np.asarray((below + tau * (ties + 1)) / (self.total + 1))

    def quantile(self, levels: FloatArray) -> FloatArray:
        """Return scores at levels, linear between ranks k / (n + 1)."""
        after = np.cumsum(self.weight)
        before = after - self.weight + np.minimum(self.weight, 1.0)
        knots = np.stack([before, after], axis=1).ravel() / (self.total + 1)
        return np.interp(levels, knots, np.repeat(self.scores, 2))

    def ends(self, tail: float) -> tuple[float, float]:
        """Return the scores between which at least 1 - 2 tail lie, infinite if rows are too few."""
        reached = np.cumsum(self.weight)
        is_high = reached / (self.total + 1) >= 1 - tail - 1e-12
        # The lower end mirrors the upper: the weight of scores from it on reaches as much.
        is_low = (self.total - (reached - self.weight)) / (self.total + 1) >= 1 - tail - 1e-12
        low = self.scores[is_low][-1] if is_low.any() else -np.inf
        high = self.scores[is_high][0] if is_high.any() else np.inf
        # Where a score was clipped is not known, so an interval that ends there has no end.
        is_known = low > -LARGEST, high < LARGEST
        return float(low) if is_known[0] else -np.inf, float(high) if is_known[1] else np.inf


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PredictiveDistributions(ArrayResult):
    """A conformal predictive distribution per row.

    Attributes
    ----------
    center, below, above : ndarray of shape (n_rows,)
        The center of each row, and the units below and above it.
    group : ndarray of int, shape (n_rows,)
        The number of the row's group among `scores`.
    scores : tuple
        The calibration scores of each group.
    """

    center: FloatArray
    below: FloatArray
    above: FloatArray
    group: IntArray
    scores: tuple[_Scores, ...]

    def cdf(self, y: Any, tau: Any = 0.5) -> FloatArray:
        """Return the probability of a target of at most `y`, in each row.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            Targets, one for each row.
        tau : float or array-like of shape (n_rows,), default=0.5
            Where in the step at `y`, from 0 to 1. With uniform random numbers, values at the true
            targets are exactly uniform.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        caller = "PredictiveDistributions.cdf"
        values = as_numbers(y, "y", caller, self.center.size, "the rows").astype(np.float64)
        places = np.broadcast_to(np.asarray(tau, dtype=np.float64), values.shape)
        if not ((places >= 0) & (places <= 1)).all():
            raise BadValueError("tau", caller, "must be from 0 to 1", f"{tau}", "Use tau=0.5")
        scores = _signed_distances(values, self.center, self.below, self.above)
        found = np.empty(values.size)
        for k, group in enumerate(self.scores):
            rows = self.group == k
            found[rows] = group.cdf(scores[rows], places[rows])
        return found

    def quantile(self, levels: Any) -> Quantiles:
        """Return quantiles of each row, for every function that takes regression outputs.

        Parameters
        ----------
        levels : array-like of shape (n_levels,)
            Increasing levels between 0 and 1. Those beyond the outermost of n calibration rows,
            1 / (n + 1) and n / (n + 1), are at the outermost.

        Returns
        -------
        Quantiles
        """
        wanted = as_levels(levels, "PredictiveDistributions.quantile")
        at = np.stack([group.quantile(wanted) for group in self.scores])[self.group]
        return Quantiles(np.maximum.accumulate(self._values(at), axis=1), wanted)

    def interval(self, level: float = 0.9) -> PredictionIntervals:
        """Return the central interval of each row, which covers at least `level`.

        Parameters
        ----------
        level : float, default=0.9
            The coverage, above 0 and below 1.

        Returns
        -------
        PredictionIntervals
            Infinite if there were too few calibration rows.
        """
        caller = "PredictiveDistributions.interval"
        tail = (1 - as_fraction(level, "level", caller, is_open=True)) / 2
        ends = np.array([group.ends(tail) for group in self.scores])[self.group]
        is_infinite = np.isinf(ends)
        finite = self._values(np.where(is_infinite, 0.0, ends))
        low, high = np.where(is_infinite, ends, finite).T
        return PredictionIntervals(freeze(low), freeze(high))

    def _values(self, scores: FloatArray) -> FloatArray:
        """Return the values at scores, rows x scores."""
        unit = np.where(scores < 0, self.below[:, np.newaxis], self.above[:, np.newaxis])
        most = np.finfo(np.float64).max
        with np.errstate(over="ignore"):
            return np.clip(self.center[:, np.newaxis] + scores * unit, -most, most)
