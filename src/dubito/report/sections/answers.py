"""Scores of answers: which ones to trust, whether P(correct) is calibrated, what scores tell."""

from __future__ import annotations

from typing import Any

import numpy as np

from dubito.calibrate.held_out_answers import HeldOutAnswers
from dubito.decide import Policy, PolicyReport
from dubito.decide.policy.report import proportion
from dubito.formatting import ABSENT, percent, points
from dubito.measure import Audit, RiskCoverageCurve
from dubito.measure.calibration_error import ReliabilityState
from dubito.measure.detection import RankingState
from dubito.report.chart_builders import Curve, risk_chart
from dubito.report.content import (
    Block,
    Card,
    Cards,
    Figure,
    Row,
    Section,
    Table,
    Text,
    Verdict,
    between,
)
from dubito.report.sections.calibration import reliability_figure
from dubito.report.verdict import decision_lines, split_verdict

THRESHOLDS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
MAX_GROUPS = 20


def answers_verdict(
    answers: HeldOutAnswers, audit: Audit, policy: Policy | None, figures: PolicyReport | None
) -> Verdict:
    """Return which answers are given and what that costs; without a policy, how P(correct) is."""
    headline, mood, sentences = split_verdict(audit.verdict)
    about = " ".join([f"P(correct): {headline[0].lower()}{headline[1:]}", *sentences])
    if policy is None or figures is None:
        about = " ".join(sentences)
        curve = RiskCoverageCurve.of(RankingState.of(answers.calibrated))
        half = float(curve.risk[np.searchsorted(curve.coverage, 0.5)])
        ranked = (
            f"Of the half of the answers with the highest P(correct), {percent(half)} are wrong, "
            f"of all answers {percent(float(curve.risk[-1]))}."
        )
        return Verdict(headline, (f"{answers.title} {about}", ranked), mood)
    decided = [f"{percent(figures.coverage.value)} of the answers are given"]
    if figures.risk is not None:
        decided.append(f"{percent(figures.risk.value)} of these are wrong")
    cost, *_ = decision_lines(figures)
    if not figures.coverage.value:
        return Verdict("Every answer is rejected.", (cost, *figures.notes[:1], about), "bad")
    limits = [one for one in policy.thresholds if one.action in policy.costs.actions]
    head = ", ".join(decided)
    if len(limits) == 2 and policy.risk is None:
        word = "calibrated" if figures.is_calibrated else "estimated"
        head = f"Answer from {word} P(correct) {limits[1].low:.3g} on: {head}"
    return Verdict(f"{head}.", (cost, about), mood)


def answers_sections(
    answers: HeldOutAnswers, audit: Audit, policy: Policy | None, figures: PolicyReport | None
) -> list[Section]:
    """Return all sections except how the report was computed."""
    blocks: list[Block] = []
    if policy is not None and figures is not None:
        blocks = [_policy_cards(figures), Text(" ".join(str(policy).split("\n")[:1]))]
        blocks += [Text(one) for one in figures.notes]
    blocks += [_threshold_table(answers, policy), Row((_risk_figure(answers),))]
    sections = [
        Section("decisions", "Which answers to trust?", tuple(blocks)),
        _reliability_section(answers, audit),
        Section("scores", "What does each score tell?", tuple(_score_blocks(answers))),
    ]
    if audit.groups:
        sections.append(Section("groups", "Do groups differ?", (_groups_table(audit),)))
    return sections


def _policy_cards(figures: PolicyReport) -> Cards:
    """Return the key figures of decisions with their intervals."""
    cards = [
        Card.of("Answered", figures.coverage, percent),
        Card.of("Cost per row", figures.cost),
        Card.of(f"Saved over {figures.current}", figures.current_saved),
    ]
    if figures.risk is not None:
        cards.insert(1, Card.of("Wrong among the answered", figures.risk, percent))
    return Cards(tuple(cards))


def _threshold_table(answers: HeldOutAnswers, policy: Policy | None) -> Table:
    """Return how many answers are given from each P(correct) on, and how many are wrong."""
    weight, given = answers.batch.labeled_weight, answers.batch.labeled_weight
    own = _policy_thresholds(policy) if policy else {}
    rows = []
    for limit in sorted({*THRESHOLDS, *own}):
        is_given = answers.p_correct >= limit
        covered = proportion(is_given, weight, given)
        wrong: tuple[str, str] = (ABSENT, ABSENT)
        if (weight[is_given] > 0).any():
            risk = proportion(1 - answers.correct[is_given], weight[is_given], given[is_given])
            wrong = percent(risk.value), f"{percent(risk.low)} to {percent(risk.high)}"
        name = f"{limit:.3g}{own.get(limit, '')}"
        ends = f"{percent(covered.low)} to {percent(covered.high)}"
        rows.append((name, f"{is_given.sum():,}", percent(covered.value), ends, *wrong))
    caption = (
        f"Answers given from a P(correct) on, {answers.evaluation}: no row is in its own fit. "
        "Exact 95 % intervals"
    )
    heads = (
        "P(correct) from", "rows", "coverage", "95 % interval", "risk: wrong answers",
        "95 % interval",
    )  # fmt: skip
    return Table(caption, heads, tuple(rows))


