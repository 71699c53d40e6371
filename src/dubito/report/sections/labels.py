"""The sections on several labels per row: a heat map of figures, reliability, means and groups."""

from __future__ import annotations

from collections.abc import Callable
from math import log

from dubito.decide import MultiLabelPolicyReport
from dubito.formatting import ABSENT, percent, quantity
from dubito.measure import BinaryAudit, Interval, MultiLabelAudit
from dubito.measure.groups import TITLES as GROUP_TITLES
from dubito.measure.text import figure_texts
from dubito.report.content import Block, Card, Cards, Row, Section, Table, Text, Verdict
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
    numbers = audit.figures
    return Cards(
        tuple(
            Card(title, f"{numbers[name]:.3f}", _between(audit.intervals.get(name)))
            for name, title in CARDS.items()
            if name in numbers
        )
    )


def _between(interval: Interval | None) -> str:
    """Return the ends of an interval, if there is one."""
    if interval is None:
        return ""
    return f"95 % interval {interval.low:.3f} to {interval.high:.3f}"


def _heat_map(audit: MultiLabelAudit) -> list[Block]:
    """Return the figures of each label, the worst calibrated first."""
    rows, heat, marked = [], [], set(audit.miscalibrated)
    for name, one in list(audit.labels.items())[:MAX_LABELS]:
        cells = [
            f"{name}\N{NO-BREAK SPACE}*" if name in marked else name,
            f"{audit.n_known[name]:,}",
        ]
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
        "Observed frequency over probability, in equally filled bins. On the dashed line they are "
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
    return Table(caption, ("figure", *audit.means), tuple(lines))


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
        "figure hold for all labels and pairs of groups at once"
    )
    table = Table.of(
        caption,
        found,
        ("label", lambda one: one[0]),
        ("figure", lambda one: GROUP_TITLES[one[1]]),
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
