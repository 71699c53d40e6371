"""Everything a report of a regression says, computed once."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from sklearn.base import clone

from dubito.arrays import FloatArray
from dubito.calibrate import QuantileRecalibration, VarianceScaling
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards, joined, sample_rows
from dubito.decide.value import MeanInterval
from dubito.errors import DubitoError, DubitoWarning, EmptyStateError
from dubito.measure import Interval, RegressionAudit
from dubito.measure.regression import (
    central_interval,
    crps_of_rows,
    nll_of_rows,
    point_of_rows,
    values_of,
)
from dubito.outputs import Normal
from dubito.report.summary import MOST_MEASURED, Provenance

N_FOLDS = 5
FEWEST_ROWS = 10
N_RESAMPLES = 500
CLEARLY = 0.99  # of the CRPS of one factor: what more freedom must come below to be taken


@final
@dataclass(frozen=True, slots=True, eq=False)
class Tried:
    """A way to recalibrate, in words, and the rows as it leaves them, out of sample."""

    name: str
    words: str
    batch: Batch
    audit: RegressionAudit


@final
@dataclass(frozen=True, eq=False)
class RegressionSummary:
    """What there is to say of a regression's own uncertainty.

    `whole` audits all rows; `tried` begins with the rows as they came, which are a sample where
    there are more than 50,000. `chosen` is which of them is shown as “after”.
    """

    whole: RegressionAudit
    tried: tuple[Tried, ...]
    chosen: int
    how: str
    provenance: Provenance

    @classmethod
    def of(
        cls,
        shards: Shards,
        *,
        calibration: Batch | None = None,
        command: str | None = None,
        seed: int = 0,
    ) -> RegressionSummary:
        """Audit, and recalibrate out of sample."""
        whole = RegressionAudit.of(shards)
        rows = sample_rows(shards, MOST_MEASURED, seed, is_labeled=True)
        if not len(rows):
            raise EmptyStateError("A report")
        tried = [_tried_as("as it came", "left as it is", rows)]
        if len(rows if calibration is None else calibration) >= FEWEST_ROWS:
            tried += _recalibrated(rows, calibration, seed)
        provenance = Provenance.of([rows, calibration], seed, command)
        how = _how_it_was_done(len(rows), calibration, len(tried) > 1)
        return cls(whole, tuple(tried), _choice_of(tried), how, provenance)

    @property
    def before(self) -> Tried:
        """The rows as they came."""
        return self.tried[0]

    @property
    def after(self) -> Tried:
        """The rows by the way chosen."""
        return self.tried[self.chosen]

    @cached_property
    def figures(self) -> tuple[tuple[str, Interval | None, Interval | None], ...]:
        """Each figure before and after, with its interval."""
        both = [_figures_of(one.batch, self.provenance.seed) for one in (self.before, self.after)]
        return tuple((name, both[0][name], both[1].get(name)) for name in both[0])


def _tried_as(name: str, words: str, batch: Batch) -> Tried:
    """Audit rows after some way to recalibrate."""
    return Tried(name, words, batch, RegressionAudit.of(ArrayShards(batch)))


def _recalibrated(rows: Batch, calibration: Batch | None, seed: int) -> list[Tried]:
    """Return what each calibrator makes of rows that it did not see."""
    found = []
    for calibrator in (VarianceScaling(), QuantileRecalibration()):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DubitoWarning)  # of bounds: the figures show what comes
            try:
                whole = clone(calibrator).fit(
                    ArrayShards(rows if calibration is None else calibration)
                )
                if calibration is None:
                    mended = _cross_fitted(calibrator, rows, seed)
                else:
                    mended = replace(rows, outputs=whole.transform(rows.outputs))
                name = type(calibrator).__name__
                found.append(_tried_as(name, whole.summary().partition(";")[0], mended))
            except DubitoError:
                continue  # outputs that it cannot mend, as of a single quantile
    return found


def _cross_fitted(
    calibrator: VarianceScaling | QuantileRecalibration, rows: Batch, seed: int
) -> Batch:
    """Return rows recalibrated by what the other folds teach, fold after fold."""
    order = np.random.default_rng(seed).permutation(len(rows))
    parts = []
    for fold in np.array_split(order, N_FOLDS):
        fitted = clone(calibrator).fit(ArrayShards(rows.take(np.setdiff1d(order, fold))))
        held_out = rows.take(np.sort(fold))
        parts.append(replace(held_out, outputs=fitted.transform(held_out.outputs)))
    places = np.concatenate([np.sort(fold) for fold in np.array_split(order, N_FOLDS)])
    return joined(parts).take(np.argsort(places))


def _choice_of(tried: list[Tried]) -> int:
    """Return which way is taken: one factor, unless more freedom is clearly better by CRPS."""
    scores = [one.audit.continuous_ranked_probability_score for one in tried]
    best = min(len(tried) - 1, 1)
    for k in range(2, len(tried)):
        best = k if scores[k] < CLEARLY * scores[best] else best
    return best


def _how_it_was_done(n_rows: int, calibration: Batch | None, is_done: bool) -> str:
    """Say how figures after recalibration came about."""
    if not is_done:
        return "Nothing was recalibrated: there are too few rows, or outputs without a spread."
    if calibration is not None:
        return f"Recalibration was learned from {len(calibration):,} other rows."
    return (
        f"Recalibration was fitted {N_FOLDS} times, each time on four fifths of the {n_rows:,} "
        "rows; every figure “after” is of the fifth that was held out."
    )


def _figures_of(batch: Batch, seed: int) -> dict[str, Interval]:
    """Return the figures that are means over rows, each with its interval."""
    outputs, y, weight = batch.outputs, values_of(batch), batch.labeled_weight
    interval = MeanInterval.of(0.95, seed, N_RESAMPLES, "report")
    per_row: dict[str, Callable[[], FloatArray]] = {
        "CRPS": lambda: crps_of_rows(outputs, y),
        "negative log-likelihood": lambda: nll_of_rows(outputs, y),
    }
    if not isinstance(outputs, Normal):
        del per_row["negative log-likelihood"]
    found = {name: interval(_over_targets(values()), weight) for name, values in per_row.items()}
    squares = interval(_over_targets((y - point_of_rows(outputs)) ** 2), weight)
    roots = (float(np.sqrt(value)) for value in (squares.value, squares.low, squares.high))
    found["root mean squared error"] = Interval(*roots)
    for level in RegressionAudit.of(ArrayShards(batch)).levels.tolist():
        low, high = central_interval(outputs, level, "report")
        inside = _over_targets((low <= y) & (y <= high))
        found[f"share inside intervals of {level:.3g}"] = interval(inside, weight)
        found[f"sharpness: mean width of intervals of {level:.3g}"] = interval(
            _over_targets(high - low), weight
        )
    return found


def widths_of(batch: Batch) -> FloatArray:
    """Return how wide each row's interval is, at the level nearest to 0.9; 0 without levels."""
    levels = RegressionAudit.of(ArrayShards(batch)).levels
    if not levels.size:
        return np.zeros(len(batch))
    level = float(levels[int(np.argmin(np.abs(levels - 0.9)))])
    low, high = central_interval(batch.outputs, level, "report")
    return _over_targets(high - low)


def _over_targets(values: object) -> FloatArray:
    """Return the mean over the coordinates of vector targets, as float64."""
    array = np.asarray(values, dtype=np.float64)
    return array if array.ndim == 1 else np.asarray(array.mean(axis=1))
