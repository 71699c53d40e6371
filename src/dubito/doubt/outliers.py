"""Conformal outlier detection: p-values and a bound on the false alarm rate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal, Self, final

import numpy as np

from dubito.arrays import (
    BoolArray,
    FloatArray,
    as_fraction,
    as_numbers,
    require_choice,
    require_rows,
)
from dubito.data.batch import Batch, as_weights
from dubito.data.shards import Shards
from dubito.doubt.conformal.predictor import CalibrationScores, rank_scores
from dubito.errors import BadTypeError, DubitoWarning, EmptyStateError
from dubito.measure.detection import RankingState
from dubito.serialization.array_fields import array, require_increasing
from dubito.serialization.fields import MAX_FLOAT, Entry, Omittable, declare, fitted, number
from dubito.serialization.objects import Serializable

MAX_WEIGHT = 1e200  # of one score, so that sums of weights stay finite


@final
class ConformalOutlierDetector(Serializable):
    """Flag outliers by conformal p-values, with a bound on the false alarm rate.

    Takes any score for which larger means more uncertain, such as `entropy` or the scores of
    `MahalanobisDistance`. No assumption is made about its distribution: if calibration rows and
    new in-distribution rows are exchangeable, a new one is flagged with probability at most
    `alpha`. With ``alpha=0.01``, about 1 % of normal inputs are sent to review.

    Parameters
    ----------
    alpha : float, default=0.05
        The largest acceptable false alarm rate, above 0 and below 1. It may be changed after the
        fit.

    Attributes
    ----------
    scores_ : ndarray
        The distinct scores of the calibration rows, in increasing order.
    weight_ : ndarray
        The number (or weight) of calibration rows with each score.
    threshold_ : float
        Rows with a larger score are outliers; infinite if there are too few calibration rows.

    References
    ----------
    Bates et al., "Testing for outliers with conformal p-values", 2023.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.doubt import ConformalOutlierDetector
    >>> detector = ConformalOutlierDetector(alpha=0.05).fit(np.arange(100) / 100)
    >>> detector.threshold_, detector.predict([0.5, 0.99, 2.0]).tolist()
    (0.95, [False, True, True])
    """

    param_fields = declare(alpha=Omittable(number(0, 1)))
    scores_: FloatArray = fitted(array(None, low=-MAX_FLOAT, high=MAX_FLOAT))
    weight_: FloatArray = fitted(array("scores_", low=0, high=MAX_WEIGHT))

    def __init__(self, alpha: float = 0.05) -> None:
        self.alpha = alpha

    def _check_params(self) -> None:
        as_fraction(self.alpha, "alpha", type(self).__name__, is_open=True)

    def _check_fitted(self, entry: Entry) -> None:
        with np.errstate(over="ignore"):  # the difference of two scores may overflow
            require_increasing(self.scores_, entry.at("scores_"))

    def fit(
        self,
        scores: Any,
        sample_weight: Any = None,
        *,
        score: Callable[[Any], Any] | None = None,
        of: Literal["outputs", "features", "batch"] = "outputs",
    ) -> Self:
        """Store the scores of in-distribution rows that the model was not trained on.

        Parameters
        ----------
        scores : array-like of shape (n_rows,) or Shards
            The scores of the rows, or shards of the rows together with `score`. Beyond 1,000,000
            distinct streamed scores, scores are rounded up by rank, so that p-values are never
            too low.
        sample_weight : array-like of shape (n_rows,), optional
            Frequency weights: a weight of 2 is a row that occurred twice. Shards hold their own.
        score : callable, optional
            For shards only: returns the scores of a batch, one per row.
        of : {"outputs", "features", "batch"}, default="outputs"
            What `score` is called with.

        Returns
        -------
        ConformalOutlierDetector
            The fitted detector.
        """
        name = type(self).__name__
        alpha = as_fraction(self.alpha, "alpha", name, is_open=True)
        if isinstance(scores, Shards):
            state = _ranked_shards(scores, sample_weight, score, of, name)
        elif score is not None:
            rule, fix = "must be None for an array of scores", "Call .fit(score(outputs))"
            raise BadTypeError("score", name, rule, type(score).__name__, fix)
        else:
            values = _as_scores(scores, "scores", name)
            state = rank_scores(values, as_weights(sample_weight, len(values), name))
        if not state.weight.size:
            raise EmptyStateError(name, is_labeled=False)
        self._forget()
        self.scores_, self.weight_ = state.score, state.weight
        _warn_if_too_few(float(state.weight.sum()), alpha, name)
        return self

    def p_value(self, scores: Any) -> FloatArray:
        """Return the conformal p-value of each score.

        Parameters
        ----------
        scores : array-like of shape (n_rows,)
            Scores of new rows, computed as those of the fit.

        Returns
        -------
        ndarray of shape (n_rows,)
            (1 + the number of calibration scores at least as large) / (1 + their total number).
        """
        values = _as_scores(scores, "scores", self._require_fitted("p_value"))
        at_least = np.append(np.cumsum(self.weight_[::-1])[::-1], 0.0)
        return np.asarray((1 + at_least[np.searchsorted(self.scores_, values)]) / (1 + at_least[0]))

    def predict(self, scores: Any) -> BoolArray:
        """Return which rows are outliers: those with a p-value below `alpha`.

        Parameters
        ----------
        scores : array-like of shape (n_rows,)
            Scores of new rows, computed as those of the fit.

        Returns
        -------
        ndarray of bool, shape (n_rows,)
            True for an outlier.
        """
        self._require_fitted("predict")
        alpha = as_fraction(self.alpha, "alpha", type(self).__name__, is_open=True)
        return np.asarray(self.p_value(scores) < alpha)

    @property
    def threshold_(self) -> float:
        """The score above which a row is an outlier; infinite with too few calibration rows."""
        self._require_fitted("threshold_")
        if not self.predict([np.finfo(np.float64).max])[0]:
            return float(np.inf)
        return float(self.scores_[~self.predict(self.scores_)][-1])


def _ranked_shards(
    shards: Shards, sample_weight: Any, score: Any, of: str, caller: str
) -> RankingState:
    """Return the ranked scores of shards: exact in memory, rounded up by rank if they are many."""
    if not callable(score):
        rule, fix = "must be a function of a batch for shards", "Call .fit(shards, score=entropy)"
        raise BadTypeError("score", caller, rule, type(score).__name__, fix)
    if sample_weight is not None:
        rule, fix = "must be None for shards", "Name a weight column of the shards instead"
        raise BadTypeError("sample_weight", caller, rule, type(sample_weight).__name__, fix)
    require_choice(of, ("outputs", "features", "batch"), "of", caller)

    def calibration_scores(batch: Batch) -> CalibrationScores:
        values = _as_scores(score(batch if of == "batch" else getattr(batch, of)), "score", caller)
        require_rows(values, len(batch), "score", caller, "the batch")
        return CalibrationScores.of(values, batch.weight)

    return shards.pool(calibration_scores).ranked


def _as_scores(value: Any, argument: str, caller: str) -> FloatArray:
    """Return finite scores as float64, one per row."""
    return as_numbers(value, argument, caller).astype(np.float64)


def _warn_if_too_few(n_rows: float, alpha: float, caller: str) -> None:
    """Warn if no row can ever be an outlier, with the number of rows that it takes."""
    if 1 / (n_rows + 1) < alpha:
        return
    about = int(min(1 / alpha, 1e300))
    needed = next((n for n in (about - 1, about) if 1 / (n + 1) < alpha), about + 1)
    text = (
        f"{caller}: {n_rows:g} calibration rows are too few to flag any outlier at "
        f"alpha={alpha:g}. Use at least {needed:,} rows."
    )
    warnings.warn(text, DubitoWarning, stacklevel=3)
