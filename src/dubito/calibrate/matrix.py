"""Vector, matrix and structured matrix scaling."""

from __future__ import annotations

from abc import abstractmethod
from typing import final

import numpy as np

from dubito.arrays import FloatArray, freeze, require_choice
from dubito.calibrate.affine import affine_scores, fit_affine
from dubito.calibrate.basis import BASES, Basis, choose_centers
from dubito.calibrate.calibrator import BaseCalibrator, as_penalty, class_weights
from dubito.calibrate.temperature import TEMPERATURE_FIELD, best_inverse_temperature
from dubito.data.shards import Shards
from dubito.outputs import Logits, Probabilities
from dubito.serialization.array_fields import array
from dubito.serialization.fields import Entry, Omittable, declare, number


@final
class VectorScaling(BaseCalibrator):
    """Scale and shift the log probability of each class, after temperature scaling.

    Use it where some classes are predicted too often.

    Parameters
    ----------
    regularization : float
        L2 penalty, times K / n, on deviations from temperature scaling. 0 leaves them free, as Guo
        et al. do; 1 suits few rows.

    Attributes
    ----------
    temperature_ : float
        Temperature of lowest log loss.
    weight_, bias_ : array of shape (n_classes,)
        Scale and shift of each class.

    References
    ----------
    Guo, Pleiss, Sun and Weinberger, "On calibration of modern neural networks", ICML 2017.
    Berta et al., "Structured matrix scaling for multi-class calibration", 2025.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 500)
    >>> logits = np.eye(3)[y] * 2 + rng.normal(size=(500, 3)) + [0, 0, 1]
    >>> VectorScaling().fit(Logits(logits), y).bias_.round(1).tolist()
    [0.5, 1.1, -1.6]
    """

    temperature_: float
    weight_: FloatArray
    bias_: FloatArray

    fitted_fields = declare(
        temperature_=TEMPERATURE_FIELD, weight_=array("n_classes_"), bias_=array("n_classes_")
    )

    def __init__(self, regularization: float = 0.0):
        self.regularization = regularization

    def _check_params(self) -> None:
        as_penalty(self.regularization, "regularization", type(self).__name__)

    def _learn(self, shards: Shards) -> None:
        beta = best_inverse_temperature(shards)
        unit = self.n_classes_ / class_weights(shards).sum()
        penalty = np.full((self.n_classes_, 2), float(self.regularization) * unit)
        table = fit_affine(shards, Basis(beta), penalty)
        self.temperature_ = 1 / beta
        self.weight_, self.bias_ = 1 + table[:, 0], table[:, 1] - table[:, 1].mean()

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        table = np.column_stack([self.weight_ - 1, self.bias_])
        return affine_scores(outputs, Basis(1 / self.temperature_), table)

    def _describe(self) -> str:
        low, high = self.weight_.min(), self.weight_.max()
        return (
            f"T = {self.temperature_:.3g}, then classes scaled by {low:.2f} to {high:.2f} and "
            f"shifted by {self.bias_.min():+.2f} to {self.bias_.max():+.2f}"
        )


class BaseMatrixScaling(BaseCalibrator):
    """A matrix and an intercept on the features of temperature-scaled log probabilities."""

    temperature_: float
    weight_: FloatArray
    bias_: FloatArray

    fitted_fields = declare(temperature_=TEMPERATURE_FIELD, bias_=array("n_classes_"))

    @abstractmethod
    def _penalty(self, n_rows: float) -> FloatArray:
        """Return the L2 penalty of each entry of the matrix, and of the intercept."""

    def _features(self) -> Basis:
        """Return the basis that the matrix is multiplied with."""
        return Basis(1 / self.temperature_)

    def _learn_basis(self, shards: Shards) -> None:
        """Set the parameters of the basis, once the temperature is known."""

    def _learn(self, shards: Shards) -> None:
        self.temperature_ = 1 / best_inverse_temperature(shards)
        self._learn_basis(shards)
        penalty = self._penalty(class_weights(shards).sum())
        table = fit_affine(shards, self._features(), penalty)
        deviation, self.bias_ = table[:, :-1], table[:, -1].copy()
        self.weight_ = np.eye(*deviation.shape) + deviation

    def _numbers_per_row(self) -> int:
        return int(self.weight_.shape[1])

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        deviation = self.weight_ - np.eye(*self.weight_.shape)
        return affine_scores(outputs, self._features(), np.column_stack([deviation, self.bias_]))

    def _describe(self) -> str:
        diagonal = np.diag(self.weight_)
        off = self.weight_[:, : self.n_classes_] - np.diag(diagonal)
        row, column = np.unravel_index(np.abs(off).argmax(), off.shape)
        names = self.classes_ or tuple(range(self.n_classes_))
        return (
            f"T = {self.temperature_:.3g}, then classes scaled by {diagonal.min():.2f} to "
            f"{diagonal.max():.2f}; largest effect of one class on another: {names[column]} on "
            f"{names[row]} ({off[row, column]:+.2f})"
        )


