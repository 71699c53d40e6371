"""Numbers as a report prints them."""

from __future__ import annotations

import re

from dubito.measure import Interval

ABSENT = "\N{EN DASH}"


def share(value: float | None, digits: int = 1) -> str:
    r"""Return a share in per cent, a dash where there is none.

    >>> share(0.9356), share(None)
    ('93.6\xa0%', '–')
    """
    return ABSENT if value is None else f"{value * 100:.{digits}f}\u00a0%"


def points(value: float) -> str:
    """Return a difference of shares in points, with its sign.

    >>> points(0.0123)
    '+1.2'
    """
    return f"{value * 100:+.1f}"


def cost(value: float) -> str:
    """Return a cost with as many digits as it needs, as the page's script tells it.

    >>> cost(5.0), cost(1234.5)
    ('5.00', '1,234')
    """
    size = abs(value)
    return f"{value:,.{2 if size < 100 else 1 if size < 1000 else 0}f}"


def counted(number: int, what: str = "row") -> str:
    """Return a number and what it counts, in the plural where it should be.

    >>> counted(1), counted(1200)
    ('1 row', '1,200 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def figure(value: float | None) -> str:
    """Return a figure with four digits behind the point, fewer where it is large.

    >>> figure(0.08521), figure(1234.5), figure(None)
    ('0.0852', '1,234', '–')
    """
    if value is None:
        return ABSENT
    size = abs(value)
    return f"{value:.4f}" if size < 10 else f"{value:,.2f}" if size < 1000 else f"{value:,.0f}"


def with_interval(value: float | None, interval: Interval | None) -> str:
    """Return a figure and, behind it, its interval where there is one.

    >>> with_interval(0.5, Interval(0.5, 0.4, 0.6))
    '0.5000 (0.4000 to 0.6000)'
    """
    between = f" ({figure(interval.low)} to {figure(interval.high)})" if interval else ""
    return f"{figure(value)}{between}"


def spaced(text: str) -> str:
    r"""Return a text in which each per cent sign stands off its number, and never on a line alone.

    >>> spaced("95.4% and 95 %")
    '95.4\xa0% and 95\xa0%'
    """
    return re.sub(r"(?<=\d) ?%", "\u00a0%", text)


def chance(value: float) -> str:
    """Return a p-value.

    >>> chance(1e-9), chance(0.25)
    ('< 0.0001', '0.2500')
    """
    return "< 0.0001" if value < 0.00005 else f"{value:.4f}"
