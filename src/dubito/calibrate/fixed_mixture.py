"""A mixture whose parts and shares are settled; only the parts are fitted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import numpy as np
from sklearn.base import clone

from dubito.arrays import FloatArray, contiguous
from dubito.calibrate.calibrator import BaseCalibrator
from dubito.calibrate.rows import FLOOR
from dubito.data.shards import Shards
from dubito.kernels.softmax import softmax_rows
from dubito.outputs import Logits, Probabilities

__all__ = ["FixedMixture", "mixed_logits"]


@final
class FixedMixture(BaseCalibrator):
    """Fit calibrators whose shares are known: what a contest chose, on other rows.

    >>> from dubito.calibrate.candidates import IdentityCalibrator
    >>> mixture = FixedMixture([IdentityCalibrator(), IdentityCalibrator()], [0.5, 0.5]).fit([[0.7, 0.3]], [0])
    >>> mixture.predict_proba([[0.7, 0.3]]).round(3).tolist()
    [[0.7, 0.3]]
    """

    calibrators_: list[BaseCalibrator]

    def __init__(self, calibrators: Sequence[BaseCalibrator], shares: FloatArray) -> None:
        self.calibrators = calibrators
        self.shares = shares

    def _learn(self, shards: Shards) -> None:
        self.calibrators_ = [clone(one).fit(shards) for one in self.calibrators]

    def _n_numbers(self) -> int:
        return max(one._n_numbers() for one in self.calibrators_)

    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        return mixed_logits(self.calibrators_, self.shares, outputs)

    def _words(self) -> str:
        return f"a mixture of {len(self.calibrators_)} calibrators"


def mixed_logits(
    calibrators: Sequence[BaseCalibrator], shares: FloatArray, outputs: Logits | Probabilities
) -> FloatArray:
    """Return the log of the mean of what calibrators say, by their shares."""
    mixed, part = np.zeros(outputs.array.shape), np.empty(outputs.array.shape)
    for share, calibrator in zip(shares, calibrators, strict=True):
        softmax_rows(contiguous(calibrator._logits(outputs).astype(np.float64)), FLOOR, part)
        mixed += share * part
    return np.log(mixed)
