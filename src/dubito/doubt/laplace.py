"""Bayesian logistic regression by the Laplace approximation, also of a network's last layer."""

from __future__ import annotations

from typing import Any, Literal, Self, final

import numpy as np
import scipy
from scipy.special import log_softmax, softmax

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_count,
    as_finite,
    as_floats,
    freeze,
    require_choice,
    require_dimensions,
)
from dubito.errors import BadValueError
from dubito.outputs import Members

COVARIANCES = ("full", "diagonal")
MAX_PARAMETERS = 5_000  # of a full covariance, 200 MB
MAX_STEPS = 100
TOLERANCE = 1e-12  # of the Newton decrement, per row


@final
class BayesianLogisticRegression:
    """Logistic regression with a normal approximation of the posterior of its weights.

    The weights have a normal prior. Their posterior is approximated by a normal distribution at its
    mode, whose precision is the Hessian there (Laplace). With many more rows than weights all draws
    agree with the mode, the frequentist answer; with few rows they differ, and `members` shows by
    how much: the spread is epistemic uncertainty. `laplace_last_layer` applies the same to a
    trained network.

    Parameters
    ----------
    prior_precision : float, default 1.0
        The precision of the prior of every weight, intercepts included.
    covariance : {"full", "diagonal"}, default "full"
        The whole Hessian, or only its diagonal, for many features and classes.
    fit_intercept : bool, default True
        Whether each class has an intercept.

    Attributes
    ----------
    coef_ : array of shape (n_classes, n_features)
        The weights at the mode of the posterior.
    intercept_ : array of shape (n_classes,)
        The intercepts.
    precision_ : array
        The Hessian of the negative log posterior, over classes x (features, then intercept), or its
        diagonal.

    References
    ----------
    MacKay, "The evidence framework applied to classification networks", 1992. Bishop, "Pattern
    recognition and machine learning", 2006, section 4.5. Kristiadi, Hein and Hennig, "Being
    Bayesian, even just a bit, fixes overconfidence in ReLU networks", 2020.

    Examples
    --------
    >>> model = BayesianLogisticRegression().fit([[-1.0], [1.0]], [0, 1])
    >>> model.members([[0.0], [9.0]], n_draws=200).array.std(axis=0)[:, 0].round(1).tolist()
    [0.2, 0.3]
    """

    coef_: FloatArray
    intercept_: FloatArray
    precision_: FloatArray

    def __init__(
        self,
        prior_precision: float = 1.0,
        *,
        covariance: Literal["full", "diagonal"] = "full",
        fit_intercept: bool = True,
    ) -> None:
        self.prior_precision = prior_precision
        self.covariance = covariance
        self.fit_intercept = fit_intercept

    def fit(self, X: Any, y: Any, *, n_classes: int | None = None) -> Self:  # noqa: N803
        """Find the mode of the posterior by Newton's method, and the Hessian there.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The inputs, of similar size in all columns, as the prior is the same for all.
        y : array-like of shape (n_rows,)
            The classes, as numbers from 0.
        n_classes : int, optional
            The number of classes; by default the largest label plus 1.

        Returns
        -------
        BayesianLogisticRegression
        """
        inputs = self._inputs(X, "fit")
        labels = _as_labels(y, len(inputs), n_classes)
        n_outputs = max(2, int(labels.max()) + 1) if n_classes is None else n_classes
        targets = np.eye(n_outputs)[labels]
        weights = np.zeros((n_outputs, inputs.shape[1]))
        for _ in range(MAX_STEPS):
            gradient = self._gradient(weights, inputs, targets)
            hessian = _hessian(softmax(inputs @ weights.T, axis=1), inputs, self.prior_precision)
            step = scipy.linalg.solve(hessian, gradient.ravel(), assume_a="pos")
            decrement = float(gradient.ravel() @ step)
            start, size = self._loss(weights, inputs, targets), 1.0
            while size > 1e-8 and (
                self._loss(weights - size * step.reshape(weights.shape), inputs, targets)
                > start - 0.25 * size * decrement + 1e-12 * abs(start)
            ):
                size /= 2
            weights = weights - size * step.reshape(weights.shape)
            if decrement < TOLERANCE * len(inputs):
                break
        return self._at(weights, inputs)

    def members(self, X: Any, n_draws: int = 100, *, random_state: int = 0) -> Members:  # noqa: N803
        """Return the probabilities under draws of the weights, for `decompose_uncertainty`.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The inputs.
        n_draws : int, default 100
            The number of draws from the posterior.
        random_state : int, default 0
            The seed of the draws.

        Returns
        -------
        Members
        """
        inputs = self._inputs(X, "members")
        as_count(n_draws, "n_draws", "BayesianLogisticRegression.members")
        mode = self._weights()
        noise = np.random.default_rng(random_state).normal(size=(mode.size, n_draws))
        if self.precision_.ndim == 1:
            drawn = noise / np.sqrt(self.precision_)[:, np.newaxis]
        else:
            factor = scipy.linalg.cholesky(self.precision_, lower=True)
            drawn = scipy.linalg.solve_triangular(factor, noise, lower=True, trans="T")
        weights = mode + drawn.T.reshape(n_draws, *mode.shape)
        return Members(np.stack([softmax(inputs @ one.T, axis=1) for one in weights]))

    def predict_proba(
        self,
        X: Any,  # noqa: N803
        n_draws: int = 100,
        *,
        random_state: int = 0,
    ) -> FloatArray:
        """Return the posterior predictive probabilities: the mean over draws of the weights.

        Parameters
        ----------
        X : array-like of shape (n_rows, n_features)
            The inputs.
        n_draws : int, default 100
            The number of draws from the posterior.
        random_state : int, default 0
            The seed of the draws.

        Returns
        -------
        array of shape (n_rows, n_classes)
        """
        return np.asarray(self.members(X, n_draws, random_state=random_state).mean.array)

    def _inputs(self, value: Any, method: str) -> FloatArray:
        """Return inputs, with a column of ones for the intercept."""
        caller = f"BayesianLogisticRegression.{method}"
        require_choice(self.covariance, COVARIANCES, "covariance", caller)
        precision = self.prior_precision
        if isinstance(precision, bool) or not 0 < float(precision) < np.inf:
            rule, fix = "must be a finite number above 0", "Use prior_precision=1.0"
            raise BadValueError("prior_precision", caller, rule, repr(precision), fix)
        array = as_finite(as_floats(value, "X", caller), "X", caller).astype(np.float64)
        require_dimensions(array, (2,), "X", caller, "rows x features")
        if method != "fit" and array.shape[1] != self.coef_.shape[1]:
            rule, fix = f"must have {self.coef_.shape[1]} features", "Pass those of `fit`"
            raise BadValueError("X", caller, rule, f"{array.shape[1]}", fix)
        return np.column_stack([array, np.ones(len(array))]) if self.fit_intercept else array

    def _weights(self) -> FloatArray:
        """Return the mode, classes x (features, then intercept)."""
        return np.column_stack([self.coef_, self.intercept_]) if self.fit_intercept else self.coef_

    def _at(self, weights: FloatArray, inputs: FloatArray) -> Self:
        """Set the mode, and the Hessian there."""
        n_features = inputs.shape[1] - self.fit_intercept
        self.coef_ = freeze(weights[:, :n_features].copy())
        intercept = weights[:, -1] if self.fit_intercept else np.zeros(len(weights))
        self.intercept_ = freeze(intercept.copy())
        probabilities = softmax(inputs @ weights.T, axis=1)
        if self.covariance == "full":
            self.precision_ = freeze(_hessian(probabilities, inputs, self.prior_precision))
        else:
            spread = (probabilities * (1 - probabilities)).T @ inputs**2
            self.precision_ = freeze(spread.ravel() + self.prior_precision)
        return self

    def _loss(self, weights: FloatArray, inputs: FloatArray, targets: FloatArray) -> float:
        """Return the negative log posterior, up to a constant."""
        log_likelihood = (targets * log_softmax(inputs @ weights.T, axis=1)).sum()
        return float(self.prior_precision / 2 * (weights**2).sum() - log_likelihood)

    def _gradient(self, weights: FloatArray, inputs: FloatArray, targets: FloatArray) -> FloatArray:
        """Return the slope of the negative log posterior."""
        errors = softmax(inputs @ weights.T, axis=1) - targets
        return np.asarray(errors.T @ inputs + self.prior_precision * weights)


