"""From calibrated probabilities to decisions: costs, the risk bound and the OOD gate."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache, reduce
from itertools import chain
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import ArrayResult, BoolArray, FloatArray, IntArray, contiguous
from dubito.calibrate.calibrator import FLOOR, BaseCalibrator
from dubito.calibrate.confidence import ConfidenceCalibrator
from dubito.data.labels import Labels
from dubito.data.sink import EncodedLabels
from dubito.decide.actions import LeastCosts, least_costs
from dubito.decide.costs import CostMatrix
from dubito.decide.priors import posteriors
from dubito.decide.realized import SAME, is_wrong_of
from dubito.decide.reject import uncertainty_limit
from dubito.decide.row_costs import RowCosts, without_reject
from dubito.errors import BadValueError
from dubito.formatting import HTMLTable, by_action, html_rows, html_view, percent, quantity
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.scaling import softmax_rows
from dubito.outputs import BaseOutputs, ClassName, Logits, Probabilities, unchecked

REASONS = ("lowest_expected_cost", "reject_costs_less", "risk_bound", "out_of_distribution")
LOWEST_COST, REJECT_COSTS_LESS, RISK_BOUND, OUT_OF_DISTRIBUTION = range(4)
REASON_TEXTS = (  # in the order of REASONS
    "lowest expected cost",
    "lower cost",
    "risk bound",
    "out-of-distribution input",
)
MAX_LOG_ODDS, N_LOG_ODDS = (
    16.0,
    8001,
)  # where uncalibrated probabilities of thresholds are looked for
MAX_ACTIONS = 20  # in a notebook
BLOCK_ENTRIES = 1 << 19  # 2 MB of float32: what memory is bounded by while deciding


class BaseActions(ArrayResult):
    """The action of each row, shown as a table."""

    __slots__ = ()

    action: IntArray

    def __len__(self) -> int:
        return len(self.action)

    @abstractmethod
    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the decisions as the columns of a table, with names instead of indices."""

    def _repr_html_(self) -> str:
        return html_view(f"{self}", html_rows(self.columns(), len(self)))


