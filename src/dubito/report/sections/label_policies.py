"""The section on what a policy decides for several labels per row, and the verdict on it."""

from __future__ import annotations

from dubito.decide import MultiLabelPolicy, MultiLabelPolicyReport
from dubito.decide.multilabel.label_report import CURRENT
from dubito.formatting import ABSENT, decimal, percent, quantity
from dubito.measure import Interval, MultiLabelAudit
from dubito.report.content import Block, Card, Cards, Section, Table, Text, Verdict

MAX_LABELS = 50  # in the table
HEADS = (
    "label", "review from", "positive from", "reviewed", "cost", "cost at 0.5", "recall",
    "precision", "raw review", "raw positive",
)  # fmt: skip


def label_policy_verdict(
    policy: MultiLabelPolicy, figures: MultiLabelPolicyReport, audit: MultiLabelAudit
) -> Verdict:
    """Return what decisions cost, or their score, compared with a threshold of 0.5."""
    first, *rest = figures.lines[:1] if figures.score is None else figures.lines[:2]
    gained = figures.current_saved if figures.score_gained is None else figures.score_gained
    if policy.f_beta is None:
        headline = f"Decisions cost {decimal(figures.cost.value)} per row"
    else:
        headline = f"Decisions reach a {policy.f_beta} of {figures.score:.3f}"
    mood = "good" if gained.low > 0 else "neutral"
    reviews = [_review_sentence(figures)] if _has_reviews(figures) else []
    sentences = (" ".join([first, *rest, *reviews]), audit.verdict)
    return Verdict(f"{headline}.", sentences, mood)


def label_decisions_section(policy: MultiLabelPolicy, figures: MultiLabelPolicyReport) -> Section:
    """Return the costs, the figures of decisions, and the thresholds of each label."""
    aim = f"Each label is decided at the lowest expected cost: {policy.costs}."
    if policy.f_beta is not None:
        aim = f"Labels are decided for the highest expected {policy.f_beta}, without costs."
    if policy.costs.review_row is not None:
        aim += " A row is reviewed as a whole where that costs less than all of its labels."
    blocks: list[Block] = [Text(aim), _cards(figures), _label_table(policy, figures)]
    notes = [*figures.lines[-1:], *figures.notes]
    return Section("decisions", "What is decided?", (*blocks, Text(" ".join(notes))))


def _has_reviews(figures: MultiLabelPolicyReport) -> bool:
    """Whether anything is reviewed."""
    return bool(figures.row_review_rate.value or figures.label_review_rate)


def _review_sentence(figures: MultiLabelPolicyReport) -> str:
    """Return how much is reviewed."""
    return next(line for line in figures.lines if line.startswith("Reviewed"))


def _cards(figures: MultiLabelPolicyReport) -> Cards:
    """Return the key figures with their intervals."""
    if figures.score is not None and figures.score_gained is not None:
        gained = figures.score_gained
        name = figures.score_name[:1].upper() + figures.score_name[1:]
        before = f"{figures.current_score:.3f} with {CURRENT}"
        wrong = f"{decimal(figures.current_cost)} with {CURRENT}"
        return Cards(
            (
                Card(name, f"{figures.score:.3f}", before),
                Card(f"{name} gained", _signed(gained), _between(gained)),
                Card("Wrong labels per row", decimal(figures.cost.value), wrong),
            )
        )
    cards = [
        Card("Cost per row", decimal(figures.cost.value), _between(figures.cost)),
        Card(
            f"Saved over {CURRENT}", _signed(figures.current_saved), _between(figures.current_saved)
        ),
    ]
    if _has_reviews(figures):
        if (rows := figures.row_review_rate).value:
            note = f"95 % interval {percent(rows.low)} to {percent(rows.high)}"
            cards.append(Card("Rows reviewed as a whole", percent(rows.value), note))
        cards.append(Card("Labels reviewed one by one", percent(figures.label_review_rate)))
    return Cards(tuple(cards))


def _signed(interval: Interval) -> str:
    """Return a difference with its sign."""
    return f"{interval.value:+.4f}"


def _between(interval: Interval) -> str:
    """Return the ends of an interval."""
    return f"95 % interval {decimal(interval.low)} to {decimal(interval.high)}"


def _label_table(policy: MultiLabelPolicy, figures: MultiLabelPolicyReport) -> Table:
    """Return thresholds and outcomes of each label, the most costly first."""
    ranked = sorted(
        policy.thresholds, key=lambda one: -figures.label_costs.get(str(one.label), -1.0)
    )
    rows = []
    for one in ranked[:MAX_LABELS]:
        name = str(one.label)
        before = figures.current_label_costs.get(name)
        limits = (one.review, one.positive, before, one.raw_review, one.raw_positive)
        shown = [ABSENT if limit is None else f"{limit:.3g}" for limit in limits]
        recall, precision, reviewed, cost = figures.outcomes(name)
        rows.append((name, *shown[:2], reviewed, cost, shown[2], recall, precision, *shown[3:]))
    is_shown = [k == 0 or any(row[k] != ABSENT for row in rows) for k in range(len(HEADS))]
    if not _has_reviews(figures):
        is_shown[HEADS.index("reviewed")] = False
    kept = [k for k, one in enumerate(is_shown) if one]
    where = "Thresholds are on calibrated probabilities"
    has_raw = is_shown[-1] or is_shown[-2]
    where += ", raw ones on those of the model." if has_raw else "."
    heads = [HEADS[k] for k in kept]
    if figures.score is None:
        caption = (
            f"The most costly label comes first. {where} Recall and precision are of what is not "
            "reviewed; the cost is the mean per row, without that of reviewing whole rows."
        )
    else:
        caption = f"The label with most errors comes first. {where}"
        heads = [one.replace("cost", "errors") for one in heads]
    if len(ranked) > MAX_LABELS:
        caption += f" {quantity(len(ranked) - MAX_LABELS, 'label')} that cost less are left out."
    cells = tuple(tuple(row[k] for k in kept) for row in rows)
    return Table(caption, tuple(heads), cells)
