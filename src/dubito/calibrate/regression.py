"""Calibrators of predictive distributions: the base class and variance scaling."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
from sklearn.base import clone

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.data.shards import Shards, as_shards, sample_rows
from dubito.errors import (
    BadTypeError,
    BadValueError,
    BoundWarning,
    EmptyStateError,
    StateMismatchError,
)
from dubito.kernels.blocks import row_blocks
from dubito.measure.regression import point_of_rows, require_targets, values_of
from dubito.measure.regression_audit import RegressionAudit, RegressionState
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseOutputs, Normal, Quantiles, Samples
from dubito.serialization.arrays import array
from dubito.serialization.fields import declare, integer, one_of, optional
from dubito.serialization.objects import Serializable

Regression = Normal | Samples | Quantiles

N_FOLDS = 5
MOST_ROWS = 20_000  # that a summary cross-fits on
LEVEL = 0.9  # of the interval whose coverage a summary tells


class BaseRegressionCalibrator(Serializable):
    """Learns from predictive distributions and targets, and mends distributions alike.

    It says what it learns of shards (`_learn`), the mended outputs (`_mended`), what these are
    compared with (`_as_stated`), and what it learned in words (`_words`). Learned names end in `_`;
    they and the settings are what `to_dict` keeps.
    """

    kind_: str  # of outputs, by name
    n_targets_: int | None  # None for one number a row

    fitted_fields = declare(
        kind_=one_of("Normal", "Samples", "Quantiles"),
        n_targets_=optional(integer(1)),
    )

    def fit(self, outputs: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from outputs and targets, or from shards that hold both.

        A weight counts rows: 2 is a row that came twice. Rows without a target are left out.
        """
        name = type(self).__name__
        shards = as_shards(outputs, y, sample_weight=sample_weight, caller=name, convert=_as_spread)
        seen = shards.sum(lambda batch: SeenRows.of(batch, name))
        if not seen.weight > 0:
            raise EmptyStateError(name)
        warn_of_missing(seen.n_missing, seen.n_rows, name, stacklevel=3)
        self._forget()
        self.kind_, self.n_targets_ = seen.kind, seen.n_targets
        self._check_params()
        self._learn(shards)
        # What summary() cross-fits on when asked. It is neither pickled nor kept by to_dict.
        self._shards = shards
        return self

    def transform(self, outputs: Any) -> Regression:
        """Return recalibrated outputs of the rows given."""
        return self._mended(self._known(outputs, "transform"))

    def summary(self) -> str:
        """Say in words what was learned, and what it does to coverage and CRPS, out of sample."""
        self._require_fitted("summary")
        if not hasattr(self, "_shards"):
            return f"{self._words()}; the rows of the fit are no longer at hand to cross-fit on"
        return f"{self._words()}; {_evidence_of(self, self._shards)}"

    @abstractmethod
    def _learn(self, shards: Shards) -> None:
        """Set whatever is learned."""

    @abstractmethod
    def _mended(self, outputs: Regression) -> Regression:
        """Return recalibrated outputs."""

    @abstractmethod
    def _as_stated(self, outputs: Regression) -> Regression:
        """Return outputs as they came, in the form in which they will be after recalibration."""

    @abstractmethod
    def _words(self) -> str:
        """Say in a few words what was learned."""

    def _known(self, outputs: Any, method: str) -> Regression:
        """Return outputs of the kind and the targets it was fitted for."""
        self._require_fitted(method)
        caller = f"{type(self).__name__}.{method}"
        regression = _as_spread(outputs, caller)
        kind, n_targets = type(regression).__name__, _n_targets_of(regression)
        if kind != self.kind_:
            fix = "a fit on outputs of this kind"
            raise BadTypeError("outputs", caller, f"{self.kind_}, as in the fit", kind, fix)
        if n_targets != self.n_targets_:
            rule = f"of {_named(self.n_targets_)}, as in the fit"
            raise BadValueError("outputs", caller, rule, _named(n_targets), "the same columns")
        return regression


