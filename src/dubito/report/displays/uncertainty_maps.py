"""Maps of doubt beside the image they are of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self, final

from dubito.arrays import FloatArray, as_finite, as_floats, require_dimensions
from dubito.errors import BadValueError
from dubito.report.displays.axes import axes_for

if TYPE_CHECKING:
    from matplotlib.axes import Axes


TITLES = ("image", "aleatoric: noise in the data", "epistemic: ignorance of the model")


@final
class UncertaintyMapDisplay:
    """An image, and where its pixels are doubtful: by noise in the data, by ignorance of the model.

    Both maps have one scale, so that they can be held against each other. After `plot`, `axes_` and
    `figure_` are what it was drawn on.
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
        """Draw maps, height x width, such as an entry of `dubito.learn.uncertainty_maps`.

        `axes` are three to draw on, say a row of a figure of several images.

        >>> display = UncertaintyMapDisplay.from_maps([[0, 1]], [[0.2, 0.1]], [[0.0, 0.5]])
        >>> len(display.axes_)
        3
        """
        picture = _as_map(image, "image", (2, 3))
        maps = [
            _as_map(a, n, (2,)) for a, n in ((aleatoric, "aleatoric"), (epistemic, "epistemic"))
        ]
        for name, one in zip(("aleatoric", "epistemic"), maps, strict=True):
            if one.shape != picture.shape[:2]:
                rule, fix = f"of {picture.shape[:2]} pixels, like the image", "maps of this image"
                raise BadValueError(name, "UncertaintyMapDisplay", rule, f"{one.shape}", fix)
        return cls(picture, *maps).plot(axes)

    def plot(self, axes: Sequence[Axes] | None = None) -> Self:
        """Draw on three axes, those of a new figure unless they are given."""
        axes = _three_axes() if axes is None else axes
        if len(axes) != 3:
            rule, fix = "3, one for each map", "a row of `figure.subplots(n_images, 3)`"
            raise BadValueError("axes", "UncertaintyMapDisplay", rule, f"{len(axes)}", fix)
        figure: Any = axes[0].figure
        axes[0].imshow(self.image, cmap="gray")
        top = max(float(self.aleatoric.max()), float(self.epistemic.max()), 1e-12)
        for ax, values in zip(axes[1:], (self.aleatoric, self.epistemic), strict=True):
            drawn = ax.imshow(values, cmap="magma", vmin=0, vmax=top)
        for ax, title in zip(axes, TITLES, strict=True):
            ax.set_title(title, fontsize="medium")
            ax.set_axis_off()
        figure.colorbar(drawn, ax=list(axes[1:]), label="doubt, nats", shrink=0.8)
        self.axes_, self.figure_ = tuple(axes), figure
        return self


def _three_axes() -> Sequence[Axes]:
    """Return the axes of a new figure."""
    first = axes_for(None, "UncertaintyMapDisplay", size=(9.6, 3.4))
    figure: Any = first.figure
    first.remove()
    return tuple(figure.subplots(1, 3))


def _as_map(values: Any, argument: str, dimensions: tuple[int, ...]) -> FloatArray:
    """Return finite numbers, a pixel each."""
    array = as_finite(
        as_floats(values, argument, "UncertaintyMapDisplay"), argument, "UncertaintyMapDisplay"
    )
    words = "height x width" if dimensions == (2,) else "height x width, or with colors"
    require_dimensions(array, dimensions, argument, "UncertaintyMapDisplay", words)
    return array
