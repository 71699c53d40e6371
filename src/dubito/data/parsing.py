"""Parsing of text cells: missing values, numbers, booleans and class names."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from dubito.errors import BadValueError
from dubito.outputs import ClassName

# Texts that denote a missing value in files without types.
GAPS = frozenset({"", "NA", "N/A", "<NA>", "NaN", "nan", "null", "NULL", "None"})
COMMA = r"\d*,\d+([eE][+-]?\d+)?"  # a number with a decimal comma, without its sign
UNCERTAIN = frozenset({"u", "uncertain", "?"})
BOOLEANS = {"true": 1, "false": 0}


def number(text: str) -> int | float | None:
    """Return text parsed as a number, as CSV readers do, or None.

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


def remedy(text: str) -> str | None:
    """Return what to do about a text that is a number in other notations, None for other texts.

    >>> remedy("1.234,5"), remedy("n/a")
    ('Remove the thousands separators', None)
    >>> remedy("0,691")
    'Write a decimal point, or separate cells by semicolons'
    """
    if re.fullmatch(r"[+-]?[1-9]\d{0,2}(([.' ]\d{3})+(,\d+)?|([,' ]\d{3})+(\.\d+)?)", text):
        return "Remove the thousands separators"
    is_comma = re.fullmatch(rf"[+-]?{COMMA}", text)
    return "Write a decimal point, or separate cells by semicolons" if is_comma else None


def decimal_separator(texts: Mapping[str, Iterable[str | None]], where: str) -> str:
    """Return the character before the decimals of columns of numbers: a point or a comma.

    Raise if all numbers with a comma might as well have thousands separators.

    >>> decimal_separator({"p": ["0,5", "1,250"]}, "f.csv")
    ','
    """
    filled = {name: [*enumerate(column)] for name, column in texts.items()}
    cells = [(name, row, text.strip()) for name in filled for row, text in filled[name] if text]
    commas = [cell for cell in cells if re.fullmatch(rf"[+-]?{COMMA}", cell[2])]
    unclear = [cell for cell in commas if re.fullmatch(r"[+-]?[1-9]\d{0,2},\d{3}", cell[2])]
    if len(unclear) < len(commas):
        return ","
    if not commas or any(re.search(r"\d\.\d", text) for _, _, text in cells):
        return "."
    name, row, text = unclear[0]
    got = f"{text!r}, which may be {text.replace(',', '.')} or {text.replace(',', '')}"
    fix = "Write decimal points, and no thousands separators"
    raise BadValueError(name, where, "must be unambiguous numbers", got, fix, row)


def number_or_boolean(text: str) -> int | float | None:
    """Return text parsed as a number, 1 for true and 0 for false, or None."""
    return BOOLEANS.get(text.strip().lower(), number(text))


def number_or_gap(text: str | None) -> float | None:
    """Return a number, 1 for true and 0 for false, NaN for a gap; None for other texts."""
    return float("nan") if text is None or text.strip() in GAPS else number_or_boolean(text)


def mark(text: str | None) -> float | None:
    """Return a label as a number: NaN for a gap, -1 for an uncertain one; None for other texts.

    >>> mark("u"), mark("1.0"), mark("maybe")
    (-1.0, 1, None)
    """
    is_uncertain = text is not None and text.strip().lower() in UNCERTAIN
    return -1.0 if is_uncertain else number_or_gap(text)


def labels(
    values: Iterable[Any], classes: Iterable[ClassName], gaps: frozenset[str] = GAPS
) -> list[Any]:
    """Return labels parsed as classes: None for a missing one, other values unchanged.

    Text such as "3.0" matches a class that is a number, and booleans match classes that are text.
    `gaps` are the texts that denote a missing label, unless they are classes themselves.

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
        parsed = number_or_boolean(value) if are_numbers else None
        return value if parsed is None else parsed

    return [label(value) for value in values]
