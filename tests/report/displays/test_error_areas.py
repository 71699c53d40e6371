"""The picture of error areas fills just what was integrated."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from dubito.decide.costs import CostMatrix
from dubito.decide.error_areas import error_areas
from dubito.report import ErrorAreasDisplay

X = np.linspace(-8, 8, 801)
PAIR = stats.norm(-1, 1).pdf, stats.norm(1.2, 0.6).pdf


def area(collection: Any) -> float:
    """Return the area of what was filled, by the shoelace formula."""
    x, y = collection.get_paths()[0].vertices.T
    return float(abs(x @ np.roll(y, 1) - y @ np.roll(x, 1)) / 2)


def by_label(display: ErrorAreasDisplay) -> dict[str, Any]:
    handles, labels = display.ax_.get_legend_handles_labels()
    return dict(zip(labels, handles, strict=True))


def test_two_areas_what_is_avoidable_and_both_boundaries() -> None:
    display = ErrorAreasDisplay.from_densities([0.6, 0.4], PAIR, X, 1.2)
    areas = error_areas([0.6, 0.4], PAIR, X, 1.2)
    drawn = by_label(display)
    assert list(drawn) == [
        "p(x, 0)",
        f"0 missed: {areas.decision.missed[0]:.3g}",
        "p(x, 1)",
        f"1 missed: {areas.decision.missed[1]:.3g}",
        f"avoidable: {areas.avoidable:.3g}",
        f"boundary: cost {areas.decision.cost:.3g} a row",
        f"least: cost {areas.best.cost:.3g} a row",
    ]
    _, first, _, second, avoidable, boundary, least = drawn.values()
    for number, line in enumerate(display.ax_.lines):
        np.testing.assert_array_equal(line.get_xdata(), X)
        np.testing.assert_array_equal(line.get_ydata(), areas.joint[number])
    assert area(first) == pytest.approx(areas.decision.missed[0], rel=1e-3)
    assert area(second) == pytest.approx(areas.decision.missed[1], rel=1e-3)
    assert area(avoidable) == pytest.approx(areas.avoidable, rel=1e-2)
    assert [segment[0, 0] for segment in boundary.get_segments()] == [1.2]
    assert [segment[0, 0] for segment in least.get_segments()] == areas.best.boundaries.tolist()
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("x", "Joint density")


def test_the_best_boundaries_alone_and_classes_by_name() -> None:
    costs = CostMatrix.from_errors(false_positive=1, false_negative=2, classes=["well", "ill"])
    pair = stats.norm(0, 2).pdf, stats.norm(1, 0.6).pdf
    areas = error_areas([0.6, 0.4], pair, X * 2, costs=costs)
    display = ErrorAreasDisplay.from_areas(areas, feature_name="pressure")
    missed = [f"{share:.3g}" for share in areas.best.missed]
    assert list(by_label(display)) == [
        "p(pressure, well)",
        f"well missed: {missed[0]}",
        "p(pressure, ill)",
        f"ill missed: {missed[1]}",
        f"boundary: cost {areas.best.cost:.3g} a row",
    ]
    # The second class is decided in the middle: "ill" is missed on both sides of it.
    filled = display.ax_.collections[:3]
    assert area(filled[0]) == pytest.approx(areas.best.missed[0], rel=1e-3)
    assert area(filled[1]) + area(filled[2]) == pytest.approx(areas.best.missed[1], rel=5e-3)
    assert display.ax_.get_xlabel() == "pressure"


def test_where_one_class_is_always_decided_the_other_is_filled_whole() -> None:
    display = ErrorAreasDisplay.from_densities([0, 1], PAIR, X)
    assert display.areas.best.boundaries.size == 0
    assert area(by_label(display)["0 missed: 0"]) == 0
    display.figure_.canvas.draw()
