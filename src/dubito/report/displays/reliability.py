"""Stated confidence against how often it was right, with the rows of each bin below."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, Self, final

import numpy as np

from dubito.measure.calibration_error import ReliabilityCurve, reliability_curve
from dubito.report.displays.axes import axes_for, draw_once, finish, ink

if TYPE_CHECKING:
    from matplotlib.axes import Axes


BAND = "calibrated, 19 times in 20"


@final
class ReliabilityDisplay:
    """A reliability diagram: accuracy and the density of rows, by bins of confidence.

    The shaded band is where the accuracy of a calibrated model of this size would lie. After
    `plot`, `ax_` and `figure_` are what it was drawn on, `histogram_ax_` what lies below. Several
    models may be drawn on the same axes. DeGroot and Fienberg, "The comparison and evaluation of
    forecasters", 1983.
    """

    ax_: Axes
    histogram_ax_: Axes
    figure_: Any

    def __init__(self, curve: ReliabilityCurve, *, name: str | None = None) -> None:
        self.curve = curve
        self.name = name

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        outputs: Any,
        *,
        n_bins: int = 15,
        strategy: Literal["uniform", "quantile"] = "uniform",
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the diagram of outputs whose labels are known.

        >>> display = ReliabilityDisplay.from_predictions([0, 1], [[0.75, 0.25], [0.5, 0.5]])
        >>> display.ax_.get_ylabel()
        'Accuracy'
        """
        curve = reliability_curve(y_true, outputs, n_bins=n_bins, strategy=strategy)
        error = curve.count @ np.abs(curve.accuracy - curve.confidence) / curve.count.sum()
        measured = f"ECE {error:.3g}, {curve.edges.size - 1} {strategy} bins"
        return cls(curve, name=f"{name or 'model'} ({measured})").plot(ax)

    @classmethod
    def from_curve(
        cls, curve: ReliabilityCurve, *, name: str | None = None, ax: Axes | None = None
    ) -> Self:
        """Draw a curve measured before."""
        return cls(curve, name=name).plot(ax)

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a new figure."""
        ax = axes_for(ax, "ReliabilityDisplay", size=(5.0, 6.0))
        curve, label = self.curve, self.name or "model"
        draw_once(ax, "calibrated", [0, 1], [0, 1], color=ink(), linestyle="--", linewidth=1)
        (line,) = ax.plot(curve.confidence, curve.accuracy, marker="o", markersize=5, label=label)
        color = line.get_color()
        is_named = BAND in ax.get_legend_handles_labels()[1]
        look: dict[str, Any] = {"color": color, "alpha": 0.25, "linewidth": 0}
        look["label"] = "_nolegend_" if is_named else BAND
        ax.fill_between(curve.confidence, curve.low, curve.high, **look)
        ax.set(xlim=(0, 1), ylim=(0, 1.02))
        self.ax_, self.figure_ = ax, ax.figure
        self.histogram_ax_ = _below(ax)
        density = np.zeros(curve.edges.size - 1)
        density[curve.bins] = curve.count / curve.count.sum()
        density /= np.diff(curve.edges)
        self.histogram_ax_.stairs(density, curve.edges, fill=True, alpha=0.3, color=color)
        self.histogram_ax_.stairs(density, curve.edges, baseline=None, color=color, linewidth=1.2)
        self.histogram_ax_.set_ylim(bottom=0, auto=None)
        finish(ax, "", "Accuracy", loc="upper left")
        return self


def _below(ax: Axes) -> Axes:
    """Return the axes of the histogram under a diagram, made unless another model did."""
    # Panels may share x with each other: only a name tells whose histogram it is.
    label = f"rows of {id(ax)} by confidence"
    for other in ax.figure.axes:
        if other.get_label() == label:
            return other
    under = _split_off(ax)
    under.set_label(label)
    ax.tick_params(labelbottom=False)
    under.set(xlabel="Confidence", ylabel="Density of rows")
    under.spines[["top", "right"]].set_visible(False)
    return under


def _split_off(ax: Axes) -> Axes:
    """Return new axes in the lower quarter of others, which keep the rest."""
    spec, figure = ax.get_subplotspec(), ax.figure
    if spec is not None:
        inner = spec.subgridspec(2, 1, height_ratios=[3, 1])
        ax.set_subplotspec(inner[0])
        return figure.add_subplot(inner[1], sharex=ax)
    left, bottom, width, height = ax.get_position().bounds
    ax.set_position((left, bottom + 0.3 * height, width, 0.7 * height))
    return figure.add_axes((left, bottom, width, 0.24 * height), sharex=ax)
