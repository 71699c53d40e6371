"""Opinion pools: models combined with weights learned on validation rows."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import scipy

from dubito.arrays import BoolArray, FloatArray, contiguous
from dubito.calibrate.calibrator import FLOOR, LabeledRows, as_penalty, log_probabilities
from dubito.calibrate.temperature import fit_mixture_weights
from dubito.data.batch import Batch
from dubito.decide.combine import as_models
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.kernels.softmax import softmax_rows
from dubito.measure.state import warn_of_missing
from dubito.outputs import ClassName, Logits, Probabilities, require_classes
from dubito.serialization.array_fields import array, distribution
from dubito.serialization.fields import boolean, class_names, declare, integer, number, optional
from dubito.serialization.objects import Serializable

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
        likelihoods = np.maximum(np.exp(self.logs[:, rows, classes]), FLOOR)
        return likelihoods.T, weights[rows, classes]

    def loss_of(self, scores: FloatArray) -> float:
        """Return the log loss of log probabilities, given up to a shift per row."""
        right = (self.labels * scores).sum(axis=1)
        return float(
            self.weight @ (scipy.special.logsumexp(scores, axis=1) - right) / self.weight.sum()
        )


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
    n_classes_, classes_, n_rows_
        The classes, and the number of labeled rows.
    """

    weights_: FloatArray
    n_classes_: int
    classes_: tuple[ClassName, ...] | None
    n_rows_: int
    log_loss_: float | None
    log_losses_: FloatArray

    fitted_fields = declare(
        n_classes_=integer(2),
        classes_=class_names("n_classes_"),
        n_rows_=integer(1),
        log_loss_=optional(number()),
    )

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
        models = as_models(outputs, name)
        batch = Batch.of(y, models[0], sample_weight=sample_weight, caller=name, argument="y")
        if batch.labels is None:
            raise BadTypeError("y", name, "must be the labels", "None", "Pass the true labels")
        warn_of_missing(batch.n_missing, len(batch), name, stacklevel=3)
        rows = np.flatnonzero(batch.labeled_weight)
        if not rows.size:
            raise EmptyStateError("A pool")
        self._check_params()
        self._forget()
        data = PoolData.of(batch.take(rows), [model.take(rows) for model in models])
        learned = self._learn(data)
        cross_fitted = self._cross_fitted(data)
        self.n_classes_, self.classes_ = models[0].n_classes, models[0].classes
        self.n_rows_, self.log_loss_ = int(rows.size), cross_fitted
        self.log_losses_ = np.array([data.loss_of(logs) for logs in data.logs])
        for key, value in learned.items():
            setattr(self, key, value)
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
        models = as_models(outputs, caller)
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
        """Return the weights and the log loss in one line."""
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
    >>> models = [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.5, 0.5]]]
    >>> LinearPool().fit(models, [0, 1]).weights_.round(2).tolist()
    [1.0, 0.0]
    """

    fitted_fields = declare(weights_=distribution(None), log_losses_=array("weights_"))

    def _learn(self, data: PoolData) -> dict[str, Any]:
        return {"weights_": fit_mixture_weights(*data.likelihoods())}

    def _pooled(self, logs: FloatArray, learned: dict[str, Any]) -> FloatArray:
        mixed = np.tensordot(learned["weights_"], np.exp(logs), axes=1)
        return np.log(np.maximum(mixed, FLOOR))


@final
class LogLinearPool(BasePool):
    """Log-linear opinion pool: a product of the models' probabilities with learned powers.

    Use it where models see different aspects of the same rows. Powers of 1 are the product rule,
    powers that sum to 1 a geometric mean.

    Parameters
    ----------
    has_bias : bool, default False
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
    >>> models = [[[0.9, 0.1], [0.2, 0.8]], [[0.5, 0.5], [0.5, 0.5]]]
    >>> LogLinearPool().fit(models, [0, 1]).weights_.round(2).tolist()
    [1.0, 0.5]
    """

    bias_: FloatArray

    param_fields = declare(has_bias=boolean)
    fitted_fields = declare(
        weights_=array(None, low=0, high=MAX_POWER),
        bias_=array("n_classes_", low=-MAX_BIAS, high=MAX_BIAS),
        log_losses_=array("weights_"),
    )

    def __init__(self, has_bias: bool = False, regularization: float = 1.0) -> None:
        self.has_bias = has_bias
        self.regularization = regularization

    def _check_params(self) -> None:
        as_penalty(self.regularization, "regularization", type(self).__name__)

    def _learn(self, data: PoolData) -> dict[str, Any]:
        n_models, _, n_classes = data.logs.shape
        n_bias = n_classes if self.has_bias else 0
        center = np.append(np.full(n_models, 1 / n_models), np.zeros(n_bias))
        penalty = float(self.regularization) / data.weight.sum()
        weight = data.weight / data.weight.sum()
        logs = np.ascontiguousarray(data.logs.transpose(0, 2, 1))  # rows last: quick sums
        labels = weight * data.labels.T
        wanted = np.append(np.tensordot(logs, labels, axes=2), labels.sum(axis=1)[:n_bias])

        def loss(x: FloatArray) -> tuple[float, FloatArray]:
            scores = np.tensordot(x[:n_models], logs, axes=1)
            scores += x[n_models:, np.newaxis] if self.has_bias else 0.0
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
        bias = found.x[n_models:] if self.has_bias else np.zeros(n_classes)
        return {"weights_": found.x[:n_models], "bias_": bias}

    def _pooled(self, logs: FloatArray, learned: dict[str, Any]) -> FloatArray:
        return np.asarray(np.tensordot(learned["weights_"], logs, axes=1) + learned["bias_"])
