"""Guesses of how the loss of a table of affine scores curves, good enough to descend by.

The curvature is the sum over rows of (diag(p) - p p') times f f', entries of the table by entries:
too much to hold and to invert. Two things can be: for each class a diagonal and one direction, and
the product of the mean over rows of each factor. Either misses what the other has; their mean
serves well.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Self, final

import numpy as np
from scipy.linalg import eigh

from dubito.arrays import FloatArray

__all__ = ["CurvatureGuess", "Moments"]

TINY = np.finfo(np.float64).tiny


@final
@dataclass(frozen=True, slots=True, eq=False)
class Moments:
    """Sums over rows that the curvature is guessed from; h is p (1 - p) of a class.

    `classes` and `numbers` have no entries for a diagonal map, whose scores do not share numbers.
    """

    weights: FloatArray  # sum of h, for each entry of the table
    firsts: FloatArray  # of h f
    squares: FloatArray  # of h f^2
    classes: FloatArray  # of diag(p) - p p'
    numbers: FloatArray  # of f f', by the trace of diag(p) - p p'

    def __add__(self, other: Self) -> Self:
        return type(self)(
            *(getattr(self, field.name) + getattr(other, field.name) for field in fields(self))
        )


@final
class CurvatureGuess:
    """The inverse curvature of the mean loss plus penalty, as guessed from the moments."""

    def __init__(self, moments: Moments, weight: float, penalty: FloatArray) -> None:
        self.by_class = ClassGuess(moments, weight, penalty)
        self.by_product = None
        if moments.classes.size:
            self.by_product = ProductGuess(moments, weight, penalty)

    def __call__(self, slope: FloatArray) -> FloatArray:
        """Return the inverse curvature times a slope."""
        first = self.by_class(slope)
        return first if self.by_product is None else (first + self.by_product(slope)) / 2


@final
class ClassGuess:
    """A diagonal plus h m m' for each class, m the mean of f: exact for a diagonal and a bias."""

    def __init__(self, moments: Moments, weight: float, penalty: FloatArray) -> None:
        h = np.maximum(moments.weights / weight, TINY)
        firsts = moments.firsts / weight
        self.diagonal = np.maximum(moments.squares / weight - firsts**2 / h, 0) + 2 * penalty
        along = firsts / np.sqrt(h)
        self.scaled = along / self.diagonal
        self.length = 1 + (along * self.scaled).sum(axis=1, keepdims=True)

    def __call__(self, slope: FloatArray) -> FloatArray:
        """Return the inverse times a slope, by Sherman and Morrison's formula."""
        share = (self.scaled * slope).sum(axis=1, keepdims=True) / self.length
        return np.asarray(slope / self.diagonal - share * self.scaled)


@final
class ProductGuess:
    """The mean of diag(p) - p p' times the mean of f f', penalized as most entries of a column."""

    def __init__(self, moments: Moments, weight: float, penalty: FloatArray) -> None:
        trace = max(float(np.trace(moments.classes)), TINY)
        # In units in which every column's penalty is 1, both factors and it share directions.
        self.units = 1 / np.sqrt(2 * np.median(penalty, axis=0))
        scaled = moments.numbers / trace * np.outer(self.units, self.units)
        of_classes, self.classes = eigh(moments.classes / weight, driver="evd")
        of_numbers, self.numbers = eigh(scaled, driver="evd")
        self.diagonal = 1 + np.outer(np.maximum(of_classes, 0), np.maximum(of_numbers, 0))

    def __call__(self, slope: FloatArray) -> FloatArray:
        """Return the inverse times a slope, in the directions in which it is diagonal."""
        turned = self.classes.T @ (slope * self.units) @ self.numbers
        return np.asarray(self.classes @ (turned / self.diagonal) @ self.numbers.T) * self.units
