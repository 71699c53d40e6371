"""Displays of curves and areas in matplotlib, and how a chart is drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, final

import numpy as np

from dubito.arrays import FloatArray, as_finite, as_floats, require_dimensions
from dubito.charts import Axis, Band, Bars, Chart, Line, Points, Verticals
from dubito.decide.costs import CostMatrix
from dubito.decide.minkowski import MinkowskiCurve, minkowski_curve
from dubito.decide.realized import (
    CostCoverageCurve,
    CostPriorCurve,
    cost_coverage_curve,
    cost_prior_curve,
)
from dubito.decide.regions import DecisionRegions, ErrorAreas, decision_regions, error_areas
from dubito.errors import BadValueError, MissingExtraError
from dubito.formatting import plain
from dubito.measure.calibration_error import ReliabilityCurve, reliability_curve
from dubito.measure.selective import RiskCoverageCurve, risk_coverage_curve
from dubito.measure.text import reliability_chart
from dubito.report.chart_builders import (
    Curve,
    cost_coverage_chart,
    cost_prior_chart,
    error_areas_chart,
    risk_chart,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


SIZE = (6.0, 4.2)  # of a new figure, in inches
MARGIN = 0.02  # above the y axis
INK = ("reference", "neutral", "boundary")  # styles in the color of text


def _new_figure(feature: str, size: tuple[float, float] = SIZE) -> Any:
    """Return a new figure, or raise an error without matplotlib."""
    try:
        from matplotlib import pyplot
    except ImportError as error:
        raise MissingExtraError(feature, "plots") from error
    return pyplot.figure(figsize=size, layout="constrained")


class BaseDisplay:
    """A plot on axes; a subclass draws it in `_draw`, on new axes of its `size`."""

    size = SIZE
    ax_: Axes
    figure_: Any

    def plot(self, ax: Axes | None = None) -> Self:
        """Draw on `ax`, or on a new figure, and return the display.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Where to draw; by default on a new figure.

        Returns
        -------
        display
            The display itself, with `ax_` and `figure_`.
        """
        self.ax_ = _new_figure(type(self).__name__, self.size).subplots() if ax is None else ax
        self.figure_ = self.ax_.figure
        self._draw(self.ax_)
        return self

    def _draw(self, ax: Axes) -> None:
        raise NotImplementedError


def _text_color() -> Any:
    """Return the text color of the current style, for lines that belong to no model."""
    from matplotlib import rcParams

    return rcParams["text.color"]


def _cycle_color(number: int) -> Any:
    """Return the color of a class or action from the color cycle of the current style."""
    from matplotlib import rcParams

    cycle = rcParams["axes.prop_cycle"].by_key().get("color", ["C0"])
    return cycle[number % len(cycle)]


def _draw_chart(
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
        return _text_color()
    if name.startswith("class-"):
        return _cycle_color(int(name.removeprefix("class-")))
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


Drawn = TypeVar("Drawn")


class _CurveDisplay(BaseDisplay, Generic[Drawn]):
    """A display of one curve, with the name of its model."""

    def __init__(self, curve: Drawn, *, name: str | None = None) -> None:
        self.curve = curve
        self.name = name

    @classmethod
    def from_curve(cls, curve: Drawn, *, name: str | None = None, ax: Axes | None = None) -> Self:
        """Draw a curve that has been computed before; see `from_predictions`.

        Parameters
        ----------
        curve : curve of `dubito.measure` or `dubito.decide`
            The curve that `from_predictions` would compute.
        name : str, optional
            The name in the legend.
        ax : matplotlib Axes, optional
            Where to draw; by default on a new figure.

        Returns
        -------
        display
            The display, with the axes as `ax_`.
        """
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
    >>> from dubito.report import ReliabilityDisplay
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
        colors = _draw_chart(chart, ax, loc="upper left")
        self.histogram_ax_ = _histogram_axes(ax)
        density = curve.count / curve.count.sum() / np.diff(curve.edges)[curve.bins]
        bars = Bars(curve.edges[curve.bins], curve.edges[curve.bins + 1], density, "model")
        axes = Axis(0, 1, "Confidence"), Axis(0, 1.05 * density.max(), "Density of rows", plain)
        _draw_chart(Chart("Density of rows", *axes, (bars,)), self.histogram_ax_, colors)
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
    >>> from dubito.report import RiskCoverageDisplay
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
        uncertainty: Any = None,
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
        uncertainty : array-like of shape (n_rows,), optional
            Uncertainty score by which rows are accepted; by default 1 - confidence.
        name : str, optional
            The name of the model in the legend.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; by default those of a new figure.

        Returns
        -------
        RiskCoverageDisplay
        """
        curve = risk_coverage_curve(y_true, outputs, uncertainty=uncertainty)
        return cls(curve, name=name).plot(ax)

    def _draw(self, ax: Axes) -> None:
        label = f"{self.name or 'model'} (AURC {self.curve.area:.3g})"
        one = Curve.of_risk("model", label, self.curve)
        _draw_chart(risk_chart("Risk over coverage", [one]), ax)


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
    >>> from dubito import CostMatrix
    >>> from dubito.report import CostDisplay
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
        uncertainty: Any = None,
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
        uncertainty : array-like of shape (n_rows,), optional
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
        curve = cost_coverage_curve(y_true, outputs, costs, row_costs, uncertainty=uncertainty)
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

        Parameters
        ----------
        y_true : array
            True labels: class names or indices.
        outputs : array, Logits, Probabilities or Members
            Model outputs; a plain array is probabilities.
        costs : CostMatrix
            The cost of each action in each class.
        row_costs : dict, data frame or array, optional
            What the costs depend on, row by row.
        class_ : str or int
            The class whose prior varies from 0 to 1; the others keep their proportions.
        name : str, optional
            The name in the legend.
        ax : matplotlib Axes, optional
            Where to draw; by default on a new figure.

        Returns
        -------
        CostDisplay
            The display, with the axes as `ax_`.
        """
        curve = cost_prior_curve(y_true, outputs, costs, row_costs, class_=class_)
        return cls(curve, name=name or f"class {class_}").plot(ax)

    def _draw(self, ax: Axes) -> None:
        if isinstance(self.curve, CostPriorCurve):
            chart = cost_prior_chart(self.curve, self.name or "the class")
        else:
            chart = cost_coverage_chart(self.curve, self.name or "model")
        _draw_chart(chart, ax)


OPACITY, HATCH = 0.4, "///"
TITLES = ("image", "aleatoric uncertainty", "epistemic uncertainty")
MAPS = "UncertaintyMapDisplay"
MARKERS, SHOWN = "os^D", 1e-3  # of Minkowski minima; the smallest density shown, relative


@final
class ErrorAreasDisplay(BaseDisplay):
    """Joint densities of the classes along one feature, with the areas of error filled.

    Solid lines are the decision boundaries, dashed lines the optimal ones where they differ; what
    the optimal boundaries would avoid is hatched.

    Parameters
    ----------
    areas : ErrorAreas
        The areas to draw.
    feature_name : str, default "x"
        The name of the feature.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the plot.
    figure_ : matplotlib.figure.Figure
        Their figure.

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, figure 1.24.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.report import ErrorAreasDisplay
    >>> from scipy.stats import norm
    >>> pair = norm(-1, 1).pdf, norm(1, 1).pdf
    >>> display = ErrorAreasDisplay.from_densities([0.5, 0.5], pair, np.linspace(-9, 9, 99), 1)
    >>> display.ax_.get_xlabel()
    'x'
    """

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
        decided: Any = None,
        costs: CostMatrix | None = None,
        feature_name: str = "x",
        ax: Axes | None = None,
    ) -> Self:
        """Draw the error areas of given densities.

        Parameters
        ----------
        priors : array-like of shape (n_classes,)
            Prior probabilities of the classes.
        densities : list of callables or arrays
            Class-conditional densities, as functions of `x` or as values at `x`.
        x : array-like of shape (n_points,)
            Increasing values of the feature.
        boundary : float or array-like, optional
            Decision boundaries; by default the optimal ones.
        decided : array-like of int, optional
            The action of each interval; by default the classes in order.
        costs : CostMatrix, optional
            Costs of the actions; 0-1 by default.
        feature_name : str, default "x"
            The name of the feature.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; by default those of a new figure.

        Returns
        -------
        ErrorAreasDisplay
        """
        areas = error_areas(priors, densities, x, boundary, decided=decided, costs=costs)
        return cls(areas, feature_name=feature_name).plot(ax)

    @classmethod
    def from_areas(
        cls, areas: ErrorAreas, *, feature_name: str = "x", ax: Axes | None = None
    ) -> Self:
        """Draw areas that have been computed before; see `from_densities`.

        Parameters
        ----------
        areas : ErrorAreas
            From `error_areas`.
        feature_name : str, default="x"
            The name of the axis.
        ax : matplotlib Axes, optional
            Where to draw; by default on a new figure.

        Returns
        -------
        ErrorAreasDisplay
            The display, with the axes as `ax_`.
        """
        return cls(areas, feature_name=feature_name).plot(ax)

    def _draw(self, ax: Axes) -> None:
        chart = error_areas_chart(self.areas, self.feature_name)
        _draw_chart(chart, ax, loc="upper center", ncols=2)


@final
class DecisionRegionDisplay(BaseDisplay):
    """The action taken at each point of two features, with the boundaries between regions.

    Action k has color k of the color cycle; the reject region is hatched. Data points go on top
    with `display.ax_.scatter`.

    Parameters
    ----------
    regions : DecisionRegions
        The regions to draw.
    feature_names : pair of str, default ("x", "y")
        The names of the features.

    Attributes
    ----------
    ax_ : matplotlib.axes.Axes
        The axes of the plot.
    figure_ : matplotlib.figure.Figure
        Their figure.

    Examples
    --------
    >>> from dubito.report import DecisionRegionDisplay
    >>> positive = lambda features: features[:, 0]
    >>> display = DecisionRegionDisplay.from_posterior(positive, (0, 1), (0, 1))
    >>> [text.get_text() for text in display.ax_.get_legend().get_texts()]
    ['0', '1']
    """

    size = (5.6, 4.8)

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
        """Draw the regions of a posterior.

        Parameters
        ----------
        posterior : callable
            A function from features to class probabilities, such as `model.predict_proba`.
        x, y : pair of float
            The range of each feature.
        costs : CostMatrix, optional
            Costs of actions; 0-1 by default.
        n_points : int, default 200
            Grid points per feature.
        feature_names : pair of str, default ("x", "y")
            The names of the features.
        ax : matplotlib.axes.Axes, optional
            Axes to draw on; by default those of a new figure.

        Returns
        -------
        DecisionRegionDisplay
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
        """Draw regions that have been computed before; see `from_posterior`.

        Parameters
        ----------
        regions : DecisionRegions
            From `decision_regions`.
        feature_names : tuple of two str, default=("x", "y")
            The names of the axes.
        ax : matplotlib Axes, optional
            Where to draw; by default on a new figure.

        Returns
        -------
        DecisionRegionDisplay
            The display, with the axes as `ax_`.
        """
        return cls(regions, feature_names=feature_names).plot(ax)

    def _draw(self, ax: Axes) -> None:
        from matplotlib.collections import LineCollection

        regions = self.regions
        _fill_regions(ax, regions)
        boundaries = LineCollection(list(regions.segments), colors=_text_color(), linewidths=1.4)
        ax.add_collection(boundaries)
        ax.set(xlabel=self.feature_names[0], ylabel=self.feature_names[1])
        ax.set(xlim=regions.x[[0, -1]], ylim=regions.y[[0, -1]])
        taken = np.flatnonzero(regions.area_fraction > 0)
        patches = [_legend_patch(regions, number) for number in taken.tolist()]
        ax.legend(handles=patches, framealpha=0.85, edgecolor="none", fontsize="small")


