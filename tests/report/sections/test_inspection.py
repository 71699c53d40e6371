"""Tables of rows, classes and groups, against scikit-learn, and the provenance of a report."""

import numpy as np
from sklearn.metrics import confusion_matrix, precision_score, recall_score

from dubito import Logits, TopLabel
from dubito.data import ArrayShards, Batch
from dubito.formatting import ABSENT, percent
from dubito.report.content import Code, Facts, Row, Table, Text
from dubito.report.sample import class_names
from dubito.report.sections.inspection import (
    _class_table,
    _confusion_table,
    _group_table,
    _rows_table,
    inspection_section,
    predictions_table,
    provenance_section,
)
from dubito.report.summary import Provenance, Summary


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
        percent(worst.frequency),
        percent(worst.probability),
    )
    assert first[4] == percent(worst.calibration_error, 2)


def test_groups_are_the_audit_s_the_largest_gap_first(summary: Summary) -> None:
    before = summary.audit_before.groups
    table = _group_table(summary)
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
    facts, text, code = provenance_section((("rows", "3"), *found.facts), found.command).blocks
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
    assert len(provenance_section((), None).blocks) == 1


def made(n_rows: int = 80) -> Batch:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(n_rows, 3))
    labels = (logits + rng.gumbel(size=(n_rows, 3))).argmax(axis=1)
    names = np.array(["cat", "dog", "fox"])
    ids = [f"id-{k}" for k in range(n_rows)]
    return Batch.of(names[labels].tolist(), Logits(logits, names.tolist()), ids=ids)


def test_the_most_uncertain_rows_and_the_most_confident_errors() -> None:
    batch = made()
    confidence = batch.rows.confidence
    found = Summary.of(ArrayShards(batch))
    rows = inspection_section(found).blocks[0]
    assert isinstance(rows, Row)
    uncertain, wrong = rows.blocks
    assert isinstance(uncertain, Table)
    assert isinstance(wrong, Table)
    after = found.after.rows
    assert [row[0] for row in uncertain.rows] == [
        f"id-{k}" for k in np.argsort(after.confidence, kind="stable")[:15]
    ]
    order = [k for k in np.argsort(-after.confidence, kind="stable") if after.correct[k] == 0]
    assert [row[0] for row in wrong.rows] == [f"id-{k}" for k in order[:15]]
    assert all(row[1] != row[2] for row in wrong.rows)
    first = order[0]
    assert wrong.rows[0][3:] == (
        percent(confidence[first], 2),
        percent(after.confidence[first], 2),
    )


def test_confusions_are_those_of_the_matrix() -> None:
    batch = made()
    true, said = batch.labels.codes, batch.rows.predicted  # type: ignore[union-attr]
    matrix = confusion_matrix(true, said)
    names, found = class_names(batch), _confusion_table(batch).rows
    counts = [int(row[2]) for row in found]
    assert counts == sorted(counts, reverse=True)
    for truth, predicted, count, fraction, confidence in found:
        t, p = names.index(truth), names.index(predicted)
        assert count == f"{matrix[t, p]}"
        assert fraction == percent(matrix[t, p] / matrix[t].sum())
        picked = (true == t) & (said == p)
        assert confidence == percent(batch.rows.confidence[picked].mean())
    assert sum(counts) == (true != said).sum()


def test_classes_have_the_usual_precision_and_recall() -> None:
    found = Summary.of(ArrayShards(made()))
    true, said = found.after.labels.codes, found.after.rows.predicted  # type: ignore[union-attr]
    precision, recall = (
        dict(zip(class_names(found.after), metric(true, said, average=None), strict=True))
        for metric in (precision_score, recall_score)
    )
    matrix = confusion_matrix(true, said)
    rows = predictions_table(found.after).rows
    assert [row[0] for row in rows] == list(class_names(found.after))
    for k, (name, n_rows, shown_precision, shown_recall, other) in enumerate(rows):
        assert n_rows == f"{matrix[k].sum()}"
        assert shown_precision == percent(precision[name])
        assert shown_recall == percent(recall[name])
        wrong = np.where(np.arange(len(matrix)) == k, 0, matrix[k])
        assert other.endswith(f"({percent(wrong.max() / matrix[k].sum())})")
        assert wrong[class_names(found.after).index(other.rpartition(" (")[0])] == wrong.max()


def test_a_class_that_never_occurs_has_no_precision_and_no_recall() -> None:
    found = Summary.of(ArrayShards(Batch.of([0, 0], [[0.9, 0.1], [0.8, 0.2]])))
    rows = {row[0]: row[1:] for row in predictions_table(found.after).rows}
    sure = percent(1.0)
    assert rows == {"0": ("2", sure, sure, ABSENT), "1": ("0", ABSENT, ABSENT, ABSENT)}


def test_top_labels_and_soft_labels() -> None:
    top = Batch.of(None, TopLabel([0.9, 0.6, 0.7], [1.0, 0.0, 0.25]))
    table = _rows_table("Rows", Summary.of(ArrayShards(top)), np.array([1, 2, 0]))
    assert isinstance(table, Table)
    assert [row[:3] for row in table.rows] == [
        ("row 1", "the answer", "wrong"),
        ("row 2", "the answer", "right with probability 25 %"),
        ("row 0", "the answer", "right"),
    ]
    rows = inspection_section(Summary.of(ArrayShards(top))).blocks
    assert isinstance(rows[0], Row)
    wrong = rows[0].blocks[1]
    assert isinstance(wrong, Table)
    assert [row[0] for row in wrong.rows] == ["row 2", "row 1"]
    assert len(rows) == 1
    assert not _confusion_table(top).rows
    soft = Batch.of([[0.5, 0.5]], [[0.9, 0.1]])
    assert not _confusion_table(soft).rows
    found = Summary.of(ArrayShards(soft))
    table = _rows_table("Rows", found, np.array([0]))
    assert isinstance(table, Table)
    assert table.rows[0][2] == "right with probability 50 %"
    assert not predictions_table(found.after).rows
