"""Tables of rows, classes and groups, against scikit-learn, and the provenance of a report."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_score, recall_score

from dubito import Logits, TopLabel
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards
from dubito.report.content import Code, Facts, Row, Table, Text
from dubito.report.formatting import percentage
from dubito.report.sections.inspection import (
    _class_counts,
    _class_table,
    _confusions,
    _group_table,
    _notable_rows,
    inspection_section,
    provenance_section,
)
from dubito.report.summary import Provenance, Summary, class_names


def test_rows_confusions_classes_and_groups(summary: Summary) -> None:
    rows, *tables = inspection_section(summary).blocks
    assert isinstance(rows, Row)
    captions = [table.caption for table in tables if isinstance(table, Table)]
    assert [caption.split(",")[0] for caption in captions] == [
        "The most frequent confusions",
        "Classes",
        "Groups",
    ]
    uncertain = rows.blocks[0]
    assert isinstance(uncertain, Table)
    assert uncertain.rows[0][0].startswith("<b>row-")
    assert len(uncertain.rows) == 15


def test_classes_are_the_audit_s_the_worst_first(summary: Summary) -> None:
    worst = max(summary.audit_before.classes, key=lambda one: one.calibration_error)
    first = _class_table(summary).rows[0]
    assert first[:3] == (
        str(worst.name),
        percentage(worst.frequency),
        percentage(worst.probability),
    )
    assert first[4] == percentage(worst.calibration_error, 2)


def test_groups_are_the_audit_s_the_largest_gap_first(summary: Summary) -> None:
    before, after = summary.audit_before.groups, summary.audit_after.groups
    table = _group_table(before, after)
    gaps = [abs(before[row[0]].gap) for row in table.rows]
    assert gaps == sorted(gaps, reverse=True)
    first = before[table.rows[0][0]]
    between = first.intervals["gap"]
    assert table.rows[0][4] == (
        f"{first.gap * 100:+.1f} ({between.low * 100:+.1f} to {between.high * 100:+.1f})"
    )


def test_without_errors_there_are_no_confident_errors() -> None:
    found = Summary.of(ArrayShards(Batch.of([0, 1], [[0.9, 0.1], [0.2, 0.8]])))
    rows = inspection_section(found).blocks[0]
    assert isinstance(rows, Row)
    assert rows.blocks[1] == Text("The most confident errors: none.")


def test_facts_then_the_command() -> None:
    found = Provenance("abc", 7, "dubito demo", (("dubito", "1"), ("numpy", "2")))
    facts, text, code = provenance_section(found, (("rows", "3"),)).blocks
    assert facts == Facts(
        (
            ("rows", "3"),
            ("Data fingerprint", "abc"),
            ("Random seed", "7"),
            ("Versions", "dubito 1, numpy 2"),
        )
    )
    assert (text, code) == (Text("To reproduce this report:"), Code("dubito demo"))


def test_without_a_command_there_is_none() -> None:
    assert len(provenance_section(Provenance("abc", 0, None, ()), ()).blocks) == 1


def made(n_rows: int = 80) -> Batch:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(n_rows, 3))
    labels = (logits + rng.gumbel(size=(n_rows, 3))).argmax(axis=1)
    names = np.array(["cat", "dog", "fox"])
    ids = [f"id-{k}" for k in range(n_rows)]
    return Batch.of(names[labels].tolist(), Logits(logits, names.tolist()), ids=ids)


def test_the_most_uncertain_rows_and_the_most_confident_errors() -> None:
    batch = made()
    uncertain, wrong = _notable_rows(batch, batch, 5)
    confidence = batch.rows.confidence
    assert [row.id for row in uncertain] == [f"id-{k}" for k in np.argsort(confidence)[:5]]
    is_wrong = batch.rows.correct == 0
    order = [k for k in np.argsort(-confidence) if is_wrong[k]][:5]
    assert [row.id for row in wrong] == [f"id-{k}" for k in order]
    assert all(row.truth != row.predicted for row in wrong)
    assert wrong[0].before == wrong[0].after == confidence[order[0]]


def test_confusions_are_those_of_the_matrix() -> None:
    batch = made()
    true, said = batch.labels.codes, batch.rows.predicted  # type: ignore[union-attr]
    matrix = confusion_matrix(true, said)
    found = _confusions(batch, 10)
    names = class_names(batch)
    assert [one.count for one in found] == sorted((one.count for one in found), reverse=True)
    for one in found:
        t, p = names.index(one.truth), names.index(one.predicted)
        assert one.count == matrix[t, p]
        assert one.fraction == matrix[t, p] / matrix[t].sum()
        picked = (true == t) & (said == p)
        assert one.confidence == pytest.approx(batch.rows.confidence[picked].mean())
    assert sum(one.count for one in found) == (true != said).sum()


def test_classes_have_the_usual_precision_and_recall() -> None:
    batch = made()
    true, said = batch.labels.codes, batch.rows.predicted  # type: ignore[union-attr]
    lines = _class_counts(batch)
    assert [one.precision for one in lines] == pytest.approx(
        precision_score(true, said, average=None)
    )
    assert [one.recall for one in lines] == pytest.approx(recall_score(true, said, average=None))
    assert [one.count for one in lines] == np.bincount(true).tolist()


def test_a_class_that_never_occurs_has_no_recall() -> None:
    batch = Batch.of([0, 0], [[0.9, 0.1], [0.8, 0.2]])
    assert _class_counts(batch)[1].recall is None
    assert _class_counts(batch)[1].precision is None


def test_top_labels_and_soft_labels() -> None:
    top = Batch.of(None, TopLabel([0.9, 0.6, 0.7], [1.0, 0.0, 0.25]))
    uncertain, wrong = _notable_rows(top, top, 3)
    assert [(row.id, row.truth) for row in uncertain] == [
        ("row 1", "wrong"),
        ("row 2", "right with probability 25%"),
        ("row 0", "right"),
    ]
    assert [row.id for row in wrong] == ["row 2", "row 1"]
    assert _confusions(top, 3) == ()
    assert _class_counts(top) == ()
    soft = Batch.of([[0.5, 0.5]], [[0.9, 0.1]])
    assert _confusions(soft, 3) == ()
    assert _notable_rows(soft, soft, 1)[0][0].truth == "right with probability 50%"
