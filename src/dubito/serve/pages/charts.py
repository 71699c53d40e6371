"""Figures over time, each with its interval, and gaps where they are unknown."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from dubito.report.figures.canvas import Axis, Canvas, plain
from dubito.serve.monitor import Figure, Window


def over_time(
    name: str,
    windows: Sequence[Window],
    pick: Callable[[Window], Figure],
    tell: Callable[[float], str],
    usual: Callable[[Window], float | None],
) -> Markup:
    """Return a chart of one figure, window by window; dashes are where it usually is.

    >>> over_time("cost", [], lambda window: window.cost, str, lambda window: 0.1)[:4]
    Markup('<svg')
    """
    known = [interval for window in windows if (interval := pick(window).interval)]
    levels = [level for window in windows if (level := usual(window)) is not None]
    ends = [end for one in known for end in (one.low, one.high)]
    n_rows = sum(window.n_rows for window in windows)
    x, y = Axis.of([n_rows], "rows decided", plain), Axis.of([*ends, *levels], name, tell)
    canvas = Canvas(f"{name} over time", x, y, height=220)
    end = 0
    for window in windows:
        first, end = end, end + window.n_rows
        middle = (first + end) / 2
        if (level := usual(window)) is not None:
            canvas.line([first, end], [level, level], "diagonal")
        if one := pick(window).interval:
            canvas.line([middle, middle], [one.low, one.high], "after")
            between = f"{tell(one.low)} to {tell(one.high)}"
            tells = f"{tell(one.value)} ({between}), {window.n_labels:,} labels"
            canvas.point(middle, one.value, "dot after", tells)
    return canvas.svg()
