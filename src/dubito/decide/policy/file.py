"""The policy as one JSON file: readable, protected by a hash, written atomically."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import prod
from os import PathLike, fspath
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubito.data.sink import write_whole
from dubito.decide.costs import text_of
from dubito.errors import BadFileError, BadValueError

MOST_BYTES = 64 * 1024 * 1024
MOST_DEPTH = 40
AS_WRITTEN = "the file as `dubito fit` or `Policy.save` wrote it"
FEW_NUMBERS = 200  # so many stay readable, more become base64
KINDS = {"float64": "<f8", "int64": "<i8", "bool": "|b1"}
PACKED = {"base64", "dtype", "shape"}


def write_document(document: dict[str, Any], path: str | PathLike[str]) -> None:
    """Write a document with the digest of what it says as its last entry."""
    try:
        sealed = {**document, "seal": _digest(document)}
        text = _rendered(_packed(sealed)) + "\n"
        size = len(text.encode())
    except ValueError as error:
        rule, fix = "of finite numbers and proper texts", "names and settings that JSON can hold"
        raise BadValueError("policy", "Policy.save", rule, f"{error}", fix) from error
    if size > MOST_BYTES:
        rule, got = "at most 64 MB as a file", f"{size / 2**20:.0f} MB"
        fix = "a calibrator or a doubt of fewer numbers"
        raise BadValueError("policy", "Policy.save", rule, got, fix)
    write_whole(path, text)


def read_document(path: str | PathLike[str]) -> dict[str, Any]:
    """Return the document of a file, arrays as arrays, not yet checked but for its seal."""
    document, is_sealed = open_document(path)
    if not is_sealed:
        problem, where = "it has changed since it was sealed", fspath(path)
        raise BadFileError(where, problem, f"`dubito policy seal {where}` if you changed it")
    return document


def open_document(path: str | PathLike[str]) -> tuple[dict[str, Any], bool]:
    """Return the document of a file, and whether it is as it was when it was sealed."""
    where = fspath(path)
    fix = AS_WRITTEN
    try:
        document = json.loads(
            text_of(path),
            object_pairs_hook=_without_repeats,
            parse_constant=_refused,
            parse_float=_finite_number,
        )
        _require_shallow(document)
        unpacked = _unpack(document)
    except (ValueError, RecursionError) as error:
        if isinstance(error, BadFileError):
            raise BadFileError(where, error.problem, fix) from error
        raise BadFileError(where, f"it is no policy ({error})", fix) from error
    if not isinstance(unpacked, dict):
        raise BadFileError(where, "it is no policy (no object)", fix)
    seal = unpacked.pop("seal", None)
    return unpacked, isinstance(seal, str) and seal == _digest(unpacked)


def _digest(document: Mapping[str, Any]) -> str:
    """Return a digest of what a document says, however it is written down."""
    text = json.dumps(_packed(document, few=0), sort_keys=True, ensure_ascii=True, allow_nan=False)
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def _packed(value: Any, few: int = FEW_NUMBERS) -> Any:
    """Return a document whose lists of more than a few numbers are base64."""
    if isinstance(value, Mapping):
        return {name: _packed(entry, few) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _packed_array(value) if value.size > few else value.tolist()
    if isinstance(value, list | tuple):
        array = as_regular(value)
        if array is not None and array.size > few:
            return _packed_array(array)
        return [_packed(entry, few) for entry in value]
    return value


def as_regular(value: Any) -> NDArray[Any] | None:
    """Return a list of numbers, or of such lists of one length, as an array; None for others."""
    if isinstance(value, np.ndarray):
        return value
    if not (isinstance(value, list | tuple) and _is_numbers(value)):
        return None
    try:
        array = np.array(value)
    except (ValueError, OverflowError):
        return None
    return array if array.dtype.name in KINDS else None


def _is_numbers(value: Sequence[Any]) -> bool:
    """Tell lists of numbers alone, or of true and false alone, however deep, from all others."""
    kinds = set(map(type, value))
    if kinds <= {list, tuple}:
        return all(map(_is_numbers, value))
    return kinds <= {int, float} or kinds == {bool}


def _packed_array(array: NDArray[Any]) -> dict[str, Any]:
    """Return an array as text."""
    name = array.dtype.name
    content = np.ascontiguousarray(array, KINDS[name]).tobytes()
    text = base64.b64encode(content).decode("ascii")
    return {"base64": text, "dtype": name, "shape": list(array.shape)}


def _unpack(value: Any) -> Any:
    """Return a document whose texts of arrays are arrays again."""
    if isinstance(value, dict):
        if set(value) == PACKED:
            return _unpacked_array(value)
        return {name: _unpack(entry) for name, entry in value.items()}
    return [_unpack(entry) for entry in value] if isinstance(value, list) else value


def _unpacked_array(value: dict[str, Any]) -> NDArray[Any]:
    """Return the array that a text stands for; it must hold just as many numbers as it says."""
    kind, shape, text = value["dtype"], value["shape"], value["base64"]
    is_shape = isinstance(shape, list) and 0 < len(shape) <= 8
    if not (is_shape and all(type(size) is int and 0 <= size <= MOST_BYTES for size in shape)):
        raise ValueError("an array has no shape")
    if not (isinstance(kind, str) and kind in KINDS and isinstance(text, str)):
        raise ValueError("an array is of no known kind")
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("an array is no base64") from error
    if prod(shape) * np.dtype(KINDS[kind]).itemsize != len(content):
        raise ValueError("an array is not of its shape")
    array = np.frombuffer(content, KINDS[kind]).reshape(shape)
    if kind == "bool" and (np.frombuffer(content, np.uint8) > 1).any():
        raise ValueError("an array holds what is neither true nor false")
    if kind == "float64" and not np.isfinite(array).all():
        raise ValueError("an array holds what is no number")
    return array.astype(array.dtype.newbyteorder("="))


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object, none of whose names comes twice."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name comes twice")
    return found


def _refused(name: str) -> None:
    """Refuse what Python writes for numbers that JSON does not know."""
    raise ValueError(f"{name} is no number")


def _finite_number(text: str) -> float:
    """Return a number that is not beyond the largest."""
    value = float(text)
    if not np.isfinite(value):
        raise ValueError(f"{text[:20]} is beyond the largest number")
    return value


def _require_shallow(document: Any) -> None:
    """Raise where lists and objects lie deeper in each other than any policy's."""
    level = [document]
    for _ in range(MOST_DEPTH):
        level = [
            entry
            for value in level
            if isinstance(value, dict | list)
            for entry in (value.values() if isinstance(value, dict) else value)
        ]
        if not level:
            return
    raise ValueError("it is nested too deeply")


def _rendered(value: Any, indent: int = 0) -> str:
    """Return JSON with an entry a line, and plain lists on one line, as people read tables."""
    space = "  " * (indent + 1)
    if isinstance(value, dict) and value and set(value) != PACKED:
        lines = [
            f"{space}{json.dumps(name, ensure_ascii=False)}: {_rendered(entry, indent + 1)}"
            for name, entry in value.items()
        ]
        return "{\n" + ",\n".join(lines) + "\n" + "  " * indent + "}"
    if isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        lines = [space + _rendered(entry, indent + 1) for entry in value]
        return "[\n" + ",\n".join(lines) + "\n" + "  " * indent + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
