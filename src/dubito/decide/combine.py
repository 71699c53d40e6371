"""Several models combined: conditionally independent ones, with a test, and weighted pools."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Self, final

import numpy as np
import scipy

from dubito.arrays import (
    ArrayResult,
    BoolArray,
    FloatArray,
    IntArray,
    as_array,
    as_floats,
    as_fraction,
    as_list,
    contiguous,
    freeze,
    require_rows,
)
from dubito.calibrate.calibrator import (
    FLOOR,
    LabeledRows,
    as_class_outputs,
    as_penalty,
    log_odds,
    log_probabilities,
)
from dubito.calibrate.temperature import fit_mixture_weights
from dubito.data.batch import Batch, make_batch
from dubito.decide.priors import as_prior, log_posteriors, log_prior, plain_codes, probabilities_of
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.kernels.scaling import softmax_rows
from dubito.measure.state import warn_of_missing
from dubito.outputs import BaseOutputs, ClassName, Logits, Probabilities, require_classes, unchecked
from dubito.serialization.array_fields import array, distribution
from dubito.serialization.fields import (
    boolean,
    class_names,
    declare,
    fitted,
    integer,
    number,
    optional,
)
from dubito.serialization.objects import Serializable


def combine_posteriors(outputs: Any, prior: Any, *, present: Any = None) -> Probabilities:
    """Return the posterior given the inputs of several models: their product over the prior.

    For models with the same prior whose inputs are conditionally independent given the class, such
    as an X-ray and a blood test. `conditional_independence_test` checks the assumption.

    Parameters
    ----------
    outputs : list of outputs
        Calibrated posteriors of each model for the same rows and classes. A probability of 0
        counts as the smallest positive number of its precision.
    prior : array or dict
        The class prior that the models share.
    present : array of bool, rows x models, optional
        Which models are available for each row; where none is, the prior is returned.

    Returns
    -------
    Probabilities

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 1.5.4.

    Examples
    --------
    >>> from dubito.decide import combine_posteriors
    >>> combine_posteriors([[[0.8, 0.2]], [[0.8, 0.2]]], [0.5, 0.5]).array.round(3).tolist()
    [[0.941, 0.059]]
    """
    caller = "combine_posteriors"
    is_there = None
    if present is not None:
        is_there = as_array(present, "present", caller)
        if is_there.dtype.kind != "b" or is_there.ndim != 2:
            rule, got = "must be booleans, rows x models", f"shape {is_there.shape}"
            fix = "Use ~np.isnan(...) of the models' inputs"
            raise BadValueError("present", caller, rule, f"{got}, dtype {is_there.dtype}", fix)
    models = _as_models(outputs, caller, is_there)
    first = models[0]
    priors = as_prior(prior, first, "prior", caller)
    logs, is_possible = log_prior(priors), priors > 0
    precision = np.result_type(*(model.array.dtype for model in models))
    result = np.empty(first.array.shape, precision)

    def fill(rows: slice) -> None:
        scores = np.tile(logs, (rows.stop - rows.start, 1))
        for m, model in enumerate(models):
            evidence = log_posteriors(model.take(rows)) - logs
            counts = is_possible if is_there is None else is_possible & is_there[rows, m, None]
            scores += np.where(counts, evidence, 0)
        result[rows] = probabilities_of(scores, precision)

    run_in_order(fill, row_blocks(first.n_rows, first.n_classes))
    return unchecked(Probabilities, {"array": result, "classes": first.classes})


def _as_models(
    outputs: Any, caller: str, is_there: BoolArray | None = None
) -> list[Logits | Probabilities]:
    """Return the outputs of several models for the same rows and classes.

    Class names of one model apply to all. Where a model is absent, the rows of a plain array may
    hold anything, including NaN.
    """
    rule, fix = "must be a list of outputs, one per model", "Pass [outputs_a, outputs_b]"
    if isinstance(outputs, BaseOutputs):
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    listed = as_list(outputs, "outputs", caller, rule, fix)
    if not listed:
        raise BadValueError("outputs", caller, "must have at least 1 model", "0", fix)
    if is_there is not None:
        if is_there.shape[1] != len(listed):
            rule, fix = f"must have {len(listed)} columns", "Give one column per model"
            raise BadValueError("present", caller, rule, f"{is_there.shape[1]}", fix)
        listed = [_filled(one, is_there[:, m], caller) for m, one in enumerate(listed)]
    models = [as_class_outputs(one, caller) for one in listed]
    names = next((model.classes for model in models if model.classes is not None), None)
    shape = models[0].array.shape
    for m, model in enumerate(models):
        if model.array.shape != shape or model.classes not in (None, names):
            rule = f"must have shape {shape} and classes {names}, like the other models"
            got = f"shape {model.array.shape}, classes {model.classes}"
            fix = "Pass the same rows with columns in the same order"
            raise BadValueError(f"outputs[{m}]", caller, rule, got, fix)
    if is_there is not None:
        require_rows(is_there, models[0].n_rows, "present", caller)
    return [unchecked(type(model), {"array": model.array, "classes": names}) for model in models]


def _require_order(outputs: Any, y: Any, caller: str) -> None:
    """Raise if the outputs of several models were passed as labels."""
    listed = y if isinstance(y, list | tuple) else ()
    if any(isinstance(one, BaseOutputs) or getattr(one, "ndim", 0) > 1 for one in listed[:1]):
        rule, held = "got its arguments swapped:", "`y` holds the outputs of several models"
        raise BadTypeError("", caller, rule, held, f"The order is {caller}(outputs, y)")


def _filled(outputs: Any, is_there: BoolArray, caller: str) -> Any:
    """Return a plain array with valid values in absent rows."""
    if isinstance(outputs, BaseOutputs):
        return outputs
    array = as_floats(outputs, "outputs", caller)
    if len(array) != len(is_there) or array.ndim > 2:
        return array
    n_columns = max(1, array[0].size) if array.size else 1
    return np.where(is_there[:, None] if array.ndim == 2 else is_there, array, 1 / n_columns)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConditionalIndependenceTest(ArrayResult):
    """Rank correlations of each pair of models within classes, with p-values.

    Attributes
    ----------
    correlation, p_value : array, models x models
        1 on the diagonal.
    alpha : float
        The significance level.
    n_rows : int
        The number of labeled rows.
    """

    correlation: FloatArray
    p_value: FloatArray
    alpha: float
    n_rows: int

    @property
    def is_contradicted(self) -> bool:
        """Whether some pair is significantly correlated, after Bonferroni correction."""
        n_models = len(self.p_value)
        return bool(self.p_value.min() * (n_models * (n_models - 1) // 2) < self.alpha)

    def summary(self) -> str:
        """Return the result in a sentence, with the most significant pair.

        Returns
        -------
        str
            Whether the data contradict conditional independence, with the figures.
        """
        upper = np.triu_indices(len(self.p_value), 1)
        strongest = np.lexsort((-np.abs(self.correlation[upper]), self.p_value[upper]))[0]
        a, b = (int(index[strongest]) for index in upper)
        p = self.p_value[a, b]
        figures = (
            f"rank correlation {self.correlation[a, b]:.2f} of models {a} and {b}, "
            f"p {f'= {p:.2g}' if p >= 1e-99 else '< 1e-99'}, {self.n_rows:,} rows"
        )
        if not self.is_contradicted:
            return f"The data do not contradict conditional independence ({figures})."
        effect = "is under-confident"
        if self.correlation[a, b] > 0:
            effect = "counts shared evidence more than once and is over-confident"
        return (
            f"The data contradict conditional independence ({figures}): the product {effect}. "
            "Use LogLinearPool."
        )


def conditional_independence_test(
    outputs: Any, y: Any, *, alpha: float = 0.01
) -> ConditionalIndependenceTest:
    """Test whether labeled rows contradict the assumption of `combine_posteriors`.

    Within a class, the log odds of the true class under conditionally independent models are not
    rank-correlated, calibrated or not. Other kinds of dependence are not detected.

    Parameters
    ----------
    outputs : list of outputs
        Outputs of each model for the same rows and classes.
    y : array
        Labels.
    alpha : float, default 0.01
        The significance level.

    Returns
    -------
    ConditionalIndependenceTest

    References
    ----------
    Spearman, "The proof and measurement of association between two things", 1904; here pooled
    over classes.

    Examples
    --------
    >>> from dubito.decide import conditional_independence_test
    >>> p = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4], [0.55, 0.45], [0.5, 0.5]] * 4
    >>> conditional_independence_test([p, p], [0] * 24).is_contradicted
    True
    """
    caller = "conditional_independence_test"
    level = as_fraction(alpha, "alpha", caller, is_open=True)
    _require_order(outputs, y, caller)
    models = _as_models(outputs, caller)
    if len(models) < 2:
        rule, fix = "must have at least 2 models", "Pass [outputs_a, outputs_b]"
        raise BadValueError("outputs", caller, rule, "1", fix)
    codes = plain_codes(y, models[0], "y", caller, stacklevel=2)
    rows = np.flatnonzero(codes >= 0)
    odds = [log_odds(model)[rows, codes[rows]] for model in models]
    groups = [np.flatnonzero(codes[rows] == k) for k in np.unique(codes[rows])]
    correlation, p_value = np.eye(len(models)), np.ones((len(models), len(models)))
    for a, b in combinations(range(len(models)), 2):
        pair = _within_classes(odds[a], odds[b], groups)
        correlation[[a, b], [b, a]], p_value[[a, b], [b, a]] = pair
    return ConditionalIndependenceTest(freeze(correlation), freeze(p_value), level, int(rows.size))


def _within_classes(
    a: FloatArray, b: FloatArray, groups: Sequence[IntArray]
) -> tuple[float, float]:
    """Return the rank correlation within groups of rows, pooled, and its p-value.

    Under independence the correlation of n rows has variance 1 / (n - 1), also with ties. Groups
    where either is constant are left out; without any group the p-value is 1.
    """
    total, freedom = 0.0, 0
    for rows in groups:
        first, second = (scipy.stats.rankdata(values[rows]) for values in (a, b))
        first, second = first - first.mean(), second - second.mean()
        scale = float(np.sqrt((first @ first) * (second @ second)))
        if scale > 0:
            total += (rows.size - 1) * float(first @ second) / scale
            freedom += rows.size - 1
    if not freedom:
        return 0.0, 1.0
    return total / freedom, float(2 * scipy.special.ndtr(-abs(total) / np.sqrt(freedom)))


LOWEST = -1e4  # of a log probability; lower ones would dominate every sum


@final
@dataclass(frozen=True, slots=True, eq=False)
class PoolData:
    """Log probabilities (models x rows x classes), label probabilities and weights."""

    logs: FloatArray
    labels: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, batch: Batch, models: Sequence[Logits | Probabilities]) -> PoolData:
        """Return the data of a batch of labeled rows."""
        rows = LabeledRows.of(batch)
        soft, n_classes = rows.soft_labels, rows.outputs.n_classes
        labels = soft if soft.shape[0] else np.eye(n_classes)[rows.labels]
        return cls(_logs_of(models), labels, rows.weight)

    def take(self, rows: BoolArray) -> PoolData:
        """Return some of the rows."""
        return PoolData(self.logs[:, rows], self.labels[rows], self.weight[rows])

    def likelihoods(self) -> tuple[FloatArray, FloatArray]:
        """Return the likelihood of each label under each model (column), and its weight."""
        weights = self.weight[:, np.newaxis] * self.labels
        rows, classes = np.nonzero(weights)
        return np.maximum(np.exp(self.logs[:, rows, classes]), FLOOR).T, weights[rows, classes]

    def loss_of(self, scores: FloatArray) -> float:
        """Return the log loss of log probabilities, given up to a shift per row."""
        losses = scipy.special.logsumexp(scores, axis=1) - (self.labels * scores).sum(axis=1)
        return float(self.weight @ losses / self.weight.sum())


def _logs_of(models: Sequence[Logits | Probabilities]) -> FloatArray:
    """Return log probabilities, models x rows x classes, none below -10000."""
    return np.maximum(np.stack([log_probabilities(model) for model in models]), LOWEST)


N_FOLDS = 2  # for the log loss in the summary
FEWEST_ROWS = 20  # for cross-fitting
MAX_POWER, MAX_BIAS = 1e4, 1e4  # separable rows have no finite optimum without a penalty


class BasePool(Serializable):
    """Base of the pools: learns one weight per model.

    Attributes
    ----------
    weights_ : array of float
        One weight per model.
    log_loss_ : float or None
        The log loss of the pool, two-fold cross-fitted; None for fewer than 20 rows.
    log_losses_ : array of float
        The log loss of each model alone.
    n_classes_, n_rows_ : int
        The number of classes, and of labeled rows.
    classes_ : tuple of str or number, or None
        The class names, if the outputs have any.
    """

    weights_: FloatArray
    log_losses_: FloatArray
    n_classes_: int = fitted(integer(2))
    classes_: tuple[ClassName, ...] | None = fitted(class_names("n_classes_"))
    n_rows_: int = fitted(integer(1))
    log_loss_: float | None = fitted(optional(number()))

    def fit(self, outputs: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the weights.

        Parameters
        ----------
        outputs : list of outputs
            Outputs of each model for the same rows and classes.
        y : array
            Labels.
        sample_weight : array, optional
            Weights of the rows.

        Returns
        -------
        The fitted pool.
        """
        name = type(self).__name__
        _require_order(outputs, y, f"{name}.fit")
        models = _as_models(outputs, name)
        batch = make_batch(y, models[0], sample_weight=sample_weight, caller=name, argument="y")
        if batch.labels is None:
            raise BadTypeError("y", name, "must be the labels", "None", "Pass the true labels")
        warn_of_missing(batch.n_missing, len(batch), name, stacklevel=3)
        rows = np.flatnonzero(batch.labeled_weight)
        if not rows.size:
            raise EmptyStateError("A pool")
        known = {"n_classes_": models[0].n_classes, "classes_": models[0].classes}
        with self._fitting(**known, n_rows_=int(rows.size)):
            data = PoolData.of(batch.take(rows), [model.take(rows) for model in models])
            for key, value in self._learn(data).items():
                setattr(self, key, value)
            self.log_loss_ = self._cross_fitted(data)
            self.log_losses_ = np.array([data.loss_of(logs) for logs in data.logs])
        return self

    def predict_proba(self, outputs: Any) -> FloatArray:
        """Return the probabilities of the pool, rows x classes, none below 1e-12.

        Parameters
        ----------
        outputs : list of outputs
            Outputs of the models of the fit, in the same order.

        Returns
        -------
        array of float
        """
        self._require_fitted("predict_proba")
        caller = f"{type(self).__name__}.predict_proba"
        models = _as_models(outputs, caller)
        if len(models) != self.weights_.size:
            rule, fix = f"must have {self.weights_.size} models", "Pass the models of the fit"
            raise BadValueError("outputs", caller, rule, f"{len(models)}", fix)
        require_classes(models[0], self.n_classes_, self.classes_, caller)
        precision = np.result_type(*(model.array.dtype for model in models))
        result = np.empty(models[0].array.shape, precision)

        def fill(rows: slice) -> None:
            logs = _logs_of([model.take(rows) for model in models])
            softmax_rows(contiguous(self._pooled(logs, self._learned())), FLOOR, result[rows])

        run_in_order(fill, row_blocks(*result.shape))
        return result

    def summary(self) -> str:
        """Return the weights and the log loss in one line.

        Returns
        -------
        str
            One line.
        """
        self._require_fitted("summary")
        weights = ", ".join(f"{weight:.3g}" for weight in self.weights_)
        best = int(np.argmin(self.log_losses_))
        if self.log_loss_ is None:
            return f"weights {weights}, {self.n_rows_:,} rows: too few for cross-fitting"
        return (
            f"weights {weights}; log loss {self.log_loss_:.4g} cross-fitted on {self.n_rows_:,} "
            f"rows, {self.log_losses_[best]:.4g} for the best single model (index {best})"
        )

    @abstractmethod
    def _learn(self, data: PoolData) -> dict[str, Any]:
        """Return the fitted attributes by name."""

    @abstractmethod
    def _pooled(self, logs: FloatArray, learned: dict[str, Any]) -> FloatArray:
        """Return the log probabilities of the pool, up to a shift per row."""

    def _cross_fitted(self, data: PoolData) -> float | None:
        n_rows = data.weight.size
        if n_rows < FEWEST_ROWS:
            return None
        fold = np.random.default_rng(0).permutation(n_rows) % N_FOLDS
        total = 0.0
        for f in range(N_FOLDS):
            learned, other = self._learn(data.take(fold != f)), data.take(fold == f)
            total += other.loss_of(self._pooled(other.logs, learned)) * other.weight.sum()
        return float(total / data.weight.sum())


