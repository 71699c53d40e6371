"""Quantile recalibration: quantiles at levels that hold; the choice between it and one factor.

R maps a stated level to the observed frequency of targets below it: the empirical distribution of
the probability integral transform, which needs no isotonic regression as it is increasing. Levels
are represented by normal scores, their standard normal quantiles, which keep far tails apart where
levels are all 0 or 1. The k-th of n targets is at k / (n + 1), so that R is never 0 or 1, and R is
linear between targets.

In memory R is exact. Streamed, it comes from cells of the score z of width 0.36 % of
sqrt(1 + z^2): between the outermost targets, R^-1 moves by at most the width of the cells around
the two nearest targets, if no weight is below 1.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

import numpy as np
from scipy.special import ndtr, ndtri

from dubito.arrays import FloatArray, as_numbers
from dubito.calibrate.cross_validation import RegressionEvidence
from dubito.calibrate.regression import (
    BaseRegressionCalibrator,
    VarianceScaling,
    cast_finite,
    small_blocks,
)
from dubito.data.batch import Batch
from dubito.data.shards import Shards
from dubito.errors import BadValueError
from dubito.formatting import percent, short_percent
from dubito.measure.regression import Regression, values_of
from dubito.measure.regression_audit import RegressionAudit
from dubito.outputs import BaseOutputs, Normal, Quantiles, Samples
from dubito.serialization.array_fields import array, require_increasing
from dubito.serialization.fields import Entry, Omittable, declare, fitted, list_of

DEFAULT_LEVELS = tuple(k / 20 for k in range(1, 20))
DRAW_LEVELS = (0.025, *DEFAULT_LEVELS, 0.975)  # of quantiles that draws become
CLEARLY = 0.99  # a more flexible calibrator must lower the CRPS of a simpler one by this factor
FAR = 3.0  # standard errors of a coverage from the nominal one
MAX_STATED_SCORE = 1e6  # larger normal scores are clipped
MAX_OBSERVED_SCORE = 40.0  # no frequency that a float can represent has a larger normal score
TINY = float(np.finfo(np.float64).tiny)  # knots may coincide
MAX_TAIL_SLOPE = 1e100  # of R^-1 beyond the outermost targets
N_CELLS = 8192
REACH = float(np.arcsinh(MAX_STATED_SCORE))
CELL = 2 * REACH / N_CELLS  # width of a cell relative to sqrt(1 + z^2): 0.0035


@final
class QuantileRecalibration(BaseRegressionCalibrator):
    """Return quantiles below which targets fall as often as their levels state.

    Use it where one factor is not enough: for biased or skewed outputs, and a few hundred rows.
    `transform` returns `Quantiles` for every kind of outputs: the stated quantiles at R^-1 of the
    levels, where R maps a stated level to the observed frequency.

    `Quantiles` and sorted `Samples` (the k-th of m at level k / (m + 1)) are linear between
    neighbors, and continue beyond the outermost as a normal distribution with the spread of the
    row. R continues likewise beyond the outermost targets, never narrower than stated.

    Parameters
    ----------
    levels : sequence of float
        Increasing levels between 0 and 1 of the quantiles to return.

    Attributes
    ----------
    stated_, observed_ : list of array
        Normal scores of stated levels and observed frequencies at the knots of R, per target.

    References
    ----------
    Kuleshov, Fenner and Ermon, "Accurate uncertainties for deep learning using calibrated
    regression", ICML 2018.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import Normal
    >>> from dubito.calibrate import QuantileRecalibration
    >>> stated = Normal([0.0] * 99, [1.0] * 99)
    >>> scaling = QuantileRecalibration([0.1, 0.5, 0.9]).fit(stated, np.arange(-49.0, 50.0))
    >>> scaling.transform(Normal([0.0], [1.0])).array.round(6).tolist()
    [[-40.0, 0.0, 40.0]]
    """

    param_fields = declare(levels=Omittable(array(None, low=0, high=1)))
    stated_: list[FloatArray] = fitted(
        list_of(array(None, low=-MAX_STATED_SCORE, high=MAX_STATED_SCORE), "n_targets_")
    )
    observed_: list[FloatArray] = fitted(
        list_of(array(None, low=-MAX_OBSERVED_SCORE, high=MAX_OBSERVED_SCORE), "n_targets_")
    )

    def __init__(self, levels: Sequence[float] | FloatArray = DEFAULT_LEVELS) -> None:
        self.levels = levels

    def observed(self, levels: Any) -> FloatArray:
        """Return R, the observed frequency of targets below the quantiles at stated levels.

        Parameters
        ----------
        levels : sequence of float
            Increasing levels between 0 and 1.

        Returns
        -------
        array of shape (n_levels,) or (n_levels, n_targets)
            Observed frequencies.
        """
        self._require_fitted("observed")
        scores = ndtri(_check_levels(levels, "QuantileRecalibration.observed"))
        columns = [ndtr(_observed_score(scores, *knots)) for knots in self._knots()]
        return columns[0] if self.n_targets_ is None else np.stack(columns, axis=1)

    def _check_params(self) -> None:
        _check_levels(self.levels, type(self).__name__)

    def _check_fitted(self, entry: Entry) -> None:
        for k, (stated, observed) in enumerate(self._knots()):
            places = entry.at(f"stated_[{k}]"), entry.at(f"observed_[{k}]")
            if stated.size != observed.size:
                raise places[1].error(f"{stated.size} numbers", f"{observed.size}")
            for values, place in zip((stated, observed), places, strict=True):
                require_increasing(values, place, least=-TINY)
            if _tail_slope(stated, observed) > MAX_TAIL_SLOPE:
                raise places[1].error("further apart at its ends", "almost nothing")

    def _learn(self, shards: Shards) -> None:
        if shards.in_memory is not None:
            knots = _exact_knots(shards)
        else:
            # The first value of a cell is at its lower edge, the last one at its upper.
            edges = np.sinh(np.arange(N_CELLS + 1) * CELL - REACH)
            masses = shards.sum(_cell_sums)
            knots = [
                _knots_from_masses(edges[:-1][mass > 0], edges[1:][mass > 0], mass[mass > 0])
                for mass in masses
            ]
        self.stated_ = [stated for stated, _ in knots]
        self.observed_ = [observed for _, observed in knots]

    def _recalibrated(self, outputs: Regression) -> Regression:
        wanted = ndtri(_check_levels(self.levels, type(self).__name__))
        scores = [_stated_score(wanted, *knots) for knots in self._knots()]
        return self._quantiles(outputs, np.stack(scores, axis=1))

    def _uncalibrated(self, outputs: Regression) -> Regression:
        wanted = ndtri(_check_levels(self.levels, type(self).__name__))
        return self._quantiles(outputs, np.stack([wanted] * len(self.stated_), axis=1))

    def _quantiles(self, outputs: Regression, scores: FloatArray) -> Quantiles:
        """Return the values at normal scores (levels x targets), as of the wanted levels."""
        kind = outputs.mean.dtype if isinstance(outputs, Normal) else outputs.array.dtype
        array = np.empty((outputs.n_rows, *scores.shape), kind)
        empty = np.zeros(outputs.n_rows)
        for block in small_blocks(Batch(outputs, None, empty)):
            rows = slice(block.first_row, block.first_row + len(block))
            values = cast_finite(_values_at(block.outputs, scores), kind)
            array[rows] = np.maximum.accumulate(values, axis=1)  # rounding may break the order
        is_flat = self.n_targets_ is None
        return Quantiles(array[:, :, 0] if is_flat else array, np.asarray(self.levels))

    def _knots(self) -> list[tuple[FloatArray, FloatArray]]:
        return list(zip(self.stated_, self.observed_, strict=True))

    def _describe(self) -> str:
        levels = np.array([0.05, 0.5, 0.95])
        frequencies = self.observed(levels).reshape(3, -1).mean(axis=1)
        stated = ", ".join(short_percent(level) for level in levels)
        below = ", ".join(percent(frequency) for frequency in frequencies)
        over = "" if self.n_targets_ is None else f" (mean of {self.n_targets_} targets)"
        return f"{below} of targets were below the stated {stated} quantiles{over}"


def _check_levels(levels: Any, caller: str) -> FloatArray:
    """Return increasing levels between 0 and 1, or raise."""
    array = as_numbers(levels, "levels", caller, shape="a list of numbers").astype(np.float64)
    if not array.size or not ((array > np.append(0.0, array[:-1])) & (array < 1)).all():
        rule, fix = "must increase between 0 and 1", "Pass levels such as [0.1, 0.5, 0.9]"
        raise BadValueError("levels", caller, rule, f"{array.tolist()}", fix)
    return array


def _exact_knots(shards: Shards) -> list[tuple[FloatArray, FloatArray]]:
    """Return the knots of R per target: one at each value, two where it weighs more than 1."""
    blocks = [block for batch in shards.batches() for block in small_blocks(batch)]
    scores = np.concatenate([_target_scores(block) for block in blocks])
    weight = np.concatenate([block.labeled_weight for block in blocks])
    is_used = weight > 0
    knots = []
    for column in scores[is_used].T:
        places, which = np.unique(column, return_inverse=True)
        mass = np.bincount(which, weight[is_used]) * 1.0
        knots.append(_knots_from_masses(places, places, mass))
    return knots


def _cell_sums(batch: Batch) -> FloatArray:
    """Return the total weight of each cell, targets x cells."""
    sums: list[Any] = []
    for block in small_blocks(batch):
        cells = np.floor((np.arcsinh(_target_scores(block)) + REACH) / CELL).astype(np.int64)
        inside = np.clip(cells, 0, N_CELLS - 1)
        sums.append([np.bincount(c, block.labeled_weight, N_CELLS) for c in inside.T])
    return np.asarray(np.sum(sums, axis=0))


def _knots_from_masses(
    low: FloatArray, high: FloatArray, mass: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return stated and observed normal scores, each mass spread from a low to a high place."""
    total = mass.sum() + 1
    half = np.minimum(mass, 1) / 2
    below = np.append(0.0, np.cumsum(mass)[:-1])
    above = np.append(0.0, np.cumsum(mass[::-1])[:-1])[::-1]
    stated = np.stack([low, high], axis=1).ravel()
    under = np.stack([below + half, below + mass - half], axis=1).ravel() + 0.5
    over = np.stack([above + mass - half, above + half], axis=1).ravel() + 0.5
    # From the nearer side: 1 minus a small frequency would lose its digits.
    scores = np.where(under <= over, ndtri(under / total), -ndtri(over / total))
    observed = np.maximum.accumulate(scores)
    is_new = np.append(True, (np.diff(stated) > 0) | (np.diff(observed) > 0))
    return stated[is_new], observed[is_new]