def _matrix_penalty(
    n_classes: int, *, diagonal: float, off_diagonal: float, intercept: float
) -> FloatArray:
    """Return the penalties of a square matrix with the intercept as last column."""
    penalty = np.full((n_classes, n_classes + 1), off_diagonal)
    np.fill_diagonal(penalty, diagonal)
    penalty[:, -1] = intercept
    return penalty


@final
class MatrixScaling(BaseMatrixScaling):
    """Fit a full matrix on log probabilities, with L2 penalties towards the identity.

    For many rows per class; `StructuredMatrixScaling` suits fewer.

    Parameters
    ----------
    off_diagonal : float
        Penalty of off-diagonal entries, times K(K-1) / n. The diagonal is free.
    intercept : float
        Penalty of the intercept, times K / n.

    Attributes
    ----------
    temperature_ : float
        Temperature of lowest log loss.
    weight_ : array of shape (n_classes, n_classes)
        The matrix.
    bias_ : array of shape (n_classes,)
        The intercept.

    References
    ----------
    Kull et al., "Beyond temperature scaling: obtaining well-calibrated multiclass probabilities
    with Dirichlet calibration", NeurIPS 2019 (ODIR regularization).

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 500)
    >>> logits = np.eye(3)[y] @ [[2, 1, 0], [1, 2, 0], [0, 0, 2]] + rng.normal(size=(500, 3))
    >>> MatrixScaling().fit(Logits(logits), y).weight_.shape
    (3, 3)
    """

    fitted_fields = declare(weight_=array("n_classes_", "n_classes_"))

    def __init__(self, off_diagonal: float = 1.0, intercept: float = 1.0):
        self.off_diagonal = off_diagonal
        self.intercept = intercept

    def _check_params(self) -> None:
        as_penalty(self.off_diagonal, "off_diagonal", type(self).__name__)
        as_penalty(self.intercept, "intercept", type(self).__name__)

    def _penalty(self, n_rows: float) -> FloatArray:
        unit = self.n_classes_ / n_rows
        return _matrix_penalty(
            self.n_classes_,
            diagonal=0.0,
            off_diagonal=float(self.off_diagonal) * unit * (self.n_classes_ - 1),
            intercept=float(self.intercept) * unit,
        )


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
        Centers of the radial basis functions, for `basis="rbf"`.
    width_ : float
        Their width, for `basis="rbf"`.

    References
    ----------
    Berta et al., "Structured matrix scaling for multi-class calibration", 2025.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> y = rng.integers(0, 3, 500)
    >>> logits = np.eye(3)[y] @ [[2, 1, 0], [1, 2, 0], [0, 0, 2]] + rng.normal(size=(500, 3))
    >>> StructuredMatrixScaling().fit(Logits(logits), y).weight_.shape
    (3, 3)
    """

    centers_: FloatArray
    width_: float

    fitted_fields = declare(
        weight_=array("n_classes_", None),
        centers_=Omittable(array(None, "n_classes_")),
        width_=Omittable(number(1e-30)),
    )

    def __init__(self, regularization: float = 1.0, basis: str = "linear"):
        self.regularization = regularization
        self.basis = basis

    def _check_params(self) -> None:
        as_penalty(self.regularization, "regularization", type(self).__name__)
        require_choice(self.basis, BASES, "basis", type(self).__name__)

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
        penalty = _matrix_penalty(self.n_classes_, diagonal=own, off_diagonal=across, intercept=own)
        parts = [np.tile(penalty[:, :-1], self._features().n_per_class())]
        if self.basis == "rbf":
            shape = (self.n_classes_, len(self.centers_))
            parts.append(np.full(shape, float(self.regularization) / n_rows))
        return np.column_stack([*parts, penalty[:, -1]])
