"""Thresholds of P(positive) between actions, and what they cost on the rows that a page holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, sample_rows
from dubito.decide import CostMatrix
from dubito.decide.action_intervals import action_intervals
from dubito.measure.binary import Confusion, rank_positives
from dubito.outputs import Probabilities
from dubito.report.recalibration import as_class_problem
from dubito.report.sample import class_names, in_single, packed

MAX_ROWS = 20_000


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
        batch = in_single(as_class_problem(sample_rows(ArrayShards(after), MAX_ROWS, seed)))
        outputs = batch.outputs
        assert isinstance(outputs, Probabilities)
        table = CostMatrix.zero_one(outputs.classes or 2) if costs is None else costs
        ranked, names = rank_positives(batch, column), class_names(batch)
        return cls(
            ranked.doubt,
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
        total = self.weight.sum()
        table = np.zeros((self.costs.n_actions, 2))
        parts = (self.weight - self.positive, self.positive)
        for side, part in enumerate(parts):
            table[list(self.actions), side] = np.bincount(taken, part, len(self.actions)) / total
        costs = self.costs.array[:, [1 - self.column, self.column]]
        found = [_confusion(table[list(self.actions)], k, t) for k, t in enumerate(thresholds)]
        return ThresholdOutcome(table, float((table * costs).sum()), tuple(found))

    def costs_over(self, thresholds: Sequence[float], moved: int, values: Any) -> FloatArray:
        """Return the cost per row as one of the thresholds takes each of some values."""
        kept = list(thresholds)
        return np.array([self.at([*kept[:moved], v, *kept[moved + 1 :]]).cost for v in values])

    def to_dict(self) -> dict[str, Any]:
        """Return the data of the page's script."""
        return {
            "p": packed(self.p.astype(np.float32)),
            "positive": packed(self.positive),
            "weight": packed(self.weight),
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
