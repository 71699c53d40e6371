"""What the monitor page says: verdict, figures, charts, shifts, and two policies side by side."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import numpy as np

from dubito.charts import percent, plain
from dubito.decide import Policy
from dubito.decide.policy.report import PolicyReport
from dubito.measure import Interval
from dubito.report.content import Block, Card, Cards, Row, Table, Text, Verdict
from dubito.report.content import Figure as Drawn
from dubito.report.formatting import decimal, percentage, quantity, with_interval
from dubito.serve.comparing import Comparison
from dubito.serve.monitor import WINDOW_DAYS, Figure, MonitorFigures, Window
from dubito.serve.pages.charts import over_time
from dubito.serve.store import StoredPolicy

Tell = Callable[[float | None], str]
MOST_CLASSES = 12  # that a table shows
FEW = "a calibrated model on so few labels"


def verdict_of(figures: MonitorFigures) -> Verdict:
    """Return what alarms say, and what that is worth."""
    alarm, doubt = figures.alarms["calibration"], figures.alarms["doubt"]
    level = percentage(alarm.level, 0)
    sure = f"Each alarm is false in at most {level} of all cases, however often one looks."
    moved = [] if not doubt.has_alarmed else [_doubt_words(doubt.direction)]
    if alarm.has_alarmed:
        kind = "Over" if alarm.direction == "over" else "Under"
        found = quantity(alarm.alarmed_after or 0, "label")
        off = f"by more than {100 * alarm.tolerance:.0f} points"
        said = f"Found after {found} of rows drawn at random: confidence is off {off}."
        return Verdict(f"{kind}-confident.", (said, *moved, sure), "bad")
    if moved:
        return Verdict("Inputs look different.", (*moved, sure), "bad")
    if not alarm.n_labels:
        said = "No row that was drawn at random has a label yet, so nobody can tell."
        return Verdict("Unknown.", (said,))
    said = (
        f"No sign that confidence is off in {quantity(alarm.n_labels, 'label')} of rows drawn at "
        f"random (p-value {alarm.p_value:.2g}, valid at any time)."
    )
    return Verdict("No alarm.", (said, sure), "good")


def _doubt_words(direction: str | None) -> str:
    """Say which way doubt went."""
    way = "risen" if direction == "under" else "fallen"
    return f"Doubt has {way} since the first rows; no label is needed to see that."


def figure_blocks(figures: MonitorFigures, policy: Policy) -> list[Block]:
    """Return the figures so far, and how they went."""
    whole, report = figures.whole, policy.report
    chance = whole.if_calibrated
    beside = "" if chance is None else f"{decimal(chance)} if calibrated"
    cards = Cards(
        (
            _card("ECE (15 uniform bins)", whole.calibration_error, decimal, beside),
            _card("Log loss", whole.log_loss, decimal),
            _card("Cost a row", whole.cost, decimal),
            _card("Coverage: decided, not asked", whole.coverage, percentage),
        )
    )
    asked = f"{quantity(whole.n_rows)} decided, {quantity(whole.n_labels, 'label')} stand for them"
    told = (
        f"Last {WINDOW_DAYS:.0f} days: {asked}, each weighed by one over its chance to be asked "
        "for. All rows that were handed over count once readers have seen each; until then those "
        "drawn at random. Ranges are 95\u00a0% intervals."
    )
    how = Text(f"{told} {whole.note}".rstrip())
    charts = [
        _chart(
            "ECE", figures, lambda w: w.calibration_error, plain, lambda w: w.if_calibrated, FEW
        ),
        _chart("Log loss", figures, lambda w: w.log_loss, plain, lambda _: report.log_loss_after),
        _chart("Cost a row", figures, lambda w: w.cost, plain, lambda _: report.cost.value),
        _chart("Coverage", figures, lambda w: w.coverage, percent, lambda _: report.coverage.value),
    ]
    return [cards, how, Row(tuple(charts))]


def _card(name: str, found: Figure, tell: Tell, beside: str = "") -> Card:
    """Return a figure as a card; "unknown" with the reason where there is none."""
    if found.interval is None:
        return Card(name, "unknown", found.unknown)
    one = found.interval
    notes = [f"{tell(one.low)} to {tell(one.high)}", *([beside] if beside else [])]
    return Card(name, tell(one.value), "; ".join(notes))


def _chart(
    name: str,
    figures: MonitorFigures,
    pick: Callable[[Window], Figure],
    tell: Callable[[float], str],
    usual: Callable[[Window], float | None],
    dashed: str = "what the fit promised",
) -> Drawn:
    """Return a figure over time."""
    unknown = [window for window in figures.windows if pick(window).interval is None]
    caption = f"Oldest rows to newest; dashed: {dashed}."
    if unknown:
        caption += f" {len(unknown)} of {len(figures.windows)} windows are unknown."
    return Drawn(name, (over_time(name, figures.windows, pick, tell, usual),), caption)


def shift_blocks(figures: MonitorFigures, policy: Policy) -> list[Block]:
    """Return what moved without any label: doubt, and how common classes are."""
    blocks: list[Block] = []
    shift = figures.doubt
    if shift is None or shift.difference is None:
        blocks.append(Text("Drift of doubt: unknown, as fewer than 200 rows were decided."))
    else:
        blocks.append(
            Text(
                f"Mean doubt was {percentage(shift.reference)} among the first rows and is "
                f"{percentage(shift.current)} among the last: {_with_points(shift.difference)}."
            )
        )
    prior = figures.prior
    if prior is None:
        blocks.append(Text("How common classes are: unknown, as fewer than 100 rows were decided."))
        return blocks
    order = np.argsort(-np.abs(prior.prior - figures.usual_prior), kind="stable")[:MOST_CLASSES]
    lines = tuple(
        (
            str(policy.classes[k]),
            percentage(float(figures.usual_prior[k])),
            percentage(float(prior.prior[k])) if prior.is_identified[k] else "unknown",
            f"{percentage(float(prior.low[k]))} to {percentage(float(prior.high[k]))}",
        )
        for k in order
    )
    caption = (
        f"How common classes are among the last {prior.n_rows:,} rows, from outputs alone: true if "
        "only that has changed"
    )
    names = ("class", "when fitted", "now", "95 % interval")
    blocks.append(Table(caption, names, lines))
    return blocks


def _with_points(one: Interval) -> str:
    """Return a difference of shares in points, with its interval."""
    low, value, high = (f"{100 * end:+.1f}" for end in (one.low, one.value, one.high))
    return f"{value} points ({low} to {high})"


def comparison(found: Comparison) -> list[Block]:
    """Return two policies side by side, on the same rows, and what to bear in mind."""

    def line(name: str, tell: Callable[[PolicyReport], str]) -> tuple[str, str, str]:
        return name, tell(found.active), tell(found.candidate)

    rows = (
        line("cost a row", lambda r: with_interval(r.cost.value, r.cost)),
        line("cost it expected", lambda r: decimal(r.predicted_cost)),
        line("coverage", lambda r: _shares(r.coverage)),
        line("wrong among decided", lambda r: "none" if r.risk is None else _shares(r.risk)),
        line("log loss", lambda r: decimal(r.log_loss_after)),
        line("ECE (15 uniform bins)", lambda r: decimal(r.calibration_error_after)),
        line("labels", lambda r: f"{r.n_rows:,}"),
        line("judged on", lambda r: r.how),
    )
    caption = f"The active policy and the candidate, both on {found.rows}; 95 % intervals"
    table = Table(caption, ("", "active", "candidate"), rows)
    return [table, *(Text(note) for note in found.notes)]


def policy_table(kept: Sequence[StoredPolicy]) -> Table:
    """Return all policies, newest first."""
    states = {(True, True): "in force", (False, True): "was in force", (False, False): "never yet"}
    lines = tuple(
        (
            f"{one.id}",
            datetime.fromtimestamp(one.created, UTC).strftime("%Y-%m-%d %H:%M"),
            "uploaded" if one.learned_until is None else "refitted",
            states[one.is_active, one.was_active],
        )
        for one in reversed(kept)
    )
    return Table("All policies", ("policy", "kept since (UTC)", "came by", "in force"), lines)


def _shares(one: Interval) -> str:
    """Return a share with its interval."""
    return f"{percentage(one.value)} ({percentage(one.low)} to {percentage(one.high)})"
