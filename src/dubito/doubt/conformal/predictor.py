"""The base of conformal predictors: conformity scores of calibration rows, and thresholds."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray, IntArray, as_fraction
from dubito.data.batch import Batch, as_column
from dubito.data.labels import is_absent
from dubito.data.shards import ArrayShards, as_shards
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoWarning,
    EmptyStateError,
    StateMismatchError,
)
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.measure.ranking import RankingState
from dubito.measure.state import GroupedState, warn_of_missing
from dubito.outputs import BaseOutputs
from dubito.serialization.fields import MOST, Entry, boolean, declare, dict_of, number, optional
from dubito.serialization.objects import Serializable

MAX_SCORES = 1_000_000  # distinct scores that are held exactly
ALL = "all"  # the name of the only group where rows have none


class BaseConformalPredictor(Serializable):
    """Fits a threshold of conformity scores, overall or per group, that covers `level` of them.

    A subclass checks outputs (`_as_outputs`), describes the rows (`_facts`) and scores the true
    labels (`_scores`). A threshold is None if there are too few rows for any.
    """

    level: float
    is_grouped_: bool
    thresholds_: dict[str, float | None]
    n_rows_: dict[str, float]

    fitted_fields = declare(
        is_grouped_=boolean,
        thresholds_=dict_of(optional(number(-MOST, MOST))),
        n_rows_=dict_of(number(0, MOST)),
    )

    unbounded: ClassVar[str]  # what is predicted without a threshold, for the warning

    def fit(self, outputs: Any, y: Any = None, groups: Any = None) -> Self:
        """Fit the threshold on rows that the model was not trained on.

        Parameters
        ----------
        outputs : model outputs, Batch or Shards
            Outputs for the calibration rows. A batch or shards hold labels, groups and weights
            themselves.
        y : array-like of shape (n_rows,), optional
            The true labels or targets. Rows where it is missing are ignored with a warning.
        groups : array-like of shape (n_rows,), optional
            With groups, each group has its own threshold and its own guarantee.

        Returns
        -------
        self
            The fitted predictor.
        """
        name = type(self).__name__
        self._check_params()
        level = float(self.level)
        shards = as_shards(outputs, y, groups=groups, caller=name, convert=self._as_outputs)
        count = self._scorer()._count
        counted = count(shards.batch) if isinstance(shards, ArrayShards) else shards.sum(count)
        states = {group: scores.ranked for group, scores in counted.scores.states.items()}
        n_rows = {group: float(state.weight.sum()) for group, state in states.items()}
        if not any(n_rows.values()):
            raise EmptyStateError(name)
        warn_of_missing(counted.n_missing, counted.n_rows, name, stacklevel=3)
        self._forget()
        for learned, value in counted.facts.items():
            setattr(self, learned, value)
        self.n_rows_ = n_rows
        self.thresholds_ = {group: _threshold(state, level) for group, state in states.items()}
        self._warn_without_threshold(level)
        return self

    def _check_params(self) -> None:
        as_fraction(self.level, "level", type(self).__name__, is_open=True)

    def _check_fitted(self, entry: Entry) -> None:
        groups = list(self.thresholds_)
        if sorted(groups) != sorted(self.n_rows_):
            raise entry.at("n_rows_").error("of the groups of thresholds_", "others")
        if not self.is_grouped_ and groups != [ALL]:
            raise entry.at("thresholds_").error(f"one, {ALL!r}, without groups", "others")

    def _scorer(self) -> Self:
        """Return what computes the scores of a fit: self, or a copy with its seed drawn."""
        return self

    @abstractmethod
    def _as_outputs(self, outputs: Any, caller: str) -> BaseOutputs:
        """Return outputs of a supported type, or raise."""

    @abstractmethod
    def _facts(self, batch: Batch) -> dict[str, Any]:
        """Return the learned attributes besides thresholds; raise if there are no labels.

        The outputs of the batch were checked by `_as_outputs`.
        """

    @abstractmethod
    def _scores(self, batch: Batch) -> FloatArray:
        """Return the score of each row's true label in a block, any number if it is missing."""

    def _count(self, batch: Batch) -> _CountedScores:
        """Return the scores of a batch, by group."""
        outputs = self._as_outputs(batch.outputs, type(self).__name__)
        batch = replace(batch, outputs=outputs)
        facts = {**self._facts(batch), "is_grouped_": batch.groups is not None}
        blocks = row_blocks(len(batch), outputs.n_entries) or [slice(0, 0)]
        scored = map_in_order(lambda rows: self._scores(batch.take(rows)), blocks)
        scores = np.concatenate(list(scored))
        names, positions = _group_names(batch.groups, len(batch))
        ends = np.cumsum(np.bincount(positions, minlength=len(names)))
        parts = np.split(np.argsort(positions, kind="stable"), ends[:-1])
        weight = batch.labeled_weight
        pairs = zip(names, parts, strict=True)
        states = {name: CalibrationScores.of(scores[rows], weight[rows]) for name, rows in pairs}
        return _CountedScores(facts, GroupedState(states), batch.n_missing, len(batch))

    def _row_thresholds(self, groups: Any, n_rows: int, method: str) -> FloatArray:
        """Return the threshold of each row, infinite if there is none."""
        caller = f"{type(self).__name__}.{method}"
        column = as_column(groups, n_rows, "groups", caller)
        if (column is not None) != self.is_grouped_:
            rule = f"must be {'given' if self.is_grouped_ else 'None'}, as during fit"
            got, fix = "None" if column is None else "groups", "Pass groups to both or to neither"
            raise BadTypeError("groups", caller, rule, got, fix)
        names, positions = _group_names(column, n_rows)
        for i, name in enumerate(names):
            if name not in self.thresholds_:
                some = ", ".join(list(self.thresholds_)[:5])
                more = ", ..." if len(self.thresholds_) > 5 else ""
                rule = f"must be groups of the fit ({some}{more})"
                row, fix = int(np.argmax(positions == i)), "Fit on rows of every group"
                raise BadValueError("groups", caller, rule, name, fix, row)
        by_group = [self.thresholds_[name] for name in names]
        thresholds = np.array([np.inf if one is None else one for one in by_group])
        return np.asarray(thresholds[positions])

    def _warn_without_threshold(self, level: float) -> None:
        needed = _rows_needed(level)
        without = [group for group, threshold in self.thresholds_.items() if threshold is None]
        few = [group for group in without if self.n_rows_[group] < needed]
        infinite = [group for group in without if group not in few]
        reasons = [
            (few, f"too few rows for level={level:g}", f"Use at least {needed:,} rows"),
            (infinite, "too many infinite scores", "Use method='absolute'"),
        ]
        for groups, why, fix in reasons:
            if groups:
                counts = [f"{self.n_rows_[group]:g}" for group in groups[:5]]
                if self.is_grouped_:
                    counts = [f"{g}: {n}" for g, n in zip(groups, counts, strict=False)]
                where = ", ".join(counts) + (", ..." if len(groups) > 5 else "")
                text = f"{type(self).__name__}: {why} ({where}), so {self.unbounded}. {fix}."
                warnings.warn(text, DubitoWarning, stacklevel=3)


