"""The default calibrator: cross-validates the candidates that suit the data and stacks them."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Self, final

import numpy as np
from sklearn.base import clone

from dubito.arrays import FloatArray, RandomState, contiguous, draw_seed, require_random_state
from dubito.calibrate.binary import BetaCalibration, PlattScaling
from dubito.calibrate.calibrator import BaseCalibrator, require_same_classes
from dubito.calibrate.cross_validation import (
    Fold,
    HeldOut,
    folds_of,
    held_out_likelihoods,
    is_number,
    labeled_only,
)
from dubito.calibrate.forest import ForestCalibration
from dubito.calibrate.inputs import FLOOR, as_class_outputs, labeled_shards, log_probabilities
from dubito.calibrate.isotonic import IsotonicCalibration
from dubito.calibrate.matrix import StructuredMatrixScaling, VectorScaling
from dubito.calibrate.one_vs_rest import OneVsRest
from dubito.calibrate.temperature import (
    EnsembleTemperatureScaling,
    TemperatureScaling,
    mixture_weights,
)
from dubito.data.batch import Batch, as_column
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.softmax import softmax_rows
from dubito.outputs import Logits, Probabilities
from dubito.serialization.arrays import array, distribution
from dubito.serialization.fields import (
    Entry,
    Omittable,
    boolean,
    declare,
    integer,
    list_of,
    number,
    optional,
    record,
    text,
)
from dubito.serialization.objects import estimator

FEW_ROWS = 100  # with fewer, only the simplest can be told from luck
MANY_ROWS = 1000  # what bends freely needs so many
MOST_BENT = 100  # classes; above, five numbers a class for every class are too many
MOST_LOCAL = 30  # classes; above, rows are too far apart for what happens near each
MOST_MATRIX = 250  # classes; above, a number for every pair of classes is too much work


@final
class IdentityCalibrator(BaseCalibrator):
    """Leave probabilities as they came: what every calibrator must be better than.

    >>> IdentityCalibrator().fit([[0.7, 0.3]], [0]).predict_proba([[0.7, 0.3]]).round(3).tolist()
    [[0.7, 0.3]]
    """

    def _learn(self, shards: Shards) -> None:
        """Nothing."""

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return log_probabilities(outputs)

    def _words(self) -> str:
        return "probabilities are left as they came"


def _candidates(
    n_classes: int, n_rows: int, parametric_only: bool = False
) -> Iterator[BaseCalibrator]:
    """Yield calibrators, those that are most often of use first, or only parametric ones."""
    has_many = n_rows >= MANY_ROWS
    is_binary = n_classes == 2
    yield IdentityCalibrator()
    yield TemperatureScaling()
    if n_rows < FEW_ROWS:
        return
    yield PlattScaling() if is_binary else VectorScaling(regularization=1.0)
    if n_classes <= MOST_BENT:
        yield StructuredMatrixScaling(regularization=3.0, basis="spline")
    if has_many and not parametric_only:
        yield IsotonicCalibration() if is_binary else OneVsRest(IsotonicCalibration())
    if has_many:
        yield EnsembleTemperatureScaling()
    if is_binary:
        yield BetaCalibration()
    elif n_classes <= MOST_MATRIX:
        yield StructuredMatrixScaling(regularization=3.0)
        if has_many:
            yield OneVsRest(BetaCalibration())
            yield StructuredMatrixScaling(regularization=0.3)
            yield StructuredMatrixScaling(regularization=0.03)
    if has_many and n_classes <= MOST_LOCAL:
        if not parametric_only:
            yield ForestCalibration()
        yield StructuredMatrixScaling(regularization=0.3, basis="rbf")
    if has_many and n_classes <= MOST_BENT:
        yield StructuredMatrixScaling(regularization=0.3, basis="spline")
        yield StructuredMatrixScaling(regularization=0.03, basis="spline")


@final
class FixedMixture(BaseCalibrator):
    """Fit calibrators whose shares are known: what a contest chose, on other rows.

    >>> from dubito.calibrate.auto import IdentityCalibrator
    >>> mixture = FixedMixture([IdentityCalibrator(), IdentityCalibrator()], [0.5, 0.5]).fit([[0.7, 0.3]], [0])
    >>> mixture.predict_proba([[0.7, 0.3]]).round(3).tolist()
    [[0.7, 0.3]]
    """

    calibrators_: list[BaseCalibrator]

    def __init__(self, calibrators: Sequence[BaseCalibrator], shares: FloatArray) -> None:
        self.calibrators = calibrators
        self.shares = shares

    def _learn(self, shards: Shards) -> None:
        self.calibrators_ = [clone(one).fit(shards) for one in self.calibrators]

    def _n_numbers(self) -> int:
        return max(one._n_numbers() for one in self.calibrators_)

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return _mixed_logits(self.calibrators_, self.shares, outputs)

    def _words(self) -> str:
        return f"a mixture of {len(self.calibrators_)} calibrators"


def _mixed_logits(
    calibrators: Sequence[BaseCalibrator], shares: FloatArray, outputs: Logits | Probabilities
) -> FloatArray:
    """Return the log of the mean of what calibrators say, by their shares."""
    mixed, part = np.zeros(outputs.array.shape), np.empty(outputs.array.shape)
    for share, calibrator in zip(shares, calibrators, strict=True):
        softmax_rows(contiguous(calibrator._logits(outputs).astype(np.float64)), FLOOR, part)
        mixed += share * part
    return np.log(mixed)


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
        for candidate in _candidates(n_classes, len(labeled_only(batch)), parametric_only):
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
        return "mixture" if self.is_mixed else _name_of(self.tried[self.best].calibrator)

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
            self.line(_name_of(one.calibrator), self.likelihoods[:, k], one.seconds, self.shares[k])
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
            "weight": None if share is None else float(share),
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


def _name_of(calibrator: BaseCalibrator) -> str:
    """Return a calibrator as one would write it, on one line."""
    return " ".join(repr(calibrator).split())


FEWEST_ROWS = 10  # with fewer, no choice can be told from luck

LINE = record(  # of the leaderboard
    name=text,
    log_loss=number(),
    standard_error=number(0),
    weight=optional(number(0, 1)),
    seconds=number(0),
)


def _folds(value: Any, entry: Entry) -> Any:
    """Check for a number of folds, or the rows of each."""
    rows = array(None, low=0, is_whole=True)
    is_list = isinstance(value, list | tuple | np.ndarray)
    return (list_of(list_of(rows, 2)) if is_list else optional(integer(2)))(value, entry)


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

    param_fields = declare(cv=Omittable(_folds), parametric_only=Omittable(boolean))
    fitted_fields = declare(
        chosen_=text,
        reason_=text,
        leaderboard_=list_of(LINE),
        calibrators_=list_of(estimator(BaseCalibrator)),
        weights_=distribution("calibrators_"),
    )

    def __init__(
        self,
        cv: Any = 5,
        time_budget: float | None = None,
        max_samples: int = 20_000,
        random_state: RandomState = 0,
        parametric_only: bool = False,
    ):
        self.cv = cv
        self.time_budget = time_budget
        self.max_samples = max_samples
        self.random_state = random_state
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
        seed = draw_seed(self.random_state, type(self).__name__)
        batch = sample_rows(shards, self.max_samples, seed)
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
        split = folds_of(batch, self.cv, seed)
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

    def _check_params(self) -> None:
        name = type(self).__name__
        if not isinstance(self.max_samples, int | np.integer) or self.max_samples < FEWEST_ROWS:
            rule, fix = f"a whole number from {FEWEST_ROWS} up", "max_samples=20_000"
            raise BadValueError("max_samples", name, rule, repr(self.max_samples), fix)
        is_number_of_seconds = isinstance(self.time_budget, int | float | np.number)
        if self.time_budget is not None and not (is_number_of_seconds and self.time_budget >= 0):
            rule, fix = "None, or seconds from 0 up", "time_budget=30"
            raise BadValueError("time_budget", name, rule, repr(self.time_budget), fix)
        require_random_state(self.random_state, name)
        if not isinstance(self.parametric_only, bool | np.bool_):
            rule, fix = "True or False", "parametric_only=True"
            raise BadValueError("parametric_only", name, rule, repr(self.parametric_only), fix)

    def _check_fitted(self, entry: Entry) -> None:
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
        return _mixed_logits(self.calibrators_, self.weights_, outputs)

    def _words(self) -> str:
        if len(self.calibrators_) == 1:
            return f"{self.chosen_} ({self.calibrators_[0]._words()})"
        ranked = sorted(
            zip(self.weights_, self.calibrators_, strict=True), key=lambda pair: -pair[0]
        )
        parts = [f"{share:.0%} {_name_of(member)}" for share, member in ranked[:3]]
        more = f" and {len(ranked) - 3} more" if len(ranked) > 3 else ""
        return f"a mixture of {', '.join(parts)}{more}"
