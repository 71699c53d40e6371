"""The results of a policy on rows that it was not fitted on."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import astuple, dataclass, fields, replace
from math import isfinite
from typing import Annotated, Any, ClassVar, Self, final
from warnings import catch_warnings

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray, as_fraction, freeze
from dubito.calibrate.calibrator import as_class_outputs
from dubito.calibrate.cross_validation import answers_of
from dubito.data.batch import Batch
from dubito.data.labels import Labels, names_of
from dubito.decide.policy.decide import REASONS, DecisionRule, Decisions, decision_errors
from dubito.decide.priors import posteriors
from dubito.decide.realized import RealizedCosts, action_numbers
from dubito.decide.row_costs import RowCosts
from dubito.decide.value import MeanInterval, mean_of, negated, weight_fractions
from dubito.errors import BadValueError, InfiniteLossWarning
from dubito.formatting import HTMLTable, align_table, decimal, html_view, percent, quantity
from dubito.measure.binary import BinaryAudit, positive_rows
from dubito.measure.calibration_error import expected_calibration_error as ece
from dubito.measure.detection import RankingState
from dubito.measure.groups import clopper_pearson
from dubito.measure.intervals import Interval
from dubito.measure.proper_scores import proper_score
from dubito.outputs import Logits, Probabilities, Scores
from dubito.serialization.fields import (
    Check,
    Entry,
    Omittable,
    converted,
    dict_of,
    integer,
    list_of,
    number,
    optional,
    schema_of,
    states,
    text,
)
from dubito.serialization.objects import Record, stores_fields

LEVEL = 0.95
PER = 10_000  # rows that counts are shown for
MAX_CLASSES, MAX_WIDTH = 4, 78  # whose counts are shown in text, and how wide its lines are
NOTHING = Interval(0.0, 0.0, 0.0)
TOP_LABEL_ECE = "ECE (15 uniform bins)"
UNCALIBRATED = "optimal decisions on uncalibrated outputs"
FEW_ROWS = 50  # fewer rows make a bootstrap of costs over-confident

Columns = Sequence[FloatArray]
Baseline = tuple[str, float, Interval | None]  # its name, its cost, what a policy saves over it

_figure = number(-1e300, 1e300)


@states(lambda: schema_of(list_of(_figure, 3)))
def _interval(value: Any, entry: Entry) -> Interval:
    """Check for an interval: its value and its ends."""
    return Interval(*list_of(_figure, 3)(value, entry))


@states(lambda: schema_of(dict_of(dict_of(number(0, 1)))))
def _fractions_table(value: Any, entry: Entry) -> dict[str, dict[str, float]]:
    """Check for fractions by action and class: the same classes for every action."""
    table: dict[str, dict[str, float]] = dict_of(dict_of(number(0, 1)))(value, entry)
    if len({tuple(row) for row in table.values()}) != 1:
        raise entry.error("must have the same classes for every action", "other ones")
    return table


@final
@dataclass(frozen=True, slots=True)
class CurrentRule:
    """What is done today: the actions that rows hold, a threshold, or the most probable class.

    `column` is the positive class of two, and `threshold` is on its uncalibrated probability.
    """

    name: str = "the action for the most probable class (argmax)"
    threshold: float | None = None
    column: int = 1

    @classmethod
    def of(cls, current: Any, first: Batch, column: int) -> CurrentRule:
        """Return the rule that `Policy.fit` is given; rows that hold actions need none."""
        if first.current_actions is not None:
            return cls("what was done (the current actions)")
        if isinstance(current, str) and current == "argmax":
            return ANSWER if isinstance(first.outputs, Scores) else cls()
        outputs = as_class_outputs(first.outputs, "Policy.fit")
        threshold = _as_threshold(current)
        if outputs.n_classes != 2:
            rule, fix = "must be 'argmax' or actions, unless there are two classes", "Leave it out"
            raise BadValueError("current", "Policy.fit", rule, f"{current}", fix)
        name = f"P({names_of(outputs)[column]})"
        return cls(f"a threshold of {threshold:g} on the uncalibrated {name}", threshold, column)

    def actions(self, batch: Batch, row_costs: RowCosts) -> IntArray:
        """Return the action of each row.

        For a class it is the one that costs least there, other than to reject.
        """
        costs = row_costs.costs
        if batch.current_actions is not None:
            names = np.array([str(name) for name in batch.current_actions], dtype=object)
            try:
                return action_numbers(names, costs, "Policy.fit", "current_actions")
            except BadValueError as error:  # rows of a fold are not those of the file
                raise error.moved(row=None) from error
        if isinstance(batch.outputs, Scores) and self.threshold is None:
            codes: IntArray = np.ones(len(batch), np.int64)  # every answer is taken as correct
            return self._best(codes, row_costs)
        outputs = as_class_outputs(batch.outputs, "Policy.fit")
        if self.threshold is None:
            codes = np.asarray(outputs.array.argmax(axis=1))
        else:
            p = posteriors(outputs)[:, self.column]
            codes = np.where(p >= self.threshold, self.column, 1 - self.column)
        found = self._best(codes, row_costs)
        if isinstance(batch.outputs, Scores) and costs.reject is not None:
            found = np.where(codes == self.column, found, costs.reject)
        return found

    def _best(self, codes: IntArray, row_costs: RowCosts) -> IntArray:
        """Return the action that costs least in a class, other than to reject, for each row."""
        costs = row_costs.costs
        by_action = row_costs.of_labels(Labels(freeze(codes)))
        by_action[:, list(costs.rejecting)] = np.inf
        return np.asarray(by_action.argmin(axis=1))


ARGMAX = CurrentRule()
ANSWER = CurrentRule("answering every row")


class BaseEvidence:
    """Decided rows that a policy did not learn from, whatever is decided."""

    __slots__ = ()

    batch: Batch
    decisions: Any
    evaluation: str

    def by_group(self) -> dict[str, Self]:
        """Return the rows of each group that has a known label or target."""
        names = np.array([] if self.batch.groups is None else [*map(str, self.batch.groups)])
        found = {}
        for name in np.unique(names):
            some = self.take(np.flatnonzero(names == name))
            if some.batch.labeled_weight.any():
                found[str(name)] = some
        return found

    def take(self, rows: IntArray) -> Self:
        """Return the evidence of some rows.

        Parameters
        ----------
        rows : array of int
            Row indices.

        Returns
        -------
        BaseEvidence
            Of the same class.
        """
        values = {one.name: getattr(self, one.name) for one in fields(self)}  # type: ignore[arg-type]
        some = {name: one.take(rows) for name, one in values.items() if hasattr(one, "take")}
        return replace(self, **some)  # type: ignore[type-var]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Evidence(BaseEvidence):
    """Decided rows that a policy did not learn from.

    `unbound` are the decisions that would have been made without a risk bound; `pos_column` is the
    positive class of two.
    """

    batch: Batch
    uncalibrated: Logits | Probabilities
    decisions: Decisions
    unbound: Decisions | None
    row_costs: RowCosts
    weight: FloatArray
    evaluation: str
    current: CurrentRule = ARGMAX
    pos_column: int = 1
    uncalibrated_thresholds: tuple[Interval | None, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "row_costs", self.row_costs.answered(self.decisions.calibrated))


@dataclass(frozen=True, slots=True)
class BaseReport(Record):
    """Figures of a policy: numbers, intervals, texts, and dictionaries and tuples of these."""

    has_header: ClassVar[bool] = False
    type_checks: ClassVar[Mapping[Any, Check]] = {
        str: text,
        int: integer(),
        float: _figure,
        float | None: optional(_figure),
        Interval: _interval,
        Interval | None: optional(_interval),
        dict[str, float]: dict_of(_figure),
        dict[str, dict[str, float]]: _fractions_table,
        tuple[Interval | None, ...]: converted(tuple, list_of(optional(_interval))),
        tuple[str, ...]: converted(tuple, list_of(text)),
    }

    evaluation: str
    n_rows: int

    def _values(self) -> dict[str, Any]:
        return {name: _plain(getattr(self, name)) for name in self.fields}

    def __str__(self) -> str:
        return "\n".join([*self.lines, *getattr(self, "notes", ())])

    @property
    @abstractmethod
    def lines(self) -> list[str]:
        """The figures as sentences."""

    @property
    def _rows_line(self) -> str:
        """How many rows the figures rest on, and whether these are few."""
        few = " Too few rows for reliable costs." if self.n_rows < FEW_ROWS else ""
        return f"{self.n_rows:,} rows, {self.evaluation}; 95 % intervals in parentheses.{few}"

    def _html_parts(self) -> list[str | HTMLTable]:
        """Return the sentences after the first one, which is the verdict, for notebooks."""
        return ["\n".join(str(self).split("\n")[1:])]

    def _repr_html_(self) -> str:
        return html_view(str(self).partition("\n")[0], *self._html_parts())


@dataclass(frozen=True, slots=True)
class BaseCostReport(BaseReport):
    """What the reports of all fitted policies begin with; see `cost_figures`."""

    cost: Interval
    expected_cost: float
    gap: Interval
    uncalibrated_cost: float
    saved: Interval

    def _expected_line(self, *baselines: str, what: str = "cost") -> str:
        """Return what the model expects, and baselines, in two sentences."""
        expected = f"Expected {what} according to the model: {decimal(self.expected_cost)}."
        return f"{expected} Baselines: {', '.join(baselines)}."

    @property
    def _unit(self) -> str:
        """The name of the cost per row."""
        return "mean cost"

    @property
    @abstractmethod
    def _baselines(self) -> list[Baseline]:
        """The decision rules that the policy is compared with."""

    def _html_parts(self) -> list[str | HTMLTable]:
        """Return costs beside those of other rules as a table, then the other sentences."""
        rules = [("this policy", f"{self.cost}", "")]
        for name, cost, saved in self._baselines:
            rules.append((name, decimal(cost), "" if saved is None else f"{saved}"))
        sentences = [one.partition(" Baselines:")[0] for one in str(self).split("\n")[1:]]
        heads = ("decision rule", f"{self._unit} per row", "this policy saves")
        return [HTMLTable(heads, rules), "\n".join(sentences)]


def _plain(value: Any) -> Any:
    """Return a figure as plain values."""
    if isinstance(value, Interval):
        return astuple(value)
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


@final
@stores_fields
@dataclass(frozen=True, slots=True)
class PolicyReport(BaseCostReport):
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
    uncalibrated_cost : float
        The cost of optimal decisions with uncalibrated outputs.
    saved : Interval
        What the policy saves over uncalibrated outputs.
    constant_action, constant_cost : str, float
        The best constant action in hindsight, and its cost.
    oracle_cost : float
        The cost with perfect information.
    current : str
        The rule that the policy is compared with: what is done today.
    current_cost : float
        Its cost.
    current_saved : Interval
        What the policy saves over it.
    coverage : Interval
        The fraction of rows that are not rejected.
    risk : Interval or None
        The fraction of wrong decisions among them, None if all rows are rejected.
    bound_cost : Interval or None
        What the risk bound adds to the cost.
    actions, reasons : dict
        The fraction of rows by action and by reason.
    confusion : dict
        The fraction of rows by action and true class.
    uncalibrated_thresholds : tuple of Interval or None
        For each of `Policy.thresholds` but the last, the probability of the model itself at which
        its action ends, None where that is not a single one: the 95 % interval of the probability
        of the model whose true frequency is the threshold. Empty for more than two classes.
    log_loss_before, log_loss_after : float or None
        Before and after calibration, None where infinite.
    calibration_error_before, calibration_error_after : float
        The ECE: for two classes that of P(positive), in equal-mass bins as in an audit, and
        otherwise that of the top label, with 15 uniform bins. For scores of answers it is that of
        P(correct), and None before calibration if no score is declared to be a probability.
    calibration_error_name : str
        Whose ECE it is, and its bins.
    notes : tuple of str
        Remarks, such as on the risk bound.
    """

    constant_action: str
    constant_cost: float
    oracle_cost: float
    current: str
    current_cost: float
    current_saved: Interval
    coverage: Interval
    risk: Interval | None
    bound_cost: Interval | None
    actions: dict[str, float]
    reasons: dict[str, float]
    confusion: dict[str, dict[str, float]]
    log_loss_before: float | None
    log_loss_after: float | None
    calibration_error_before: float | None
    calibration_error_after: float
    uncalibrated_thresholds: tuple[Interval | None, ...] = ()
    notes: tuple[str, ...] = ()
    calibration_error_name: Annotated[str, Omittable(text)] = TOP_LABEL_ECE  # not in older files

    @classmethod
    def of(
        cls,
        evidence: Evidence,
        rule: DecisionRule,
        seed: int = 0,
        notes: tuple[str, ...] = (),
        stacklevel: int = 3,
    ) -> PolicyReport:
        """Return the figures of decided rows with labels.

        Parameters
        ----------
        evidence : Evidence
            Held-out rows, their labels and decisions.
        rule : DecisionRule
            Costs, OOD gate and risk bound.
        seed : int, default 0
            Seed of the bootstrap.
        notes : tuple of str, default ()
            Sentences to add to the report.
        stacklevel : int, default 3
            The caller that warnings point at: 2 is that of `of`, 3 that of its caller.

        Returns
        -------
        PolicyReport
            Costs, risk and coverage with intervals.
        """
        batch, decisions, weight = evidence.batch, evidence.decisions, evidence.weight
        labels, by_row = batch.class_labels, evidence.row_costs
        uncalibrated = RealizedCosts.of(
            labels, evidence.uncalibrated, rule.costs, by_row, weight, "Policy.fit"
        )
        by_action = uncalibrated.by_action
        paid = _taken(by_action, decisions.action)
        today = _taken(by_action, evidence.current.actions(batch, by_row))
        constants = np.average(by_action, axis=0, weights=weight)
        others = [today - paid]
        if evidence.unbound is not None:
            others.append(paid - _taken(by_action, evidence.unbound.action))
        costs = [paid, decisions.expected_cost, uncalibrated.realized]
        figures, (current_saved, *rest) = cost_figures(evidence, weight, costs, others, seed)
        # A confidence of exactly 0 or 1 is not unusual among scores: the report states it.
        ignored = catch_warnings(action="ignore", category=InfiniteLossWarning)
        with ignored if isinstance(batch.outputs, Scores) else nullcontext():
            log_loss_before = _log_loss(evidence, evidence.uncalibrated, stacklevel + 2)
        log_loss_after = _log_loss(evidence, decisions.calibrated, stacklevel + 2)
        error_name, *errors = _calibration_errors(evidence)
        has_uncalibrated = getattr(batch.outputs, "confidence_column", 0) is not None
        return cls(
            **figures,
            constant_action=rule.costs.actions[int(constants.argmin())],
            constant_cost=float(constants.min()),
            oracle_cost=mean_of(uncalibrated.oracle, weight),
            current=evidence.current.name,
            current_cost=mean_of(today, weight),
            current_saved=current_saved,
            coverage=proportion(~decisions.is_rejected, weight, batch.labeled_weight),
            risk=_risk_of(evidence),
            bound_cost=rest[0] if rest else None,
            actions=weight_fractions(decisions.action, decisions.actions, weight),
            reasons=weight_fractions(decisions.reason, REASONS, weight),
            confusion=_confusion(decisions, labels, weight),
            log_loss_before=_finite(log_loss_before),
            log_loss_after=_finite(log_loss_after),
            calibration_error_before=errors[0] if has_uncalibrated else None,
            calibration_error_after=errors[1],
            uncalibrated_thresholds=evidence.uncalibrated_thresholds,
            notes=notes,
            calibration_error_name=error_name,
        )

    @property
    def lines(self) -> list[str]:
        """The figures as sentences."""
        cost, saved, coverage = self.cost, self.saved, self.coverage
        baseline = UNCALIBRATED
        if self.bound_cost is not None:
            baseline += " without a risk bound"
        verdict = f", {cost_difference(saved, baseline)}" if self.has_uncalibrated else ""
        decided = percents(coverage, "of rows are decided automatically")
        if coverage.value == 1:
            decided = "All rows are decided automatically"
        if self.risk is not None:
            decided += f"; {percents(self.risk, 'of the decisions are wrong', 2)}"
        difference = "the policy costs the same"
        if self.current_saved != NOTHING:
            difference = f"{_savings(self.current_saved)}{self._doubt}"
        lines = [
            f"Mean cost per row: {cost}{verdict}.",
            self._expected_line(
                f"always '{self.constant_action}' {decimal(self.constant_cost)}",
                f"perfect information {decimal(self.oracle_cost)}",
            ),
            f"{self.current[0].upper()}{self.current[1:]} costs {decimal(self.current_cost)} "
            f"per row; {difference}.",
            f"{decided}.",
            *self._confusion_lines,
            self._calibration_line,
        ]
        if self.bound_cost == NOTHING:
            lines.append("The risk bound does not change the cost.")
        elif self.bound_cost is not None:
            lines.append(f"Effect of the risk bound on the mean cost: {self.bound_cost:+}.")
        return [*lines, self._rows_line]

    def saved_per_day(self, n_rows: float) -> str:
        """Return a sentence on what the policy saves per day over what is done today.

        Parameters
        ----------
        n_rows : float
            Rows that are decided per day.

        Returns
        -------
        str
        """
        saved, verb, than = self.current_saved, "saves", "over"
        if saved.value < 0:
            saved, verb, than = negated(saved), "costs", "more than"
        value, low, high = (f"{n_rows * one:,.0f}" for one in (saved.value, saved.low, saved.high))
        found = f"the policy {verb} {value} ({low} to {high}) per day {than} {self.current}"
        return f"At {n_rows:,.0f} rows per day, {found}{self._doubt}."

    @property
    def _doubt(self) -> str:
        """A remark if what is saved over the current rule is not significant."""
        is_unsure = self.current_saved.low <= 0 <= self.current_saved.high
        return ", which is not significant" if is_unsure else ""

    @property
    def has_uncalibrated(self) -> bool:
        """Whether outputs are probabilities before calibration: scores of answers may not be."""
        return self.calibration_error_before is not None

    @property
    def is_better(self) -> bool:
        """Whether calibration reduced the log loss, and costs are not significantly higher."""
        before, after = self.log_loss_before, self.log_loss_after
        is_less = before is None or (after is not None and after < before)
        return is_less and not (self.has_uncalibrated and self.saved.high < 0)

    @property
    def is_calibrated(self) -> bool:
        """Whether held-out rows, and enough of them, show that P(correct) is of use."""
        return self.is_better and self.n_rows >= FEW_ROWS

    @property
    def _calibration_line(self) -> str:
        """The log loss and the ECE before and after calibration."""
        losses = _number(self.log_loss_before), _number(self.log_loss_after)
        name, error = self.calibration_error_name, f"{self.calibration_error_after:.4f}"
        if self.calibration_error_before is None:
            by_rate = f"Log loss {losses[0]} of the base rate and {losses[1]} of P(correct)"
            return f"{by_rate}, whose {name} is {error}."
        errors = f"{self.calibration_error_before:.4f}", error
        return calibration_effect({"log loss": losses, name: errors})

    @property
    def _baselines(self) -> list[Baseline]:
        uncalibrated = (UNCALIBRATED, self.uncalibrated_cost, self.saved)
        return [
            (self.current, self.current_cost, self.current_saved),
            *([uncalibrated] if self.has_uncalibrated else []),
            (f"always '{self.constant_action}'", self.constant_cost, None),
            ("perfect information", self.oracle_cost, None),
        ]

    def _html_parts(self) -> list[str | HTMLTable]:
        classes = list(next(iter(self.confusion.values())))
        rows: list[tuple[str, ...]] = [
            (action, percent(self.actions[action], 2)) for action in self.confusion
        ]
        heads: tuple[str, ...] = ("action", "rows")
        if len(classes) <= MAX_CLASSES:
            heads = (*heads, *_truth_heads(classes))
            parts = [[percent(one, 2) for one in row.values()] for row in self.confusion.values()]
            rows = [(*row, *part) for row, part in zip(rows, parts, strict=True)]
        costs, sentences = BaseCostReport._html_parts(self)
        shown = {self.lines[2], *self._confusion_lines}
        others = [one for one in str(sentences).split("\n") if one not in shown]
        return [costs, HTMLTable(heads, rows), "\n".join(others)]

    @property
    def _confusion_lines(self) -> list[str]:
        """How many of 10,000 rows get each action, by true class, unless these are many."""
        classes = list(next(iter(self.confusion.values())))
        if len(classes) > MAX_CLASSES:
            return []
        table = [("  action", *_truth_heads(classes))]
        for action, row in self.confusion.items():
            table.append((f"  {action}", *(f"{PER * part:,.0f}" for part in row.values())))
        lines = align_table(table)
        is_wide = max(map(len, lines)) > MAX_WIDTH
        return [] if is_wide else [f"Of {PER:,} rows:", *lines]


