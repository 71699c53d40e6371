"""The share of errors among the rows kept, for every share that can be kept."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Self, final

from dubito.measure.selective import RiskCoverageCurve, risk_coverage_curve
from dubito.report.displays.axes import axes_for, finish

if TYPE_CHECKING:
    from matplotlib.axes import Axes


FEWEST = 0.02  # the share of rows below which a few errors must not set the scale


@final
class RiskCoverageDisplay:
    """A risk-coverage curve: lower is better, and flat means that doubt tells nothing.

    After `plot`, `ax_` and `figure_` are what it was drawn on. Several models or doubts may be
    drawn on the same axes. El-Yaniv and Wiener, "On the foundations of noise-free selective
    classification", 2010.
    """

    ax_: Axes
    figure_: Any

    def __init__(self, curve: RiskCoverageCurve, *, name: str | None = None) -> None:
        self.curve = curve
        self.name = name

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        outputs: Any,
        *,
        doubt: Any = None,
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the curve of outputs whose labels are known, by least confidence or `doubt`.

        >>> display = RiskCoverageDisplay.from_predictions([0, 0], [[0.9, 0.1], [0.4, 0.6]])
        >>> display.ax_.lines[0].get_label()
        'model (AURC 0.25)'
        """
        return cls(risk_coverage_curve(y_true, outputs, doubt=doubt), name=name).plot(ax)

    @classmethod
    def from_curve(
        cls, curve: RiskCoverageCurve, *, name: str | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw a curve measured before."""
        return cls(curve, name=name).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a new figure."""
        ax = axes_for(ax, "RiskCoverageDisplay")
        curve, top = self.curve, ax.get_ylim()[1] if ax.has_data() else 0.0
        label = f"{self.name or 'model'} (AURC {curve.area:.3g})"
        (line,) = ax.plot(curve.coverage, curve.risk, drawstyle="steps-pre", label=label)
        ax.plot(curve.coverage[-1:], curve.risk[-1:], "o", color=line.get_color(), markersize=5)
        highest = float(curve.risk[curve.coverage >= FEWEST].max())
        ax.set(xlim=(0, 1.01), ylim=(0, max(top, 1.1 * highest, 1e-3)))
        finish(ax, "Coverage: share of rows kept", "Risk: share of errors among them")
        self.ax_, self.figure_ = ax, ax.figure
        return self
