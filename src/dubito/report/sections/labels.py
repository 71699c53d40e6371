"""Several labels per row: figures, reliability and groups, and what a policy decides."""

from __future__ import annotations

from collections.abc import Callable
from math import log

from dubito.decide import MultiLabelPolicy, MultiLabelPolicyReport
from dubito.decide.multilabel.label_decisions import CURRENT
from dubito.formatting import ABSENT, decimal, percent, quantity
from dubito.measure import BinaryAudit, Interval, MultiLabelAudit
from dubito.measure.groups import TITLES as GROUP_TITLES
from dubito.measure.text import figure_texts
from dubito.report.content import Block, Card, Cards, Row, Section, Table, Text, Verdict, between
from dubito.report.sections.positive_class import positive_figure

MAX_LABELS = 50  # in the heat map
MAX_FIGURES = 12  # small multiples
HOTTEST = 5
ECE = "expected_calibration_error"
CARDS = {
    "subset_accuracy": "Subset accuracy",
    "hamming_loss": "Hamming loss",
    f"macro.{ECE}": "Macro ECE",
    "macro.roc_auc": "Macro ROC-AUC",
    "macro.f1": "Macro F1",
}
OF_ROWS = ("ranking_loss", "coverage_error", "label_ranking_average_precision")
TITLES = {
    "roc_auc": "ROC-AUC",
    "brier_score": "Brier score",
    "brier_skill_score": "Brier skill score",
    ECE: "ECE",
    "f1": "F1",
}
# Columns of the heat map: the figure, and how bad it is, from 0 to 1.
Heat = tuple[str, Callable[[BinaryAudit], float | None], str, Callable[[float], float]]
COLUMNS: tuple[Heat, ...] = (
    ("ECE", lambda one: one.expected_calibration_error, "%", lambda v: v / 0.15),
    ("slope", lambda one: one.calibration_slope, ".2f", lambda v: abs(log(max(v, 1e-9))) / log(2)),
    ("ROC-AUC", lambda one: one.roc_auc, ".3f", lambda v: 2 * (1 - v)),
    ("AP", lambda one: one.average_precision, ".3f", lambda v: 1 - v),
    ("precision", lambda one: one.operating_point.precision, "%", lambda v: 1 - v),
    ("recall", lambda one: one.operating_point.recall, "%", lambda v: 1 - v),
    ("F1", lambda one: one.operating_point.f1, ".3f", lambda v: 1 - v),
)


def labels_verdict(audit: MultiLabelAudit) -> Verdict:
    """Return how many labels are miscalibrated, and which one the most."""
    headline, *rest = audit.verdict.partition(", '")
    if not rest[0]:
        mood = "neutral" if audit.verdict.startswith("Too few") else "good"
        return Verdict(audit.verdict, (), mood)
    worst = f"The worst is '{rest[1]} Measured on {quantity(audit.n_rows, 'row')}."
    return Verdict(f"{headline}.", (worst.replace("' the most:", "':"),), "bad")


def labels_sections(
    audit: MultiLabelAudit, policy: MultiLabelPolicyReport | None = None
) -> list[Section]:
    """Return all sections except how the report was computed.

    With the results of a policy, the audit is of its calibrated probabilities.
    """
    intro: tuple[Block, ...] = ()
    if policy is not None:
        change = f"from {policy.log_loss_before:.4f} to {policy.log_loss_after:.4f}"
        text = "These are the calibrated probabilities that the policy decides on, out of sample: "
        intro = (Text(f"{text}the mean log loss of a label went {change}."),)
    style = "before" if policy is None else "after"
    blocks = (*intro, _cards(audit), *_heat_map(audit))
    sections = [
        Section("labels", "Which labels are calibrated?", blocks),
        _reliability_section(audit, style),
        Section("means", "Means over labels and rows", (_means_table(audit),)),
    ]
    if audit.groups:
        sections.append(Section("groups", "Do groups differ?", tuple(_groups_blocks(audit))))
    return sections


def _cards(audit: MultiLabelAudit) -> Cards:
    """Return the key metrics with their intervals."""
    cards, numbers = [], audit.figures
    for name, title in CARDS.items():
        if name in numbers:
            note = between(audit.intervals.get(name), "{:.3f}".format)
            cards.append(Card(title, f"{numbers[name]:.3f}", note))
    return Cards(tuple(cards))


