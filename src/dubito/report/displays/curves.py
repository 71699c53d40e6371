"""Displays of curves: reliability, risk over coverage, and cost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, final

import numpy as np

from dubito.charts import Axis, Bars, Chart
from dubito.decide.cost_curves import (
    CostCoverageCurve,
    CostPriorCurve,
    cost_coverage_curve,
    cost_prior_curve,
)
from dubito.decide.costs import CostMatrix
from dubito.formatting import plain
from dubito.measure.calibration_error import ReliabilityCurve, reliability_curve
from dubito.measure.selective import RiskCoverageCurve, risk_coverage_curve
from dubito.measure.text import reliability_chart
from dubito.report.charts.builders import (
    Curve,
    cost_coverage_chart,
    cost_prior_chart,
    risk_chart,
)
from dubito.report.charts.mpl import BaseDisplay, draw

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Drawn = TypeVar("Drawn")


class _CurveDisplay(BaseDisplay, Generic[Drawn]):
    """A display of one curve, with the name of its model."""

    def __init__(self, curve: Drawn, *, name: str | None = None) -> None:
        self.curve = curve
        self.name = name

    @classmethod
    def from_curve(cls, curve: Drawn, *, name: str | None = None, ax: Axes | None = None) -> Self:
        """Draw a curve that has been computed before; see `from_predictions`."""
        return cls(curve, name=name).plot(ax)


@final
class ReliabilityDisplay(_CurveDisplay[ReliabilityCurve]):
    """Reliability diagram: accuracy over confidence, with the density of rows below.

    The shaded boxes show the range in which the accuracy of a calibrated model would lie with
    probability 95 %. Several models can be drawn on the same axes.

    Parameters
    ----------
    curve : ReliabilityCurve
        The curve to draw.
    name : str, optional
        The name of the model in the legend.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the diagram.
    histogram_ax_ : matplotlib.axes.Axes
        The axes of the histogram below it.
    figure_ : matplotlib.figure.Figure
        The figure of both.

    References
    ----------
    DeGroot and Fienberg, "The comparison and evaluation of forecasters", 1983.

    Examples
    --------
    >>> display = ReliabilityDisplay.from_predictions([0, 1], [[0.75, 0.25], [0.5, 0.5]])
    >>> display.ax_.get_ylabel()
    'Accuracy'
    """

    size = (5.0, 6.0)
    histogram_ax_: Axes

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        outputs: Any = None,
        *,
        n_bins: int = 15,
        strategy: Literal["uniform", "quantile"] = "uniform",
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the diagram of labeled outputs, with its ECE in the legend.

        Parameters
        ----------
        y_true : array-like of shape (n_rows,)
            Labels. `TopLabel` outputs are passed alone, in this place.
        outputs : outputs or array-like
            Outputs of a classifier; a plain array holds probabilities.
        n_bins : int, default 15
            Number of confidence bins.
        strategy : {"uniform", "quantile"}, default "uniform"
            Bins of equal width, or of equal numbers of rows.
        name : str, optional
            The name of the model in the legend.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; by default those of a new figure.

        Returns
        -------
        ReliabilityDisplay
        """
        curve = reliability_curve(y_true, outputs, n_bins=n_bins, strategy=strategy)
        error = curve.count @ np.abs(curve.accuracy - curve.confidence) / curve.count.sum()
        measured = f"ECE {error:.3g}, {curve.edges.size - 1} {strategy} bins"
        return cls(curve, name=f"{name or 'model'} ({measured})").plot(ax)

    def _draw(self, ax: Axes) -> None:
        curve = self.curve
        chart = reliability_chart(curve, style="model", label=self.name or "model")
        colors = draw(chart, ax, loc="upper left")
        self.histogram_ax_ = _histogram_axes(ax)
        density = curve.count / curve.count.sum() / np.diff(curve.edges)[curve.bins]
        bars = Bars(curve.edges[curve.bins], curve.edges[curve.bins + 1], density, "model")
        axes = Axis(0, 1, "Confidence"), Axis(0, 1.05 * density.max(), "Density of rows", plain)
        draw(Chart("Density of rows", *axes, (bars,)), self.histogram_ax_, colors)
        ax.set_xlabel("")


def _histogram_axes(ax: Axes) -> Axes:
    """Return the axes of the histogram below a diagram, new ones for the first model."""
    # Panels may share x with each other: only a label tells whose histogram it is.
    label = f"histogram of {id(ax)}"
    for other in ax.figure.axes:
        if other.get_label() == label:
            return other
    below = _split(ax)
    below.set_label(label)
    ax.tick_params(labelbottom=False)
    return below


