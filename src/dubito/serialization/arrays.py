"""Array fields of a serialized object: lists of numbers or NumPy arrays, with shape and range checks."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import BoolArray, FloatArray, require_everywhere
from dubito.serialization.fields import AS_WRITTEN, EXACT, LARGE, Check, Entry, shown, span

ROUNDING = 1e-8  # by which shares may miss a sum of 1


def array(
    *shape: int | str | None, low: float = -LARGE, high: float = LARGE, is_whole: bool = False
) -> Check:
    """Check for an array of numbers between two others, or equal to one.

    A size is given, that of something read before, or None for any from 1 up. Of lists, numbers
    become float64 or, if `is_whole`, int64; of arrays, float32 stays.
    """
    kind = "whole numbers" if is_whole else "numbers"

    def check(value: Any, entry: Entry) -> NDArray[Any]:
        found = _as_numbers(value, len(shape), is_whole)
        wanted = [entry.size(one) for one in shape]
        sizes = [0] if found is None else [*found.shape]
        if found is None or 0 in sizes or not all(map(_is_size, sizes, wanted)):
            got = " x ".join(map(str, sizes))
            if found is None:
                is_list = isinstance(value, list | tuple)
                got = "a list that is uneven, or holds something else" if is_list else shown(value)
            raise entry.refused(f"{_form_of(wanted)}{kind}", got)
        is_inside = (found >= np.float64(low)) & (found <= np.float64(high))
        require_each(is_inside, found, entry, f"{kind} {span(low, high)}")
        return found

    return check


def _form_of(sizes: list[int | None]) -> str:
    """Return in words what sizes an array must have.

    >>> _form_of([None]), form_of([3, None])
    ('a list of ', 'an array of 3 x n ')
    """
    form = " x ".join("n" if one is None else str(one) for one in sizes)
    if len(sizes) > 1:
        return f"an array of {form} "
    return "a list of " if sizes == [None] else f"a list of {form} "


def _is_size(size: int, wanted: int | None) -> bool:
    """Tell whether a size is as wanted, if any is."""
    return wanted in (None, size)


def _as_numbers(value: Any, n_dimensions: int, is_whole: bool) -> NDArray[Any] | None:
    """Return a copy of what lists or an array hold, None where that is not as it should be."""
    if not isinstance(value, np.ndarray):
        return _numbers_of_lists(value, n_dimensions, is_whole)
    is_number = value.dtype.kind in ("iu" if is_whole else "fiu") and value.dtype.itemsize <= 8
    if value.ndim != n_dimensions or not is_number:
        return None
    if value.dtype.kind in "iu" and ((value > EXACT) | (value < -EXACT)).any():
        return None
    is_short = value.dtype.kind == "f" and value.dtype.itemsize <= 4
    kind = np.int64 if is_whole else np.float32 if is_short else np.float64
    return np.array(value, dtype=kind, order="C")


def _numbers_of_lists(value: Any, n_dimensions: int, is_whole: bool) -> NDArray[Any] | None:
    """Return the numbers that lists of lists hold, None where these are ragged or no numbers."""
    level, shape = [value], []
    for _ in range(n_dimensions):
        level = [one.tolist() if isinstance(one, np.ndarray) else one for one in level]
        if not set(map(type, level)) <= {list, tuple}:
            return None
        sizes = set(map(len, level)) or {0}
        if len(sizes) > 1:
            return None
        shape.append(sizes.pop())
        level = list(chain.from_iterable(level))
    kinds = set(map(type, level))
    if not kinds <= ({int} if is_whole else {int, float}):
        return None
    is_mixed = int in kinds and float in kinds
    wholes = [one for one in level if type(one) is int] if is_mixed else level
    if int in kinds and not -EXACT <= min(wholes) <= max(wholes) <= EXACT:
        return None
    return np.array(level, dtype=np.int64 if is_whole else np.float64).reshape(shape)


def shares(size: int | str | None, low: float = 0.0) -> Check:
    """Check for numbers from 0 to 1 that sum to 1."""
    inner = array(size, low=low, high=1.0)

    def check(value: Any, entry: Entry) -> FloatArray:
        found: FloatArray = inner(value, entry)
        if abs(found.sum() - 1) > ROUNDING:
            raise entry.refused("shares that sum to 1", f"a sum of {found.sum():.6g}")
        return found

    return check


def require_rising(values: NDArray[Any], entry: Entry, least: float = 0.0) -> None:
    """Raise unless each number is above the one before, or short of that by less than `-least`."""
    require_each(np.append(True, np.diff(values) > least), values, entry, "rising")


def require_each(is_fine: BoolArray, values: NDArray[Any], entry: Entry, rule: str) -> None:
    """Raise at the first number that breaks a rule."""
    require_everywhere(is_fine, values, entry.name, entry.caller, rule, AS_WRITTEN)
