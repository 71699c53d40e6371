"""The base of conformal predictors: conformity scores of calibration rows, and thresholds."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_fraction,
    as_number,
    as_numbers,
    freeze,
    require_everywhere,
)
from dubito.data.batch import Batch, as_column
from dubito.data.labels import is_absent
from dubito.data.shards import Shards, make_shards
from dubito.doubt.features import as_feature_matrix
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoWarning,
    EmptyStateError,
    StateMismatchError,
)
from dubito.formatting import percent
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.measure.detection import RankingState
from dubito.measure.state import GroupedState, warn_of_missing
from dubito.outputs import BaseOutputs, Logits, Probabilities
from dubito.serialization.array_fields import array
from dubito.serialization.fields import (
    MAX_FLOAT,
    Entry,
    boolean,
    dict_of,
    fitted,
    number,
    optional,
    record,
)
from dubito.serialization.objects import Serializable

MAX_SCORES = 1_000_000  # distinct scores that are held exactly
ALL = "all"  # the name of the only group where rows have none
NEARLY_1 = 1 - 1e-9  # of a sum, up to rounding
MAX_RATIO = 100.0  # the highest density ratio by default; the lowest is 1 / 100
READ_ROWS = "Use arrays, or read(source, columns) of dubito.data"  # instead of a stream
N_FOLDS = 5  # of the classifier that estimates density ratios


class BaseConformalPredictor(Serializable):
    """Fits a threshold of conformity scores, overall or per group, that covers `level` of them.

    A subclass checks outputs (`_as_outputs`), describes the rows (`_facts`) and scores the true
    labels (`_scores`). A threshold is None if there are too few rows for any.

    Attributes
    ----------
    level_ : float
        The level of each threshold.
    is_grouped_ : bool
        Whether there are several thresholds.
    thresholds_ : dict of str to float or None
        The threshold by group, "all" without groups; None if there are too few rows.
    n_rows_ : dict of str to float
        The number (or weight) of rows that each threshold is fitted on.
    weighted_scores_ : dict or None
        Scores and weights by group, if the fit had a density ratio.
    """

    level: float

    level_: float = fitted(number(0, 1))
    is_grouped_: bool = fitted(boolean)
    thresholds_: dict[str, float | None] = fitted(dict_of(optional(number(-MAX_FLOAT, MAX_FLOAT))))
    n_rows_: dict[str, float] = fitted(dict_of(number(0, MAX_FLOAT)))
    weighted_scores_: dict[str, dict[str, Any]] | None = fitted(
        optional(
            dict_of(
                record(
                    scores=array(None, low=-MAX_FLOAT, high=MAX_FLOAT, is_empty_allowed=True),
                    weight=array(None, low=0, high=MAX_FLOAT, is_empty_allowed=True),
                    total=number(0, MAX_FLOAT),
                )
            )
        )
    )

    unbounded: ClassVar[str]  # what is predicted without a threshold, for the warning

    def fit(
        self, outputs: Any, y: Any = None, groups: Any = None, density_ratio: Any = None
    ) -> Self:
        """Fit the threshold on rows that the model was not trained on.

        Parameters
        ----------
        outputs : model outputs, Batch or Shards
            Outputs for the calibration rows. A batch or shards hold labels, groups and weights
            themselves.
        y : array-like of shape (n_rows,), optional
            The true labels or targets. Rows where it is missing are ignored with a warning.
        groups : array-like of shape (n_rows,), optional
            With groups, each group has its own threshold and its own guarantee (Mondrian).
        density_ratio : array-like of shape (n_rows,), optional
            For new rows whose inputs are distributed differently (covariate shift): the density
            of new inputs over that of calibration inputs, at each calibration row and up to a
            constant factor, as from `estimate_density_ratio`. `predict` then needs it as well. Rows
            must be in memory.

        Returns
        -------
        self
            The fitted predictor.
        """
        name = type(self).__name__
        self._check_params()
        level = self._threshold_level()
        shards = make_shards(outputs, y, groups=groups, caller=name, convert=self._as_outputs)
        ratio = _ratio_of_shards(density_ratio, shards, name)
        scorer, shards, ratio = self._prepare(shards, ratio)
        counted = shards.pool(lambda batch: scorer._count(batch, ratio))
        states = {group: scores.ranked for group, scores in counted.scores.states.items()}
        if not any(state.weight.any() for state in states.values()):
            raise EmptyStateError(name)
        warn_of_missing(counted.n_missing, counted.n_rows, name, stacklevel=3)
        self._forget()
        for learned, value in counted.facts.items():
            setattr(self, learned, value)
        self.level_ = level
        self.weighted_scores_ = None
        self.n_rows_ = {group: float(state.weight.sum()) for group, state in states.items()}
        mean_ratio = dict.fromkeys(states, 1.0)
        if ratio is not None and (held := shards.in_memory) is not None:
            self.n_rows_, mean_ratio = scorer._effective_rows(held, ratio)
            self.weighted_scores_ = {group: _finite_scores(one) for group, one in states.items()}
        self.thresholds_ = {
            group: _threshold(state, level, mean_ratio[group]) for group, state in states.items()
        }
        self._warn_without_threshold(level)
        return self

    def _threshold_level(self) -> float:
        """Return the level of each threshold."""
        return float(self.level)

    def _check_params(self) -> None:
        as_fraction(self.level, "level", type(self).__name__, is_open=True)

    def _check_fitted(self, entry: Entry) -> None:
        groups = list(self.thresholds_)
        if sorted(groups) != sorted(self.n_rows_):
            raise entry.at("n_rows_").error("of the groups of thresholds_", "others")
        as_fraction(self.level_, entry.at("level_").name, entry.caller, is_open=True)
        self._check_groups(entry)
        if self.weighted_scores_ is None:
            return
        place = entry.at("weighted_scores_")
        if sorted(self.weighted_scores_) != sorted(groups):
            raise place.error("of the groups of thresholds_", "others")
        for one in self.weighted_scores_.values():
            if len(one["scores"]) != len(one["weight"]):
                raise place.error("as many scores as weights", "others")
            if (np.diff(one["scores"]) <= 0).any() or one["total"] < one["weight"].sum() * NEARLY_1:
                raise place.error("increasing scores, of the total weight at most", "others")

    def _check_groups(self, entry: Entry) -> None:
        """Raise if the thresholds read from a file are not those of the groups of the fit."""
        if not self.is_grouped_ and list(self.thresholds_) != [ALL]:
            raise entry.at("thresholds_").error(f"one, {ALL!r}, without groups", "others")

    def _prepare(
        self, shards: Shards, ratio: FloatArray | None
    ) -> tuple[Self, Shards, FloatArray | None]:
        """Return what computes the scores, and the rows of the threshold with their density ratio.

        By default self and all rows. Settings that are learned need other rows.
        """
        return self, shards, ratio

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

    def _row_groups(self, batch: Batch) -> tuple[list[str], IntArray]:
        """Return the names of the groups with a threshold each, and the index of each row's."""
        return _group_names(batch.groups, len(batch))

    def _count(self, batch: Batch, ratio: FloatArray | None) -> _CountedScores:
        """Return the scores of a batch, by group."""
        batch = replace(batch, outputs=self._as_outputs(batch.outputs, type(self).__name__))
        facts = {**self._facts(batch), "is_grouped_": batch.groups is not None}
        scores = self._all_scores(batch)
        names, positions = self._row_groups(batch)
        ends = np.cumsum(np.bincount(positions, minlength=len(names)))
        parts = np.split(np.argsort(positions, kind="stable"), ends[:-1])
        weight = batch.labeled_weight if ratio is None else batch.labeled_weight * ratio
        pairs = zip(names, parts, strict=True)
        states = {name: CalibrationScores.of(scores[rows], weight[rows]) for name, rows in pairs}
        return _CountedScores(facts, GroupedState(states), batch.n_missing, len(batch))

    def _all_scores(self, batch: Batch) -> FloatArray:
        """Return the scores of a batch, block by block in threads."""
        blocks = row_blocks(len(batch), batch.outputs.n_entries) or [slice(0, 0)]
        scored = map_in_order(lambda rows: self._scores(batch.take(rows)), blocks)
        return np.concatenate(list(scored))

    def _effective_rows(
        self, batch: Batch, ratio: FloatArray
    ) -> tuple[dict[str, float], dict[str, float]]:
        """Return the effective number of rows by group (Kish), and their mean ratio."""
        names, positions = self._row_groups(batch)
        weights = (batch.labeled_weight * ratio**power for power in range(3))
        count, sums, squares = (np.bincount(positions, one, len(names)) for one in weights)
        effective = sums**2 / np.where(squares > 0, squares, 1.0)
        mean = np.where(sums > 0, sums / np.maximum(count, 1e-100), 1.0)
        by_group = [dict(zip(names, one.tolist(), strict=True)) for one in (effective, mean)]
        return by_group[0], by_group[1]

    def _row_thresholds(
        self, groups: Any, n_rows: int, caller: str, density_ratio: Any
    ) -> FloatArray:
        """Return the threshold of each row, infinite if there is none."""
        names, positions = self._fitted_groups(groups, n_rows, caller)
        ratio = self._ratio_of_rows(density_ratio, n_rows, caller)
        thresholds = np.empty(n_rows)
        for i, name in enumerate(names):
            thresholds[positions == i] = self._thresholds_of(name, ratio, positions == i)
        self._warn_of_large_ratios(np.isinf(thresholds) & (ratio is not None))
        return thresholds

    def _fitted_groups(self, groups: Any, n_rows: int, caller: str) -> tuple[list[str], IntArray]:
        """Return the groups of new rows, all of the fit, and the index of each row's."""
        column = as_column(groups, n_rows, "groups", caller)
        require_as_fitted("groups", column is not None, self.is_grouped_, caller)
        names, positions = _group_names(column, n_rows)
        for i, name in enumerate(names):
            if name not in self.thresholds_:
                some = ", ".join(list(self.thresholds_)[:5])
                more = ", ..." if len(self.thresholds_) > 5 else ""
                rule = f"must be groups of the fit ({some}{more})"
                row, fix = int(np.argmax(positions == i)), "Fit on rows of every group"
                raise BadValueError("groups", caller, rule, name, fix, row)
        return names, positions

    def _thresholds_of(self, group: str, ratio: FloatArray | None, rows: Any) -> Any:
        """Return the threshold of a group, for each of some rows if these have density ratios."""
        if ratio is None or self.weighted_scores_ is None:
            threshold = self.thresholds_[group]
            return np.inf if threshold is None else threshold
        return _weighted_thresholds(self.weighted_scores_[group], self.level_, ratio[rows])

    def _ratio_of_rows(self, density_ratio: Any, n_rows: int, caller: str) -> FloatArray | None:
        """Return the density ratio of new rows, or raise unless it is given as during fit."""
        is_given, is_weighted = density_ratio is not None, self.weighted_scores_ is not None
        require_as_fitted("density_ratio", is_given, is_weighted, caller, "ratios")
        return None if density_ratio is None else _as_ratio(density_ratio, n_rows, caller)

    def _warn_of_large_ratios(self, is_unbounded: Any, stacklevel: int = 5) -> None:
        """Warn about new rows that outweigh the calibration rows."""
        n_rows = int(np.sum(is_unbounded))
        if n_rows:
            text = (
                f"{type(self).__name__}: the density ratio of {n_rows:,} of "
                f"{np.size(is_unbounded):,} rows is too large for level={self.level_:g}, so their "
                f"{self.unbounded}. Calibrate on rows like them, or lower `max_ratio` of "
                "estimate_density_ratio."
            )
            warnings.warn(text, DubitoWarning, stacklevel=stacklevel)

    @property
    def _more_rows(self) -> str:
        """An addition to the remedy for too few rows: in which part of them."""
        return " in each group" if self.is_grouped_ else ""

    def _warn_without_threshold(self, level: float) -> None:
        needed = rows_needed(level)
        without = [group for group, threshold in self.thresholds_.items() if threshold is None]
        few = [group for group in without if self.n_rows_[group] < needed]
        infinite = [group for group in without if group not in few]
        more_rows = f"Use at least {needed:,} rows{self._more_rows}"
        for groups, why, fix in (
            (few, f"too few rows for level={level:g}", more_rows),
            (infinite, "too many infinite scores", "Use method='absolute'"),
        ):
            if groups:
                counts = [f"{self.n_rows_[group]:g}" for group in groups[:5]]
                if list(self.n_rows_) != [ALL]:
                    counts = [f"{g}: {n}" for g, n in zip(groups, counts, strict=False)]
                where = ", ".join(counts) + (", ..." if len(groups) > 5 else "")
                text = f"{type(self).__name__}: {why} ({where}), so {self.unbounded}. {fix}."
                warnings.warn(text, DubitoWarning, stacklevel=3)