class BaseDecisions(BaseActions):
    """What is decided for each row: arrays of one entry per row, and names."""

    __slots__ = ()

    review_value: FloatArray

    @property
    @abstractmethod
    def _is_for_review(self) -> BoolArray:
        """Which rows someone has to look at."""

    @property
    def review_order(self) -> IntArray:
        """Indices of the rows to review, those with the highest review value first."""
        rows = np.flatnonzero(self._is_for_review)
        return np.asarray(rows[np.argsort(-self.review_value[rows], kind="stable")])

    @property
    @abstractmethod
    def _columns(self) -> dict[str, Any]:
        """The columns of a table, those of names as codes and the names that they stand for."""

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the decisions as the columns of a table, with names instead of indices.

        Returns
        -------
        dict of str to array
            Of classes `action`, `class`, `probability`, `expected_cost`, `reason` and
            `review_value`; of several labels `action` of the row, `decision_*` and `probability_*`
            per label, `expected_cost` and `review_value`; of a regression `action`, `value`, `low`,
            `high`, `expected_cost`, `reason` and `review_value`.
        """
        return {
            name: np.array(one[1])[one[0]] if isinstance(one, tuple) else one
            for name, one in self._columns.items()
        }

    def encoded_columns(self) -> dict[str, Any]:
        """Return the decisions as the columns of a file, whose names are encoded.

        Returns
        -------
        dict of str to array or EncodedLabels
            The columns that `columns` returns.
        """
        return {
            name: EncodedLabels(one[0], tuple(map(str, one[1]))) if isinstance(one, tuple) else one
            for name, one in self._columns.items()
        }

    @classmethod
    def by_block(cls, decide: Callable[[slice], Self], n_rows: int, n_columns: int) -> Self:
        """Return the decisions on all rows of a matrix, which are made block by block.

        Parameters
        ----------
        decide : callable
            Returns the decisions on a slice of the rows.
        n_rows, n_columns : int
            The shape of the matrix; without rows, an empty slice is decided.

        Returns
        -------
        BaseDecisions
            The rows of all blocks, in order, of the same class.
        """
        blocks = row_blocks(n_rows, n_columns, BLOCK_ENTRIES) or [slice(0, 0)]
        return cls.joined(map_in_order(decide, blocks), n_rows)

    def take(self, rows: IntArray) -> Self:
        """Return the decisions on some rows.

        Parameters
        ----------
        rows : array of int
            Row indices.

        Returns
        -------
        BaseDecisions
            Their decisions, of the same class.
        """
        values = {name: getattr(self, name) for name in self._names()}
        return type(self)(**{name: self._of_rows(one, rows) for name, one in values.items()})

    @classmethod
    def joined(cls, parts: Iterable[Self], n_rows: int) -> Self:
        """Return the decisions of several blocks of rows as one.

        Parameters
        ----------
        parts : iterable of BaseDecisions
            Decisions of one policy.
        n_rows : int
            The number of rows of all parts.

        Returns
        -------
        BaseDecisions
            The rows of all parts, in order, of the same class.
        """
        stream = iter(parts)
        first = next(stream)
        if len(first) == n_rows:
            return first
        others: dict[str, list[Any]] = {name: [] for name in cls._names()}
        columns = {name: getattr(first, name) for name in others}
        whole = {
            name: np.empty((n_rows, *one.shape[1:]), one.dtype)
            for name, one in columns.items()
            if isinstance(one, np.ndarray)
        }
        low = 0
        for part in chain([first], stream):
            for name, found in others.items():
                if name in whole:
                    whole[name][low : low + len(part)] = getattr(part, name)
                else:
                    found.append(getattr(part, name))
            low += len(part)
        return cls(**{k: whole[k] if k in whole else cls._joined(k, v) for k, v in others.items()})

    @classmethod
    def _names(cls) -> list[str]:
        """Return the names of the fields."""
        return [one.name for one in fields(cls)]  # type: ignore[arg-type]

    @staticmethod
    def _of_rows(value: Any, rows: IntArray) -> Any:
        """Return a field of some rows; names are the same for all rows."""
        if isinstance(value, np.ndarray):
            return value[rows]
        return value.take(rows) if isinstance(value, BaseOutputs) else value

    @classmethod
    def _joined(cls, name: str, values: list[Any]) -> Any:
        """Return a field of all parts that is no array; names are the same for all."""
        return values[0]


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Decisions(BaseDecisions):
    """The action of each row, the reason for it, and the calibrated probabilities behind it.

    Returned by `Policy.decide`. All arrays have one entry per row.

    Attributes
    ----------
    action : array of int
        Index into `actions`.
    predicted_class : array of int
        The most probable class, an index into `classes`.
    probability : array of float
        The calibrated probability of that class.
    expected_cost : array of float
        The expected cost of the action.
    reason : array of int
        Index into `REASONS`: "lowest_expected_cost", "reject_costs_less", "risk_bound" or
        "out_of_distribution".
    review_value : array of float
        The expected value of perfect information: the expected cost that knowing the true class
        saves over the best action that is not a rejection. If not all rows and classes have the
        same cost of rejecting, its expected value is subtracted. If actions ask someone who may
        err, it is what that saves, net of its price. For an out-of-distribution row it
        is computed from the class frequencies alone; it is 0 for rows that are not rejected.
    actions, classes : tuple
        The names of actions and classes.
    reject : int or None
        Index of the action that rejects.
    deferrals : tuple of int
        The indices of actions that defer to a reviewer or another model: they reject as well.
    calibrated_blocks : tuple of Logits or Probabilities
        The calibrated outputs, block by block; `calibrated` joins them.
    """

    action: IntArray
    predicted_class: IntArray
    probability: FloatArray
    expected_cost: FloatArray
    reason: IntArray
    review_value: FloatArray
    actions: tuple[str, ...]
    classes: tuple[ClassName, ...]
    reject: int | None
    calibrated_blocks: tuple[Logits | Probabilities, ...] = field(repr=False)
    deferrals: tuple[int, ...] = ()

    @property
    def probabilities(self) -> FloatArray:
        """The calibrated probabilities, rows x classes, as `Policy.predict_proba` returns them."""
        first = self.calibrated_blocks[0].array
        result = np.empty((len(self), first.shape[1]), first.dtype)
        low = 0
        for block in self.calibrated_blocks:
            part = result[low : low + block.n_rows]
            if isinstance(block, Logits):
                softmax_rows(contiguous(block.array), FLOOR, part)
            else:
                part[:] = block.array
            low += block.n_rows
        return result

    @property
    def calibrated(self) -> Logits | Probabilities:
        """The calibrated outputs that were decided on, under the prior of deployment."""
        first, *others = self.calibrated_blocks
        if not others:
            return first
        array = np.concatenate([block.array for block in self.calibrated_blocks])
        return unchecked(type(first), {"array": array, "classes": first.classes})

    @property
    def is_rejected(self) -> BoolArray:
        """Which rows are rejected."""
        rejecting = (-1 if self.reject is None else self.reject, *self.deferrals)
        return _is_one_of(self.action, rejecting)

    @property
    def _is_for_review(self) -> BoolArray:
        return self.is_rejected

    @property
    def _columns(self) -> dict[str, Any]:
        return {
            "action": (self.action, self.actions),
            "class": (self.predicted_class, self.classes),
            "probability": self.probability,
            "expected_cost": self.expected_cost,
            "reason": (self.reason, REASONS),
            "review_value": self.review_value,
        }

    def __str__(self) -> str:
        fractions = np.bincount(self.action, minlength=len(self.actions)) / max(len(self), 1)
        pairs = zip(self.actions, fractions, strict=True)
        taken = by_action({name: percent(fraction) for name, fraction in pairs})
        return f"{len(self):,} rows: {taken}.{self._reason_text()}"

    def _repr_html_(self) -> str:
        counts = np.bincount(self.action, minlength=len(self.actions))
        n_rows, pairs = max(len(self), 1), zip(self.actions, counts, strict=True)
        taken = [(name, f"{n:,}", percent(n / n_rows)) for name, n in pairs if n]
        n_rejected = int(self.is_rejected.sum())
        fraction = percent(n_rejected / n_rows)
        verdict = f"{quantity(len(self))}, {n_rejected:,} rejected ({fraction})."
        table = HTMLTable(("action", "rows", ""), taken[:MAX_ACTIONS])
        more = f"and {len(taken) - MAX_ACTIONS:,} more actions" if len(taken) > MAX_ACTIONS else ""
        first = html_rows(self.columns(), len(self))
        return html_view(f"{verdict}{self._reason_text()}", table, more, first)

    def _reason_text(self) -> str:
        """Return how many rows are rejected for which reason, nothing if none are."""
        whys = reason_counts(self.reason, REASON_TEXTS)
        return f" Reasons for rejection: {whys}." if whys else ""

    def take(self, rows: IntArray) -> Decisions:
        """Return the decisions on some rows.

        Parameters
        ----------
        rows : array of int
            Row indices.

        Returns
        -------
        Decisions
            Their decisions.
        """
        blocks = (self.calibrated.take(rows),)
        return replace(BaseDecisions.take(self, rows), calibrated_blocks=blocks)

    @classmethod
    def _joined(cls, name: str, values: list[Any]) -> Any:
        return tuple(chain.from_iterable(values)) if name == "calibrated_blocks" else values[0]


@final
@dataclass(frozen=True, slots=True, eq=False)
class DecisionRule:
    """Costs, class frequencies, and the threshold of a risk bound.

    A row is rejected where the probability that its action is right is at most `threshold`; if
    `bounds_cost`, where its expected cost is, on a scale from the highest cost to the lowest.
    """

    costs: CostMatrix
    frequencies: FloatArray
    threshold: float | None = None
    bounds_cost: bool = False

    def decide(
        self, outputs: Logits | Probabilities, is_ood: BoolArray | None, row_costs: Any = None
    ) -> Decisions:
        """Decide rows by their calibrated outputs."""
        costs = self.costs
        by_row = RowCosts.of(row_costs, costs, outputs.n_rows, "Policy.decide").answered(outputs)
        if self.bounds_cost and not by_row.is_constant:
            rule, fix = "must be None where the mean cost is bounded", "Use RiskBound(max_risk)"
            raise BadValueError("row_costs", "Policy.decide", rule, "costs of rows", fix)
        found = least_costs(outputs, costs, by_row)
        action, expected = found.action, found.cost
        is_rejected = _is_one_of(action, costs.rejecting)
        reason = np.where(is_rejected, np.int64(REJECT_COSTS_LESS), np.int64(LOWEST_COST))
        if self.threshold is not None:
            is_open = np.flatnonzero(reason == LOWEST_COST)
            p, some = posteriors(outputs, is_open), by_row.take(is_open)
            loss = self.expected_loss(p, action[is_open], some)
            reason[is_open[loss >= uncertainty_limit(self.threshold)]] = RISK_BOUND
        if is_ood is not None:
            reason[is_ood] = OUT_OF_DISTRIBUTION
        is_checked = self.threshold is not None or is_ood is not None
        rejected = np.flatnonzero(reason >= RISK_BOUND) if is_checked else np.empty(0, np.int64)
        if rejected.size:
            assert costs.reject is not None
            action[rejected] = costs.reject
            is_rejected[rejected] = True
            p, some = posteriors(outputs, rejected), by_row.take(rejected)
            expected[rejected] = some.expected(p, action[rejected])
        return Decisions(
            action=action,
            predicted_class=found.predicted_class,
            probability=found.probability,
            expected_cost=expected,
            reason=reason,
            review_value=self._review_value(outputs, found, is_rejected, reason, by_row),
            actions=costs.actions,
            classes=costs.classes or tuple(range(costs.n_classes)),
            reject=costs.reject,
            calibrated_blocks=(outputs,),
            deferrals=costs.rejecting[1:],
        )

    def expected_loss(self, p: FloatArray, action: IntArray, row_costs: RowCosts) -> FloatArray:
        """Return the loss from 0 to 1 that the risk bound limits, as expected for each action."""
        if not self.bounds_cost:
            return _error_probability(p, action, row_costs)
        return scaled_costs(row_costs.expected(p, action), self.costs)

    def fallback(self, decisions: Decisions, row_costs: Any) -> tuple[IntArray, FloatArray]:
        """Return the best action of each row that does not reject, and its expected cost."""
        action, cost = decisions.action.copy(), decisions.expected_cost.copy()
        rows = np.flatnonzero(decisions.is_rejected)
        if rows.size:
            assert self.costs.reject is not None
            by_row = RowCosts.of(row_costs, self.costs, len(decisions), "Policy.decide")
            others = by_row.take(rows).without_reject()
            found = least_costs(decisions.calibrated.take(rows), others.costs, others)
            action[rows] = np.array(self.costs.deciding)[found.action]
            cost[rows] = found.cost
        return action, cost

    def _review_value(
        self,
        outputs: Logits | Probabilities,
        found: LeastCosts,
        is_rejected: BoolArray,
        reason: IntArray,
        row_costs: RowCosts,
    ) -> FloatArray:
        """Return what knowing the true class saves over the best action that does not reject.

        The cost of rejecting is subtracted unless it is always the same. Where actions ask someone
        who may err, it is what asking saves, net of the price.
        """
        if self.costs.reviews:
            return self._saved_by_deferring(outputs, found, is_rejected, reason, row_costs)
        reject = self.costs.reject
        is_net = reject is not None and row_costs.constant_cost(reject) is None
        if row_costs.is_constant and _is_reject_never_cheapest(self.costs):
            result = np.where(is_rejected, found.excess, 0.0)
        else:
            rows = np.flatnonzero(is_rejected)
            result = np.zeros(is_rejected.size)
            result[rows] = _savings(outputs.take(rows), row_costs.take(rows))
        if is_net:
            result[is_rejected] -= found.cost[is_rejected]
        ood = np.flatnonzero(reason == OUT_OF_DISTRIBUTION)
        if ood.size:
            unknown, some = self._of_prior(outputs, ood.size), row_costs.take(ood)
            result[ood] = _savings(unknown, some)
            if is_net:
                result[ood] -= some.expected(unknown.array, found.action[ood])
        return result

    def _of_prior(self, outputs: Logits | Probabilities, n_rows: int) -> Probabilities:
        """Return the class frequencies as the probabilities of rows of which nothing is known."""
        # In the precision of the outputs, so that no other kernels are compiled for it.
        row = self.frequencies.astype(outputs.array.dtype)
        prior = np.broadcast_to(row, (n_rows, row.size))
        return unchecked(Probabilities, {"array": prior, "classes": outputs.classes})

    def _saved_by_deferring(
        self,
        outputs: Logits | Probabilities,
        found: LeastCosts,
        is_rejected: BoolArray,
        reason: IntArray,
        row_costs: RowCosts,
    ) -> FloatArray:
        """Return what the action of each rejected row saves over the best other decision."""
        result = np.zeros(found.action.size)
        is_ood = reason == OUT_OF_DISTRIBUTION
        for rows, is_known in ((is_rejected & ~is_ood, True), (is_ood, False)):
            at = np.flatnonzero(rows)
            some = row_costs.take(at)
            known = outputs.take(at) if is_known else self._of_prior(outputs, at.size)
            others, action = some.without_reject(), found.action[at]
            paid = some.expected(posteriors(known), action)
            result[at] = least_costs(known, others.costs, others).cost - paid
        return result


def reason_counts(reason: IntArray, texts: Sequence[str]) -> str:
    """Return for how many rows there is each reason, other than the lowest expected cost."""
    counts = np.bincount(reason, minlength=len(texts))
    pairs = zip(texts[1:], counts[1:].tolist(), strict=True)
    return ", ".join(f"{why} ({quantity(n)})" for why, n in pairs if n)


def _is_one_of(action: IntArray, actions: Sequence[int]) -> BoolArray:
    """Return where an action is one of a few; `np.isin` sorts."""
    if not actions:
        return np.zeros(action.size, dtype=bool)
    return reduce(np.logical_or, (action == one for one in actions))


def _savings(outputs: Logits | Probabilities, row_costs: RowCosts) -> FloatArray:
    """Return the expected cost of the best decision above that with perfect information."""
    others = row_costs.without_reject()
    costs = others.costs
    if row_costs.is_constant:
        return least_costs(outputs, _regrets(costs)).cost
    p = posteriors(outputs)
    known = [p[:, k] * row_costs.least_in_class(k) for k in range(costs.n_classes)]
    paid = least_costs(outputs, costs, others).cost
    return np.asarray(np.maximum(paid - np.sum(known, axis=0), 0.0))


@lru_cache(maxsize=16)  # a service needs it for each request
def _is_reject_never_cheapest(costs: CostMatrix) -> bool:
    """Whether in each class some other action costs as little as rejecting."""
    if costs.columns or costs.reject is None or costs.reviews or len(costs.deciding) == 1:
        return False
    return bool((costs.array[costs.reject] >= without_reject(costs).array.min(axis=0)).all())


@lru_cache(maxsize=16)
def _regrets(costs: CostMatrix) -> CostMatrix:
    """Return what each action costs above the best one of each class; of one, if it is right."""
    regrets = costs.array - costs.array.min(axis=None if costs.n_actions == 1 else 0)
    return CostMatrix(regrets, costs.actions, costs.classes)


@final
@dataclass(frozen=True, slots=True, eq=False)
class CalibrationCurve:
    """The calibrated probability of the positive of two classes, over its log odds before."""

    odds: FloatArray
    p: FloatArray

    @classmethod
    def of(
        cls,
        calibrated: Callable[[Logits | Probabilities], Logits | Probabilities],
        classes: tuple[ClassName, ...] | None,
        column: int,
    ) -> CalibrationCurve:
        """Return the curve of what calibrates outputs; `column` is that of the positive class."""
        odds = np.linspace(-MAX_LOG_ODDS, MAX_LOG_ODDS, N_LOG_ODDS)
        table = np.zeros((odds.size, 2))
        table[:, column] = odds
        return cls(odds, posteriors(calibrated(Logits(table, classes)))[:, column])

    def uncalibrated_probability(self, wanted: float) -> float | None:
        """Return the probability that is calibrated to another, None unless there is only one."""
        p, odds = self.p, self.odds
        changes = np.flatnonzero((p[1:] >= wanted) != (p[:-1] >= wanted))
        if changes.size != 1 or p[0] >= wanted:
            return None
        k = int(changes[0])
        between = odds[k] + (wanted - p[k]) / (p[k + 1] - p[k]) * (odds[k + 1] - odds[k])
        return float(1 / (1 + np.exp(-between)))


def has_curve(calibrator: BaseCalibrator) -> bool:
    """Whether a calibrated probability of two classes depends on the uncalibrated one alone."""
    return not isinstance(calibrator, ConfidenceCalibrator) or calibrator.is_curve


def cost_range(costs: CostMatrix) -> tuple[float, float]:
    """Return the lowest and the highest cost of all actions that do not reject."""
    array = without_reject(costs).array
    return float(array.min()), float(array.max())


def scaled_costs(values: FloatArray, costs: CostMatrix) -> FloatArray:
    """Return costs on a scale from 0, the lowest of a decision, to 1, the highest."""
    low, high = cost_range(costs)
    return np.asarray(np.clip((values - low) / ((high - low) or 1.0), 0, 1))


def decision_errors(labels: Labels, action: IntArray, row_costs: RowCosts) -> FloatArray:
    """Return 1 where another action would have cost less and 0 elsewhere.

    With label probabilities it is the probability of the classes for which that is so.
    """
    if labels.probabilities is None:
        return is_wrong_of(action, labels, row_costs).astype(np.float64)
    return _error_probability(labels.probabilities, action, row_costs)


def _error_probability(p: FloatArray, action: IntArray, row_costs: RowCosts) -> FloatArray:
    """Return the probability that another action turns out to cost less than the one taken.

    Where each class has its own cheapest action it is the probability of a misclassification.
    """
    n_classes = row_costs.costs.n_classes
    if row_costs.is_constant:
        cheapest = np.concatenate([row_costs.least_in_class(k) for k in range(n_classes)])
        is_wrong = row_costs.base > cheapest + SAME * np.abs(cheapest)
        return np.asarray((p * is_wrong[action]).sum(axis=1))
    result = np.zeros(action.size)
    for k in range(n_classes):
        paid = row_costs.in_class(k)[action, np.arange(action.size)]
        cheapest = row_costs.least_in_class(k)
        result += p[:, k] * (paid > cheapest + SAME * np.abs(cheapest))
    return result
