"""Calibrators of predictive distributions: the base class and variance scaling."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import reduce
from operator import add
from typing import Any, Self, final

import numpy as np

from dubito.arrays import FloatArray, IntArray
from dubito.calibrate.cross_validation import Folds, RegressionEvidence
from dubito.data.batch import Batch
from dubito.data.cache import cached
from dubito.data.shards import ArrayShards, Shards, make_shards
from dubito.errors import (
    BadTypeError,
    BadValueError,
    BoundWarning,
    DubitoWarning,
    StateMismatchError,
)
from dubito.kernels.blocks import row_blocks
from dubito.measure.regression import Regression, point_of_rows, require_targets, values_of
from dubito.measure.regression_audit import RegressionState
from dubito.measure.state import require_weight, warn_of_missing
from dubito.outputs import BaseOutputs, Normal, Quantiles, Samples
from dubito.serialization.array_fields import array
from dubito.serialization.fields import fitted, integer, one_of, optional
from dubito.serialization.objects import Serializable, clone

MIN_FACTOR, MAX_FACTOR = 1e-12, 1e12
N_EDGES = 4096  # between 1 and either bound; each round of a search is that many times finer
N_ROUNDS = 3
MIN_ROWS = 10  # of fewer, any row may outweigh all others
EXTREME = 100.0  # standard deviations: an error beyond these that outweighs all others is reported
ROUNDING = 1e-12  # a slope below this fraction of the sum of all its jumps counts as 0


class BaseRegressionCalibrator(Serializable):
    """Base class of calibrators of predictive distributions.

    A subclass implements `_learn` (set the parameters from shards), `_recalibrated` (recalibrated
    outputs), `_uncalibrated` (what to compare those with) and `_describe` (the parameters in
    words). Parameters are attributes that end in `_`.

    Attributes
    ----------
    kind_ : str
        "Normal", "Samples" or "Quantiles", the kind of outputs of the fit.
    n_targets_ : int or None
        Targets per row; None if the outputs have no target axis.
    """

    kind_: str = fitted(one_of("Normal", "Samples", "Quantiles"))
    n_targets_: int | None = fitted(optional(integer(1)))

    def fit(self, outputs: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the calibrator.

        Parameters
        ----------
        outputs : Normal, Samples, Quantiles or Shards
            Predictive distributions of rows that the model was not trained on. Shards hold targets
            and weights themselves.
        y : array of shape (n_rows,) or (n_rows, n_targets), optional
            Targets. Rows with a missing target are left out with a warning.
        sample_weight : array of shape (n_rows,), optional
            Frequency weights: a weight of 2 equals two identical rows.

        Returns
        -------
        BaseRegressionCalibrator
            The fitted calibrator itself.
        """
        name = type(self).__name__
        shards = self._labeled_shards(outputs, y, sample_weight, None, name)
        known = _kind_and_targets(next(shards.batches()), name)

        def counts(batch: Batch) -> FloatArray:
            found = _kind_and_targets(batch, name)
            if found != known:
                raise StateMismatchError("kinds and targets", known, found)
            return np.array([batch.n_missing, len(batch), batch.labeled_weight.sum()])

        n_missing, n_rows, weight = shards.sum(counts)
        require_weight(weight, name)
        warn_of_missing(int(n_missing), int(n_rows), name, stacklevel=3)
        with self._fitting(kind_=known[0], n_targets_=known[1]), cached(shards) as quick:
            self._learn(quick)
        return self

    def transform(self, outputs: Any) -> Regression:
        """Return recalibrated outputs.

        Parameters
        ----------
        outputs : Normal, Samples or Quantiles
            Predictive distributions of the kind and targets of the fit.

        Returns
        -------
        Normal, Samples or Quantiles
            Recalibrated distributions of the same rows.
        """
        return self._recalibrated(self._check_outputs(outputs, "transform"))

    def summary(self) -> str:
        """Return the fitted parameters in words, as part of a sentence.

        `cross_validate_calibrator` measures what calibration achieves.

        Returns
        -------
        str
            Part of a sentence.
        """
        self._require_fitted("summary")
        return self._describe()

    @abstractmethod
    def _learn(self, shards: Shards) -> None:
        """Set the parameters."""

    @abstractmethod
    def _recalibrated(self, outputs: Regression) -> Regression:
        """Return recalibrated outputs."""

    @abstractmethod
    def _uncalibrated(self, outputs: Regression) -> Regression:
        """Return uncalibrated outputs, in the form of recalibrated ones."""

    @abstractmethod
    def _describe(self) -> str:
        """Return the parameters in a few words."""

    def _labeled_shards(
        self, outputs: Any, y: Any, sample_weight: Any, groups: Any, caller: str
    ) -> Shards:
        columns = {"sample_weight": sample_weight, "groups": groups}
        return make_shards(outputs, y, caller=caller, convert=as_predictive, **columns)

    def _evidence(self, batch: Batch, folds: Folds) -> RegressionEvidence:
        """Return the audits before calibration, and after it by fits on other rows."""

        def states(train: IntArray, test: IntArray) -> list[RegressionState]:
            held_out, fitted = batch.take(test), clone(self).fit(ArrayShards(batch.take(train)))
            outputs = as_predictive(held_out.outputs, type(self).__name__)
            both = fitted._uncalibrated(outputs), fitted.transform(outputs)
            return [RegressionState.of(replace(held_out, outputs=one)) for one in both]

        audits = [reduce(add, one).value for one in zip(*folds.map(states), strict=True)]
        return RegressionEvidence(audits[0], audits[1], len(batch), len(folds))

    def _check_outputs(self, outputs: Any, method: str) -> Regression:
        """Return outputs of the kind and targets of the fit, or raise."""
        self._require_fitted(method)
        caller = f"{type(self).__name__}.{method}"
        regression = as_predictive(outputs, caller)
        kind, n_targets = type(regression).__name__, _count_targets(regression)
        if kind != self.kind_:
            rule, fix = f"must be {self.kind_}, as during fit", "Fit on outputs of this kind"
            raise BadTypeError("outputs", caller, rule, kind, fix)
        if n_targets != self.n_targets_:
            rule = f"must have {_describe_targets(self.n_targets_)}, as during fit"
            fix = "Pass the targets of the fit, in the same order"
            raise BadValueError("outputs", caller, rule, _describe_targets(n_targets), fix)
        return regression


