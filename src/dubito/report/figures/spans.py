"""Values between two ends, a row each: differences and shares with their intervals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

from markupsafe import Markup

from dubito.report.figures.canvas import Axis, Canvas, percent, plain

__all__ = ["Span", "span_chart"]

ROW, REST = 44.0, 58.0  # heights of a row, and of what stands below all of them
MOST_LETTERS = 50


@final
@dataclass(frozen=True, slots=True)
class Span:
    """A value between two ends, which may be the value itself; `kind` is its color."""

    kind: str
    low: float
    value: float
    high: float


def span_chart(
    name: str,
    rows: Sequence[tuple[str, Sequence[Span]]],
    label: str,
    tell: Callable[[float], str] = percent,
) -> Markup:
    """Return a chart with a line from end to end for each span, under the name of its row.

    >>> span_chart("One", [("log loss", [Span("right", -0.4, -0.3, -0.2)])], "less")[:4]
    Markup('<svg')
    """
    ends = [end for _, spans in rows for span in spans for end in (span.low, span.high)]
    n_rows = len(rows)
    canvas = Canvas(
        name, Axis.of(ends, label, tell), Axis(0, n_rows, "", plain, ()), ROW * n_rows + REST
    )
    for k, (title, spans) in enumerate(rows):
        height = n_rows - k - 0.7
        for value in canvas.x.ticks:
            kind = "diagonal" if value == 0 else "grid"
            canvas.line([value, value], [height - 0.26, height + 0.26], kind)
        for span in spans:
            canvas.line([span.low, span.high], [height, height], span.kind)
            for end, reach in ((span.low, 0.07), (span.value, 0.17), (span.high, 0.07)):
                canvas.line([end, end], [height - reach, height + reach], span.kind)
        short = title if len(title) <= MOST_LETTERS else f"{title[: MOST_LETTERS - 1]}\u2026"
        text = Markup('<text class="label" x="{:g}" y="{:g}">{}</text>')
        place = canvas.at_x(canvas.x.low), canvas.at_y(height + 0.36)
        canvas.marks.append(text.format(*place, short))
    return canvas.svg()