def _truth_heads(classes: Sequence[str]) -> list[str]:
    """Return the heads of columns of rows by their truth; an answer is wrong or correct.

    >>> _truth_heads(["cat", "dog"]), _truth_heads(["wrong", "correct"])
    (['true cat', 'true dog'], ['wrong', 'correct'])
    """
    return [*classes] if classes == ["wrong", "correct"] else [f"true {name}" for name in classes]


def percents(interval: Interval, what: str, digits: int = 1) -> str:
    """Return a proportion of something in percent, with its interval.

    >>> percents(Interval(0.5, 0.4, 0.6), "of rows")
    '50.0 % of rows (40.0 % to 60.0 %)'
    """
    value, low, high = (percent(one, digits) for one in astuple(interval))
    return f"{value} {what} ({low} to {high})"


def _taken(by_action: FloatArray, action: IntArray) -> FloatArray:
    """Return the costs of the actions taken."""
    return np.asarray(by_action[np.arange(action.size), action])


def cost_figures(
    evidence: BaseEvidence, weight: FloatArray, costs: Columns, others: Columns, seed: int
) -> tuple[dict[str, Any], list[Interval]]:
    """Return what all reports say about costs, and the means of other columns.

    The costs of each row are those that were paid, those that the policy expected, and those of
    optimal decisions on uncalibrated outputs.
    """
    (paid, expected, uncalibrated), given = costs, evidence.batch.labeled_weight
    columns = [paid, expected - paid, uncalibrated - paid, *others]
    # Rows of a class that is more common in deployment count more, but are no more rows.
    importance = np.divide(weight, given, out=np.zeros(weight.size), where=given > 0)
    bootstrap = MeanInterval.of(LEVEL, seed, 1000, "Policy.fit")
    cost, gap, saved, *rest = bootstrap.of_columns(columns, given, importance)
    figures = {
        "evaluation": evidence.evaluation,
        "n_rows": int(np.count_nonzero(weight)),
        "cost": cost,
        "expected_cost": mean_of(expected, weight),
        "gap": gap,
        "uncalibrated_cost": mean_of(uncalibrated, weight),
        "saved": saved,
    }
    return figures, rest


