"""What is worth trying, by the number of rows and classes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import final

from dubito.arrays import FloatArray
from dubito.calibrate.beta import BetaCalibration
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.forest import ForestCalibration
from dubito.calibrate.isotonic import IsotonicCalibration
from dubito.calibrate.matrix import StructuredMatrixScaling
from dubito.calibrate.mixture import EnsembleTemperatureScaling
from dubito.calibrate.one_vs_rest import OneVsRest
from dubito.calibrate.platt import PlattScaling
from dubito.calibrate.rows import log_probabilities
from dubito.calibrate.temperature import TemperatureScaling
from dubito.calibrate.vector import VectorScaling
from dubito.data.shards import Shards
from dubito.outputs import Logits, Probabilities

__all__ = [
    "FEW_ROWS",
    "IdentityCalibrator",
    "candidates",
]

FEW_ROWS = 100  # with fewer, only the simplest can be told from luck
MANY_ROWS = 1000  # what bends freely needs so many
MOST_BENT = 100  # classes; above, five numbers a class for every class are too many
MOST_LOCAL = 30  # classes; above, rows are too far apart for what happens near each
MOST_MATRIX = 250  # classes; above, a number for every pair of classes is too much work


@final
class IdentityCalibrator(BaseCalibrator):
    """Leave probabilities as they came: what every calibrator must be better than.

    >>> IdentityCalibrator().fit([[0.7, 0.3]], [0]).predict_proba([[0.7, 0.3]]).round(3).tolist()
    [[0.7, 0.3]]
    """

    def _learn(self, shards: Shards) -> None:
        """Nothing."""

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return log_probabilities(outputs)

    def _words(self) -> str:
        return "probabilities are left as they came"


def candidates(
    n_classes: int, n_rows: int, parametric_only: bool = False
) -> Iterator[BaseCalibrator]:
    """Yield calibrators, those that are most often of use first, or only parametric ones."""
    has_many = n_rows >= MANY_ROWS
    is_binary = n_classes == 2
    yield IdentityCalibrator()
    yield TemperatureScaling()
    if n_rows < FEW_ROWS:
        return
    yield PlattScaling() if is_binary else VectorScaling(strength=1.0)
    if n_classes <= MOST_BENT:
        yield StructuredMatrixScaling(strength=3.0, shape="bent")
    if has_many and not parametric_only:
        yield IsotonicCalibration() if is_binary else OneVsRest(IsotonicCalibration())
    if has_many:
        yield EnsembleTemperatureScaling()
    if is_binary:
        yield BetaCalibration()
    elif n_classes <= MOST_MATRIX:
        yield StructuredMatrixScaling(strength=3.0)
        if has_many:
            yield OneVsRest(BetaCalibration())
            yield StructuredMatrixScaling(strength=0.3)
            yield StructuredMatrixScaling(strength=0.03)
    if has_many and n_classes <= MOST_LOCAL:
        if not parametric_only:
            yield ForestCalibration()
        yield StructuredMatrixScaling(strength=0.3, shape="local")
    if has_many and n_classes <= MOST_BENT:
        yield StructuredMatrixScaling(strength=0.3, shape="bent")
        yield StructuredMatrixScaling(strength=0.03, shape="bent")
