"""Displays of areas fill what was computed."""

from typing import Any

import numpy as np
import pytest
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba
from matplotlib.figure import Figure
from scipy import stats

from dubito.decide import CostMatrix, decision_regions, error_areas
from dubito.errors import BadValueError
from dubito.report import (
    DecisionRegionDisplay,
    ErrorAreasDisplay,
    MinkowskiDisplay,
    UncertaintyMapDisplay,
)
from dubito.report.displays import _cycle_color

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
        f"boundary: cost {areas.decision.cost:.3g} per row",
        f"optimal: cost {areas.best.cost:.3g} per row",
    ]
    _, first, _, second, avoidable, boundary, optimal = drawn.values()
    for number, line in enumerate(display.ax_.lines):
        np.testing.assert_array_equal(line.get_xdata(), X)
        np.testing.assert_array_equal(line.get_ydata(), areas.joint[number])
    assert area(first) == pytest.approx(areas.decision.missed[0], rel=1e-3)
    assert area(second) == pytest.approx(areas.decision.missed[1], rel=1e-3)
    assert area(avoidable) == pytest.approx(areas.avoidable, rel=1e-2)
    assert [segment[0, 0] for segment in boundary.get_segments()] == [1.2]
    assert [segment[0, 0] for segment in optimal.get_segments()] == areas.best.boundaries.tolist()
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("x", "Joint density")