def _savings(saved: Interval) -> str:
    """Return what a policy saves, or what it costs more.

    >>> _savings(Interval(-0.02, -0.0416, -0.0047))
    'the policy costs 0.0200 (0.0047 to 0.0416) more'
    """
    if saved.value < 0:
        return f"the policy costs {negated(saved)} more"
    return f"the policy saves {saved}"


def calibration_effect(metrics: Mapping[str, tuple[str, str]]) -> str:
    """Return a sentence on metrics before and after calibration.

    >>> calibration_effect({"log loss": ("0.5", "0.4"), "ECE (15 bins)": ("0.1", "0.05")})
    'Calibration: log loss from 0.5 to 0.4, ECE (15 bins) from 0.1 to 0.05.'
    >>> calibration_effect({"log loss": ("0.5", "0.5"), "ECE (15 bins)": ("0.1", "0.1")})
    'Calibration left log loss (0.5) and ECE (15 bins: 0.1) unchanged.'
    """
    if any(before != after for before, after in metrics.values()):
        parts = [f"{name} from {before} to {after}" for name, (before, after) in metrics.items()]
        return f"Calibration: {', '.join(parts)}."
    shown = [
        f"{name[:-1]}: {value})" if name.endswith(")") else f"{name} ({value})"
        for name, (value, _) in metrics.items()
    ]
    return f"Calibration left {' and '.join(shown)} unchanged."


