"""A sequential test of calibration or drift that may be checked after every label."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal, Self, final

import numpy as np
from scipy.special import expit, logit, logsumexp

from dubito.arrays import (
    FloatArray,
    as_fraction,
    as_fractions,
    as_number,
    as_numbers,
    require_everywhere,
    require_rows,
)
from dubito.serialization.array_fields import array
from dubito.serialization.fields import MAX_FLOAT, Entry, integer, number, one_of, optional
from dubito.serialization.objects import Record, stores_fields

CALLER = "SequentialAlarm"
Direction = Literal["over", "under"]

# Alternatives to the stated means, as (slope, shift) of their log odds: confidence that is too
# sharp or too flat, and outcomes that are rarer or more frequent throughout. The first half bets
# that the stated means are too high, the second that they are too low.
TOO_HIGH = ((0.8, 0.0), (0.67, 0.0), (0.5, 0.0), (1.0, -0.25), (1.0, -0.5), (1.0, -1.0))
TOO_LOW = tuple((1 / slope, -shift) for slope, shift in TOO_HIGH)
SLOPES, SHIFTS = np.array(TOO_HIGH + TOO_LOW).T
N_EACH = len(TOO_HIGH)
EDGE = 1e-6  # no bets on means nearer to 0 or 1
MAX_LOG = 700.0  # of an e-value, which would overflow beyond


def _reserve(n_labels: Any) -> Any:
    """Return the fraction of the wealth that is not yet invested after `n_labels`."""
    return 1 / (1 + np.log(2.0 + n_labels))


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class SequentialAlarm(Record):
    """A sequential test of the claim that outcomes in [0, 1] have the stated means.

    `alarm = alarm.update(confidence, is_correct)` after each label, or any batch of labels, tests
    calibration. With the mean of past uncertainties as `stated` and new uncertainties as `observed`
    it tests for drift. If the claim is true up to `tolerance`, the probability that it ever raises
    an alarm is at most `alpha`, however often it is checked (Ville's inequality). Immutable:
    `update` returns a new alarm.

    Parameters
    ----------
    alpha : float, default 0.05
        The probability of a false alarm.
    tolerance : float, default 0.0
        Deviation of the means that is accepted.
    max_weight : float, default 1.0
        The largest weight of a row, fixed in advance. Weights of 1 / sampling probability make the
        claim about all rows, although only some are labeled.

    Attributes
    ----------
    n_labels : int
        The number of labels so far.
    alarmed_after : int or None
        The number of labels after which it raised an alarm.
    direction : {"over", "under"} or None
        Whether the stated means are too high or too low, once it has raised an alarm.
    log_wealth : array
        The log wealth of each bet against the claim.
    log_largest : float
        The largest total log wealth so far.

    References
    ----------
    Waudby-Smith and Ramdas, "Estimating means of bounded random variables by betting", 2023.

    Examples
    --------
    >>> from dubito.monitor import SequentialAlarm
    >>> alarm = SequentialAlarm().update([0.9] * 100, [True, False] * 50)
    >>> alarm.has_alarmed, alarm.direction, alarm.alarmed_after
    (True, 'over', 16)
    """

    has_header: ClassVar[bool] = False

    alpha: Annotated[float, number(0, 1)] = 0.05
    tolerance: Annotated[float, number(0, 1)] = 0.0
    max_weight: Annotated[float, number(0, MAX_FLOAT)] = 1.0
    n_labels: Annotated[int, integer()] = 0
    log_wealth: Annotated[FloatArray, array(2 * N_EACH, low=-MAX_FLOAT, high=MAX_FLOAT)] = field(
        default_factory=lambda: np.full(2 * N_EACH, np.log(1 - _reserve(0)))
    )
    log_largest: Annotated[float, number(0, MAX_FLOAT)] = 0.0
    alarmed_after: Annotated[int | None, optional(integer(1))] = None
    direction: Annotated[Direction | None, optional(one_of("over", "under"))] = None

    def __post_init__(self) -> None:
        as_fraction(self.alpha, "alpha", CALLER, is_open=True)
        as_fraction(self.tolerance, "tolerance", CALLER)
        fix = "Pass 1 / the smallest sampling probability"
        as_number(self.max_weight, "max_weight", CALLER, 0, fix=fix, is_open=True)

    def update(self, stated: Any, observed: Any, weight: Any = None) -> SequentialAlarm:
        """Return the alarm after more labels, which is checked after each of them.

        Parameters
        ----------
        stated : array-like of shape (n_labels,)
            The claimed means in [0, 1], such as confidences, in order of time.
        observed : array-like of shape (n_labels,)
            The outcomes in [0, 1], such as whether a prediction is correct.
        weight : array-like of shape (n_labels,), optional
            Weights from 0 to `max_weight`.

        Returns
        -------
        SequentialAlarm
        """
        caller = f"{CALLER}.update"
        means = as_fractions(stated, "stated", caller).astype(np.float64)
        outcomes = _as_outcomes(observed, means.size, caller)
        stake = _stakes(weight, means.size, self.max_weight, caller)
        if not means.size:
            return self
        steps = np.log1p(stake[:, np.newaxis] * _gains(means, outcomes, self.tolerance))
        wealth = self.wealth_after(np.cumsum(steps, axis=0))
        n_seen = self.n_labels + np.arange(1, means.size + 1)
        seen = _log_e_values(wealth, n_seen)
        both = _log_mean(seen)
        after, direction = self.alarmed_after, self.direction
        is_alarm = both >= -np.log(self.alpha)
        if after is None and is_alarm.any():
            first = int(is_alarm.argmax())
            after = int(n_seen[first])
            direction = "over" if seen[first, 0] >= seen[first, 1] else "under"
        return replace(
            self,
            n_labels=int(n_seen[-1]),
            log_wealth=wealth[-1],
            log_largest=max(self.log_largest, float(both.max())),
            alarmed_after=after,
            direction=direction,
        )

    def wealth_after(self, growth: FloatArray) -> FloatArray:
        """Return the log wealth of each bet after each label, new investments included.

        Parameters
        ----------
        growth : array of shape (n_labels, n_bets)
            By how much each label changes the log wealth of each bet, summed so far.

        Returns
        -------
        array of shape (n_labels, n_bets)
            The log wealth after each label.
        """
        n_before = self.n_labels + np.arange(len(growth))
        invested = np.log(_reserve(n_before) - _reserve(n_before + 1))
        # What is invested after a label grows by all later factors.
        parts = np.vstack([self.log_wealth, invested[:, np.newaxis] - growth])
        return np.asarray(growth + np.logaddexp.accumulate(parts, axis=0)[1:])

    @property
    def e_value(self) -> float:
        """The wealth from betting against the claim, starting at 1; large values are evidence."""
        seen = _log_e_values(self.log_wealth[np.newaxis], np.array([self.n_labels]))
        return float(np.exp(min(_log_mean(seen)[0], MAX_LOG)))

    @property
    def p_value(self) -> float:
        """An anytime-valid p-value: 1 / the largest e-value so far."""
        return float(np.exp(-min(self.log_largest, MAX_LOG)))

    @property
    def has_alarmed(self) -> bool:
        """Whether the claim has been rejected, now or earlier."""
        return self.alarmed_after is not None

    @classmethod
    def _from_values(cls, values: dict[str, Any], entry: Entry) -> Self:
        alarm = super(SequentialAlarm, cls)._from_values(values, entry)
        n_labels, after = alarm.n_labels, alarm.alarmed_after
        if after is not None and after > n_labels:
            raise entry.at("alarmed_after").error(f"at most {n_labels}, as `n_labels`", f"{after}")
        if (alarm.direction is None) != (after is None):
            rule = "given if and only if `alarmed_after` is"
            raise entry.at("direction").error(rule, f"{alarm.direction!r}")
        if (alarm.log_largest >= -np.log(alarm.alpha)) != (after is not None):
            rule = "at least -log(alpha) if and only if there was an alarm"
            raise entry.at("log_largest").error(rule, f"{alarm.log_largest:.6g}")
        return alarm


def _gains(stated: FloatArray, observed: FloatArray, tolerance: float) -> FloatArray:
    """Return the gain of each bet, labels x bets: at most 0 in expectation if the claim is true.

    A gain is the likelihood ratio of an alternative to the claim, minus 1. A claim near 0 or 1 is
    moved inwards if that makes the bet worse; otherwise there is no bet on it.
    """
    low, high = (stated - tolerance)[:, np.newaxis], (stated + tolerance)[:, np.newaxis]
    parts = []
    for claim, bets, sign in ((low, slice(0, N_EACH), -1), (high, slice(N_EACH, None), 1)):
        inner = np.clip(claim, EDGE, 1 - EDGE)
        other = expit(SLOPES[bets] * logit(inner) + SHIFTS[bets])
        is_open = (other - inner) * sign > 0
        is_open &= claim >= EDGE if sign < 0 else claim <= 1 - EDGE
        rate = np.where(is_open, (other - inner) / (inner * (1 - inner)), 0.0)
        parts.append(rate * (observed[:, np.newaxis] - inner))
    return np.hstack(parts)


def _log_e_values(log_wealth: FloatArray, n_labels: Any) -> FloatArray:
    """Return the log e-values of both directions after each label, labels x 2."""
    each = log_wealth.reshape(-1, 2, N_EACH)
    reserve = np.log(_reserve(n_labels))[:, np.newaxis]
    return np.asarray(np.logaddexp(logsumexp(each, axis=2) - np.log(N_EACH), reserve))


def _log_mean(log_values: FloatArray) -> FloatArray:
    """Return the log of the mean of both directions."""
    return np.asarray(np.logaddexp(log_values[:, 0], log_values[:, 1]) - np.log(2.0))


def _as_outcomes(observed: Any, n_rows: int, caller: str) -> FloatArray:
    """Return outcomes as numbers from 0 to 1; True is 1."""
    array = np.asarray(observed)
    if array.dtype == np.bool_:
        array = array.astype(np.float64)
    outcomes = as_fractions(array, "observed", caller).astype(np.float64)
    require_rows(outcomes, n_rows, "observed", caller, "`stated`")
    return outcomes


def _stakes(weight: Any, n_rows: int, largest: float, caller: str) -> FloatArray:
    """Return the fraction of the wealth that is bet on each row."""
    given = np.ones(n_rows) if weight is None else weight
    array = as_numbers(given, "weight", caller, n_rows, "`stated`")
    rule = f"must be from 0 to max_weight = {largest:.6g}"
    fix = "Start with a larger max_weight"
    require_everywhere((array >= 0) & (array <= largest), array, "weight", caller, rule, fix)
    return np.asarray(array / largest, dtype=np.float64)
