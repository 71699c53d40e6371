"""The calibrator to use when in doubt: tries what fits the data, and mixes what holds up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self, final

import numpy as np

from dubito.arrays import FloatArray, contiguous
from dubito.calibrate.calibrator import AbstractCalibrator
from dubito.calibrate.candidates import AsItCame
from dubito.calibrate.contest import Contest, name_of
from dubito.calibrate.cross_fit import folds_of, is_number, labelled_only
from dubito.calibrate.rows import FLOOR, labelled_shards
from dubito.data.batch import as_column
from dubito.data.sampling import sample_rows
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.softmax import softmax_rows
from dubito.outputs import Logits, Probabilities

__all__ = ["AutoCalibrator"]

FEWEST_ROWS = 10  # with fewer, no choice can be told from luck


@final
class AutoCalibrator(AbstractCalibrator):
    """Cross-fit the calibrators that suit the number of rows and classes, and mix them.

    Start here. Shares are those under which held-out labels are most likely; where one calibrator
    does better than the mixture, on rows neither saw, it is taken alone. What came in is among the
    candidates, so that the cross-fitted log loss never rises.

    `cv` is a number of folds or any splitter of scikit-learn; after `time_budget` seconds no
    further candidate is begun. Above `most_rows` rows the choice is made on a seeded subsample of
    that many, and what was chosen is fitted on all. `leaderboard_` tells what each candidate
    achieved, `chosen_` and `reason_` what was taken, and why.

    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 300)
    >>> logits = Logits(4 * (np.eye(3)[y] + rng.normal(size=(300, 3))))
    >>> auto = AutoCalibrator().fit(logits, y)
    >>> auto.leaderboard_[0]["log_loss"] < auto.leaderboard_[-1]["log_loss"]
    True
    """

    chosen_: str
    reason_: str
    leaderboard_: list[dict[str, Any]]
    calibrators_: list[AbstractCalibrator]
    shares_: FloatArray
    evidence_: dict[str, Any]

    def __init__(
        self,
        cv: Any = 5,
        time_budget: float | None = None,
        most_rows: int = 20_000,
        seed: int = 0,
    ):
        self.cv = cv
        self.time_budget = time_budget
        self.most_rows = most_rows
        self.seed = seed

    def fit(
        self, outputs: Any, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Self:
        """Learn from outputs and labels; rows of one group are never parted between folds."""
        shards = labelled_shards(outputs, y, sample_weight, type(self).__name__)
        if groups is not None:
            if not isinstance(shards, ArrayShards) or isinstance(outputs, Shards):
                rule, fix = "among the columns of shards", "Columns(group=...)"
                raise BadTypeError("groups", type(self).__name__, rule, "an argument", fix)
            column = as_column(groups, len(shards.batch), "groups", type(self).__name__)
            shards = ArrayShards(replace(shards.batch, groups=column))
        return super().fit(shards)

    def _learn(self, shards: Shards) -> None:
        self._require_settings()
        batch = sample_rows(shards, self.most_rows, self.seed)
        n_used = len(labelled_only(batch))
        if n_used == 0:
            raise EmptyStateError("A calibrator")
        if n_used < FEWEST_ROWS:
            self._take([AsItCame()], np.ones(1), shards)
            self.leaderboard_, self.chosen_ = [], "AsItCame()"
            self.reason_ = f"{n_used} rows are too few to choose by"
            return
        is_listed = not (is_number(self.cv) or hasattr(self.cv, "split"))
        if is_listed and len(batch) == self.most_rows and shards.sum(len) > len(batch):
            rule = f"folds or a splitter for more than {self.most_rows:,} rows (`most_rows`)"
            raise BadValueError("cv", type(self).__name__, rule, repr(self.cv), "cv=5")
        contest = Contest.held(batch, folds_of(batch, self.cv, self.seed), self.time_budget)
        members, shares = contest.winners()
        self.leaderboard_, self.chosen_ = contest.leaderboard(), contest.chosen
        self.reason_ = contest.reason
        self.evidence_ = {
            "before": contest.losses[0].item(),
            "after": contest.loss,
            "n_rows": contest.n_rows,
        }
        self._take(members, shares, shards)

    def _require_settings(self) -> None:
        name = type(self).__name__
        if not isinstance(self.most_rows, int | np.integer) or self.most_rows < FEWEST_ROWS:
            rule, fix = f"a whole number from {FEWEST_ROWS} up", "most_rows=20_000"
            raise BadValueError("most_rows", name, rule, repr(self.most_rows), fix)
        is_number_of_seconds = isinstance(self.time_budget, int | float | np.number)
        if self.time_budget is not None and not (is_number_of_seconds and self.time_budget >= 0):
            rule, fix = "None, or seconds from 0 up", "time_budget=30"
            raise BadValueError("time_budget", name, rule, repr(self.time_budget), fix)

    def _take(self, members: list[AbstractCalibrator], shares: FloatArray, shards: Shards) -> None:
        self.calibrators_ = [member.fit(shards) for member in members]
        for member in self.calibrators_:
            del member._shards, member._mark
        self.shares_ = shares

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        mixed = np.zeros(outputs.array.shape)
        part = np.empty(outputs.array.shape)
        for share, member in zip(self.shares_, self.calibrators_, strict=True):
            softmax_rows(contiguous(member._logits(outputs).astype(np.float64)), FLOOR, part)
            mixed += share * part
        return np.log(mixed)

    def _words(self) -> str:
        if len(self.calibrators_) == 1:
            return f"{self.chosen_} ({self.calibrators_[0]._words()})"
        ranked = sorted(
            zip(self.shares_, self.calibrators_, strict=True), key=lambda pair: -pair[0]
        )
        parts = [f"{share:.0%} {name_of(member)}" for share, member in ranked[:3]]
        more = f" and {len(ranked) - 3} more" if len(ranked) > 3 else ""
        return f"a mixture of {', '.join(parts)}{more}"
