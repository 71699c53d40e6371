"""What a policy does to rows it was not fitted on."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from math import isfinite
from typing import Any, final

import numpy as np
from scipy import special

from dubito.arrays import BoolArray, FloatArray
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.decide.policy.decide import REASONS, DecisionRule, Decisions, decision_errors
from dubito.decide.policy.file import AS_WRITTEN
from dubito.decide.realized import Judged, costs_of_actions
from dubito.decide.value import MeanInterval
from dubito.errors import BadTypeError, BadValueError
from dubito.measure.calibration_error import expected_calibration_error
from dubito.measure.intervals import Interval
from dubito.measure.proper_scores import log_loss
from dubito.outputs import Logits, Probabilities

LEVEL = 0.95
FEW_ROWS = 50  # below, a bootstrap of costs is too sure of itself
MOST = 1e300


@final
@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """Decided rows that a policy did not learn from.

    `unbound` are the decisions that would have been made without a risk bound.
    """

    batch: Batch
    raw: Logits | Probabilities
    decisions: Decisions
    unbound: Decisions | None
    row_costs: FloatArray
    weight: FloatArray
    how: str


@final
@dataclass(frozen=True, slots=True)
class PolicyReport:
    """Figures of a policy on rows that it did not learn from, costs a row, 95 % intervals.

    `risk` is the share of wrong ones among rows that were decided rather than handed over, None
    where all were handed over; a decision is wrong where another action would have cost less.
    `saved` is what raw outputs cost under the same costs less what the policy does; `bound_cost` is
    what the risk bound added. A log loss is None where it is infinite.
    """

    how: str
    n_rows: int
    cost: Interval
    predicted_cost: float
    gap: Interval
    raw_cost: float
    saved: Interval
    constant_action: str
    constant_cost: float
    oracle_cost: float
    coverage: Interval
    risk: Interval | None
    bound_cost: Interval | None
    actions: dict[str, float]
    reasons: dict[str, float]
    log_loss_before: float | None
    log_loss_after: float | None
    calibration_error_before: float
    calibration_error_after: float
    notes: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, evidence: Evidence, rule: DecisionRule, notes: tuple[str, ...] = (), seed: int = 0
    ) -> PolicyReport:
        """Measure what was decided against what happened."""
        interval = MeanInterval.of(LEVEL, seed, 1000, "Policy.fit")
        batch, decisions, weight = evidence.batch, evidence.decisions, evidence.weight
        labels = batch.labels
        assert isinstance(labels, Labels)
        row_costs = evidence.row_costs if evidence.row_costs.size else None
        raw = Judged.of(labels, evidence.raw, rule.costs, row_costs, weight, "Policy.fit")
        by_action = costs_of_actions(rule.costs, labels, evidence.row_costs)
        paid = _taken(by_action, decisions)
        constants = np.average(by_action, axis=0, weights=weight)
        is_open = ~decisions.is_rejected
        unbound = evidence.unbound
        return cls(
            how=evidence.how,
            n_rows=int(np.count_nonzero(weight)),
            cost=interval(paid, weight),
            predicted_cost=float(np.average(decisions.expected_cost, weights=weight)),
            gap=interval(decisions.expected_cost - paid, weight),
            raw_cost=float(np.average(raw.realized, weights=weight)),
            saved=interval(raw.realized - paid, weight),
            constant_action=rule.costs.actions[int(constants.argmin())],
            constant_cost=float(constants.min()),
            oracle_cost=float(np.average(raw.oracle, weights=weight)),
            coverage=_share_interval(is_open, weight),
            risk=_risk_of(evidence, rule),
            bound_cost=None
            if unbound is None
            else interval(paid - _taken(by_action, unbound), weight),
            actions=_shares(decisions.action, decisions.actions, weight),
            reasons=_shares(decisions.reason, REASONS, weight),
            log_loss_before=_finite(log_loss(labels, evidence.raw, sample_weight=weight)),
            log_loss_after=_finite(
                log_loss(labels, evidence.decisions.calibrated, sample_weight=weight)
            ),
            calibration_error_before=expected_calibration_error(
                labels, evidence.raw, sample_weight=weight
            ),
            calibration_error_after=expected_calibration_error(
                labels, evidence.decisions.calibrated, sample_weight=weight
            ),
            notes=notes,
        )

    def __str__(self) -> str:
        return "\n".join([*self.lines, *self.notes])

    @property
    def lines(self) -> list[str]:
        """What the figures say, in words."""
        cost, saved, coverage = self.cost, self.saved, self.coverage
        verdict = (
            f"{saved.value:.4g} less than raw outputs ({saved.low:.4g} to {saved.high:.4g})"
            if saved.low > 0
            else f"{-saved.value:.4g} more than raw outputs ({-saved.high:.4g} to {-saved.low:.4g})"
            if saved.high < 0
            else "no sure difference to raw outputs "
            f"(saved {saved.value:.4g}, {saved.low:.4g} to {saved.high:.4g})"
        )
        lines = [
            f"A row costs {cost.value:.4g} ({cost.low:.4g} to {cost.high:.4g}): {verdict}.",
            f"It expected {self.predicted_cost:.4g}. Always '{self.constant_action}' would cost "
            f"{self.constant_cost:.4g}, knowing every truth {self.oracle_cost:.4g}.",
            f"{coverage.value:.1%} of rows are decided ({coverage.low:.1%} to {coverage.high:.1%})"
            + (
                f", of which {self.risk.value:.2%} wrongly ({self.risk.low:.2%} to "
                f"{self.risk.high:.2%})."
                if self.risk
                else "."
            ),
            "Log loss "
            f"{_number(self.log_loss_before)} to {_number(self.log_loss_after)}, ECE (15 uniform "
            f"bins) {self.calibration_error_before:.4f} to {self.calibration_error_after:.4f}.",
        ]
        if self.bound_cost is not None:
            added = self.bound_cost
            lines.append(
                "The risk bound changes nothing."
                if added == Interval(0.0, 0.0, 0.0)
                else f"The risk bound wins over costs, which adds {added.value:.4g} a row "
                f"({added.low:.4g} to {added.high:.4g})."
            )
        few = " So few that costs may be far off." if self.n_rows < FEW_ROWS else ""
        return [*lines, f"{self.n_rows:,} rows, {self.how}; 95 % intervals in brackets.{few}"]

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, texts and lists, ready for JSON; an interval is three numbers."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: _to_plain(value) for name, value in values.items()}

    @classmethod
    def from_dict(cls, values: Any) -> PolicyReport:
        """Return the report that `to_dict` wrote; all of it is checked."""
        names = [field.name for field in fields(cls)]
        if not isinstance(values, Mapping) or set(values) != set(names):
            rule = "all figures of a report, and no others"
            raise BadTypeError("report", "Policy.load", rule, type(values).__name__, AS_WRITTEN)
        read: dict[str, Any] = {}
        for name in names:
            is_none = values[name] is None and name in OPTIONAL
            try:
                reader: Callable[[Any], Any] = READERS.get(name, _as_number)
                read[name] = None if is_none else reader(values[name])
            except (TypeError, ValueError, AttributeError) as error:
                argument, got = f"report.{name}", shortened(values[name])
                rule = f"{KINDS.get(name, 'a finite number')}, as a report has it"
                raise BadValueError(argument, "Policy.load", rule, got, AS_WRITTEN) from error
        return cls(**read)


def _taken(by_action: FloatArray, decisions: Decisions) -> FloatArray:
    """Return what the actions taken cost, of what each would have."""
    return np.asarray(by_action[np.arange(len(decisions)), decisions.action])


def _risk_of(evidence: Evidence, rule: DecisionRule) -> Interval | None:
    """Return the share of wrong decisions among those made."""
    is_open = ~evidence.decisions.is_rejected
    if not (evidence.weight[is_open] > 0).any():
        return None
    labels = evidence.batch.labels
    assert isinstance(labels, Labels)
    wrong = decision_errors(labels, evidence.decisions.action, rule.costs, evidence.row_costs)
    return _share_interval(wrong[is_open], evidence.weight[is_open])


def _share_interval(values: FloatArray | BoolArray, weight: FloatArray) -> Interval:
    """Return a share with its exact interval, for as many rows as the weights are worth.

    A bootstrap of no errors at all would be sure that there are none. Clopper and Pearson, 1934.
    """
    share = float(np.average(values, weights=weight))
    n = float(weight.sum() ** 2 / np.square(weight).sum())
    k, tail = share * n, (1 - LEVEL) / 2
    low = special.betaincinv(k, n - k + 1, tail) if k > 0 else 0.0
    high = special.betaincinv(k + 1, n - k, 1 - tail) if n - k > 1e-9 else 1.0
    return Interval(share, float(low), float(high))


def _shares(numbers: Any, names: tuple[str, ...], weight: FloatArray) -> dict[str, float]:
    """Return how much of the weight each name has."""
    parts = np.bincount(numbers, weight, len(names)) / weight.sum()
    return dict(zip(names, parts.tolist(), strict=True))


def _finite(value: float) -> float | None:
    """Return a number that JSON can hold."""
    return float(value) if isfinite(value) else None


def _number(value: float | None) -> str:
    """Return a figure as words show it."""
    return "infinite" if value is None else f"{value:.4f}"


def _to_plain(value: Any) -> Any:
    """Return an entry of a report as JSON holds it."""
    if isinstance(value, Interval):
        return [value.value, value.low, value.high]
    return list(value) if isinstance(value, tuple) else value


def _as_number(value: Any) -> float:
    """Return a finite number."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < MOST:
        raise ValueError
    return float(value)


