"""The monitor page shows what is known, and why the rest is not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito.decide import Policy
from dubito.measure import Interval
from dubito.monitor.sequential import SequentialAlarm
from dubito.report.charts.svg import draw_svg
from dubito.report.content import Cards, Figure, Row, Table, Text
from dubito.serve.monitor import Estimate, Window
from dubito.serve.pages.monitor_blocks import (
    _chart,
    comparison_blocks,
    metric_blocks,
    policy_table,
    shift_blocks,
    verdict,
)
from dubito.serve.refit import PolicyComparison, _evaluate_policies, refit
from dubito.serve.store import StoredPolicy
from tests.serve.stored import drawn_rows, report_of


@pytest.fixture(scope="module")
def report(policy: Policy) -> Any:
    return report_of(drawn_rows(policy, 2000, 0.1)[0], policy)


def with_alarms(report: Any, calibration: SequentialAlarm, uncertainty: SequentialAlarm) -> Any:
    return replace(report, alarms={"calibration": calibration, "uncertainty": uncertainty})


@pytest.mark.slow
def test_verdicts(report: Any) -> None:
    quiet, some = SequentialAlarm(tolerance=0.02), SequentialAlarm().update([0.9], [1])
    over = quiet.update([0.9] * 60, [0] * 60)
    under = quiet.update([0.3] * 60, [1] * 60)
    sure = "Each alarm is false with probability at most 5 %, however often it is checked."
    found = verdict(with_alarms(report, over, quiet))
    assert (found.headline, found.mood) == ("Over-confident.", "bad")
    assert found.sentences == (
        "Confidence deviates from accuracy by more than 2 points, "
        f"found after {over.alarmed_after} labels of audited rows.",
        sure,
    )
    assert verdict(with_alarms(report, under, quiet)).headline == "Under-confident."
    found = verdict(with_alarms(report, some, under))
    assert (found.headline, found.mood) == ("Inputs have shifted.", "bad")
    rise = "Model uncertainty has increased since the first rows (no labels needed)."
    assert found.sentences == (rise, sure)
    fall = verdict(with_alarms(report, some, over)).sentences[0]
    assert fall == "Model uncertainty has decreased since the first rows (no labels needed)."
    found = verdict(with_alarms(report, quiet, quiet))
    assert (found.headline, found.mood) == ("Unknown.", "neutral")
    found = verdict(with_alarms(report, some, quiet))
    assert (found.headline, found.mood) == ("No alarm.", "good")
    assert found.sentences[0].startswith("No sign of miscalibration in 1 label of audited rows")


def test_metrics_are_cards_and_charts(report: Any, policy: Policy) -> None:
    cards, how, row = metric_blocks(report, policy)
    assert isinstance(cards, Cards)
    assert isinstance(how, Text)
    assert isinstance(row, Row)
    cost = report.overall.cost.interval
    assert cards.cards[2].value == f"{cost.value:.4f}"
    assert cards.cards[2].note == f"{cost.low:.4f} to {cost.high:.4f}"
    assert cards.cards[0].note.endswith(
        f"{report.overall.expected_if_calibrated:.4f} expected if calibrated"
    )
    assert cards.cards[3].value == f"{100 * report.overall.coverage.interval.value:.1f} %"
    assert how.text.startswith(
        f"Last 30 days: 2,000 rows decided, {report.overall.n_labels:,} labels used."
    )
    titles = [block.title for block in row.blocks if isinstance(block, Figure)]
    assert titles == ["ECE", "Log loss", "Cost per row", "Coverage"]


def test_unknown_metrics_have_a_reason(policy: Policy) -> None:
    rows = drawn_rows(policy, 50, 0.1)[0].take(slice(0, 0))
    empty = report_of(rows, policy)
    cards, _, row = metric_blocks(empty, policy)
    assert isinstance(cards, Cards)
    assert {(card.value, card.note) for card in cards.cards} == {
        ("unknown", "No rows have been decided yet.")
    }
    assert isinstance(row, Row)
    chart = row.blocks[0]
    assert isinstance(chart, Figure)
    assert chart.caption.endswith("Unknown in 1 of 1 windows.")
    words = [block.text for block in shift_blocks(empty, policy) if isinstance(block, Text)]
    assert words == [
        "Shift of the uncertainty: unknown, because fewer than 200 rows were decided.",
        "Class priors: unknown, because fewer than 100 rows were decided.",
    ]


def test_shifts_have_intervals(report: Any, policy: Policy) -> None:
    uncertainty, table = shift_blocks(report, policy)
    assert isinstance(uncertainty, Text)
    assert f"{100 * report.uncertainty.difference.value:+.1f} points (" in uncertainty.text
    assert isinstance(table, Table)
    assert table.columns == ("class", "at the fit", "now", "95 % interval")
    assert sorted(row[0] for row in table.rows) == ["0", "1", "2"]
    far = np.abs(report.prior.prior - report.reference_prior)
    assert table.rows[0][0] == str(far.argmax())
    dark = replace(report.prior, is_identified=np.zeros(3, np.bool_))
    _, hidden = shift_blocks(replace(report, prior=dark), policy)
    assert isinstance(hidden, Table)
    assert {row[2] for row in hidden.rows} == {"unknown"}


def test_a_candidate_is_shown_beside_the_active_policy(policy: Policy) -> None:
    rows = drawn_rows(policy, 2000, 0.1, sharper=2.7)[0]
    candidate = refit(rows, policy, lambda _: None)
    (active,) = _evaluate_policies(rows, [policy], lambda _: None, "labels so far")
    found = PolicyComparison(active, candidate.report, "some rows", ("Mind this.",))
    table, note = comparison_blocks(found)
    assert isinstance(table, Table)
    assert table.caption == (
        "The active policy and the candidate on some rows; 95 % confidence intervals"
    )
    assert note == Text("Mind this.")
    assert table.columns == ("", "active", "candidate")
    lines = {name: (before, after) for name, before, after in table.rows}
    assert lines["labels"][0] == lines["labels"][1]
    assert lines["evidence"] == ("labels so far", "cross-fitted in 5 folds")
    assert lines["log loss"][0] == f"{active.log_loss_after:.4f}"
    none = replace(active, risk=None)
    (table,) = comparison_blocks(PolicyComparison(none, none, "some rows", ()))
    assert isinstance(table, Table)
    assert ("error rate of decided rows", "none", "none") in table.rows


def test_policies_are_listed_newest_first() -> None:
    kept = [
        StoredPolicy(1, 0.0, "{}", is_active=False, was_active=True),
        StoredPolicy(2, 86_400.0, "{}", is_active=True, was_active=True),
        StoredPolicy(3, 90_000.0, "{}", is_active=False, trained_until=89_000.0),
    ]
    assert policy_table(kept).rows == (
        ("3", "1970-01-02 01:00", "refitted", "never active"),
        ("2", "1970-01-02 00:00", "uploaded", "active"),
        ("1", "1970-01-01 00:00", "uploaded", "was active"),
    )


UNKNOWN = Estimate(None, "no labels")


def window(log_loss: Estimate, n_rows: int = 100) -> Window:
    return Window(0.0, 1.0, n_rows, 40, "", UNKNOWN, UNKNOWN, log_loss, UNKNOWN, None)


def test_known_windows_are_drawn_and_unknown_ones_are_gaps() -> None:
    known = Estimate(Interval(0.5, 0.25, 0.75))
    windows = [window(known), window(UNKNOWN), window(known, 200)]
    losses = [one.log_loss for one in windows]
    [chart] = _chart("Log loss", windows, losses, [0.4] * len(windows)).charts
    svg = draw_svg(chart)
    assert svg.count("<circle") == 2
    assert svg.count('class="line after"') == 2
    assert svg.count('class="line reference"') == 3
    assert svg.count("<title>0.5 (0.25 to 0.75), 40 labels</title>") == 2
    assert 'aria-label="Log loss over time"' in svg
    places = [float(part.split('"')[0]) for part in svg.split('cx="')[1:]]
    # 50 and 300 of 400 rows, between the ends of the axis.
    assert places == pytest.approx([76 + 300 * 50 / 400, 76 + 300 * 300 / 400], abs=0.06)


def test_nothing_known_is_an_empty_chart() -> None:
    [chart] = _chart("Cost", [window(UNKNOWN)], [UNKNOWN], [None]).charts
    svg = draw_svg(chart)
    assert "<circle" not in svg
    assert "nan" not in svg