def _tail_slope(stated: FloatArray, observed: FloatArray) -> float:
    """Return the slope of R^-1 beyond the outermost targets."""
    reach = float(observed[-1] - observed[0])
    return max(1.0, float(stated[-1] - stated[0]) / reach) if reach > 0 else 1.0


def _observed_score(scores: FloatArray, stated: FloatArray, observed: FloatArray) -> FloatArray:
    """Return R of stated scores."""
    beyond = scores - np.clip(scores, stated[0], stated[-1])
    return np.asarray(np.interp(scores, stated, observed) + beyond / _tail_slope(stated, observed))


def _stated_score(scores: FloatArray, stated: FloatArray, observed: FloatArray) -> FloatArray:
    """Return R^-1 of wanted scores."""
    beyond = scores - np.clip(scores, observed[0], observed[-1])
    found = np.interp(scores, observed, stated) + beyond * _tail_slope(stated, observed)
    return np.asarray(np.clip(found, -MAX_STATED_SCORE, MAX_STATED_SCORE))


def _target_scores(batch: Batch) -> FloatArray:
    """Return the normal score of each target in its stated distribution, rows x targets.

    A target where several quantiles or draws coincide is at the mean of their levels.
    """
    outputs, y = batch.outputs, values_of(batch).reshape(len(batch), -1)
    scores: FloatArray
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        if isinstance(outputs, Normal):
            mean, std = (a.astype(np.float64).reshape(y.shape) for a in (outputs.mean, outputs.std))
            scores = (y - mean) / std
        else:
            scores = _scores_among(*_stated_quantiles(outputs), y)
    return np.clip(scores, -MAX_STATED_SCORE, MAX_STATED_SCORE)