def _fill_regions(ax: Axes, regions: DecisionRegions) -> None:
    """Color each region by its action, and hatch the reject region."""
    from matplotlib.colors import to_rgba

    colors = np.array([to_rgba(_cycle_color(k), OPACITY) for k in range(len(regions.actions))])
    if regions.reject is not None:
        colors[regions.reject] = 0.0
    half_x, half_y = np.diff(regions.x[:2])[0] / 2, np.diff(regions.y[:2])[0] / 2
    sides = *(regions.x[[0, -1]] + [-half_x, half_x]), *(regions.y[[0, -1]] + [-half_y, half_y])
    look: dict[str, Any] = {"origin": "lower", "extent": sides, "interpolation": "nearest"}
    ax.imshow(colors[regions.action], aspect="auto", **look)
    if regions.reject is not None and regions.area_fraction[regions.reject] > 0:
        is_rejected = (regions.action == regions.reject).astype(np.float64)
        look = {"levels": [0.5, 1.5], "colors": "none", "hatches": [HATCH]}
        hatched = ax.contourf(regions.x, regions.y, is_rejected, **look)
        hatched.set(edgecolor=_text_color(), linewidth=0)


def _legend_patch(regions: DecisionRegions, number: int) -> Any:
    """Return the entry of an action in the legend."""
    from matplotlib.patches import Patch

    label = regions.actions[number]
    if number == regions.reject:
        edge = _text_color()
        return Patch(facecolor="none", edgecolor=edge, hatch=HATCH, linewidth=0, label=label)
    return Patch(facecolor=_cycle_color(number), alpha=OPACITY, label=label)