def _heat_map(audit: MultiLabelAudit) -> list[Block]:
    """Return the figures of each label, the worst calibrated first."""
    rows, heat, marked = [], [], set(audit.miscalibrated)
    for name, one in list(audit.labels.items())[:MAX_LABELS]:
        mark = "\N{NO-BREAK SPACE}*" if name in marked else ""
        cells = [f"{name}{mark}", f"{audit.n_known[name]:,}"]
        cells += [percent(one.base_rate), percent(one.mean_probability)]
        cells += [f"{audit.log_losses[name]:.3f}", f"{audit.brier_scores[name]:.3f}"]
        levels = [0] * len(cells)
        for _, figure, style, badness in COLUMNS:
            value = figure(one)
            cells.append(_cell(value, style))
            is_hot = 0.0 if value is None else min(max(badness(value), 0.0), 1.0)
            levels.append(round(is_hot * HOTTEST))
        rows.append(tuple(cells))
        heat.append(tuple(levels))
    starts = ("label", "rows", "frequency", "mean p", "log loss", "Brier score")
    heads = (*starts, *(one[0] for one in COLUMNS))
    caption = (
        "The worst calibrated label comes first: by ECE beyond that of a calibrated model on so "
        f"many rows, in {quantity(audit.n_bins, 'bin')}. The stronger the color, the worse. * The "
        "test of slope 1 and intercept 0 rejects. Rows are those in which the label is known. AP: "
        "average precision. Precision, "
        f"recall and F1 are those of predicting labels from probability {audit.threshold:g} on."
    )
    blocks: list[Block] = [Table(caption, heads, tuple(rows), heat=tuple(heat))]
    if n_more := len(audit.labels) - len(rows):
        blocks.append(Text(f"{quantity(n_more, 'label')} with less error are left out."))
    if empty := [name for name in audit.n_known if name not in audit.labels]:
        blocks.append(Text(f"Labels without a known row: {', '.join(empty)}."))
    return blocks


def _cell(value: float | None, style: str) -> str:
    """Return a figure, or a dash if a label does not have it."""
    if value is None:
        return ABSENT
    return percent(value) if style == "%" else f"{value:z{style}}"


def _reliability_section(audit: MultiLabelAudit, style: str) -> Section:
    """Return a reliability diagram of each label, the worst calibrated first."""
    intro = (
        "Observed frequency over probability, in equal-mass bins. On the dashed line they are "
        "equal; gray boxes show where the frequency of a calibrated model would lie with 95 % "
        "probability."
    )
    shown = list(audit.labels.items())[:MAX_FIGURES]
    if len(shown) < len(audit.labels):
        intro += f" Shown are the worst {len(shown)} of {len(audit.labels)} labels."
    figures = tuple(positive_figure(name, one, style) for name, one in shown)
    blocks = (Text(intro), Row(figures, is_small=True))
    return Section("reliability", "Reliability of each label", blocks)


def _means_table(audit: MultiLabelAudit) -> Table:
    """Return the means of each figure with intervals, and the metrics of rows."""
    names = list(dict.fromkeys(name for one in audit.means.values() for name in one))

    def cell(kind: str, name: str) -> str:
        value = audit.means[kind].get(name)
        interval = audit.intervals.get(f"{kind}.{name}")
        return ABSENT if value is None else _with_interval(value, interval)

    lines = [
        (TITLES.get(name, name.replace("_", " ")), *(cell(kind, name) for kind in audit.means))
        for name in names
    ]
    for name in OF_ROWS:
        title = f"{name.replace('_', ' ')}, over rows"
        text = _with_interval(getattr(audit, name), audit.intervals.get(name))
        lines.append((title, text, ABSENT, ABSENT))
    caption = (
        "The macro mean counts each label once, the weighted mean by its positives; micro pools "
        "all pairs of row and label, but its ECE is the mean over pairs, each in the "
        f"{quantity(audit.n_bins, 'bin')} of its label. 95 % bootstrap intervals over rows, so "
        "that the labels of a "
        "row stay together."
    )
    return Table(caption, ("metric", *audit.means), tuple(lines))


def _with_interval(value: float, interval: Interval | None) -> str:
    """Return a figure and the ends of its interval, if there is one."""
    between = "" if interval is None else f" ({interval.low:z.3f} to {interval.high:z.3f})"
    return f"{value:z.3f}{between}"


def _groups_blocks(audit: MultiLabelAudit) -> list[Block]:
    """Return the means of each group, and the differences between groups."""
    blocks: list[Block] = [_groups_table(audit)]
    if not any(one.disparities for one in audit.group_comparison.values()):
        return blocks
    found = audit.group_differences[:MAX_LABELS]
    if not found:
        none = "No difference between groups is beyond chance, label by label."
        return [*blocks, Text(none)]
    caption = (
        "Differences between two groups beyond chance, label by label; the 95 % intervals of one "
        "metric hold for all labels and pairs of groups at once"
    )
    table = Table.of(
        caption,
        found,
        ("label", lambda one: one[0]),
        ("metric", lambda one: GROUP_TITLES[one[1]]),
        ("difference", lambda one: figure_texts(one[2].interval, one[1], "points")[0]),
        ("95 % interval", lambda one: figure_texts(one[2].interval, one[1])[1]),
        ("groups", lambda one: f"{one[2].highest} - {one[2].lowest}"),
        texts=(0, 1, 4),
    )
    return [*blocks, table]


