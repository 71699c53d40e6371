"""The figure of the study of noisy inputs: which score detects which noise."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, final

from dubito.arrays import FloatArray
from studies.common.reporting import panels

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


SCORES = ("entropy, classifier", "entropy, densities", "density")
LEVELS = (1, 2, 3, 4, 5)
RATES = (0.0, 0.1, 0.2, 0.3, 0.4)
COLORS = ("#d95f02", "#1f78b4", "#1b7837")
LINES = {"noise": "-", "blur": "--"}


@final
class OfSet(NamedTuple):
    """The runs of one set: arrays by name, seeds first."""

    name: str
    arrays: Mapping[str, FloatArray]

    @property
    def kinds(self) -> tuple[str, ...]:
        """The corruptions of the inputs."""
        return tuple(LINES)[: self.arrays["input_aurocs"].shape[1]]


def percent(rate: float) -> str:
    """Format a rate."""
    return f"{100 * rate:.0f} %"


def picture(sets: Sequence[OfSet]) -> Figure:
    """Plot the detection of noise in inputs (above) and in labels (below)."""
    figure = panels(2, len(sets), size=(4.2, 3.2))
    above, below = figure.axes[: len(sets)], figure.axes[len(sets) :]
    for one, top, bottom in zip(sets, above, below, strict=True):
        for row, kind in enumerate(one.kinds):
            draw(top, LEVELS, one.arrays["input_aurocs"][:, row], LINES[kind])
        top.set_title(f"{one.name}: noise in inputs", fontsize=9)
        top.set_xticks(LEVELS)
        top.set_xlabel("level of noise" + (" (dashed: of blur)" if len(one.kinds) > 1 else ""))
        top.set_ylabel("AUROC, noisy against clean")
        draw(bottom, RATES, one.arrays["label_aurocs"], "-")
        bottom.set_title(f"{one.name}: noise in labels", fontsize=9)
        bottom.set_xticks(RATES, [percent(rate) for rate in RATES])
        bottom.set_xlabel("labels swapped in some classes")
        bottom.set_ylabel("AUROC, these against others")
    handles, names = above[0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=len(SCORES), frameon=False)
    figure.suptitle("Which score detects which noise (shaded: range over seeds)")
    return figure


def draw(axes: Axes, places: Sequence[float], aurocs: FloatArray, line: str) -> None:
    """Plot the AUROC of all scores, seeds x positions x scores."""
    for number, (name, color) in enumerate(zip(SCORES, COLORS, strict=True)):
        values = aurocs[:, :, number]
        axes.fill_between(places, values.min(0), values.max(0), color=color, alpha=0.15, lw=0)
        style: dict[str, Any] = {"color": color, "marker": "o", "markersize": 3}
        axes.plot(places, values.mean(0), line, label=name, **style)
    axes.axhline(0.5, color="#888888", linewidth=0.8)
    axes.set_ylim(0, 1.02)