def _kind_and_targets(batch: Batch, caller: str) -> tuple[str, int | None]:
    """Return the kind of outputs of rows with targets, and the number of targets per row."""
    outputs = as_predictive(batch.outputs, caller)
    require_targets(batch, caller, "y")
    return type(outputs).__name__, _count_targets(outputs)


def as_predictive(outputs: Any, caller: str) -> Regression:
    """Return predictive distributions that have a spread, or raise."""
    if not isinstance(outputs, Normal | Samples | Quantiles):
        rule, fix = "must be Normal, Samples or Quantiles", "Wrap them, e.g. Normal(mean, std)"
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    if not isinstance(outputs, Normal) and outputs.array.shape[1] < 2:
        what = "draws" if isinstance(outputs, Samples) else "levels"
        rule = f"must have at least 2 {what} per row"
        raise BadValueError("outputs", caller, rule, "1", f"Pass more {what}: one has no spread")
    return outputs


def _count_targets(outputs: BaseOutputs) -> int | None:
    """Return the number of targets per row, None without a target axis."""
    assert isinstance(outputs, Normal | Samples | Quantiles)
    shape = outputs.mean.shape[1:] if isinstance(outputs, Normal) else outputs.array.shape[2:]
    return int(shape[0]) if shape else None


def _describe_targets(n_targets: int | None) -> str:
    """Return a number of targets in words."""
    return "no target axis" if n_targets is None else f"a target axis of length {n_targets}"


def small_blocks(batch: Batch) -> Iterator[Batch]:
    """Yield a batch in blocks of bounded size, whatever the number of draws."""
    outputs = batch.outputs
    array = outputs.mean if isinstance(outputs, Normal) else getattr(outputs, "array", np.empty(0))
    n_entries = int(np.prod(array.shape[1:]))
    return (batch.take(rows) for rows in row_blocks(len(batch), n_entries))


def cast_finite(values: FloatArray, dtype: np.dtype[Any]) -> FloatArray:
    """Return values in a float type, clipped to its finite range."""
    largest = float(np.finfo(dtype).max)
    return np.asarray(np.clip(values, -largest, largest).astype(dtype))


