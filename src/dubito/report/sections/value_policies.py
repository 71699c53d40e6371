"""The section on what a regression policy decides and reviews, and the verdict on it."""

from __future__ import annotations

from dubito.decide import RegressionPolicy, RegressionPolicyReport
from dubito.decide.regression.value_decisions import REASON_TEXTS, REASONS
from dubito.decide.regression.value_report import CURRENT
from dubito.formatting import decimal, percent, plain, short_percent
from dubito.measure import Interval
from dubito.report.content import Block, Card, Cards, Section, Table, Text, Verdict


def value_policy_verdict(figures: RegressionPolicyReport) -> Verdict:
    """Return what decisions cost, compared with the predicted mean, and what is reviewed."""
    lines = figures.lines
    cost, others = lines[0], [one for one in lines[2:-2] if one]
    mood = "good" if figures.mean_saved.low > 0 else "neutral"
    headline = f"Decisions cost {decimal(figures.cost.value)} per row."
    return Verdict(headline, (cost, " ".join(others)), mood)


def value_decisions_section(policy: RegressionPolicy, figures: RegressionPolicyReport) -> Section:
    """Return what is decided and reviewed, its figures, and those of other rules."""
    blocks: list[Block] = [Text(" ".join(policy.rule_lines)), _cards(figures), _rule_table(figures)]
    if figures.review_rate.value:
        blocks.append(_reason_table(figures))
    notes = [*figures.lines[-2:], *figures.notes]
    return Section("policy", "What is decided?", (*blocks, Text(" ".join(notes))))


def _cards(figures: RegressionPolicyReport) -> Cards:
    """Return the key figures with their intervals."""
    saved, coverage, rate = figures.mean_saved, figures.coverage, figures.review_rate
    cards = [
        Card("Cost per row", decimal(figures.cost.value), _between(figures.cost)),
        Card(f"Saved over {CURRENT}", f"{saved.value:+.4g}", _between(saved)),
        Card(
            f"Coverage of {short_percent(figures.level)} intervals",
            percent(coverage.value),
            _percents(coverage),
        ),
    ]
    if rate.value:
        cards.append(Card("Rows reviewed", percent(rate.value), _percents(rate)))
    return Cards(tuple(cards))


def _between(interval: Interval) -> str:
    """Return the ends of an interval."""
    return f"95 % interval {decimal(interval.low)} to {decimal(interval.high)}"


def _percents(interval: Interval) -> str:
    """Return the ends of an interval of fractions."""
    return f"95 % interval {percent(interval.low)} to {percent(interval.high)}"


def _rule_table(figures: RegressionPolicyReport) -> Table:
    """Return the cost of the policy beside those of simpler rules."""
    rows = (
        ("this policy", decimal(figures.cost.value)),
        ("optimal decisions on uncalibrated outputs", decimal(figures.raw_cost)),
        (CURRENT, decimal(figures.mean_cost)),
        (f"always {plain(figures.constant_value)}", decimal(figures.constant_cost)),
    )
    caption = (
        f"Mean cost per row. The policy expected {decimal(figures.expected_cost)}; the best "
        "constant value is found in hindsight."
    )
    return Table(caption, ("rule", "cost per row"), rows)


def _reason_table(figures: RegressionPolicyReport) -> Table:
    """Return why rows are reviewed."""
    pairs = zip(REASONS[1:], REASON_TEXTS[1:], strict=True)
    return Table.of(
        "Why rows are reviewed: of several reasons, the last one counts.",
        [(text, figures.reasons[name]) for name, text in pairs],
        ("reason", lambda one: one[0]),
        ("rows", lambda one: percent(one[1])),
    )