def require_as_fitted(
    argument: str, is_given: bool, was_given: bool, caller: str, noun: str = "groups"
) -> None:
    """Raise unless an argument is given exactly if it was given during fit."""
    if is_given != was_given:
        fix = f"Pass {argument}, or fit without"
        if is_given:
            fix = f"Leave out {argument}, or pass {argument} to fit as well"
        rule = f"was fitted with{'' if was_given else 'out'} {noun}"
        got = noun if is_given else "none"
        raise BadTypeError("", caller.partition(".")[0], rule, got, fix)


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
        return sum(part.score.size for part in self.parts)

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
        scores = np.concatenate([part.score for part in self.parts])
        return rank_scores(scores, np.concatenate([part.weight for part in self.parts]))


def rank_scores(scores: FloatArray, weight: FloatArray) -> RankingState:
    """Return the distinct scores in increasing order with their weights; none is positive."""
    return RankingState.of_scores(np.zeros(len(scores)), scores, weight)


def _in_cells(state: RankingState, n_cells: int) -> RankingState:
    """Return scores rounded up to the largest of their cell, unchanged if they are few."""
    if state.score.size <= n_cells:
        return state
    ends = np.cumsum(state.weight)
    cells = np.ceil(ends * (n_cells / ends[-1]))
    is_last = np.append(cells[1:] != cells[:-1], True)
    weight = np.diff(ends[is_last], prepend=0.0)
    return RankingState(state.score[is_last], weight, np.zeros(weight.size))


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


