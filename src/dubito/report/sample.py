"""The rows that a page holds, and the thresholds of P(positive) between actions on them."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.calibrate.calibrator import log_probabilities
from dubito.data.batch import Batch
from dubito.data.labels import Labels, names_of
from dubito.data.shards import ArrayShards, sample_rows
from dubito.decide import CostMatrix, optimal_actions, reject_by_threshold
from dubito.decide.actions import MARGIN, action_intervals
from dubito.decide.policy.decide import decision_errors
from dubito.decide.row_costs import RowCosts
from dubito.errors import BadTypeError
from dubito.measure.binary import Confusion, rank_positives
from dubito.outputs import BaseClassOutputs, Logits, Probabilities, TopLabel
from dubito.report.recalibration import as_class_problem

MAX_ROWS = 5_000
MAX_CLASSES = 12  # with more, only the costs of wrong answers and reviews can be edited
EXAMPLE_REVIEW = 0.1  # cost of a review relative to the largest cost, if none is given
N_STEPS = 1_000  # thresholds between 0 and 1


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """Coverage, risk of the accepted rows, and cost of a decision rule."""

    coverage: float
    risk: float
    cost: float  # per 1,000 rows

    @property
    def reviewed(self) -> float:
        """Rows sent to review, of 1,000."""
        return 1000 * (1 - self.coverage)


@final
@dataclass(frozen=True, eq=False)
class Sample:
    """Labeled rows, in single precision as on the page, and costs with a reject action.

    `batch` has the classes that the costs are about, `answers` the confidence that thresholds
    apply to. `decided` are the actions of a policy, if there is one.
    """

    batch: Batch
    answers: Batch
    costs: CostMatrix
    has_given_costs: bool
    is_given_review: bool
    decided: IntArray | None = None

    @cached_property
    def weight(self) -> FloatArray:
        """The rows' weights."""
        return self.batch.labeled_weight

    @property
    def row_costs(self) -> RowCosts:
        """The costs, which are the same for all rows."""
        return RowCosts.of(None, self.costs, len(self.batch), "make_report")

    @cached_property
    def paid(self) -> FloatArray:
        """The cost of each action, rows x actions."""
        return self.row_costs.of_labels(self.batch.class_labels)

    @cached_property
    def acting(self) -> IntArray:
        """The action of lowest expected cost of each row, reject excluded."""
        kept = [k for k in range(self.costs.n_actions) if k != self.costs.reject]
        table = CostMatrix(self.costs.array[kept], [f"{k}" for k in kept])
        return np.asarray(kept)[optimal_actions(self.batch.outputs, table)]

    def outcome(self, is_rejected: BoolArray) -> Outcome:
        """Return the outcome of rejecting some rows and acting on the others."""
        assert self.costs.reject is not None
        return self.outcome_of(np.where(is_rejected, self.costs.reject, self.acting))

    def outcome_of(self, action: IntArray) -> Outcome:
        """Return the outcome of one action per row."""
        kept, total = self.weight * (action != self.costs.reject), self.weight.sum()
        paid = self.weight @ self.paid[np.arange(action.size), action]
        risk = float(kept @ self.wrong(action) / kept.sum()) if kept.any() else 0.0
        return Outcome(float(kept.sum() / total), risk, float(1000 * paid / total))

    def wrong(self, action: IntArray) -> FloatArray:
        """Return whether another action would have cost less, as a fraction for soft labels.

        For top labels it is whether the answer is wrong.
        """
        if isinstance(self.answers.outputs, TopLabel):
            return 1 - self.answers.rows.correct
        return decision_errors(self.batch.class_labels, action, self.row_costs)

    def at(self, threshold: float) -> Outcome:
        """Return the outcome of rejecting rows with confidence at most `threshold`."""
        return self.outcome(reject_by_threshold(self.answers.outputs, threshold))

    @cached_property
    def steps(self) -> tuple[Outcome, ...]:
        """The outcomes of thresholds from 0 to 1, in steps of 0.001."""
        order = np.argsort(self.answers.rows.least_confidence, kind="stable")
        uncertainty, weight = self.answers.rows.least_confidence[order], self.weight[order]
        rows, reject = np.arange(order.size), self.paid[order, self.costs.reject]
        acted = self.paid[order][rows, self.acting[order]]
        wrong = weight * self.wrong(self.acting)[order]
        limits = 1.0 - np.arange(N_STEPS + 1) / N_STEPS - MARGIN
        n_kept = np.searchsorted(uncertainty, limits, side="left")
        kept, errors, saved = (
            np.append(0.0, np.cumsum(each))[n_kept]
            for each in (weight, wrong, weight * (acted - reject))
        )
        total, all_reviewed = weight.sum(), weight @ reject
        risk = np.divide(errors, kept, out=np.zeros(kept.size), where=kept > 0)
        cost = 1000 * (all_reviewed + saved) / total
        columns = (kept / total, risk, cost)
        return tuple(Outcome(*map(float, step)) for step in zip(*columns, strict=True))

    @cached_property
    def cheapest_threshold(self) -> float:
        """The lowest threshold of lowest cost, in hindsight on these rows."""
        costs = np.array([step.cost for step in self.steps])
        return int(np.argmax(costs <= costs.min() + 1e-9)) / N_STEPS

    @cached_property
    def optimal(self) -> Outcome:
        """The outcome of the action of lowest expected cost per row."""
        action = optimal_actions(self.batch.outputs, self.costs)
        return self.outcome(action == self.costs.reject)

    def to_dict(self) -> dict[str, Any]:
        """Return the data of the page's script."""
        outputs, labels = self.batch.outputs, self.batch.class_labels
        assert isinstance(outputs, Probabilities)
        soft = labels.probabilities
        return {
            "probabilities": _packed(outputs.array),
            "uncertainty": _packed(self.answers.rows.least_confidence),
            "label": _packed(labels.codes) if soft is None else None,
            "truth": None if soft is None else _packed(soft),
            "weight": _packed(self.weight),
            "n": len(self.batch),
            "costs": self.costs.array.tolist(),
            "reject": self.costs.reject,
            "decided": None if self.decided is None else _packed(self.decided),
        }


