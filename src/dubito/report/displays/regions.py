"""Decision regions over two features, the reject region hatched."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.decide.costs import CostMatrix
from dubito.decide.regions import DecisionRegions, decision_regions
from dubito.report.displays.axes import axes_for, color_of, ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes


FILLED = 0.4
HATCH = "///"


@final
class DecisionRegionDisplay:
    """The action taken at each point of two features, with the lines between regions.

    Action k has color k of the style's cycle; where rows are handed over the ground is hatched.
    After `plot`, `ax_` and `figure_` are what it was drawn on: rows go on top with
    `display.ax_.scatter`.
    """

    ax_: Axes
    figure_: Any

    def __init__(
        self, regions: DecisionRegions, *, feature_names: tuple[str, str] = ("x", "y")
    ) -> None:
        self.regions = regions
        self.feature_names = feature_names

    @classmethod
    def from_posterior(
        cls,
        posterior: Callable[[FloatArray], Any],
        x: Any,
        y: Any,
        costs: CostMatrix | None = None,
        *,
        n_points: int = 200,
        feature_names: tuple[str, str] = ("x", "y"),
        ax: Axes | None = None,
    ) -> Self:
        """Draw the regions of a posterior, such as `model.predict_proba`.

        >>> positive = lambda features: features[:, 0]
        >>> display = DecisionRegionDisplay.from_posterior(positive, (0, 1), (0, 1))
        >>> [text.get_text() for text in display.ax_.get_legend().get_texts()]
        ['0', '1']
        """
        regions = decision_regions(posterior, x, y, costs, n_points=n_points)
        return cls(regions, feature_names=feature_names).plot(ax)

    @classmethod
    def from_regions(
        cls,
        regions: DecisionRegions,
        *,
        feature_names: tuple[str, str] = ("x", "y"),
        ax: Axes | None = None,
    ) -> Self:
        """Draw regions found before."""
        return cls(regions, feature_names=feature_names).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a new figure."""
        ax = axes_for(ax, "DecisionRegionDisplay", size=(5.6, 4.8))
        from matplotlib.collections import LineCollection

        regions = self.regions
        _fills(ax, regions)
        ax.add_collection(LineCollection(list(regions.segments), colors=ink(), linewidths=1.4))
        x_name, y_name = self.feature_names
        ax.set(xlabel=x_name, ylabel=y_name)
        ax.set(xlim=regions.x[[0, -1]], ylim=regions.y[[0, -1]])
        taken = [number for number in range(len(regions.actions)) if regions.share[number] > 0]
        patches = [_patch_of(regions, number) for number in taken]
        ax.legend(handles=patches, framealpha=0.85, edgecolor="none", fontsize="small")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _fills(ax: Axes, regions: DecisionRegions) -> None:
    """Color the ground by action, and hatch it where rows are rejected."""
    from matplotlib.colors import to_rgba

    colors = np.array([to_rgba(color_of(k), FILLED) for k in range(len(regions.actions))])
    if regions.reject is not None:
        colors[regions.reject] = 0.0
    half_x, half_y = np.diff(regions.x[:2])[0] / 2, np.diff(regions.y[:2])[0] / 2
    sides = *(regions.x[[0, -1]] + [-half_x, half_x]), *(regions.y[[0, -1]] + [-half_y, half_y])
    look: dict[str, Any] = {"origin": "lower", "extent": sides, "interpolation": "nearest"}
    ax.imshow(colors[regions.action], aspect="auto", **look)
    if regions.reject is not None and regions.share[regions.reject] > 0:
        hatched = (regions.action == regions.reject).astype(np.float64)
        look = {"levels": [0.5, 1.5], "colors": "none", "hatches": [HATCH]}
        ground = ax.contourf(regions.x, regions.y, hatched, **look)
        ground.set(edgecolor=ink(), linewidth=0)


def _patch_of(regions: DecisionRegions, number: int) -> Any:
    """Return what stands for an action in the legend."""
    from matplotlib.patches import Patch

    label = regions.actions[number]
    if number == regions.reject:
        return Patch(facecolor="none", edgecolor=ink(), hatch=HATCH, linewidth=0, label=label)
    return Patch(facecolor=color_of(number), alpha=FILLED, label=label)
