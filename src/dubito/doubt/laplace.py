"""Bayesian logistic regression by the Laplace approximation, also of a network's last layer."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, Literal, final

import numpy as np
import scipy
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from dubito.arrays import (
    FloatArray,
    RandomState,
    as_count,
    as_number,
    draw_seed,
    freeze,
    require_bool,
    require_choice,
)
from dubito.doubt.activations import as_bias, as_weights
from dubito.doubt.features import (
    BaseClassEstimator,
    FeatureRows,
    FeatureShards,
    as_label_array,
    feature_shards,
)
from dubito.doubt.gaussians import require_covariance, require_summable
from dubito.errors import BadValueError, DubitoWarning
from dubito.outputs import Members
from dubito.serialization.array_fields import array
from dubito.serialization.fields import (
    MAX_FLOAT,
    SCALAR,
    Entry,
    any_of,
    class_names,
    fitted,
    list_schema,
    one_of,
    schema_of,
    states,
)

COVARIANCES = ("full", "diagonal")
MAX_PARAMETERS = 5_000  # of a full covariance, 200 MB
TOLERANCE = 1e-12  # of the Newton decrement, per row
STEP_TOLERANCE = 1e-6  # of the conjugate gradients that solve for a Newton step, relative


@states(lambda: list_schema(SCALAR, least=2))
def _class_labels(value: Any, entry: Entry) -> NDArray[Any]:
    """Check for the names of at least 2 classes."""
    names = class_names()(value, entry)
    if names is None or len(names) < 2:
        raise entry.error("a list of at least 2 names", "none" if names is None else "1")
    return as_label_array(names)


@states(
    lambda: any_of(
        *(schema_of(array(*(None,) * n, low=-MAX_FLOAT, high=MAX_FLOAT)) for n in (1, 2))
    )
)
def _precision(value: Any, entry: Entry) -> FloatArray:
    """Check for a precision: a matrix, or its diagonal."""
    is_full = entry.beside["kind_"] == "full"
    low = -MAX_FLOAT if is_full else float(np.finfo(np.float64).tiny)
    return np.asarray(array(*(None,) * (1 + is_full), low=low, high=MAX_FLOAT)(value, entry))


@final
class BayesianLogisticRegression(BaseClassEstimator):
    """Logistic regression with a normal approximation of the posterior of its weights.

    The weights have a normal prior. Their posterior is approximated by a normal distribution at its
    mode, whose precision is the Hessian there (Laplace). With many more rows than weights all draws
    agree with the mode, the frequentist answer; with few rows they differ, and `members` shows by
    how much: the spread is epistemic uncertainty. `laplace_last_layer` applies the same to a
    trained network. Features should be of similar size in all columns, as the prior is the same
    for all.

    Parameters
    ----------
    prior_precision : float, default=1.0
        The precision of the prior of every weight, intercepts included.
    covariance : {"full", "diagonal"}, default="full"
        The whole Hessian, for at most 5,000 weights, or only its diagonal, for any number.
    fit_intercept : bool, default=True
        Whether each class has an intercept.
    max_iter : int, default=100
        The largest number of Newton steps; about 10 are needed.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        The classes that occurred in `y`, sorted.
    coef_ : ndarray of shape (n_classes, n_features)
        The weights at the mode of the posterior.
    intercept_ : ndarray of shape (n_classes,)
        The intercepts.
    precision_ : ndarray
        The Hessian of the negative log posterior, over classes x (features, then intercept), or its
        diagonal.
    kind_ : str
        The value of `covariance` in the fit.
    n_features_in_ : int
        The number of features, as scikit-learn calls it.

    References
    ----------
    MacKay, "The evidence framework applied to classification networks", 1992. Bishop, "Pattern
    recognition and machine learning", 2006, section 4.5. Kristiadi, Hein and Hennig, "Being
    Bayesian, even just a bit, fixes overconfidence in ReLU networks", 2020.

    Examples
    --------
    >>> from dubito.doubt import BayesianLogisticRegression
    >>> model = BayesianLogisticRegression().fit([[-1.0], [1.0]], ["no", "yes"])
    >>> model.members([[0.0], [9.0]], n_draws=200).array.std(axis=0)[:, 0].round(1).tolist()
    [0.2, 0.3]
    >>> model.predict([[9.0]]).tolist()
    ['yes']
    """

    classes_: Any = fitted(_class_labels)
    kind_: str = fitted(one_of(*COVARIANCES))
    coef_: FloatArray = fitted(array("classes_", "n_features_"))
    intercept_: FloatArray = fitted(array("classes_"))
    precision_: FloatArray = fitted(_precision)

    def __init__(
        self,
        prior_precision: float = 1.0,
        *,
        covariance: Literal["full", "diagonal"] = "full",
        fit_intercept: bool = True,
        max_iter: int = 100,
    ) -> None:
        self.prior_precision = prior_precision
        self.covariance = covariance
        self.fit_intercept = fit_intercept
        self.max_iter = max_iter

    @property
    def n_features_in_(self) -> int:
        """The number of features, as scikit-learn calls it."""
        return self.n_features_

    def members(
        self, features: Any, n_draws: int = 100, *, random_state: RandomState = 0
    ) -> Members:
        """Return the probabilities under draws of the weights, for `decompose_uncertainty`.

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Features of new rows.
        n_draws : int, default=100
            The number of draws from the posterior.
        random_state : int, RandomState or None, default=0
            The seed of the draws.

        Returns
        -------
        Members
            One pass per draw, with columns named by `classes_`.
        """
        inputs = self._checked_features(features, "members").astype(np.float64)
        caller = f"{type(self).__name__}.members"
        as_count(n_draws, "n_draws", caller, example=100)
        random = np.random.default_rng(draw_seed(random_state, caller))
        mode = np.column_stack([self.coef_, self.intercept_])
        mode = mode if self.precision_.shape[0] == mode.size else self.coef_
        noise = random.normal(size=(mode.size, n_draws))
        if self.kind_ == "diagonal":
            drawn = noise / np.sqrt(self.precision_)[:, np.newaxis]
        else:
            factor = scipy.linalg.cholesky(self.precision_, lower=True)
            drawn = scipy.linalg.solve_triangular(factor, noise, lower=True, trans="T")
        weights = mode + drawn.T.reshape(n_draws, *mode.shape)
        wide = _with_ones(inputs, mode.shape[1] > inputs.shape[1])
        with np.errstate(over="ignore", invalid="ignore"):
            logits = require_summable(np.stack([wide @ one.T for one in weights]), caller)
        return Members(softmax(logits, axis=2), classes=self.classes_.tolist())

    def predict_proba(
        self, features: Any, n_draws: int = 100, *, random_state: RandomState = 0
    ) -> FloatArray:
        """Return the posterior predictive probabilities: the mean over draws of the weights.

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Features of new rows.
        n_draws : int, default=100
            The number of draws from the posterior.
        random_state : int, RandomState or None, default=0
            The seed of the draws.

        Returns
        -------
        ndarray of shape (n_rows, n_classes)
            Probabilities, in the order of `classes_`.
        """
        return np.asarray(self.members(features, n_draws, random_state=random_state).mean.array)

    def predict(self, features: Any) -> NDArray[Any]:
        """Return the most probable class of each row.

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Features of new rows.

        Returns
        -------
        ndarray of shape (n_rows,)
            The classes of the largest `predict_proba`.
        """
        self._require_fitted("predict")
        return np.asarray(self.classes_[self.predict_proba(features).argmax(axis=1)])

    def score(self, features: Any, y: Any, sample_weight: Any = None) -> float:
        """Return the accuracy, as classifiers of scikit-learn do.

        Parameters
        ----------
        features : array-like of shape (n_rows, n_features)
            Features of new rows.
        y : array-like of shape (n_rows,)
            Their classes.
        sample_weight : array-like of shape (n_rows,), optional
            Frequency weights.

        Returns
        -------
        float
        """
        from sklearn.metrics import accuracy_score

        return float(accuracy_score(y, self.predict(features), sample_weight=sample_weight))

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import ClassifierTags

        tags = super().__sklearn_tags__()
        tags.estimator_type, tags.classifier_tags = "classifier", ClassifierTags()
        tags.target_tags.required = True
        return tags

    def _check_params(self) -> None:
        self._require_params(type(self).__name__)

    def _require_params(self, caller: str) -> None:
        fix = "Use prior_precision=1.0"
        as_number(self.prior_precision, "prior_precision", caller, 0, fix=fix, is_open=True)
        require_choice(self.covariance, COVARIANCES, "covariance", caller)
        require_bool(self.fit_intercept, "fit_intercept", caller)
        as_count(self.max_iter, "max_iter", caller, example=100)

    def _check_fitted(self, entry: Entry) -> None:
        n_weights, shape = self.coef_.size, self.precision_.shape
        place = entry.at("precision_")
        if shape[0] not in (n_weights, n_weights + len(self.classes_)) or shape[-1] != shape[0]:
            got = " x ".join(map(str, shape))
            raise place.error("one row per weight of `coef_` and `intercept_`", got)
        if self.kind_ == "full":
            require_covariance(self.precision_, place)

    def _learn(self, rows: FeatureShards) -> None:
        name = type(self).__name__
        if rows.classes is None or rows.n_classes < 2:
            got = "no labels" if rows.classes is None else f"{rows.classes[0]!r} only"
            fix = "Pass one label per row, of several classes"
            raise BadValueError("y", name, "must have at least 2 classes", got, fix)
        self.classes_ = as_label_array(rows.classes)
        n_inputs = rows.n_features + bool(self.fit_intercept)
        _require_covariance_size(rows.n_classes * n_inputs, self.covariance, name)
        self._set(self._mode(rows, np.zeros((rows.n_classes, n_inputs))), rows, name)

    def _mode(self, rows: FeatureShards, weights: FloatArray) -> FloatArray:
        """Return the weights of largest posterior density, by Newton's method from given ones.

        Steps are found by conjugate gradients, which need products with the Hessian only.
        """
        name, prior = type(self).__name__, self.prior_precision

        def evaluate(at: FloatArray) -> tuple[float, FloatArray]:
            sums = require_summable(rows.sum(lambda block: _loss_and_gradient(block, at)), name)
            return float(sums[0] + prior / 2 * (at**2).sum()), sums[1:] + prior * at.ravel()

        def product(vector: FloatArray) -> FloatArray:
            direction = vector.reshape(weights.shape)
            likelihood = rows.sum(lambda block: _hessian_product(block, weights, direction))
            return np.asarray(likelihood + prior * vector)

        def solve(gradient: FloatArray) -> FloatArray:
            sums = rows.sum(lambda block: _diagonal(block, weights))
            diagonal = require_summable(sums, name) + prior
            shape = diagonal.size, diagonal.size
            operator = partial(scipy.sparse.linalg.LinearOperator, shape, dtype=np.float64)
            hessian, inverse = operator(product), operator(lambda v: v / diagonal)
            step, _ = scipy.sparse.linalg.cg(hessian, gradient, rtol=STEP_TOLERANCE, M=inverse)
            return np.asarray(step.reshape(weights.shape))

        loss, gradient = evaluate(weights)
        for _ in range(self.max_iter):
            step, size, start = solve(gradient), 1.0, loss
            decrement = float(gradient @ step.ravel())
            loss, gradient = evaluate(weights - step)
            while size > 1e-8 and loss > start - 0.25 * size * decrement + 1e-12 * abs(start):
                size /= 2
                loss, gradient = evaluate(weights - size * step)
            weights = weights - size * step
            if decrement < TOLERANCE * rows.weights.sum():
                return weights
        text = (
            f"{name} did not converge in {self.max_iter} steps. Standardize the features, or use a "
            "larger max_iter or prior_precision."
        )
        warnings.warn(text, DubitoWarning, stacklevel=4)
        return weights

    def _set(self, weights: FloatArray, rows: FeatureShards, caller: str) -> None:
        """Set the mode, classes x (features, then intercept), and the precision there."""
        self.kind_ = self.covariance
        self.coef_ = freeze(weights[:, : rows.n_features].copy())
        n_classes, n_inputs = weights.shape
        has_intercept = n_inputs > rows.n_features
        self.intercept_ = freeze(weights[:, -1].copy() if has_intercept else np.zeros(n_classes))
        if self.covariance == "full":
            precision = rows.sum(lambda block: _hessian(block, weights))
            precision[np.diag_indices(weights.size)] += self.prior_precision
        else:
            precision = rows.sum(lambda block: _diagonal(block, weights)) + self.prior_precision
        self.precision_ = freeze(require_summable(precision, caller))


def laplace_last_layer(
    features: Any,
    weights: Any,
    bias: Any = None,
    *,
    prior_precision: float = 1.0,
    covariance: Literal["full", "diagonal"] = "full",
    sample_weight: Any = None,
) -> BayesianLogisticRegression:
    """Return the Laplace approximation of a trained network's last layer.

    The trained weights are taken as the mode; the Hessian of softmax cross-entropy depends on the
    training features only, not on their labels. `collect_outputs` returns features, weights and
    bias. They are the mode only if the layer was trained to the end with the weight decay that
    `prior_precision` stands for (half of it times the squared weights, added to the summed log
    loss). A network that was stopped early or trained without decay has larger or smaller weights:
    then draws still spread around the network's own answer, but not around the posterior's mode.
    Where that matters, fit `BayesianLogisticRegression` on the features.

    Parameters
    ----------
    features : array-like of shape (n_rows, n_features), Batch or Shards
        Penultimate features of the training rows.
    weights : array-like of shape (n_classes, n_features)
        Weights of the last layer, of at least 2 classes.
    bias : array-like of shape (n_classes,), optional
        Its bias; None if it has none.
    prior_precision : float, default=1.0
        The precision of the prior of every weight. Choose it by the log loss on validation rows.
    covariance : {"full", "diagonal"}, default="full"
        The whole Hessian, for at most 5,000 weights, or only its diagonal.
    sample_weight : array-like of shape (n_rows,), optional
        Frequency weights.

    Returns
    -------
    BayesianLogisticRegression
        Fitted, with classes numbered from 0: call `members` or `predict_proba` on features.

    References
    ----------
    Daxberger et al., "Laplace redux: effortless Bayesian deep learning", 2021.

    Examples
    --------
    >>> from dubito.doubt import laplace_last_layer
    >>> model = laplace_last_layer([[1.0], [-1.0]], [[-2.0], [2.0]], [0.0, 0.0])
    >>> bool(model.predict_proba([[1.0]])[0, 1] < 0.98)  # the network's own confidence is 0.982
    True
    """
    caller = "laplace_last_layer"
    has_bias = bias is not None
    model = BayesianLogisticRegression(
        prior_precision, covariance=covariance, fit_intercept=has_bias
    )
    model._require_params(caller)
    rows = feature_shards(features, None, sample_weight, caller, use_labels=False)
    head = as_weights(weights, rows.n_features, caller, min_classes=2).astype(np.float64)
    layer = np.column_stack([head, as_bias(bias, len(head), caller)]) if has_bias else head
    _require_covariance_size(layer.size, covariance, caller)
    model.n_features_, model.classes_ = rows.n_features, np.arange(len(head))
    model._set(layer, rows, caller)
    return model


def _with_ones(features: FloatArray, has_intercept: bool) -> FloatArray:
    """Return features in float64, with a last column of ones for an intercept."""
    wide = features.astype(np.float64)
    return np.column_stack([wide, np.ones(len(wide))]) if has_intercept else wide


def _inputs_and_logits(rows: FeatureRows, weights: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the inputs of the layer, one column per weight of a class, and its logits."""
    inputs = _with_ones(rows.features, weights.shape[1] > rows.n_columns)
    return inputs, inputs @ weights.T


