"""The section on the positive class of two."""

import numpy as np

from dubito import Probabilities, audit
from dubito.charts import Line, Points
from dubito.data import ArrayShards, Batch
from dubito.report import Report, make_report
from dubito.report.sections.positive_class import positive_figure


def rare() -> tuple[list[str], Probabilities]:
    """Return labels and probabilities that are too extreme."""
    rng = np.random.default_rng(0)
    odds = rng.normal(-3.5, 1.5, 3000)
    y = np.where(rng.random(3000) < 1 / (1 + np.exp(-(0.6 * odds - 0.8))), "fraud", "ok")
    p = 1 / (1 + np.exp(-odds))
    return y.tolist(), Probabilities(np.column_stack([1 - p, p]), ["ok", "fraud"])


def test_a_report_on_two_classes_starts_with_the_positive_one() -> None:
    y, outputs = rare()
    found = audit(y, outputs, pos_label="fraud")
    report = Report.of(ArrayShards(Batch.of(y, outputs)), audit=found)
    page = report.html
    assert page.index("Is P(fraud) right?") < page.index("Is the confidence calibrated?")
    slope = found.positive.calibration_slope if found.positive else None
    assert slope is not None
    assert f"{slope:.3f}" in page
    assert "Calibration lowers the ECE of P(fraud) from" in page
    assert "recall" in page


def test_rare_classes_have_axes_of_log_odds() -> None:
    y, outputs = rare()
    fraud = audit(y, outputs, pos_label="fraud").positive
    common = audit([0, 1] * 20, [0.3, 0.6] * 20).positive
    assert fraud is not None
    assert common is not None
    title = "After calibration"
    [chart], [linear] = (positive_figure(title, one, "after").charts for one in (fraud, common))
    points = next(mark for mark in chart.marks if isinstance(mark, Points))
    np.testing.assert_allclose(1 / (1 + np.exp(-points.x)), fraud.curve.confidence)
    assert chart.x.low <= points.x.min() <= points.x.max() <= chart.x.high
    assert chart.y.label == "Observed frequency, %"
    assert chart.y.formatter(chart.y.ticks[0]) == "0.2"
    assert (linear.x.low, linear.y.low) == (0, 0)


def test_a_frequency_of_0_is_a_point_without_a_line() -> None:
    p = np.repeat([0.001, 0.02, 0.2], 100)
    found = audit(np.arange(300) > 290, p, n_resamples=0).positive
    assert found is not None
    figure = positive_figure("rash", found, "before")
    line = next(one for one in figure.charts[0].marks if isinstance(one, Line) and not one.label)
    points = next(one for one in figure.charts[0].marks if isinstance(one, Points))
    assert (line.x.size, points.x.size) == (1, 3)
    assert "frequencies of 0 lie at the bottom" in figure.caption


def test_without_a_positive_class_the_section_is_left_out() -> None:
    y, outputs = rare()
    assert "Is P(" not in make_report(y, outputs).html
