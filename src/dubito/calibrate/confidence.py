"""Scores of any range to the probability that an answer is correct."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, NamedTuple, Self, final

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, log_expit, logsumexp, ndtr

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    RandomState,
    as_count,
    as_fraction,
    draw_seed,
    require_everywhere,
)
from dubito.calibrate.calibrator import BaseCalibrator, correct_answers, drop_unlabeled
from dubito.data.batch import Batch
from dubito.data.shards import Shards, sample_rows
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.formatting import quantity
from dubito.measure.state import require_weight
from dubito.outputs import BaseOutputs, Logits, Probabilities, Scores, TopLabel, unchecked
from dubito.serialization.array_fields import array
from dubito.serialization.fields import (
    Entry,
    boolean,
    converted,
    dict_of,
    fitted,
    integer,
    list_of,
    number,
    optional,
    text,
)
from dubito.serialization.objects import Record, record_of, stores_fields

MAX_SAMPLES = 20_000  # of more rows a random sample is used: the model has few parameters
MAX_GROUPS = 200  # of more, the smallest share the coefficients of all rows
HINGES = np.array([-1.5, -0.75, 0.0, 0.75, 1.5])  # standard deviations, where slopes may change
SHARPNESS = 3.0  # of these changes
BEYOND = 8.0  # log odds from the most extreme probability to an exact 0 or 1, which was rounded
MIN_PERCENTAGE = 20.0  # scores up to less than this are not on a scale from 0 to 100
MARGIN = 1.0  # standard deviations that other scores may be outside the range of the fit
INTERCEPT_VARIANCE = 9.0  # of the prior of the log odds of correct at the mean scores
# Inverse gamma priors of the variances of coefficients: shape, and scale (of slopes and hinges
# divided by the number of scores).
PRIORS = {
    "intercept": (0.5, 0.5),
    "slopes": (0.5, 3.0),
    "hinges": (0.5, 0.05),
    "missing": (0.5, 0.5),
    "group_intercepts": (0.5, 0.1),
    "group_slopes": (0.5, 0.05),
}
FLEXIBLE_HINGES = 15.0  # the scale for a model that bends freely, which intervals are based on
BLOCKS = tuple(PRIORS)
# Standard deviations of the intercepts and slopes of groups that intervals are averaged over.
GROUP_DEVIATIONS = np.array([0.1, 0.2, 0.4, 0.7, 1.2, 2.2])
SLOPE_DEVIATIONS = np.array([0.1, 0.3, 0.8])
N_ROUNDS, VARIANCE_TOLERANCE = 60, 0.01
N_NEWTON, STEP_TOLERANCE, MAX_STEP = 30, 1e-8, 3.0
# The log of the prior weight of a flexible model in the mixture, and the lowest weight of others.
FLEXIBLE_PRIOR, MIN_WEIGHT, MIN_INTERVAL_WEIGHT = -3.0, 0.001, 0.02
N_HALVINGS = 40
ANSWER_COLUMNS = ("p_correct", "p_correct_low", "p_correct_high")
BASE_RATE = (
    "No score was declared a probability (--confidence), so the uncalibrated baseline is the base "
    "rate."
)


def no_better(has_confidence: bool) -> str:
    """Return a warning of probabilities that held-out rows do not show to be of any use."""
    than = "the confidence as it is" if has_confidence else "the base rate"
    return f"P(correct) is not better out of sample than {than}: collect more rows."


class _Design(NamedTuple):
    """Rows of a logistic regression: features, the block of each, offsets, targets and weights."""

    features: FloatArray
    blocks: IntArray
    offset: FloatArray
    targets: FloatArray
    weight: FloatArray

    def take(self, rows: BoolArray) -> _Design:
        by_row = (self.offset[rows], self.targets[rows], self.weight[rows])
        return _Design(self.features[rows], self.blocks, *by_row)

    def log_likelihood(self, odds: FloatArray) -> float:
        """Return the log likelihood of the targets at these log odds."""
        y = self.targets
        return float(self.weight @ (y * log_expit(odds) + (1 - y) * log_expit(-odds)))

    def posterior(self, variances: FloatArray, start: FloatArray) -> _Posterior:
        """Return the mode of the coefficients by Newton's method, and their covariance there."""
        features, precision = self.features, 1 / variances[self.blocks]
        mean = start
        for _ in range(N_NEWTON):
            p = expit(self.offset + features @ mean)
            gradient = features.T @ (self.weight * (p - self.targets)) + precision * mean
            curvature = (self.weight * p * (1 - p))[:, np.newaxis]
            covariance = np.linalg.inv((features * curvature).T @ features + np.diag(precision))
            step = covariance @ gradient
            longest = np.abs(features @ step).max()
            mean = mean - step * min(1.0, MAX_STEP / max(longest, 1e-300))
            if longest < STEP_TOLERANCE:
                break
        return _Posterior(mean, (covariance + covariance.T) / 2, variances)