def _as_threshold(current: Any) -> float:
    """Return what is done today as a threshold from 0 to 1, or raise."""
    if isinstance(current, int | float | np.number) and not isinstance(current, bool):
        return as_fraction(current, "current", "Policy.fit")
    rule = "must be 'argmax', a threshold from 0 to 1, or one action per row"
    raise BadValueError("current", "Policy.fit", rule, repr(current), "Use current='argmax'")


def cost_difference(saved: Interval, baseline: str) -> str:
    """Return whether something costs less or more than a baseline, if that is significant."""
    if saved == NOTHING:
        return f"the same as {baseline}"
    if saved.low > 0:
        return f"{saved} less than {baseline}"
    if saved.high < 0:
        return f"{negated(saved)} more than {baseline}"
    return f"no significant difference from {baseline}, savings {saved:+}"


def _confusion(
    decisions: Decisions, labels: Labels, weight: FloatArray
) -> dict[str, dict[str, float]]:
    """Return the fraction of the weight by action and true class."""
    classes, n_actions = decisions.classes, len(decisions.actions)
    if labels.probabilities is None:
        cells = decisions.action * len(classes) + np.maximum(labels.codes, 0)
        table = np.bincount(cells, weight, n_actions * len(classes)).reshape(n_actions, -1)
    else:
        table = np.zeros((n_actions, len(classes)), np.float64)
        np.add.at(table, decisions.action, labels.probabilities * weight[:, np.newaxis])
    names = [str(name) for name in classes]
    rows = zip(decisions.actions, (table / weight.sum()).tolist(), strict=True)
    return {action: dict(zip(names, row, strict=True)) for action, row in rows}


