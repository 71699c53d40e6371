"""Vector, matrix and structured matrix scaling."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import replace
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray, freeze, require_choice
from dubito.calibrate.affine import BASES, Basis, choose_centers, fit_affine
from dubito.calibrate.calibrator import (
    BaseCalibrator,
    ColumnBlock,
    LabeledRows,
    as_penalty,
    class_weights,
)
from dubito.calibrate.temperature import TEMPERATURE_FIELD, best_inverse_temperature
from dubito.data.shards import Shards
from dubito.errors import BadTypeError
from dubito.kernels.columns import add_softmax
from dubito.outputs import Logits, Probabilities
from dubito.serialization.array_fields import array
from dubito.serialization.fields import Entry, Omittable, declare, fitted, number, one_of

INPUTS = ("auto", "logits", "log_proba")
CHOICES = {"input": INPUTS, "basis": BASES}  # settings that are no penalties


class BaseAffineScaling(BaseCalibrator):
    """A matrix or its diagonal, and an intercept, on logits or on features of log probabilities."""

    input: str = "log_proba"
    weight_: FloatArray

    input_: str = fitted(one_of("logits", "log_proba"))
    temperature_: float = fitted(TEMPERATURE_FIELD)
    bias_: FloatArray = fitted(array("n_classes_"))

    @abstractmethod
    def _penalty(self, n_rows: float) -> FloatArray:
        """Return the L2 penalty of each entry of the matrix, and of the intercept."""

    def _check_params(self) -> None:
        for argument, value in self.get_params(deep=False).items():
            if argument in CHOICES:
                require_choice(value, CHOICES[argument], argument, type(self).__name__)
            else:
                as_penalty(value, argument, type(self).__name__)

    def _features(self) -> Basis:
        """Return the basis that the matrix is multiplied with."""
        is_logits = self.input_ == "logits"
        return Basis(1.0 if is_logits else 1 / self.temperature_, is_logits=is_logits)

    def _learn_basis(self, shards: Shards) -> None:
        """Set the parameters of the basis, once the temperature is known."""

    def _learn(self, shards: Shards) -> None:
        outputs = LabeledRows.of(next(shards.batches())).outputs
        is_given = self.input == "auto" and isinstance(outputs, Logits)
        self.input_ = "logits" if is_given or self.input == "logits" else "log_proba"
        self._require_input(outputs, type(self).__name__)
        beta = best_inverse_temperature(shards)
        self.temperature_ = 1 / beta
        self._learn_basis(shards)
        features, scale = self._features(), 1.0
        if features.is_logits:  # penalties are on deviations from temperature scaling
            features, scale = replace(features, beta=beta), beta
        penalty = self._penalty(class_weights(shards).sum())
        table = fit_affine(shards, features, penalty, self._is_rough)
        deviation, self.bias_ = table[:, :-1], table[:, -1].copy()
        if table.shape[1] == 2:
            deviation, self.bias_ = table[:, 0], self.bias_ - self.bias_.mean()
        identity = 1.0 if deviation.ndim == 1 else np.eye(*deviation.shape)
        self.weight_ = scale * (identity + deviation)

    def _check_outputs(self, outputs: Any, method: str) -> Logits | Probabilities:
        known: Logits | Probabilities = super()._check_outputs(outputs, method)
        self._require_input(known, f"{type(self).__name__}.{method}")
        return known

    def _require_input(self, outputs: Logits | Probabilities, caller: str) -> None:
        """Raise for probabilities in place of logits: the offset of each row is unknown."""
        if self.input_ == "logits" and not isinstance(outputs, Logits):
            rule, got = "must be Logits where input is 'logits'", type(outputs).__name__
            fix = "Pass Logits, or fit with input='log_proba'"
            raise BadTypeError("outputs", caller, rule, got, fix)

    def _numbers_per_row(self) -> int:
        return int(self.weight_.shape[-1])

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        basis, is_diagonal = self._features(), self.weight_.ndim == 1
        if basis.kind != "linear":
            return self._scores(ColumnBlock(outputs)).T
        x = basis.features(outputs)  # many classes are faster side by side
        return np.asarray((x * self.weight_ if is_diagonal else x @ self.weight_.T) + self.bias_)

    def _scores(self, block: ColumnBlock) -> FloatArray:
        """Return calibrated logits, classes x rows."""
        features, *bumps = self._features().columns(block)
        if self.weight_.ndim == 1:
            scores = self.weight_[:, np.newaxis] * features
        else:
            scores = self.weight_[:, : len(features)] @ features
        for more in bumps:
            scores += self.weight_[:, len(features) :] @ more
        scores += self.bias_[:, np.newaxis]
        return np.asarray(scores)

    def _add_probabilities(self, block: ColumnBlock, weight: float, mixed: FloatArray) -> None:
        add_softmax(self._scores(block), 1.0, weight, mixed)

    def _describe(self) -> str:
        diagonal = self.weight_ if self.weight_.ndim == 1 else np.diag(self.weight_)
        is_logits = self.input_ == "logits"
        what = "logits" if is_logits else f"T = {self.temperature_:.3g}, then classes"
        return f"{what} scaled by {diagonal.min():.2f} to {diagonal.max():.2f}"


@final
class VectorScaling(BaseAffineScaling):
    """Scale and shift the logit or log probability of each class.

    Use it where some classes are predicted too often.

    Parameters
    ----------
    regularization : float
        L2 penalty, times K / n, on deviations from temperature scaling. 0 leaves them free, as Guo
        et al. do; 1 suits few rows.
    input : {"auto", "logits", "log_proba"}
        What to scale. "logits" is the published form, softmax(w z + b); its result depends on the
        offset of each row of logits, and it takes no probabilities. "log_proba" scales log
        probabilities at the best temperature, which does not. "auto" takes logits when given
        `Logits`.

    Attributes
    ----------
    input_ : str
        "logits" or "log_proba".
    temperature_ : float
        Temperature of lowest log loss, which log probabilities are divided by first.
    weight_, bias_ : array of shape (n_classes,)
        Scale and shift of each class.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017.
    Berta et al., "Structured matrix scaling for multi-class calibration", 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import Logits
    >>> from dubito.calibrate import VectorScaling
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 500)
    >>> logits = np.eye(3)[y] * 2 + rng.normal(size=(500, 3)) + [0, 0, 1]
    >>> VectorScaling().fit(Logits(logits), y).bias_.round(1).tolist()
    [0.9, 0.8, -1.7]
    """

    param_fields = declare(input=Omittable(one_of(*INPUTS)))
    weight_: FloatArray = fitted(array("n_classes_"))

    def __init__(self, regularization: float = 0.0, input: str = "auto"):  # noqa: A002
        self.regularization = regularization
        self.input = input

    def _penalty(self, n_rows: float) -> FloatArray:
        unit = self.n_classes_ / n_rows
        return np.full((self.n_classes_, 2), float(self.regularization) * unit)

    def _describe(self) -> str:
        shifted = f"shifted by {self.bias_.min():+.2f} to {self.bias_.max():+.2f}"
        return f"{super()._describe()} and {shifted}"


class BaseMatrixScaling(BaseAffineScaling):
    """A full matrix: what one class says about another is described."""

    def _describe(self) -> str:
        off = self.weight_[:, : self.n_classes_] - np.diag(np.diag(self.weight_))
        row, column = np.unravel_index(np.abs(off).argmax(), off.shape)
        names = self.classes_ or tuple(range(self.n_classes_))
        return (
            f"{super()._describe()}; largest effect of one class on another: {names[column]} on "
            f"{names[row]} ({off[row, column]:+.2f})"
        )


def _matrix_penalty(
    n_classes: int, diagonal: float, off_diagonal: float, intercept: float
) -> FloatArray:
    """Return the penalties of a square matrix with the intercept as last column."""
    penalty = np.full((n_classes, n_classes + 1), off_diagonal)
    np.fill_diagonal(penalty, diagonal)
    penalty[:, -1] = intercept
    return penalty


@final
class MatrixScaling(BaseMatrixScaling):
    """Fit a full matrix on logits or log probabilities, with penalties towards the identity.

    For many rows per class; `StructuredMatrixScaling` suits fewer.

    Parameters
    ----------
    off_diagonal : float
        L2 penalty of off-diagonal entries, times K(K-1) / n, in units of the best inverse
        temperature. The diagonal is free.
    intercept : float
        L2 penalty of the intercept, times K / n.
    input : {"auto", "logits", "log_proba"}
        What to multiply. "logits" is the textbook form, softmax(W z + b): without penalties, the
        logistic regression on the logits. Its result depends on the offset of each row of logits,
        and it takes no probabilities. "log_proba" takes log probabilities at the best temperature,
        where the offset makes no difference. "auto" takes logits when given `Logits`.

    Attributes
    ----------
    input_ : str
        "logits" or "log_proba".
    temperature_ : float
        Temperature of lowest log loss, which log probabilities are divided by first.
    weight_ : array of shape (n_classes, n_classes)
        The matrix.
    bias_ : array of shape (n_classes,)
        The intercept.

    References
    ----------
    Kull et al., "Beyond temperature scaling: obtaining well-calibrated multiclass probabilities
    with Dirichlet calibration", NeurIPS 2019 (ODIR regularization).
    Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import Logits
    >>> from dubito.calibrate import MatrixScaling
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 500)
    >>> logits = np.eye(3)[y] @ [[2, 1, 0], [1, 2, 0], [0, 0, 2]] + rng.normal(size=(500, 3))
    >>> MatrixScaling().fit(Logits(logits), y).weight_.shape
    (3, 3)
    """

    param_fields = declare(input=Omittable(one_of(*INPUTS)))
    weight_: FloatArray = fitted(array("n_classes_", "n_classes_"))

    def __init__(
        self,
        off_diagonal: float = 1.0,
        intercept: float = 1.0,
        input: str = "auto",  # noqa: A002
    ):
        self.off_diagonal = off_diagonal
        self.intercept = intercept
        self.input = input

    def _penalty(self, n_rows: float) -> FloatArray:
        unit = self.n_classes_ / n_rows
        across = float(self.off_diagonal) * unit * (self.n_classes_ - 1)
        return _matrix_penalty(self.n_classes_, 0.0, across, float(self.intercept) * unit)


@final
class StructuredMatrixScaling(BaseMatrixScaling):
    """Fit a matrix whose penalties grow with the number of classes and shrink with the rows.

    For multi-class outputs of any size: with few rows it is close to temperature scaling, with
    many a full matrix.

    Parameters
    ----------
    regularization : float
        Penalties are this times K / n for diagonal and intercept, and times K(K-1) / n off the
        diagonal.
    basis : {"linear", "spline", "rbf"}
        Features of the log probabilities. "linear" is the published method. "spline" lets classes
        act on each other by piecewise linear functions, where miscalibration depends on the level
        of a probability. "rbf" adds radial basis functions around some rows (penalty times 1 / n).

    Attributes
    ----------
    temperature_ : float
        Temperature of lowest log loss.
    weight_ : array of shape (n_classes, n_features)
        The matrix; n_features is n_classes for the linear basis, and larger otherwise.
    bias_ : array of shape (n_classes,)
        The intercept.
    centers_ : array of shape (n_centers, n_classes)
        Centers of the radial basis functions, for `basis="rbf"`: means of five rows of the fit,
        none of which is stored.
    width_ : float
        Their width, for `basis="rbf"`.
    input_ : str
        What the matrix is applied to: always "log_proba".

    References
    ----------
    Berta et al., "Structured matrix scaling for multi-class calibration", 2025.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito import Logits
    >>> from dubito.calibrate import StructuredMatrixScaling
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 500)
    >>> logits = np.eye(3)[y] @ [[2, 1, 0], [1, 2, 0], [0, 0, 2]] + rng.normal(size=(500, 3))
    >>> StructuredMatrixScaling().fit(Logits(logits), y).weight_.shape
    (3, 3)
    """

    param_fields = declare(basis=Omittable(one_of(*BASES)))
    input_: str = fitted(one_of("log_proba"))
    weight_: FloatArray = fitted(array("n_classes_", None))
    centers_: FloatArray = fitted(Omittable(array(None, "n_classes_")))
    width_: float = fitted(Omittable(number(1e-30)))

    def __init__(self, regularization: float = 1.0, basis: str = "linear"):
        self.regularization = regularization
        self.basis = basis

    def _check_fitted(self, entry: Entry) -> None:
        is_rbf = self.basis == "rbf"
        for name in ("centers_", "width_"):
            if hasattr(self, name) != is_rbf:
                rule = f"{'given' if is_rbf else 'left out'} where basis is {self.basis!r}"
                raise entry.at(name).error(rule, "none" if is_rbf else "some")
        features = self._features()
        n_centers = 0 if features.centers is None else len(features.centers)
        n_features = features.n_per_class() * self.n_classes_ + n_centers
        if self.weight_.shape[1] != n_features:
            rule = f"{self.n_classes_} x {n_features} numbers"
            raise entry.at("weight_").error(rule, f"{self.weight_.shape[1]} columns")

    def _learn_basis(self, shards: Shards) -> None:
        if self.basis == "rbf":
            self.centers_, self.width_ = choose_centers(shards, 1 / self.temperature_)

    def _features(self) -> Basis:
        beta = 1 / self.temperature_
        if self.basis == "rbf":
            return Basis(beta, self.basis, freeze(self.centers_), float(self.width_))
        return Basis(beta, self.basis)

    def _penalty(self, n_rows: float) -> FloatArray:
        own = float(self.regularization) * self.n_classes_ / n_rows
        across = own * (self.n_classes_ - 1)
        penalty = _matrix_penalty(self.n_classes_, own, across, own)
        parts = [np.tile(penalty[:, :-1], self._features().n_per_class())]
        if self.basis == "rbf":
            shape = (self.n_classes_, len(self.centers_))
            parts.append(np.full(shape, float(self.regularization) / n_rows))
        return np.column_stack([*parts, penalty[:, -1]])
