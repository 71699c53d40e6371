"""Declared fields of a serialized object: each name has a check that reads its value.

A check is called with a value and its `Entry`, and returns the value as the object keeps it or
raises a `BadValueError` that names the entry. It also states what it accepts as a JSON schema.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, final

import numpy as np

from dubito.errors import BadValueError

LARGE = 1e30  # no fit finds a larger coefficient, and sums of such still fit into float32
MAX_FLOAT = float(np.finfo(np.float64).max)
EXACT = 2**53  # every JSON reader keeps integers up to here exact
MAX_PARAMETER = 2**128  # of a parameter: seeds may be this large
MAX_LENGTH = 10_000  # characters of a name or a sentence

RESTORE = "Restore the values as they were written"
VERBS = ("must ", "cannot ", "needs ", "has ", "is ")

Check = Callable[[Any, "Entry"], Any]
Schema = dict[str, Any]
SCALAR: Schema = {"type": ["null", "boolean", "number", "string"]}
NUMERIC = {"number", "integer", "boolean"}


@final
@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Where a value stands in a document.

    Attributes
    ----------
    name : str
        The dotted path, such as "fitted.calibrators_[1].fitted.knots_".
    caller : str
        The function that reads, for error messages.
    beside : mapping
        The entries of the same object that were read before, by name.
    depth : int
        How many objects it is nested in.
    """

    name: str
    caller: str
    beside: Mapping[str, Any]
    depth: int = 0

    def at(self, key: str) -> Entry:
        """Return the entry of a key inside this one."""
        return replace(self, name=key if self.name == "values" else f"{self.name}.{key}")

    def error(self, rule: str, got: str) -> BadValueError:
        """Return the error of a value that breaks a rule, a verb phrase or what it must be."""
        return BadValueError(self.name, self.caller, as_verb_phrase(rule), got, RESTORE)

    def size(self, wanted: int | str | None) -> int | None:
        """Return a size given as a number, or as the name of an entry before: 1 if that is None.

        >>> Entry("fitted", "f", {"n_classes_": 3, "classes_": None}).size("classes_")
        1
        """
        if not isinstance(wanted, str):
            return wanted
        known = self.beside[wanted]
        return 1 if known is None else known if isinstance(known, int) else len(known)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Omittable:
    """The check of an entry that may be absent."""

    check: Check

    def __call__(self, value: Any, entry: Entry) -> Any:
        return self.check(value, entry)


def states(schema: Callable[[], Schema]) -> Callable[[Check], Check]:
    """Return a decorator that gives a check the JSON schema of what it accepts.

    The schema is made when it is asked for. The class of a record or an estimator stands for its
    own schema (see `dubito.serialization.schema`).
    """

    def stating(check: Check) -> Check:
        vars(check)["schema"] = schema
        return check

    return stating


def schema_of(check: Check) -> Schema:
    """Return the JSON schema of what a check accepts: {}, anything, where it states none."""
    known = getattr(check.check if isinstance(check, Omittable) else check, "schema", None)
    return {} if known is None else dict(known())


def any_of(*schemas: Schema) -> Schema:
    """Return the schema of what one of several accepts.

    >>> any_of({"type": "null"}, {"anyOf": [{"type": "number"}, {"type": "string"}]})
    {'anyOf': [{'type': 'null'}, {'type': 'number'}, {'type': 'string'}]}
    """
    return {"anyOf": [part for one in schemas for part in one.get("anyOf", [one])]}


def list_schema(items: Schema, size: int | str | None = None, least: int = 0) -> Schema:
    """Return the schema of a list; one of numbers may be packed (see `PACKED_ARRAY`)."""
    bounds = {"minItems": size, "maxItems": size} if isinstance(size, int) else {}
    if not bounds and least:
        bounds = {"minItems": least}
    plain = {"type": "array", "items": items, **bounds}
    kinds = {part.get("type") for part in items.get("anyOf", [items])}
    may_pack = bool(kinds & {*NUMERIC, "array"})
    return any_of(plain, {"$ref": "#/$defs/packed_array"}) if may_pack else plain


def object_schema(checks: Mapping[str, Check], **others: Schema) -> Schema:
    """Return the schema of a dict of known keys."""
    required = [name for name, check in checks.items() if not isinstance(check, Omittable)]
    return {
        "type": "object",
        "properties": {**others, **{name: schema_of(check) for name, check in checks.items()}},
        "required": [*others, *required],
        "additionalProperties": False,
    }


def as_verb_phrase(rule: str) -> str:
    """Return a rule that starts with a verb.

    >>> as_verb_phrase("a dict"), as_verb_phrase("must be a dict")
    ('must be a dict', 'must be a dict')
    """
    return rule if rule.startswith(VERBS) else f"must be {rule}"


