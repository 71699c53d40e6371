"""Numbers as text, and results in notebooks: one style for terminals, reports and messages."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from html import escape
from math import floor, log10
from textwrap import wrap
from typing import Any, NamedTuple

ABSENT = "\N{EN DASH}"
# What acts on a terminal instead of being shown: control characters except line breaks, controls of
# the writing direction, and lone surrogates (bytes of a file name that are not UTF-8).
UNPRINTABLE = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

NUMBER = re.compile(r"[-+<>]?(\d[-+\d.,e() %to]*|inf|nan)|[-\N{EN DASH}]?")  # aligned right
PLURALS = {"is": "are", "was": "were", "has": "have", "differs": "differ"}
LONG = 40  # characters of a text that may wrap
MAX_ROWS_SHOWN = 10  # of a table with one line per row of data
# Colors and fonts are those of the notebook, light or dark; borders are seen on both.
VIEW = "max-width:100%;overflow-x:auto;color:inherit;background:none"
TABLE = "border-collapse:collapse;margin:0.3em 0;color:inherit;font-variant-numeric:tabular-nums"
CELL = "padding:0.15em 0.7em;text-align:{};white-space:{};background:none;color:inherit"
LINE = ";border-bottom:1px solid rgba(128,128,128,0.5)"


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


def level_percent(value: float) -> str:
    """Return the level of an interval in three digits, in more only near 100 %.

    >>> level_percent(0.9), level_percent(27 / 31), level_percent(0.9999)
    ('90 %', '87.1 %', '99.99 %')
    """
    return f"{value * 100:.{3 if value < 0.9995 else 6}g} %"


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


def sentence(text: str) -> str:
    """Return text as a sentence.

    >>> sentence("a mixture of two parts")
    'A mixture of two parts.'
    """
    return f"{text[:1].upper()}{text[1:]}."


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

    >>> plain(1500.0), plain(0.25), plain(6.926e200)
    ('1,500', '0.25', '6.926e+200')
    """
    return f"{value:,.0f}" if 10_000 <= abs(value) < 1e12 else f"{value:,.4g}"


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


def by_action(values: Mapping[str, str]) -> str:
    """Return what belongs to each action, such as its fraction, as a list in a sentence.

    Actions that end in a digit, such as classes 0 and 1, are kept apart from their values.

    >>> by_action({"approve": "16.7 %", "review": "83.3 %"})
    'approve 16.7 %, review 83.3 %'
    >>> by_action({"0": "16.7 %", "review": "83.3 %"})
    'action 0: 16.7 %, review: 83.3 %'
    """
    has_digits = {name: name[-1:].isdigit() for name in values}
    sign = ":" if any(has_digits.values()) else ""
    names = {name: f"action {name}" if has_digits[name] else name for name in values}
    return ", ".join(f"{names[name]}{sign} {value}" for name, value in values.items())


def quantity(number: int, noun: str = "row", verb: str = "") -> str:
    """Return a number, a noun and perhaps its verb, in the plural where needed.

    >>> quantity(1), quantity(1200), quantity(2, "outcome", "was")
    ('1 row', '1,200 rows', '2 outcomes were')
    """
    is_one = number == 1
    clause = f" {verb if is_one else PLURALS[verb]}" if verb else ""
    return f"{number:,} {noun}{'' if is_one else 's'}{clause}"


def duration(seconds: float) -> str:
    """Return a duration in its largest unit of at least 2, rounded.

    >>> duration(0.2), duration(90), duration(7200), duration(1.4 * 86400), duration(1e7)
    ('0 seconds', '90 seconds', '2 hours', '34 hours', '116 days')
    """
    units = (("day", 86_400), ("hour", 3600), ("minute", 60))
    unit, size = next(((u, n) for u, n in units if seconds >= 2 * n), ("second", 1))
    return quantity(round(seconds / size), unit)


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


class HTMLTable(NamedTuple):
    """A table in a notebook: its head, rows of texts, and a title to unfold it by if it is long."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    folded: str = ""


def html_view(verdict: str, *parts: str | HTMLTable) -> str:
    """Return a result as HTML for notebooks: the verdict, then paragraphs and tables.

    All texts are escaped. There are no scripts, and no colors of its own.

    >>> html_view("Over-confident.", "8 rows").partition(">")[2]
    '<p><strong>Over-confident.</strong></p><p>8 rows</p></div>'
    """
    inner = "".join(
        _html_table(one) if isinstance(one, HTMLTable) else _paragraph(one) for one in parts if one
    )
    title = _paragraph(verdict, "strong")
    return f'<div style="{VIEW}">{title}{inner}</div>'


def html_rows(columns: Mapping[str, Any], n_rows: int) -> HTMLTable:
    """Return the first rows of columns as a table, with the index of each row."""
    shown = {name: column[:MAX_ROWS_SHOWN].tolist() for name, column in columns.items()}
    lines = [
        (f"{k}", *(f"{one:.4g}" if isinstance(one, float) else f"{one}" for one in row))
        for k, row in enumerate(zip(*shown.values(), strict=True))
    ]
    if n_rows > len(lines):
        lines.append(("\N{HORIZONTAL ELLIPSIS}", *[""] * len(shown)))
    return HTMLTable(("row", *(name.replace("_", " ") for name in shown)), lines)


def _paragraph(text: str, tag: str = "") -> str:
    """Return text as a paragraph; its line breaks stay."""
    safe = "<br>".join(escape(keep_percent_signs(printable(text))).split("\n"))
    safe = f"<{tag}>{safe}</{tag}>" if tag else safe
    return f"<p>{safe}</p>"


def _html_table(table: HTMLTable) -> str:
    """Return a table: the first column names the rows, numbers are aligned to the right.

    Columns without any text are left out.
    """
    columns = zip(table.head, *table.rows, strict=True)
    first, *others = [one for k, one in enumerate(columns) if k == 0 or any(one[1:])]
    styles = [_column_style(first[1:], is_first=True)]
    styles += [_column_style(one[1:]) for one in others]
    head, *body = zip(first, *others, strict=True)
    cells = [f'<th scope="col" style="{style}{LINE}">{_safe(one)}</th>'
             for one, style in zip(head, styles, strict=True)]  # fmt: skip
    lines = [f"<thead><tr>{''.join(cells)}</tr></thead>"] if any(head) else []
    for name, *row in body:
        cells = [f'<th scope="row" style="{styles[0]};font-weight:normal">{_safe(name)}</th>']
        cells += [f'<td style="{style}">{_safe(one)}</td>'
                  for one, style in zip(row, styles[1:], strict=True)]  # fmt: skip
        lines.append(f"<tr>{''.join(cells)}</tr>")
    text = f'<table style="{TABLE}">{"".join(lines)}</table>'
    if not table.folded:
        return text
    return f"<details><summary>{_safe(table.folded)}</summary>{text}</details>"


def _column_style(cells: Sequence[str], is_first: bool = False) -> str:
    """Return the style of a column: numbers to the right, and only long texts may wrap."""
    is_number = not is_first and all(map(NUMBER.fullmatch, cells))
    is_long = max(map(len, cells), default=0) > LONG
    return CELL.format("right" if is_number else "left", "normal" if is_long else "nowrap")


def _safe(text: str) -> str:
    """Return text as HTML, on one line; an indented name stays indented."""
    return escape(keep_percent_signs(printable(text)).replace("\n", " ").replace("  ", "\u2003"))