@final
@dataclass(frozen=True, slots=True, eq=False)
class CalibrationScores:
    """Scores of some rows, held in parts that are merged when needed.

    Up to `max_size` distinct scores are held exactly. Beyond that, rows are cut by rank into
    `max_size / 2` cells of equal weight, and scores are rounded up to the largest of their cell:
    thresholds and p-values are never too low, and each such step moves a score past at most
    2 / `max_size` of the rows.

    >>> both = CalibrationScores.of(np.array([0.5, 0.2]), np.ones(2))
    >>> both = both + CalibrationScores.of(np.ones(1), np.array([3.0]))
    >>> both.ranked.weight.tolist()
    [1.0, 1.0, 3.0]
    """

    parts: tuple[RankingState, ...]
    max_size: int = MAX_SCORES

    @classmethod
    def of(
        cls, scores: FloatArray, weight: FloatArray, max_size: int = MAX_SCORES
    ) -> CalibrationScores:
        """Rank the scores of some rows."""
        return cls((rank_scores(scores, weight),), max_size)

    @property
    def size(self) -> int:
        """The number of scores held."""
        return sum(part.doubt.size for part in self.parts)

    def __add__(self, other: CalibrationScores) -> CalibrationScores:
        both = CalibrationScores(self.parts + other.parts, self.max_size)
        if both.size <= self.max_size:
            return both
        return CalibrationScores((_in_cells(both.ranked, self.max_size // 2),), self.max_size)

    @property
    def ranked(self) -> RankingState:
        """All scores, in increasing order."""
        if len(self.parts) == 1:
            return self.parts[0]
        scores = np.concatenate([part.doubt for part in self.parts])
        return rank_scores(scores, np.concatenate([part.weight for part in self.parts]))


def rank_scores(scores: FloatArray, weight: FloatArray) -> RankingState:
    """Return the distinct scores in increasing order with their weights; none is positive."""
    return RankingState.of_scores(np.zeros(len(scores)), scores, weight)


def _in_cells(state: RankingState, n_cells: int) -> RankingState:
    """Return scores rounded up to the largest of their cell, unchanged if they are few."""
    if state.doubt.size <= n_cells:
        return state
    ends = np.cumsum(state.weight)
    cells = np.ceil(ends * (n_cells / ends[-1]))
    is_last = np.append(cells[1:] != cells[:-1], True)
    weight = np.diff(ends[is_last], prepend=0.0)
    return RankingState(state.doubt[is_last], weight, np.zeros(weight.size))


@final
@dataclass(frozen=True, slots=True, eq=False)
class _CountedScores:
    """The scores of some rows by group, and what is known about the rows."""

    facts: dict[str, Any]
    scores: GroupedState[CalibrationScores]
    n_missing: int
    n_rows: int

    def __add__(self, other: _CountedScores) -> _CountedScores:
        if self.facts != other.facts:
            raise StateMismatchError("kinds of outputs", self.facts, other.facts)
        n_missing, n_rows = self.n_missing + other.n_missing, self.n_rows + other.n_rows
        return _CountedScores(self.facts, self.scores + other.scores, n_missing, n_rows)


def _threshold(state: RankingState, level: float) -> float | None:
    """Return the smallest score that covers `level` of the rows and a new one, None if none."""
    # Not ceil((n + 1) level): a ratio of integers rounds in the same way as the level itself.
    is_reached = np.cumsum(state.weight) / (1 + state.weight.sum()) >= level
    threshold = float(state.doubt[np.argmax(is_reached)]) if is_reached.any() else np.inf
    return threshold if np.isfinite(threshold) else None


def _rows_needed(level: float) -> int:
    """Return the number of rows from which there is a threshold.

    >>> _rows_needed(0.9)
    9
    """
    about = int(level / (1 - level))
    near = range(max(about - 1, 1), about + 1)
    return next((n for n in near if n / (n + 1) >= level), about + 1)


def _group_names(groups: NDArray[Any] | None, n_rows: int) -> tuple[list[str], IntArray]:
    """Return the distinct groups by name, and the index of each row's group."""
    if groups is None:
        return [ALL], np.zeros(n_rows, dtype=np.int64)
    is_sortable = groups.dtype.kind in "biufU"
    keys = groups if is_sortable else np.array([_name(one) for one in groups.tolist()], dtype=str)
    distinct, positions = np.unique(keys, return_inverse=True)
    return [_name(one) for one in distinct.tolist()], positions


def _name(group: Any) -> str:
    """Return the name of a group, as in metrics by group."""
    return "(missing)" if is_absent(group) else str(group)
