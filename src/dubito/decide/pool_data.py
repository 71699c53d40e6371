"""Labeled rows as pools learn from them: what each model said, the labels, the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
from scipy.special import logsumexp

from dubito.arrays import BoolArray, FloatArray
from dubito.calibrate.rows import FLOOR, LabelledRows, log_probabilities
from dubito.data.batch import Batch
from dubito.outputs import Logits, Probabilities

__all__ = ["PoolData", "logs_of"]

LOWEST = -1e4  # a log probability; lower ones would drown all others in a sum


@final
@dataclass(frozen=True, slots=True, eq=False)
class PoolData:
    """Log probabilities (models x rows x classes), label probabilities and weights."""

    logs: FloatArray
    labels: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, batch: Batch, models: Sequence[Logits | Probabilities]) -> PoolData:
        """Return the rows of a batch, all of which have a label."""
        rows = LabelledRows.of(batch)
        labels = rows.soft if rows.soft.shape[0] else np.eye(rows.outputs.n_classes)[rows.codes]
        return cls(logs_of(models), labels, rows.weight)

    def take(self, rows: BoolArray) -> PoolData:
        """Return some of the rows."""
        return PoolData(self.logs[:, rows], self.labels[rows], self.weight[rows])

    def likelihoods(self) -> tuple[FloatArray, FloatArray]:
        """Return what each model (column) gives each label, and the label's weight."""
        shares = self.weight[:, np.newaxis] * self.labels
        rows, classes = np.nonzero(shares)
        likelihoods = np.maximum(np.exp(self.logs[:, rows, classes]), FLOOR)
        return likelihoods.T, shares[rows, classes]

    def loss_of(self, scores: FloatArray) -> float:
        """Return the log loss of log probabilities, up to a shift a row."""
        right = (self.labels * scores).sum(axis=1)
        return float(self.weight @ (logsumexp(scores, axis=1) - right) / self.weight.sum())


def logs_of(models: Sequence[Logits | Probabilities]) -> FloatArray:
    """Return log probabilities, models x rows x classes, none below -10000."""
    return np.maximum(np.stack([log_probabilities(model) for model in models]), LOWEST)