def laplace_last_layer(
    features: Any,
    weights: Any,
    bias: Any,
    *,
    prior_precision: float = 1.0,
    covariance: Literal["full", "diagonal"] = "full",
) -> BayesianLogisticRegression:
    """Return the Laplace approximation of a trained network's last layer.

    The trained weights are taken as the mode; the Hessian of softmax cross-entropy depends on the
    training features only, not on their labels. `collect_outputs` returns features, weights and
    bias.

    Parameters
    ----------
    features : array-like of shape (n_rows, n_features)
        Penultimate features of the training rows.
    weights : array-like of shape (n_classes, n_features)
        Weights of the last layer.
    bias : array-like of shape (n_classes,)
        Its bias.
    prior_precision : float, default 1.0
        The precision of the prior of every weight: what weight decay stands for. Choose it by the
        log loss on validation rows.
    covariance : {"full", "diagonal"}, default "full"
        The whole Hessian, or only its diagonal.

    Returns
    -------
    BayesianLogisticRegression
        Fitted: call `members` or `predict_proba` on features.

    References
    ----------
    Daxberger et al., "Laplace redux: effortless Bayesian deep learning", 2021.

    Examples
    --------
    >>> model = laplace_last_layer([[1.0], [-1.0]], [[-2.0], [2.0]], [0.0, 0.0])
    >>> bool(model.predict_proba([[1.0]])[0, 1] < 0.98)  # the network's own confidence is 0.982
    True
    """
    caller = "laplace_last_layer"
    head = as_finite(as_floats(weights, "weights", caller), "weights", caller).astype(np.float64)
    shift = as_finite(as_floats(bias, "bias", caller), "bias", caller).astype(np.float64)
    require_dimensions(head, (2,), "weights", caller, "classes x features")
    if shift.shape != head.shape[:1]:
        rule, fix = f"must have {len(head)} entries, one per class", "Pass the bias of this layer"
        raise BadValueError("bias", caller, rule, f"shape {shift.shape}", fix)
    model = BayesianLogisticRegression(prior_precision, covariance=covariance)
    model.coef_, model.intercept_ = freeze(head), freeze(shift)
    inputs = model._inputs(features, caller)
    return model._at(np.column_stack([head, shift]), inputs)