def class_names(batch: Batch) -> tuple[str, ...]:
    """Return the names of the classes, none for top labels."""
    outputs = batch.outputs
    if not isinstance(outputs, BaseClassOutputs):
        return ()
    return tuple(str(name) for name in names_of(outputs))


def draw_sample(
    after: Batch, costs: CostMatrix | None, seed: int, decided: IntArray | None = None
) -> Sample:
    """Draw at most 5,000 rows, and add costs and the actions of a policy.

    Costs that vary from row to row, or that ask someone who may err, cannot be edited in a table:
    example costs replace them.
    """
    batch = sample_rows(ArrayShards(after), MAX_ROWS, seed)
    outputs, labels = batch.outputs, batch.labels
    if costs is not None:
        if not isinstance(outputs, BaseClassOutputs):
            rule, fix = "must be None for top labels", "Pass outputs over all classes"
            raise BadTypeError("costs", "make_report", rule, "a CostMatrix", fix)
        costs = costs.for_classes(outputs.classes, outputs.n_classes)
        costs = None if costs.columns or costs.reviews else costs
    is_soft = isinstance(labels, Labels) and labels.probabilities is not None
    if is_soft or not isinstance(outputs, BaseClassOutputs) or outputs.n_classes > MAX_CLASSES:
        answers = TopLabel(batch.rows.confidence, batch.rows.correct)
        rows = replace(batch, outputs=answers, labels=None)
        table = CostMatrix([[1.0, 0.0]], ["accept the answer"], ("wrong", "correct"))
        table = table.with_reject(EXAMPLE_REVIEW, "review")
        return Sample(_in_single(as_class_problem(rows)), rows, table, False, False)
    table = CostMatrix.zero_one(outputs.classes or outputs.n_classes) if costs is None else costs
    has_review = table.reject is not None
    if not has_review:
        name = "review" if "review" not in table.actions else "second review"
        table = table.with_reject(EXAMPLE_REVIEW * max(float(table.array.max()), 0.0), name)
    rows = _in_single(as_class_problem(batch))
    actions = None if costs is None else decided
    return Sample(rows, rows, table, costs is not None, has_review, actions)


def _in_single(batch: Batch) -> Batch:
    """Return a batch of probabilities in single precision."""
    outputs = batch.outputs
    assert isinstance(outputs, BaseClassOutputs)
    array = outputs.array
    if isinstance(outputs, Logits):  # too few rows to be calibrated
        array = np.exp(log_probabilities(outputs))
    return replace(batch, outputs=Probabilities(array.astype(np.float32), outputs.classes))


