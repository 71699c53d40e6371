"""Bodies of requests: read up to a limit, JSON that holds numbers only, names that are names."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
from fastapi import Request

from dubito.outputs import ClassName
from dubito.serve.refusals import TOO_LARGE, WRONG, RefusedError
from dubito.serve.store.tables import LONGEST_ID


async def read_body(request: Request, most_bytes: int) -> bytes:
    """Return the body of a request, or refuse it as soon as it is too large."""
    coding = request.headers.get("content-encoding", "identity")
    if coding.lower() != "identity":
        problem = f"The body must come as it is, not compressed. Got {coding[:50]!r}"
        raise RefusedError(WRONG, problem, "leaving out the header Content-Encoding")
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size > most_bytes:
            problem = f"The body is larger than {most_bytes:,} bytes"
            raise RefusedError(TOO_LARGE, problem, "fewer rows a request")
        parts.append(part)
    return b"".join(parts)


def as_json(body: bytes) -> Any:
    """Return what a body says; NaN and infinity are no JSON, and truth values no numbers."""
    try:
        found = json.loads(body.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError) as error:
        if isinstance(error, RefusedError):
            raise
        said = str(error).replace("\n", " ")[:200]
        raise RefusedError(WRONG, f"The body is no JSON ({said})", "JSON in UTF-8") from error
    # Few bodies hold these letters: only those are looked through, as an array takes true for 1.
    if (b"true" in body or b"false" in body) and _has_truth_value(found):
        raise RefusedError(WRONG, "The body holds true or false, which is no number", "1 or 0")
    return found


def _has_truth_value(value: Any) -> bool:
    """Tell whether there is true or false anywhere."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, bool):
            return True
        if isinstance(one, dict | list):
            waiting += one.values() if isinstance(one, dict) else one
    return False


def _refuse_constant(name: str) -> None:
    """Refuse what Python would read as a number though JSON knows no such thing."""
    raise RefusedError(WRONG, f"The body holds {name}, which is no number", "finite numbers")


def as_fields(value: Any, allowed: Sequence[str], required: Sequence[str] = ()) -> dict[str, Any]:
    """Return an object that has the fields it must have, and none that nobody knows."""
    names = ", ".join(allowed)
    if not isinstance(value, dict):
        raise RefusedError(WRONG, "The body must be an object", f"one with {names}")
    if unknown := [name for name in value if name not in allowed]:
        problem = f"The body must have no field but {names}. Got {unknown[0][:50]!r}"
        raise RefusedError(WRONG, problem, "leaving it out")
    if missing := [name for name in required if value.get(name) is None]:
        raise RefusedError(WRONG, f"The body must have `{missing[0]}`", "adding it")
    return value


def as_name(value: Any, what: str) -> str:
    """Return an id, a key or a reader's name that every database can keep."""
    if isinstance(value, str) and 0 < len(value) <= LONGEST_ID and value.isprintable():
        return value
    got = f"{value[:50]!r}" if isinstance(value, str) else type(value).__name__
    problem = f"{what} must be 1 to {LONGEST_ID} printable characters. Got {got}"
    raise RefusedError(WRONG, problem, "letters, digits and dashes")


def as_ids(value: Any, n_rows: int | None = None) -> list[str]:
    """Return the ids of rows, whole numbers as text, as many as there are rows."""
    if isinstance(value, np.ndarray):  # a column of an Arrow stream
        value = value.tolist()
    if not isinstance(value, list):
        raise RefusedError(WRONG, "`ids` must be a list", "one id a row")
    if n_rows is not None and len(value) != n_rows:
        problem = f"`ids` must be as many as the rows, {n_rows}. Got {len(value)}"
        raise RefusedError(WRONG, problem, "one id a row")
    return [as_name(str(one) if type(one) is int else one, "Each of `ids`") for one in value]


def as_codes(labels: Any, classes: Sequence[ClassName]) -> list[int]:
    """Return the numbers of the classes that labels name.

    >>> as_codes(["dog", "cat"], ["cat", "dog"])
    [1, 0]
    """
    if not isinstance(labels, list):
        raise RefusedError(WRONG, "`labels` must be a list", "one label an id")
    known = {str(name): code for code, name in enumerate(classes)}
    codes = [known.get(str(one)) if type(one) in (str, int, float) else None for one in labels]
    found = [code for code in codes if code is not None]
    if len(found) < len(codes):
        wrong = labels[codes.index(None)]
        got = repr(wrong)[:50] if isinstance(wrong, str | int | float) else type(wrong).__name__
        names = ", ".join(list(known)[:20])
        raise RefusedError(WRONG, f"A label must be one of {names}. Got {got}", "one of them")
    return found