def _split(ax: Axes) -> Axes:
    """Return new axes in the lower quarter of others, which keep the rest."""
    spec, figure = ax.get_subplotspec(), ax.figure
    if spec is not None:
        inner = spec.subgridspec(2, 1, height_ratios=[3, 1])
        ax.set_subplotspec(inner[0])
        return figure.add_subplot(inner[1], sharex=ax)
    left, bottom, width, height = ax.get_position().bounds
    ax.set_position((left, bottom + 0.3 * height, width, 0.7 * height))
    return figure.add_axes((left, bottom, width, 0.24 * height), sharex=ax)


@final
class RiskCoverageDisplay(_CurveDisplay[RiskCoverageCurve]):
    """Risk-coverage curve: the error rate of accepted rows at each coverage.

    Lower is better; a flat curve means that the uncertainty score does not find errors. Several
    models or scores can be drawn on the same axes.

    Parameters
    ----------
    curve : RiskCoverageCurve
        The curve to draw.
    name : str, optional
        The name of the model in the legend.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the curve.
    figure_ : matplotlib.figure.Figure
        Their figure.

    References
    ----------
    El-Yaniv and Wiener, "On the foundations of noise-free selective classification", 2010.

    Examples
    --------
    >>> display = RiskCoverageDisplay.from_predictions([0, 0], [[0.9, 0.1], [0.4, 0.6]])
    >>> display.ax_.lines[0].get_label()
    'model (AURC 0.25)'
    """

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        outputs: Any = None,
        *,
        doubt: Any = None,
        name: str | None = None,
        ax: Axes | None = None,
    ) -> Self:
        """Draw the curve of labeled outputs.

        Parameters
        ----------
        y_true : array-like of shape (n_rows,)
            Labels. `TopLabel` outputs are passed alone, in this place.
        outputs : outputs or array-like
            Outputs of a classifier; a plain array holds probabilities.
        doubt : array-like of shape (n_rows,), optional
            Uncertainty score by which rows are accepted; by default 1 - confidence.
        name : str, optional
            The name of the model in the legend.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; by default those of a new figure.

        Returns
        -------
        RiskCoverageDisplay
        """
        return cls(risk_coverage_curve(y_true, outputs, doubt=doubt), name=name).plot(ax)

    def _draw(self, ax: Axes) -> None:
        curve = self.curve
        label = f"{self.name or 'model'} (AURC {curve.area:.3g})"
        one = Curve("model", label, curve.coverage, curve.risk)
        draw(risk_chart("Risk over coverage", [one]), ax)


@final
class CostDisplay(_CurveDisplay[CostCoverageCurve | CostPriorCurve]):
    """Cost per row over coverage, or over the prior of a class.

    Parameters
    ----------
    curve : CostCoverageCurve or CostPriorCurve
        The curve to draw.
    name : str, optional
        The name of the model, or of the class whose prior varies.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the curve.
    figure_ : matplotlib.figure.Figure
        Their figure.

    References
    ----------
    Drummond and Holte, "Cost curves", 2006.

    Examples
    --------
    >>> costs = CostMatrix.zero_one(2).with_reject(0.25)
    >>> display = CostDisplay.from_predictions([0, 0], [[0.9, 0.1], [0.4, 0.6]], costs)
    >>> display.ax_.get_ylabel()
    'Cost per row'
    """

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
        """Draw cost over coverage; the lowest total cost is the best coverage.

        Parameters
        ----------
        y_true : array-like of shape (n_rows,)
            Labels.
        outputs : outputs or array-like
            Outputs of a classifier; a plain array holds probabilities.
        costs : CostMatrix
            Costs of actions; a reject action adds the total cost of all rows.
        row_costs : dict, data frame or array, optional
            The columns that the costs depend on, or costs of rows x actions x classes.
        doubt : array-like of shape (n_rows,), optional
            Score by which rows are accepted; by default the expected cost of acting less that of
            rejecting.
        name : str, optional
            The name of the model in the legend.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; by default those of a new figure.

        Returns
        -------
        CostDisplay
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
        """Draw cost over the prior of `class_`, with fixed and with prior-adjusted decisions.

        The other parameters are those of `from_predictions`.
        """
        curve = cost_prior_curve(y_true, outputs, costs, row_costs, class_=class_)
        return cls(curve, name=name or f"class {class_}").plot(ax)

    def _draw(self, ax: Axes) -> None:
        if isinstance(self.curve, CostPriorCurve):
            draw(cost_prior_chart(self.curve, self.name or "the class"), ax)
        else:
            draw(cost_coverage_chart(self.curve, self.name or "model"), ax)
