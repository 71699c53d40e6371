"""The picture of regions has the ground of each action, its lines, and reject hatched."""

from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba

from dubito.decide.costs import CostMatrix
from dubito.decide.regions import decision_regions
from dubito.report import DecisionRegionDisplay
from dubito.report.displays.axes import color_of

COSTS = CostMatrix.zero_one(["no", "yes"]).with_reject(0.25, name="ask")


def positive(features: Any) -> Any:
    return features[:, 0] / 2


def texts(display: DecisionRegionDisplay) -> list[str]:
    legend = display.ax_.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def test_ground_lines_and_names() -> None:
    names = ("length", "weight")
    display = DecisionRegionDisplay.from_posterior(
        positive, (0, 2), (-1, 1), COSTS, n_points=9, feature_names=names
    )
    regions = decision_regions(positive, (0, 2), (-1, 1), COSTS, n_points=9)
    ground: Any = display.ax_.images[0].get_array()
    for number in (0, 1):
        is_here = regions.action == number
        assert (ground[is_here] == to_rgba(color_of(number), 0.4)).all()
    assert (ground[regions.action == 2] == 0).all()
    assert display.ax_.images[0].get_extent() == pytest.approx([-0.125, 2.125, -1.125, 1.125])
    lines = [one for one in display.ax_.collections if isinstance(one, LineCollection)]
    np.testing.assert_allclose(lines[0].get_segments(), regions.segments)
    hatched = [one for one in display.ax_.collections if getattr(one, "hatches", None) == ["///"]]
    assert len(hatched) == 1
    box = hatched[0].get_paths()[0].get_extents()
    assert box.x0 == pytest.approx(0.375)  # halfway from the last "no" to the first "ask"
    assert box.x1 == pytest.approx(1.625)
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == names
    assert (display.ax_.get_xlim(), display.ax_.get_ylim()) == ((0, 2), (-1, 1))
    assert texts(display) == ["no", "yes", "ask"]


def test_actions_that_are_never_taken_are_not_named() -> None:
    costs = CostMatrix.zero_one(2).with_reject(0.9)
    regions = decision_regions(positive, (0, 2), (0, 1), costs, n_points=5)
    display = DecisionRegionDisplay.from_regions(regions)
    assert texts(display) == ["0", "1"]
    assert not [one for one in display.ax_.collections if getattr(one, "hatches", None)]
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("x", "y")
    assert display.regions is regions