@final
@dataclass(frozen=True, slots=True)
class SeenRows:
    """What the rows of a fit are, and how many."""

    kind: str
    n_targets: int | None
    n_rows: int
    n_missing: int
    weight: float

    @classmethod
    def of(cls, batch: Batch, caller: str) -> SeenRows:
        outputs = _as_spread(batch.outputs, caller)
        require_targets(batch, caller, "y")
        return cls(
            kind=type(outputs).__name__,
            n_targets=_n_targets_of(outputs),
            n_rows=len(batch),
            n_missing=batch.n_missing,
            weight=float(batch.labeled_weight.sum()),
        )

    def __add__(self, other: SeenRows) -> SeenRows:
        mine, others = (self.kind, self.n_targets), (other.kind, other.n_targets)
        if mine != others:
            raise StateMismatchError("kinds and targets", mine, others)
        return SeenRows(
            *mine,
            self.n_rows + other.n_rows,
            self.n_missing + other.n_missing,
            self.weight + other.weight,
        )


def _as_spread(outputs: Any, caller: str) -> Regression:
    """Return outputs that are distributions of a number with a spread of their own."""
    if not isinstance(outputs, Normal | Samples | Quantiles):
        rule, fix = "one of Normal, Samples, Quantiles", "wrapping them, say Normal(mean, std)"
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    if not isinstance(outputs, Normal) and outputs.array.shape[1] < 2:
        what = "draws" if isinstance(outputs, Samples) else "levels"
        rule, fix = f"of 2 {what} or more a row", f"more {what}: one says nothing of the spread"
        raise BadValueError("outputs", caller, rule, "1", fix)
    return outputs


def _n_targets_of(outputs: BaseOutputs) -> int | None:
    """Return how many targets a row has, None for one plain number."""
    assert isinstance(outputs, Normal | Samples | Quantiles)
    shape = outputs.mean.shape[1:] if isinstance(outputs, Normal) else outputs.array.shape[2:]
    return int(shape[0]) if shape else None


def _named(n_targets: int | None) -> str:
    """Return a number of targets in words."""
    return "one number a row" if n_targets is None else f"rows x {n_targets} targets"


def small_blocks(batch: Batch) -> Iterator[Batch]:
    """Yield a batch in parts whose matrices stay small, whatever the number of draws."""
    outputs = batch.outputs
    array = outputs.mean if isinstance(outputs, Normal) else getattr(outputs, "array", np.empty(0))
    n_entries = int(np.prod(array.shape[1:]))
    return (batch.take(rows) for rows in row_blocks(len(batch), n_entries))


def narrowed(values: FloatArray, kind: np.dtype[Any]) -> FloatArray:
    """Return values in a float type, the largest finite one where they are beyond it."""
    most = float(np.finfo(kind).max)
    return np.asarray(np.clip(values, -most, most).astype(kind))


def _evidence_of(calibrator: BaseRegressionCalibrator, shards: Shards) -> str:
    """Say what recalibration does to rows that were not fitted on, in seeded folds."""
    rows = sample_rows(shards, MOST_ROWS, is_labeled=True)
    if len(rows) < 2:
        return "too few rows to cross-fit on (1)"
    before = _audited(rows, calibrator._as_stated(_as_spread(rows.outputs, "summary"))).value
    order = np.random.default_rng(0).permutation(len(rows))
    folds = np.array_split(order, min(N_FOLDS, len(rows)))
    states = []
    for fold in folds:
        others, held_out = np.setdiff1d(order, fold), rows.take(fold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BoundWarning)  # of a fold: the fit told of its own
            fitted = clone(calibrator).fit(rows.take(others))
        states.append(_audited(held_out, fitted.transform(held_out.outputs)))
    after = sum(states[1:], start=states[0]).value
    return f"{_compared(before, after)}, cross-fitted on {len(rows):,} rows"


def _audited(batch: Batch, outputs: Regression) -> RegressionState:
    """Return the audit's sums of the rows of a batch with other outputs."""
    return RegressionState.of(replace(batch, outputs=outputs))