def _risk_of(evidence: Evidence) -> Interval | None:
    """Return the fraction of wrong decisions among rows that are not rejected."""
    batch, is_open = evidence.batch, ~evidence.decisions.is_rejected
    if not (evidence.weight[is_open] > 0).any():
        return None
    wrong = decision_errors(batch.class_labels, evidence.decisions.action, evidence.row_costs)
    return proportion(wrong[is_open], evidence.weight[is_open], batch.labeled_weight[is_open])


def proportion(values: FloatArray | BoolArray, weight: FloatArray, n_given: FloatArray) -> Interval:
    """Return a proportion with its exact interval (Clopper and Pearson, 1934).

    Where weights differ from the number of rows that were given, they reduce its effective number.
    A bootstrap without any error would claim that there are none.
    """
    mean, used = mean_of(values, weight), weight > 0
    n = float(weight.sum() ** 2 / (weight[used] ** 2 / n_given[used]).sum())
    return clopper_pearson(mean * n, n, LEVEL)


def _calibration_errors(evidence: Evidence) -> tuple[str, float, float]:
    """Return the name of the ECE, and its values before and after calibration.

    The top label of rare events is the other class, whose ECE says nothing about P(positive).
    """
    batch, weight, column = evidence.batch, evidence.weight, evidence.pos_column
    before, after = evidence.uncalibrated, evidence.decisions.calibrated
    if isinstance(batch.outputs, Scores) or before.n_classes != 2:
        first, second = (_top_label_error(batch, one, weight) for one in (before, after))
        return TOP_LABEL_ECE, first, second
    audits = []
    for outputs in (before, after):
        p, is_positive = positive_rows(replace(batch, outputs=outputs), column)
        audits.append(BinaryAudit.of(RankingState.of_scores(is_positive, p, weight)))
    n_bins = [one.curve.bins.size for one in audits]
    is_same, used = min(n_bins) == max(n_bins), quantity(max(n_bins), "quantile bin")
    bins = used if is_same else f"at most {used}"
    name = f"ECE of P({names_of(before)[column]}) ({bins})"
    return name, audits[0].expected_calibration_error, audits[1].expected_calibration_error


def _top_label_error(batch: Batch, outputs: Logits | Probabilities, weight: FloatArray) -> float:
    """Return the ECE: of the top label, and of scores of answers that of P(correct)."""
    if isinstance(batch.outputs, Scores):
        p = posteriors(outputs)[:, 1]
        answers: Any = answers_of(batch, p).outputs
        return ece(answers, sample_weight=weight)
    return ece(batch.class_labels, outputs, sample_weight=weight)


def _log_loss(evidence: Evidence, outputs: Logits | Probabilities, stacklevel: int) -> float:
    """Return the log loss of the rows, raw or calibrated."""
    labels = evidence.batch.class_labels
    return proper_score("log_loss", labels, outputs, evidence.weight, stacklevel)


def _finite(value: float) -> float | None:
    """Return a finite number, or None."""
    return float(value) if isfinite(value) else None


def _number(value: float | None) -> str:
    """Return a figure as text."""
    return "infinite" if value is None else f"{value:.4f}"
