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
    require_rows,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import AbstractClassOutputs, ClassName

__all__ = ["Labels", "Targets", "codes_of_names"]

MISSING = -1


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
        cls, y: Any, outputs: AbstractClassOutputs, argument: str = "y_true", caller: str = "Labels"
    ) -> Labels:
        """Read column numbers, names where the classes have names, or label probabilities."""
        array = as_array(y, argument, caller)
        require_rows(array, outputs.n_rows, argument, caller)
        if array.ndim == 2 and array.shape[1] == outputs.n_classes:
            return cls.of_probabilities(array, argument, caller)
        if array.ndim != 1:
            raise BadValueError(
                argument,
                caller,
                f"one label a row, or rows x {outputs.n_classes} label probabilities",
                f"shape {array.shape}",
                "`.ravel()` for a single column",
            )
        if outputs.classes is not None:
            codes = codes_of_names(*unique(array), outputs.classes, argument, caller)
        else:
            codes = codes_of_numbers(array, outputs.n_classes, argument, caller)
        return cls(freeze(codes))

    @classmethod
    def of_probabilities(cls, array: NDArray[Any], argument: str, caller: str) -> Labels:
        """Read rows x classes of label probabilities; a row that is all NaN is a missing label."""
        floats = as_floats(array, argument, caller)
        is_missing = np.asarray(np.isnan(floats).all(axis=1))
        if is_missing.any():
            floats = np.where(is_missing[:, np.newaxis], 1 / floats.shape[1], floats)
        floats = as_distributions(floats.astype(np.float64), argument, caller)
        return cls(freeze(np.where(is_missing, MISSING, 0).astype(np.int64)), freeze(floats))

    @property
    def is_missing(self) -> BoolArray:
        """Which rows have no label."""
        return np.asarray(self.codes == MISSING)

    @property
    def n_missing(self) -> int:
        """How many rows have no label."""
        return int(np.count_nonzero(self.codes == MISSING))

    def take(self, rows: slice) -> Labels:
        """Return the labels of a range of rows."""
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

    def take(self, rows: slice) -> Targets:
        """Return the targets of a range of rows."""
        return Targets(self.values[rows])


def codes_of_numbers(y: NDArray[Any], n_classes: int, argument: str, caller: str) -> IntArray:
    """Return labels that are column numbers, with -1 where NaN or None stood."""
    rule = f"column numbers from 0 to {n_classes - 1}"
    if y.dtype.kind == "O":
        y = without_objects(y, argument, caller)
    if y.dtype.kind not in "biuf":
        fix = "naming the classes, as in Probabilities(array, classes=[...])"
        got = repr(y[0].item()) if y.size else f"dtype {y.dtype}"
        raise BadTypeError(argument, caller, rule, got, fix)
    if y.dtype.kind == "f":
        is_missing = np.isnan(y)
        y = np.where(is_missing, 0, y)
        if (bad := y != np.floor(y)).any():
            row = int(np.argmax(bad))
            fix = "an n x K matrix for label probabilities"
            raise BadValueError(argument, caller, rule, str(y[row]), fix, row)
    else:
        is_missing = np.zeros(y.shape, dtype=bool)
    if (bad := (y < 0) | (y >= n_classes)).any():
        row = int(np.argmax(bad))
        fix = (
            "NaN or None for a missing label"
            if y[row] < 0
            else f"a column for every class (there are {n_classes}), or labels that start at 0"
        )
        raise BadValueError(argument, caller, rule, str(y[row].item()), fix, row)
    return np.where(is_missing, MISSING, y).astype(np.int64)


def without_objects(y: NDArray[Any], argument: str, caller: str) -> NDArray[Any]:
    """Return an object array of numbers and None as floats, or text and None as it is."""
    plain = [np.nan if is_absent(value) else value for value in y]
    for row, value in enumerate(plain):
        if not isinstance(value, bool | int | float | np.number | np.bool_):
            fix = "naming the classes, as in Probabilities(array, classes=[...])"
            raise BadTypeError(argument, caller, "column numbers", repr(value), fix, row)
    return np.array(plain, dtype=np.float64)


def codes_of_names(
    values: list[Any],
    positions: IntArray,
    classes: tuple[ClassName, ...],
    argument: str,
    caller: str,
) -> IntArray:
    """Return labels that are class names as column numbers, with -1 where None or NaN stood.

    `values` are the different entries, `positions` says which of them each row holds.
    """
    code_of = {name: code for code, name in enumerate(classes)}
    codes = np.empty(len(values), dtype=np.int64)
    for i, value in enumerate(values):
        code = MISSING if is_absent(value) else code_of.get(value)
        if code is None:
            shown = ", ".join(repr(name) for name in classes[:5])
            raise BadValueError(
                argument,
                caller,
                f"class names ({shown}{', ...' if len(classes) > 5 else ''})",
                repr(value),
                "labels spelt and typed as the classes are, or None for a missing one",
                int(np.argmax(positions == i)),
            )
        codes[i] = code
    return np.asarray(codes[positions])


def unique(y: NDArray[Any]) -> tuple[list[Any], IntArray]:
    """Return the different entries as Python values, and which of them each row holds."""
    if y.dtype.kind != "O":
        values, positions = np.unique(y, return_inverse=True)
        return values.tolist(), positions
    seen: dict[Any, int] = {}
    keys = ((None if is_absent(v) else v.item() if isinstance(v, np.generic) else v) for v in y)
    positions = np.fromiter((seen.setdefault(key, len(seen)) for key in keys), np.int64, y.size)
    return list(seen), positions


def is_absent(value: Any) -> bool:
    """Whether a label is None, NaN or pandas' NA."""
    # NaN differs from itself; comparing pandas' NA gives NA, whose truth value is refused.
    return value is None or type(value).__name__ == "NAType" or bool(value != value)
