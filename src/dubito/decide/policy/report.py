"""The results of a policy on rows that it was not fitted on."""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from functools import partial
from math import isfinite
from typing import Any, ClassVar, final

import numpy as np
from scipy import special

from dubito.arrays import BoolArray, FloatArray
from dubito.data.batch import Batch
from dubito.data.labels import Labels
from dubito.decide.policy.decide import REASONS, DecisionRule, Decisions, decision_errors
from dubito.decide.realized import RealizedCosts, costs_of_actions
from dubito.decide.value import MeanInterval, negated
from dubito.formatting import decimal, percent
from dubito.measure.calibration_error import expected_calibration_error as ece
from dubito.measure.intervals import Interval
from dubito.measure.proper_scores import log_loss
from dubito.outputs import Logits, Probabilities
from dubito.serialization.fields import (
    Check,
    Entry,
    declare,
    dict_of,
    integer,
    list_of,
    number,
    optional,
    text,
)
from dubito.serialization.objects import Record

LEVEL = 0.95
FEW_ROWS = 50  # fewer rows make a bootstrap of costs over-confident

_figure = number(-1e300, 1e300)


def _interval(value: Any, entry: Entry) -> Interval:
    """Check for an interval: its value and its ends."""
    return Interval(*list_of(_figure, 3)(value, entry))


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
    evaluation: str


@final
@dataclass(frozen=True, slots=True)
class PolicyReport(Record):
    """Results of a policy on rows that it was not fitted on, with 95 % intervals.

    Costs are means per row. A decision is wrong where another action would have cost less.

    Attributes
    ----------
    evaluation : str
        How the rows were held out.
    n_rows : int
        Labeled rows with a positive weight.
    cost : Interval
        The realized cost.
    expected_cost : float
        The cost that the policy expected.
    gap : Interval
        Expected minus realized cost.
    raw_cost : float
        The cost of optimal decisions with uncalibrated outputs.
    saved : Interval
        What the policy saves over uncalibrated outputs.
    constant_action, constant_cost : str, float
        The best constant action in hindsight, and its cost.
    oracle_cost : float
        The cost with perfect information.
    coverage : Interval
        The fraction of rows that are not rejected.
    risk : Interval or None
        The fraction of wrong decisions among them, None if all rows are rejected.
    bound_cost : Interval or None
        What the risk bound adds to the cost.
    actions, reasons : dict
        The fraction of rows by action and by reason.
    log_loss_before, log_loss_after : float or None
        Before and after calibration, None where infinite.
    calibration_error_before, calibration_error_after : float
        The ECE with 15 uniform bins.
    notes : tuple of str
        Remarks, such as on the risk bound.
    """

    has_header: ClassVar[bool] = False

    evaluation: str
    n_rows: int
    cost: Interval
    expected_cost: float
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
        """Return the figures of decided rows with labels."""
        bootstrap = MeanInterval.of(LEVEL, seed, 1000, "Policy.fit")
        batch, decisions, weight = evidence.batch, evidence.decisions, evidence.weight
        # Rows of a class that is more common in deployment count more, but are no more rows.
        given = batch.labeled_weight
        importance = np.divide(weight, given, out=np.zeros(weight.size), where=given > 0)
        interval = partial(bootstrap, weight=given, importance=importance)
        labels = batch.labels
        assert isinstance(labels, Labels)
        row_costs = evidence.row_costs if evidence.row_costs.size else None
        raw = RealizedCosts.of(labels, evidence.raw, rule.costs, row_costs, weight, "Policy.fit")
        by_action = costs_of_actions(rule.costs, labels, evidence.row_costs)
        paid = _taken(by_action, decisions)
        constants = np.average(by_action, axis=0, weights=weight)
        bound_cost = None
        if evidence.unbound is not None:
            bound_cost = interval(paid - _taken(by_action, evidence.unbound))
        calibrated, settings = decisions.calibrated, dict[str, Any](sample_weight=weight)
        return cls(
            evaluation=evidence.evaluation,
            n_rows=int(np.count_nonzero(weight)),
            cost=interval(paid),
            expected_cost=float(np.average(decisions.expected_cost, weights=weight)),
            gap=interval(decisions.expected_cost - paid),
            raw_cost=float(np.average(raw.realized, weights=weight)),
            saved=interval(raw.realized - paid),
            constant_action=rule.costs.actions[int(constants.argmin())],
            constant_cost=float(constants.min()),
            oracle_cost=float(np.average(raw.oracle, weights=weight)),
            coverage=_proportion(~decisions.is_rejected, weight, given),
            risk=_risk_of(evidence, rule),
            bound_cost=bound_cost,
            actions=_fractions(decisions.action, decisions.actions, weight),
            reasons=_fractions(decisions.reason, REASONS, weight),
            log_loss_before=_finite(log_loss(labels, evidence.raw, **settings)),
            log_loss_after=_finite(log_loss(labels, calibrated, **settings)),
            calibration_error_before=ece(labels, evidence.raw, **settings),
            calibration_error_after=ece(labels, calibrated, **settings),
            notes=notes,
        )

    def __str__(self) -> str:
        return "\n".join([*self.lines, *self.notes])

    @property
    def lines(self) -> list[str]:
        """The figures as sentences."""
        cost, saved, coverage = self.cost, self.saved, self.coverage
        baseline = "optimal decisions on uncalibrated outputs"
        if self.bound_cost is not None:
            baseline += " without a risk bound"
        verdict = f"no significant difference from {baseline}, savings {saved:+}"
        if saved.low > 0:
            verdict = f"{saved} less than {baseline}"
        if saved.high < 0:
            verdict = f"{negated(saved)} more than {baseline}"
        between = f"{percent(coverage.low)} to {percent(coverage.high)}"
        decided = f"{percent(coverage.value)} of rows are decided ({between})"
        if (risk := self.risk) is not None:
            between = f"{percent(risk.low, 2)} to {percent(risk.high, 2)}"
            decided += f"; {percent(risk.value, 2)} of the decisions are wrong ({between})"
        lines = [
            f"Mean cost per row: {cost}, {verdict}.",
            f"Expected cost according to the model: {decimal(self.expected_cost)}. Baselines: "
            f"always '{self.constant_action}' {decimal(self.constant_cost)}, perfect information "
            f"{decimal(self.oracle_cost)}.",
            f"{decided}.",
            f"Before and after calibration: log loss {_number(self.log_loss_before)} and "
            f"{_number(self.log_loss_after)}, ECE (15 uniform bins) "
            f"{self.calibration_error_before:.4f} and {self.calibration_error_after:.4f}.",
        ]
        if self.bound_cost is not None:
            added = self.bound_cost
            lines.append(
                "The risk bound does not change the cost."
                if added == Interval(0.0, 0.0, 0.0)
                else f"Effect of the risk bound on the mean cost: {added:+}."
            )
        few = " Too few rows for reliable costs." if self.n_rows < FEW_ROWS else ""
        rows = f"{self.n_rows:,} rows, {self.evaluation}; 95 % intervals in parentheses."
        return [*lines, f"{rows}{few}"]

    def _values(self) -> dict[str, Any]:
        values = super(PolicyReport, self)._values()
        intervals = {n: astuple(v) for n, v in values.items() if isinstance(v, Interval)}
        return values | intervals


