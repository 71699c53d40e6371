"""The calibrator to use when in doubt: tries what fits the data, and mixes what holds up."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Self, final

import numpy as np
from sklearn.base import clone

from dubito.arrays import FloatArray, as_seed
from dubito.calibrate.calibrator import BaseCalibrator, require_same_classes
from dubito.calibrate.candidates import IdentityCalibrator
from dubito.calibrate.contest import Contest, name_of
from dubito.calibrate.cross_fit import folds_of, is_number, labeled_only
from dubito.calibrate.fixed_mixture import FixedMixture, mixed_logits
from dubito.calibrate.rows import labeled_shards
from dubito.data.batch import as_column
from dubito.data.sampling import sample_rows
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.keeping import kept
from dubito.kept_arrays import array, shares
from dubito.kept_checks import (
    Entry,
    Maybe,
    entries,
    flag,
    listed,
    number,
    optional,
    record,
    text,
    whole,
)
from dubito.outputs import Logits, Probabilities

__all__ = ["AutoCalibrator"]

FEWEST_ROWS = 10  # with fewer, no choice can be told from luck

LINE = record(  # of the leaderboard
    name=text,
    log_loss=number(),
    standard_error=number(0),
    share=optional(number(0, 1)),
    seconds=number(0),
)


def folds(value: Any, entry: Entry) -> Any:
    """Check for a number of folds, or the rows of each."""
    rows = array(None, low=0, is_whole=True)
    is_list = isinstance(value, list | tuple | np.ndarray)
    return (listed(listed(rows, 2)) if is_list else optional(whole(2)))(value, entry)


@final
class AutoCalibrator(BaseCalibrator):
    """Cross-fit the calibrators that suit the number of rows and classes, and mix them.

    Start here. Shares are those under which held-out labels are most likely; where one calibrator
    does better than the mixture, on rows neither saw, it is taken alone. What came in is among the
    candidates, so that the cross-fitted log loss never rises.

    `cv` is a number of folds (fewer where there are fewer groups) or any splitter of scikit-learn;
    after `time_budget` seconds no further candidate is begun. Above `max_samples` rows the choice is
    made on a seeded subsample of that many, and what was chosen is fitted on all. `parametric_only`
    leaves out what cannot be written as a formula, such as to append it to a network.
    `leaderboard_` tells what each candidate achieved, `chosen_` and `reason_` what was taken, and
    why.

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
    calibrators_: list[BaseCalibrator]
    weights_: FloatArray
    evidence_: dict[str, Any]

    setting_checks = entries(cv=Maybe(folds), parametric_only=Maybe(flag))
    learned_checks = entries(
        chosen_=text,
        reason_=text,
        leaderboard_=listed(LINE),
        calibrators_=listed(kept(BaseCalibrator)),
        weights_=shares("calibrators_"),
    )

    def __init__(
        self,
        cv: Any = 5,
        time_budget: float | None = None,
        max_samples: int = 20_000,
        seed: int = 0,
        parametric_only: bool = False,
    ):
        self.cv = cv
        self.time_budget = time_budget
        self.max_samples = max_samples
        self.seed = seed
        self.parametric_only = parametric_only

    def fit(
        self, outputs: Any, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Self:
        """Learn from outputs and labels; rows of one group are never parted between folds."""
        shards = labeled_shards(outputs, y, sample_weight, type(self).__name__)
        if groups is not None:
            if not isinstance(shards, ArrayShards) or isinstance(outputs, Shards):
                rule, fix = "among the columns of shards", "Columns(group=...)"
                raise BadTypeError("groups", type(self).__name__, rule, "an argument", fix)
            column = as_column(groups, len(shards.batch), "groups", type(self).__name__)
            shards = ArrayShards(replace(shards.batch, groups=column))
        return super().fit(shards)

    def for_folds(self) -> BaseCalibrator:
        """Return what was chosen on all rows, to be fitted to some of them: no contest again."""
        self._require_fitted("for_folds")
        return FixedMixture([clone(one) for one in self.calibrators_], self.weights_)

    def _learn(self, shards: Shards) -> None:
        batch = sample_rows(shards, self.max_samples, self.seed)
        n_used = len(labeled_only(batch))
        if n_used == 0:
            raise EmptyStateError("A calibrator")
        if n_used < FEWEST_ROWS:
            self._take([IdentityCalibrator()], np.ones(1), shards)
            self.leaderboard_, self.chosen_ = [], "IdentityCalibrator()"
            self.reason_ = f"{n_used} rows are too few to choose by"
            return
        is_listed = not (is_number(self.cv) or hasattr(self.cv, "split"))
        if is_listed and len(batch) == self.max_samples and shards.sum(len) > len(batch):
            rule = f"folds or a splitter for more than {self.max_samples:,} rows (`max_samples`)"
            raise BadValueError("cv", type(self).__name__, rule, repr(self.cv), "cv=5")
        split = folds_of(batch, self.cv, self.seed)
        contest = Contest.held(batch, split, self.time_budget, self.parametric_only)
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
        if not isinstance(self.max_samples, int | np.integer) or self.max_samples < FEWEST_ROWS:
            rule, fix = f"a whole number from {FEWEST_ROWS} up", "max_samples=20_000"
            raise BadValueError("max_samples", name, rule, repr(self.max_samples), fix)
        is_number_of_seconds = isinstance(self.time_budget, int | float | np.number)
        if self.time_budget is not None and not (is_number_of_seconds and self.time_budget >= 0):
            rule, fix = "None, or seconds from 0 up", "time_budget=30"
            raise BadValueError("time_budget", name, rule, repr(self.time_budget), fix)
        as_seed(self.seed, name)
        if not isinstance(self.parametric_only, bool | np.bool_):
            rule, fix = "True or False", "parametric_only=True"
            raise BadValueError("parametric_only", name, rule, repr(self.parametric_only), fix)

    def _require_learned(self, entry: Entry) -> None:
        for k, one in enumerate(self.calibrators_):
            require_same_classes(self, one, entry.at(f"calibrators_[{k}]"))

    def _take(self, members: list[BaseCalibrator], shares: FloatArray, shards: Shards) -> None:
        self.calibrators_ = [member.fit(shards) for member in members]
        for member in self.calibrators_:
            del member._shards, member._mark
        self.weights_ = shares

    def _n_numbers(self) -> int:
        return max(one._n_numbers() for one in self.calibrators_)

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return mixed_logits(self.calibrators_, self.weights_, outputs)

    def _words(self) -> str:
        if len(self.calibrators_) == 1:
            return f"{self.chosen_} ({self.calibrators_[0]._words()})"
        ranked = sorted(
            zip(self.weights_, self.calibrators_, strict=True), key=lambda pair: -pair[0]
        )
        parts = [f"{share:.0%} {name_of(member)}" for share, member in ranked[:3]]
        more = f" and {len(ranked) - 3} more" if len(ranked) > 3 else ""
        return f"a mixture of {', '.join(parts)}{more}"