def _scores_among(values: FloatArray, levels: FloatArray, y: FloatArray) -> FloatArray:
    """Return the normal scores of targets among quantiles, which are rows x levels x targets."""
    last = levels.size - 1
    n_below = (values < y[:, np.newaxis]).sum(axis=1)
    n_up_to = (values <= y[:, np.newaxis]).sum(axis=1)
    left, right = np.clip(n_below - 1, 0, last), np.clip(n_below, 0, last)
    low = np.take_along_axis(values, left[:, np.newaxis], axis=1)[:, 0]
    high = np.take_along_axis(values, right[:, np.newaxis], axis=1)[:, 0]
    fraction = np.where(high > low, (y - low) / (high - low), 0.0)
    between = levels[left] + (levels[right] - levels[left]) * fraction
    is_tied = n_up_to > n_below
    tied = (levels[right] + levels[np.maximum(n_up_to - 1, 0)]) / 2
    ends = ndtri(levels[[0, -1]])
    spread = _row_spread(values, levels)
    # In a row without spread, anything else is infinitely far away.
    under, over = ends[0] + (y - values[:, 0]) / spread, ends[1] + (y - values[:, -1]) / spread
    inside = ndtri(np.where(is_tied, tied, between))
    is_under, is_over = n_up_to == 0, n_below == last + 1
    return np.asarray(np.where(is_under, under, np.where(is_over, over, inside)))