def _as_interval(value: Any) -> Interval:
    """Return an interval from its three numbers."""
    middle, low, high = (_as_number(entry) for entry in value)
    return Interval(middle, low, high)


def as_text(value: Any) -> str:
    """Return a text."""
    if not isinstance(value, str):
        raise TypeError
    return value


def _as_texts(value: Any) -> tuple[str, ...]:
    """Return texts."""
    if not isinstance(value, list):
        raise TypeError
    return tuple(as_text(entry) for entry in value)


def _as_shares(value: Any) -> dict[str, float]:
    """Return numbers by name."""
    return {as_text(name): _as_number(entry) for name, entry in value.items()}


def as_count(value: Any) -> int:
    """Return a whole number from 0 up."""
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**63:
        raise ValueError
    return value


def shortened(value: Any) -> str:
    """Return what was found, short enough for a message."""
    return repr(value)[:60] if not isinstance(value, int) or abs(value) < 2**63 else "a huge number"


INTERVALS = ("cost", "gap", "saved", "coverage", "risk", "bound_cost")
TEXTS, SHARES = ("how", "constant_action"), ("actions", "reasons")
OPTIONAL = ("risk", "bound_cost", "log_loss_before", "log_loss_after")
READERS: dict[str, Callable[[Any], Any]] = {
    **dict.fromkeys(INTERVALS, _as_interval),
    **dict.fromkeys(TEXTS, as_text),
    **dict.fromkeys(SHARES, _as_shares),
    "n_rows": as_count,
    "notes": _as_texts,
}
KINDS = {
    **dict.fromkeys(INTERVALS, "three finite numbers"),
    **dict.fromkeys(TEXTS, "a text"),
    **dict.fromkeys(SHARES, "numbers by name"),
    "n_rows": "a whole number",
    "notes": "texts",
}