_CHECKS: dict[Any, Check] = {  # of each type of field
    "str": text,
    "int": integer(),
    "float": _figure,
    "float | None": optional(_figure),
    "Interval": _interval,
    "Interval | None": optional(_interval),
    "dict[str, float]": dict_of(_figure),
    "tuple[str, ...]": lambda value, entry: tuple(list_of(text)(value, entry)),
}
PolicyReport.fields = declare(**{one.name: _CHECKS[one.type] for one in fields(PolicyReport)})


def _taken(by_action: FloatArray, decisions: Decisions) -> FloatArray:
    """Return the costs of the actions taken."""
    return np.asarray(by_action[np.arange(len(decisions)), decisions.action])


def _risk_of(evidence: Evidence, rule: DecisionRule) -> Interval | None:
    """Return the fraction of wrong decisions among rows that are not rejected."""
    is_open = ~evidence.decisions.is_rejected
    if not (evidence.weight[is_open] > 0).any():
        return None
    labels = evidence.batch.labels
    assert isinstance(labels, Labels)
    wrong = decision_errors(labels, evidence.decisions.action, rule.costs, evidence.row_costs)
    given = evidence.batch.labeled_weight
    return _proportion(wrong[is_open], evidence.weight[is_open], given[is_open])


def _proportion(
    values: FloatArray | BoolArray, weight: FloatArray, n_given: FloatArray
) -> Interval:
    """Return a proportion with its exact interval (Clopper and Pearson, 1934).

    Where weights differ from the number of rows that were given, they reduce its effective number.
    A bootstrap without any error would claim that there are none.
    """
    mean, used = float(np.average(values, weights=weight)), weight > 0
    n = float(weight.sum() ** 2 / (weight[used] ** 2 / n_given[used]).sum())
    k, tail = mean * n, (1 - LEVEL) / 2
    low = special.betaincinv(k, n - k + 1, tail) if k > 0 else 0.0
    high = special.betaincinv(k + 1, n - k, 1 - tail) if n - k > 1e-9 else 1.0
    return Interval(mean, float(low), float(high))


def _fractions(numbers: Any, names: tuple[str, ...], weight: FloatArray) -> dict[str, float]:
    """Return the fraction of the weight of each name."""
    parts = np.bincount(numbers, weight, len(names)) / weight.sum()
    return dict(zip(names, parts.tolist(), strict=True))


def _finite(value: float) -> float | None:
    """Return a finite number, or None."""
    return float(value) if isfinite(value) else None


def _number(value: float | None) -> str:
    """Return a figure as text."""
    return "infinite" if value is None else f"{value:.4f}"
