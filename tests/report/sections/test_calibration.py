"""Diagrams, figures and the leaderboard say what was computed."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito import TopLabel
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards
from dubito.measure import reliability_curve
from dubito.report.blocks import Cards, Choice, Row, Table, Text
from dubito.report.formatting import figure, share
from dubito.report.sections.calibration import NEAR_ZERO, _seen, diagrams, figures, leaderboard
from dubito.report.summary import Summary


def table_of(section: Any) -> Table:
    return next(block for block in section.blocks if isinstance(block, Table))


def test_every_view_can_be_chosen(summary: Summary) -> None:
    cards, _, choice = diagrams(summary).blocks
    assert isinstance(cards, Cards)
    assert isinstance(choice, Choice)
    assert [name for name, _ in choice.options] == [view.name for view in summary.views]
    assert all(isinstance(row, Row) and len(row.blocks) == 2 for _, row in choice.options)
    values = [card.value for card in cards.cards]
    assert values[:2] == [
        share(summary.audit_before.confidence),
        share(summary.audit_before.accuracy),
    ]


def test_a_single_view_needs_no_choice() -> None:
    top = Batch.of(None, TopLabel([0.8, 0.7] * 6, [1, 0] * 6))
    assert isinstance(diagrams(Summary.of(ArrayShards(top))).blocks[-1], Row)


def test_two_classes_can_be_told_apart_too() -> None:
    batch = Batch.of([0, 1] * 6, [[0.8, 0.2], [0.3, 0.7]] * 6)
    names = [view.name for view in Summary.of(ArrayShards(batch)).views]
    assert names == ["all rows", "where it says 0", "where it says 1"]


def test_figures_stand_before_after_and_ideal_with_intervals(summary: Summary) -> None:
    table = table_of(figures(summary))
    lines = {row[0]: row[1:] for row in table.rows}
    before, after = summary.audit_before, summary.audit_after
    loss = lines["log loss"]
    interval = before.intervals["log_loss"]
    assert (
        loss[0] == f"{figure(before.log_loss)} ({figure(interval.low)} to {figure(interval.high)})"
    )
    assert loss[1].startswith(figure(after.log_loss))
    assert loss[2] == figure(after.entropy)
    error = lines["calibration error, ECE (15 bins of equal width)"]
    assert error[2] == figure(after.expected_if_calibrated)
    texts = [block.words for block in figures(summary).blocks if isinstance(block, Text)]
    assert texts == [summary.mended.how, NEAR_ZERO, "1 row without a label left out."]


def test_intervals_of_errors_near_0_are_told_to_lie_too_high(summary: Summary) -> None:
    far = replace(summary.audit_before, expected_calibration_error=0.5)
    near = replace(far, expected_calibration_error=far.expected_if_calibrated)
    for after, is_told in ((near, True), (far, False), (replace(near, intervals={}), False)):
        blocks = figures(replace(summary, audit_before=far, audit_after=after)).blocks
        assert (Text(NEAR_ZERO) in blocks) is is_told


def test_an_infinite_loss_says_why() -> None:
    batch = Batch.of([0, 1] * 10, [[1.0, 0.0], [1.0, 0.0]] * 10)
    lines = {row[0]: row[1:] for row in table_of(figures(Summary.of(ArrayShards(batch)))).rows}
    assert lines["log loss"][0] == "infinite: 10 rows at probability 0"


def test_a_sample_of_the_rows_is_told(summary: Summary) -> None:
    many = replace(summary, whole=replace(summary.whole, n_rows=1_000_000))
    last = [block for block in figures(many).blocks if isinstance(block, Text)][-1]
    assert last.words.startswith("The verdict is on all 1,000,000 rows; everything that needs")


def test_the_leaderboard_has_every_candidate_best_first(summary: Summary) -> None:
    table = table_of(leaderboard(summary))
    losses = [float(row[1]) for row in table.rows]
    assert losses == sorted(losses)
    assert "IdentityCalibrator()" in [row[0] for row in table.rows]
    best = summary.mended.leaderboard[0]
    low, high = (best["log_loss"] + sign * 1.96 * best["standard_error"] for sign in (-1, 1))
    assert table.rows[0][2] == f"{low:.4f} to {high:.4f}"
    assert table.columns[2] == "95\u00a0% interval"
    few = Summary.of(ArrayShards(Batch.of([0, 1], [[0.5, 0.5]] * 2)))
    assert leaderboard(few).blocks == (Text(few.mended.how),)


@pytest.mark.parametrize(
    ("right", "words"),
    [
        (0.75, "All rows (400 rows): every bin is where chance may put a calibrated model."),
        (0.5, "All rows (400 rows): of 1 bin, 1 say too much by more than chance."),
        (1.0, "All rows (400 rows): of 1 bin, 1 say too little by more than chance."),
    ],
)
def test_a_caption_says_what_one_sees(right: float, words: str) -> None:
    y = (np.arange(400) >= 400 * right).astype(int)
    assert _seen(reliability_curve(y, [[0.75, 0.25]] * 400), "all rows") == words