def test_the_best_boundaries_alone_and_classes_by_name() -> None:
    costs = CostMatrix.from_errors(
        false_positive=1, false_negative=2, classes=["well", "ill"], pos_label="ill"
    )
    pair = stats.norm(0, 2).pdf, stats.norm(1, 0.6).pdf
    areas = error_areas([0.6, 0.4], pair, X * 2, costs=costs)
    display = ErrorAreasDisplay.from_areas(areas, feature_name="pressure")
    missed = [f"{share:.3g}" for share in areas.best.missed]
    assert list(by_label(display)) == [
        "p(pressure, well)",
        f"well missed: {missed[0]}",
        "p(pressure, ill)",
        f"ill missed: {missed[1]}",
        f"boundary: cost {areas.best.cost:.3g} per row",
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


COSTS = CostMatrix.zero_one(["no", "yes"]).with_reject(0.25, name="ask")


def first_feature(features: Any) -> Any:
    return features[:, 0] / 2


def texts(display: DecisionRegionDisplay) -> list[str]:
    legend = display.ax_.get_legend()
    assert legend is not None
    return [text.get_text() for text in legend.get_texts()]


def test_regions_boundaries_and_names() -> None:
    names = ("length", "weight")
    display = DecisionRegionDisplay.from_posterior(
        first_feature, (0, 2), (-1, 1), COSTS, n_points=9, feature_names=names
    )
    regions = decision_regions(first_feature, (0, 2), (-1, 1), COSTS, n_points=9)
    ground: Any = display.ax_.images[0].get_array()
    for number in (0, 1):
        is_here = regions.action == number
        assert (ground[is_here] == to_rgba(_cycle_color(number), 0.4)).all()
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
    regions = decision_regions(first_feature, (0, 2), (0, 1), costs, n_points=5)
    display = DecisionRegionDisplay.from_regions(regions)
    assert texts(display) == ["0", "1"]
    assert not [one for one in display.ax_.collections if getattr(one, "hatches", None)]
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("x", "y")
    assert display.regions is regions


RNG = np.random.default_rng(0)
IMAGE, NOISE, DISAGREEMENT = RNG.random((6, 8)), RNG.random((6, 8)), 2 * RNG.random((6, 8))


def test_maps_share_one_color_scale() -> None:
    display = UncertaintyMapDisplay.from_maps(IMAGE, NOISE, DISAGREEMENT)
    drawn = [ax.get_images()[0] for ax in display.axes_]
    for picture, values in zip(drawn, (IMAGE, NOISE, DISAGREEMENT), strict=True):
        np.testing.assert_array_equal(picture.get_array(), values)
    assert drawn[1].get_clim() == drawn[2].get_clim() == (0, DISAGREEMENT.max())
    titles = [ax.get_title() for ax in display.axes_]
    assert titles[1:] == ["aleatoric uncertainty", "epistemic uncertainty"]


def test_several_images_share_a_figure() -> None:
    figure = Figure()
    rows = figure.subplots(2, 3)
    shown = [
        UncertaintyMapDisplay.from_maps(IMAGE, NOISE * k, DISAGREEMENT, axes=row)
        for k, row in enumerate(rows)
    ]
    assert [one.axes_ for one in shown] == [tuple(row) for row in rows]
    assert shown[1].figure_ is figure
    for k, row in enumerate(rows):
        np.testing.assert_array_equal(row[1].get_images()[0].get_array(), NOISE * k)


def test_three_axes_are_needed() -> None:
    with pytest.raises(BadValueError, match=r"must be 3 axes, got 2\. .*figure\.subplots"):
        UncertaintyMapDisplay.from_maps(IMAGE, NOISE, DISAGREEMENT, axes=Figure().subplots(1, 2))


def test_maps_must_have_the_shape_of_the_image() -> None:
    message = r"`epistemic` must have the shape of the image, \(6, 8\), got \(3, 8\)"
    with pytest.raises(BadValueError, match=message):
        UncertaintyMapDisplay.from_maps(IMAGE, NOISE, DISAGREEMENT[:3])


def test_color_images_and_maps_of_zeros_are_drawn() -> None:
    nothing = np.zeros((6, 8))
    display = UncertaintyMapDisplay.from_maps(RNG.random((6, 8, 3)), nothing, nothing)
    assert display.axes_[1].get_images()[0].get_clim() == (0, 1e-12)


def test_minkowski_estimates_move_from_the_mode_to_the_middle() -> None:
    def bimodal(at: Any) -> Any:
        return 0.65 * stats.norm(2, 0.6).pdf(at) + 0.35 * stats.norm(6, 1).pdf(at)

    x = {"skewed": np.linspace(0, 45, 101), "two": np.linspace(-3, 14, 69)}
    display = MinkowskiDisplay.from_densities({"skewed": stats.gamma(2).pdf, "two": bimodal}, x)
    assert len(display.axes_) == 5
    for name, above in zip(display.curves, display.axes_[1::2], strict=True):
        estimates = [curve.estimate for curve in display.curves[name]]
        assert estimates == sorted(estimates)
        drawn = [np.asarray(line.get_xdata())[0] for line in above.lines[1:]]
        assert drawn == estimates
        assert above.get_title() == name
    assert [text.get_text() for text in display.figure_.legends[0].get_texts()] == [
        *("q = 0.3", "q = 1", "q = 2", "q = 10")
    ]
    # Tails that matter for q = 10 only are not shown, and each power has a marker of its own.
    limits = [above.get_xlim() for above in display.axes_[1::2]]
    assert limits[0][0] == 0
    assert 8 < limits[0][1] < 15
    assert limits[1][1] < 14
    assert (
        len({line.get_marker() for line in display.axes_[2].lines if line.get_marker() != "None"})
        == 4
    )
    with pytest.raises(BadValueError, match="`densities` must not be empty"):
        MinkowskiDisplay.from_densities({}, x)
    with pytest.raises(BadValueError, match=r"`x` must have a grid .*, got none for 'b'\. Add x"):
        MinkowskiDisplay.from_densities({"b": bimodal}, x)


def test_three_classes_are_drawn_with_what_is_avoidable() -> None:
    three = [stats.norm(mean, 1).pdf for mean in (-2, 0, 2)]
    display = ErrorAreasDisplay.from_densities([0.3, 0.4, 0.3], three, X, [-1, 2])
    areas = error_areas([0.3, 0.4, 0.3], three, X, [-1, 2])
    drawn = by_label(display)
    assert [label for label in drawn if label.startswith("p(")] == ["p(x, 0)", "p(x, 1)", "p(x, 2)"]
    hatched = [one for one in display.ax_.collections if one.get_hatch()]
    assert sum(map(area, hatched)) == pytest.approx(areas.avoidable, rel=1e-2)
