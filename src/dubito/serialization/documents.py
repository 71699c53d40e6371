"""JSON documents that people can read: arrays as base64, and a checksum of the content."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from math import prod
from os import PathLike, fspath
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dubito.errors import BadFileError, BadValueError

MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 40
CHECKSUM = "checksum"  # the last key of a document
FEW_NUMBERS = 200  # as many are written as a list, more as base64
# The types of numbers, and the smaller ones in which they are stored where these hold them exactly.
SMALLER = {"float64": ("int8", "int16", "float32"), "int64": ("int8", "int16", "int32"), "bool": ()}
ANOTHER = "Pass a JSON file that dubito has written"
NOT_TEXT = "Save it as UTF-8 if it is text, or pass another file"
PACKED = {"base64", "dtype", "shape"}  # and "stored", where a smaller type holds the same numbers


def encode_document(document: dict[str, Any], caller: str, max_bytes: int = MAX_BYTES) -> str:
    """Return a document as JSON text that ends with a checksum of its content.

    >>> print(encode_document({"a": [1, 2]}, "f").splitlines()[1])
      "a": [1, 2],
    """
    try:
        text = _rendered(_packed({**document, CHECKSUM: _checksum(document)})) + "\n"
        size = len(text.encode())
    except ValueError as error:
        rule, fix = "must hold only finite numbers and valid text", "Rename what JSON cannot hold"
        raise BadValueError("policy", caller, rule, f"{error}", fix) from error
    if size > max_bytes:
        rule = f"must be at most {max_bytes / 2**20:.0f} MB as a file"
        fix = "Use a calibrator or an OOD score with fewer numbers"
        raise BadValueError("policy", caller, rule, f"{size / 2**20:.0f} MB", fix)
    return text


def decode_document(text: str, name: str) -> tuple[dict[str, Any], bool]:
    """Return the document of a JSON text, with arrays, and whether its checksum matches.

    `name` is what error messages call it. The content itself is not checked yet.
    """
    try:
        document = json.loads(
            text,
            object_pairs_hook=_without_repeats,
            parse_constant=_no_constant,
            parse_float=_finite_number,
        )
        unpacked = _unpack(document)
    except json.JSONDecodeError as error:
        problem = f"it is not valid JSON (line {error.lineno}, column {error.colno})"
        raise BadFileError(name, problem, ANOTHER) from error
    except (ValueError, RecursionError) as error:
        raise BadFileError(name, f"it is not a dubito document ({error})", ANOTHER) from error
    if not isinstance(unpacked, dict):
        raise BadFileError(name, "it is not a dubito document (no JSON object)", ANOTHER)
    found = unpacked.pop(CHECKSUM, None)
    return unpacked, isinstance(found, str) and found == _checksum(unpacked)


def _checksum(document: Mapping[str, Any]) -> str:
    """Return a digest of the content of a document, whatever its layout."""
    packed = _packed(document, few=0, is_small=False)
    text = json.dumps(packed, sort_keys=True, ensure_ascii=True, allow_nan=False)
    return f"sha256:{sha256(text.encode()).hexdigest()}"


def read_text(path: str | PathLike[str], max_bytes: int = MAX_BYTES) -> str:
    """Return the UTF-8 text of a file of bounded size."""
    name = fspath(path)
    try:
        with Path(path).open("rb") as file:
            content = file.read(max_bytes + 1)
    except FileNotFoundError as error:
        raise BadFileError(name, "there is no such file", "Check the path") from error
    except (OSError, ValueError) as error:  # a path may hold characters that no path can
        is_folder = isinstance(error, IsADirectoryError)
        reason = "it is a directory" if is_folder else getattr(error, "strerror", None) or error
        fix = "Pass a file in it" if is_folder else "Check the path"
        raise BadFileError(name, f"{reason}", fix) from error
    if len(content) > max_bytes:
        problem = f"it is larger than {max_bytes / 2**20:.0f} MB"
        raise BadFileError(name, problem, "Check that it is the right file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise BadFileError(name, f"it is not UTF-8 ({error})", NOT_TEXT) from error


def _packed(value: Any, few: int = FEW_NUMBERS, is_small: bool = True) -> Any:
    """Return a document in which lists of more than a few numbers are base64."""
    if isinstance(value, Mapping):
        return {name: _packed(entry, few, is_small) for name, entry in value.items()}
    if isinstance(value, np.ndarray):
        return _packed_array(value, is_small) if value.size > few else value.tolist()
    if isinstance(value, list | tuple):
        array = _as_regular(value)
        if array is not None and array.size > few:
            return _packed_array(array, is_small)
        return [_packed(entry, few, is_small) for entry in value]
    return value


def _as_regular(value: Sequence[Any]) -> NDArray[Any] | None:
    """Return nested lists of numbers of one shape as an array, None for any other list."""
    if not _is_numbers(value):
        return None
    try:
        array = np.array(value)
    except (ValueError, OverflowError):
        return None
    return array if array.dtype.name in SMALLER else None


def _is_numbers(value: Sequence[Any]) -> bool:
    """Whether nested lists hold only numbers, or only booleans."""
    kinds = set(map(type, value))
    if kinds <= {list, tuple}:
        return all(map(_is_numbers, value))
    return kinds <= {int, float} or kinds == {bool}


def _packed_array(array: NDArray[Any], is_small: bool) -> dict[str, Any]:
    """Return an array as base64; if `is_small`, in the smallest type that holds it exactly."""
    name = array.dtype.name
    shorter = SMALLER[name] if is_small else ()
    with np.errstate(invalid="ignore", over="ignore"):  # by bytes, as -0.0 is no 0
        whole = array.tobytes()
        same = (one for one in shorter if array.astype(one).astype(name).tobytes() == whole)
        stored = next(same, None)
    content = np.ascontiguousarray(array, _little_endian(stored or name)).tobytes()
    text = base64.b64encode(content).decode("ascii")
    packed = {"base64": text, "dtype": name, "shape": list(array.shape)}
    return packed if stored is None else {**packed, "stored": stored}


def _little_endian(name: str) -> np.dtype[Any]:
    """Return a type of numbers as files hold it."""
    return np.dtype(name).newbyteorder("<")


def _is_packed(value: dict[str, Any]) -> bool:
    """Whether a JSON object is an array in base64."""
    return PACKED <= value.keys() <= PACKED | {"stored"}


def _unpack(value: Any, depth: int = 0) -> Any:
    """Return a document in which base64 is arrays again, nested as deeply as any of dubito."""
    if depth == MAX_DEPTH:
        raise ValueError("it is nested too deeply")
    if isinstance(value, dict):
        if _is_packed(value):
            return _unpacked_array(value)
        return {name: _unpack(entry, depth + 1) for name, entry in value.items()}
    return [_unpack(entry, depth + 1) for entry in value] if isinstance(value, list) else value


def _unpacked_array(value: dict[str, Any]) -> NDArray[Any]:
    """Return the array of base64, which must hold exactly as many numbers as its shape."""
    dtype, shape, text = value["dtype"], value["shape"], value["base64"]
    stored = value.get("stored", dtype)
    is_shape = isinstance(shape, list) and 0 < len(shape) <= 8
    if not (is_shape and all(type(size) is int and 0 <= size <= MAX_BYTES for size in shape)):
        raise ValueError("an array has an invalid shape")
    is_dtype = isinstance(dtype, str) and dtype in SMALLER
    if not (is_dtype and stored in (dtype, *SMALLER[dtype]) and isinstance(text, str)):
        raise ValueError("an array has an unknown dtype")
    try:
        content = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError("an array is not valid base64") from error
    kind = _little_endian(stored)
    if prod(shape) * kind.itemsize != len(content):
        raise ValueError("an array does not match its shape")
    array = np.frombuffer(content, kind).reshape(shape)
    if dtype == "bool" and (np.frombuffer(content, np.uint8) > 1).any():
        raise ValueError("an array holds invalid booleans")
    if dtype == "float64" and not np.isfinite(array).all():
        raise ValueError("an array holds numbers that are not finite")
    return array.astype(dtype)


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object without repeated keys."""
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice")
    return found


def _no_constant(name: str) -> None:
    """Refuse NaN and Infinity, which are not JSON."""
    raise ValueError(f"{name} is not a number")


def _finite_number(text: str) -> float:
    """Return a number below the largest float."""
    value = float(text)
    if not np.isfinite(value):
        raise ValueError(f"{text[:20]} is too large for a float")
    return value


def _rendered(value: Any, indent: int = 0) -> str:
    """Return JSON with one entry per line, and lists of scalars on one line."""
    space = "  " * (indent + 1)
    if isinstance(value, dict) and value and not _is_packed(value):
        lines = [
            f"{space}{json.dumps(name, ensure_ascii=False)}: {_rendered(entry, indent + 1)}"
            for name, entry in value.items()
        ]
        return "{\n" + ",\n".join(lines) + "\n" + "  " * indent + "}"
    if isinstance(value, list) and any(isinstance(entry, dict | list) for entry in value):
        lines = [space + _rendered(entry, indent + 1) for entry in value]
        return "[\n" + ",\n".join(lines) + "\n" + "  " * indent + "]"
    return json.dumps(value, ensure_ascii=False, allow_nan=False)
