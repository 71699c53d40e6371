"""Labels of rows whose classes no outputs tell: the classes are those that occur."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import IntArray, as_array, require_dimensions, require_rows
from dubito.data.codes import MISSING, is_absent
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import ClassName

__all__ = ["codes_and_classes"]

RULE = "class numbers from 0 up, or names"


def codes_and_classes(
    y: Any, n_rows: int, caller: str
) -> tuple[IntArray, tuple[ClassName, ...] | None]:
    """Return each row's place among the sorted classes, -1 for a missing label, and the classes.

    >>> codes_and_classes(["dog", None, "cat"], 3, "example")
    (array([ 1, -1,  0]), ('cat', 'dog'))
    """
    if y is None:
        return np.zeros(n_rows, np.int64), None
    array = as_array(y, "y", caller)
    if array.dtype.kind == "U" and isinstance(y, list | tuple):
        array = np.array(y, dtype=object)  # NumPy made text of numbers and NaN among names
    require_dimensions(array, (1,), "y", caller, "one label a row")
    require_rows(array, n_rows, "y", caller, "the features")
    if array.dtype.kind not in "biuf":
        values: list[Any] = array.tolist()
        present = [value for value in values if not is_absent(value)]
        is_number = [isinstance(v, int | float) and not isinstance(v, bool) for v in present]
        if not all(is_number):
            return codes_of_names(values, caller)
        array = np.array([np.nan if is_absent(v) else v for v in values], dtype=np.float64)
    return codes_of_numbers(array, caller)


def codes_of_numbers(y: NDArray[Any], caller: str) -> tuple[IntArray, tuple[ClassName, ...]]:
    """Return codes and classes of whole numbers; NaN is missing."""
    is_missing = np.isnan(y) if y.dtype.kind == "f" else np.zeros(y.shape, dtype=bool)
    with np.errstate(invalid="ignore"):
        is_fine = is_missing | ((y >= 0) & (y == np.floor(y)) & (y < 2**53))
    if not is_fine.all():
        row = int(np.argmin(is_fine))
        fix = "NaN or None for a missing label" if y[row] < 0 else "one whole number a class"
        raise BadValueError("y", caller, RULE, f"{y[row]}", fix, row)
    values, positions = np.unique(y[~is_missing], return_inverse=True)
    codes = np.full(y.shape, MISSING, np.int64)
    codes[~is_missing] = positions
    plain = values if y.dtype.kind == "b" else values.astype(np.int64)
    return codes, tuple(plain.tolist())


def codes_of_names(values: list[Any], caller: str) -> tuple[IntArray, tuple[ClassName, ...]]:
    """Return codes and classes of names; None and NaN are missing."""
    for row, value in enumerate(values):
        if not (is_absent(value) or isinstance(value, str | int | float)):
            fix = "a name or a whole number in every row"
            raise BadTypeError("y", caller, RULE, f"a {type(value).__name__}", fix, row)
    names = {value for value in values if not is_absent(value)}
    classes = sorted(names, key=lambda name: (isinstance(name, str), name))
    code_of = {name: code for code, name in enumerate(classes)}
    codes = [MISSING if is_absent(value) else code_of[value] for value in values]
    return np.array(codes, dtype=np.int64), tuple(classes)
