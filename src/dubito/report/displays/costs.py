"""What a row costs: against how many rows are acted on, or against how common a class is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, final

from dubito.decide.cost_curves import (
    CostCoverageCurve,
    CostPriorCurve,
    cost_coverage_curve,
    cost_prior_curve,
)
from dubito.decide.costs import CostMatrix
from dubito.report.displays.axes import axes_for, draw_once, finish, ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@final
class CostDisplay:
    """Cost against coverage, or over the prior of a class, by the kind of curve.

    After `plot`, `ax_` and `figure_` are what it was drawn on. Drummond and Holte, "Cost curves",
    2006.
    """

    ax_: Axes
    figure_: Any

    def __init__(
        self, curve: CostCoverageCurve | CostPriorCurve, *, name: str | None = None
    ) -> None:
        self.curve = curve
        self.name = name

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        outputs: Any,
        costs: CostMatrix,
        row_costs: Any = None,
        *,
        doubt: Any = None,
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw cost against coverage; the least of the total is where to stop acting.

        >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
        >>> display = CostDisplay.from_predictions([0, 0], [[0.9, 0.1], [0.4, 0.6]], costs)
        >>> display.ax_.get_ylabel()
        'Cost a row'
        """
        curve = cost_coverage_curve(y_true, outputs, costs, row_costs, doubt=doubt)
        return cls(curve, name=name).plot(ax)

    @classmethod
    def over_priors(
        cls,
        y_true: Any,
        outputs: Any,
        costs: CostMatrix,
        row_costs: Any = None,
        *,
        class_: Any,
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw cost as one class becomes more common, with and without telling the decisions."""
        curve = cost_prior_curve(y_true, outputs, costs, row_costs, class_=class_)
        return cls(curve, name=name or f"class {class_}").plot(ax)

    @classmethod
    def from_curve(
        cls,
        curve: CostCoverageCurve | CostPriorCurve,
        *,
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw a curve measured before."""
        return cls(curve, name=name).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a new figure."""
        self.ax_ = axes_for(ax, "CostDisplay")
        self.figure_ = self.ax_.figure
        if isinstance(self.curve, CostPriorCurve):
            _draw_priors(self.ax_, self.curve, self.name or "the class")
        else:
            _draw_coverage(self.ax_, self.curve, self.name or "model")
        return self


def _draw_coverage(ax: Axes, curve: CostCoverageCurve, name: str) -> None:
    """Draw the cost of the rows kept and, where rows can be rejected, of all rows."""
    kept = f"{name}: of rows acted on"
    (line,) = ax.plot(curve.coverage, curve.cost, drawstyle="steps-pre", label=kept)
    if curve.total is not None:
        color = line.get_color()
        line.set_linestyle(":")
        ax.plot(curve.coverage, curve.total, color=color, label=f"{name}: of all, rest rejected")
        best = int(curve.total.argmin())
        least = f"least, {curve.total[best]:.3g} at coverage {curve.coverage[best]:.1%}"
        spot = curve.coverage[best], curve.total[best]
        ax.plot(*spot, "o", color=color, markersize=7, label=least, linestyle="none")
    ax.set_xlim(0, 1.01)
    finish(ax, "Coverage: share of rows acted on", "Cost a row")


def _draw_priors(ax: Axes, curve: CostPriorCurve, name: str) -> None:
    """Draw the cost of decisions as they are, told of the prior, and of one action for all."""
    ax.plot(curve.prior, curve.cost, label="decisions as they are")
    ax.plot(curve.prior, curve.adapted, label="decisions told of the prior")
    ax.plot(curve.prior, curve.constant, color=ink(), linestyle=":", label="best single action")
    measured = f"share here, {curve.measured:.1%}"
    heights = [0, 1]
    look = {"color": ink(), "linewidth": 1, "linestyle": "--", "alpha": 0.6}
    across = ax.get_xaxis_transform()
    draw_once(ax, measured, [curve.measured] * 2, heights, transform=across, **look)
    ax.set_xlim(0, 1)
    finish(ax, f"Prior of {name}", "Cost a row")
