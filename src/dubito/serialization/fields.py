"""Declared fields of a serialized object: numbers, names and lists, each with its own check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, final

import numpy as np

from dubito.errors import BadValueError

LARGE = 1e30  # no fit finds a larger coefficient, and sums of such still fit into float32
MOST = float(np.finfo(np.float64).max)
EXACT = 2**53  # whole numbers up to here are told apart by every reader of JSON
WIDEST = 2**128  # of a setting: seeds may be so large
LONGEST = 10_000  # letters of a name or a sentence

AS_WRITTEN = "the file as `to_dict` wrote it"

Check = Callable[[Any, "Entry"], Any]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Entry:
    """Where something stands: its name, who reads it, what was read before it, how deep inside."""

    name: str
    caller: str
    beside: Mapping[str, Any]
    depth: int = 0

    def at(self, key: str) -> Entry:
        """Return the place of an entry of this one."""
        return replace(self, name=key if self.name == "values" else f"{self.name}.{key}")

    def refused(self, rule: str, got: str) -> BadValueError:
        """Say which rule an entry breaks."""
        return BadValueError(self.name, self.caller, rule, got, AS_WRITTEN)

    def size(self, wanted: int | str | None) -> int | None:
        """Return a size that is given, or follows from what was read before: 1 where that is None.

        >>> Entry("learned", "f", {"n_classes_": 3, "classes_": None}).size("classes_")
        1
        """
        if not isinstance(wanted, str):
            return wanted
        known = self.beside[wanted]
        return 1 if known is None else known if isinstance(known, int) else len(known)


@final
@dataclass(frozen=True, slots=True, eq=False)
class Maybe:
    """The check of an entry that need not be there."""

    check: Check

    def __call__(self, value: Any, entry: Entry) -> Any:
        return self.check(value, entry)


def shown(value: Any) -> str:
    """Return a value as an error shows it, however large or deep it is.

    >>> shown(10**5000), shown([[[]]]), shown("x")
    ('a number beyond 2^128', 'a list', "'x'")
    """
    if isinstance(value, int) and not -WIDEST < value < WIDEST:
        return "a number beyond 2^128"
    if isinstance(value, np.ndarray):
        return f"an array of shape {value.shape} and type {value.dtype}"
    if value is None or isinstance(value, bool | int | float | np.number | np.bool_):
        return str(value)
    return repr(value[:50]) if isinstance(value, str) else f"a {type(value).__name__}"


def require_keys(values: Any, checks: Mapping[str, Check], entry: Entry) -> None:
    """Raise unless a dict has the keys that are known, all but those that need not be there."""
    if not isinstance(values, dict):
        raise entry.refused("a dict", shown(values))
    known = ", ".join(checks) or "empty"
    for key in values:
        if not (isinstance(key, str) and key in checks):
            raise entry.refused(f"of known entries ({known})", shown(key))
    for key, check in checks.items():
        if key not in values and not isinstance(check, Maybe):
            raise entry.refused(f"whole ({known})", f"no {key}")


def plain_setting(value: Any, entry: Entry) -> Any:
    """Return a setting that is a single thing: None, true or false, a number or a name."""
    plain = value.item() if isinstance(value, np.generic) else value
    is_name = isinstance(plain, str) and len(plain) <= LONGEST
    is_number = isinstance(plain, int | float) and -WIDEST < plain < WIDEST
    is_endless = isinstance(plain, float) and np.isinf(plain)
    if plain is None or is_name or is_number or is_endless:
        return plain
    raise entry.refused("None, true, false, a number or a name", shown(value))


def one_of(*options: str) -> Check:
    """Check for one of some names."""

    def check(value: Any, entry: Entry) -> str:
        if not (isinstance(value, str) and value in options):
            raise entry.refused(f"one of {', '.join(map(repr, options))}", shown(value))
        return value

    return check


def flag(value: Any, entry: Entry) -> bool:
    """Check for true or false."""
    if not isinstance(value, bool | np.bool_):
        raise entry.refused("true or false", shown(value))
    return bool(value)


def text(value: Any, entry: Entry) -> str:
    """Check for a name or a sentence."""
    if not (isinstance(value, str) and len(value) <= LONGEST):
        raise entry.refused(f"text of up to {LONGEST:,} letters", shown(value))
    return value


def number(low: float = -LARGE, high: float = LARGE) -> Check:
    """Check for a number between two others, or one of them."""

    def check(value: Any, entry: Entry) -> float:
        is_exact = _is_integer(value) and -EXACT <= value <= EXACT
        is_number = is_exact or isinstance(value, float | np.floating)
        if not (is_number and low <= float(value) <= high):
            raise entry.refused(f"a number {span(low, high)}", shown(value))
        return float(value)

    return check


def whole(low: int = 0, high: int = EXACT) -> Check:
    """Check for a whole number between two others, or one of them."""

    def check(value: Any, entry: Entry) -> int:
        if not (_is_integer(value) and low <= value <= high):
            raise entry.refused(f"a whole number {span(low, high)}", shown(value))
        return int(value)

    return check


def _is_integer(value: Any) -> bool:
    """Tell a whole number from true and false, and from all else."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def span(low: float, high: float) -> str:
    """Return in words where a number may be.

    >>> span(0, 1), span(0, MOST), span(-MOST, MOST)
    ('from 0 to 1', 'from 0 up', 'that is finite')
    """
    if high not in (MOST, EXACT):
        return f"from {low:g} to {high:g}"
    return f"from {low:g} up" if low > -MOST else "that is finite"


