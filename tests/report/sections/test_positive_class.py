"""The section on the positive class of two."""

import numpy as np

from dubito import Probabilities, audit
from dubito.data import ArrayShards, Batch
from dubito.report import Report, make_report


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
    assert "positives found (recall)" in page


def test_without_a_positive_class_the_section_is_left_out() -> None:
    y, outputs = rare()
    assert "Is P(" not in make_report(y, outputs).html
