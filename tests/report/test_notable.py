"""Rows and classes worth a look, against plain references."""

import numpy as np
import pytest
from sklearn.metrics import confusion_matrix, precision_score, recall_score

from dubito import Logits, TopLabel
from dubito.data.batch import Batch
from dubito.report.notable import by_class, class_names, confusions, notable_rows


def made(n_rows: int = 80) -> Batch:
    rng = np.random.default_rng(0)
    logits = 2 * rng.normal(size=(n_rows, 3))
    labels = (logits + rng.gumbel(size=(n_rows, 3))).argmax(axis=1)
    names = np.array(["cat", "dog", "fox"])
    ids = [f"id-{k}" for k in range(n_rows)]
    return Batch.of(names[labels].tolist(), Logits(logits, names.tolist()), ids=ids)


def test_the_most_doubtful_and_the_most_confidently_wrong() -> None:
    batch = made()
    doubtful, wrong = notable_rows(batch, batch, 5)
    confidence = batch.rows.confidence
    assert [row.id for row in doubtful] == [f"id-{k}" for k in np.argsort(confidence)[:5]]
    is_wrong = batch.rows.correct == 0
    order = [k for k in np.argsort(-confidence) if is_wrong[k]][:5]
    assert [row.id for row in wrong] == [f"id-{k}" for k in order]
    assert all(row.truth != row.predicted for row in wrong)
    assert wrong[0].before == wrong[0].after == confidence[order[0]]


def test_confusions_are_those_of_the_matrix() -> None:
    batch = made()
    true, said = batch.labels.codes, batch.rows.predicted  # type: ignore[union-attr]
    matrix = confusion_matrix(true, said)
    found = confusions(batch, 10)
    names = class_names(batch)
    assert [one.count for one in found] == sorted((one.count for one in found), reverse=True)
    for one in found:
        t, p = names.index(one.truth), names.index(one.predicted)
        assert one.count == matrix[t, p]
        assert one.share == matrix[t, p] / matrix[t].sum()
        picked = (true == t) & (said == p)
        assert one.confidence == pytest.approx(batch.rows.confidence[picked].mean())
    assert sum(one.count for one in found) == (true != said).sum()


def test_classes_have_the_usual_precision_and_recall() -> None:
    batch = made()
    true, said = batch.labels.codes, batch.rows.predicted  # type: ignore[union-attr]
    lines = by_class(batch)
    assert [one.precision for one in lines] == pytest.approx(
        precision_score(true, said, average=None)
    )
    assert [one.recall for one in lines] == pytest.approx(recall_score(true, said, average=None))
    assert [one.count for one in lines] == np.bincount(true).tolist()


def test_a_class_that_never_occurs_has_no_recall() -> None:
    batch = Batch.of([0, 0], [[0.9, 0.1], [0.8, 0.2]])
    assert by_class(batch)[1].recall is None
    assert by_class(batch)[1].precision is None


def test_where_only_top_labels_or_shares_are_known() -> None:
    top = Batch.of(None, TopLabel([0.9, 0.6, 0.7], [1.0, 0.0, 0.25]))
    doubtful, wrong = notable_rows(top, top, 3)
    assert [(row.id, row.truth) for row in doubtful] == [
        ("row 1", "wrong"),
        ("row 2", "right with chance 25%"),
        ("row 0", "right"),
    ]
    assert [row.id for row in wrong] == ["row 2", "row 1"]
    assert confusions(top, 3) == ()
    assert by_class(top) == ()
    soft = Batch.of([[0.5, 0.5]], [[0.9, 0.1]])
    assert confusions(soft, 3) == ()
    assert notable_rows(soft, soft, 1)[0][0].truth == "right with chance 50%"
