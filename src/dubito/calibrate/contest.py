"""Candidates against each other, and their mixture against them all, on rows none has seen."""

from __future__ import annotations

import time
from functools import cached_property
from typing import Any, NamedTuple, Self, final

import numpy as np
from sklearn.base import clone

from dubito.arrays import FloatArray
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.candidates import FEW_ROWS, candidates
from dubito.calibrate.cross_fit import Fold, HeldOut, held_out_likelihoods, labeled_only
from dubito.calibrate.mixture import mixture_weights
from dubito.calibrate.rows import FLOOR, as_class_outputs
from dubito.data.batch import Batch

__all__ = ["Contest", "name_of"]

FAR_AHEAD = 3.0  # standard errors; fits of folds have fewer rows, which flatters what is plain
FEWEST_TRIED = 2  # whatever the time: what came in, and a temperature
LEAST_SHARE = 0.003  # of a mixture; what has less is left out
N_PARTS = 5  # of the rows, to judge shares on, where folds will not do
PULL = 1.0  # towards equal shares, as if so many rows were explained by each alike


class Tried(NamedTuple):
    """A candidate, and what it cost to fit it to every fold."""

    calibrator: BaseCalibrator
    seconds: float


@final
class Contest:
    """What each candidate gives labels it did not see, and who wins by that.

    `held` has an array of likelihoods for each candidate, the first of which leaves everything as
    it came.
    """

    def __init__(self, tried: list[Tried], held: list[HeldOut]) -> None:
        self.tried = tried
        self.likelihoods = np.maximum(np.stack([one.likelihoods for one in held], axis=1), FLOOR)
        _, self.weights, fold_of, row_of = held[0]
        rows, self.row_of = np.unique(row_of, return_inverse=True)
        self.n_rows = int(rows.size)
        folds_of_row = np.unique(np.column_stack([row_of, fold_of]), axis=0)
        # Shares are judged on folds they were not fitted to; where folds share rows, on other rows.
        is_parted = np.unique(fold_of).size > 1 and len(folds_of_row) == self.n_rows
        self.part_of = fold_of if is_parted else self.row_of % N_PARTS

    @classmethod
    def held(
        cls,
        batch: Batch,
        folds: list[Fold],
        time_budget: float | None,
        parametric_only: bool = False,
    ) -> Self:
        """Fit candidates to every fold, one after the other, while there is time."""
        end = np.inf if time_budget is None else time.perf_counter() + time_budget
        n_classes = as_class_outputs(batch.outputs, "AutoCalibrator").n_classes
        tried: list[Tried] = []
        held = []
        for candidate in candidates(n_classes, len(labeled_only(batch)), parametric_only):
            begun = time.perf_counter()
            if begun > end and len(tried) >= FEWEST_TRIED:
                break
            held.append(held_out_likelihoods(candidate, batch, folds))
            tried.append(Tried(candidate, time.perf_counter() - begun))
        return cls(tried, held)

    @cached_property
    def losses(self) -> FloatArray:
        """Each candidate's log loss."""
        return np.asarray(self.mean(-np.log(self.likelihoods)))

    @cached_property
    def best(self) -> int:
        """Which candidate has the least loss."""
        return int(self.losses.argmin())

    @cached_property
    def mixed(self) -> FloatArray:
        """What mixtures give labels that their shares were not fitted to."""
        result = np.empty(len(self.likelihoods))
        for part in np.unique(self.part_of):
            is_seen = self.part_of != part
            shares = mixture_weights(self.likelihoods[is_seen], self.weights[is_seen], PULL)
            result[~is_seen] = self.likelihoods[~is_seen] @ shares
        return result

    @cached_property
    def is_close(self) -> bool:
        """Whether no candidate is far ahead of the mixture, which is the safer then."""
        gain = np.log(self.mixed) - np.log(self.likelihoods[:, self.best])
        return bool(self.mean(gain) + FAR_AHEAD * self.error(gain) >= 0)

    @cached_property
    def is_mixed(self) -> bool:
        """Whether the mixture wins; it may not lose to doing nothing, nor be made of luck."""
        is_helpful = bool(self.mean(-np.log(self.mixed)) <= self.losses[0])
        return self.is_close and is_helpful and not self.is_short

    @property
    def is_short(self) -> bool:
        """Whether shares of a mixture would be luck."""
        return self.n_rows < FEW_ROWS

    @property
    def loss(self) -> float:
        """The winner's log loss."""
        return float(self.mean(-np.log(self.mixed)) if self.is_mixed else self.losses[self.best])

    @property
    def chosen(self) -> str:
        """The winner's name."""
        return "mixture" if self.is_mixed else name_of(self.tried[self.best].calibrator)

    @property
    def reason(self) -> str:
        """Why it won."""
        if self.is_mixed:
            return "no candidate alone is better than the mixture by three standard errors"
        if self.is_short:
            return f"fewer than {FEW_ROWS} rows are too few to mix by"
        if self.is_close:
            return "the mixture does worse than nothing"
        return "better alone than in a mixture, by three standard errors"

    @cached_property
    def shares(self) -> FloatArray:
        """Each candidate's share of what is used."""
        if not self.is_mixed:
            return np.asarray(np.eye(len(self.tried))[self.best])
        shares = mixture_weights(self.likelihoods, self.weights, PULL)
        shares[shares < LEAST_SHARE] = 0
        return np.asarray(shares / shares.sum())

    def winners(self) -> tuple[list[BaseCalibrator], FloatArray]:
        """Return what is to be fitted on all rows, and the share of each."""
        kept = np.flatnonzero(self.shares)
        return [clone(self.tried[k].calibrator) for k in kept], self.shares[kept]

    def leaderboard(self) -> list[dict[str, Any]]:
        """Return what each candidate and the mixture achieved, best first."""
        rows = [
            self.line(name_of(one.calibrator), self.likelihoods[:, k], one.seconds, self.shares[k])
            for k, one in enumerate(self.tried)
        ]
        seconds = sum(one.seconds for one in self.tried)
        rows.append(self.line("mixture", self.mixed, seconds, None))  # made of the others
        return sorted(rows, key=lambda row: float(row["log_loss"]))

    def line(
        self, name: str, likelihoods: FloatArray, seconds: float, share: float | None
    ) -> dict[str, Any]:
        """Return a line of the leaderboard."""
        losses = -np.log(likelihoods)
        return {
            "name": name,
            "log_loss": float(self.mean(losses)),
            "standard_error": self.error(losses),
            "share": None if share is None else float(share),
            "seconds": seconds,
        }

    def mean(self, values: FloatArray) -> Any:
        """Return the weighted mean over rows."""
        return self.weights @ values / self.weights.sum()

    def error(self, values: FloatArray) -> float:
        """Return the standard error of a weighted mean; all entries of a row stand together."""
        share = self.weights / self.weights.sum()
        by_row = np.bincount(self.row_of, share * (values - self.mean(values)))
        return float(np.sqrt(np.sum(by_row**2)))


def name_of(calibrator: BaseCalibrator) -> str:
    """Return a calibrator as one would write it, on one line."""
    return " ".join(repr(calibrator).split())
