"""An alarm that may be looked at after every label: are outcomes as was stated of them?"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, Literal, final

import numpy as np
from scipy.special import expit, logit, logsumexp

from dubito.arrays import (
    FloatArray,
    as_finite,
    as_floats,
    as_share,
    as_shares,
    require_dimensions,
    require_everywhere,
    require_rows,
)
from dubito.errors import BadValueError
from dubito.measure.state import from_plain, to_plain

CALLER = "SequentialAlarm"
Direction = Literal["over", "under"]

# What the truth may be instead, as (slope, shift) of the stated log odds: confidence that is too
# sharp or too flat, and outcomes rarer or more common throughout. The first half says that too much
# is stated, the second that too little is. The growth of a bet hardly depends on hitting the truth.
TOO_MUCH = ((0.8, 0.0), (0.67, 0.0), (0.5, 0.0), (1.0, -0.25), (1.0, -0.5), (1.0, -1.0))
TOO_LITTLE = tuple((1 / slope, -shift) for slope, shift in TOO_MUCH)
SLOPES, SHIFTS = np.array(TOO_MUCH + TOO_LITTLE).T
N_EACH = len(TOO_MUCH)
EDGE = 1e-6  # nearer to 0 or 1 nothing is bet on what could not be paid
LARGEST_LOG = 700.0  # beyond, an e-value is no longer told apart


def _waiting(n_labels: Any) -> Any:
    """Return the share of the money that is not yet bet after so many labels."""
    return 1 / (1 + np.log(2.0 + n_labels))


@final
@dataclass(frozen=True, slots=True, eq=False)
class SequentialAlarm:
    """A bet against the claim that outcomes between 0 and 1 have the means stated of them.

    `alarm = alarm.update(confidence, is_correct)` after each label or any batch of them tests
    calibration; with a mean of old doubts as `stated` and new doubts as `found`, drift of doubt.
    While the claim is true up to `tolerance`, whatever has been seen before, the chance that it
    ever alarms is at most `level`, however often and long one looks (Ville's inequality).

    A weight up to `largest_weight`, which must be fixed in advance, bets the share weight /
    `largest_weight` of the money. With one over the chance that a label is asked for as weight, the
    claim is about all rows, also those whose label nobody asked for. Money enters the bets bit by
    bit, so that what happens late is found too. Waudby-Smith and Ramdas, "Estimating means of
    bounded random variables by betting", 2023.

    >>> alarm = SequentialAlarm().update([0.9] * 100, [True, False] * 50)
    >>> alarm.has_alarmed, alarm.direction, alarm.alarmed_after
    (True, 'over', 16)
    """

    level: float = 0.05
    tolerance: float = 0.0
    largest_weight: float = 1.0
    n_labels: int = 0
    log_wealth: FloatArray = field(
        default_factory=lambda: np.full(2 * N_EACH, np.log(1 - _waiting(0)))
    )
    log_largest: float = 0.0
    alarmed_after: int | None = None
    direction: Direction | None = None

    def __post_init__(self) -> None:
        as_share(self.level, "level", CALLER, is_open=True)
        as_share(self.tolerance, "tolerance", CALLER)
        if not (np.isfinite(self.largest_weight) and self.largest_weight > 0):
            rule, fix = "a finite number above 0", "1 / the least chance that a label is asked for"
            raise BadValueError("largest_weight", CALLER, rule, repr(self.largest_weight), fix)

    def update(self, stated: Any, found: Any, weight: Any = None) -> SequentialAlarm:
        """Return the alarm after more labels, in the order they came; it looks after each."""
        caller = f"{CALLER}.update"
        means = as_shares(stated, "stated", caller).astype(np.float64)
        outcomes = _outcomes_of(found, means.size, caller)
        share = _shares_of(weight, means.size, self.largest_weight, caller)
        if not means.size:
            return self
        steps = np.log1p(share[:, np.newaxis] * _gains(means, outcomes, self.tolerance))
        wealth = self.wealth_after(np.cumsum(steps, axis=0))
        n_seen = self.n_labels + np.arange(1, means.size + 1)
        seen = _log_e_values(wealth, n_seen)
        both = _log_mean(seen)
        after, direction = self.alarmed_after, self.direction
        is_alarm = both >= -np.log(self.level)
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
        """Return the log wealth of each bet after each label, with the money that came in."""
        n_before = self.n_labels + np.arange(len(growth))
        enters = np.log(_waiting(n_before) - _waiting(n_before + 1))
        # Money that enters after a label grows by all factors that come later.
        parts = np.vstack([self.log_wealth, enters[:, np.newaxis] - growth])
        return np.asarray(growth + np.logaddexp.accumulate(parts, axis=0)[1:])

    @property
    def e_value(self) -> float:
        """What 1 of money has become by betting against the claim: 1 is no evidence."""
        seen = _log_e_values(self.log_wealth[np.newaxis], np.array([self.n_labels]))
        return float(np.exp(min(_log_mean(seen)[0], LARGEST_LOG)))

    @property
    def p_value(self) -> float:
        """A p-value that holds at any time: 1 over the largest e-value so far."""
        return float(np.exp(-min(self.log_largest, LARGEST_LOG)))

    @property
    def has_alarmed(self) -> bool:
        """Whether the claim was refuted, now or at any time before."""
        return self.alarmed_after is not None

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers and lists, ready for JSON."""
        return to_plain(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> SequentialAlarm:
        """Return the alarm that `to_dict` wrote."""
        alarm = from_plain(cls, values)
        if alarm.log_wealth.shape != (2 * N_EACH,) or not np.isfinite(alarm.log_wealth).all():
            rule, got = f"{2 * N_EACH} numbers", f"{alarm.log_wealth.tolist()}"
            fix = "what `to_dict` of the same version wrote"
            raise BadValueError("log_wealth", f"{CALLER}.from_dict", rule, got, fix)
        return alarm


def _gains(stated: FloatArray, found: FloatArray, tolerance: float) -> FloatArray:
    """Return what each bet of 1 gains or loses, labels x bets: at most 0 on average if true.

    Each is a likelihood ratio less 1, of what may be true instead to the claim. At the edges of 0
    and 1 a claim is moved inwards where that makes the bet worse, and not bet on where it would
    make it better.
    """
    low, high = (stated - tolerance)[:, np.newaxis], (stated + tolerance)[:, np.newaxis]
    parts = []
    for claim, bets, sign in ((low, slice(0, N_EACH), -1), (high, slice(N_EACH, None), 1)):
        inner = np.clip(claim, EDGE, 1 - EDGE)
        other = expit(SLOPES[bets] * logit(inner) + SHIFTS[bets])
        is_open = (other - inner) * sign > 0
        is_open &= claim >= EDGE if sign < 0 else claim <= 1 - EDGE
        rate = np.where(is_open, (other - inner) / (inner * (1 - inner)), 0.0)
        parts.append(rate * (found[:, np.newaxis] - inner))
    return np.hstack(parts)


def _log_e_values(log_wealth: FloatArray, n_labels: Any) -> FloatArray:
    """Return the log e-values of both directions after each label, labels x 2."""
    each = log_wealth.reshape(-1, 2, N_EACH)
    idle = np.log(_waiting(n_labels))[:, np.newaxis]
    return np.asarray(np.logaddexp(logsumexp(each, axis=2) - np.log(N_EACH), idle))


def _log_mean(log_values: FloatArray) -> FloatArray:
    """Return the log of the mean of both columns."""
    return np.asarray(np.logaddexp(log_values[:, 0], log_values[:, 1]) - np.log(2.0))


def _outcomes_of(found: Any, n_rows: int, caller: str) -> FloatArray:
    """Return outcomes as numbers from 0 to 1; True is 1."""
    array = np.asarray(found)
    if array.dtype == np.bool_:
        array = array.astype(np.float64)
    outcomes = as_shares(array, "found", caller).astype(np.float64)
    require_rows(outcomes, n_rows, "found", caller, "`stated`")
    return outcomes


def _shares_of(weight: Any, n_rows: int, largest: float, caller: str) -> FloatArray:
    """Return the share of the money that each row bets."""
    given = np.ones(n_rows) if weight is None else weight
    array = as_finite(as_floats(given, "weight", caller), "weight", caller)
    require_dimensions(array, (1,), "weight", caller, "one number per row")
    require_rows(array, n_rows, "weight", caller, "`stated`")
    rule, fix = f"from 0 to largest_weight, {largest:.6g}", "a larger largest_weight from the start"
    require_everywhere((array >= 0) & (array <= largest), array, "weight", caller, rule, fix)
    return np.asarray(array / largest, dtype=np.float64)
