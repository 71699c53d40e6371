"""Axes to draw on, in colors that suit light and dark styles alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dubito.errors import MissingExtraError

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def axes_for(ax: Axes | None, feature: str, size: tuple[float, float] = (6.0, 4.2)) -> Axes:
    """Return the axes given, or those of a new figure; without matplotlib say what to install."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError(feature, "plots") from error
    return ax if ax is not None else pyplot.subplots(figsize=size, layout="constrained")[1]


def ink() -> Any:
    """Return the color of text in the style in use, for lines that belong to no model."""
    from matplotlib import rcParams

    return rcParams["text.color"]


def color_of(number: int) -> Any:
    """Return the color of a class or action: that of the style's cycle."""
    from matplotlib import rcParams

    cycle = rcParams["axes.prop_cycle"].by_key().get("color", ["C0"])
    return cycle[number % len(cycle)]


def draw_once(ax: Axes, label: str, *data: Any, **look: Any) -> None:
    """Draw a line of reference, unless it is there already from another model."""
    if label not in ax.get_legend_handles_labels()[1]:
        ax.plot(*data, label=label, **look)


def finish(ax: Axes, x_label: str, y_label: str, **legend: Any) -> None:
    """Label both axes, and name what was drawn."""
    ax.set(xlabel=x_label, ylabel=y_label)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend(framealpha=0.85, edgecolor="none", fontsize="small", **legend)
