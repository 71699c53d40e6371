"""Column names: patterns with one `*`, natural order, and the class names they carry."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import get_close_matches

from dubito.errors import BadValueError
from dubito.outputs import ClassName

Wanted = str | Sequence[str]  # a name, a pattern with one `*`, or a list of names


def matching(wanted: Wanted, names: Sequence[str], role: str, where: str) -> list[str]:
    """Return the columns that are wanted, or raise with the fix.

    Those of a pattern come in natural order, those of a list in its own.

    >>> matching("logit_*", ["logit_10", "y", "logit_2"], "logits", "f.csv")
    ['logit_2', 'logit_10']
    """
    patterns = [wanted] if isinstance(wanted, str) else list(wanted)
    found = [name for pattern in patterns for name in _matches(pattern, names, role, where)]
    if len(set(found)) != len(found):
        twice = next(name for name in found if found.count(name) > 1)
        rule, fix = "of different names", "renaming one of them"
        raise BadValueError(role, where, rule, f"{twice!r} twice", fix)
    return found


def _matches(pattern: str, names: Sequence[str], role: str, where: str) -> list[str]:
    """Return the columns that one name or pattern means, in natural order."""
    if not isinstance(pattern, str) or pattern.count("*") > 1:
        rule, fix = "a name, or a pattern with one *", "a pattern such as 'logit_*'"
        raise BadValueError(role, where, rule, repr(pattern), fix)
    found = [name for name in names if _matched_part(pattern, name) is not None]
    if not found:
        rule = "columns that exist" if "*" in pattern else "a column that exists"
        raise BadValueError(role, where, rule, repr(pattern), _nearest(pattern, names))
    return sorted(found, key=natural_order)


def _nearest(pattern: str, names: Sequence[str]) -> str:
    """Return which columns there are, the one most like the pattern first."""
    near = get_close_matches(pattern.replace("*", "0"), names, n=1)
    shown = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    return f"{near[0]!r}, or another of: {shown}" if near else f"one of: {shown}"


def _matched_part(pattern: str, name: str) -> str | None:
    """Return what `*` stands for in a name (the whole name without one), or None."""
    before, star, after = pattern.partition("*")
    if not star:
        return name if name == pattern else None
    is_long_enough = len(name) > len(before) + len(after)
    if is_long_enough and name.startswith(before) and name.endswith(after):
        return name[len(before) : len(name) - len(after)]
    return None


def natural_order(name: str) -> list[tuple[int, int, str]]:
    """Return a key that sorts `logit_2` before `logit_10`."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts]


def is_several(wanted: Wanted) -> bool:
    """Whether a pattern or a list is wanted, so that columns are named after classes."""
    return not isinstance(wanted, str) or "*" in wanted


def class_names(wanted: Wanted, columns: Sequence[str]) -> tuple[ClassName, ...]:
    """Return the classes that columns speak of: numbers where every one is a number, else text.

    >>> class_names("p_*", ["p_cat", "p_dog"])
    ('cat', 'dog')
    """
    pattern = wanted if isinstance(wanted, str) else "*"
    names = [_matched_part(pattern, column) or column for column in columns]
    if all(re.fullmatch(r"-?\d+", name) for name in names):
        numbers = tuple(int(name) for name in names)
        if len(set(numbers)) == len(numbers):
            return numbers
    return tuple(names)


def in_order_of(
    classes: tuple[ClassName, ...] | None, wanted: Wanted, columns: list[str], where: str
) -> list[str]:
    """Return columns of label probabilities in the order of the classes they are named after."""
    by_class = dict(zip(class_names(wanted, columns), columns, strict=True))
    if classes is None:
        rule, fix = "one column where the classes have no names", "`classes=[...]`"
        raise BadValueError("label", where, rule, f"{len(columns)} columns", fix)
    if set(by_class) != set(classes):
        rule = f"one column a class, named as the outputs' are ({', '.join(map(str, classes))})"
        got = ", ".join(map(str, by_class))
        raise BadValueError("label", where, rule, got, "label probabilities for the same classes")
    return [by_class[name] for name in classes]
