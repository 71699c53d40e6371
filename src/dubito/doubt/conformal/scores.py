"""Conformity scores of the calibration rows and the thresholds they give."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray, IntArray, as_share
from dubito.data.batch import Batch, as_column
from dubito.data.labels import is_absent
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoWarning,
    EmptyStateError,
    StateMismatchError,
)
from dubito.measure.ranking import RankingState
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseOutputs
from dubito.serialization.fields import MOST, Entry, boolean, declare, dict_of, number, optional
from dubito.serialization.objects import Serializable

MAX_SCORES = 1_000_000  # different scores that are held
CELLS = MAX_SCORES // 2  # that are left of them once there are more


@final
@dataclass(frozen=True, slots=True, eq=False)
class KnownScores:
    """Scores of some rows, as parts that are ranked together when they are asked for or too many.

    Up to 1,000,000 different scores are held as they are. Beyond, the rows are cut by rank into
    500,000 cells of equal weight, and scores move up to the largest of their cell: thresholds and
    p-values are never too low, and each such step moves a score past 1/500,000 of the rows at most,
    wherever scores pile up.

    >>> both = KnownScores.of(np.array([0.5, 0.2]), np.ones(2)) + KnownScores.of(np.ones(1), [3])
    >>> both.ranked.doubt.tolist(), both.ranked.weight.tolist()
    ([0.2, 0.5, 1.0], [1.0, 1.0, 3.0])
    """

    parts: tuple[RankingState, ...]
    size: int  # how many scores the parts hold

    @classmethod
    def of(cls, scores: FloatArray, weight: FloatArray) -> KnownScores:
        """Hold the scores of some rows."""
        return cls.of_ranked(ranked(scores, np.asarray(weight, dtype=np.float64)))

    @classmethod
    def of_ranked(cls, state: RankingState) -> KnownScores:
        """Hold scores that are ranked already."""
        return cls((state,), state.doubt.size)

    def __add__(self, other: KnownScores) -> KnownScores:
        both = KnownScores(self.parts + other.parts, self.size + other.size)
        return both if both.size <= MAX_SCORES else KnownScores.of_ranked(_in_cells(both.ranked))

    @property
    def ranked(self) -> RankingState:
        """All scores, rising."""
        if len(self.parts) == 1:
            return self.parts[0]
        scores = np.concatenate([part.doubt for part in self.parts])
        return ranked(scores, np.concatenate([part.weight for part in self.parts]))


def ranked(scores: FloatArray, weight: FloatArray) -> RankingState:
    """Rank scores; none is positive, as all are known."""
    return RankingState.of_scores(np.zeros(len(scores)), scores, weight)


def _in_cells(state: RankingState) -> RankingState:
    """Return scores moved up to the largest of their cell, unless there are few different ones."""
    if state.doubt.size <= CELLS:
        return state
    ends = np.cumsum(state.weight)
    cells = np.ceil(ends * (CELLS / ends[-1]))
    is_last = np.append(cells[1:] != cells[:-1], True)
    weight = np.diff(ends[is_last], prepend=0.0)
    return RankingState(state.doubt[is_last], weight, np.zeros(weight.size))


ALL = "all"  # the one group where rows have none


class BaseConformal(Serializable):
    """Learns a threshold of scores, one a group on wish, that truths keep to as often as `level`.

    It says what it takes (`_as_known`), what the rows are (`_facts`), and the score of each truth
    (`_scores`). A threshold is None where rows are too few for any.
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

    unbounded: ClassVar[str]  # what it gives without a threshold, in words

    def fit(self, outputs: Any, y: Any = None, groups: Any = None) -> Self:
        """Learn from outputs and truths that the model never saw, or from shards that hold both.

        With `groups`, one value a row, each group has a threshold and so the guarantee of its own;
        shards are taken by their groups if they have any. Rows without truth are left out, a
        weight of 2 is a row that came twice.
        """
        name = type(self).__name__
        self._check_params()
        level = float(self.level)
        shards = self._shards(outputs, y, groups)
        seen_in = self._scorer()._seen
        seen = seen_in(shards.batch) if isinstance(shards, ArrayShards) else shards.sum(seen_in)
        states = {group: scores.ranked for group, scores in seen.states.items()}
        n_rows = {group: float(state.weight.sum()) for group, state in states.items()}
        if not any(n_rows.values()):
            raise EmptyStateError(name)
        warn_of_missing(seen.n_missing, seen.n_rows, name, stacklevel=3)
        self._forget()
        for learned, value in seen.facts.items():
            setattr(self, learned, value)
        self.n_rows_ = n_rows
        self.thresholds_ = {group: _threshold_of(state, level) for group, state in states.items()}
        self._warn_of_none(level)
        return self

    def _check_params(self) -> None:
        as_share(self.level, "level", type(self).__name__, is_open=True)

    def _check_fitted(self, entry: Entry) -> None:
        groups = list(self.thresholds_)
        if sorted(groups) != sorted(self.n_rows_):
            raise entry.at("n_rows_").error("of the groups of thresholds_", "others")
        if not self.is_grouped_ and groups != [ALL]:
            raise entry.at("thresholds_").error(f"one, {ALL!r}, without groups", "others")

    def _scorer(self) -> Self:
        """Return what computes the scores of a fit: this, or a copy whose seed is drawn."""
        return self

    @abstractmethod
    def _as_known(self, outputs: Any, caller: str) -> BaseOutputs:
        """Return outputs as what it takes, or raise."""

    @abstractmethod
    def _facts(self, batch: Batch) -> dict[str, Any]:
        """Return what is learned of the outputs besides their scores; raise without truths."""

    @abstractmethod
    def _scores(self, batch: Batch) -> FloatArray:
        """Return the score of each row's truth, anything where it is missing."""

    def _shards(self, outputs: Any, y: Any, groups: Any) -> Shards:
        name = type(self).__name__
        if not isinstance(outputs, Shards):
            known = self._as_known(outputs, name)
            return ArrayShards(Batch.of(y, known, groups=groups, caller=name, argument="y"))
        if y is not None or groups is not None:
            got = "truths" if y is not None else "groups"
            fix = f"{name}().fit(shards), with truths and groups among the shards' columns"
            raise BadTypeError("outputs", name, "arrays beside truths or groups", got, fix)
        return outputs

    def _seen(self, batch: Batch) -> SeenScores:
        facts = {**self._facts(batch), "is_grouped_": batch.groups is not None}
        scores = self._scores(batch)
        names, positions = _group_names(batch.groups, len(batch))
        ends = np.cumsum(np.bincount(positions, minlength=len(names)))
        parts = np.split(np.argsort(positions, kind="stable"), ends[:-1])
        weight = batch.labeled_weight
        states = {
            name: KnownScores.of(scores[rows], weight[rows])
            for name, rows in zip(names, parts, strict=True)
        }
        return SeenScores(facts, states, batch.n_missing, len(batch))

    def _reach(self, groups: Any, n_rows: int, method: str) -> FloatArray:
        """Return the threshold of each row, infinite where there is none."""
        caller = f"{type(self).__name__}.{method}"
        column = as_column(groups, n_rows, "groups", caller)
        if (column is not None) != self.is_grouped_:
            rule = "one value a row, as in the fit" if self.is_grouped_ else "None, as in the fit"
            got, fix = ("None" if column is None else "groups"), "groups in both or in neither"
            raise BadTypeError("groups", caller, rule, got, fix)
        names, positions = _group_names(column, n_rows)
        for i, name in enumerate(names):
            if name not in self.thresholds_:
                shown = ", ".join(list(self.thresholds_)[:5])
                rule = f"groups of the fit ({shown}{', ...' * (len(self.thresholds_) > 5)})"
                row, fix = int(np.argmax(positions == i)), "a fit on rows of every group"
                raise BadValueError("groups", caller, rule, name, fix, row)
        found = [self.thresholds_[name] for name in names]
        reach = np.array([np.inf if one is None else one for one in found])
        return np.asarray(reach[positions])

    def _warn_of_none(self, level: float) -> None:
        needed = _rows_needed(level)
        none = [group for group, found in self.thresholds_.items() if found is None]
        few = [group for group in none if self.n_rows_[group] < needed]
        endless = [group for group in none if group not in few]
        reasons = [
            (few, f"too few rows for a level of {level:g}", f"{needed:,} rows or more"),
            (endless, "too many infinite scores", "method='absolute'"),
        ]
        for groups, why, fix in reasons:
            if groups:
                where = ", ".join(
                    f"{group}: {self.n_rows_[group]:g}" if self.is_grouped_ else f"{n:g}"
                    for group, n in ((g, self.n_rows_[g]) for g in groups[:5])
                ) + (", ..." * (len(groups) > 5))
                text = f"{type(self).__name__}: {why} ({where}): {self.unbounded}. Try {fix}."
                warnings.warn(text, DubitoWarning, stacklevel=3)


