"""Charts of doubt: of right and wrong rows, of known and strange ones, and of its two parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np
from markupsafe import Markup

from dubito.arrays import FloatArray
from dubito.report.figures.canvas import Axis, Canvas, percent, plain, ticks_between
from dubito.report.numbers import share as told

__all__ = ["Population", "doubt_histogram", "doubt_parts"]

N_BINS = 25


@final
@dataclass(frozen=True, slots=True, eq=False)
class Population:
    """Rows of one kind: what they are called, their color, doubts and weights."""

    name: str
    kind: str
    doubt: FloatArray
    weight: FloatArray


def doubt_histogram(name: str, label: str, populations: Sequence[Population]) -> Markup:
    """Return how the doubts of several kinds of rows spread, each kind as shares of itself.

    What lies beyond the 99th hundredth of all is counted in the last bin.
    """
    every = np.concatenate([one.doubt for one in populations])
    low, high = float(every.min()), float(np.quantile(every, 0.99))
    ticks = ticks_between(low, high)
    edges = np.linspace(ticks[0], ticks[-1], N_BINS + 1)
    heights = [shares_in(edges, one) for one in populations]
    most = max(float(height.max()) for height in heights)
    y_ticks = ticks_between(0.0, most)
    x = Axis(ticks[0], ticks[-1], label, plain, ticks)
    canvas = Canvas(name, x, Axis(0, y_ticks[-1], "share of each kind", percent, y_ticks))
    for one, height in zip(populations, heights, strict=True):
        for left, right, share in zip(edges[:-1], edges[1:], height, strict=True):
            if share > 0:
                tells = f"{one.name}: {told(share)} between {left:.4g} and {right:.4g}"
                canvas.box(left, right, 0, share, f"bar {one.kind}", tells)
        steps = np.repeat(height, 2)
        canvas.line(np.repeat(edges, 2)[1:-1], steps, one.kind)
    return canvas.svg()


def shares_in(edges: FloatArray, population: Population) -> FloatArray:
    """Return the share of a population in each bin; what is beyond is in the outer bins."""
    inside = np.clip(population.doubt, edges[0], edges[-1])
    counts: Any = np.histogram(inside, edges, weights=population.weight)[0]
    return np.asarray(counts / max(population.weight.sum(), np.finfo(np.float64).tiny))


def doubt_parts(name: str, populations: Sequence[tuple[str, FloatArray, FloatArray]]) -> Markup:
    """Return noise in the data against ignorance of the model, a point a row."""
    xs = np.concatenate([noise for _, noise, _ in populations])
    ys = np.concatenate([ignorance for _, _, ignorance in populations])
    canvas = Canvas(
        name,
        Axis.of(xs, "aleatoric: noise in the data (nats)"),
        Axis.of(ys, "epistemic: ignorance (nats)"),
    )
    for kind, noise, ignorance in populations:
        for x, y in zip(noise, ignorance, strict=True):
            canvas.point(float(x), float(y), f"speck {kind}", radius=2.0)
    return canvas.svg()
