"""From calibrated probabilities of several labels per row to decisions and reviews."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import ArrayResult, BoolArray, FloatArray, IntArray
from dubito.decide.multilabel.f_beta import FBeta
from dubito.decide.multilabel.label_costs import TIE, LabelCosts
from dubito.formatting import percent, quantity
from dubito.outputs import ClassName

ACTIONS = ("negative", "positive", "review")
NEGATIVE, POSITIVE, REVIEW = range(3)
ROW_ACTIONS = ("automatic", "review labels", "review row")
AUTOMATIC, REVIEW_LABELS, REVIEW_ROW = range(3)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MultiLabelDecisions(ArrayResult):
    """What is decided for each label of each row, and which are reviewed by a person.

    Returned by `MultiLabelPolicy.decide`.

    Attributes
    ----------
    action : array of int, rows x labels
        Index into `actions`: 0 "negative", 1 "positive", 2 "review". All labels of a row that is
        reviewed as a whole are 2.
    review_row : array of bool
        Which rows are reviewed as a whole.
    fallback : array of int, rows x labels
        What would be decided without any review, 0 or 1.
    probabilities : array of float, rows x labels
        The calibrated probabilities, as `MultiLabelPolicy.predict_proba` returns them.
    expected_cost : array of float
        The expected cost of each row, reviews included.
    review_value : array of float
        The expected cost that the reviews of a row save, less what they cost; 0 without any.
    label_names : tuple
        The names of the labels.
    """

    action: IntArray
    review_row: BoolArray
    fallback: IntArray
    probabilities: FloatArray
    expected_cost: FloatArray
    review_value: FloatArray
    label_names: tuple[ClassName, ...]

    def __len__(self) -> int:
        return len(self.action)

    @property
    def actions(self) -> tuple[str, ...]:
        """The names of the actions for a label."""
        return ACTIONS

    @property
    def row_action(self) -> IntArray:
        """What is done with each row: an index into `ROW_ACTIONS`."""
        is_any = (self.action == REVIEW).any(axis=1)
        found = np.where(self.review_row, REVIEW_ROW, np.where(is_any, REVIEW_LABELS, AUTOMATIC))
        return np.asarray(found)

    @property
    def review_order(self) -> IntArray:
        """Indices of the rows with a review, those with the highest review value first."""
        rows = np.flatnonzero(self.row_action != AUTOMATIC)
        return np.asarray(rows[np.argsort(-self.review_value[rows], kind="stable")])

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the decisions as the columns of a table, with names instead of indices."""
        names = np.array(ACTIONS)
        by_label = {f"decision_{k}": names[a] for k, a in self._by_label(self.action)}
        chances = {f"probability_{k}": p for k, p in self._by_label(self.probabilities)}
        return {
            "action": np.array(ROW_ACTIONS)[self.row_action],
            **by_label,
            **chances,
            "expected_cost": self.expected_cost,
            "review_value": self.review_value,
        }

    def _by_label(self, values: NDArray[Any]) -> list[tuple[ClassName, NDArray[Any]]]:
        """Return the column of each label."""
        return list(zip(self.label_names, np.ascontiguousarray(values.T), strict=True))

    def __str__(self) -> str:
        n_entries = max(self.action.size, 1)
        counts = np.bincount(self.action.ravel(), minlength=len(ACTIONS)) / n_entries
        pairs = zip(ACTIONS, counts, strict=True)
        taken = ", ".join(f"{name} {percent(part)}" for name, part in pairs)
        rows = np.bincount(self.row_action, minlength=len(ROW_ACTIONS))
        text = f"{quantity(len(self))} x {quantity(len(self.label_names), 'label')}: {taken}."
        if not rows[1:].any():
            return text
        return f"{text} Reviewed: {quantity(rows[2])} as a whole, labels of {rows[1]:,} others."

    @classmethod
    def joined(cls, parts: Sequence[MultiLabelDecisions]) -> MultiLabelDecisions:
        """Return the decisions of several blocks of rows as one."""
        first = parts[0]
        if len(parts) == 1:
            return first
        names = [one.name for one in fields(cls)][:-1]
        arrays = {name: np.concatenate([getattr(one, name) for one in parts]) for name in names}
        return cls(**arrays, label_names=first.label_names)


@final
@dataclass(frozen=True, slots=True, eq=False)
class LabelRule:
    """What turns calibrated probabilities into decisions: costs, or F-beta with its thresholds."""

    costs: LabelCosts  # one per label
    f_beta: FBeta | None
    thresholds: FloatArray | None
    names: tuple[ClassName, ...]

    def with_thresholds(self, probabilities: FloatArray, weight: FloatArray) -> LabelRule:
        """Return the rule with the thresholds of F-beta for some rows, if it has any."""
        if self.f_beta is None:
            return self
        thresholds = self.f_beta.thresholds(probabilities.astype(np.float64), weight)
        return replace(self, thresholds=thresholds)

    def decide(self, probabilities: FloatArray) -> MultiLabelDecisions:
        """Decide rows by their calibrated probabilities."""
        costs, p = self.costs.arrays, probabilities.astype(np.float64)
        if self.f_beta is None:
            is_positive = costs.is_positive(p)
        elif self.thresholds is None:
            is_positive = self.f_beta.best_sets(p)
        else:
            is_positive = p >= self.thresholds
        decided = costs.of_errors(p, is_positive)
        is_reviewed = costs.is_reviewed(decided)
        cost = np.where(is_reviewed, costs.review, decided)
        total, least = cost.sum(axis=1), decided.sum(axis=1)
        is_row = costs.review_row < total * (1 - TIE)
        fallback = is_positive.astype(np.int8)
        saved = np.where(is_reviewed, decided - costs.review, 0.0).sum(axis=1)
        value = np.where(is_row, least - costs.review_row, saved)
        return MultiLabelDecisions(
            action=np.where(is_row[:, np.newaxis] | is_reviewed, np.int8(REVIEW), fallback),
            review_row=is_row,
            fallback=fallback,
            probabilities=probabilities,
            expected_cost=np.where(is_row, costs.review_row, total),
            review_value=np.maximum(value, 0.0),
            label_names=self.names,
        )