def describe(value: Any) -> str:
    """Return a value as an error message shows it, however large or deep it is.

    >>> describe(10**5000), describe([[[]]]), describe("x")
    ('a number beyond 2^128', 'a list', "'x'")
    """
    if isinstance(value, int) and not -MAX_PARAMETER < value < MAX_PARAMETER:
        return "a number beyond 2^128"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if value is None or isinstance(value, bool | int | float | np.number | np.bool_):
        return str(value)
    return repr(value[:50]) if isinstance(value, str) else f"a {type(value).__name__}"


def declare(**checks: Check) -> Mapping[str, Check]:
    """Return the check of each field by name, in the order in which they are read."""
    return MappingProxyType(checks)


def require_keys(values: Any, checks: Mapping[str, Check], entry: Entry) -> None:
    """Raise unless a dict has exactly the declared keys, apart from `Omittable` ones."""
    if not isinstance(values, dict):
        raise entry.error("a dict", describe(values))
    known = ", ".join(checks) or "none"
    for key in values:
        if not (isinstance(key, str) and key in checks):
            raise entry.error(f"must have no other keys than {known}", describe(key))
    for key, check in checks.items():
        if key not in values and not isinstance(check, Omittable):
            raise entry.error(f"must have the keys {known}", f"no {key!r}")


def read_fields(values: Any, checks: Mapping[str, Check], entry: Entry) -> dict[str, Any]:
    """Return the checked values of a dict; each check sees those that were read before it."""
    require_keys(values, checks, entry)
    found: dict[str, Any] = {}
    for name in (name for name in checks if name in values):
        found[name] = checks[name](values[name], replace(entry.at(name), beside=found))
    return found


@states(lambda: SCALAR)
def scalar(value: Any, entry: Entry) -> Any:
    """Check for None, a boolean, a number or a string."""
    plain = value.item() if isinstance(value, np.generic) else value
    is_text = isinstance(plain, str) and len(plain) <= MAX_LENGTH
    is_number = isinstance(plain, int | float) and -MAX_PARAMETER < plain < MAX_PARAMETER
    is_infinite = isinstance(plain, float) and np.isinf(plain)
    if plain is None or is_text or is_number or is_infinite:
        return plain
    raise entry.error("None, a boolean, a number or a string", describe(value))


def _accepting(
    accepts: Callable[[Any], bool], rule: str, convert: Callable[[Any], Any], schema: Schema
) -> Check:
    """Return the check for values that a function accepts, converted to a Python type."""

    @states(lambda: schema)
    def check(value: Any, entry: Entry) -> Any:
        if not accepts(value):
            raise entry.error(rule, describe(value))
        return convert(value)

    return check


def one_of(*options: str) -> Check:
    """Check for one of some strings."""
    rule = f"one of {', '.join(map(repr, options))}"
    schema = {"enum": [*options]}
    return _accepting(lambda value: isinstance(value, str) and value in options, rule, str, schema)


boolean = _accepting(
    lambda value: isinstance(value, bool | np.bool_), "true or false", bool, {"type": "boolean"}
)

text = _accepting(
    lambda value: isinstance(value, str) and len(value) <= MAX_LENGTH,
    f"a string of at most {MAX_LENGTH:,} characters",
    str,
    {"type": "string", "maxLength": MAX_LENGTH},
)


def number(low: float = -LARGE, high: float = LARGE) -> Check:
    """Check for a number from `low` to `high`."""

    def accepts(value: Any) -> bool:
        is_exact = _is_integer(value) and -EXACT <= value <= EXACT
        is_number = is_exact or isinstance(value, float | np.floating)
        return is_number and low <= float(value) <= high

    return _accepting(
        accepts, f"a number {span(low, high)}", float, number_schema("number", low, high)
    )


def integer(low: int = 0, high: int = EXACT) -> Check:
    """Check for an integer from `low` to `high`."""
    rule = f"an integer {span(low, high)}"
    schema = number_schema("integer", low, high)
    return _accepting(lambda value: _is_integer(value) and low <= value <= high, rule, int, schema)


def number_schema(kind: str, low: float, high: float) -> Schema:
    """Return the schema of a number within a range.

    >>> number_schema("number", 0, MAX_FLOAT)
    {'type': 'number', 'minimum': 0}
    """
    bounds = {} if low == -MAX_FLOAT else {"minimum": low}
    return {"type": kind, **bounds, **({} if high == MAX_FLOAT else {"maximum": high})}