def optional(inner: Check) -> Check:
    """Check for None, or what another check takes."""
    return lambda value, entry: None if value is None else inner(value, entry)


def listed(inner: Check, size: int | str | None = None) -> Check:
    """Check for a list of as many as said, or of any number of, what another check takes."""

    def check(value: Any, entry: Entry) -> list[Any]:
        is_array = isinstance(value, np.ndarray) and value.ndim > 0
        if not (is_array or isinstance(value, list | tuple)):
            raise entry.refused("a list", shown(value))
        wanted = entry.size(size)
        if wanted is not None and len(value) != wanted:
            raise entry.refused(f"a list of {wanted}", f"{len(value)}")
        return [
            inner(one, replace(entry, name=f"{entry.name}[{i}]")) for i, one in enumerate(value)
        ]

    return check


def entries(**checks: Check) -> Mapping[str, Check]:
    """Return what is checked by name, in the order in which it is read."""
    return MappingProxyType(checks)


def record(**checks: Check) -> Check:
    """Check for a dict of known entries, each with a check of its own."""

    def check(value: Any, entry: Entry) -> dict[str, Any]:
        require_keys(value, checks, entry)
        return {key: checks[key](value[key], entry.at(key)) for key in value}

    return check


def by_name(inner: Check) -> Check:
    """Check for a dict of one entry or more by names of any kind, all with the same check."""

    def check(value: Any, entry: Entry) -> dict[str, Any]:
        if not (isinstance(value, dict) and value and all(isinstance(key, str) for key in value)):
            raise entry.refused("a dict of one name or more", shown(value))
        return {key: inner(one, entry.at(key)) for key, one in value.items()}

    return check


def names(size: str | None = None) -> Check:
    """Check for None, or different names of classes: text or numbers."""

    def check(value: Any, entry: Entry) -> tuple[Any, ...] | None:
        if value is None:
            return None
        found = value.tolist() if isinstance(value, np.ndarray) else value
        if not (isinstance(found, list | tuple) and found and all(map(_is_name, found))):
            raise entry.refused("None, or a list of names or numbers", shown(value))
        if len(set(found)) != len(found):
            raise entry.refused("all different", "one twice")
        if size is not None and len(found) != entry.size(size):
            raise entry.refused(f"{entry.size(size)} names, one a class", f"{len(found)}")
        return tuple(found)

    return check


def _is_name(value: Any) -> bool:
    """Tell what may be the name of a class."""
    if isinstance(value, str):
        return len(value) <= LONGEST
    return isinstance(value, int | float) and -WIDEST < value < WIDEST
