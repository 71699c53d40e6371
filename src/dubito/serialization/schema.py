"""The JSON schema of documents, from the fields that classes declare."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib import import_module
from inspect import getdoc, isabstract
from types import NoneType, UnionType
from typing import Any, Literal, Union, final, get_args, get_origin, get_type_hints

from dubito.serialization.documents import CHECKSUM, SMALLER
from dubito.serialization.fields import SCALAR, Schema, any_of, object_schema
from dubito.serialization.objects import (
    FORMAT,
    HOMES,
    Record,
    Serializable,
    inherited,
    param_checks,
)

DIALECT = "https://json-schema.org/draft/2020-12/schema"
SEAL: Schema = {
    "type": "string",
    "pattern": "^sha256:[0-9a-f]{64}$",
    "description": "A digest of the other entries, which tells whether the file was edited.",
}
PACKED_ARRAY: Schema = {
    "type": "object",
    "description": (
        "More than 200 numbers: their little-endian bytes, row by row, in base64. `stored` is the "
        "type of the bytes where it is smaller than `dtype`, and holds the same numbers."
    ),
    "properties": {
        "base64": {"type": "string", "contentEncoding": "base64"},
        "dtype": {"enum": [*SMALLER]},
        "shape": {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1},
        "stored": {"enum": sorted({one for some in SMALLER.values() for one in some})},
    },
    "required": ["base64", "dtype", "shape"],
    "additionalProperties": False,
}
ENTRY = re.compile(r"^(\w+(?:, \w+)*) : .*\n((?:(?: {4}.*)?\n)+)", re.MULTILINE)
WIDTH = 100  # of the text of a schema
PLAIN: dict[Any, str] = {  # annotations of parameters
    bool: "boolean", int: "integer", float: "number", NoneType: "null",
}  # fmt: skip
EMPTY: Schema = {"type": "object", "maxProperties": 0}


def document_schema(kinds: Sequence[type[Record]], title: str) -> Schema:
    """Return the JSON schema of documents that hold one of some records, with a checksum."""
    found = _Definitions()
    for kind in kinds:
        found.add_record(kind)
        definition = found.definitions[kind.__name__]
        definition["properties"][CHECKSUM] = SEAL
        definition["required"].append(CHECKSUM)
    names = [kind.__name__ for kind in kinds]
    return {
        "$schema": DIALECT,
        "title": title,
        "description": f"One of {', '.join(names)}, named by `class`; written by dubito as JSON.",
        "type": "object",
        "properties": {"class": {"enum": names}},
        "required": ["class"],
        "allOf": [
            {
                "if": {"properties": {"class": {"const": name}}},
                "then": {"$ref": f"#/$defs/{name}"},
            }
            for name in names
        ],
        "$defs": {"packed_array": PACKED_ARRAY, **dict(sorted(found.definitions.items()))},
    }


@final
class _Definitions:
    """Schemas of classes by name, each made once."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def add_record(self, kind: type[Record]) -> Schema:
        """Return a reference to the schema of a record."""
        name = kind.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # it may hold itself
            header = _header(name) if kind.has_header else {}
            self.definitions[name] = self._described(kind, object_schema(kind.fields, **header))
        return {"$ref": f"#/$defs/{name}"}

    def add_estimators(self, kind: type[Serializable], *, is_fitted: bool) -> Schema:
        """Return references to the schemas of all estimators of a kind."""
        homes = [import_module(home) for home in HOMES]
        public = {name: getattr(home, name) for home in homes for name in home.__all__}
        some = [
            one
            for _, one in sorted(public.items())
            if isinstance(one, type) and issubclass(one, kind) and not isabstract(one)
        ]
        references = [self._add_estimator(one, is_fitted=is_fitted) for one in some]
        return any_of(*references) if len(references) > 1 else references[0]

    def _add_estimator(self, kind: type[Serializable], *, is_fitted: bool) -> Schema:
        name = kind.__name__
        if name not in self.definitions:
            self.definitions[name] = {}
            parts = {
                "params": _with_hints(object_schema(param_checks(kind)), kind),
                "fitted": object_schema(inherited(kind, "fitted_fields")),
            }
            schema = object_schema({}, **_header(name), **parts)
            self.definitions[name] = self._described(kind, schema)
        if is_fitted:
            return {"$ref": f"#/$defs/{name}"}
        whole = f"#/$defs/{name}/properties"
        parts = {"params": {"$ref": f"{whole}/params"}}
        parts["fitted"] = any_of(EMPTY, {"$ref": f"{whole}/fitted"})
        self.definitions[f"Unfitted{name}"] = object_schema({}, **_header(name), **parts)
        return {"$ref": f"#/$defs/Unfitted{name}"}

    def _described(self, kind: type[Any], schema: Schema) -> Schema:
        """Return a schema with references, and what the docstring says about its entries."""
        text = getdoc(kind) or ""
        resolved = self._resolved(schema)
        _describe_entries(resolved, _entries_of(text))
        return {"description": text.partition("\n")[0], **resolved}

    def _resolved(self, value: Any) -> Any:
        """Return a schema in which classes are replaced by references to their schemas."""
        if isinstance(value, list):
            return [self._resolved(one) for one in value]
        if not isinstance(value, dict):
            return value
        if isinstance(value.get("record"), type):
            return self.add_record(value["record"])
        if isinstance(value.get("estimator"), type):
            return self.add_estimators(value["estimator"], is_fitted=value["is_fitted"])
        return {name: self._resolved(one) for name, one in value.items()}