def _values_at(outputs: BaseOutputs, scores: FloatArray) -> FloatArray:
    """Return the values at normal scores (levels x targets), rows x levels x targets."""
    n_rows, n_targets = outputs.n_rows, scores.shape[1]
    if isinstance(outputs, Normal):
        mean, std = (a.reshape(n_rows, 1, n_targets) for a in (outputs.mean, outputs.std))
        return np.asarray(mean + std * scores)
    values, levels = _stated_quantiles(outputs)
    wanted, ends = ndtr(scores), ndtri(levels[[0, -1]])
    right = np.clip(np.searchsorted(levels, wanted), 1, levels.size - 1)
    gap = levels[right] - levels[right - 1]
    fraction = np.clip((wanted - levels[right - 1]) / gap, 0, 1)
    targets = np.arange(n_targets)
    low, high = values[:, right - 1, targets], values[:, right, targets]
    beyond = scores - np.clip(scores, *ends)
    outside = _row_spread(values, levels)[:, np.newaxis] * beyond
    return np.asarray(low + (high - low) * fraction + outside)


def _stated_quantiles(outputs: BaseOutputs) -> tuple[FloatArray, FloatArray]:
    """Return the quantiles of each row, rows x levels x targets, and their levels."""
    assert isinstance(outputs, Samples | Quantiles)
    values = outputs.array.astype(np.float64)
    values = values if values.ndim == 3 else values[:, :, np.newaxis]
    if isinstance(outputs, Quantiles):
        return values, outputs.levels.astype(np.float64)
    n_draws = values.shape[1]
    return np.sort(values, axis=1), np.arange(1, n_draws + 1) / (n_draws + 1)


def _row_spread(values: FloatArray, levels: FloatArray) -> FloatArray:
    """Return the standard deviation that the outermost quantiles of each row imply."""
    reach = ndtri(levels[-1]) - ndtri(levels[0])
    return np.asarray((values[:, -1] - values[:, 0]) / reach)


def _largest_miss(audit: RegressionAudit) -> float:
    """Return how far a coverage is from the nominal one at most, in standard errors."""
    misses = np.abs(audit.coverage - audit.levels) / audit.coverage_deviation
    return float(misses.max(initial=0.0))


def regression_candidates(outputs: BaseOutputs) -> list[VarianceScaling | QuantileRecalibration]:
    """Return the calibrators to select from for outputs of this kind, simple ones first.

    They return what is calibrated in its own form: normal distributions, or quantiles at the same
    levels. Draws become quantiles.
    """
    if isinstance(outputs, Normal):
        return [VarianceScaling()]
    if isinstance(outputs, Quantiles):
        return [VarianceScaling(), QuantileRecalibration(outputs.levels.tolist())]
    return [QuantileRecalibration(DRAW_LEVELS)]


def select_regression_calibrator(evidence: Mapping[str, RegressionEvidence]) -> tuple[str, str]:
    """Return the name of the selected calibrator, and why it is that one.

    `evidence` has simple ones first. A more flexible one must have a CRPS that is 1 % lower, or as
    low with a coverage clearly closer to the nominal one. A CRPS counts in relation to that of the
    uncalibrated outputs in the same form: that of quantiles is lower than that of a density.
    """
    best, *others = evidence
    if not others:
        return best, "the calibrator for outputs of this kind"
    for name in others:
        misses = [_largest_miss(evidence[one].after) for one in (name, best)]
        is_closer = misses[1] > FAR and misses[0] < misses[1] / 2
        limit = (1.0 if is_closer else CLEARLY) * evidence[best].relative_crps
        best = name if evidence[name].relative_crps < limit else best
    changes = (f"{name} {100 * (one.relative_crps - 1):+.1f} %" for name, one in evidence.items())
    title = next(iter(evidence.values())).before.crps_title
    return best, (
        f"held-out {title}: {', '.join(changes)}; {others[0]} is selected only if its CRPS is 1 % "
        "lower, or equal with coverage clearly closer to nominal"
    )