@final
class LinearPool(BasePool):
    """Linear opinion pool: a weighted mean of the models' probabilities.

    Use it where each model is right on different rows; the pool is never more confident than the
    most confident model. The weights, which sum to 1, maximize the likelihood.

    References
    ----------
    Genest and Zidek, "Combining probability distributions: a critique and an annotated
    bibliography", 1986.

    Examples
    --------
    >>> from dubito.decide import LinearPool
    >>> models = [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.5, 0.5]]]
    >>> LinearPool().fit(models, [0, 1]).weights_.round(2).tolist()
    [1.0, 0.0]
    """

    weights_: FloatArray = fitted(distribution(None))
    log_losses_: FloatArray = fitted(array("weights_"))

    def _learn(self, data: PoolData) -> dict[str, Any]:
        return {"weights_": fit_mixture_weights(*data.likelihoods())}

    def _pooled(self, logs: FloatArray, learned: dict[str, Any]) -> FloatArray:
        return np.log(np.maximum(np.tensordot(learned["weights_"], np.exp(logs), axes=1), FLOOR))


@final
class LogLinearPool(BasePool):
    """Log-linear opinion pool: a product of the models' probabilities with learned powers.

    Use it where models see different aspects of the same rows. Powers of 1 are the product rule,
    powers that sum to 1 a geometric mean.

    Parameters
    ----------
    fit_intercept : bool, default False
        Also learn a bias per class, such as the prior that the product counts twice.
    regularization : float, default 1.0
        This times half the squared distance from powers of 1 / models and biases of 0 is added to
        the sum of losses.

    Attributes
    ----------
    bias_ : array of float
        One bias per class.

    References
    ----------
    Genest and Zidek, "Combining probability distributions: a critique and an annotated
    bibliography", 1986.

    Examples
    --------
    >>> from dubito.decide import LogLinearPool
    >>> models = [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.5, 0.5]]]
    >>> LogLinearPool().fit(models, [0, 1]).weights_.round(2).tolist()
    [1.0, 0.5]
    """

    weights_: FloatArray = fitted(array(None, low=0, high=MAX_POWER))
    bias_: FloatArray = fitted(array("n_classes_", low=-MAX_BIAS, high=MAX_BIAS))
    log_losses_: FloatArray = fitted(array("weights_"))

    param_fields = declare(fit_intercept=boolean)

    def __init__(self, fit_intercept: bool = False, regularization: float = 1.0) -> None:
        self.fit_intercept = fit_intercept
        self.regularization = regularization

    def _check_params(self) -> None:
        as_penalty(self.regularization, "regularization", type(self).__name__)

    def _learn(self, data: PoolData) -> dict[str, Any]:
        n_models, _, n_classes = data.logs.shape
        n_bias = n_classes if self.fit_intercept else 0
        center = np.append(np.full(n_models, 1 / n_models), np.zeros(n_bias))
        penalty = float(self.regularization) / data.weight.sum()
        weight = data.weight / data.weight.sum()
        logs = np.ascontiguousarray(data.logs.transpose(0, 2, 1))  # rows last: quick sums
        labels = weight * data.labels.T
        wanted = np.append(np.tensordot(logs, labels, axes=2), labels.sum(axis=1)[:n_bias])

        def loss(x: FloatArray) -> tuple[float, FloatArray]:
            scores = np.tensordot(x[:n_models], logs, axes=1)
            scores += x[n_models:, np.newaxis] if self.fit_intercept else 0.0
            top = scores.max(axis=0)
            parts = np.exp(scores - top)
            total = parts.sum(axis=0)
            parts *= weight / total
            slope = np.append(np.tensordot(logs, parts, axes=2), parts.sum(axis=1)[:n_bias])
            away = x - center
            value = float(weight @ (np.log(total) + top) - wanted @ x)
            return value + 0.5 * penalty * float(away @ away), slope - wanted + penalty * away

        bounds = [(0.0, MAX_POWER)] * n_models + [(-MAX_BIAS, MAX_BIAS)] * n_bias
        options = {"maxiter": 1000, "ftol": 1e-14, "gtol": 1e-9}
        found = scipy.optimize.minimize(
            loss, center, jac=True, method="L-BFGS-B", bounds=bounds, options=options
        )
        bias = found.x[n_models:] if self.fit_intercept else np.zeros(n_classes)
        return {"weights_": found.x[:n_models], "bias_": bias}

    def _pooled(self, logs: FloatArray, learned: dict[str, Any]) -> FloatArray:
        return np.asarray(np.tensordot(learned["weights_"], logs, axes=1) + learned["bias_"])