def _with_hints(schema: Schema, kind: type[Serializable]) -> Schema:
    """Return the schema of parameters, those without a check by their annotation, if it is plain.

    Ranges are not annotated: reading a document checks them.
    """
    hints = get_type_hints(kind.__init__)
    named = schema["properties"].items()
    found = {name: _hinted(hints.get(name)) if one == SCALAR else one for name, one in named}
    return {**schema, "properties": {name: one or SCALAR for name, one in found.items()}}


def _hinted(hint: Any) -> Schema | None:
    """Return the schema of an annotation; None if it is not of strings, numbers and None.

    >>> _hinted(int | Literal["auto"] | None)
    {'anyOf': [{'type': 'integer'}, {'enum': ['auto']}, {'type': 'null'}]}
    """
    if get_origin(hint) is Literal:
        return {"enum": [*get_args(hint)]}
    if get_origin(hint) in (Union, UnionType):
        parts = [_hinted(one) for one in get_args(hint)]
        return None if None in parts else any_of(*(one for one in parts if one is not None))
    return {"type": PLAIN[hint]} if hint in PLAIN else None


def _header(name: str) -> dict[str, Schema]:
    return {"class": {"const": name}, "format": {"const": FORMAT}}


def _entries_of(text: str) -> dict[str, str]:
    """Return what a docstring says about parameters and attributes, by name."""
    found: dict[str, str] = {}
    for names, lines in ENTRY.findall(text):
        sentence = " ".join(lines.split())
        found |= dict.fromkeys(names.split(", "), sentence) if sentence else {}
    return found


def _describe_entries(schema: Schema, entries: dict[str, str]) -> None:
    """Add descriptions to the entries of an object, and to its parameters and fitted values."""
    for name, one in schema.get("properties", {}).items():
        if name in entries:
            one.setdefault("description", entries[name])
        if name in ("params", "fitted"):
            _describe_entries(one, entries)


def schema_text(value: Any, indent: int = 0) -> str:
    """Return a schema as JSON text, in which what fits on a line is on one line."""
    line = json.dumps(value)
    is_short = indent + len(line) <= WIDTH
    if is_short or not isinstance(value, dict | list):
        return line
    space, end = " " * (indent + 2), "\n" + " " * indent
    if isinstance(value, list):
        parts = [space + schema_text(one, indent + 2) for one in value]
        return "[\n" + ",\n".join(parts) + end + "]"
    parts = [
        f"{space}{json.dumps(name)}: {schema_text(one, indent + 2)}" for name, one in value.items()
    ]
    return "{\n" + ",\n".join(parts) + end + "}"