def _hessian(probabilities: FloatArray, inputs: FloatArray, prior_precision: float) -> FloatArray:
    """Return the Hessian of the negative log posterior, (classes x inputs) squared."""
    n_classes, n_inputs = probabilities.shape[1], inputs.shape[1]
    size = n_classes * n_inputs
    if size > MAX_PARAMETERS:
        rule = f"must be 'diagonal' for more than {MAX_PARAMETERS:,} weights"
        fix = 'Use covariance="diagonal"'
        raise BadValueError("covariance", "BayesianLogisticRegression", rule, f"{size:,}", fix)
    hessian = np.empty((n_classes, n_inputs, n_classes, n_inputs))
    for j in range(n_classes):
        for k in range(j, n_classes):
            weight = probabilities[:, j] * ((j == k) - probabilities[:, k])
            hessian[j, :, k] = hessian[k, :, j] = (inputs * weight[:, np.newaxis]).T @ inputs
    flat = hessian.reshape(size, size)
    flat[np.diag_indices(size)] += prior_precision
    return flat


def _as_labels(y: Any, n_rows: int, n_classes: int | None) -> IntArray:
    """Return classes as numbers from 0, one per row."""
    caller = "BayesianLogisticRegression.fit"
    array = as_floats(y, "y", caller)
    if array.shape != (n_rows,) or not n_rows:
        rule, fix = f"must have {n_rows} labels, one per row", "Pass one class per row of X"
        raise BadValueError("y", caller, rule, f"shape {array.shape}", fix)
    top = np.inf if n_classes is None else n_classes - 1
    is_class = (array == np.floor(array)) & (array >= 0) & (array <= top)
    if not is_class.all():
        row = int(np.flatnonzero(~is_class)[0])
        rule = "must be classes as numbers from 0" + ("" if n_classes is None else f" to {top}")
        fix = "Use sklearn.preprocessing.LabelEncoder"
        raise BadValueError("y", caller, rule, f"{array[row]}", fix, row)
    return array.astype(np.int64)