@final
class MinkowskiDisplay:
    """The losses |y - t|^q of several powers, and the estimate of least expected loss by each.

    The first panel has the losses. Each further one has a density, and below it the expected loss
    of every t, divided by its minimum; vertical lines and a marker per power show the minima. Where
    the density is below a thousandth of its maximum, and no minimum is, the grid is not shown.

    Parameters
    ----------
    densities : mapping from str to array of shape (n_points,)
        Densities on the grid, by name.
    curves : mapping from str to list of MinkowskiCurve
        The expected losses of each density, one per power.

    Attributes
    ----------
    axes_ : tuple of matplotlib.axes.Axes
        The axes of the losses, then two per density.
    figure_ : matplotlib.figure.Figure
        Their figure.

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, figure 1.29.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.report import MinkowskiDisplay
    >>> from scipy.stats import gamma
    >>> x = np.linspace(0, 40, 101)
    >>> display = MinkowskiDisplay.from_densities({"skewed": gamma(2).pdf}, x)
    >>> [round(curve.estimate, 2) for curve in display.curves["skewed"]]
    [1.45, 1.68, 2.0, 4.43]
    """

    axes_: tuple[Axes, ...]
    figure_: Any

    def __init__(
        self, densities: Mapping[str, FloatArray], curves: Mapping[str, Sequence[MinkowskiCurve]]
    ) -> None:
        self.densities, self.curves = densities, curves

    @classmethod
    def from_densities(
        cls,
        densities: Mapping[str, Callable[[FloatArray], Any]],
        x: Any,
        powers: Sequence[float] = (0.3, 1, 2, 10),
    ) -> Self:
        """Draw the losses, and the estimates for given densities.

        Parameters
        ----------
        densities : mapping from str to callable
            Densities by name, as functions of an array.
        x : array-like of shape (n_points,), or mapping from str to such
            An increasing grid that covers the densities, or one of each by name.
        powers : sequence of float, default (0.3, 1, 2, 10)
            The powers q.

        Returns
        -------
        MinkowskiDisplay
        """
        grids = x if isinstance(x, Mapping) else dict.fromkeys(densities, x)
        for name in densities:
            if name not in grids:
                rule, fix = "must have a grid for every density", f"Add x[{name!r}]"
                raise BadValueError("x", cls.__name__, rule, f"none for {name!r}", fix)
        curves = {
            name: [minkowski_curve(density, grids[name], q) for q in powers]
            for name, density in densities.items()
        }
        if not curves or not powers:
            rule, fix = "must not be empty", "Pass {'skewed': scipy.stats.gamma(2).pdf}"
            argument = "powers" if curves else "densities"
            raise BadValueError(argument, cls.__name__, rule, "none", fix)
        values = {name: np.asarray(one(curves[name][0].t)) for name, one in densities.items()}
        return cls(values, curves).plot()

    def plot(self) -> Self:
        """Draw on a new figure, and return the display.

        Returns
        -------
        MinkowskiDisplay
            The display itself, with `axes_` and `figure_`.
        """
        n_panels = 1 + len(self.curves)
        figure = _new_figure(type(self).__name__, (3.6 * n_panels, 4.2))
        grid = figure.add_gridspec(2, n_panels)
        losses = figure.add_subplot(grid[:, 0])
        _draw_losses(losses, [curve.q for curve in next(iter(self.curves.values()))])
        axes = [losses]
        for column, (name, curves) in enumerate(self.curves.items(), start=1):
            above = figure.add_subplot(grid[0, column])
            below = figure.add_subplot(grid[1, column], sharex=above)
            _draw_estimates(above, below, self.densities[name], curves)
            above.set_title(name, fontsize="medium")
            axes += [above, below]
        for ax in axes:
            ax.spines[["top", "right"]].set_visible(False)
        handles, labels = losses.get_legend_handles_labels()
        figure.legend(handles, labels, loc="outside lower center", ncols=len(labels), frameon=False)
        self.axes_, self.figure_ = tuple(axes), figure
        return self


