"""Numbers as text."""

from __future__ import annotations

import re

from dubito.measure import Interval

ABSENT = "\N{EN DASH}"


def percentage(value: float | None, digits: int = 1) -> str:
    r"""Return a fraction in percent, or a dash for None.

    >>> percentage(0.9356), percentage(None)
    ('93.6\xa0%', '–')
    """
    return ABSENT if value is None else f"{value * 100:.{digits}f}\u00a0%"


def points(value: float) -> str:
    """Return a difference of fractions in percentage points, with its sign.

    >>> points(0.0123)
    '+1.2'
    """
    return f"{value * 100:+.1f}"


def cost(value: float) -> str:
    """Return a cost with as many digits as it needs, as the page's script formats it.

    >>> cost(5.0), cost(1234.5)
    ('5.00', '1,234')
    """
    size = abs(value)
    return f"{value:,.{2 if size < 100 else 1 if size < 1000 else 0}f}"


def quantity(number: int, noun: str = "row") -> str:
    """Return a number and a noun, in the plural where needed.

    >>> quantity(1), quantity(1200)
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def decimal(value: float | None) -> str:
    """Return a number with four decimals, fewer for large numbers, or a dash for None.

    >>> decimal(0.08521), decimal(1234.5), decimal(None)
    ('0.0852', '1,234', '–')
    """
    if value is None:
        return ABSENT
    size = abs(value)
    return f"{value:.4f}" if size < 10 else f"{value:,.2f}" if size < 1000 else f"{value:,.0f}"


def with_interval(value: float | None, interval: Interval | None) -> str:
    """Return a number followed by its confidence interval, if there is one.

    >>> with_interval(0.5, Interval(0.5, 0.4, 0.6))
    '0.5000 (0.4000 to 0.6000)'
    """
    ends = f" ({decimal(interval.low)} to {decimal(interval.high)})" if interval else ""
    return f"{decimal(value)}{ends}"


def estimate(interval: Interval | None) -> str:
    """Return an estimate followed by its confidence interval, or a dash for None.

    >>> estimate(Interval(0.5, 0.4, 0.6)), estimate(None)
    ('0.5000 (0.4000 to 0.6000)', '–')
    """
    return ABSENT if interval is None else with_interval(interval.value, interval)


def keep_percent_signs(text: str) -> str:
    r"""Return a text in which percent signs never start a new line.

    >>> keep_percent_signs("95.4% and 95 %")
    '95.4\xa0% and 95\xa0%'
    """
    return re.sub(r"(?<=\d) ?%", "\u00a0%", text)


def p_value(value: float | None) -> str:
    """Return a p-value, or a dash for None.

    >>> p_value(1e-9), p_value(0.25), p_value(None)
    ('< 0.0001', '0.2500', '–')
    """
    if value is None:
        return ABSENT
    return "< 0.0001" if value < 0.00005 else f"{value:.4f}"