def _policy_thresholds(policy: Policy) -> dict[float, str]:
    """Return from which P(correct) on a policy gives answers, and how that is marked.

    A risk bound may ask for more than costs do.
    """
    own = {round(one.low, 9): ", the policy" for one in policy.thresholds if one.low > 0}
    bound = policy.risk
    if bound is None or bound.max_cost is not None or bound.threshold_ <= max(own, default=0.0):
        return own
    return {float(bound.threshold_): ", the policy (risk bound)"}


def _risk_figure(answers: HeldOutAnswers) -> Figure:
    """Return the error rate of the answers given over their fraction."""
    batches = [("after", "P(correct)", answers.calibrated)]
    if answers.uncalibrated is not None:
        batches.insert(0, ("before", "confidence as it is", answers.uncalibrated))
    curves = [
        Curve.of_risk(style, label, RiskCoverageCurve.of(RankingState.of(batch)))
        for style, label, batch in batches
    ]
    caption = (
        "The error rate when only the answers with the highest P(correct) are given: few on the "
        "left, all on the right. The lower the line, the better errors are found."
    )
    return Figure("Risk over coverage", (risk_chart("Risk over coverage", curves),), caption)


def _reliability_section(answers: HeldOutAnswers, audit: Audit) -> Section:
    """Return the reliability of P(correct), beside that of the confidence if there is one."""
    ends = between(audit.intervals.get("gap"), points)
    error = f"expected if calibrated: {percent(audit.expected_if_calibrated)}"
    cards = (
        Card("Mean P(correct)", percent(audit.confidence)),
        Card("Correct answers", percent(audit.accuracy)),
        Card("Difference", f"{points(audit.gap)} points", ends),
        Card("ECE, out of sample", percent(audit.expected_calibration_error), error),
    )
    intro = (
        "On the dashed line, P(correct) equals the fraction of correct answers. Below it, "
        "P(correct) is too high. Gray boxes show where that fraction would lie with 95 % "
        "probability if P(correct) were calibrated."
    )
    batches = [("P(correct), out of sample", answers.calibrated, "after")]
    if answers.uncalibrated is not None:
        batches.insert(0, ("The confidence", answers.uncalibrated, "before"))
    figures = [
        reliability_figure(title, ReliabilityState.of(batch).value, "all rows", style)
        for title, batch, style in batches
    ]
    title = "Is P(correct) calibrated?"
    return Section("reliability", title, (Cards(cards), Text(intro), Row(tuple(figures))))


def _score_blocks(answers: HeldOutAnswers) -> list[Block]:
    """Return how well each score separates correct from wrong answers."""

    def interval(one: Any) -> str:
        return ABSENT if one.roc_auc is None else f"{one.roc_auc.low:.3f} to {one.roc_auc.high:.3f}"

    table = Table.of(
        "AUROC: the probability that a correct answer scores higher than a wrong one (0.5: chance)",
        answers.separations(),
        ("score", lambda one: one.name),
        ("rows", lambda one: f"{one.n_rows:,}"),
        ("AUROC", lambda one: ABSENT if one.roc_auc is None else f"{one.roc_auc.value:.3f}"),
        ("95 % interval", interval),
    )
    text = "Each score alone, in the rows where it is known, and P(correct), which uses them all."
    return [Text(text), table]


def _groups_table(audit: Audit) -> Table:
    """Return P(correct) and the fraction of correct answers of each group."""
    largest = sorted(audit.groups.items(), key=lambda pair: -pair[1].n_rows)[:MAX_GROUPS]
    comparison = audit.group_comparison

    def cell(name: str, key: str) -> str:
        one = None if comparison is None else comparison.metrics.get(name, {}).get(key)
        return (
            f"{percent(one.value)} ({percent(one.low)} to {percent(one.high)})" if one else ABSENT
        )

    return Table.of(
        "The largest groups, with 95 % intervals that hold for all of them at once",
        largest,
        ("group", lambda pair: pair[0]),
        ("rows", lambda pair: f"{pair[1].n_rows:,}"),
        ("mean P(correct)", lambda pair: percent(pair[1].confidence)),
        ("correct answers", lambda pair: cell(pair[0], "accuracy")),
        ("difference", lambda pair: cell(pair[0], "gap")),
        ("ECE", lambda pair: cell(pair[0], "expected_calibration_error")),
    )
