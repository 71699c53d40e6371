"""Decision sections: risk and coverage, thresholds and costs, recomputed on the page."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from dubito.report.blocks import Figure, Row, Section, Text
from dubito.report.figures.charts import cost_chart, risk_chart
from dubito.report.formatting import ABSENT, cost, share, spaced
from dubito.report.page import fragment
from dubito.report.sample import Outcome, Sample
from dubito.report.summary import Summary

ANCHOR, TITLE = "deciding", "What to do with doubt"
GROWING = (
    "Rows the model doubts can go to a person instead. The costs given grow with the amount of "
    "each row, so there is no one table of them to edit, and no one threshold that is right for "
    "all rows: every row has its own."
)
MARKS = {
    "best": "the cheapest way to decide",
    "policy": "the policy",
    "yours": "your threshold",
}


def deciding(summary: Summary) -> Section:
    """Return the curve, the slider, the costs, and what ways to decide do."""
    if summary.has_growing_costs:
        words = (GROWING, _worth(summary), _policy_worth(summary))
        texts = [Text(one) for one in words if one]
        return Section(ANCHOR, TITLE, (*texts, Row((_risk_figure(summary, {}),))))
    sample = summary.sample
    n_rows, n_all = len(sample.batch), len(summary.before)
    whole = "all rows" if n_rows == n_all else f"a seeded sample of {n_rows:,} of {n_all:,} rows"
    intro = (
        "Rows the model doubts can go to a person instead. Move the threshold, or say what errors "
        f"and reviews cost; everything is recomputed here, on {whole}, with probabilities after "
        f"calibration, by the library's own rules. {_origin(summary)}"
    )
    told = (_worth(summary), _policy_worth(summary))
    return Section(
        ANCHOR,
        TITLE,
        (Text(intro), _panel(sample), _charts(summary), *(Text(one) for one in told if one)),
    )


def _worth(summary: Summary) -> str:
    """Say what the actions of least expected cost cost, and what others would, of 1,000 rows."""
    report = summary.cost_report
    if report is None:
        return "These rows came without row costs, so what deciding would cost cannot be told."
    paid, low, high, expected, constant, oracle = (
        cost(1000 * value)
        for value in (
            report.realized.value,
            report.realized.low,
            report.realized.high,
            report.predicted,
            report.constant,
            report.oracle,
        )
    )
    whose = "With the costs given, taking" if summary.has_unseen_costs else "Taking"
    return spaced(
        f"{whose} the action of least expected cost, row by row, 1,000 rows cost {paid} "
        f"(95 % interval {low} to {high}; the model itself expected {expected}). Always "
        f"“{report.constant_action}” would cost {constant}, knowing every truth {oracle}."
    )


def _policy_worth(summary: Summary) -> str:
    """Say what the policy does, nothing where there is none."""
    if summary.decided is None:
        return ""
    found = summary.decided.report
    paid, low, high, raw = (
        cost(1000 * value)
        for value in (found.cost.value, found.cost.low, found.cost.high, found.raw_cost)
    )
    kept = f"It decides {share(found.coverage.value)} of the rows itself"
    if found.risk is not None:
        kept += (
            f", {share(found.risk.value, 2)} of them wrongly "
            f"({share(found.risk.low, 2)} to {share(found.risk.high, 2)})"
        )
    return spaced(
        f"The policy, with all that it was fitted to heed, makes 1,000 rows cost {paid} (95 % "
        f"interval {low} to {high}); deciding by the outputs as they came costs {raw}. {kept}."
    )


def _origin(summary: Summary) -> str:
    """Say where the costs come from."""
    sample = summary.sample
    if summary.has_unseen_costs:
        return (
            "A table of all classes is too large to edit here, so the question is whether an "
            "answer is right, at example costs; what the costs given come to is told below."
        )
    if not sample.has_given_costs:
        return "The costs are an example, an error 1 and a review 0.1: put in your own."
    if not sample.is_given_review:
        return (
            "The costs are yours but for the last row, what a review costs, which is an example: "
            "a tenth of the largest cost."
        )
    if sample.decided is not None:
        return (
            "The costs are the policy's. What it decided stays as it is when you edit them, and "
            "is counted at your costs."
        )
    return "The costs are those the report was made with."


def _panel(sample: Sample) -> Markup:
    """Return the controls and the table of outcomes, as they are before anyone moves anything."""
    cheapest = sample.cheapest_threshold
    decided = sample.decided
    outcomes: dict[str, tuple[str, float | None, Outcome]] = {}
    if decided is not None:
        outcomes["policy"] = ("The policy", None, sample.outcome_of(decided))
    outcomes |= {
        "expected": ("Least expected cost, row by row", None, sample.least_expected),
        "cheapest": ("Cheapest threshold, in hindsight", cheapest, sample.at(cheapest)),
        "yours": ("Your threshold", cheapest, sample.at(cheapest)),
        "none": ("No review at all", None, sample.outcome(np.zeros(len(sample.batch), bool))),
    }
    best = min(outcomes, key=lambda key: round(outcomes[key][2].cost, 9))
    return fragment(
        "deciding.html.j2",
        threshold=f"{cheapest:g}",
        classes=sample.classes,
        actions=sample.costs.actions,
        reject=sample.costs.reject,
        costs=[[f"{cost:.12g}" for cost in row] for row in sample.costs.array.tolist()],
        n=f"{len(sample.batch):,}",
        outcomes=[_line(key, *outcomes[key], key == best) for key in outcomes],
    )


def _line(
    key: str, name: str, threshold: float | None, outcome: Outcome, is_best: bool
) -> dict[str, object]:
    """Return a row of the table of outcomes, told as the page's script tells it."""
    return {
        "key": key,
        "name": name,
        "is_best": is_best,
        "threshold": ABSENT if threshold is None else f"{threshold:.3f}",
        "coverage": share(outcome.coverage),
        "risk": share(outcome.risk, 2),
        "reviewed": f"{outcome.reviewed:,.1f}",
        "cost": cost(outcome.cost),
    }


