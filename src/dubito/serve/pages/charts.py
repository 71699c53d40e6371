"""Figures over time, each with its interval, and gaps where they are unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from dubito.charts import Axis, Chart, Line, Mark, Points, plain
from dubito.serve.monitor import Figure, Window


def over_time(
    name: str,
    windows: Sequence[Window],
    pick: Callable[[Window], Figure],
    tell: Callable[[float], str],
    usual: Callable[[Window], float | None],
) -> Chart:
    """Return a chart of one metric per window with its interval; dashes are the usual value.

    >>> over_time("Cost", [], lambda window: window.cost, str, lambda window: 0.1).title
    'Cost over time'
    """
    known = [interval for window in windows if (interval := pick(window).interval)]
    levels = [level for window in windows if (level := usual(window)) is not None]
    ends = [end for one in known for end in (one.low, one.high)]
    n_rows = sum(window.n_rows for window in windows)
    marks: list[Mark] = []
    end = 0
    for window in windows:
        first, end = end, end + window.n_rows
        middle = (first + end) / 2
        if (level := usual(window)) is not None:
            marks.append(Line([first, end], [level, level], "reference"))
        if one := pick(window).interval:
            between = f"{tell(one.low)} to {tell(one.high)}"
            hint = f"{tell(one.value)} ({between}), {window.n_labels:,} labels"
            marks.append(Line([middle, middle], [one.low, one.high], "after"))
            marks.append(Points([middle], [one.value], "after", hints=(hint,)))
    x, y = Axis.of([n_rows], "rows decided", plain), Axis.of([*ends, *levels], name, tell)
    return Chart(f"{name} over time", x, y, tuple(marks), height=220)
