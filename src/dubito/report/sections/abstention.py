"""Decision and uncertainty sections: risk over coverage, costs; wrong and OOD rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from markupsafe import Markup

from dubito.arrays import FloatArray
from dubito.decide import PolicyReport
from dubito.formatting import ABSENT, cost, decimal, join_words, percent
from dubito.measure import Interval
from dubito.report.chart_builders import (
    Curve,
    Handles,
    Population,
    review_cost_chart,
    risk_chart,
    uncertainty_histogram,
    uncertainty_scatter,
)
from dubito.report.content import Block, Column, Figure, Row, Section, Table, Text, fragment
from dubito.report.sample import MAX_CLASSES, Outcome, Sample, class_names
from dubito.report.sections.inspection import percent_of, predictions_table
from dubito.report.summary import ALPHA, OODScores, Summary

PER = 10_000  # rows
ANCHOR, TITLE = "decisions", "Which rows need a review?"
ROW_COSTS = (
    "Uncertain rows can be sent to review. The given costs vary from row to row: there "
    "is no single cost matrix to edit, and the best threshold differs from row to row."
)
HANDLES = {"best": "lowest cost", "policy": "the policy", "yours": "your threshold"}


def review_section(summary: Summary) -> Section:
    """Return the risk over coverage alone, where decisions have a section of their own."""
    text = "Rows with a confident prediction can be accepted, and the others sent to review."
    return Section("abstention", TITLE, (Text(text), Row((_risk_figure(summary, ()),))))


def decisions_section(summary: Summary) -> Section:
    """Return the curves, the threshold, the costs, and the outcomes of decision rules."""
    text = _policy_text(summary) or _cost_text(summary)
    texts = (Text(text),) if text else ()
    if summary.has_row_costs:
        chart = Row((_risk_figure(summary, ()),))
        costs, others = _cost_table(summary), _tables(summary)
        return Section(ANCHOR, TITLE, (Text(ROW_COSTS), *costs, *texts, chart, *others))
    sample = summary.sample
    n_rows, n_all = len(sample.batch), len(summary.before)
    rows = "all rows" if n_rows == n_all else f"a random sample of {n_rows:,} of {n_all:,} rows"
    intro = (
        "Uncertain rows can be sent to review. Move the threshold, or enter your costs of errors "
        f"and reviews: everything is recomputed here on {rows}, with calibrated probabilities. "
        f"{_cost_origin(summary)}"
    )
    has_policy = sample.decided is not None
    handles = tuple(pair for pair in HANDLES.items() if pair[0] != "policy" or has_policy)
    charts = Row((_risk_figure(summary, handles), _cost_figure(sample, handles)))
    tables = _tables(summary)
    return Section(ANCHOR, TITLE, (Text(intro), _panel(sample), charts, *texts, *tables))


def _tables(summary: Summary) -> Iterator[Table]:
    """Yield the confusion matrix of a policy, and the precision and recall of each class."""
    report = summary.policy_report
    if report is not None and len(class_names(summary.after)) <= MAX_CLASSES:
        yield Table.of(
            f"Actions of the policy and true classes, per {PER:,} rows",
            report.confusion.items(),
            ("action", lambda line: line[0]),
            *(
                (f"true {name}", lambda line, name=name: f"{PER * line[1][name]:,.0f}")
                for name in next(iter(report.confusion.values()))
            ),
            *_positive_columns(summary, report),
        )
    table = predictions_table(summary.after)
    if table.rows:
        yield table


def _positive_columns(summary: Summary, report: PolicyReport) -> Iterator[Column[Any]]:
    """Yield the precision and recall of each action, where one of two classes is positive."""
    positive = summary.audit_after.positive
    if positive is None:
        return
    name = str(positive.pos_label)
    total = sum(row[name] for row in report.confusion.values())
    yield (
        f"precision ({name})",
        lambda line: percent_of(line[1][name], sum(line[1].values()), 2),
    )
    yield f"recall ({name})", lambda line: percent_of(line[1][name], total, 2)


def _cost_table(summary: Summary) -> tuple[Table, ...]:
    """Return the costs with their expressions, unless there are too many or they are an array."""
    costs = summary.costs
    if costs is None or costs.n_classes > MAX_CLASSES or not (costs.columns or costs.reviews):
        return ()
    names = tuple(str(name) for name in costs.classes or range(costs.n_classes))
    rows = tuple(
        (name, *(one if isinstance(one, str) else f"{one:g}" for one in row))
        for name, row in zip(costs.actions, costs.texts, strict=True)
    )
    caption = "Costs by action and class"
    if costs.columns:
        caption += f", by these columns of each row: {join_words(costs.columns)}"
    if costs.reviews:
        caption += f". Prices of asking {join_words([str(one) for one in costs.reviews])}"
    return (Table(caption, ("Action", *names), rows),)


def _cost_text(summary: Summary) -> str:
    """Return the cost of optimal decisions, of one action for all rows, and of an oracle.

    The cost of examples is in the table alone.
    """
    if summary.costs is None:
        return ""
    report = summary.cost_report
    if report is None:
        return "The cost of decisions is unknown: the rows have no row costs."
    others = (report.expected, report.constant, report.oracle)
    expected, constant, oracle = (cost(1000 * value)[0] for value in others)
    subject = "With the given costs, taking" if summary.has_fixed_costs else "Taking"
    return (
        f"{subject} the action of lowest expected cost for each row costs "
        f"{_per_thousand(report.realized)}; expected by the model: {expected}). Always taking "
        f"“{report.constant_action}” would cost {constant}, an oracle {oracle}."
    )


def _policy_text(summary: Summary) -> str:
    """Return the cost, coverage and risk of the policy, nothing without one."""
    found = summary.policy_report
    if found is None:
        return ""
    accepted = f"It decides {percent(found.coverage.value)} of the rows"
    if found.risk is not None:
        accepted += (
            f", {percent(found.risk.value, 2)} of them wrongly "
            f"({percent(found.risk.low, 2)} to {percent(found.risk.high, 2)}),"
        )
    others = (found.uncalibrated_cost, found.constant_cost, found.oracle_cost)
    uncalibrated, constant, oracle = (cost(1000 * value)[0] for value in others)
    return (
        f"The policy costs {_per_thousand(found.cost)}); decisions from uncalibrated outputs cost "
        f"{uncalibrated}, always taking “{found.constant_action}” {constant}, an oracle {oracle}. "
        f"{accepted} and sends the others to review."
    )


def _per_thousand(paid: Interval) -> str:
    """Return a cost per 1,000 rows and, in an open parenthesis, its interval."""
    value, low, high = cost(1000 * paid.value, 1000 * paid.low, 1000 * paid.high)
    return f"{value} per 1,000 rows (95 % interval {low} to {high}"


def _cost_origin(summary: Summary) -> str:
    """Return where the costs come from."""
    sample = summary.sample
    if summary.has_fixed_costs:
        return (
            "There are too many classes to edit the cost matrix here; example costs of wrong "
            "answers and reviews take its place. The result of the given costs is below."
        )
    if not sample.has_given_costs:
        return "The costs are an example (an error costs 1, a review 0.1): enter your own."
    if not sample.is_given_review:
        return (
            "The costs are yours, except those of a review in the last row, which are an example: "
            "a tenth of the largest cost."
        )
    if sample.decided is not None:
        return (
            "The costs are those of the policy. Its decisions stay the same when you edit the "
            "costs; only what they cost is recomputed."
        )
    return "The costs are those given for this report."


def _panel(sample: Sample) -> Markup:
    """Return the controls and the table of outcomes in their initial state."""
    cheapest = sample.cheapest_threshold
    outcomes: dict[str, tuple[str, float | None, Outcome]] = {}
    if sample.decided is not None:
        outcomes["policy"] = ("The policy", None, sample.outcome_of(sample.decided))
    outcomes |= {
        "expected": ("Lowest expected cost per row", None, sample.optimal),
        "cheapest": ("Best threshold in hindsight", cheapest, sample.at(cheapest)),
        "yours": ("Your threshold", cheapest, sample.at(cheapest)),
        "none": ("No reviews", None, sample.outcome(np.zeros(len(sample.batch), bool))),
    }
    best = min(outcomes, key=lambda key: round(outcomes[key][2].cost, 9))
    return fragment(
        "decisions.html.j2",
        threshold=f"{cheapest:g}",
        classes=class_names(sample.batch),
        actions=sample.costs.actions,
        reject=sample.costs.reject,
        costs=[[f"{cost:.12g}" for cost in row] for row in sample.costs.array.tolist()],
        n=len(sample.batch),
        outcomes=outcomes,
        best=best,
        absent=ABSENT,
    )


def _risk_figure(summary: Summary, handles: Handles) -> Figure:
    """Return the risk-coverage curves before and after."""
    caption = (
        "The error rate when only the most confident rows are accepted: few on the left, all on "
        "the right. The lower the line, the better uncertainty finds errors."
    )
    if handles:
        caption += (
            " Lines count wrong classes, dots count wrong actions: with unequal costs they differ."
        )
    before, after = summary.sampled_risks
    curves = [
        Curve.of_risk("before", "uncalibrated", before),
        Curve.of_risk("after", "calibrated", after),
    ]
    chart = risk_chart("Risk over coverage", curves, handles=handles)
    return Figure("Risk over coverage", (chart,), caption, anchor="risk-chart")


def _cost_figure(sample: Sample, handles: Handles) -> Figure:
    """Return cost over the fraction reviewed."""
    reviewed = np.array([1 - step.coverage for step in sample.steps])
    costs = np.array([step.cost for step in sample.steps])
    chart = review_cost_chart("Cost over reviews", reviewed, costs, handles)
    caption = (
        "No reviews on the left, all rows reviewed on the right. Reviews pay off up to the "
        "minimum; where the line only rises, they cost more than the errors they prevent."
    )
    return Figure("Cost over reviews", (chart,), caption, anchor="cost-chart")


MAX_DOTS = 1500


def uncertainty_section(summary: Summary) -> Section:
    """Return how uncertainty is distributed over correct, wrong and OOD rows."""
    figures: list[Block] = [_error_figure(summary)]
    texts = [Text("Uncertainty is useful if wrong and out-of-distribution (OOD) rows have more.")]
    if summary.ood is not None:
        figures += _ood_figures(summary.ood)
        texts += _ood_texts(summary.ood)
    if summary.uncertainty is not None:
        figures.append(_decomposition_figure(summary))
    title = "Does uncertainty find errors?"
    return Section("uncertainty", title, (*texts, Row(tuple(figures))))


def _error_figure(summary: Summary) -> Figure:
    """Return the uncertainty of correct and of wrong rows."""
    rows, weight = summary.after.rows, summary.after.labeled_weight
    populations = _by_correctness(rows.least_confidence, weight, rows.correct)
    title, label = "Correct and wrong rows", "1 - confidence, calibrated"
    caption = "The further apart, the more errors a threshold finds."
    separation = summary.audit_after.error_detection_auroc
    if separation is not None:
        caption += (
            f" Error detection AUROC: {decimal(separation)}, the probability that an error is less "
            "confident than a correct row (0.5: chance)."
        )
    return _histogram(title, label, populations, caption)


def _by_correctness(
    scores: FloatArray, weight: FloatArray, correct: FloatArray
) -> list[Population]:
    """Return the scores of correct and of wrong rows; a row with a soft label counts in both."""
    return [
        Population(f"{style} rows", style, scores[part > 0], (weight * part)[part > 0])
        for style, part in (("correct", correct), ("wrong", 1 - correct))
        if (weight * part).sum() > 0
    ]


def _ood_figures(scores: OODScores) -> list[Block]:
    """Return the scores of in-distribution and OOD rows: by confidence, and by distance."""
    figures: list[Block] = []
    caption = "Each kind adds up to 100 %; the last bin includes larger values."
    if scores.ood_uncertainty is not None:
        populations = [
            Population("in-distribution rows", "known", scores.uncertainty),
            Population("OOD rows", "ood", scores.ood_uncertainty),
        ]
        text = f"{caption}{_auroc_text(scores.confidence_roc_auc)}"
        label = "1 - confidence, uncalibrated"
        figures.append(_histogram("OOD rows by confidence", label, populations, text))
    if scores.distance is not None:
        correct = scores.is_correct.astype(np.float64)
        populations = _by_correctness(scores.distance, scores.weight, correct)
        title = "Distance of the features"
        if scores.ood_distance is not None:
            populations.append(Population("OOD rows", "ood", scores.ood_distance))
            title = "OOD rows by distance"
        text = f"{caption}{_auroc_text(scores.distance_roc_auc)}"
        figures.append(_histogram(title, "Squared Mahalanobis distance", populations, text))
    return figures


def _histogram(title: str, label: str, populations: list[Population], caption: str) -> Figure:
    """Return the distributions of a score in several kinds of rows."""
    return Figure(title, (uncertainty_histogram(title, label, populations),), caption)


def _auroc_text(area: float | None) -> str:
    """Return an OOD detection AUROC as a sentence, nothing if it is unknown."""
    return "" if area is None else f" OOD detection AUROC: {decimal(area)} (0.5: chance)."


def _ood_texts(scores: OODScores) -> Iterator[Text]:
    """Yield what the distance was fitted on, and how many OOD rows it detects."""
    if scores.distance is not None:
        center = "nearest class" if scores.is_by_class else "mean of all rows"
        yield Text(
            f"Distances are to the {center}, fitted on the features of {scores.n_fitted:,} rows; "
            f"the other {scores.distance.size:,} rows are shown."
        )
    if scores.detected is not None and scores.ood_distance is not None:
        yield Text(
            f"At a false positive rate of {percent(ALPHA, 0)}, the distance detects "
            f"{percent(scores.detected)} of the {scores.ood_distance.size:,} OOD rows."
        )


def _decomposition_figure(summary: Summary) -> Figure:
    """Return epistemic over aleatoric uncertainty, for a sample of rows."""
    parts, correct = summary.uncertainty, summary.before.rows.correct > 0.5
    assert parts is not None
    rows = np.arange(correct.size)
    if rows.size > MAX_DOTS:
        rng = np.random.default_rng(summary.provenance.seed)
        rows = np.sort(rng.choice(rows, MAX_DOTS, replace=False))
    populations = [
        Curve(style, f"{style} rows", parts.aleatoric[chosen], parts.epistemic[chosen])
        for style, chosen in (("correct", rows[correct[rows]]), ("wrong", rows[~correct[rows]]))
    ]
    epistemic = float(parts.epistemic.sum() / max(parts.total.sum(), 1e-300))
    caption = (
        f"{percent(epistemic)} of the uncertainty is epistemic: the members disagree, and more "
        f"data could reduce it. Mean aleatoric uncertainty (noise in the data): "
        f"{decimal(float(parts.aleatoric.mean()))} nats. {rows.size:,} rows are shown."
    )
    title = "Aleatoric and epistemic uncertainty"
    return Figure(title, (uncertainty_scatter(title, populations),), caption)
