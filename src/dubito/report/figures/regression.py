"""Charts of a regression: coverage against nominal, and where truths lie in what was predicted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from dubito.arrays import FloatArray
from dubito.report.figures.canvas import Axis, Canvas, percent, plain, ticks_between
from dubito.report.numbers import share

__all__ = ["Levels", "coverage_chart", "pit_histogram", "width_chart"]

Levels = tuple[str, str, FloatArray, FloatArray]  # kind, name, levels, and a value at each


def coverage_chart(
    name: str, band: tuple[FloatArray, FloatArray, FloatArray], curves: Sequence[Levels]
) -> Markup:
    """Return the share of truths that intervals hold against what they should hold.

    `band` has the levels, and the lowest and highest coverage of a calibrated model.
    """
    canvas = Canvas(name, Axis(0, 1, "should hold"), Axis(0, 1, "holds"))
    canvas.band(*band)
    canvas.line([0, 1], [0, 1], "diagonal")
    for kind, title, levels, coverage in curves:
        canvas.line([0.0, *levels, 1.0], [0.0, *coverage, 1.0], kind)
        for level, held in zip(levels, coverage, strict=True):
            tells = f"{title}: intervals of {share(float(level), 0)} hold {share(float(held))}"
            canvas.point(float(level), float(held), f"dot {kind}", tells)
    return canvas.svg()


def width_chart(name: str, curves: Sequence[Levels]) -> Markup:
    """Return how wide intervals are on average, over what they should hold."""
    highest = max((float(widths.max(initial=0.0)) for *_, widths in curves), default=0.0)
    ticks = ticks_between(0.0, highest)
    canvas = Canvas(name, Axis(0, 1, "should hold"), Axis(0, ticks[-1], "mean width", plain, ticks))
    for kind, title, levels, widths in curves:
        canvas.line([0.0, *levels], [0.0, *widths], kind)
        for level, width in zip(levels, widths, strict=True):
            tells = f"{title}: intervals of {share(float(level), 0)} are {width:.4g} wide"
            canvas.point(float(level), float(width), f"dot {kind}", tells)
    return canvas.svg()


def pit_histogram(name: str, pit: FloatArray, n_rows: int, kind: str) -> Markup:
    """Return how many truths lie where in their predicted distribution; flat is calibrated."""
    even = 1 / pit.size
    margin = 1.96 * float(np.sqrt(even * (1 - even) / max(n_rows, 1)))
    ticks = ticks_between(0.0, max(float(pit.max()), even + margin))
    x = Axis(0, 1, "place of the truth, 0 lowest, 1 highest", lambda v: f"{v:g}")
    canvas = Canvas(name, x, Axis(0, ticks[-1], "rows", percent, ticks))
    canvas.box(0, 1, max(even - margin, 0), even + margin, "band")
    for k, height in enumerate(pit):
        left, right = (k + 0.06) / pit.size, (k + 0.94) / pit.size
        tells = (
            f"{share(float(height))} of the truths between {k * even:.2f} and {(k + 1) * even:.2f}"
        )
        canvas.box(left, right, 0, float(height), f"bar {kind}", tells)
    canvas.line([0, 1], [even, even], "diagonal")
    return canvas.svg()
