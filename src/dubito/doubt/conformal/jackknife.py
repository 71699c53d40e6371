"""Jackknife+ and CV+: intervals of a scikit-learn regressor without a calibration set."""

from __future__ import annotations

from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, MetaEstimatorMixin, RegressorMixin, clone
from sklearn.model_selection import KFold, LeaveOneOut, check_cv
from sklearn.utils import indexable
from sklearn.utils.metaestimators import _safe_split
from sklearn.utils.validation import column_or_1d

from dubito.arrays import FloatArray, as_finite, as_floats, as_fraction, freeze
from dubito.doubt.conformal.regressor import PredictionIntervals, uncrossed
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import row_blocks
from dubito.serialization.unfitted import require_fitted

NAME = "JackknifePlusRegressor"


@final
class JackknifePlusRegressor(RegressorMixin, MetaEstimatorMixin, BaseEstimator):
    """A scikit-learn regressor with prediction intervals by jackknife+ or CV+.

    Every row trains and calibrates: clones of the estimator are fitted without one fold each, and
    their errors on that fold, around their own predictions for a new row, give its interval. Use it
    where rows are too few for a calibration set; `ConformalRegressor` on held-out rows is exact and
    predicts with one model.

    Intervals cover at least 2 level - 1 of new rows for any model (jackknife+; for CV+ minus
    at most sqrt(2 / n)), and in practice nearly `level` if the model is stable.

    Parameters
    ----------
    estimator : scikit-learn regressor
        Any regressor.
    level : float, default=0.9
        The coverage aimed at, above 0 and below 1.
    cv : int, scikit-learn splitter, list of splits or None, default=10
        CV+ with so many shuffled folds, or with given splits that hold out each row once; None
        leaves out one row at a time (jackknife+), which fits as many models as there are rows.
    random_state : int, RandomState or None, default=0
        The seed of the folds.

    Attributes
    ----------
    estimator_ : scikit-learn regressor
        The estimator fitted on all rows, whose predictions `predict` returns.
    estimators_ : list of scikit-learn regressors
        The estimators fitted without one fold each.
    fold_ : array of int, shape (n_rows,)
        The fold of each row.
    errors_ : array of shape (n_rows,)
        The absolute error of each row, predicted without its fold.
    n_features_in_ : int
        The number of features, if the estimator has it.

    References
    ----------
    Barber, Candès, Ramdas and Tibshirani, "Predictive inference with the jackknife+", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.doubt import JackknifePlusRegressor
    >>> from sklearn.linear_model import LinearRegression
    >>> x = np.arange(20.0)[:, np.newaxis]
    >>> regressor = JackknifePlusRegressor(LinearRegression(), cv=None)
    >>> regressor = regressor.fit(x, x[:, 0] + np.tile([1.0, -1.0], 10))
    >>> found = regressor.predict_interval([[10.0]])
    >>> found.low.round(2).tolist(), found.high.round(2).tolist()
    ([8.69], [11.29])
    """

    def __init__(
        self, estimator: Any, level: float = 0.9, cv: Any = 10, random_state: Any = 0
    ) -> None:
        self.estimator = estimator
        self.level = level
        self.cv = cv
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:  # noqa: N803
        """Fit the estimator on all rows, and without each fold.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Anything that the estimator takes.
        y : array-like of shape (n_rows,)
            Targets.

        Returns
        -------
        self
        """
        as_fraction(self.level, "level", NAME, is_open=True)
        if isinstance(self.estimator, type) or not hasattr(self.estimator, "fit"):
            rule, fix = "must be a scikit-learn regressor", "Pass LinearRegression()"
            got = repr(self.estimator)
            if isinstance(self.estimator, type):
                got = f"the class {self.estimator.__name__}"
                fix = f"Pass an instance: {self.estimator.__name__}()"
            raise BadTypeError("estimator", NAME, rule, got, fix)
        inputs, targets = indexable(X, column_or_1d(y, warn=True))
        targets = as_finite(as_floats(targets, "y", NAME), "y", NAME).astype(np.float64)
        fold = np.full(targets.size, -1)
        estimators: list[Any] = []
        errors = np.empty(targets.size)
        rule, fix = "must hold out each row once", "Use KFold, or an integer"
        for k, (known, held) in enumerate(self._splits(inputs, targets)):
            if (fold[held] >= 0).any():
                raise BadValueError("cv", NAME, rule, "one that holds a row out twice", fix)
            rows, labels = _safe_split(self.estimator, inputs, targets, known)
            estimators.append(clone(self.estimator).fit(rows, labels))
            held_rows, _ = _safe_split(self.estimator, inputs, targets, held, known)
            fold[held] = k
            errors[held] = np.abs(targets[held] - estimators[-1].predict(held_rows))
        if (fold < 0).any():
            raise BadValueError("cv", NAME, rule, f"row {np.argmin(fold)} never held out", fix)
        self.estimator_ = clone(self.estimator).fit(inputs, targets)
        if hasattr(self.estimator_, "n_features_in_"):
            self.n_features_in_ = self.estimator_.n_features_in_
        if hasattr(self.estimator_, "feature_names_in_"):
            self.feature_names_in_ = self.estimator_.feature_names_in_
        self.estimators_, self.fold_, self.errors_ = estimators, fold, errors
        return self

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the predictions of the estimator fitted on all rows.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Anything that the estimator takes.

        Returns
        -------
        ndarray of shape (n_rows,)
        """
        require_fitted(self, "predict")
        return np.asarray(self.estimator_.predict(X))

    def predict_interval(self, X: Any) -> PredictionIntervals:  # noqa: N803
        """Return the prediction interval of each row.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            Anything that the estimator takes.

        Returns
        -------
        PredictionIntervals
            Infinite if there are fewer than level / (1 - level) rows. Where the models disagree by
            more than their errors, bounds that would cross are both their mean.
        """
        require_fitted(self, "predict_interval")
        level = as_fraction(self.level, "level", NAME, is_open=True)
        predicted = np.stack([one.predict(X) for one in self.estimators_]).astype(np.float64)
        n_rows, total = predicted.shape[1], self.errors_.size
        # Not ceil((n + 1) level): a ratio of integers rounds in the same way as the level itself.
        rank = int(np.argmax(np.append(np.arange(1, total + 1) / (total + 1) >= level, True)))
        low, high = np.full(n_rows, -np.inf), np.full(n_rows, np.inf)
        if rank < total:
            for rows in row_blocks(n_rows, total):
                own = predicted[self.fold_, rows]
                errors = self.errors_[:, np.newaxis]
                high[rows] = _ranked(own + errors, rank)
                low[rows] = -_ranked(errors - own, rank)
        return PredictionIntervals(*map(freeze, uncrossed(low, high)))

    def _splits(self, inputs: Any, y: FloatArray) -> Any:
        """Return the splits of rows."""
        if self.cv is None:
            return LeaveOneOut().split(inputs)
        if isinstance(self.cv, int | np.integer) and not isinstance(self.cv, bool):
            if not 2 <= self.cv <= y.size:
                rule, fix = f"must be from 2 to {y.size}, the number of rows", "Use cv=None"
                raise BadValueError("cv", NAME, rule, f"{self.cv}", fix)
            return KFold(int(self.cv), shuffle=True, random_state=self.random_state).split(inputs)
        try:
            return check_cv(self.cv, y).split(inputs, y)
        except (TypeError, ValueError) as error:
            rule, fix = "must be an integer, a splitter, splits or None", "Use cv=10"
            raise BadTypeError("cv", NAME, rule, type(self.cv).__name__, fix) from error


def _ranked(values: FloatArray, rank: int) -> FloatArray:
    """Return the value of a rank, from 0, in each column."""
    return np.asarray(np.partition(values, rank, axis=0)[rank])