@final
class VarianceScaling(BaseRegressionCalibrator):
    """Scale the spread of every predictive distribution by one factor per target.

    Try it first: a single parameter does not overfit. The center of each distribution stays: the
    mean of `Normal` and `Samples`, the interpolated median of `Quantiles`.

    For `Normal` the factor has the highest likelihood: the root mean squared z-score. For
    `Samples` and `Quantiles` it has the lowest pinball loss over all levels, which for samples is
    the CRPS, since squared z-scores of a few draws have no finite mean. Among equally good
    factors, the one nearest to 1 is taken.

    Attributes
    ----------
    factor_ : array of shape (n_targets,)
        Above 1 if the stated spread was too small.

    References
    ----------
    Laves, Ihler, Fast, Kahrs and Ortmaier, "Well-calibrated regression uncertainty in medical
    imaging with deep learning", MIDL 2020.

    Examples
    --------
    >>> from dubito import Normal
    >>> from dubito.calibrate import VarianceScaling
    >>> scaling = VarianceScaling().fit(Normal([0.0, 0.0], [1.0, 2.0]), [2.0, -4.0])
    >>> scaling.factor_.tolist()
    [2.0]
    >>> scaling.transform(Normal([5.0], [0.5])).std.tolist()
    [1.0]
    """

    factor_: FloatArray = fitted(array("n_targets_", low=MIN_FACTOR, high=MAX_FACTOR))

    def _learn(self, shards: Shards) -> None:
        fit_factor = _normal_factor if self.kind_ == "Normal" else _pinball_factor
        self.factor_ = np.clip(fit_factor(shards), MIN_FACTOR, MAX_FACTOR)
        if self.kind_ == "Normal" and self.factor_.max() > 2:
            _warn_of_one_row(shards)
        for at in self.factor_[(self.factor_ <= MIN_FACTOR) | (self.factor_ >= MAX_FACTOR)]:
            why = "no spread at all fits best" if at < 1 else "no spread is wide enough"
            text = f"The factor ended at its bound of {at:.3g}: {why}. Check the targets."
            warnings.warn(text, BoundWarning, stacklevel=3)

    def _recalibrated(self, outputs: Regression) -> Regression:
        if isinstance(outputs, Normal):
            kind = outputs.std.dtype
            with np.errstate(over="ignore"):
                std = np.maximum(outputs.std * self.factor_, np.finfo(kind).tiny)
            return Normal(outputs.mean, cast_finite(std, kind))
        center = point_of_rows(outputs).astype(np.float64)[:, np.newaxis]
        with np.errstate(over="ignore"):
            stretched = center + self.factor_ * (outputs.array - center)
        array = cast_finite(stretched, outputs.array.dtype)
        return Samples(array) if isinstance(outputs, Samples) else Quantiles(array, outputs.levels)

    def _uncalibrated(self, outputs: Regression) -> Regression:
        return outputs

    def _describe(self) -> str:
        low, high = float(self.factor_.min()), float(self.factor_.max())
        factors, over = f"{low:.3g}", ""
        if self.factor_.size > 1:
            factors, over = f"{low:.3g} to {high:.3g}", f" over {self.factor_.size} targets"
        verdict = "too small or too large"
        if max(high - 1, 1 - low) < 0.005:
            verdict = "right already"
        elif low >= 1 or high <= 1:
            verdict = "too small" if low >= 1 else "too large"
        of_kind = {
            "Normal": "predicted standard deviations were",
            "Samples": "the spread of draws was",
            "Quantiles": "widths of predicted intervals were",
        }
        return f"{of_kind[self.kind_]} {verdict}: multiplied by {factors}{over}"


def _normal_factor(shards: Shards) -> FloatArray:
    """Return the root mean squared z-score of each target."""

    def sums(batch: Batch) -> FloatArray:
        _, squares = _standard_scores(batch)
        return np.append(batch.labeled_weight @ squares, batch.labeled_weight.sum())

    *squares, weight = shards.sum(sums)
    return np.asarray(np.sqrt(np.array(squares) / weight))


def _standard_scores(batch: Batch) -> tuple[FloatArray, FloatArray]:
    """Return the distance of targets from the mean in standard deviations, and its square."""
    assert isinstance(batch.outputs, Normal)
    with np.errstate(over="ignore"):
        distance = np.abs(values_of(batch) - batch.outputs.mean)
        z = (distance / batch.outputs.std.astype(np.float64)).reshape(len(batch), -1)
    # Larger distances would only overflow: the bound is reached anyway.
    return z, np.square(np.minimum(z, 10 * MAX_FACTOR))


def _warn_of_one_row(shards: Shards) -> None:
    """Warn if a single row determines the factor: its error is extreme."""

    def largest(batch: Batch) -> list[tuple[int, int, float, float, float]]:
        z, squares = (one.max(axis=1) for one in _standard_scores(batch))
        z = np.where(batch.labeled_weight > 0, z, 0.0)
        squares = batch.labeled_weight * squares
        row = int(z.argmax()) if z.size else 0
        largest = (row, float(z.max(initial=0.0)), squares[row : row + 1].sum())
        return [(len(batch), *largest, squares.sum())]

    parts = shards.sum(largest)
    n_rows, rows, scores, squares, totals = zip(*parts, strict=True)
    k = int(np.argmax(scores))
    z, is_dominant = scores[k], squares[k] > 0.5 * sum(totals)
    if sum(n_rows) >= MIN_ROWS and z > EXTREME and is_dominant:
        row = sum(n_rows[:k]) + rows[k]
        text = (
            f"VarianceScaling: the target of row {row} is {z:.3g} predicted standard deviations "
            "from its mean, and alone determines the factor. Correct or drop the row, or use "
            "QuantileRecalibration."
        )
        warnings.warn(text, DubitoWarning, stacklevel=4)


