"""The matplotlib renderer: axes, colors of the style, and the error without matplotlib."""

import sys
from typing import Any

import numpy as np
import pytest
from cycler import cycler
from matplotlib import pyplot
from matplotlib.colors import to_hex
from scipy import stats

from dubito.charts import Axis, Chart, Line
from dubito.decide import CostMatrix
from dubito.errors import MissingExtraError
from dubito.report import (
    CostDisplay,
    DecisionRegionDisplay,
    ErrorAreasDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
)
from dubito.report.displays import _cycle_color, _draw_chart, _new_figure, _text_color

Y, OUTPUTS = [0, 1, 1], [[0.8, 0.2], [0.4, 0.6], [0.7, 0.3]]
PAIR = stats.norm(-1).pdf, stats.norm(1).pdf

DISPLAYS: dict[str, Any] = {
    "ReliabilityDisplay": lambda ax=None: ReliabilityDisplay.from_predictions(Y, OUTPUTS, ax=ax),
    "RiskCoverageDisplay": lambda ax=None: RiskCoverageDisplay.from_predictions(Y, OUTPUTS, ax=ax),
    "CostDisplay": lambda ax=None: CostDisplay.from_predictions(
        Y, OUTPUTS, CostMatrix.zero_one(2).with_reject(0.2), ax=ax
    ),
    "DecisionRegionDisplay": lambda ax=None: DecisionRegionDisplay.from_posterior(
        lambda z: z[:, 0], (0, 1), (0, 1), n_points=4, ax=ax
    ),
    "ErrorAreasDisplay": lambda ax=None: ErrorAreasDisplay.from_densities(
        [0.5, 0.5], PAIR, np.linspace(-8, 8, 81), 0.5, ax=ax
    ),
}


@pytest.mark.parametrize("name", DISPLAYS)
def test_without_matplotlib_the_error_names_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "matplotlib", None)
        with pytest.raises(MissingExtraError) as caught:
            DISPLAYS[name]()
    assert name in str(caught.value)
    assert "pip install 'dubito[plots]'" in str(caught.value)


@pytest.mark.parametrize("name", DISPLAYS)
@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_every_display_draws_on_given_axes_or_new_ones(name: str, style: str) -> None:
    with pyplot.style.context(style):
        new = DISPLAYS[name]()
        assert new.figure_ is new.ax_.figure
        new.figure_.canvas.draw()
        figure, (_, ax) = pyplot.subplots(1, 2)
        given = DISPLAYS[name](ax)
        assert given.ax_ is ax
        assert given.figure_ is figure
        figure.canvas.draw()
        free = pyplot.figure().add_axes((0.1, 0.1, 0.8, 0.8))
        assert DISPLAYS[name](free).ax_ is free
        free.figure.canvas.draw()


def test_colors_are_those_of_the_style() -> None:
    with pyplot.style.context("default"):
        assert _text_color() == "black"
        assert to_hex(_cycle_color(0)) == "#1f77b4"
        assert _cycle_color(11) == _cycle_color(1)
    with pyplot.style.context("dark_background"):
        assert _text_color() == "white"
        assert to_hex(_cycle_color(0)) == "#8dd3c7"
    with pyplot.rc_context({"axes.prop_cycle": cycler(linestyle=["-", ":"])}):
        assert _cycle_color(3) == "C0"


def test_references_are_drawn_once_and_limits_grow() -> None:
    ax = _new_figure("A test").subplots()
    even = Line([0, 1], [0, 1], "reference", "even")
    for top in (1.0, 2.0):
        marks = (even, Line([0, 1], [0, top], "model", f"up to {top:g}"))
        _draw_chart(
            Chart("A chart", Axis(0, 1, "wide"), Axis(0, top, "high"), marks), ax, loc="upper left"
        )
    assert [line.get_label() for line in ax.lines] == ["even", "up to 1", "up to 2"]
    assert len({line.get_color() for line in ax.lines[1:]}) == 2
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("wide", "high")
    assert ax.get_ylim()[1] >= 2
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["even", "up to 1", "up to 2"]


def test_marks_of_one_style_share_a_color_that_can_be_given() -> None:
    ax = _new_figure("A test").subplots()
    marks = (Line([0, 1], [0, 1], "model", "a"), Line([0, 1], [1, 0], "model dotted", "b"))
    chart = Chart("A chart", Axis(0, 1, "x"), Axis(0, 1, "y"), marks)
    colors = _draw_chart(chart, ax)
    assert len({line.get_color() for line in ax.lines}) == 1
    again = _new_figure("A test").subplots()
    _draw_chart(chart, again, {"model": "red"})
    assert again.lines[0].get_color() == "red"
    assert colors["model"] != "red"
