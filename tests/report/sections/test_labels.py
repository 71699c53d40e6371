"""The report on several labels per row."""

import numpy as np
import pytest

from dubito import LabelCosts, MultiLabel, MultiLabelPolicy, audit
from dubito.calibrate import MultiLabelCalibrator
from dubito.data import ArrayShards, Batch
from dubito.decide import CostMatrix, FBeta, Policy
from dubito.errors import BadTypeError
from dubito.report import Report, make_report
from dubito.report.content import Cards, Table, Text
from dubito.report.sections.labels import (
    label_decisions_section,
    label_policy_verdict,
    labels_sections,
    labels_verdict,
)


def test_a_report_ranks_labels_and_draws_them() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(-1, 1.5, (500, 3))
    y = (rng.random((500, 3)) < 1 / (1 + np.exp(-odds * [1.0, 0.2, 1.0]))) * 1.0
    p = 1 / (1 + np.exp(-odds))
    names = ["cough", "<b>fever", "rash"]
    y[:, 2] = np.nan
    found = audit(y, MultiLabel(p, names), groups=["a", "b"] * 250, n_resamples=40)
    assert labels_verdict(found).headline == "1 of 2 labels is miscalibrated."
    labels, *_, groups = labels_sections(found)
    heat_map = labels.blocks[1]
    assert isinstance(heat_map, Table)
    assert [row[0] for row in heat_map.rows] == ["<b>fever\N{NO-BREAK SPACE}*", "cough"]
    assert heat_map.heat[0][6] == 5 > heat_map.heat[1][6]  # ECE
    assert isinstance(groups.blocks[0], Table)
    assert [row[:2] for row in groups.blocks[0].rows] == [("a", "<b>fever"), ("b", "<b>fever")]
    assert [type(one).__name__ for one in groups.blocks] == ["Table", "Text"]  # none beyond chance
    y[::2, 0] = 1
    found = audit(y, MultiLabel(p, names), groups=["a", "b"] * 250, n_resamples=40)
    table = labels_sections(found)[-1].blocks[1]
    assert isinstance(table, Table)
    assert ("cough", "base rate") in [row[:2] for row in table.rows]
    assert {row[-1] for row in table.rows} <= {"a - b", "b - a"}
    page = make_report(y, MultiLabel(p, names)).html
    assert "&lt;b&gt;fever\N{NO-BREAK SPACE}*" in page
    assert "<b>fever" not in page
    assert "Labels without a known row: rash" in page
    assert page.count("<svg") == 2
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    with pytest.raises(BadTypeError, match="several labels"):
        make_report(y, MultiLabel(p), ood=MultiLabel(p))


@pytest.fixture(scope="module")
def rows() -> Batch:
    rng = np.random.default_rng(1)
    odds = rng.normal(-1, 1.5, (300, 3))
    y = (rng.random((300, 3)) < 1 / (1 + np.exp(-odds))) * 1.0
    y[:, 2] = np.nan
    return Batch.of(y, MultiLabel.from_logits(2 * odds, ["cough", "<b>fever", "rash"]))


@pytest.mark.slow
def test_a_policy_of_labels_has_its_decisions_first(rows: Batch) -> None:
    costs = LabelCosts(1, {"<b>fever": 9, "*": 3}, review=0.3, review_row=0.5)
    policy, evidence = MultiLabelPolicy.fit_shards(
        ArrayShards(rows), costs=costs, calibrator=MultiLabelCalibrator("platt")
    )
    section = label_decisions_section(policy, policy.report)
    text, cards, table, note = section.blocks
    assert isinstance(text, Text)
    assert "false negative 3 to 9, review of a label 0.3, review of a row 0.5" in text.text
    assert isinstance(cards, Cards)
    assert cards.cards[0].value == f"{policy.report.cost.value:.4f}"
    assert cards.cards[2].value == f"{100 * policy.report.row_review_rate.value:.1f} %"
    assert isinstance(table, Table)
    costs_shown = [row[table.columns.index("cost")] for row in table.rows]
    assert costs_shown[:2] == [
        f"{one:.3g}" for one in sorted(policy.report.label_costs.values(), reverse=True)
    ]
    assert costs_shown[2] == table.rows[2][6] == "\N{EN DASH}"  # never known
    assert isinstance(note, Text)
    assert "cross-fitted in 5 folds" in note.text
    report = Report.of(ArrayShards(rows), policy=policy, evidence=evidence)
    assert report.verdict.startswith(f"Decisions cost {policy.report.cost.value:.4f} per row.")
    assert report.html.index("What is decided?</h2>") < report.html.index("calibrated?</h2>")
    assert "<b>fever" not in report.html
    own = make_report(rows.labels, rows.outputs, policy=policy)
    assert "the rows of this report" in own.html
    classes = Policy.fit([[0.8, 0.2], [0.3, 0.7]] * 9, [0, 1] * 9, costs=CostMatrix.zero_one(2))
    with pytest.raises(BadTypeError, match="must be a fitted MultiLabelPolicy"):
        make_report(rows.labels, rows.outputs, policy=classes)
    with pytest.raises(BadTypeError, match="must be a fitted Policy"):
        make_report([0, 1], [[0.2, 0.8], [0.7, 0.3]], policy=policy)


def test_a_score_is_the_headline_of_its_policy(rows: Batch) -> None:
    policy, evidence = MultiLabelPolicy.fit_shards(
        ArrayShards(rows), f_beta=FBeta(1, "micro"), calibrator=MultiLabelCalibrator("platt")
    )
    found = audit(evidence.y, MultiLabel(evidence.decisions.probabilities), n_resamples=0)
    verdict = label_policy_verdict(policy, policy.report, found)
    assert verdict.headline == f"Decisions reach a micro F1 of {policy.report.score:.3f}."
    table = label_decisions_section(policy, policy.report).blocks[2]
    assert isinstance(table, Table)
    assert "reviewed" not in table.columns
    assert "review from" not in table.columns
