"""Two classes along one feature, with the two areas of error filled."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.decide.costs import CostMatrix
from dubito.decide.error_areas import ErrorAreas, error_areas
from dubito.report.displays.axes import axes_for, color_of, finish, ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes


HEADROOM = 1.5  # above the densities, for what names them


@final
class ErrorAreasDisplay:
    """Joint densities of two classes; each is filled where the other one is decided.

    Solid lines are the boundaries of the decision, dashed ones the best, where they differ. After
    `plot`, `ax_` and `figure_` are what it was drawn on. Bishop, "Pattern recognition and machine
    learning", 2006, figure 1.24.
    """

    ax_: Axes
    figure_: Any

    def __init__(self, areas: ErrorAreas, *, feature_name: str = "x") -> None:
        self.areas = areas
        self.feature_name = feature_name

    @classmethod
    def from_densities(
        cls,
        priors: Any,
        densities: Any,
        x: Any,
        boundary: Any = None,
        *,
        costs: CostMatrix | None = None,
        feature_name: str = "x",
        ax: Axes | None = None,
    ) -> Self:
        """Draw the areas of a boundary, or of the best boundaries.

        >>> from scipy.stats import norm
        >>> pair = norm(-1, 1).pdf, norm(1, 1).pdf
        >>> display = ErrorAreasDisplay.from_densities([0.5, 0.5], pair, np.linspace(-9, 9, 99), 1)
        >>> display.ax_.get_xlabel()
        'x'
        """
        areas = error_areas(priors, densities, x, boundary, costs=costs)
        return cls(areas, feature_name=feature_name).plot(ax)

    @classmethod
    def from_areas(
        cls, areas: ErrorAreas, *, feature_name: str = "x", ax: Axes | None = None
    ) -> Self:
        """Draw areas found before."""
        return cls(areas, feature_name=feature_name).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a new figure."""
        ax = axes_for(ax, "ErrorAreasDisplay")
        areas = self.areas
        names = areas.costs.classes or (0, 1)
        for number, name in enumerate(names):
            label = f"p({self.feature_name}, {name})"
            ax.plot(areas.x, areas.joint[number], color=color_of(number), label=label)
            _fill_missed(ax, areas, number, f"{name} missed")
        if np.array_equal(areas.costs.array, [[0, 1], [1, 0]]):  # otherwise areas are not costs
            _hatch_avoidable(ax, areas)
        _draw_boundaries(ax, areas)
        ax.set(xlim=areas.x[[0, -1]], ylim=(0, HEADROOM * areas.joint.max()))
        finish(ax, self.feature_name, "Joint density", loc="upper center", ncols=2)
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _fill_missed(ax: Axes, areas: ErrorAreas, number: int, name: str) -> None:
    """Fill what lies under the density of a class where the other is decided."""
    look: dict[str, Any] = {"color": color_of(number), "alpha": 0.35, "linewidth": 0}
    look["label"] = f"{name}: {areas.decision.missed[number]:.3g}"
    for x in _intervals(areas.x, areas.decision.boundaries):
        if areas.decision.at(x[:2].mean()) != number:
            ax.fill_between(x, np.interp(x, areas.x, areas.joint[number]), **look)
            look["label"] = "_nolegend_"


def _hatch_avoidable(ax: Axes, areas: ErrorAreas) -> None:
    """Hatch what lies between the densities where the best decision is another one."""
    look: dict[str, Any] = {"facecolor": "none", "edgecolor": ink(), "hatch": "///", "linewidth": 0}
    look["label"] = f"avoidable: {areas.avoidable:.3g}"
    cuts = np.union1d(areas.decision.boundaries, areas.best.boundaries)
    for x in _intervals(areas.x, cuts):
        inside = x[:2].mean()
        if areas.decision.at(inside) != areas.best.at(inside):
            first, second = (np.interp(x, areas.x, one) for one in areas.joint)
            ax.fill_between(x, first, second, **look)
            look["label"] = "_nolegend_"


def _intervals(x: FloatArray, cuts: FloatArray) -> Iterator[FloatArray]:
    """Yield the points between each two cuts, both with them."""
    edges = np.unique(np.concatenate([x[:1], cuts, x[-1:]]))
    for low, high in pairwise(edges):
        yield np.concatenate([[low], x[(x > low) & (x < high)], [high]])


def _draw_boundaries(ax: Axes, areas: ErrorAreas) -> None:
    """Draw where the decision changes and, where that is elsewhere, where it would cost least."""
    decisions = [("boundary", areas.decision)]
    if areas.decision is not areas.best:
        decisions.append(("least", areas.best))
    for name, decision in decisions:
        look: dict[str, Any] = {"color": ink(), "linewidth": 1.2}
        look["linestyle"] = "dashed" if name == "least" else "solid"
        look["label"] = f"{name}: cost {decision.cost:.3g} a row"
        ax.vlines(decision.boundaries, 0, 1.04 * areas.joint.max(), **look)
