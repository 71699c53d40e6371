"""Vector, matrix and structured matrix scaling."""

from __future__ import annotations

from abc import abstractmethod
from typing import final

import numpy as np

from dubito.arrays import FloatArray, freeze
from dubito.calibrate.affine import affine_scores, fit_affine
from dubito.calibrate.basis import Basis, as_basis_name, bumps_of
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.inputs import as_penalty, class_weights
from dubito.calibrate.temperature import TEMPERATURE, best_inverse_temperature
from dubito.data.shards import Shards
from dubito.outputs import Logits, Probabilities
from dubito.serialization.arrays import array
from dubito.serialization.fields import Entry, Omittable, declare, number


@final
class VectorScaling(BaseCalibrator):
    """Scale and shift each class's log probability, after the best temperature.

    Use it where some classes are said too often. `regularization` times K/n is an L2 penalty on what
    departs from the temperature alone: 0 leaves it free, as Guo et al. 2017 do on raw logits, 1 is
    right for few rows. Berta et al., "Structured matrix scaling for multi-class calibration", 2025.

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
        temperature_=TEMPERATURE,
        weight_=array("n_classes_"),
        bias_=array("n_classes_"),
    )

    def __init__(self, regularization: float = 0.0):
        self.regularization = regularization

    def _check_params(self) -> None:
        as_penalty(self.regularization, "regularization", type(self).__name__)

    def _learn(self, shards: Shards) -> None:
        beta = best_inverse_temperature(shards)
        n_rows = class_weights(shards).sum()
        penalty = np.full(
            (self.n_classes_, 2), float(self.regularization) * self.n_classes_ / n_rows
        )
        table = fit_affine(shards, Basis(beta), penalty)
        self.temperature_ = 1 / beta
        self.weight_, self.bias_ = 1 + table[:, 0], table[:, 1] - table[:, 1].mean()

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        table = np.column_stack([self.weight_ - 1, self.bias_])
        return affine_scores(outputs, Basis(1 / self.temperature_), table)

    def _words(self) -> str:
        low, high = self.weight_.min(), self.weight_.max()
        return (
            f"T = {self.temperature_:.3g}, then each class scaled by {low:.2f} to {high:.2f} and "
            f"shifted by {self.bias_.min():+.2f} to {self.bias_.max():+.2f}"
        )


def _matrix_penalty(
    n_classes: int, *, diagonal: float, off_diagonal: float, intercept: float
) -> FloatArray:
    """Return the penalties of a table of matrix and intercept."""
    penalty = np.full((n_classes, n_classes + 1), off_diagonal)
    np.fill_diagonal(penalty, diagonal)
    penalty[:, -1] = intercept
    return penalty


class BaseMatrixScaling(BaseCalibrator):
    """A matrix and an intercept on log probabilities of the best temperature."""

    temperature_: float
    weight_: FloatArray
    bias_: FloatArray

    fitted_fields = declare(temperature_=TEMPERATURE, bias_=array("n_classes_"))

    @abstractmethod
    def _penalty(self, n_rows: float) -> FloatArray:
        """Return the L2 penalty of each entry of the matrix and the intercept."""

    def _basis(self) -> Basis:
        """Return what the matrix is multiplied with."""
        return Basis(1 / self.temperature_)

    def _place(self, shards: Shards) -> None:
        """Set whatever else the basis needs, once the temperature is known."""

    def _learn(self, shards: Shards) -> None:
        self.temperature_ = 1 / best_inverse_temperature(shards)
        self._place(shards)
        penalty = self._penalty(class_weights(shards).sum())
        table = fit_affine(shards, self._basis(), penalty)
        departs, self.bias_ = table[:, :-1], table[:, -1].copy()
        self.weight_ = np.eye(*departs.shape) + departs

    def _n_numbers(self) -> int:
        return int(self.weight_.shape[1])

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        departs = self.weight_ - np.eye(*self.weight_.shape)
        table = np.column_stack([departs, self.bias_])
        return affine_scores(outputs, self._basis(), table)

    def _words(self) -> str:
        diagonal = np.diag(self.weight_)
        off = self.weight_[:, : self.n_classes_] - np.diag(diagonal)
        row, column = np.unravel_index(np.abs(off).argmax(), off.shape)
        names = self.classes_ or tuple(range(self.n_classes_))
        return (
            f"T = {self.temperature_:.3g}, then each class scaled by {diagonal.min():.2f} to "
            f"{diagonal.max():.2f}; most of what classes learn of each other: {names[row]} of "
            f"{names[column]} ({off[row, column]:+.2f})"
        )


@final
class MatrixScaling(BaseMatrixScaling):
    """Learn a whole matrix, with L2 penalties towards the identity.

    For many rows a class. `off_diagonal` times K(K-1)/n and `intercept` times K/n are the penalties
    of those entries; the diagonal is free. Kull et al., "Beyond temperature scaling", 2019 (ODIR).

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
    """Learn a matrix whose penalties grow with the classes and shrink with the rows.

    For multi-class outputs of any size: with few rows it is temperature scaling, with many a full
    matrix. Penalties are `regularization` times K/n for diagonal and intercept and K(K-1)/n off the
    diagonal. For outputs that are off differently at different levels `basis="spline"` lets classes
    act on each other by broken lines, and "rbf" adds bumps around known rows (1/n each);
    `weight_` then has more columns. Berta et al., "Structured matrix scaling for multi-class
    calibration", 2025.

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
        as_basis_name(self.basis, type(self).__name__)

    def _check_fitted(self, entry: Entry) -> None:
        is_rbf = self.basis == "rbf"
        for name in ("centers_", "width_"):
            if hasattr(self, name) != is_rbf:
                rule = f"{'given' if is_rbf else 'left out'} where basis is {self.basis!r}"
                raise entry.at(name).error(rule, "none" if is_rbf else "some")
        basis = self._basis()
        n_bumps = 0 if basis.centers is None else len(basis.centers)
        wanted = basis.n_parts() * self.n_classes_ + n_bumps
        if self.weight_.shape[1] != wanted:
            rule, got = f"{self.n_classes_} x {wanted} numbers", f"{self.weight_.shape[1]} columns"
            raise entry.at("weight_").error(rule, got)

    def _place(self, shards: Shards) -> None:
        if self.basis == "rbf":
            self.centers_, self.width_ = bumps_of(shards, 1 / self.temperature_)

    def _basis(self) -> Basis:
        beta = 1 / self.temperature_
        if self.basis == "rbf":
            return Basis(beta, self.basis, freeze(self.centers_), float(self.width_))
        return Basis(beta, self.basis)

    def _penalty(self, n_rows: float) -> FloatArray:
        regularization = float(self.regularization)
        own = regularization * self.n_classes_ / n_rows
        across = own * (self.n_classes_ - 1)
        penalty = _matrix_penalty(self.n_classes_, diagonal=own, off_diagonal=across, intercept=own)
        parts = [np.tile(penalty[:, :-1], self._basis().n_parts())]
        if self.basis == "rbf":
            parts.append(np.full((self.n_classes_, len(self.centers_)), regularization / n_rows))
        return np.column_stack([*parts, penalty[:, -1]])
