"""Diagrams, metrics and calibrators show what was computed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito import TopLabel
from dubito.data import ArrayShards, Batch
from dubito.formatting import decimal, percent
from dubito.measure import reliability_curve
from dubito.report.content import Cards, Choice, Row, Table, Text
from dubito.report.sections.calibration import (
    NEAR_ZERO,
    _caption,
    calibrators_section,
    metrics_section,
    reliability_section,
)
from dubito.report.summary import Summary


def table_of(section: Any) -> Table:
    return next(block for block in section.blocks if isinstance(block, Table))


@pytest.mark.slow
def test_every_view_can_be_chosen(summary: Summary) -> None:
    cards, _, choice = reliability_section(summary).blocks
    assert isinstance(cards, Cards)
    assert isinstance(choice, Choice)
    assert [name for name, _ in choice.options] == [view.name for view in summary.views]
    assert all(isinstance(row, Row) and len(row.blocks) == 2 for _, row in choice.options)
    values = [card.value for card in cards.cards]
    assert values[:2] == [
        percent(summary.audit_before.confidence),
        percent(summary.audit_before.accuracy),
    ]


@pytest.mark.slow
def test_a_single_view_needs_no_choice() -> None:
    top = Batch.of(None, TopLabel([0.8, 0.7] * 6, [1, 0] * 6))
    assert isinstance(reliability_section(Summary.of(ArrayShards(top))).blocks[-1], Row)


def test_two_classes_have_views_too() -> None:
    batch = Batch.of([0, 1] * 6, [[0.8, 0.2], [0.3, 0.7]] * 6)
    names = [view.name for view in Summary.of(ArrayShards(batch)).views]
    assert names == ["all rows", "predicted as 0", "predicted as 1"]


def test_metrics_before_after_and_if_calibrated_have_intervals(summary: Summary) -> None:
    table = table_of(metrics_section(summary))
    assert table.columns[-1] == "expected if calibrated"
    lines = {row[0]: row[1:] for row in table.rows}
    before, after = summary.audit_before, summary.audit_after
    loss = lines["log loss"]
    interval = before.intervals["log_loss"]
    assert (
        loss[0]
        == f"{decimal(before.log_loss)} ({decimal(interval.low)} to {decimal(interval.high)})"
    )
    assert loss[1].startswith(decimal(after.log_loss))
    # The entropy of stated probabilities is no promise of what calibration achieves.
    assert loss[2] == lines["Brier score"][2] == lines["mean confidence"][2] == ""
    error = lines["ECE"]
    assert error[2] == decimal(after.expected_if_calibrated)
    assert table.caption.endswith("15 bins of equal width")
    texts = [block.text for block in metrics_section(summary).blocks if isinstance(block, Text)]
    assert texts == [summary.recalibration.method, NEAR_ZERO, "1 row without a label left out."]


def test_intervals_of_errors_near_0_are_noted_to_be_too_high(summary: Summary) -> None:
    far = replace(summary.audit_before, expected_calibration_error=0.5)
    near = replace(far, expected_calibration_error=far.expected_if_calibrated)
    for after, is_noted in ((near, True), (far, False), (replace(near, intervals={}), False)):
        blocks = metrics_section(replace(summary, audit_before=far, audit_after=after)).blocks
        assert (Text(NEAR_ZERO) in blocks) is is_noted


def test_an_infinite_loss_has_its_reason() -> None:
    batch = Batch.of([0, 1] * 10, [[1.0, 0.0], [1.0, 0.0]] * 10)
    lines = {
        row[0]: row[1:] for row in table_of(metrics_section(Summary.of(ArrayShards(batch)))).rows
    }
    assert lines["log loss"][0] == "infinite: 10 rows with probability 0"


def test_a_sample_of_the_rows_is_noted(summary: Summary) -> None:
    many = replace(summary, whole=replace(summary.whole, n_rows=1_000_000))
    last = [block for block in metrics_section(many).blocks if isinstance(block, Text)][-1]
    assert last.text.startswith("The verdict is based on all 1,000,000 rows, everything else on a")


@pytest.mark.slow
def test_the_leaderboard_has_every_candidate_best_first(summary: Summary) -> None:
    table = table_of(calibrators_section(summary))
    losses = [float(row[1]) for row in table.rows]
    assert losses == sorted(losses)
    assert "IdentityCalibrator()" in [row[0] for row in table.rows]
    best = summary.recalibration.leaderboard[0]
    low, high = (best["log_loss"] + sign * 1.96 * best["standard_error"] for sign in (-1, 1))
    assert table.rows[0][2] == f"{low:.4f} to {high:.4f}"
    assert table.columns[2] == "95 % interval"
    few = Summary.of(ArrayShards(Batch.of([0, 1], [[0.5, 0.5]] * 2)))
    assert calibrators_section(few).blocks == (Text(few.recalibration.method),)


@pytest.mark.parametrize(
    ("accuracy", "text"),
    [
        (0.75, "All rows (400 rows): every bin is within the range of a calibrated model."),
        (0.5, "All rows (400 rows): 1 of 1 bin over-confident, beyond chance."),
        (1.0, "All rows (400 rows): 1 of 1 bin under-confident, beyond chance."),
    ],
)
def test_a_caption_counts_miscalibrated_bins(accuracy: float, text: str) -> None:
    y = (np.arange(400) >= 400 * accuracy).astype(int)
    assert _caption(reliability_curve(y, [[0.75, 0.25]] * 400), "all rows") == text
