"""Variance scaling: one factor that makes every predictive distribution wider or narrower."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from typing import final

import numpy as np

from dubito.arrays import FloatArray
from dubito.calibrate.regression_calibrator import (
    BaseRegressionCalibrator,
    Regression,
    n_targets_of,
    narrowed,
    small_blocks,
)
from dubito.data.batch import Batch
from dubito.data.shards import Shards
from dubito.errors import BoundWarning
from dubito.kept_arrays import array
from dubito.kept_checks import entries
from dubito.measure.regression import point_of_rows, values_of
from dubito.outputs import Normal, Quantiles, Samples

__all__ = ["VarianceScaling"]

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

    learned_checks = entries(factor_=array("n_targets_", low=LOWEST, high=HIGHEST))

    def _learn(self, shards: Shards) -> None:
        learn = likeliest_factor if self.kind_ == "Normal" else stretching_factor
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


def likeliest_factor(shards: Shards) -> FloatArray:
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


def stretching_factor(shards: Shards) -> FloatArray:
    """Return the factor of least pinball loss, a target.

    The loss is a convex polygon in the factor: a pass over the rows gives its slope at all edges of
    a grid, the next one is laid between the two edges where the slope changes sign.
    """
    upper = np.geomspace(1.0, HIGHEST, N_EDGES)
    start = np.concatenate([1 / upper[:0:-1], [np.nextafter(1.0, 0.0)], upper])
    sums = shards.sum(lambda batch: slope_sums(batch, [start]))
    searches = [StretchSearch.of(one, start) for one in sums]
    for _ in range(N_ROUNDS - 1):
        edges = [search.edges for search in searches]
        sums = shards.sum(lambda batch: slope_sums(batch, edges))  # noqa: B023
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
        slopes, least = slopes_of(sums)
        one = N_EDGES  # where 1 stands among the edges, after the number just below it
        if slopes[one - 1] <= least and slopes[one] >= -least:
            return cls(np.ones(N_EDGES), True)
        return cls(edges, bool(slopes[one] < -least)).narrowed(sums)

    def narrowed(self, sums: FloatArray) -> StretchSearch:
        slopes, least = slopes_of(sums)
        is_past = slopes >= -least if self.is_up else slopes > least
        if not is_past.any():
            return replace(self, edges=np.full(N_EDGES, self.edges[-1]))
        k = int(np.argmax(is_past))
        return replace(self, edges=np.linspace(self.edges[max(k - 1, 0)], self.edges[k], N_EDGES))


def slopes_of(sums: FloatArray) -> tuple[FloatArray, float]:
    """Return the slope just right of each edge, and what counts as no slope at all."""
    first, jumps = sums[0], sums[2:-1]
    return first + np.cumsum(jumps), ROUNDING * float(sums[1])


def slope_sums(batch: Batch, edges: list[FloatArray]) -> FloatArray:
    """Return of each target the slope just right of 0, all jumps, and jumps up to each edge."""
    n_targets = n_targets_of(batch.outputs) or 1
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
            sums[target] += slope_row(e, d, levels, block.labeled_weight, each[target])
    return sums


def slope_row(
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