def _threshold(state: RankingState, level: float, new_weight: float = 1.0) -> float | None:
    """Return the smallest score that covers `level` of the rows and a new one, None if none."""
    # Not ceil((n + 1) level): a ratio of integers rounds in the same way as the level itself.
    is_reached = np.cumsum(state.weight) / (new_weight + state.weight.sum()) >= level
    threshold = float(state.score[np.argmax(is_reached)]) if is_reached.any() else np.inf
    return threshold if np.isfinite(threshold) else None


def _finite_scores(state: RankingState) -> dict[str, Any]:
    """Return the finite scores of a group with their weights, and the weight of all scores."""
    is_finite = np.isfinite(state.score)
    return {
        "scores": freeze(state.score[is_finite]),
        "weight": freeze(state.weight[is_finite]),
        "total": float(state.weight.sum()),
    }


def _weighted_thresholds(group: dict[str, Any], level: float, ratio: FloatArray) -> FloatArray:
    """Return the threshold of each new row by its own weight, infinite if there is none.

    The rule is that of `_threshold`, of which a search by product may miss a tie by one.
    """
    reached, total = np.cumsum(group["weight"]), ratio + group["total"]
    scores, reached = np.append(group["scores"], np.inf), np.append(reached, np.inf)
    at = np.searchsorted(reached, level * total)
    before = np.maximum(at - 1, 0)
    is_reached = [reached[one] / np.where(total > 0, total, 1.0) >= level for one in (before, at)]
    at = np.where(is_reached[0], before, np.where(is_reached[1], at, at + 1))
    return np.asarray(scores[np.minimum(at, scores.size - 1)])


