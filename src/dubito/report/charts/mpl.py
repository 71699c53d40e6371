"""Charts drawn with matplotlib, in colors that suit light and dark styles alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self

import numpy as np

from dubito.charts import Band, Bars, Chart, Line, Points, Verticals
from dubito.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SIZE = (6.0, 4.2)  # of a new figure, in inches
MARGIN = 0.02  # above the y axis
INK = ("reference", "neutral", "boundary")  # styles in the color of text


def axes_for(ax: Axes | None, feature: str, size: tuple[float, float] = SIZE) -> Axes:
    """Return the given axes or those of a new figure, or raise an error without matplotlib."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError(feature, "plots") from error
    return ax if ax is not None else pyplot.subplots(figsize=size, layout="constrained")[1]


class BaseDisplay:
    """A plot on axes; a subclass draws it in `_draw`, on new axes of its `size`."""

    size = SIZE
    ax_: Axes
    figure_: Any

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a new figure, and return the display."""
        self.ax_ = axes_for(ax, type(self).__name__, self.size)
        self.figure_ = self.ax_.figure
        self._draw(self.ax_)
        return self

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError


def text_color() -> Any:
    """Return the text color of the current style, for lines that belong to no model."""
    from matplotlib import rcParams

    return rcParams["text.color"]


def cycle_color(number: int) -> Any:
    """Return the color of a class or action from the color cycle of the current style."""
    from matplotlib import rcParams

    cycle = rcParams["axes.prop_cycle"].by_key().get("color", ["C0"])
    return cycle[number % len(cycle)]


def draw(
    chart: Chart, ax: Axes, colors: dict[str, Any] | None = None, **legend: Any
) -> dict[str, Any]:
    """Draw a chart on axes, and return the color of each style; `colors` are given ones.

    Reference marks and bands that another chart has labeled on the same axes are not labeled again,
    and reference lines are not drawn again. The limits grow with each chart.
    """
    known = set(ax.get_legend_handles_labels()[1])
    (x_low, x_high), (y_low, y_high) = (
        (ax.get_xlim(), ax.get_ylim()) if ax.has_data() else ((np.inf, -np.inf), (np.inf, -np.inf))
    )
    colors = {} if colors is None else dict(colors)
    for mark in chart.marks:
        style, label = mark.style, mark.label  # type: ignore[union-attr]
        if style not in colors:
            colors[style] = _color_of(ax, style, colors)
        is_shared = style in ("reference", "band") and label in known
        if not (is_shared and style == "reference"):
            _draw_mark(ax, mark, colors[style], "_nolegend_" if is_shared or not label else label)
            known.add(label)
    ax.set_xlim(min(x_low, chart.x.low), max(x_high, chart.x.high))
    top = chart.y.high + MARGIN * (chart.y.high - chart.y.low)  # lines at the top stay whole
    ax.set_ylim(min(y_low, chart.y.low), max(y_high, top))
    ax.set(xlabel=chart.x.label, ylabel=chart.y.label)
    ax.spines[["top", "right"]].set_visible(False)
    if chart.legend:
        ax.legend(framealpha=0.85, edgecolor="none", fontsize="small", **legend)
    return colors


def _color_of(ax: Axes, style: str, colors: dict[str, Any]) -> Any:
    """Return the color of a style: of text, of a numbered class, or the next of the cycle."""
    name = style.split()[0]
    if name in INK:
        return text_color()
    if name.startswith("class-"):
        return cycle_color(int(name.removeprefix("class-")))
    if name == "band":  # belongs to the model
        name = "model"
    if name not in colors:
        (line,) = ax.plot([], [])
        colors[name] = line.get_color()
        line.remove()
    return colors[name]


def _draw_mark(ax: Axes, mark: Any, color: Any, label: str) -> None:
    """Draw one mark."""
    kind = mark.style.split()[-1]
    dash = {"reference": "--", "dashed": "--", "dotted": ":"}.get(kind, "-")
    look: dict[str, Any] = {"color": color, "label": label}
    match mark:
        case Line():
            look |= {"linestyle": dash, "linewidth": 1.0 if kind == "reference" else None}
            ax.plot(mark.x, mark.y, drawstyle="steps-pre" if mark.steps else "default", **look)
        case Band(is_hatched=True):
            look = {"facecolor": "none", "edgecolor": color, "hatch": "///", "label": label}
            ax.fill_between(mark.x, mark.low, mark.high, linewidth=0, **look)
        case Band():
            ax.fill_between(mark.x, mark.low, mark.high, alpha=0.35, linewidth=0, **look)
        case Bars():
            left, right, low, high = np.broadcast_arrays(mark.left, mark.right, mark.low, mark.high)
            look |= {"align": "edge", "alpha": 0.25 if kind == "band" else 0.45, "linewidth": 0}
            ax.bar(left, high - low, right - left, low, **look)
        case Points():
            ax.plot(mark.x, mark.y, "o", markersize=1.25 * mark.radius, clip_on=False, **look)
        case Verticals():
            look |= {"linestyles": dash, "linewidth": 1.2, "transform": ax.get_xaxis_transform()}
            ax.vlines(mark.x, 0, mark.top, **look)
