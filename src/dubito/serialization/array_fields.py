"""Array fields: lists of numbers or NumPy arrays, with checks of shape and range."""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import BoolArray, FloatArray, require_everywhere
from dubito.serialization.fields import (
    EXACT,
    LARGE,
    RESTORE,
    Check,
    Entry,
    Schema,
    any_of,
    as_verb_phrase,
    describe,
    number_schema,
    schema_of,
    span,
    states,
)

ROUNDING = 1e-8  # by which probabilities may miss a sum of 1


def array(
    *shape: int | str | None,
    low: float = -LARGE,
    high: float = LARGE,
    is_whole: bool = False,
    is_empty_allowed: bool = False,
) -> Check:
    """Check for an array of numbers from `low` to `high`.

    A size is a number, the name of an entry that was read before, or None for any of at least 1.
    Lists become float64 or, if `is_whole`, int64; a float32 array keeps its precision.
    """
    kind = "integers" if is_whole else "numbers"

    def schema() -> Schema:
        plain = number_schema("integer" if is_whole else "number", low, high)
        for one in reversed(shape):
            least = {"minItems": 0 if is_empty_allowed else 1}
            sizes = {"minItems": one, "maxItems": one} if isinstance(one, int) else least
            plain = {"type": "array", "items": plain, **sizes}
        dimensions = {"properties": {"shape": {"minItems": len(shape), "maxItems": len(shape)}}}
        return any_of(plain, {"$ref": "#/$defs/packed_array", **dimensions})

    @states(schema)
    def check(value: Any, entry: Entry) -> NDArray[Any]:
        found = _as_numbers(value, len(shape), is_whole)
        wanted = [entry.size(one) for one in shape]
        sizes = [0] if found is None else [*found.shape]
        is_empty = 0 in sizes and not is_empty_allowed
        is_sized = all(one in (None, size) for one, size in zip(wanted, sizes, strict=False))
        if found is None or is_empty or not is_sized:
            got = " x ".join(map(str, sizes))
            if found is None:
                is_list = isinstance(value, list | tuple)
                got = "a ragged list, or one of other values" if is_list else describe(value)
            raise entry.error(f"{_form_of(wanted)}{kind}", got)
        is_inside = (found >= np.float64(low)) & (found <= np.float64(high))
        require_each(is_inside, found, entry, f"{kind} {span(low, high)}")
        return found

    return check


def _form_of(sizes: list[int | None]) -> str:
    """Return the words for the shape of an array.

    >>> _form_of([None]), _form_of([3, None])
    ('a list of ', 'an array of 3 x n ')
    """
    form = " x ".join("n" if one is None else str(one) for one in sizes)
    if len(sizes) > 1:
        return f"an array of {form} "
    return "a list of " if sizes == [None] else f"a list of {form} "


def _as_numbers(value: Any, n_dimensions: int, is_whole: bool) -> NDArray[Any] | None:
    """Return a copy of the numbers in lists or an array, None where they are not as declared."""
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
    """Return the numbers in nested lists, None where these are ragged or hold other values."""
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


def distribution(size: int | str | None, low: float = 0.0) -> Check:
    """Check for probabilities that sum to 1."""
    inner = array(size, low=low, high=1.0)

    @states(lambda: schema_of(inner))
    def check(value: Any, entry: Entry) -> FloatArray:
        found: FloatArray = inner(value, entry)
        if abs(found.sum() - 1) > ROUNDING:
            raise entry.error("probabilities that sum to 1", f"a sum of {found.sum():.6g}")
        return found

    return check


def require_increasing(values: NDArray[Any], entry: Entry, least: float = 0.0) -> None:
    """Raise unless each number exceeds the one before by more than `least`."""
    require_each(np.append(True, np.diff(values) > least), values, entry, "increasing")


def require_each(is_fine: BoolArray, values: NDArray[Any], entry: Entry, rule: str) -> None:
    """Raise at the first number that breaks a rule."""
    require_everywhere(is_fine, values, entry.name, entry.caller, as_verb_phrase(rule), RESTORE)