def _ratio_of_shards(density_ratio: Any, shards: Shards, caller: str) -> FloatArray | None:
    """Return the density ratio of calibration rows, which must be in memory."""
    if density_ratio is None:
        return None
    if (held := shards.in_memory) is None:
        rule, got = "must be None where rows are streamed", type(density_ratio).__name__
        raise BadTypeError("density_ratio", caller, rule, got, READ_ROWS)
    return _as_ratio(density_ratio, len(held), caller)


def _as_ratio(density_ratio: Any, n_rows: int, caller: str) -> FloatArray:
    """Return one density ratio per row: finite, none negative."""
    ratio = as_numbers(density_ratio, "density_ratio", caller, n_rows).astype(np.float64)
    rule, fix = "must be from 0 to 1e100", "Pass ratios of densities, not their logarithms"
    require_everywhere((ratio >= 0) & (ratio <= 1e100), ratio, "density_ratio", caller, rule, fix)
    return ratio


def class_probabilities(outputs: Logits | Probabilities) -> FloatArray:
    """Return the probabilities of classes in float64, in rows of sum 1."""
    values = outputs.array.astype(np.float64)
    if isinstance(outputs, Logits):
        return np.asarray(softmax(values, axis=1))
    return np.asarray(values / values.sum(axis=1, keepdims=True))


