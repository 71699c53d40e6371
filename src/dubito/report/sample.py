"""The rows that a page recomputes decisions on, and what the library makes of them."""

from __future__ import annotations

from base64 import b64encode
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, final

import numpy as np

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.calibrate.inputs import log_probabilities
from dubito.data.batch import Batch
from dubito.data.labels import Labels, names_of
from dubito.data.shards import ArrayShards, sample_rows
from dubito.decide import CostMatrix, optimal_actions, reject_by_threshold
from dubito.decide.actions import MARGIN
from dubito.decide.policy.decide import decision_errors
from dubito.decide.realized import costs_of_actions
from dubito.errors import BadTypeError
from dubito.outputs import BaseClassOutputs, Logits, Probabilities, TopLabel
from dubito.report.recalibration import as_question

MOST_ROWS = 5_000
MOST_CLASSES = 12  # with more, nobody edits a matrix: the question is whether the answer is right
EXAMPLE_REVIEW = 0.1  # of an error, where nobody said what a review costs
N_STEPS = 1_000  # of the threshold, from 0 to 1


@final
@dataclass(frozen=True, slots=True)
class Outcome:
    """What a way to decide does: how much it keeps, how much of that is wrong, and its cost."""

    coverage: float
    risk: float
    cost: float  # of 1,000 rows

    @property
    def reviewed(self) -> float:
        """How many of 1,000 rows go to a person."""
        return 1000 * (1 - self.coverage)


@final
@dataclass(frozen=True, eq=False)
class Sample:
    """Labeled rows, in single precision as the page holds them, and costs with a reject.

    `batch` is the question that costs are about, `answers` the same rows as thresholds see them.
    `decided` are the actions that a policy takes, where there is one.
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

    @cached_property
    def paid(self) -> FloatArray:
        """What each action would cost, rows x actions."""
        assert isinstance(self.batch.labels, Labels)
        return costs_of_actions(self.costs, self.batch.labels, np.empty(0))

    @cached_property
    def acting(self) -> IntArray:
        """The action of least expected cost of each row, if none is rejected."""
        kept = [k for k in range(self.costs.n_actions) if k != self.costs.reject]
        table = CostMatrix(self.costs.array[kept], [f"{k}" for k in kept])
        return np.asarray(kept)[optimal_actions(self.batch.outputs, table)]

    def outcome(self, is_rejected: BoolArray) -> Outcome:
        """Return what comes of handing some rows over and acting on the others."""
        assert self.costs.reject is not None
        return self.outcome_of(np.where(is_rejected, self.costs.reject, self.acting))

    def outcome_of(self, action: IntArray) -> Outcome:
        """Return what comes of an action a row."""
        weight = self.weight
        kept = weight * (action != self.costs.reject)
        paid = self.paid[np.arange(action.size), action]
        wrong = kept @ self.wrong(action)
        return Outcome(
            coverage=float(kept.sum() / weight.sum()),
            risk=float(wrong / kept.sum()) if kept.any() else 0.0,
            cost=float(1000 * (weight @ paid) / weight.sum()),
        )

    def wrong(self, action: IntArray) -> FloatArray:
        """Return how wrong each action is: whether another one would have cost less.

        Where the question is whether an answer is right, there is no other one to act by.
        """
        if isinstance(self.answers.outputs, TopLabel):
            return 1 - self.answers.rows.correct
        assert isinstance(self.batch.labels, Labels)
        return decision_errors(self.batch.labels, action, self.costs, np.empty(0))

    def at(self, threshold: float) -> Outcome:
        """Return what comes of rejecting rows whose largest posterior is at most a threshold."""
        return self.outcome(reject_by_threshold(self.answers.outputs, threshold))

    @cached_property
    def steps(self) -> tuple[Outcome, ...]:
        """What comes of each threshold from 0 to 1, in steps of a thousandth."""
        order = np.argsort(self.answers.rows.least_confidence, kind="stable")
        doubt, weight = self.answers.rows.least_confidence[order], self.weight[order]
        rows, reject = np.arange(order.size), self.paid[order, self.costs.reject]
        acted = self.paid[order][rows, self.acting[order]]
        wrong = weight * self.wrong(self.acting)[order]
        limits = 1.0 - np.arange(N_STEPS + 1) / N_STEPS - MARGIN
        n_kept = np.searchsorted(doubt, limits, side="left")
        kept, errors, spared = (
            np.append(0.0, np.cumsum(each))[n_kept]
            for each in (weight, wrong, weight * (acted - reject))
        )
        total, all_reviewed = weight.sum(), weight @ reject
        risk = np.divide(errors, kept, out=np.zeros(kept.size), where=kept > 0)
        cost = 1000 * (all_reviewed + spared) / total
        columns = (kept / total, risk, cost)
        return tuple(Outcome(*map(float, step)) for step in zip(*columns, strict=True))

    @cached_property
    def cheapest_threshold(self) -> float:
        """The lowest threshold of least cost, found in hindsight on these very rows."""
        costs = np.array([step.cost for step in self.steps])
        return int(np.argmax(costs <= costs.min() + 1e-9)) / N_STEPS

    @cached_property
    def least_expected(self) -> Outcome:
        """What comes of taking the action of least expected cost, row by row."""
        action = optimal_actions(self.batch.outputs, self.costs)
        return self.outcome(action == self.costs.reject)

    @property
    def classes(self) -> tuple[str, ...]:
        """The names of the columns."""
        assert isinstance(self.batch.outputs, BaseClassOutputs)
        return tuple(str(name) for name in names_of(self.batch.outputs))

    def to_dict(self) -> dict[str, Any]:
        """Return what the page's script needs."""
        outputs, labels = self.batch.outputs, self.batch.labels
        assert isinstance(outputs, Probabilities)
        assert isinstance(labels, Labels)
        soft = labels.probabilities
        return {
            "probabilities": _packed(outputs.array),
            "doubt": _packed(self.answers.rows.least_confidence),
            "label": _packed(labels.codes) if soft is None else None,
            "truth": None if soft is None else _packed(soft),
            "weight": _packed(self.weight),
            "n": len(self.batch),
            "costs": self.costs.array.tolist(),
            "reject": self.costs.reject,
            "decided": None if self.decided is None else _packed(self.decided),
        }


