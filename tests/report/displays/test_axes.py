"""Axes, colors of the style, and what is said where matplotlib is missing."""

import sys
from typing import Any

import numpy as np
import pytest
from cycler import cycler
from matplotlib import pyplot
from matplotlib.colors import to_hex
from scipy import stats

from dubito.decide import CostMatrix
from dubito.errors import MissingExtraError
from dubito.report import (
    CostDisplay,
    DecisionRegionDisplay,
    ErrorAreasDisplay,
    ReliabilityDisplay,
    RiskCoverageDisplay,
)
from dubito.report.displays.axes import axes_for, color_of, draw_once, finish, ink

Y, OUTPUTS = [0, 1, 1], [[0.8, 0.2], [0.4, 0.6], [0.7, 0.3]]
PAIR = stats.norm(-1).pdf, stats.norm(1).pdf

DRAWN: dict[str, Any] = {
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


@pytest.mark.parametrize("name", DRAWN)
def test_without_matplotlib_it_is_said_what_to_install(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingExtraError) as caught:
        DRAWN[name]()
    expected = f"{name} needs an optional part. Try `pip install 'dubito[plots]'`."
    assert str(caught.value) == expected


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_every_picture_can_be_drawn_on_given_axes_or_new_ones(name: str, style: str) -> None:
    with pyplot.style.context(style):
        new = DRAWN[name]()
        assert new.figure_ is new.ax_.figure
        new.figure_.canvas.draw()
        figure, (_, ax) = pyplot.subplots(1, 2)
        given = DRAWN[name](ax)
        assert given.ax_ is ax
        assert given.figure_ is figure
        figure.canvas.draw()
        free = pyplot.figure().add_axes((0.1, 0.1, 0.8, 0.8))
        assert DRAWN[name](free).ax_ is free
        free.figure.canvas.draw()


def test_colors_are_those_of_the_style() -> None:
    with pyplot.style.context("default"):
        assert ink() == "black"
        assert to_hex(color_of(0)) == "#1f77b4"
        assert color_of(11) == color_of(1)
    with pyplot.style.context("dark_background"):
        assert ink() == "white"
        assert to_hex(color_of(0)) == "#8dd3c7"
    with pyplot.rc_context({"axes.prop_cycle": cycler(linestyle=["-", ":"])}):
        assert color_of(3) == "C0"


def test_what_refers_to_all_models_is_drawn_once() -> None:
    ax = axes_for(None, "A test")
    for _ in range(2):
        draw_once(ax, "even", [0, 1], [0, 1])
    assert [line.get_label() for line in ax.lines] == ["even"]
    finish(ax, "wide", "high", loc="upper left")
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("wide", "high")
    legend = ax.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["even"]