class _Kind(NamedTuple):
    """Which model is fitted: see `ScoreModel`."""

    has_offset: bool
    is_compressed: bool
    is_flexible: bool


class _ScoreKinds(NamedTuple):
    """Per score: whether it lies between 0 and 1, and whether it is missing in some rows."""

    is_probability: BoolArray
    has_missing: BoolArray

    @classmethod
    def of(cls, scores: FloatArray) -> _ScoreKinds:
        is_missing = np.isnan(scores)
        is_fraction = ((scores >= 0) & (scores <= 1)) | is_missing
        return cls(np.asarray(is_fraction.all(axis=0)), np.asarray(is_missing.any(axis=0)))


class _Posterior(NamedTuple):
    """The mode, the covariance and the variances of the priors of coefficients."""

    mean: FloatArray
    covariance: FloatArray
    variances: FloatArray


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class ScoreModel(Record):
    """A logistic regression on scores, with the covariance of its coefficients.

    The log odds of correct are an intercept, a slope and five hinges (bends) per score, and an
    intercept and a slope per group; each kind of coefficient has a normal prior whose variance is
    estimated. With an offset, coefficients describe the difference from the model's own log odds.
    """

    has_header: ClassVar[bool] = False

    weight: Annotated[float, number(1e-300, 1)]
    has_offset: Annotated[bool, boolean]
    is_compressed: Annotated[bool, boolean]
    is_flexible: Annotated[bool, boolean]
    center: Annotated[FloatArray, array(None)]
    scale: Annotated[FloatArray, array("center", low=1e-30)]
    mean: Annotated[FloatArray, array(None)]
    covariance: Annotated[FloatArray, array("mean", "mean")]
    variances: Annotated[FloatArray, array(len(BLOCKS), low=0)]
    index: Annotated[FloatArray, array("center")]
    group_mean: Annotated[FloatArray | None, optional(array(None, 2))] = None
    group_cross: Annotated[FloatArray | None, optional(array("group_mean", 2, "mean"))] = None
    group_covariance: Annotated[FloatArray | None, optional(array("group_mean", 2, 2))] = None

    def log_odds(
        self, values: FloatArray, kinds: _ScoreKinds, offset: FloatArray, groups: IntArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return the mean and the variance of the log odds of each row."""
        standardized = _standardized(self, values, kinds.is_probability)
        features = _features(standardized, values, kinds.has_missing)[0]
        mean = features @ self.mean + (offset if self.has_offset else 0.0)
        variance = np.einsum("ij,jk,ik->i", features, self.covariance, features)
        means, cross, covariance = self.group_mean, self.group_cross, self.group_covariance
        if means is None or cross is None or covariance is None:
            return mean, np.maximum(variance, 0.0)
        of_group = np.column_stack([np.ones(len(values)), standardized @ self.index])
        is_known = groups >= 0
        g, own, among = groups[is_known], of_group[is_known], features[is_known]
        mean[is_known] += (own * means[g]).sum(axis=1)
        variance[is_known] += np.einsum("ia,iab,ib->i", own, covariance[g], own)
        variance[is_known] += 2 * np.einsum("ia,iap,ip->i", own, cross[g], among)
        # A new group differs as those of the fit do.
        variance[~is_known] += of_group[~is_known] ** 2 @ self.variances[-2:]
        return mean, np.maximum(variance, 0.0)


@final
class ConfidenceCalibrator(BaseCalibrator):
    """Turn one or several scores of any range into the probability that an answer is correct.

    For language models, whose answers come with a score rather than with class probabilities: a
    token probability, a sequence log-probability, a verbalized 0-100, the agreement of several
    samples, a judge's grade. Made for 50 to 500 rows. Log odds of correct are a slope and slight
    bends per score, shrunk as far as the rows suggest; scores between 0 and 1 enter by their log
    odds, where exact 0 and 1 lie a little beyond all others. Models that shrink towards the base
    rate and towards the confidence as it is are mixed by their cross-validated log loss. Groups,
    such as subjects, get an intercept and a slope of their own, shrunk towards those of all rows.

    Parameters
    ----------
    cv : int, default=5
        Number of folds that determine the weights of the mixture.
    random_state : int, RandomState or None, default=0
        Seed of the folds, and of the sample of more than 20,000 rows.

    Attributes
    ----------
    names_ : tuple of str or None
        The names of the scores.
    groups_ : tuple of str
        Groups with coefficients of their own: the 200 largest ones.
    base_rate_ : float
        The fraction of correct answers.
    n_rows_ : int
        Number of rows of the fit.
    n_scores_ : int
        The number of scores per row.
    offset_column_ : int or None
        The score that is a confidence, towards which some of the models shrink: the one that is
        declared so, or else the first score if it lies between 0 and 1 (the order matters there).
    is_probability_, has_missing_ : array of bool of shape (n_scores,)
        Whether a score lies between 0 and 1, and whether the fit had rows without it.
    low_, high_ : array of shape (n_scores,)
        The range of each score in the fit; beyond it, scores count as its ends.
    models_ : list of ScoreModel
        The models of the mixture, with their weights and coefficients.
    interval_models_ : list of ScoreModel
        Models of several variances between groups, which intervals are based on; none without
        groups.
    columns_ : dict of str to str, or None
        The columns of the file of a fit on the command line, by role, and their unit.

    See Also
    --------
    cross_validate_calibrator : Whether the probabilities are calibrated, on held-out rows.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import ConfidenceCalibrator
    >>> rng = np.random.default_rng(0)
    >>> log_probability = -rng.exponential(2, 300)
    >>> correct = rng.random(300) < np.exp(log_probability / 3)
    >>> calibrator = ConfidenceCalibrator().fit(log_probability, correct)
    >>> calibrator.predict_proba([-0.1, -6.0])[:, 1].round(2).tolist()
    [0.91, 0.09]
    >>> calibrator.predict_interval([-0.1, -6.0]).round(2).tolist()
    [[0.88, 0.98], [0.05, 0.23]]
    """

    _label_argument = "correct"
    _kinds: _ScoreKinds | None = None  # of all rows, for fits on folds of them

    n_scores_: int = fitted(integer(1))
    names_: tuple[str, ...] | None = fitted(optional(converted(tuple, list_of(text, "n_scores_"))))
    offset_column_: int | None = fitted(optional(integer()))
    is_probability_: BoolArray = fitted(converted(np.array, list_of(boolean, "n_scores_")))
    has_missing_: BoolArray = fitted(converted(np.array, list_of(boolean, "n_scores_")))
    low_: FloatArray = fitted(array("n_scores_"))
    high_: FloatArray = fitted(array("n_scores_"))
    groups_: tuple[str, ...] = fitted(converted(tuple, list_of(text)))
    base_rate_: float = fitted(number(0, 1))
    n_rows_: int = fitted(integer(1))
    models_: list[ScoreModel] = fitted(list_of(record_of(ScoreModel)))
    interval_models_: list[ScoreModel] = fitted(list_of(record_of(ScoreModel)))
    columns_: dict[str, str] | None = fitted(optional(dict_of(text)))

    def __init__(self, cv: int = 5, random_state: RandomState = 0) -> None:
        self.cv = cv
        self.random_state = random_state

    def fit(
        self, scores: Any, correct: Any = None, sample_weight: Any = None, *, groups: Any = None
    ) -> Self:
        """Fit the calibrator.

        Parameters
        ----------
        scores : array, dict, data frame, Scores, TopLabel or Shards
            One score per row, or several (rows x scores). `TopLabel` holds `correct` itself.
        correct : array of shape (n_rows,), optional
            Whether each answer is correct: booleans, or numbers from 0 (wrong) to 1. Rows where it
            is missing are left out with a warning.
        sample_weight : array of shape (n_rows,), optional
            Frequency weights.
        groups : array of shape (n_rows,), optional
            The group of each row, such as its subject or the model that answered.

        Returns
        -------
        ConfidenceCalibrator
        """
        if not isinstance(scores, TopLabel) or correct is None:  # the base class refuses both
            is_split = isinstance(scores, TopLabel) and groups is not None
            correct = scores.correct if is_split else correct
            scores = _with_groups(scores, groups)
        return super().fit(scores, correct, sample_weight)

    def predict_proba(self, scores: Any, groups: Any = None) -> FloatArray:
        """Return the probabilities of wrong and of correct.

        Parameters
        ----------
        scores : array, dict, data frame, Scores or TopLabel
            The scores of the fit; those of a dict or data frame are matched by name.
        groups : array of shape (n_rows,), optional
            The group of each row. One that the fit did not see is treated as an average group.

        Returns
        -------
        array of shape (n_rows, 2)
        """
        return super().predict_proba(_with_groups(scores, groups))

    def predict_interval(
        self, scores: Any, groups: Any = None, *, level: float = 0.95
    ) -> FloatArray:
        """Return an interval for P(correct) of each row: how well the rows of the fit determine it.

        Parameters
        ----------
        level : float, default=0.95
            The posterior probability of the interval.
        scores : array, dict, data frame, Scores or TopLabel
            The scores of the fit; those of a dict or data frame are matched by name.
        groups : array of shape (n_rows,), optional
            The group of each row. One that the fit did not see is treated as an average group.

        Returns
        -------
        array of shape (n_rows, 2)
            Lower and upper ends.
        """
        caller = "ConfidenceCalibrator.predict_interval"
        tail = (1 - as_fraction(level, "level", caller, is_open=True)) / 2
        known = self._check_outputs(_with_groups(scores, groups), "predict_interval")
        flexible = self.interval_models_ or [one for one in self.models_ if one.is_flexible]
        parts = self._posteriors(known, flexible)
        low, high = (expit(_mixture_quantile(parts, q)) for q in (tail, 1 - tail))
        p = self._predict_proba(known)[:, 1]
        return np.column_stack([np.minimum(low, p), np.maximum(high, p)])

    @property
    def is_curve(self) -> bool:
        """Whether P(correct) depends on the model's own probability alone."""
        return self.n_scores_ == 1 and self.offset_column_ is not None and not self.groups_

    def _check_params(self) -> None:
        as_count(self.cv, "cv", type(self).__name__, 2)

    def _check_fitted(self, entry: Entry) -> None:
        n, n_groups = self.n_scores_, len(self.groups_)
        size = 1 + n * (1 + HINGES.size) + int(self.has_missing_.sum())
        column = self.offset_column_
        if column is not None and (column >= n or not self.is_probability_[column]):
            raise entry.at("offset_column_").error("the number of a probability", f"{column}")
        if (self.low_ >= self.high_).any():
            raise entry.at("low_").error("below high_", "others")
        if not any(one.is_flexible for one in self.models_):
            raise entry.at("models_").error("must have a flexible model", "none")
        places = {f"models_[{k}]": one for k, one in enumerate(self.models_)}
        places |= {f"interval_models_[{k}]": one for k, one in enumerate(self.interval_models_)}
        for name, one in places.items():
            place = entry.at(name)
            if one.center.size != n or one.mean.size != size:
                got = f"{one.center.size} and {one.mean.size}"
                raise place.error(f"must be for {n} scores and {size} coefficients", got)
            parts = one.group_mean, one.group_cross, one.group_covariance
            if any((0 if part is None else len(part)) != n_groups for part in parts):
                raise place.at("group_mean").error(f"of {quantity(n_groups, 'group')}", "others")
            if one.has_offset and column is None:
                raise place.at("has_offset").error("false without a probability", "true")

    def _fold_copy(self, outputs: Any) -> BaseCalibrator:
        twin = self._unfitted_copy()
        twin.__dict__["_kinds"] = _ScoreKinds.of(_as_scores(outputs, type(self).__name__).array)
        return twin

    def _as_outputs(self, outputs: Any, caller: str) -> Scores:
        return _as_scores(outputs, caller)

    def _uncalibrated(self, batch: Batch) -> Probabilities:
        """Return the model's own probabilities, or the base rate if no score is a probability."""
        scores = _as_scores(batch.outputs, type(self).__name__)
        if scores.confidence_column is not None:
            return scores.probabilities(type(self).__name__)
        rate = float(np.average(correct_answers(batch), weights=batch.labeled_weight))
        return Probabilities(np.tile([1 - rate, rate], (len(batch), 1)), scores.classes)

    def _check_outputs(self, outputs: Any, method: str) -> Scores:
        self._require_fitted(method)
        caller = f"{type(self).__name__}.{method}"
        scores = _in_order(_as_scores(outputs, caller), self.names_, self.n_scores_, caller)
        names = self.names_ or tuple(map(str, range(self.n_scores_)))
        for k, name in enumerate(names):
            column, argument = scores.array[:, k], f"scores[{name!r}]" if self.names_ else "scores"
            if not self.has_missing_[k]:
                fix = "Fit with rows in which it is missing, or leave this row out"
                rule = "was never missing during fit"
                require_everywhere(~np.isnan(column), column, argument, caller, rule, fix)
            if self.is_probability_[k]:
                is_fraction = ((column >= 0) & (column <= 1)) | np.isnan(column)
                fix = "Write fractions, as for the fit"
                rule = "must be between 0 and 1, as during fit"
                require_everywhere(is_fraction, column, argument, caller, rule, fix)
            elif self.high_[k] > MIN_PERCENTAGE and method != "predict_interval":
                known = column[~np.isnan(column)]
                if ((known >= 0) & (known <= 1)).all() and ((known > 0) & (known < 1)).any():
                    text = (
                        f"{type(self).__name__}: `{argument}` is between 0 and 1 in every row, and "
                        "was far above 1 during fit. Multiply fractions by 100 if the fit had "
                        "percentages."
                    )
                    warnings.warn(text, DubitoWarning, 4 + (method == "predict_proba"))
        return scores

    def _learn(self, shards: Shards) -> None:
        seed = draw_seed(self.random_state, type(self).__name__)
        batch = drop_unlabeled(sample_rows(shards, MAX_SAMPLES, seed, is_labeled=True))
        require_weight(len(batch), "A calibrator")
        scores = _as_scores(batch.outputs, type(self).__name__)
        targets, weight = correct_answers(batch), batch.labeled_weight
        self.n_scores_, self.names_ = scores.n_scores, scores.names
        self.base_rate_ = float(np.average(targets, weights=weight))
        self.n_rows_, self.columns_ = len(batch), None
        self._learn_ranges(scores.array)
        column = 0 if scores.confidence_column is None else scores.confidence_column
        self.offset_column_ = column if self.is_probability_[column] else None
        self.groups_ = _largest_groups(scores, weight)
        values, groups = self._transformed(scores.array), self._group_numbers(scores)
        fold_of = np.random.default_rng(seed).permutation(len(batch)) % min(self.cv, len(batch))
        kinds = [
            _Kind(has_offset, is_compressed, is_flexible)
            for is_compressed in ((False,) if self.is_probability_.all() else (False, True))
            for has_offset, is_flexible in ((False, False), (True, False), (False, True))
            if not has_offset or self.offset_column_ is not None
        ]
        found = [self._fit_model(values, targets, weight, groups, fold_of, kind) for kind in kinds]
        likelihoods = np.array(
            [value + FLEXIBLE_PRIOR * one.is_flexible for one, value, _ in found]
        )
        weights = np.maximum(np.exp(likelihoods - logsumexp(likelihoods)), 1e-12).tolist()
        self.models_, spread = [], []
        for (model, _, parts), mixed in zip(found, weights, strict=True):
            if mixed >= MIN_WEIGHT or model.is_flexible:
                self.models_.append(replace(model, weight=mixed))
            spread += [replace(one, weight=one.weight * mixed) for one in parts]
        total = sum(one.weight for one in spread)
        self.interval_models_ = [
            replace(one, weight=one.weight / total)
            for one in spread
            if one.weight >= MIN_INTERVAL_WEIGHT * total
        ]

    def _learn_ranges(self, scores: FloatArray) -> None:
        """Set which scores are probabilities, and the range that each is limited to."""
        is_unknown = np.isnan(scores).all(axis=0)
        if is_unknown.any() and self._kinds is None:
            k = int(is_unknown.argmax())
            name = k if self.names_ is None else repr(self.names_[k])
            rule, fix = "must be known in some rows", "Leave this score out"
            raise BadValueError(f"scores[{name}]", type(self).__name__, rule, "NaN in all", fix)
        self.is_probability_, self.has_missing_ = self._kinds or _ScoreKinds.of(scores)
        self.low_, self.high_ = np.zeros(self.n_scores_), np.ones(self.n_scores_)
        for k in np.flatnonzero(~is_unknown).tolist():
            column = scores[~np.isnan(scores[:, k]), k]
            if self.is_probability_[k]:
                inside = column[(column > 0) & (column < 1)]
                odds = np.log(inside) - np.log1p(-inside) if inside.size else np.zeros(1)
                margin = BEYOND
            else:
                odds, margin = column, MARGIN * max(float(column.std()), 1e-9)
            self.low_[k], self.high_[k] = odds.min() - margin, odds.max() + margin

    def _transformed(self, scores: FloatArray) -> FloatArray:
        """Return log odds of probabilities, other scores as they are; both within their range."""
        values = scores.copy()
        p = scores[:, self.is_probability_]
        with np.errstate(divide="ignore"):
            values[:, self.is_probability_] = np.log(p) - np.log1p(-p)
        return np.clip(values, self.low_, self.high_)

    def _group_numbers(self, scores: Scores) -> IntArray:
        """Return the number of the group of each row, -1 for one that has no coefficients."""
        if scores.groups is None or not self.groups_:
            return np.full(scores.n_rows, -1)
        numbers = {name: k for k, name in enumerate(self.groups_)}
        names, place = np.unique(scores.groups.astype(str), return_inverse=True)
        found = np.array([numbers.get(str(one), -1) for one in names], dtype=np.int64)[place]
        return np.where(_has_group(scores.groups), found, -1)

    def _fit_model(
        self,
        values: FloatArray,
        targets: FloatArray,
        weight: FloatArray,
        groups: IntArray,
        fold_of: IntArray,
        kind: _Kind,
    ) -> tuple[ScoreModel, float, list[ScoreModel]]:
        """Return a model, the log likelihood of all rows by fits without their fold, and others.

        These are the model with other variances between groups, if it is flexible.
        """
        center, scale = _location(values, weight, kind.is_compressed)
        n_groups, m = len(self.groups_), self.n_scores_
        unknown = (np.empty(0), np.empty((0, 0)), np.empty(len(BLOCKS)))
        model = ScoreModel(1.0, *kind, center, scale, *unknown, index=np.zeros(m))
        standardized = _standardized(model, values, self.is_probability_)
        features, blocks = _features(standardized, values, self.has_missing_)
        size = blocks.size
        offset = self._offset(values) * kind.has_offset
        design = _Design(features, blocks, offset, targets, weight)
        found = _estimate(design, m, kind)
        if n_groups:
            slopes = found.mean[1 : m + 1].copy()
            if kind.has_offset:
                slopes[self.offset_column_] += scale[self.offset_column_]
            index = standardized @ slopes
            spread = np.sqrt(np.average((index - index.mean()) ** 2, weights=weight))
            model = replace(model, index=slopes / spread if spread > 1e-6 else np.zeros(m))
            design = _with_group_features(design, groups, standardized @ model.index, n_groups)
            found = _estimate(design, m, kind)
        likelihood = _cross_validated_likelihood(design, found, fold_of)
        has_others = n_groups and kind.is_flexible
        others = [
            _fitted_model(replace(model, weight=share), one, size, n_groups)
            for share, one in (_group_posteriors(design, found) if has_others else [])
        ]
        return _fitted_model(model, found, size, n_groups), likelihood, others

    def _posteriors(
        self, scores: Scores, models: Sequence[ScoreModel]
    ) -> list[tuple[float, FloatArray, FloatArray]]:
        """Return the weight of each model, and the mean and variance of its log odds."""
        values, total = self._transformed(scores.array), sum(one.weight for one in models)
        kinds = _ScoreKinds(self.is_probability_, self.has_missing_)
        rows = values, kinds, self._offset(values), self._group_numbers(scores)
        return [(one.weight / total, *one.log_odds(*rows)) for one in models]

    def _offset(self, values: FloatArray) -> FloatArray:
        """Return the log odds of the model's own probability, 0 if it is unknown."""
        column = self.offset_column_
        return np.zeros(len(values)) if column is None else np.nan_to_num(values[:, column])

    def _logits(self, outputs: Any) -> FloatArray:
        parts = [
            np.log(weight) + log_expit(np.outer(_moderated(mean, variance), [-1.0, 1.0]))
            for weight, mean, variance in self._posteriors(outputs, self.models_)
        ]
        return np.asarray(logsumexp(parts, axis=0))

    def _numbers_per_row(self) -> int:
        return 4 * self.models_[0].mean.size

    def _describe(self) -> str:
        named = "" if self.names_ is None else f" ({', '.join(self.names_)})"
        scores, rows = quantity(self.n_scores_, "score"), quantity(self.n_rows_, "row")
        groups = (
            f", {quantity(len(self.groups_), 'group')} partially pooled" if self.groups_ else ""
        )
        return f"P(correct) from {scores}{named}, fitted on {rows}{groups}"


def answer_columns(calibrator: ConfidenceCalibrator, scores: Any) -> dict[str, FloatArray]:
    """Return P(correct) and its 95 % interval as the columns of a table."""
    interval = calibrator.predict_interval(scores)
    p = calibrator._predict_proba(scores)[:, 1]
    return dict(zip(ANSWER_COLUMNS, (p, *interval.T), strict=True))


def _as_scores(outputs: Any, caller: str) -> Scores:
    """Return scores unchanged, and the confidence of top labels or arrays as scores."""
    if isinstance(outputs, Scores):
        return outputs
    if isinstance(outputs, TopLabel):
        return Scores(outputs.confidence, ["confidence"], confidence=0)
    if isinstance(outputs, Probabilities | Logits) and outputs.classes == ("wrong", "correct"):
        p = outputs.array[:, 1]
        if isinstance(outputs, Logits):
            p = expit(p - outputs.array[:, 0])
        return Scores(p, confidence=0)
    if isinstance(outputs, BaseOutputs):
        rule = "must be Scores, TopLabel, or an array, dict or data frame of scores"
        fix = "Pass the scores of the answers, such as Scores(outputs.array.max(axis=1))"
        raise BadTypeError("scores", caller, rule, type(outputs).__name__, fix)
    return Scores(outputs)


def _with_groups(scores: Any, groups: Any) -> Any:
    """Return scores with the group of each row, if these are given apart."""
    if groups is None:
        return scores
    known = _as_scores(scores, "ConfidenceCalibrator")
    return Scores(known.array, known.names, groups, known.confidence_column)


def _in_order(scores: Scores, names: tuple[str, ...] | None, n_scores: int, caller: str) -> Scores:
    """Return the scores of the fit, in the same order: by name, or as they are."""
    is_confidence = n_scores == 1 == scores.n_scores and scores.confidence_column is not None
    found = names if is_confidence else scores.names
    if names is not None and found is not None and found != names:
        absent = [name for name in names if name not in found]
        if absent:
            rule = f"must hold the scores of the fit, {', '.join(names)}"
            fix = "Pass the same columns"
            raise BadValueError("scores", caller, rule, f"no {absent[0]!r}", fix)
        columns = [found.index(name) for name in names]
        fields = {**scores._fields(), "array": scores.array[:, columns], "names": names}
        scores = unchecked(Scores, {**fields, "confidence_column": None})
    if scores.n_scores != n_scores:
        rule = f"must have {quantity(n_scores, 'score')} per row, as during fit"
        fix = "Pass the columns of the fit, in the same order"
        raise BadValueError("scores", caller, rule, f"{scores.n_scores}", fix)
    return scores


def _has_group(groups: NDArray[Any]) -> BoolArray:
    """Return which rows have a group: it is not None, NaN, or empty."""
    return np.array([one is not None and one == one and one != "" for one in groups.tolist()], bool)


def _largest_groups(scores: Scores, weight: FloatArray) -> tuple[str, ...]:
    """Return the names of the groups with the most rows, in alphabetical order."""
    if scores.groups is None:
        return ()
    is_known = _has_group(scores.groups)
    names, place = np.unique(scores.groups[is_known].astype(str), return_inverse=True)
    largest = np.argsort(-np.bincount(place, weight[is_known]), kind="stable")[:MAX_GROUPS]
    return tuple(str(names[k]) for k in np.sort(largest))


def _location(
    values: FloatArray, weight: FloatArray, is_robust: bool
) -> tuple[FloatArray, FloatArray]:
    """Return the center and the scale of each score: mean and deviation, or median and MAD."""
    center, scale = np.zeros(values.shape[1]), np.ones(values.shape[1])
    for k, column in enumerate(values.T):
        is_known = ~np.isnan(column)
        if not is_known.any():
            continue
        known, w = column[is_known], weight[is_known]
        center[k] = np.median(known) if is_robust else np.average(known, weights=w)
        scale[k] = np.sqrt(np.average((known - center[k]) ** 2, weights=w))
        if is_robust:
            scale[k] = np.median(np.abs(known - center[k])) or scale[k]
    return center, np.where(scale > 1e-9 * np.maximum(np.abs(center), 1e-9), scale, 1.0)


def _standardized(model: ScoreModel, values: FloatArray, is_probability: BoolArray) -> FloatArray:
    """Return standardized scores, 0 where missing; long tails are compressed on request."""
    standardized = np.nan_to_num((values - model.center) / model.scale)
    if model.is_compressed:
        tails = ~is_probability
        standardized[:, tails] = np.arcsinh(standardized[:, tails])
    return standardized


def _features(
    standardized: FloatArray, values: FloatArray, has_missing: BoolArray
) -> tuple[FloatArray, IntArray]:
    """Return 1, each score, its hinges and whether it is missing, and the block of each of these.

    Hinges are smooth, 0 at a standardized score of 0, and linear far from it.
    """
    n_rows, m = standardized.shape
    bends = np.logaddexp(0.0, SHARPNESS * (standardized[:, :, np.newaxis] - HINGES)) / SHARPNESS
    bends -= np.logaddexp(0.0, -SHARPNESS * HINGES) / SHARPNESS
    parts = [np.ones((n_rows, 1)), standardized, bends.reshape(n_rows, m * HINGES.size)]
    parts.append(np.isnan(values[:, has_missing]).astype(np.float64))
    blocks = np.repeat(np.arange(4), [part.shape[1] for part in parts])
    return np.hstack(parts), blocks


def _with_group_features(
    design: _Design, groups: IntArray, index: FloatArray, n_groups: int
) -> _Design:
    """Add an intercept and a slope per group."""
    of_group = (groups[:, np.newaxis] == np.arange(n_groups)).astype(np.float64)
    features = np.hstack([design.features, of_group, of_group * index[:, np.newaxis]])
    blocks = np.concatenate([design.blocks, np.repeat([4, 5], n_groups)])
    return design._replace(features=features, blocks=blocks)


def _fitted_model(model: ScoreModel, found: _Posterior, size: int, n_groups: int) -> ScoreModel:
    """Return a model with its coefficients, of which the first `size` are not those of groups."""
    mean, covariance, variances = found
    own: dict[str, Any] = {
        "mean": mean[:size],
        "covariance": covariance[:size, :size],
        "variances": variances,
    }
    if n_groups:
        among = covariance[size:, size:].reshape(2, n_groups, 2, n_groups)
        own |= {
            "group_mean": mean[size:].reshape(2, n_groups).T,
            "group_cross": covariance[size:, :size].reshape(2, n_groups, size).swapaxes(0, 1),
            "group_covariance": np.einsum("agbg->gab", among),  # of intercept and slope, 2 x 2
        }
    return replace(model, **own)


def _group_posteriors(design: _Design, found: _Posterior) -> list[tuple[float, _Posterior]]:
    """Return posteriors for several variances between groups, and their weights.

    With few groups the variance is hardly known: weights are marginal likelihoods by Laplace's
    approximation, times half-Cauchy priors of the deviations of intercepts and slopes.
    """
    logs = np.empty((len(GROUP_DEVIATIONS), len(SLOPE_DEVIATIONS)))
    posteriors: list[list[_Posterior]] = []
    for i, deviation in enumerate(GROUP_DEVIATIONS):
        posteriors.append([])
        for j, slope in enumerate(SLOPE_DEVIATIONS):
            variances = found.variances.copy()
            variances[-2:] = deviation**2, slope**2
            posterior, prior = design.posterior(variances, found.mean), variances[design.blocks]
            posteriors[i].append(posterior)
            logs[i, j] = design.log_likelihood(design.offset + design.features @ posterior.mean)
            logs[i, j] -= 0.5 * np.sum(posterior.mean**2 / prior + np.log(prior))
            logs[i, j] += 0.5 * np.linalg.slogdet(posterior.covariance)[1]
            # The density of the log of each deviation, in which the grid is about even.
            logs[i, j] += np.log(deviation / (1 + deviation**2)) + np.log(slope / (0.25 + slope**2))
    weights = np.exp(logs - logsumexp(logs))
    return [
        (float(some.sum()), _averaged(parts, some / some.sum()))
        for some, parts in zip(weights, posteriors, strict=True)
        if some.sum() >= MIN_INTERVAL_WEIGHT
    ]


def _averaged(parts: Sequence[_Posterior], weights: FloatArray) -> _Posterior:
    """Return the mean and the covariance of a mixture of normal distributions."""
    columns = map(np.array, zip(*parts, strict=True))
    mean, covariance, variances = (np.tensordot(weights, one, 1) for one in columns)
    away = np.array([one.mean for one in parts]) - mean
    return _Posterior(mean, covariance + (weights * away.T) @ away, variances)


def _estimate(design: _Design, n_scores: int, kind: _Kind) -> _Posterior:
    """Return coefficients and the variances of their priors, by expectation maximization."""
    priors = np.array([PRIORS[name] for name in BLOCKS])
    if kind.is_flexible:
        priors[BLOCKS.index("hinges"), 1] = FLEXIBLE_HINGES
    priors[1:3, 1] /= n_scores
    variances = np.array([1.0, 1.0, 0.1, 0.5, 0.2, 0.1])
    is_fixed = np.zeros(len(BLOCKS), dtype=bool)
    if not kind.has_offset:
        variances[0], is_fixed[0] = INTERCEPT_VARIANCE, True
    size = np.bincount(design.blocks, minlength=len(BLOCKS))
    found = _Posterior(np.zeros(design.blocks.size), np.empty(0), variances)
    for _ in range(N_ROUNDS):
        found = design.posterior(variances, found.mean)
        second = np.bincount(design.blocks, found.mean**2 + np.diag(found.covariance), len(BLOCKS))
        new = (second + 2 * priors[:, 1]) / (size + 2 * priors[:, 0] + 2)
        new = np.where(is_fixed | (size == 0), variances, new)
        change = np.abs(np.log(new / variances)).max()
        variances = new
        if change < VARIANCE_TOLERANCE:
            break
    return design.posterior(variances, found.mean)


def _cross_validated_likelihood(design: _Design, found: _Posterior, fold_of: IntArray) -> float:
    """Return the log likelihood of rows by fits without their fold, with the same priors."""
    total = 0.0
    for fold in range(fold_of.max() + 1):
        is_out = fold_of == fold
        if is_out.all():  # a single row
            continue
        fitted = design.take(~is_out).posterior(found.variances, found.mean)
        held_out = design.take(is_out)
        variance = np.einsum("ij,jk,ik->i", held_out.features, fitted.covariance, held_out.features)
        mean = held_out.offset + held_out.features @ fitted.mean
        total += held_out.log_likelihood(_moderated(mean, variance))
    return total


def _moderated(mean: FloatArray, variance: FloatArray) -> FloatArray:
    """Return log odds whose sigmoid is about the mean probability of normal log odds."""
    return np.asarray(mean / np.sqrt(1 + np.pi / 8 * variance))


def _mixture_quantile(parts: list[tuple[float, FloatArray, FloatArray]], q: float) -> FloatArray:
    """Return a quantile of a mixture of normal distributions, by bisection."""
    weights, means, variances = map(np.array, zip(*parts, strict=True))
    deviations = np.sqrt(variances) + 1e-12
    low, high = (means - 10 * deviations).min(axis=0), (means + 10 * deviations).max(axis=0)
    for _ in range(N_HALVINGS):
        middle = (low + high) / 2
        is_below = weights @ ndtr((middle - means) / deviations) < q
        low, high = np.where(is_below, middle, low), np.where(is_below, high, middle)
    return np.asarray((low + high) / 2)