def rows_needed(level: float) -> int:
    """Return the number of rows from which there is a threshold.

    >>> rows_needed(0.9)
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


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DensityRatio:
    """Estimated density ratios of two samples, as conformal predictors take them.

    Attributes
    ----------
    calibration, new : ndarray
        The ratio at each calibration row, for `fit`, and at each new row, for `predict`.
    n_clipped : int
        How many of both were clipped at `max_ratio` or its inverse.
    max_ratio : float
        The largest ratio.
    """

    calibration: FloatArray
    new: FloatArray
    n_clipped: int
    max_ratio: float

    @property
    def effective_rows(self) -> float:
        """The number of equally weighted rows that the calibration rows are worth (Kish)."""
        return float(self.calibration.sum() ** 2 / (self.calibration**2).sum())

    def __repr__(self) -> str:
        n_rows, effective = self.calibration.size, self.effective_rows
        clipped = f"{self.n_clipped:,} clipped at {self.max_ratio:g} or its inverse"
        return (
            f"DensityRatio: {n_rows:,} calibration rows count as {effective:,.0f} "
            f"({percent(effective / n_rows, 0)}) for {self.new.size:,} new ones.\n"
            f"Ratios from {self.calibration.min():.2g} to {self.calibration.max():.2g}, {clipped}."
        )


def estimate_density_ratio(
    features: Any,
    new_features: Any,
    classifier: Any = None,
    max_ratio: float = MAX_RATIO,
    random_state: int = 0,
) -> DensityRatio:
    """Return how much more likely each row's features are among new rows than calibration rows.

    A classifier is trained to tell new rows from calibration rows; its odds, out of fold, are the
    ratio. Conformal predictors use it to correct for covariate shift: with the true ratio their
    coverage holds on the new distribution, with an estimate approximately.

    Parameters
    ----------
    features, new_features : array-like of shape (n_rows, n_features)
        Features of calibration rows and of new rows; no labels are needed.
    classifier : scikit-learn classifier, optional
        With `predict_proba`; by default logistic regression on standardized features.
    max_ratio : float, default=100
        Ratios are clipped to [1 / max_ratio, max_ratio].
    random_state : int, default=0
        The seed of the folds.

    Returns
    -------
    DensityRatio
        Both ratios, with the effective number of calibration rows.

    References
    ----------
    Tibshirani, Foygel Barber, Candès and Ramdas, "Conformal prediction under covariate shift",
    2019.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.doubt import estimate_density_ratio
    >>> rng = np.random.default_rng(0)
    >>> known, new = rng.normal(0, 1, (1000, 1)), rng.normal(0.5, 1, (500, 1))
    >>> ratio = estimate_density_ratio(known, new)
    >>> ratio
    DensityRatio: 1,000 calibration rows count as 706 (71 %) for 500 new ones.
    Ratios from 0.07 to 5.2, 0 clipped at 100 or its inverse.
    >>> float(np.corrcoef(np.log(ratio.calibration), known[:, 0])[0, 1].round(2))
    1.0
    """
    from sklearn.base import clone
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import StratifiedKFold, cross_val_predict
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    caller = "estimate_density_ratio"
    as_number(max_ratio, "max_ratio", caller, 1, fix="Use max_ratio=100")
    both = []
    for argument, value in (("features", features), ("new_features", new_features)):
        matrix = as_feature_matrix(value, caller, argument)
        if len(matrix) < 2:
            rule, fix = "must have at least 2 rows", "Collect more rows"
            raise BadValueError(argument, caller, rule, f"{len(matrix)}", fix)
        both.append(matrix)
    if both[0].shape[1] != both[1].shape[1]:
        rule, fix = f"must have {both[0].shape[1]} columns, like features", "Pass the same columns"
        raise BadValueError("new_features", caller, rule, f"{both[1].shape[1]}", fix)
    n_rows = len(both[0])
    is_new = np.repeat([0, 1], [n_rows, len(both[1])])
    if classifier is None:
        classifier = make_pipeline(StandardScaler(), LogisticRegression())
    n_folds = min(N_FOLDS, *np.bincount(is_new))
    folds = StratifiedKFold(n_folds, shuffle=True, random_state=random_state)
    rows = np.concatenate(both)
    p = cross_val_predict(clone(classifier), rows, is_new, cv=folds, method="predict_proba")
    with np.errstate(divide="ignore"):
        odds = p[:, 1] / p[:, 0] * (n_rows / len(both[1]))
    ratio = np.clip(odds, 1 / max_ratio, max_ratio)
    n_clipped = int((ratio != odds).sum())
    return DensityRatio(freeze(ratio[:n_rows]), freeze(ratio[n_rows:]), n_clipped, float(max_ratio))
