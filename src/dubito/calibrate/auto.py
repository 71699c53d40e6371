"""The calibrator to use when in doubt: tries what fits the data, and mixes what holds up."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any, Self, final

import numpy as np
from sklearn.base import clone

from dubito.arrays import FloatArray, contiguous
from dubito.calibrate.calibrator import AbstractCalibrator
from dubito.calibrate.candidates import AsItCame, candidates
from dubito.calibrate.cross_fit import (
    Fold,
    folds_of,
    held_out_likelihoods,
    is_number,
    labelled_only,
    sample_rows,
)
from dubito.calibrate.mixture import mixture_weights
from dubito.calibrate.rows import FLOOR, as_class_outputs, labelled_shards
from dubito.data.batch import Batch, as_column
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.softmax import softmax_rows
from dubito.outputs import Logits, Probabilities

__all__ = ["AutoCalibrator"]

FEWEST_ROWS = 10  # with fewer, no choice can be told from luck
LEAST_SHARE = 0.001  # of a mixture; what has less is left out
PULL = 1.0  # towards equal shares, as if so many rows were explained by each alike


@final
class AutoCalibrator(AbstractCalibrator):
    """Cross-fit the calibrators that suit the number of rows and classes, and mix them.

    Start here. Shares are those under which held-out labels are most likely; where one calibrator
    does better than the mixture, on rows neither saw, it is taken alone. What came in is among the
    candidates, so that the cross-fitted log loss never rises.

    `cv` is a number of folds or any splitter of scikit-learn; `time_budget` ends the choice after
    so many seconds. Above `most_rows` rows the choice is made on a seeded subsample of that many,
    and what was chosen is fitted on all. `leaderboard_` tells what each candidate achieved,
    `chosen_` and `reason_` what was taken, and why.

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
        if len(batch) == self.most_rows and not is_number(self.cv) and shards.sum(len) > len(batch):
            rule = f"a number of folds for more than {self.most_rows:,} rows (`most_rows`)"
            raise BadValueError("cv", type(self).__name__, rule, repr(self.cv), "cv=5")
        contest = Contest(batch, folds_of(batch, self.cv, self.seed), self.time_budget)
        members, shares = contest.winners()
        self.leaderboard_, self.chosen_ = contest.leaderboard(), contest.chosen
        self.reason_ = contest.reason
        self.evidence_ = {
            "before": contest.losses[0].item(),
            "after": contest.loss,
            "n_rows": n_used,
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


class Contest:
    """Candidates, what each gives the labels it did not see, and who wins."""

    def __init__(self, batch: Batch, folds: list[Fold], time_budget: float | None):
        start = time.perf_counter()
        self.tried: list[AbstractCalibrator] = []
        self.seconds: list[float] = []
        columns = []
        n_classes = as_class_outputs(batch.outputs, "AutoCalibrator").n_classes
        for candidate in candidates(n_classes, len(labelled_only(batch))):
            begun = time.perf_counter()
            is_late = time_budget is not None and begun - start > time_budget
            if is_late and len(self.tried) >= 2:
                break
            likelihoods, self.weights, self.fold_of = held_out_likelihoods(candidate, batch, folds)
            columns.append(likelihoods)
            self.tried.append(candidate)
            self.seconds.append(time.perf_counter() - begun)
        self.likelihoods = np.maximum(np.stack(columns, axis=1), FLOOR)
        self.losses = self.mean(-np.log(self.likelihoods))
        self.shares = mixture_weights(self.likelihoods, self.weights, PULL)
        mixed = self.mixture_of_unseen()
        single = int(self.losses.argmin())
        gain = -np.log(self.likelihoods[:, single]) + np.log(mixed)
        # The mixture is the safer of two that do alike: one candidate must be better beyond chance.
        is_alike = bool(self.mean(gain) + self.error(gain) >= 0)
        self.mixed_loss = float(self.mean(-np.log(mixed)))
        self.is_mixed = is_alike and self.mixed_loss <= float(self.losses[0])
        self.mixed_error = self.error(-np.log(mixed))
        self.loss = self.mixed_loss if self.is_mixed else float(self.losses[single])
        self.chosen = "mixture" if self.is_mixed else name_of(self.tried[single])
        self.reason = (
            "no candidate alone is better than the mixture by more than a standard error"
            if self.is_mixed
            else "the mixture does worse than nothing"
            if is_alike
            else "better alone than in a mixture, beyond a standard error"
        )

    def mean(self, values: FloatArray) -> Any:
        """Return the weighted mean over rows."""
        return self.weights @ values / self.weights.sum()

    def error(self, values: FloatArray) -> float:
        """Return the standard error of a weighted mean."""
        share = self.weights / self.weights.sum()
        return float(np.sqrt(np.sum(share**2 * (values - self.mean(values)) ** 2)))

    def mixture_of_unseen(self) -> FloatArray:
        """Return what mixtures give the labels of folds whose shares they were not fitted to."""
        mixed = np.empty(len(self.likelihoods))
        for fold in np.unique(self.fold_of):
            is_seen = self.fold_of != fold
            shares = mixture_weights(self.likelihoods[is_seen], self.weights[is_seen], PULL)
            mixed[~is_seen] = self.likelihoods[~is_seen] @ shares
        return mixed

    def winners(self) -> tuple[list[AbstractCalibrator], FloatArray]:
        """Return what is to be fitted on all rows, and the share of each."""
        if not self.is_mixed:
            return [clone(self.tried[int(self.losses.argmin())])], np.ones(1)
        kept = np.flatnonzero(self.shares >= LEAST_SHARE)
        return [clone(self.tried[k]) for k in kept], self.shares[kept] / self.shares[kept].sum()

    def leaderboard(self) -> list[dict[str, Any]]:
        """Return what each candidate achieved on rows it did not see, best first."""
        errors = [self.error(-np.log(column)) for column in self.likelihoods.T]
        shares = self.shares if self.is_mixed else np.zeros(len(self.tried))
        if not self.is_mixed:
            shares[int(self.losses.argmin())] = 1.0
        rows = [
            {
                "name": name_of(one),
                "log_loss": float(loss),
                "standard_error": error,
                "share": float(share),
                "seconds": seconds,
            }
            for one, loss, error, share, seconds in zip(
                self.tried, self.losses, errors, shares, self.seconds, strict=True
            )
        ]
        rows.append(
            {
                "name": "mixture",
                "log_loss": self.mixed_loss,
                "standard_error": self.mixed_error,
                "share": None,  # it is made of the others
                "seconds": sum(self.seconds),
            }
        )
        return sorted(rows, key=lambda row: row["log_loss"])


def name_of(calibrator: AbstractCalibrator) -> str:
    """Return a calibrator as one would write it, on one line."""
    return " ".join(repr(calibrator).split())