def _charts(summary: Summary) -> Row:
    """Return both curves, each in a place where the page's script finds it."""
    has_policy = summary.sample.decided is not None
    marks = {key: name for key, name in MARKS.items() if key != "policy" or has_policy}
    return Row((_risk_figure(summary, marks), _cost_figure(summary.sample, marks)))


def _risk_figure(summary: Summary, marks: dict[str, str]) -> Figure:
    """Return the curve of risk over coverage, before and after."""
    before, after = summary.sampled_risks
    caption = (
        "Keeping only the rows of least doubt, from left to right more of them. The lower the "
        "line, the better doubt finds errors; at the right end all rows are kept."
    )
    if marks:
        caption += (
            " The lines count a most probable class that is wrong, the marks an action that is: "
            "under uneven costs the two differ."
        )
    return Figure(
        "Risk over coverage",
        (
            risk_chart(
                "Share of errors among rows kept, over the share kept",
                (("before", before.coverage, before.risk), ("after", after.coverage, after.risk)),
                marks=tuple(marks),
            ),
        ),
        caption,
        (("before", "ordered as it came"), ("after", "ordered after calibration"), *marks.items()),
        anchor="risk-chart",
    )


def _cost_figure(sample: Sample, marks: dict[str, str]) -> Figure:
    """Return the curve of cost over reviews."""
    return Figure(
        "Cost over reviews",
        (
            cost_chart(
                "Cost of 1,000 rows over the share of rows that a person looks at",
                np.array([1 - step.coverage for step in sample.steps]),
                np.array([step.cost for step in sample.steps]),
                marks=tuple(marks),
            ),
        ),
        "From no review on the left to everything reviewed on the right. The dip is where reviews "
        "pay; a line that only rises says that reviewing costs more than the errors it spares.",
        (("after", "by threshold"), *marks.items()),
        anchor="cost-chart",
    )