@final
@dataclass(frozen=True, slots=True, eq=False)
class SeenScores:
    """The scores of some rows, group by group, and what the rows are."""

    facts: dict[str, Any]
    states: dict[str, KnownScores]
    n_missing: int
    n_rows: int

    def __add__(self, other: SeenScores) -> SeenScores:
        if self.facts != other.facts:
            raise StateMismatchError("kinds of outputs", self.facts, other.facts)
        states = dict(self.states)
        for group, scores in other.states.items():
            states[group] = states[group] + scores if group in states else scores
        return SeenScores(
            self.facts,
            dict(sorted(states.items())),
            self.n_missing + other.n_missing,
            self.n_rows + other.n_rows,
        )


def _threshold_of(state: RankingState, level: float) -> float | None:
    """Return the smallest score that `level` of the rows and a new one keep to, if there is any."""
    # Not ceil((n + 1) level): whole numbers divided round as the level itself was rounded.
    is_reached = np.cumsum(state.weight) / (1 + state.weight.sum()) >= level
    found = float(state.doubt[np.argmax(is_reached)]) if is_reached.any() else np.inf
    return found if np.isfinite(found) else None


def _rows_needed(level: float) -> int:
    """Return with how many rows there is a threshold.

    >>> _rows_needed(0.9)
    9
    """
    about = int(level / (1 - level))
    near = range(max(about - 1, 1), about + 1)
    return next((n for n in near if n / (n + 1) >= level), about + 1)


def _group_names(groups: NDArray[Any] | None, n_rows: int) -> tuple[list[str], IntArray]:
    """Return the different groups by name, and which of them each row is of."""
    if groups is None:
        return [ALL], np.zeros(n_rows, dtype=np.int64)
    is_plain = groups.dtype.kind in "biufU"
    keys = groups if is_plain else np.array([_name_of(one) for one in groups.tolist()], dtype=str)
    different, positions = np.unique(keys, return_inverse=True)
    return [_name_of(one) for one in different.tolist()], positions


def _name_of(group: Any) -> str:
    """Return what a group is called, as metrics by group call it."""
    return "(missing)" if is_absent(group) else str(group)