def drawn(
    after: Batch, costs: CostMatrix | None, seed: int, decided: IntArray | None = None
) -> Sample:
    """Draw at most 5,000 rows, and bring costs, and what a policy decided, together with them.

    Costs that grow with the row are no table that anyone could edit: examples stand for them.
    """
    batch = sample_rows(ArrayShards(after), MOST_ROWS, seed)
    outputs, labels = batch.outputs, batch.labels
    if costs is not None:
        if not isinstance(outputs, BaseClassOutputs):
            rule, fix = "None beside top labels", "outputs of all classes"
            raise BadTypeError("costs", "report", rule, "a CostMatrix", fix)
        costs = costs.for_classes(outputs.classes, outputs.n_classes)
        costs = costs if costs.rate is None else None
    is_soft = isinstance(labels, Labels) and labels.probabilities is not None
    is_narrow = isinstance(outputs, BaseClassOutputs) and outputs.n_classes <= MOST_CLASSES
    if is_soft or not is_narrow:
        answers = TopLabel(batch.rows.confidence, batch.rows.correct)
        asked = _in_single(as_question(replace(batch, outputs=answers, labels=None)))
        return Sample(
            asked, replace(batch, outputs=answers, labels=None), _answer_costs(), False, False
        )
    assert isinstance(outputs, BaseClassOutputs)
    names = outputs.classes or outputs.n_classes
    table = CostMatrix.zero_one(names) if costs is None else costs
    has_review = table.reject is not None
    if not has_review:
        name = "review" if "review" not in table.actions else "review by another person"
        table = table.with_reject(EXAMPLE_REVIEW * max(float(table.array.max()), 0.0), name)
    asked = _in_single(as_question(batch))
    taken = None if costs is None else decided
    return Sample(asked, asked, table, costs is not None, has_review, taken)


def _answer_costs() -> CostMatrix:
    """Return example costs of accepting an answer, and of having it reviewed."""
    table = CostMatrix([[1.0, 0.0]], ["accept the answer"], ("wrong", "right"))
    return table.with_reject(EXAMPLE_REVIEW, "review")


def _in_single(batch: Batch) -> Batch:
    """Return a batch of probabilities in single precision, as a page holds them."""
    outputs = batch.outputs
    assert isinstance(outputs, BaseClassOutputs)
    array = outputs.array
    if isinstance(outputs, Logits):  # too few rows to be calibrated
        array = np.exp(log_probabilities(outputs))
    return replace(batch, outputs=Probabilities(array.astype(np.float32), outputs.classes))


def _packed(array: Any) -> dict[str, str]:
    """Return numbers as a script reads them: whole ones below 256 as bytes, others as floats."""
    values = np.asarray(array)
    is_small = bool(np.isin(values, np.arange(256)).all()) if values.dtype != np.float32 else False
    kind = "u1" if is_small else "f4" if values.dtype == np.float32 else "f8"
    return {"type": kind, "data": b64encode(values.astype(f"<{kind}").tobytes()).decode()}