def _packed(array: Any) -> dict[str, str]:
    """Return an array in base64: integers below 256 as bytes, other numbers as floats."""
    values = np.asarray(array)
    is_small = bool(np.isin(values, np.arange(256)).all()) if values.dtype != np.float32 else False
    kind = "u1" if is_small else "f4" if values.dtype == np.float32 else "f8"
    return {"type": kind, "data": b64encode(values.astype(f"<{kind}").tobytes()).decode()}


MAX_THRESHOLD_ROWS = 20_000


@final
@dataclass(frozen=True, eq=False)
class ThresholdOutcome:
    """What happens to the rows on both sides of thresholds.

    `table` holds the fraction of all rows by action and by true class, negative before positive;
    `confusions` those at or above each threshold.
    """

    table: FloatArray
    cost: float  # per row
    confusions: tuple[Confusion, ...]


@final
@dataclass(frozen=True, eq=False)
class Thresholds:
    """Rows by increasing P(positive), in single precision as on the page, and costs.

    `positive` and `weight` are the weights of the positive rows, and of all rows, of each distinct
    probability. The positive class has the column `column` in the costs.
    """

    p: FloatArray
    positive: FloatArray
    weight: FloatArray
    n_rows: int
    costs: CostMatrix
    column: int
    classes: tuple[str, str]  # the negative and the positive one
    has_given_costs: bool

    @classmethod
    def of(cls, after: Batch, costs: CostMatrix | None, column: int, seed: int) -> Thresholds:
        """Draw at most 20,000 calibrated rows; without costs, every error costs 1."""
        sampled = sample_rows(ArrayShards(after), MAX_THRESHOLD_ROWS, seed)
        batch = _in_single(as_class_problem(sampled))
        outputs = batch.outputs
        assert isinstance(outputs, Probabilities)
        table = CostMatrix.zero_one(outputs.classes or 2) if costs is None else costs
        ranked, names = rank_positives(batch, column), class_names(batch)
        return cls(
            ranked.score,
            ranked.positive,
            ranked.weight,
            len(batch),
            table.for_classes(outputs.classes, 2),
            column,
            (names[1 - column], names[column]),
            costs is not None,
        )

    @cached_property
    def actions(self) -> tuple[int, ...]:
        """The actions that are optimal somewhere, by increasing P(positive)."""
        found = action_intervals(self.costs, self.column)
        return tuple(self.costs.actions.index(one.action) for one in found)

    @cached_property
    def optimal(self) -> tuple[float, ...]:
        """The thresholds of lowest expected cost, one between each two of `actions`."""
        return tuple(one.low for one in action_intervals(self.costs, self.column)[1:])

    def at(self, thresholds: Sequence[float]) -> ThresholdOutcome:
        """Return the outcome of taking the next of `actions` from each threshold on."""
        taken = np.searchsorted(thresholds, self.p, side="right")
        sides = (self.weight - self.positive, self.positive)
        counts = np.stack([np.bincount(taken, one, len(self.actions)) for one in sides], axis=1)
        table = np.zeros((self.costs.n_actions, 2))
        table[list(self.actions)] = used = counts / self.weight.sum()
        costs = self.costs.array[:, [1 - self.column, self.column]]
        found = [_confusion(used, k, t) for k, t in enumerate(thresholds)]
        return ThresholdOutcome(table, float((table * costs).sum()), tuple(found))

    def costs_over_first(self, thresholds: Sequence[float], values: Any) -> FloatArray:
        """Return the cost per row as the first of the thresholds takes each of some values."""
        return np.array([self.at([value, *thresholds[1:]]).cost for value in values])

    def to_dict(self) -> dict[str, Any]:
        """Return the data of the page's script."""
        return {
            "p": _packed(self.p.astype(np.float32)),
            "positive": _packed(self.positive),
            "weight": _packed(self.weight),
            "column": self.column,
            "costs": self.costs.array.tolist(),
            "reject": self.costs.reject,
            "names": self.costs.actions,
            "positive_class": self.classes[1],
        }


def _confusion(table: FloatArray, k: int, threshold: float) -> Confusion:
    """Return the outcomes of the actions after a threshold, as fractions of all rows."""
    below, above = table[: k + 1].sum(axis=0), table[k + 1 :].sum(axis=0)
    return Confusion(threshold, *map(float, (above[1], above[0], below[1], below[0])))
