"""The center and the scale of conformal intervals: as outputs state them, or learned from rows.

A learned scale is fitted on some calibration rows by the likelihood of a two-piece Laplace
distribution, whose logarithm of the scale and whose skewness are linear in functions of the
outputs. A ridge penalty pulls it towards the stated spread, halfway between proportional and
constant, so that a hundred rows are enough. Thresholds come from other rows: coverage does not
depend on what was learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, NamedTuple, Self, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.doubt.ensembles import mean_and_std
from dubito.measure.regression import point_of_rows
from dubito.outputs import BaseOutputs, Normal, Quantiles, Samples
from dubito.serialization.array_fields import array
from dubito.serialization.fields import LARGE, MAX_FLOAT, number
from dubito.serialization.objects import Record, stores_fields

TINY = float(np.finfo(np.float64).tiny)
MAX_LOG_SCALE = 30.0  # scales lie within exp(-30) and exp(30) of their mean
MAX_SKEWNESS = 5.0
MAX_STANDARDIZED = 2.5  # standardized centers beyond this are clipped
FLOOR = 0.05  # added to the spread, as a fraction of its mean
N_STEPS, N_HALVINGS = 60, 30  # of Newton's method, at most, and of each of its steps
N_REWEIGHTINGS = 10

# What each coefficient is pulled to, and the number of rows that the pull is worth.
# Log scale: constant; log(spread + 5 % of its mean), log(spread + its mean); the center, its
# square, and its excess over one standard deviation.
SCALE_PRIOR = np.array([0.0, 0.3, 0.7, 0.0, 0.0, 0.0])
SCALE_PENALTY = np.array([0.0, 10.0, 20.0, 20.0, 40.0, 40.0])
# Skewness: constant, the center, the stated skewness of quantiles.
SKEWNESS_PRIOR = np.array([0.0, 0.0, 0.5])
SKEWNESS_PENALTY = np.array([5.0, 20.0, 10.0])
SHIFT_PENALTY = 20.0  # of the shift of the center, constant and linear in the center
TAIL_PENALTY = 60.0  # of the balance of both tails


class Spread(NamedTuple):
    """What outputs state: a center per row, and distances to the ends of an interval around it.

    `is_skewed` tells whether these distances can differ.
    """

    center: FloatArray
    below: FloatArray
    above: FloatArray
    is_skewed: bool


def stated_spread(outputs: BaseOutputs, level: float) -> Spread:
    """Return the spread that outputs state, in float64.

    That of `Quantiles` lies between their levels nearest to the ends of the central interval. A
    single level, draw or prediction has a spread of 1.

    >>> stated_spread(Quantiles([[1.0, 2.0, 4.0]], [0.1, 0.5, 0.9]), 0.8).above.tolist()
    [2.0]
    """
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(outputs, Quantiles) and outputs.levels.size > 1:
            values, tail = outputs.array.astype(np.float64), (1 - level) / 2
            low, high = (int(np.abs(outputs.levels - p).argmin()) for p in (tail, 1 - tail))
            if low < high:
                center = np.clip(point_of_rows(outputs), values[:, low], values[:, high])
                center = center.astype(np.float64)
                return Spread(center, center - values[:, low], values[:, high] - center, True)
        is_point = isinstance(outputs, Samples) and outputs.array.shape[1] == 1
        if isinstance(outputs, Normal | Samples) and not is_point:
            center, std = mean_and_std(outputs)
            return Spread(center, std, std, False)
        one = np.ones(outputs.n_rows)
        return Spread(point_of_rows(outputs).astype(np.float64), one, one, False)


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class LocalScale(Record):
    """A learned center and scale: functions of what outputs state.

    Attributes
    ----------
    middle, deviation : float
        The median and the standard deviation of the stated centers.
    spread : float
        The mean of the stated spread.
    unit : float
        The mean distance of targets from the stated center, in which scale and shift are.
    scale, skewness, shift : array
        Coefficients of the log scale, of half the log ratio of the scales above and below the
        center, and of the shift of the center.
    """

    has_header: ClassVar[bool] = False

    middle: Annotated[float, number(-MAX_FLOAT, MAX_FLOAT)]
    deviation: Annotated[float, number(TINY, MAX_FLOAT)]
    spread: Annotated[float, number(TINY, MAX_FLOAT)]
    unit: Annotated[float, number(TINY, MAX_FLOAT)]
    scale: Annotated[FloatArray, array(SCALE_PRIOR.size)]
    skewness: Annotated[FloatArray, array(SKEWNESS_PRIOR.size)]
    shift: Annotated[FloatArray, array(2)]

    @classmethod
    def learn(
        cls, outputs: BaseOutputs, y: FloatArray, weight: FloatArray, level: float
    ) -> Self | None:
        """Return the scale learned from some rows, None if their errors are 0 or not finite."""
        stated = stated_spread(outputs, level)
        with np.errstate(over="ignore", invalid="ignore"):
            errors = y - stated.center
            unit = float(np.average(np.abs(errors), weights=weight)) if weight.any() else 0.0
            widths = (stated.below + stated.above) / 2
            middle = float(np.median(stated.center))
            spreads = np.std(stated.center), widths.mean()
            deviation, spread = (float(one) or 1.0 for one in spreads)
        facts = middle, deviation, spread, unit
        if not (np.isfinite(facts).all() and min(facts[1:]) >= TINY):
            return None
        start = cls(middle, deviation, spread, unit, SCALE_PRIOR, SKEWNESS_PRIOR, np.zeros(2))
        terms, skewness_terms = start._terms(stated)
        used = weight > 0
        errors, weight = errors[used] / unit, weight[used]
        terms, skewness_terms = terms[used], skewness_terms[used]
        scale, _ = _fit_two_pieces(terms, skewness_terms, weight, errors)
        shift = _shift(terms[:, [0, 3]], errors, weight, np.exp(terms @ scale))
        errors = errors - terms[:, [0, 3]] @ shift
        scale, skewness = _fit_two_pieces(terms, skewness_terms, weight, errors)
        log_scale, skew = terms @ scale, skewness_terms @ skewness
        ratios = (
            weighted_quantile(side, weight, (1 + level) / 2)
            for side in (-errors / np.exp(log_scale - skew), errors / np.exp(log_scale + skew))
        )
        tails = [max(one, 1e-3) for one in ratios]
        total = float(weight.sum())
        skewness[0] += total / (total + TAIL_PENALTY) / 2 * float(np.log(tails[1] / tails[0]))
        scale, skewness, shift = (np.clip(one, -LARGE, LARGE) for one in (scale, skewness, shift))
        return cls(middle, deviation, spread, unit, scale, skewness, shift)

    def apply(self, stated: Spread) -> Spread:
        """Return the learned center and scales of rows."""
        terms, skewness_terms = self._terms(stated)
        with np.errstate(over="ignore"):
            log_scale = np.clip(terms @ self.scale, -MAX_LOG_SCALE, MAX_LOG_SCALE)
            skew = np.clip(skewness_terms @ self.skewness, -MAX_SKEWNESS, MAX_SKEWNESS)
            center = stated.center + self.unit * (terms[:, [0, 3]] @ self.shift)
            below, above = (self.unit * np.exp(log_scale + sign * skew) for sign in (-1, 1))
        return Spread(center, np.maximum(below, TINY), np.maximum(above, TINY), True)

    def _terms(self, stated: Spread) -> tuple[FloatArray, FloatArray]:
        """Return the terms of the log scale and of the skewness, rows x terms."""
        with np.errstate(over="ignore", invalid="ignore"):
            center = (stated.center - self.middle) / self.deviation
            center = np.clip(np.nan_to_num(center), -MAX_STANDARDIZED, MAX_STANDARDIZED)
            below, above = (np.minimum(one / self.spread, 1e6) for one in stated[1:3])
            width = (below + above) / 2
        one = np.ones(center.size)
        logs = np.log((width + FLOOR) / (1 + FLOOR)), np.log((width + 1) / 2)
        scale = [one, *logs, center, center**2, np.maximum(center - 1, 0)]
        skew = np.zeros(center.size)
        if stated.is_skewed:
            skew = np.log((above + FLOOR) / (below + FLOOR)) / 2
        return np.stack(scale, axis=1), np.stack([one, center, skew], axis=1)


def _fit_two_pieces(
    terms: FloatArray, skewness_terms: FloatArray, weight: FloatArray, errors: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return the coefficients of the log scale and of the skewness, by Newton's method.

    They have the highest penalized likelihood of a two-piece Laplace distribution. It is convex in
    them: with log scale u, skewness d and the side s of an error e, a row loses
    u + log cosh d + |e| exp(-u - s d).
    """
    n_terms, size = terms.shape[1], np.abs(errors)
    prior = np.concatenate([SCALE_PRIOR, SKEWNESS_PRIOR])
    penalty = np.concatenate([SCALE_PENALTY, SKEWNESS_PENALTY])
    signed = np.hstack([terms, np.sign(errors)[:, np.newaxis] * skewness_terms])
    slopes = weight @ terms

    def loss(t: FloatArray) -> float:
        skew = skewness_terms @ t[n_terms:]
        rows = terms @ t[:n_terms] + np.logaddexp(skew, -skew) + size * relative(t)
        return float(weight @ rows + (penalty * (t - prior) ** 2).sum() / 2)

    def relative(t: FloatArray) -> FloatArray:
        return np.exp(np.clip(-(signed @ t), -700, 50))

    t = prior.copy()
    t[0] = np.log(np.average(size * relative(t), weights=weight) + TINY)
    lowest = loss(t)
    for _ in range(N_STEPS):
        part = weight * size * relative(t)
        tangent = np.tanh(skewness_terms @ t[n_terms:])
        gradient = penalty * (t - prior) - signed.T @ part
        gradient += np.concatenate([slopes, skewness_terms.T @ (weight * tangent)])
        curvature = (signed * part[:, np.newaxis]).T @ signed + np.diag(penalty + 1e-9)
        curved = skewness_terms * (weight * (1 - tangent**2))[:, np.newaxis]
        curvature[n_terms:, n_terms:] += curved.T @ skewness_terms
        step, before = np.linalg.solve(curvature, gradient), lowest
        for _ in range(N_HALVINGS):
            lowest = loss(t - step)
            if lowest < before:
                break
            step = step / 2
        else:
            break
        t = t - step
        if before - lowest < 1e-10 * (1 + abs(before)):
            break
    return t[:n_terms], t[n_terms:]


def _shift(
    terms: FloatArray, errors: FloatArray, weight: FloatArray, scale: FloatArray
) -> FloatArray:
    """Return the coefficients of a robust, penalized regression of errors (Huber's weights)."""
    shift: FloatArray = np.zeros(terms.shape[1])
    total = float(weight.sum())
    for _ in range(N_REWEIGHTINGS):
        sizes = np.maximum(np.abs(errors - terms @ shift), TINY)
        w = weight / scale**2 * np.minimum(1, 1.5 * scale / sizes)
        squares = (terms * w[:, np.newaxis]).T @ terms
        penalty = SHIFT_PENALTY / total * np.diag(squares) + TINY
        shift = np.linalg.solve(squares + np.diag(penalty), terms.T @ (w * errors))
    return shift


def weighted_quantile(values: FloatArray, weight: FloatArray, level: float) -> float:
    """Return the smallest value up to which a fraction `level` of the weight lies.

    >>> weighted_quantile(np.array([3.0, 1.0]), np.array([1.0, 3.0]), 0.75)
    1.0
    """
    order = np.argsort(values)
    reached = np.cumsum(weight[order]) / weight.sum()
    return float(values[order][min(int(np.searchsorted(reached, level)), values.size - 1)])
