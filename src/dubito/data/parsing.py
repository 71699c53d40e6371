"""What a text cell may stand for: a missing value, a number, true or false, a class."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import pyarrow as pa

from dubito.outputs import ClassName

# What stands for a missing value where a file has text only.
GAPS = frozenset({"", "NA", "N/A", "<NA>", "NaN", "nan", "null", "NULL", "None"})
TRUTH = {"true": 1, "false": 0}


def number(text: str) -> int | float | None:
    """Return the number that a text spells, as readers of CSV take it, or None.

    >>> number(" 3.0 "), number("3 cats")
    (3, None)
    """
    if re.fullmatch(r"\s*[+-]?[0-9]{1,18}\s*", text):
        return int(text)  # exact, where a float would round
    try:
        value: float = pa.scalar(text.strip()).cast(pa.float64()).as_py()
    except pa.ArrowInvalid:
        return None
    return int(value) if value.is_integer() else value


def share(text: str) -> int | float | None:
    """Return the number that a text spells, 1 for true and 0 for false, or None."""
    return TRUTH.get(text.strip().lower(), number(text))


def labels(
    values: Iterable[Any], classes: Iterable[ClassName], gaps: frozenset[str] = GAPS
) -> list[Any]:
    """Return what labels stand for: a class by its name, None for a gap, or else the value itself.

    Classes that are numbers are also found by texts that spell them; classes that are texts, by
    booleans. `gaps` are the texts that stand for a missing label, if they are no class.

    >>> labels(["3.0", "NA"], classes=[1, 2, 3]), labels(["NA"], classes=["NA", "EU"])
    ([3, None], ['NA'])
    """
    names = frozenset(classes)
    are_numbers = not any(isinstance(name, str) for name in names)

    def label(value: Any) -> Any:
        if isinstance(value, bool) and not are_numbers:
            return str(value)
        if not isinstance(value, str) or value in names:
            return value
        if value in gaps:
            return None
        spelt = share(value) if are_numbers else None
        return value if spelt is None else spelt

    return [label(value) for value in values]
