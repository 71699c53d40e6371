"""Displays of areas: decision errors, regions, Minkowski estimates and uncertainty maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, final

import numpy as np

from dubito.arrays import FloatArray, as_finite, as_floats, require_dimensions
from dubito.decide.costs import CostMatrix
from dubito.decide.error_areas import ErrorAreas, error_areas
from dubito.decide.minkowski import MinkowskiCurve, minkowski_curve
from dubito.decide.regions import DecisionRegions, decision_regions
from dubito.errors import BadValueError
from dubito.report.charts.builders import error_areas_chart
from dubito.report.charts.mpl import BaseDisplay, axes_for, cycle_color, draw, text_color

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
        """Draw areas that have been computed before; see `from_densities`."""
        return cls(areas, feature_name=feature_name).plot(ax)

    def _draw(self, ax: Axes) -> None:
        draw(error_areas_chart(self.areas, self.feature_name), ax, loc="upper center", ncols=2)


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
        """Draw regions that have been computed before; see `from_posterior`."""
        return cls(regions, feature_names=feature_names).plot(ax)

    def _draw(self, ax: Axes) -> None:
        from matplotlib.collections import LineCollection

        regions = self.regions
        _fill_regions(ax, regions)
        ax.add_collection(
            LineCollection(list(regions.segments), colors=text_color(), linewidths=1.4)
        )
        ax.set(xlabel=self.feature_names[0], ylabel=self.feature_names[1])
        ax.set(xlim=regions.x[[0, -1]], ylim=regions.y[[0, -1]])
        taken = np.flatnonzero(regions.area_fraction > 0)
        patches = [_legend_patch(regions, number) for number in taken.tolist()]
        ax.legend(handles=patches, framealpha=0.85, edgecolor="none", fontsize="small")


def _fill_regions(ax: Axes, regions: DecisionRegions) -> None:
    """Color each region by its action, and hatch the reject region."""
    from matplotlib.colors import to_rgba

    colors = np.array([to_rgba(cycle_color(k), OPACITY) for k in range(len(regions.actions))])
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
        hatched.set(edgecolor=text_color(), linewidth=0)


def _legend_patch(regions: DecisionRegions, number: int) -> Any:
    """Return the entry of an action in the legend."""
    from matplotlib.patches import Patch

    label = regions.actions[number]
    if number == regions.reject:
        edge = text_color()
        return Patch(facecolor="none", edgecolor=edge, hatch=HATCH, linewidth=0, label=label)
    return Patch(facecolor=cycle_color(number), alpha=OPACITY, label=label)


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
        """Draw on a new figure, and return the display."""
        n_panels = 1 + len(self.curves)
        first = axes_for(None, type(self).__name__, size=(3.6 * n_panels, 4.2))
        figure: Any = first.figure
        first.remove()
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
        ax.plot(distance, np.abs(distance) ** q, color=cycle_color(number), label=f"q = {q:g}")
    ax.set(xlabel="y - t", ylabel="Loss", ylim=(0, 2))
    ax.set_title("|y - t|^q", fontsize="medium")


def _draw_estimates(
    above: Axes, below: Axes, density: FloatArray, curves: Sequence[MinkowskiCurve]
) -> None:
    """Draw a density with the estimates, and the expected losses with their minima."""
    t = curves[0].t
    above.fill_between(t, density, color=text_color(), alpha=0.15, linewidth=0)
    above.plot(t, density, color=text_color(), linewidth=1)
    for number, curve in enumerate(curves):
        color = cycle_color(number)
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
        cls,
        image: Any,
        aleatoric: Any,
        epistemic: Any,
        *,
        axes: Sequence[Axes] | None = None,
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
        named = {"aleatoric": aleatoric, "epistemic": epistemic}
        maps = {name: _as_map(values, name, (2,)) for name, values in named.items()}
        for name, one in maps.items():
            if one.shape != picture.shape[:2]:
                rule = f"must have the shape of the image, {picture.shape[:2]}"
                fix = "Pass the maps of this image"
                raise BadValueError(name, MAPS, rule, f"{one.shape}", fix)
        return cls(picture, **maps).plot(axes)

    def plot(self, axes: Sequence[Axes] | None = None) -> Self:
        """Draw on three axes, by default those of a new figure, and return the display."""
        axes = _three_axes() if axes is None else axes
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


def _three_axes() -> Sequence[Axes]:
    """Return the axes of a new figure."""
    first = axes_for(None, MAPS, size=(9.6, 3.4))
    figure: Any = first.figure
    first.remove()
    return tuple(figure.subplots(1, 3))


def _as_map(values: Any, argument: str, dimensions: tuple[int, ...]) -> FloatArray:
    """Return a finite value per pixel."""
    array = as_finite(as_floats(values, argument, MAPS), argument, MAPS)
    words = "height x width" if dimensions == (2,) else "height x width, or with colors"
    require_dimensions(array, dimensions, argument, MAPS, words)
    return array