def _groups_table(audit: MultiLabelAudit) -> Table:
    """Return the means of each group."""

    def mean(name: str) -> Callable[[tuple[str, MultiLabelAudit]], str]:
        return lambda pair: _cell(pair[1].means["macro"].get(name), ".3f")

    def worst(pair: tuple[str, MultiLabelAudit]) -> str:
        return next(iter(pair[1].miscalibrated), ABSENT)

    return Table.of(
        "Macro means of each group, and its worst miscalibrated label",
        audit.groups.items(),
        ("group", lambda pair: pair[0]),
        ("worst label", worst),
        ("rows", lambda pair: f"{pair[1].n_rows:,}"),
        ("ECE", mean(ECE)),
        ("ROC-AUC", mean("roc_auc")),
        ("F1", mean("f1")),
        ("Hamming loss", lambda pair: f"{pair[1].hamming_loss:.3f}"),
        texts=(0, 1),
    )


HEADS = (
    "label", "review from", "positive from", "reviewed", "cost", "cost at 0.5", "recall",
    "precision", "uncalibrated review", "uncalibrated positive",
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
    blocks: list[Block] = [Text(aim), _policy_cards(figures), _label_table(policy, figures)]
    notes = [*figures.lines[-1:], *figures.notes]
    return Section("decisions", "What is decided?", (*blocks, Text(" ".join(notes))))


def _has_reviews(figures: MultiLabelPolicyReport) -> bool:
    """Whether anything is reviewed."""
    return bool(figures.row_review_rate.value or figures.label_review_rate)


def _review_sentence(figures: MultiLabelPolicyReport) -> str:
    """Return how much is reviewed."""
    return next(line for line in figures.lines if line.startswith("Reviewed"))


def _policy_cards(figures: MultiLabelPolicyReport) -> Cards:
    """Return the key figures with their intervals."""
    if figures.score is not None and figures.score_gained is not None:
        gained = figures.score_gained
        name = figures.score_name[:1].upper() + figures.score_name[1:]
        before = f"{figures.current_score:.3f} with {CURRENT}"
        wrong = f"{decimal(figures.current_cost)} with {CURRENT}"
        scores = (
            Card(name, f"{figures.score:.3f}", before),
            Card(f"{name} gained", _signed(gained), between(gained)),
            Card("Wrong labels per row", decimal(figures.cost.value), wrong),
        )
        return Cards(scores)
    saved = figures.current_saved
    cards = [
        Card.of("Cost per row", figures.cost),
        Card(f"Saved over {CURRENT}", _signed(saved), between(saved)),
    ]
    if _has_reviews(figures):
        if figures.row_review_rate.value:
            cards.append(Card.of("Rows reviewed as a whole", figures.row_review_rate, percent))
        cards.append(Card("Labels reviewed one by one", percent(figures.label_review_rate)))
    return Cards(tuple(cards))


def _signed(interval: Interval) -> str:
    """Return a difference with its sign."""
    return f"{interval.value:+.4f}"


def _label_table(policy: MultiLabelPolicy, figures: MultiLabelPolicyReport) -> Table:
    """Return thresholds and outcomes of each label, the most costly first."""
    ranked = sorted(
        policy.thresholds, key=lambda one: -figures.label_costs.get(str(one.label), -1.0)
    )
    lines = []
    for one in ranked[:MAX_LABELS]:
        name = str(one.label)
        before = figures.current_label_costs.get(name)
        limits = (
            one.review,
            one.positive,
            before,
            one.uncalibrated_review,
            one.uncalibrated_positive,
        )
        shown = [ABSENT if limit is None else f"{limit:.3g}" for limit in limits]
        recall, precision, reviewed, cost = figures.outcomes(name)
        lines.append((name, *shown[:2], reviewed, cost, shown[2], recall, precision, *shown[3:]))
    columns = dict(zip(HEADS, zip(*lines, strict=True), strict=True))
    if not _has_reviews(figures):
        del columns["reviewed"]
    columns = {k: cells for k, cells in columns.items() if k == HEADS[0] or {*cells} != {ABSENT}}
    has_uncalibrated = "uncalibrated review" in columns or "uncalibrated positive" in columns
    where = "Thresholds are on calibrated probabilities"
    where += ", uncalibrated ones on those of the model." if has_uncalibrated else "."
    heads = tuple(columns)
    if figures.score is None:
        caption = (
            f"The most costly label comes first. {where} Recall and precision are of what is not "
            "reviewed; the cost is the mean per row, without that of reviewing whole rows."
        )
    else:
        caption = f"The label with most errors comes first. {where}"
        heads = tuple(one.replace("cost", "errors") for one in heads)
    if len(ranked) > MAX_LABELS:
        caption += f" {quantity(len(ranked) - MAX_LABELS, 'label')} that cost less are left out."
    return Table(caption, heads, tuple(zip(*columns.values(), strict=True)))
