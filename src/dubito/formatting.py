"""Numbers as text: one style for terminals, reports, charts and messages."""

from __future__ import annotations

import re
from collections.abc import Sequence
from math import floor, log10
from textwrap import wrap
from typing import Any

ABSENT = "\N{EN DASH}"
# What acts on a terminal instead of being shown: control characters except line breaks, controls of
# the writing direction, and lone surrogates (bytes of a file name that are not UTF-8).
UNPRINTABLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def or_dash(value: object) -> str:
    """Return a value as text, or a dash for None.

    >>> or_dash(3), or_dash(None)
    ('3', '–')
    """
    return ABSENT if value is None else f"{value}"


def percent(value: float | None, digits: int = 1) -> str:
    """Return a fraction in percent, or a dash for None.

    >>> percent(0.9356), percent(0.05, 0), percent(-1e-9), percent(None)
    ('93.6 %', '5 %', '0.0 %', '–')
    """
    return ABSENT if value is None else f"{value * 100:z.{digits}f} %"


def short_percent(value: float) -> str:
    """Return a round fraction, such as a confidence level, with as many digits as it needs.

    >>> short_percent(0.5), short_percent(0.025), short_percent(0.9999)
    ('50 %', '2.5 %', '99.99 %')
    """
    return f"{value * 100:.6g} %"


def points(value: float | None) -> str:
    """Return a difference of fractions in percentage points, with its sign, or a dash for None.

    >>> points(0.0123)
    '+1.2'
    """
    return ABSENT if value is None else f"{value * 100:+.1f}"


def join_words(words: Sequence[str], most: int | None = None) -> str:
    """Return words as a list in a sentence, of more than `most` the first and how many follow.

    >>> join_words(["a", "b", "c"]), join_words(["a", "b", "c"], most=2)
    ('a, b and c', 'a, b and 1 more')
    """
    if most is not None and len(words) > most:
        words = [*words[:most], f"{len(words) - most} more"]
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def align_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the lines of a table: the first column to the left, numbers to the right.

    >>> align_table([("", "rows"), ("cat", "8"), ("bird", "12")])
    ['      rows', 'cat      8', 'bird    12']
    """
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in rows
    ]


def plain(value: float) -> str:
    """Return a number in its shortest readable form.

    >>> plain(1500.0), plain(0.25)
    ('1,500', '0.25')
    """
    return f"{value:,.4g}" if abs(value) < 10_000 else f"{value:,.0f}"


def number_format(*values: float) -> str:
    """Return the format of an estimate and its interval: as many decimals as the largest needs.

    >>> number_format(0.5, 0.4, 0.6), number_format(9.9, 9.7, 10.1), number_format(0.0002)
    (',.4f', ',.2f', ',.6f')
    """
    size = max(abs(value) for value in values)
    if 0 < size < 1e-5 or size >= 1e9:
        return ".3e"
    if 0 < size < 0.001:
        return f",.{2 - floor(log10(size))}f"
    return ",.4f" if size < 10 else ",.2f" if size < 1000 else ",.0f"


def decimal(value: float | None) -> str:
    """Return a number with four decimals, fewer for large numbers, or a dash for None.

    >>> decimal(0.08521), decimal(1234.5), decimal(None)
    ('0.0852', '1,234', '–')
    """
    return ABSENT if value is None else f"{value:z{number_format(value)}}"


def cost(*values: float) -> list[str]:
    """Return costs with as many decimals as the largest needs, as a page's script formats them.

    >>> cost(5.0), cost(1234.5), cost(101.0, 99.0)
    (['5.00'], ['1,234'], ['101.0', '99.0'])
    """
    size = max(abs(value) for value in values)
    return [f"{value:,.{2 if size < 100 else 1 if size < 1000 else 0}f}" for value in values]


def quantity(number: int, noun: str = "row") -> str:
    """Return a number and a noun, in the plural where needed.

    >>> quantity(1), quantity(1200)
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def p_value(value: float | None) -> str:
    """Return a p-value, or a dash for None.

    >>> p_value(1e-9), p_value(0.25), p_value(None)
    ('< 0.0001', '0.2500', '–')
    """
    if value is None:
        return ABSENT
    return "< 0.0001" if value < 0.00005 else f"{value:.4f}"


def keep_percent_signs(text: str) -> str:
    r"""Return a text in which percent signs never start a new line.

    >>> keep_percent_signs("95 % of all")
    '95\xa0% of all'
    """
    return re.sub(r"(?<=\d) %", "\u00a0%", text)


def wrapped(text: str, width: int, **settings: Any) -> list[str]:
    """Return a text as lines, as `textwrap.wrap`; a percent sign stays with its number.

    >>> wrapped("at most 5 % of all", 9)
    ['at most', '5 % of', 'all']
    """
    lines = wrap(keep_percent_signs(text), width, **settings)
    return [line.replace("\u00a0%", " %") for line in lines]


def printable(text: str) -> str:
    r"""Return text with its control characters shown, so that names cannot act on a terminal.

    >>> printable("\x1b[31mfraud")
    '\\x1b[31mfraud'
    """
    return UNPRINTABLE.sub(lambda match: ascii(match[0])[1:-1], text)
