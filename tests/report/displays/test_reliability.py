"""The reliability diagram draws the library's curve, band and bins."""

from typing import Any

import numpy as np
import pytest
from matplotlib import pyplot
from scipy import special

from dubito import Logits, TopLabel
from dubito.measure import expected_calibration_error, reliability_curve
from dubito.report import ReliabilityDisplay


@pytest.fixture(scope="module")
def rows() -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    honest = rng.normal(0, 1.5, (500, 3))
    draws = rng.random((500, 1))
    y = (special.softmax(honest, axis=1).cumsum(axis=1) < draws).sum(axis=1).clip(0, 2)
    return y, Logits(2 * honest)


def labels_of(ax: Any) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_the_curve_its_band_and_its_bins_are_drawn(rows: Any, strategy: Any) -> None:
    display = ReliabilityDisplay.from_predictions(*rows, n_bins=8, strategy=strategy, name="net")
    curve = reliability_curve(*rows, n_bins=8, strategy=strategy)
    diagonal, line = display.ax_.lines
    np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
    np.testing.assert_array_equal(line.get_xdata(), curve.confidence)
    np.testing.assert_array_equal(line.get_ydata(), curve.accuracy)
    outline = display.ax_.collections[0].get_paths()[0].vertices
    for bound in (curve.low, curve.high):
        wanted = np.stack([curve.confidence, bound], axis=1)
        assert all((np.abs(outline - point).sum(axis=1) < 1e-12).any() for point in wanted)
    stairs: Any = display.histogram_ax_.patches[0]
    density, edges, _ = stairs.get_data()
    np.testing.assert_array_equal(edges, curve.edges)
    assert np.sum(density * np.diff(edges)) == pytest.approx(1)
    np.testing.assert_allclose(
        (density * np.diff(edges))[curve.bins], curve.count / curve.count.sum()
    )
    error = expected_calibration_error(*rows, n_bins=8, strategy=strategy)
    assert labels_of(display.ax_) == [
        "calibrated",
        f"net (ECE {error:.3g}, 8 {strategy} bins)",
        "calibrated, 19 times in 20",
    ]
    assert display.ax_.get_ylabel() == "Accuracy"
    assert display.histogram_ax_.get_xlabel() == "Confidence"
    assert display.histogram_ax_.get_ylabel() == "Density of rows"


def test_two_models_share_axes_and_histogram(rows: Any) -> None:
    first = ReliabilityDisplay.from_predictions(*rows, name="first")
    curve = reliability_curve(*rows, n_bins=5)
    second = ReliabilityDisplay.from_curve(curve, name="second", ax=first.ax_)
    assert second.histogram_ax_ is first.histogram_ax_
    assert len(first.figure_.axes) == 2
    labels = labels_of(first.ax_)
    assert labels.count("calibrated") == labels.count("calibrated, 19 times in 20") == 1
    assert labels[-1] == "second"
    colors = [line.get_color() for line in first.ax_.lines[1:]]
    assert len(set(colors)) == 2
    assert second.curve is curve


def test_each_of_two_panels_has_a_histogram_of_its_own(rows: Any) -> None:
    figure, panels = pyplot.subplots(1, 2, sharex=True)
    shown = [ReliabilityDisplay.from_predictions(*rows, ax=ax) for ax in panels]
    assert len(figure.axes) == 4
    assert shown[0].histogram_ax_ is not shown[1].histogram_ax_
    for display in shown:
        upper, lower = display.ax_.get_position(), display.histogram_ax_.get_position()
        assert lower.y1 < upper.y0
        assert lower.x0 == pytest.approx(upper.x0)


def test_top_labels_will_do() -> None:
    display = ReliabilityDisplay.from_predictions(None, TopLabel([0.9, 0.6], [1, 0]), n_bins=2)
    assert labels_of(display.ax_)[1] == "model (ECE 0.25, 2 uniform bins)"
