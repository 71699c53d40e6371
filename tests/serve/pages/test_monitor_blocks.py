"""The monitor page shows what is known, and why the rest is not."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito.decide import Policy
from dubito.formatting import decimal
from dubito.measure import Interval
from dubito.monitor import SequentialAlarm
from dubito.report.content import Cards, Figure, Row, Table, Text
from dubito.report.svg import draw_svg
from dubito.serve.pages.monitor_blocks import (
    _chart,
    _confidence_verdict,
    _Metric,
    _metric_blocks,
    _reliability,
    _shift_blocks,
    comparison_blocks,
    policy_table,
)
from dubito.serve.policies import PolicyComparison, _evaluate_policies, _refit
from dubito.serve.policy_metrics import ClassWindow
from dubito.serve.store import StoredPolicy
from dubito.serve.weighted_estimates import Estimate, Reliability
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
    found = _confidence_verdict(with_alarms(report, over, quiet))
    assert (found.headline, found.mood) == ("Over-confident.", "bad")
    assert found.sentences == (
        "Confidence deviates from accuracy by more than 2 points, "
        f"found after {over.alarmed_after} labels of audited rows.",
        sure,
    )
    assert _confidence_verdict(with_alarms(report, under, quiet)).headline == "Under-confident."
    found = _confidence_verdict(with_alarms(report, some, under))
    assert (found.headline, found.mood) == ("Inputs have shifted.", "bad")
    rise = "Model uncertainty has increased since the first rows (no labels needed)."
    assert found.sentences == (rise, sure)
    fall = _confidence_verdict(with_alarms(report, some, over)).sentences[0]
    assert fall == "Model uncertainty has decreased since the first rows (no labels needed)."
    found = _confidence_verdict(with_alarms(report, quiet, quiet))
    assert (found.headline, found.mood) == ("Unknown.", "neutral")
    found = _confidence_verdict(with_alarms(report, some, quiet))
    assert (found.headline, found.mood) == ("No alarm.", "good")
    assert found.sentences[0].startswith("No sign of miscalibration in 1 label of audited rows")


def test_metrics_are_cards_and_charts(report: Any, policy: Policy) -> None:
    cards, how, row, intro, curve = _metric_blocks(report, policy)
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
    assert isinstance(intro, Text)
    assert isinstance(curve, Row)
    [figure] = curve.blocks
    assert isinstance(figure, Figure)
    assert draw_svg(figure.charts[0]).count("<circle") == report.reliability.stated.size == 10


def test_unknown_metrics_have_a_reason(policy: Policy) -> None:
    rows = drawn_rows(policy, 50, 0.1)[0].take(slice(0, 0))
    empty = report_of(rows, policy)
    cards, _ = _metric_blocks(empty, policy)  # and no charts
    assert isinstance(cards, Cards)
    assert {(card.value, card.note) for card in cards.cards} == {
        ("unknown", "No rows have been decided yet.")
    }
    words = [block.text for block in _shift_blocks(empty, policy) if isinstance(block, Text)]
    assert words == [
        "Shift of the uncertainty: unknown, because fewer than 200 rows were decided.",
        "Class priors: unknown, because fewer than 100 rows were decided.",
    ]


def test_shifts_have_intervals(report: Any, policy: Policy) -> None:
    uncertainty, table = _shift_blocks(report, policy)
    assert isinstance(uncertainty, Text)
    assert f"{100 * report.uncertainty.difference.value:+.1f} points (" in uncertainty.text
    assert isinstance(table, Table)
    assert table.columns == ("class", "at the fit", "now", "95 % interval")
    assert sorted(row[0] for row in table.rows) == ["0", "1", "2"]
    far = np.abs(report.prior.prior - report.reference_prior)
    assert table.rows[0][0] == str(far.argmax())
    dark = replace(report.prior, is_identified=np.zeros(3, np.bool_))
    _, hidden = _shift_blocks(replace(report, prior=dark), policy)
    assert isinstance(hidden, Table)
    assert {row[2] for row in hidden.rows} == {"unknown"}


def test_a_candidate_is_shown_beside_the_active_policy(policy: Policy) -> None:
    rows = drawn_rows(policy, 2000, 0.1, sharper=2.7)[0]
    candidate = _refit(rows, policy, lambda _: None)
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
LOG_LOSS = _Metric("", "log_loss", decimal, "Log loss")


def window(log_loss: Estimate, start: float = 0.0, end: float = 86_400.0) -> ClassWindow:
    return ClassWindow(start, end, 100, 40, "", UNKNOWN, UNKNOWN, log_loss, UNKNOWN, None)


def test_hints_count_in_english() -> None:
    one = replace(window(Estimate(Interval(0.5, 0.25, 0.75))), n_labels=1)
    figure = _chart(LOG_LOSS, [one])
    assert figure is not None
    assert "0.75), 1 label, around" in draw_svg(figure.charts[0])


def test_known_windows_are_drawn_and_unknown_ones_are_gaps() -> None:
    known = Estimate(Interval(0.5, 0.25, 0.75))
    day = 86_400.0
    windows = [window(known), window(UNKNOWN, day, 2 * day), window(known, 3 * day, 5 * day)]
    figure = _chart(LOG_LOSS._replace(reference=0.4), windows)
    assert figure is not None
    [chart] = figure.charts
    svg = draw_svg(chart)
    assert svg.count("<circle") == 2
    assert svg.count('class="line after"') == 2
    assert svg.count('class="line reference"') == 3
    words = "<title>0.5 (0.25 to 0.75), 40 labels, around 1970-01-01 12:00</title>"
    assert svg.count(words) == 1
    assert ">decided, 1970 (UTC)<" in svg
    assert [f">Jan {k}<" in svg for k in range(1, 8)] == [True] * 6 + [False]
    assert 'aria-label="Log loss over time"' in svg
    places = [float(part.split('"')[0]) for part in svg.split('cx="')[1:]]
    # Half a day and four days of five, between the ends of the axis.
    assert places == pytest.approx([76 + 300 * 0.1, 76 + 300 * 0.8], abs=0.06)


def test_nothing_known_is_no_chart() -> None:
    assert _chart(LOG_LOSS, [window(UNKNOWN)]) is None


def test_windows_of_one_request_are_side_by_side() -> None:
    known = Estimate(Interval(0.5, 0.25, 0.75))
    figure = _chart(LOG_LOSS._replace(reference=0.4), [window(known, 60.0, 60.0)] * 3)
    assert figure is not None
    svg = draw_svg(figure.charts[0])
    assert len({part.split('"')[0] for part in svg.split('cx="')[1:]}) == 3
    assert ">window of rows, decided Jan 1 00:01, 1970 (UTC)<" in svg
    assert all(f">{k}<" in svg for k in (1, 2, 3))


def test_reliability_of_rare_events_is_on_a_scale_of_log_odds() -> None:
    """Where nine of ten points are below 10 %, they would lie on top of each other."""
    stated = np.array([0.001, 0.002, 0.003, 0.005, 0.007, 0.01, 0.015, 0.02, 0.05, 0.6])
    observed = np.where(stated < 0.002, 0.0, stated)
    counts = np.full(10, 500)
    found = Reliability(stated, observed, observed / 2, np.minimum(2 * stated, 1), counts)
    _, row = _reliability(found, "P(fraud)", "Observed frequency", "")
    assert isinstance(row, Row)
    [figure] = row.blocks
    assert isinstance(figure, Figure)
    assert figure.caption.startswith("Both axes are on a scale of log odds")
    svg = draw_svg(figure.charts[0])
    at = sorted(float(part.split('"')[0]) for part in svg.split('cx="')[1:])
    assert len(at) == 10
    assert min(np.diff(at)) > 5
    assert "nan" not in svg