def _loss_and_gradient(rows: FeatureRows, weights: FloatArray) -> FloatArray:
    """Return the negative log likelihood of some rows, then its gradient."""
    inputs, logits = _inputs_and_logits(rows, weights)
    logs, at = log_softmax(logits, axis=1), np.arange(len(rows))
    errors = np.exp(logs)
    errors[at, rows.codes] -= 1
    gradient = (errors * rows.weight[:, np.newaxis]).T @ inputs
    return np.append(-(rows.weight * logs[at, rows.codes]).sum(), gradient)


def _hessian_product(rows: FeatureRows, weights: FloatArray, direction: FloatArray) -> FloatArray:
    """Return the Hessian of the negative log likelihood times a vector of weights."""
    inputs, logits = _inputs_and_logits(rows, weights)
    probabilities, change = softmax(logits, axis=1), inputs @ direction.T
    mean = (probabilities * change).sum(axis=1, keepdims=True)
    bent = probabilities * (change - mean) * rows.weight[:, np.newaxis]
    return np.asarray((bent.T @ inputs).ravel())


def _diagonal(rows: FeatureRows, weights: FloatArray) -> FloatArray:
    """Return the diagonal of the Hessian of the negative log likelihood."""
    inputs, logits = _inputs_and_logits(rows, weights)
    probabilities = softmax(logits, axis=1)
    spread = probabilities * (1 - probabilities) * rows.weight[:, np.newaxis]
    return np.asarray((spread.T @ inputs**2).ravel())


def _hessian(rows: FeatureRows, weights: FloatArray) -> FloatArray:
    """Return the Hessian of the negative log likelihood, (classes x inputs) squared."""
    inputs, logits = _inputs_and_logits(rows, weights)
    probabilities, (n_classes, n_inputs) = softmax(logits, axis=1), weights.shape
    hessian = np.empty((n_classes, n_inputs, n_classes, n_inputs))
    for j in range(n_classes):
        for k in range(j, n_classes):
            weight = rows.weight * probabilities[:, j] * ((j == k) - probabilities[:, k])
            hessian[j, :, k] = hessian[k, :, j] = (inputs * weight[:, np.newaxis]).T @ inputs
    return hessian.reshape(weights.size, weights.size)


def _require_covariance_size(n_weights: int, covariance: str, caller: str) -> None:
    """Raise if a full covariance would be too large."""
    if covariance == "full" and n_weights > MAX_PARAMETERS:
        rule = f"cannot be 'full' for more than {MAX_PARAMETERS:,} weights"
        fix = 'Use covariance="diagonal"'
        raise BadValueError("covariance", caller, rule, f"{n_weights:,} weights", fix)