def _compared(before: RegressionAudit, after: RegressionAudit) -> str:
    """Say what coverage and CRPS were, and what they are now."""
    crps = [one.continuous_ranked_probability_score for one in (before, after)]
    words = f"CRPS was {crps[0]:.4g}, now {crps[1]:.4g}"
    if not before.levels.size:
        return words
    k = int(np.argmin(np.abs(before.levels - LEVEL)))
    level = f"{before.levels[k] * 100:.3g} %"
    held = f"was {before.coverage[k]:.2f}, now {after.coverage[k]:.2f}"
    return f"interval coverage at {level} {held}; {words}"


LOWEST, HIGHEST = 1e-12, 1e12  # bounds of the factor
N_EDGES = 4096  # between 1 and either bound; each round of a search narrows that many times
N_ROUNDS = 3
ROUNDING = 1e-12  # of all jumps of a slope together: less is taken for 0


@final
class VarianceScaling(BaseRegressionCalibrator):
    """Stretch every predictive distribution by one factor a target; its center stays.

    Try it first: one number cannot overfit. `factor_` has one entry a target, a single one where
    rows are plain numbers. For `Normal` it is the likeliest, the root of the mean squared z-score.
    `Samples` are stretched about their mean, `Quantiles` about their median (interpolated), by the
    factor of least pinball loss over all levels, which for samples is the CRPS: of few draws,
    squared z-scores have no finite mean. Of several factors as good, the one nearest to 1 is taken.
    Laves et al., "Well-calibrated regression uncertainty in medical imaging with deep learning",
    2020.

    >>> scaling = VarianceScaling().fit(Normal([0.0, 0.0], [1.0, 2.0]), [2.0, -4.0])
    >>> scaling.factor_.tolist()
    [2.0]
    >>> scaling.transform(Normal([5.0], [0.5])).std.tolist()
    [1.0]
    """

    factor_: FloatArray

    fitted_fields = declare(factor_=array("n_targets_", low=LOWEST, high=HIGHEST))

    def _learn(self, shards: Shards) -> None:
        learn = _likeliest_factor if self.kind_ == "Normal" else _stretching_factor
        factor = learn(shards)
        self.factor_ = np.clip(factor, LOWEST, HIGHEST)
        for at in self.factor_[(self.factor_ <= LOWEST) | (self.factor_ >= HIGHEST)]:
            why = "no spread at all is best" if at < 1 else "no spread is wide enough"
            text = f"The factor ended at its bound of {at:.3g}: {why}. Try other rows."
            warnings.warn(text, BoundWarning, stacklevel=3)

    def _mended(self, outputs: Regression) -> Regression:
        if isinstance(outputs, Normal):
            kind = outputs.std.dtype
            with np.errstate(over="ignore"):
                std = np.maximum(outputs.std * self.factor_, np.finfo(kind).tiny)
            return Normal(outputs.mean, narrowed(std, kind))
        center = point_of_rows(outputs).astype(np.float64)[:, np.newaxis]
        with np.errstate(over="ignore"):
            stretched = center + self.factor_ * (outputs.array - center)
        array = narrowed(stretched, outputs.array.dtype)
        return Samples(array) if isinstance(outputs, Samples) else Quantiles(array, outputs.levels)

    def _as_stated(self, outputs: Regression) -> Regression:
        return outputs

    def _words(self) -> str:
        low, high = float(self.factor_.min()), float(self.factor_.max())
        by = f"x {low:.3g}" if self.factor_.size == 1 else f"x {low:.3g} to x {high:.3g}"
        over = "" if self.factor_.size == 1 else f" over {self.factor_.size} targets"
        if max(high - 1, 1 - low) < 0.005:
            return f"stated spread was right already: {by}{over}"
        too = "too small" if low >= 1 else "too large" if high <= 1 else "too small or too large"
        return f"stated spread was {too}: {by}{over}"


def _likeliest_factor(shards: Shards) -> FloatArray:
    """Return the root of the mean squared z-score, a target."""

    def sums(batch: Batch) -> FloatArray:
        outputs, weight = batch.outputs, batch.labeled_weight
        assert isinstance(outputs, Normal)
        with np.errstate(over="ignore"):
            z = np.abs(values_of(batch) - outputs.mean) / outputs.std.astype(np.float64)
        # Beyond the bound a distance only says that the bound is reached.
        squares = np.square(np.minimum(z, 10 * HIGHEST)).reshape(len(batch), -1)
        return np.append(weight @ squares, weight.sum())

    *squares, weight = shards.sum(sums)
    return np.asarray(np.sqrt(np.array(squares) / weight))


