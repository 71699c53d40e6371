"""The one way from anything array-like to a checked NumPy array."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.checks import FAULTLESS, first_not_finite, probability_faults

__all__ = [
    "BoolArray",
    "FloatArray",
    "IntArray",
    "as_array",
    "as_distributions",
    "as_finite",
    "as_floats",
    "as_shares",
    "contiguous",
    "freeze",
    "require_dimensions",
    "require_everywhere",
    "require_rows",
]

FloatArray = NDArray[np.floating[Any]]
IntArray = NDArray[np.integer[Any]]
BoolArray = NDArray[np.bool_]

KINDS = {"b": "booleans", "c": "complex numbers", "U": "text", "S": "bytes", "O": "objects"}

SUM_TOLERANCE = 1e-3  # rows further from 1 are refused, closer ones are renormalised
ROUNDING = {"float32": 1e-6, "float64": 1e-12}  # sums this close to 1 are left as they came


def as_array(value: Any, argument: str, caller: str) -> NDArray[Any]:
    """Return `value` as a NumPy array, without copying where that can be avoided."""
    if isinstance(value, np.ma.MaskedArray) and np.ma.getmaskarray(value).any():
        row = int(np.argwhere(np.ma.getmaskarray(value))[0][0])
        raise BadValueError(
            argument, caller, "without masked entries", "one", "leaving masked rows out", row
        )
    try:
        array = np.asarray(value)
    except Exception as error:  # torch and others raise types of their own
        raise BadTypeError(
            argument,
            caller,
            "something NumPy can read as an array",
            f"{type(value).__name__} ({str(error).splitlines()[0]})",
            "converting it first, say with `.detach().cpu().numpy()` or `.to_numpy()`",
        ) from error
    if array.ndim == 0:
        raise BadTypeError(
            argument,
            caller,
            "an array with one entry a row",
            f"a single {type(value).__name__}",
            "a list, a NumPy array, or `.toarray()` for a sparse matrix",
        )
    return array


def as_floats(value: Any, argument: str, caller: str) -> FloatArray:
    """Return `value` as float32 or float64: float16 goes up, whole numbers become float64."""
    array = as_array(value, argument, caller)
    if array.dtype.kind not in "fiu":
        raise BadTypeError(
            argument,
            caller,
            "an array of numbers",
            f"{KINDS.get(array.dtype.kind, 'something else')} (dtype {array.dtype})",
            "`.astype(float)` once every entry is a number",
        )
    if array.dtype in (np.float32, np.float64):
        return array
    is_small = array.dtype.kind == "f" and array.dtype.itemsize <= 4
    return array.astype(np.float32 if is_small else np.float64)


def freeze(array: NDArray[Any]) -> NDArray[Any]:
    """Return a read-only view, so that neither we nor anyone else writes to the caller's array."""
    view = array.view()
    view.flags.writeable = False
    return view


def contiguous(array: NDArray[Any]) -> NDArray[Any]:
    """Return what kernels take: C order and read-only, copied only where it must be."""
    return freeze(np.ascontiguousarray(array))


def as_finite(array: FloatArray, argument: str, caller: str) -> FloatArray:
    """Return `array`, or raise at its first NaN or infinity."""
    n_columns = array[0].size if array.shape[0] else 1

    def first_of(rows: slice) -> int:
        index = first_not_finite(contiguous(array[rows]).reshape(-1))
        return FAULTLESS if index == FAULTLESS else rows.start * n_columns + index

    for index in map_in_order(first_of, row_blocks(array.shape[0], n_columns)):
        if index != FAULTLESS:
            row, column = divmod(index, n_columns)
            raise BadValueError(
                argument,
                caller,
                "finite",
                f"{array.reshape(array.shape[0], -1)[row, column]}",
                "leaving such rows out, or mending what made them",
                row,
                column if array.ndim > 1 else None,
            )
    return array


def as_distributions(array: FloatArray, argument: str, caller: str) -> FloatArray:
    """Return rows that sum to 1: as they came if they do up to rounding, renormalised if nearly."""
    furthest = 0.0
    blocks = row_blocks(*array.shape)
    faults = map_in_order(lambda b: probability_faults(contiguous(array[b]), SUM_TOLERANCE), blocks)
    for rows, (row, distance) in zip(blocks, faults, strict=True):
        if row != FAULTLESS:
            raise fault_of(array[rows.start + row], rows.start + row, argument, caller)
        furthest = max(furthest, distance)
    if furthest <= ROUNDING[array.dtype.name]:
        return array
    sums: FloatArray = array.sum(axis=1, keepdims=True, dtype=np.float64)
    return np.divide(array, sums.astype(array.dtype))


def fault_of(probabilities: FloatArray, row: int, argument: str, caller: str) -> BadValueError:
    """Say what is wrong with a row that is no distribution."""
    checks: list[tuple[Callable[[Any], Any], str, str]] = [
        (np.isfinite, "finite", "leaving such rows out, or mending what made them"),
        (lambda p: p >= 0, "probabilities, 0 or above", "`Logits` if these are logits"),
    ]
    for is_fine, rule, fix in checks:
        if not is_fine(probabilities).all():
            column = int(np.argmin(is_fine(probabilities)))
            got = str(probabilities[column])
            return BadValueError(argument, caller, rule, got, fix, row, column)
    return BadValueError(
        argument,
        caller,
        "rows that sum to 1",
        f"a sum of {probabilities.sum(dtype=np.float64):.6g}",
        "`Logits` if these are logits, or dividing each row by its sum",
        row,
    )


def as_shares(value: Any, argument: str, caller: str) -> FloatArray:
    """Return a flat array of numbers between 0 and 1."""
    array = as_finite(as_floats(value, argument, caller), argument, caller)
    require_dimensions(array, (1,), argument, caller, "one number a row")
    fix = "dividing percentages by 100"
    is_share = (array >= 0) & (array <= 1)
    require_everywhere(is_share, array, argument, caller, "between 0 and 1", fix)
    return array


def require_rows(array: NDArray[Any], n_rows: int, argument: str, caller: str) -> None:
    """Raise unless `array` has `n_rows` rows."""
    if array.shape[0] != n_rows:
        raise BadValueError(
            argument,
            caller,
            f"as long as the outputs ({n_rows} rows)",
            f"{array.shape[0]} rows",
            "aligning both by the same row order",
        )


def require_dimensions(
    array: NDArray[Any], allowed: tuple[int, ...], argument: str, caller: str, shape: str
) -> None:
    """Raise unless `array` has one of the allowed numbers of dimensions, and no empty columns."""
    if array.ndim not in allowed or 0 in array.shape[1:]:
        raise BadValueError(
            argument,
            caller,
            f"of shape {shape}",
            f"shape {array.shape}",
            "`.reshape` or `.ravel()`",
        )


def require_everywhere(
    is_fine: BoolArray, array: NDArray[Any], argument: str, caller: str, rule: str, fix: str
) -> None:
    """Raise at the first entry that is not fine."""
    if not is_fine.all():
        place = tuple(int(i) for i in np.argwhere(~is_fine)[0])
        raise BadValueError(argument, caller, rule, f"{array[place]}", fix, place[0])
