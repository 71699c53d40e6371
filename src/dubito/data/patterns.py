"""Column names: patterns with one `*`, natural order, and the class names they carry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from dubito.errors import BadValueError
from dubito.outputs import ClassName

__all__ = ["class_names", "in_order_of", "matching", "natural_order"]


def matching(pattern: str, names: Sequence[str], role: str, where: str) -> list[str]:
    """Return the columns that a name or a pattern means, in natural order, or raise with the fix.

    >>> matching("logit_*", ["logit_10", "y", "logit_2"], "logits", "f.csv")
    ['logit_2', 'logit_10']
    """
    if pattern.count("*") > 1:
        fix = "a pattern such as 'logit_*'"
        raise BadValueError(role, where, "a name, or a pattern with one *", repr(pattern), fix)
    found = [name for name in names if matched_part(pattern, name) is not None]
    if not found:
        near = get_close_matches(pattern.replace("*", "0"), names, n=1)
        shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
        fix = f"{near[0]!r}, or another of: {shown}" if near else f"one of: {shown}"
        rule = "columns that exist" if "*" in pattern else "a column that exists"
        raise BadValueError(role, where, rule, repr(pattern), fix)
    if len(set(found)) != len(found):
        twice = next(name for name in found if found.count(name) > 1)
        fix = "renaming one of them"
        raise BadValueError(role, where, "of different names", f"{twice!r} twice", fix)
    return sorted(found, key=natural_order)


def matched_part(pattern: str, name: str) -> str | None:
    """Return what `*` stands for in a name (the whole name without one), or None."""
    if "*" not in pattern:
        return name if name == pattern else None
    before, after = pattern.split("*")
    is_long_enough = len(name) > len(before) + len(after)
    if is_long_enough and name.startswith(before) and name.endswith(after):
        return name[len(before) : len(name) - len(after)]
    return None


def natural_order(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts `logit_2` before `logit_10`."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def class_names(pattern: str, columns: Sequence[str]) -> tuple[ClassName, ...]:
    """Return the classes that columns speak of: numbers where every one is a number, else text.

    >>> class_names("p_*", ["p_cat", "p_dog"])
    ('cat', 'dog')
    """
    names = [matched_part(pattern, column) or column for column in columns]
    if all(re.fullmatch(r"-?\d+", name) for name in names):
        numbers = tuple(int(name) for name in names)
        if len(set(numbers)) == len(numbers):
            return numbers
    return tuple(names)


def in_order_of(
    classes: tuple[ClassName, ...] | None, pattern: str, columns: list[str], where: str
) -> list[str]:
    """Return label columns in the order of the classes they are named after."""
    by_class = dict(zip(class_names(pattern, columns), columns, strict=True))
    if classes is None or set(by_class) != set(classes):
        raise BadValueError(
            "label",
            where,
            f"one column a class, named as the outputs' ({', '.join(map(str, classes or ()))})",
            ", ".join(map(str, by_class)),
            "label probabilities for the same classes as the outputs",
        )
    return [by_class[name] for name in classes]
