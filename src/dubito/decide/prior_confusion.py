"""The class prior that turns validation's confusion into the shares of predicted classes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.optimize import nnls

from dubito.arrays import FloatArray, IntArray
from dubito.calibrate.rows import as_class_outputs
from dubito.data.codes import names_of
from dubito.decide.labels import plain_codes
from dubito.errors import BadValueError
from dubito.outputs import Logits, Probabilities

__all__ = ["PriorConfusion"]

NO_RANK = 1e-9  # singular values below say nothing


@final
@dataclass(frozen=True, slots=True, eq=False)
class PriorConfusion:
    """How often each class (column) was predicted as each (row), and what is predicted now."""

    counts: IntArray
    predicted: IntArray

    @classmethod
    def of(
        cls, y: Any, validation: Any, outputs: Logits | Probabilities, caller: str
    ) -> PriorConfusion:
        """Count predictions of labeled and of unlabeled rows."""
        seen = as_class_outputs(validation, caller)
        if seen.n_classes != outputs.n_classes or (
            None not in (seen.classes, outputs.classes) and seen.classes != outputs.classes
        ):
            rule, fix = "over the classes of the outputs", "the same columns in the same order"
            got = f"{seen.n_classes} columns, classes {seen.classes}"
            raise BadValueError("validation", caller, rule, got, fix)
        codes = plain_codes(y, seen, "validation", caller, stacklevel=4)
        n_classes = outputs.n_classes
        tops = seen.array.argmax(axis=1)[codes >= 0]
        cells = np.bincount(tops * n_classes + codes[codes >= 0], minlength=n_classes**2)
        counts = cells.reshape(n_classes, n_classes)
        if not counts.sum(axis=0).all():
            name = names_of(seen)[int(np.argmin(counts.sum(axis=0)))]
            rule, fix = "with labeled rows of every class", "more validation rows"
            raise BadValueError("validation", caller, rule, f"none of class {name!r}", fix)
        return cls(counts, np.bincount(outputs.array.argmax(axis=1), minlength=n_classes))

    def estimate(self) -> FloatArray:
        """Return the prior that fits best, without negative shares."""
        return solved(self.counts, self.predicted)

    def standard_errors(self, prior: FloatArray) -> FloatArray:
        """Return how uncertain each share is: the noise of all counts through the inverse."""
        n_labeled = self.counts.sum(axis=0)
        shares, predicted = self.counts / n_labeled, self.predicted / self.predicted.sum()
        noise = noise_of(predicted) / self.predicted.sum()
        for j, share in enumerate(prior):
            # Validation without a single error has not shown that there are none.
            smoothed = (self.counts[:, j] + 1 / prior.size) / (n_labeled[j] + 1)
            noise = noise + share**2 * noise_of(smoothed) / n_labeled[j]
        left, values, right = np.linalg.svd(shares)
        inverse = right.T @ (left / np.maximum(values, NO_RANK)).T
        return np.sqrt(np.maximum(np.diag(inverse @ noise @ inverse.T), 0))

    def resampled(self, _: FloatArray, seed: int) -> FloatArray:
        """Return the estimate of as many rows of both kinds, drawn with replacement."""
        generator = np.random.default_rng(seed)
        n_labeled = self.counts.sum(axis=0)
        counts = generator.multinomial(n_labeled, (self.counts / n_labeled).T).T
        n_rows = int(self.predicted.sum())
        return solved(counts, generator.multinomial(n_rows, self.predicted / n_rows))


def solved(counts: IntArray, predicted: IntArray) -> FloatArray:
    """Return the shares of classes under which `predicted` is nearest to what is expected."""
    found, _ = nnls(counts / counts.sum(axis=0), predicted / predicted.sum())
    return np.asarray(found / found.sum())


def noise_of(shares: FloatArray) -> FloatArray:
    """Return the covariance of one draw among the shares."""
    return np.diag(shares) - np.outer(shares, shares)