def _draw_losses(ax: Axes, powers: Sequence[float]) -> None:
    """Draw |y - t|^q over y - t."""
    distance = np.linspace(-2, 2, 401)
    for number, q in enumerate(powers):
        ax.plot(distance, np.abs(distance) ** q, color=_cycle_color(number), label=f"q = {q:g}")
    ax.set(xlabel="y - t", ylabel="Loss", ylim=(0, 2))
    ax.set_title("|y - t|^q", fontsize="medium")


def _draw_estimates(
    above: Axes, below: Axes, density: FloatArray, curves: Sequence[MinkowskiCurve]
) -> None:
    """Draw a density with the estimates, and the expected losses with their minima."""
    t = curves[0].t
    above.fill_between(t, density, color=_text_color(), alpha=0.15, linewidth=0)
    above.plot(t, density, color=_text_color(), linewidth=1)
    for number, curve in enumerate(curves):
        color = _cycle_color(number)
        above.axvline(curve.estimate, color=color, linewidth=1.4)
        below.axvline(curve.estimate, color=color, linewidth=0.8, alpha=0.5)
        below.plot(t, curve.loss / curve.minimum, color=color)
        below.plot(curve.estimate, 1, MARKERS[number % len(MARKERS)], color=color, markersize=5)
    rows = np.flatnonzero(density >= SHOWN * density.max())
    ends = t[max(rows[0] - 1, 0)], t[min(rows[-1] + 1, t.size - 1)]
    shown = [*ends, *(curve.estimate for curve in curves)]
    above.set(ylabel="Density", ylim=(0, None), xlim=(min(shown), max(shown)))
    above.tick_params(labelbottom=False)
    below.set(xlabel="t", ylabel="Loss / minimum", ylim=(0.9, 2.5))


