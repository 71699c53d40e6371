"""What really happened: labels of classes, or targets of a regression."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_array,
    as_distributions,
    as_finite,
    as_floats,
    freeze,
    require_dimensions,
    require_rows,
)
from dubito.data.codes import MISSING, codes_of
from dubito.outputs import BaseClassOutputs

__all__ = ["Labels", "Targets"]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Labels:
    """The true class of each row: a column number, or a probability a class.

    `codes` holds -1 for a missing label. `probabilities` is None for plain labels; where it is
    given, a code of 0 only says that the row has a label.

    >>> from dubito import Probabilities
    >>> pets = Probabilities([[0.8, 0.2], [0.3, 0.7]], classes=["cat", "dog"])
    >>> Labels.of(["dog", None], pets).codes.tolist()
    [1, -1]
    """

    codes: IntArray
    probabilities: FloatArray | None = None

    @classmethod
    def of(
        cls, y: Any, outputs: BaseClassOutputs, argument: str = "y_true", caller: str = "Labels"
    ) -> Labels:
        """Read column numbers, names where the classes have names, or label probabilities."""
        array = as_array(y, argument, caller)
        if array.dtype.kind == "U" and isinstance(y, list | tuple):
            array = np.array(y, dtype=object)  # NumPy made text of numbers and NaN among names
        require_rows(array, outputs.n_rows, argument, caller)
        if array.ndim == 2 and array.shape[1] == outputs.n_classes:
            return cls.of_probabilities(array, argument, caller)
        rule = f"one label a row, or rows x {outputs.n_classes} label probabilities"
        require_dimensions(array, (1,), argument, caller, rule)
        return cls(freeze(codes_of(array, outputs, argument, caller)))

    @classmethod
    def of_probabilities(cls, array: NDArray[Any], argument: str, caller: str) -> Labels:
        """Read rows x classes of label probabilities; a row that is all NaN is a missing label."""
        if array.dtype.kind == "b":
            array = array.astype(np.float64)
        floats = as_floats(array, argument, caller).astype(np.float64)
        is_missing = np.isnan(floats).all(axis=1)
        floats[is_missing] = 1 / floats.shape[1]
        probabilities = as_distributions(floats, argument, caller)
        return cls(freeze(np.where(is_missing, MISSING, 0)), freeze(probabilities))

    @property
    def is_missing(self) -> BoolArray:
        """Which rows have no label."""
        return np.asarray(self.codes == MISSING)

    @property
    def n_missing(self) -> int:
        """How many rows have no label."""
        return int(np.count_nonzero(self.is_missing))

    def take(self, rows: slice | IntArray) -> Labels:
        """Return the labels of some rows."""
        soft = self.probabilities
        return Labels(self.codes[rows], None if soft is None else soft[rows])


@final
@dataclass(frozen=True, slots=True, eq=False)
class Targets:
    """The true value of each row of a regression, rows or rows x targets; NaN is missing."""

    values: FloatArray

    @classmethod
    def of(cls, y: Any, n_rows: int, argument: str = "y_true", caller: str = "Targets") -> Targets:
        """Read targets; infinity is refused."""
        values = as_floats(y, argument, caller)
        require_rows(values, n_rows, argument, caller)
        require_dimensions(values, (1, 2), argument, caller, "rows, or rows x targets")
        as_finite(np.where(np.isnan(values), 0, values), argument, caller)
        return cls(freeze(values))

    @property
    def is_missing(self) -> BoolArray:
        """Which rows lack a target, or one of them."""
        missing = np.isnan(self.values)
        return np.asarray(missing if missing.ndim == 1 else missing.any(axis=1))

    @property
    def n_missing(self) -> int:
        """How many rows lack a target."""
        return int(np.count_nonzero(self.is_missing))

    def take(self, rows: slice | IntArray) -> Targets:
        """Return the targets of some rows."""
        return Targets(self.values[rows])
