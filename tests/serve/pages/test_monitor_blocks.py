"""The monitor says what is known, what is not and why, and never more."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito.decide import Policy
from dubito.monitor.sequential import SequentialAlarm
from dubito.report.content import Cards, Figure, Row, Table, Text
from dubito.serve.comparing import Comparison
from dubito.serve.pages.monitor_blocks import (
    comparison,
    figure_blocks,
    policy_table,
    shift_blocks,
    verdict_of,
)
from dubito.serve.refitting import refit, reports_on
from dubito.serve.standing import rows_taken
from dubito.serve.store import StoredPolicy
from tests.serve.stored import drawn_rows, figures_of


@pytest.fixture(scope="module")
def figures(policy: Policy) -> Any:
    return figures_of(drawn_rows(policy, 2000, 0.1)[0], policy)


def with_alarms(figures: Any, calibration: SequentialAlarm, doubt: SequentialAlarm) -> Any:
    return replace(figures, alarms={"calibration": calibration, "doubt": doubt})


def test_verdicts(figures: Any) -> None:
    quiet, some = SequentialAlarm(tolerance=0.02), SequentialAlarm().update([0.9], [1])
    over = quiet.update([0.9] * 60, [0] * 60)
    under = quiet.update([0.3] * 60, [1] * 60)
    sure = "Each alarm is false in at most 5\u00a0% of all cases, however often one looks."
    found = verdict_of(with_alarms(figures, over, quiet))
    assert (found.headline, found.mood) == ("Over-confident.", "bad")
    assert found.sentences == (
        f"Found after {over.alarmed_after} labels of rows drawn at random: "
        "confidence is off by more than 2 points.",
        sure,
    )
    assert verdict_of(with_alarms(figures, under, quiet)).headline == "Under-confident."
    found = verdict_of(with_alarms(figures, some, under))
    assert (found.headline, found.mood) == ("Inputs look different.", "bad")
    rise = "Doubt has risen since the first rows; no label is needed to see that."
    assert found.sentences == (rise, sure)
    fall = verdict_of(with_alarms(figures, some, over)).sentences[0]
    assert fall == "Doubt has fallen since the first rows; no label is needed to see that."
    found = verdict_of(with_alarms(figures, quiet, quiet))
    assert (found.headline, found.mood) == ("Unknown.", "neutral")
    found = verdict_of(with_alarms(figures, some, quiet))
    assert (found.headline, found.mood) == ("No alarm.", "good")
    assert found.sentences[0].startswith("No sign that confidence is off in 1 label of rows drawn")


def test_figures_are_cards_and_charts(figures: Any, policy: Policy) -> None:
    cards, how, row = figure_blocks(figures, policy)
    assert isinstance(cards, Cards)
    assert isinstance(how, Text)
    assert isinstance(row, Row)
    cost = figures.whole.cost.interval
    assert cards.cards[2].value == f"{cost.value:.4f}"
    assert cards.cards[2].note == f"{cost.low:.4f} to {cost.high:.4f}"
    assert cards.cards[0].note.endswith(f"{figures.whole.if_calibrated:.4f} if calibrated")
    assert cards.cards[3].value == f"{100 * figures.whole.coverage.interval.value:.1f}\u00a0%"
    assert how.text.startswith(
        f"Last 30 days: 2,000 rows decided, {figures.whole.n_labels:,} labels stand"
    )
    titles = [block.title for block in row.blocks if isinstance(block, Figure)]
    assert titles == ["ECE", "Log loss", "Cost a row", "Coverage"]


def test_what_is_unknown_says_so(policy: Policy) -> None:
    rows = rows_taken(drawn_rows(policy, 50, 0.1)[0], slice(0, 0))
    empty = figures_of(rows, policy)
    cards, _, row = figure_blocks(empty, policy)
    assert isinstance(cards, Cards)
    assert {(card.value, card.note) for card in cards.cards} == {
        ("unknown", "No row was decided yet.")
    }
    assert isinstance(row, Row)
    chart = row.blocks[0]
    assert isinstance(chart, Figure)
    assert chart.caption.endswith("1 of 1 windows are unknown.")
    words = [block.text for block in shift_blocks(empty, policy) if isinstance(block, Text)]
    assert words == [
        "Drift of doubt: unknown, as fewer than 200 rows were decided.",
        "How common classes are: unknown, as fewer than 100 rows were decided.",
    ]


def test_shifts_are_told_with_their_intervals(figures: Any, policy: Policy) -> None:
    doubt, table = shift_blocks(figures, policy)
    assert isinstance(doubt, Text)
    assert f"{100 * figures.doubt.difference.value:+.1f} points (" in doubt.text
    assert isinstance(table, Table)
    assert table.columns == ("class", "when fitted", "now", "95 % interval")
    assert sorted(row[0] for row in table.rows) == ["0", "1", "2"]
    far = np.abs(figures.prior.prior - figures.usual_prior)
    assert table.rows[0][0] == str(far.argmax())
    dark = replace(figures.prior, is_identified=np.zeros(3, np.bool_))
    _, hidden = shift_blocks(replace(figures, prior=dark), policy)
    assert isinstance(hidden, Table)
    assert {row[2] for row in hidden.rows} == {"unknown"}


def test_a_candidate_stands_beside_the_active_policy(policy: Policy) -> None:
    rows = drawn_rows(policy, 2000, 0.1, sharper=2.7)[0]
    candidate = refit(rows, policy, lambda _: None)
    (active,) = reports_on(rows, [policy], lambda _: None, "labels so far")
    found = Comparison(active, candidate.report, "some rows", ("Mind this.",))
    table, note = comparison(found)
    assert isinstance(table, Table)
    assert table.caption == (
        "The active policy and the candidate, both on some rows; 95 % intervals"
    )
    assert note == Text("Mind this.")
    assert table.columns == ("", "active", "candidate")
    lines = {name: (before, after) for name, before, after in table.rows}
    assert lines["labels"][0] == lines["labels"][1]
    assert lines["judged on"] == ("labels so far", "cross-fitted in 5 folds")
    assert lines["log loss"][0] == f"{active.log_loss_after:.4f}"
    none = replace(active, risk=None)
    (table,) = comparison(Comparison(none, none, "some rows", ()))
    assert isinstance(table, Table)
    assert ("wrong among decided", "none", "none") in table.rows


def test_policies_are_listed_newest_first() -> None:
    kept = [
        StoredPolicy(1, 0.0, "{}", is_active=False, was_active=True),
        StoredPolicy(2, 86_400.0, "{}", is_active=True, was_active=True),
        StoredPolicy(3, 90_000.0, "{}", is_active=False, learned_until=89_000.0),
    ]
    assert policy_table(kept).rows == (
        ("3", "1970-01-02 01:00", "refitted", "never yet"),
        ("2", "1970-01-02 00:00", "uploaded", "in force"),
        ("1", "1970-01-01 00:00", "uploaded", "was in force"),
    )