def _stretching_factor(shards: Shards) -> FloatArray:
    """Return the factor of least pinball loss, a target.

    The loss is a convex polygon in the factor: a pass over the rows gives its slope at all edges of
    a grid, the next one is laid between the two edges where the slope changes sign.
    """
    upper = np.geomspace(1.0, HIGHEST, N_EDGES)
    start = np.concatenate([1 / upper[:0:-1], [np.nextafter(1.0, 0.0)], upper])
    sums = shards.sum(lambda batch: _slope_sums(batch, [start]))
    searches = [StretchSearch.of(one, start) for one in sums]
    for _ in range(N_ROUNDS - 1):
        edges = [search.edges for search in searches]
        sums = shards.sum(lambda batch: _slope_sums(batch, edges))  # noqa: B023
        searches = [search.narrowed(one) for search, one in zip(searches, sums, strict=True)]
    return np.array([search.edges[-1] for search in searches])


@final
@dataclass(frozen=True, slots=True, eq=False)
class StretchSearch:
    """Where the slope of one target's loss changes sign: at most the last of the edges.

    Upwards of 1 it is the first factor whose slope to the right is no longer negative, downwards
    the first one whose slope to the right is positive: of a flat stretch the end nearest to 1.
    """

    edges: FloatArray
    is_up: bool

    @classmethod
    def of(cls, sums: FloatArray, edges: FloatArray) -> StretchSearch:
        slopes, least = _slopes_of(sums)
        one = N_EDGES  # where 1 stands among the edges, after the number just below it
        if slopes[one - 1] <= least and slopes[one] >= -least:
            return cls(np.ones(N_EDGES), True)
        return cls(edges, bool(slopes[one] < -least)).narrowed(sums)

    def narrowed(self, sums: FloatArray) -> StretchSearch:
        slopes, least = _slopes_of(sums)
        is_past = slopes >= -least if self.is_up else slopes > least
        if not is_past.any():
            return replace(self, edges=np.full(N_EDGES, self.edges[-1]))
        k = int(np.argmax(is_past))
        return replace(self, edges=np.linspace(self.edges[max(k - 1, 0)], self.edges[k], N_EDGES))


def _slopes_of(sums: FloatArray) -> tuple[FloatArray, float]:
    """Return the slope just right of each edge, and what counts as no slope at all."""
    first, jumps = sums[0], sums[2:-1]
    return first + np.cumsum(jumps), ROUNDING * float(sums[1])


def _slope_sums(batch: Batch, edges: list[FloatArray]) -> FloatArray:
    """Return of each target the slope just right of 0, all jumps, and jumps up to each edge."""
    n_targets = _n_targets_of(batch.outputs) or 1
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
        levels = (
            outputs.levels.astype(np.float64)
            if isinstance(outputs, Quantiles)
            else (np.arange(n_values) + 0.5) / n_values
        )
        for target in range(n_targets):
            e, d = errors[:, :, target], away[:, :, target]
            sums[target] += _slope_row(e, d, levels, block.labeled_weight, each[target])
    return sums


def _slope_row(
    error: FloatArray, away: FloatArray, levels: FloatArray, weight: FloatArray, edges: FloatArray
) -> FloatArray:
    """Return one target's sums: a loss bends where the stretched value meets the truth."""
    is_above = (error > 0) | ((error == 0) & (away < 0))
    first = np.where(is_above, -away * levels, away * (1 - levels))
    jumps = weight[:, np.newaxis] * np.abs(away)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        bends = error / away
    is_met = bends > 0
    places = np.searchsorted(edges, bends[is_met])
    counts = np.bincount(places, jumps[is_met], edges.size + 1)
    return np.concatenate([[weight @ first.sum(axis=1), jumps.sum()], counts])
