"""Numbers of requests: rows and row costs, and what is wrong with them in the words of a request."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from dubito.arrays import FloatArray, as_floats, require_everywhere
from dubito.errors import BadTypeError, BadValueError
from dubito.serve.refusals import TOO_LARGE, WRONG, RefusedError
from dubito.serve.settings import Settings

CALLER = "POST /v1/decide"
LONGEST_SHOWN = 50
NO_NUMBER = "what is no finite number"
LARGEST_AMOUNT = float(np.finfo(np.float64).max)
LARGEST = float(np.finfo(np.float32).max)  # outputs are kept in single precision


def as_rows(value: Any, name: str, settings: Settings) -> FloatArray:
    """Return a matrix of single precision, of as many rows and columns as are allowed."""
    if isinstance(value, list) and len(value) > settings.max_samples:
        raise _too_many("rows", settings.max_samples)
    try:
        array = as_floats(value, name, CALLER)
    except (BadTypeError, BadValueError) as error:
        raise _no_rows(value, name) from error
    if array.ndim != 2 or not array.size:
        raise _no_rows(value, name)
    n_rows, n_columns = array.shape
    if n_rows > settings.max_samples:
        raise _too_many("rows", settings.max_samples)
    if n_columns > settings.most_columns:
        raise _too_many("columns", settings.most_columns)
    is_kept = np.abs(array) <= LARGEST
    rule, fix = "finite in single precision", "numbers below 3e38"
    require_everywhere(is_kept, array, name, CALLER, rule, fix)
    return array.astype(np.float32)


def as_row_costs(value: Any, n_rows: int) -> FloatArray | None:
    """Return one amount a row, or None."""
    if value is None:
        return None
    try:
        array = as_floats(value, "row_costs", CALLER)
    except (BadTypeError, BadValueError) as error:
        raise _no_row_costs(value, n_rows) from error
    if array.shape != (n_rows,) or not (np.isfinite(array) & (array >= 0)).all():
        raise _no_row_costs(value, n_rows)
    return array


def told(error: BadTypeError | BadValueError, name: str, fix: str) -> RefusedError:
    """Return the refusal of a field that breaks a rule, without the words of the library."""
    row = "" if error.row is None else f" in row {error.row}"
    column = "" if error.column is None else f", column {error.column}"
    got = "none" if error.got == "None" else error.got
    return RefusedError(WRONG, f"`{name}` must be {error.rule}. Got {got}{row}{column}", fix)


def _no_rows(value: Any, name: str) -> RefusedError:
    """Return the refusal of what is no list of rows."""
    rule = "a list of rows, each a list of numbers, all of one length"
    fix = f'"{name}": [[2.5, -1.0], [0.5, 0.0]]'
    return RefusedError(WRONG, f"`{name}` must be {rule}. Got {_fault_of(value)}", fix)


def _no_row_costs(value: Any, n_rows: int) -> RefusedError:
    """Return the refusal of what is no list of row costs."""
    listed = value.tolist() if isinstance(value, np.ndarray) else value
    got = _shown(listed)
    if isinstance(listed, list):
        wrong = [one for one in listed if not _is_number(one) or not 0 <= one <= LARGEST_AMOUNT]
        got = _shown(wrong[0]) if wrong else f"{len(listed)} for {counted(n_rows, 'row')}"
    problem = f"`row_costs` must be a list of one number a row, 0 or above. Got {got}"
    return RefusedError(WRONG, problem, '"row_costs": [120.0]')


def _fault_of(value: Any) -> str:
    """Say where something is no list of rows of numbers.

    >>> _fault_of([[1, 2], [3]]), fault_of([[1, "x"]])
    ('1 number in row 1, 2 in row 0', '"x" in row 0, column 1')
    """
    listed = value.tolist() if isinstance(value, np.ndarray) else value
    if not isinstance(listed, list):
        return _shown(listed)
    for row, entries in enumerate(listed):
        if not isinstance(entries, list):
            return f"{_shown(entries)} in row {row}"
        if wrong := [k for k, entry in enumerate(entries) if not _is_number(entry)]:
            return f"{_shown(entries[wrong[0]])} in row {row}, column {wrong[0]}"
        if len(entries) != len(listed[0]):
            return f"{counted(len(entries), 'number')} in row {row}, {len(listed[0])} in row 0"
    if not listed:
        return "no row"
    return NO_NUMBER if listed[0] else "rows without numbers"


def counted(count: int, what: str) -> str:
    """Return how many there are of something, in words."""
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _is_number(value: Any) -> bool:
    """Tell numbers from all else that JSON has."""
    return type(value) in (int, float)


def _shown(value: Any) -> str:
    """Return a value as the request has it, cut where it is long."""
    if isinstance(value, dict | list):
        return "an object" if isinstance(value, dict) else "a list"
    if _is_number(value) and not abs(value) <= LARGEST_AMOUNT:
        return NO_NUMBER
    text = json.dumps(value, default=str)
    return text if len(text) <= LONGEST_SHOWN else f"{text[:LONGEST_SHOWN]}..."


def _too_many(what: str, most: int) -> RefusedError:
    """Return the refusal of a request that is too large."""
    problem = f"A request may have {most:,} {what} at most"
    return RefusedError(TOO_LARGE, problem, f"fewer {what} a request")