def _is_integer(value: Any) -> bool:
    """Whether a value is an integer and no boolean."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def span(low: float, high: float) -> str:
    """Return the words for a range of numbers.

    >>> span(0, 1), span(0, MAX_FLOAT), span(-MAX_FLOAT, MAX_FLOAT)
    ('from 0 to 1', 'of at least 0', 'that is finite')
    """
    if high not in (MAX_FLOAT, EXACT):
        return f"from {low:g} to {high:g}"
    return f"of at least {low:g}" if low > -MAX_FLOAT else "that is finite"


def optional(inner: Check) -> Check:
    """Check for None, or what another check accepts."""
    accepted = states(lambda: any_of({"type": "null"}, schema_of(inner)))
    return accepted(lambda value, entry: None if value is None else inner(value, entry))


def converted(convert: Callable[[Any], Any], inner: Check) -> Check:
    """Check as another does, and convert what it returns."""
    return states(lambda: schema_of(inner))(lambda value, entry: convert(inner(value, entry)))


def list_of(inner: Check, size: int | str | None = None, least: int = 0) -> Check:
    """Check for a list of a size, or of any from `least`, each element with the same check."""

    @states(lambda: list_schema(schema_of(inner), size, least))
    def check(value: Any, entry: Entry) -> list[Any]:
        is_array = isinstance(value, np.ndarray) and value.ndim > 0
        if not (is_array or isinstance(value, list | tuple)):
            raise entry.error("a list", describe(value))
        wanted = entry.size(size)
        if wanted is not None and len(value) != wanted:
            raise entry.error(f"a list of {wanted}", f"{len(value)}")
        if len(value) < least:
            raise entry.error(f"a list of at least {least}", f"{len(value)}")
        return [
            inner(one, replace(entry, name=f"{entry.name}[{i}]")) for i, one in enumerate(value)
        ]

    return check


def record(**checks: Check) -> Check:
    """Check for a dict of known keys, each with a check of its own."""

    @states(lambda: object_schema(checks))
    def check(value: Any, entry: Entry) -> dict[str, Any]:
        require_keys(value, checks, entry)
        return {key: checks[key](value[key], entry.at(key)) for key in value}

    return check


def dict_of(inner: Check) -> Check:
    """Check for a dict of at least one key, each value with the same check."""

    @states(
        lambda: {
            "type": "object",
            "minProperties": 1,
            "additionalProperties": schema_of(inner),
        }
    )
    def check(value: Any, entry: Entry) -> dict[str, Any]:
        if not (isinstance(value, dict) and value and all(isinstance(key, str) for key in value)):
            raise entry.error("a dict with at least one key", describe(value))
        return {key: inner(one, entry.at(key)) for key, one in value.items()}

    return check


def class_names(size: str | None = None) -> Check:
    """Check for None, or a list of distinct class names: strings or numbers."""
    name = any_of(
        {"type": "string", "maxLength": MAX_LENGTH}, {"type": "number"}, {"type": "boolean"}
    )

    @states(lambda: any_of({"type": "null"}, list_schema(name, least=1)))
    def check(value: Any, entry: Entry) -> tuple[Any, ...] | None:
        if value is None:
            return None
        found = value.tolist() if isinstance(value, np.ndarray) else value
        if not (isinstance(found, list | tuple) and found and all(map(_is_name, found))):
            raise entry.error("None, or a list of strings or numbers", describe(value))
        if len(set(found)) != len(found):
            raise entry.error("distinct names", "one twice")
        if len(set(map(str, found))) != len(found):
            raise entry.error("names that are distinct as text", "a number and its text")
        if size is not None and len(found) != entry.size(size):
            raise entry.error(f"{entry.size(size)} names, one per class", f"{len(found)}")
        return tuple(found)

    return check


def _is_name(value: Any) -> bool:
    """Whether a value may be the name of a class."""
    if isinstance(value, str):
        return len(value) <= MAX_LENGTH
    return isinstance(value, int | float) and -MAX_PARAMETER < value < MAX_PARAMETER


ABSENT = object()


def fitted(check: Check, default: Any = ABSENT) -> Any:
    """Declare a fitted attribute of an estimator: one of its `fitted_fields`.

    Without a default, the attribute does not exist before `fit`.

    >>> from dubito.serialization.fields import number
    >>> from dubito.serialization.objects import Serializable
    >>> class Scaling(Serializable):
    ...     factor_: float = fitted(number(0))
    >>> list(Scaling.fitted_fields), hasattr(Scaling(), "factor_")
    (['factor_'], False)
    """
    return _Declared(check, default)


@final
class _Declared:
    """Adds a check to the fitted fields of a class, and leaves its place to the value."""

    def __init__(self, check: Check, default: Any) -> None:
        self.check, self.default = check, default

    def __set_name__(self, owner: Any, name: str) -> None:
        checks = {**vars(owner).get("fitted_fields", {}), name: self.check}
        owner.fitted_fields = MappingProxyType(checks)
        if self.default is ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, self.default)