def _pinball_factor(shards: Shards) -> FloatArray:
    """Return the factor of lowest pinball loss of each target.

    The loss is convex and piecewise linear in the factor: a pass gives its slope at all edges of a
    grid, and the next grid lies between the two edges where the slope changes sign.
    """
    upper = np.geomspace(1.0, MAX_FACTOR, N_EDGES)
    start = np.concatenate([1 / upper[:0:-1], [np.nextafter(1.0, 0.0)], upper])
    sums = shards.sum(lambda batch: _slope_sums(batch, [start]))
    searches = [_FactorSearch.of(one, start) for one in sums]
    for _ in range(N_ROUNDS - 1):
        edges = [search.edges for search in searches]
        sums = shards.sum(lambda batch: _slope_sums(batch, edges))  # noqa: B023
        searches = [search.narrowed(one) for search, one in zip(searches, sums, strict=True)]
    return np.array([search.edges[-1] for search in searches])


@final
@dataclass(frozen=True, slots=True, eq=False)
class _FactorSearch:
    """The edges between which the slope of one target's loss changes sign.

    Above 1, the factor is the first whose slope to the right is not negative; below 1, the first
    whose slope to the right is positive: the end of a flat part that is nearest to 1.
    """

    edges: FloatArray
    is_above_1: bool

    @classmethod
    def of(cls, sums: FloatArray, edges: FloatArray) -> _FactorSearch:
        slopes, rounding = _slopes(sums)
        one = N_EDGES  # the index of 1, which follows the number just below 1
        if slopes[one - 1] <= rounding and slopes[one] >= -rounding:
            return cls(np.ones(N_EDGES), True)
        return cls(edges, bool(slopes[one] < -rounding)).narrowed(sums)

    def narrowed(self, sums: FloatArray) -> _FactorSearch:
        slopes, rounding = _slopes(sums)
        is_past = slopes >= -rounding if self.is_above_1 else slopes > rounding
        if not is_past.any():
            return replace(self, edges=np.full(N_EDGES, self.edges[-1]))
        k = int(np.argmax(is_past))
        return replace(self, edges=np.linspace(self.edges[max(k - 1, 0)], self.edges[k], N_EDGES))


def _slopes(sums: FloatArray) -> tuple[FloatArray, float]:
    """Return the slope to the right of each edge, and the size of its rounding error."""
    first, jumps = sums[0], sums[2:-1]
    return first + np.cumsum(jumps), ROUNDING * float(sums[1])


def _slope_sums(batch: Batch, edges: list[FloatArray]) -> FloatArray:
    """Return for each target the slope to the right of 0, the sum of jumps, and jumps per cell."""
    n_targets = _count_targets(batch.outputs) or 1
    each = edges if len(edges) == n_targets else edges * n_targets
    sums = np.zeros((n_targets, 3 + each[0].size))
    for block in small_blocks(batch):
        outputs, y = block.outputs, values_of(block)
        assert isinstance(outputs, Samples | Quantiles)
        center = point_of_rows(outputs).astype(np.float64)
        errors = (y - center).reshape(len(block), 1, n_targets)
        values = outputs.array if isinstance(outputs, Quantiles) else np.sort(outputs.array, axis=1)
        away = (values - center[:, np.newaxis]).reshape(len(block), -1, n_targets)
        n_values = away.shape[1]
        # The CRPS of m draws is twice the mean pinball loss of the sorted draws at these levels.
        levels = (np.arange(n_values) + 0.5) / n_values
        if isinstance(outputs, Quantiles):
            levels = outputs.levels.astype(np.float64)
        for target in range(n_targets):
            e, d = errors[:, :, target], away[:, :, target]
            sums[target] += _target_slope_sums(e, d, levels, block.labeled_weight, each[target])
    return sums


def _target_slope_sums(
    error: FloatArray, away: FloatArray, levels: FloatArray, weight: FloatArray, edges: FloatArray
) -> FloatArray:
    """Return the sums of one target: the slope jumps where the scaled value meets the target."""
    is_above = (error > 0) | ((error == 0) & (away < 0))
    first = np.where(is_above, -away * levels, away * (1 - levels))
    jumps = weight[:, np.newaxis] * np.abs(away)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        kinks = error / away
    is_met = kinks > 0
    places = np.searchsorted(edges, kinks[is_met])
    counts = np.bincount(places, jumps[is_met], edges.size + 1)
    return np.concatenate([[weight @ first.sum(axis=1), jumps.sum()], counts])
