"""Vector scaling: a scale and a bias for each class."""

from __future__ import annotations

from typing import final

import numpy as np

from dubito.arrays import FloatArray
from dubito.calibrate.affine import affine_scores, fit_affine
from dubito.calibrate.basis import Basis
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.rows import as_strength, class_weights
from dubito.calibrate.temperature import TEMPERATURE, best_inverse_temperature
from dubito.data.shards import Shards
from dubito.kept_arrays import array
from dubito.kept_checks import entries
from dubito.outputs import Logits, Probabilities

__all__ = ["VectorScaling"]


@final
class VectorScaling(BaseCalibrator):
    """Scale and shift each class's log probability, after the best temperature.

    Use it where some classes are said too often. `strength` times K/n is an L2 penalty on what
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

    learned_checks = entries(
        temperature_=TEMPERATURE,
        weight_=array("n_classes_"),
        bias_=array("n_classes_"),
    )

    def __init__(self, strength: float = 0.0):
        self.strength = strength

    def _require_settings(self) -> None:
        as_strength(self.strength, "strength", type(self).__name__)

    def _learn(self, shards: Shards) -> None:
        beta = best_inverse_temperature(shards)
        n_rows = class_weights(shards).sum()
        penalty = np.full((self.n_classes_, 2), float(self.strength) * self.n_classes_ / n_rows)
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