@final
class UncertaintyMapDisplay:
    """An image beside the aleatoric and epistemic uncertainty of its pixels.

    Both maps share one color scale, so that they can be compared.

    Parameters
    ----------
    image : ndarray of shape (height, width) or (height, width, colors)
        The image.
    aleatoric, epistemic : ndarray of shape (height, width)
        The uncertainty of each pixel.

    Attributes
    ----------
    axes_ : tuple of three matplotlib.axes.Axes
        The axes of the image and of both maps.
    figure_ : matplotlib.figure.Figure
        Their figure.

    Examples
    --------
    >>> from dubito.report import UncertaintyMapDisplay
    >>> display = UncertaintyMapDisplay.from_maps([[0, 1]], [[0.2, 0.1]], [[0.0, 0.5]])
    >>> len(display.axes_)
    3
    """

    axes_: tuple[Axes, ...]
    figure_: Any

    def __init__(self, image: FloatArray, aleatoric: FloatArray, epistemic: FloatArray) -> None:
        self.image, self.aleatoric, self.epistemic = image, aleatoric, epistemic

    @classmethod
    def from_maps(
        cls, image: Any, aleatoric: Any, epistemic: Any, *, axes: Sequence[Axes] | None = None
    ) -> Self:
        """Draw an image and its maps, such as an entry of `dubito.learn.uncertainty_maps`.

        Parameters
        ----------
        image : array-like of shape (height, width) or (height, width, colors)
            The image.
        aleatoric, epistemic : array-like of shape (height, width)
            The uncertainty of each pixel.
        axes : sequence of three matplotlib.axes.Axes, optional
            Axes to draw on, such as a row of `figure.subplots(n_images, 3)`.

        Returns
        -------
        UncertaintyMapDisplay
        """
        picture = _as_map(image, "image", (2, 3))
        maps = []
        for name, values in (("aleatoric", aleatoric), ("epistemic", epistemic)):
            maps.append(_as_map(values, name, (2,)))
            if maps[-1].shape != picture.shape[:2]:
                rule = f"must have the shape of the image, {picture.shape[:2]}"
                fix = "Pass the maps of this image"
                raise BadValueError(name, MAPS, rule, f"{maps[-1].shape}", fix)
        return cls(picture, *maps).plot(axes)

    def plot(self, axes: Sequence[Axes] | None = None) -> Self:
        """Draw on three axes, by default those of a new figure, and return the display.

        Parameters
        ----------
        axes : sequence of three matplotlib Axes, optional
            For the image, the aleatoric and the epistemic uncertainty; by default those of a new
            figure.

        Returns
        -------
        UncertaintyMapDisplay
            The display itself, with `axes_` and `figure_`.
        """
        if axes is None:
            axes = tuple(_new_figure(MAPS, (9.6, 3.4)).subplots(1, 3))
        if len(axes) != 3:
            fix = "Pass a row of `figure.subplots(n_images, 3)`"
            raise BadValueError("axes", MAPS, "must be 3 axes", f"{len(axes)}", fix)
        figure: Any = axes[0].figure
        axes[0].imshow(self.image, cmap="gray")
        top = max(float(self.aleatoric.max()), float(self.epistemic.max()), 1e-12)
        for ax, values in zip(axes[1:], (self.aleatoric, self.epistemic), strict=True):
            drawn = ax.imshow(values, cmap="magma", vmin=0, vmax=top)
        for ax, title in zip(axes, TITLES, strict=True):
            ax.set_title(title, fontsize="medium")
            ax.set_axis_off()
        figure.colorbar(drawn, ax=list(axes[1:]), label="nats", shrink=0.8)
        self.axes_, self.figure_ = tuple(axes), figure
        return self


def _as_map(values: Any, argument: str, dimensions: tuple[int, ...]) -> FloatArray:
    """Return a finite value per pixel."""
    array = as_finite(as_floats(values, argument, MAPS), argument, MAPS)
    words = "height x width" if dimensions == (2,) else "height x width, or with colors"
    require_dimensions(array, dimensions, argument, MAPS, words)
    return array
