"""How doubt spreads over kinds of rows."""

from dataclasses import replace

import numpy as np

from dubito import Logits, Members
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards
from dubito.report.blocks import Figure, Row, Text
from dubito.report.sections.uncertainty import (
    _right_and_wrong,
    _strange_words,
    _two_parts,
    doubting,
)
from dubito.report.summary import Summary


def test_known_and_strange_rows_are_shown_where_given(summary: Summary) -> None:
    *texts, row = doubting(summary).blocks
    assert isinstance(row, Row)
    titles = [figure.title for figure in row.blocks if isinstance(figure, Figure)]
    assert titles == [
        "Right and wrong rows",
        "Known and strange rows, by confidence",
        "How far from what is known, by features",
    ]
    assert all(isinstance(text, Text) for text in texts)
    bare = doubting(replace(summary, strangeness=None)).blocks[-1]
    assert isinstance(bare, Row)
    assert len(bare.blocks) == 1


def test_right_and_wrong_rows_are_counted(summary: Summary) -> None:
    figure = _right_and_wrong(summary)
    is_right = summary.after.rows.correct == 1
    names = [name for _, name in figure.legend]
    assert names == [f"right rows ({is_right.sum()})", f"wrong rows ({(~is_right).sum()})"]
    area = summary.audit_after.auroc_of_errors
    assert area is not None
    assert f"{area * 100:.1f}\u00a0% of pairs" in figure.caption


def test_how_many_strangers_are_found_is_told(summary: Summary) -> None:
    found = summary.strangeness
    assert found is not None
    learned, finds = _strange_words(found)
    assert learned.startswith("Distances are to the nearest class, learned from the features of ")
    assert finds.startswith("Where 5\u00a0% of known rows may be called strange, distance finds ")
    assert finds.endswith("of the 60 strange rows.")


def test_the_parts_of_doubt_sum_to_what_is_told() -> None:
    rng = np.random.default_rng(0)
    members = Members.of([Logits(one) for one in 3 * rng.normal(size=(3, 30, 2))])
    summary = Summary.of(ArrayShards(Batch.of(rng.integers(0, 2, 30), members)))
    figure = _two_parts(summary)
    assert summary.parts is not None
    share = summary.parts.epistemic.sum() / summary.parts.total.sum()
    assert figure.caption.startswith(f"{share * 100:.1f}\u00a0% of all doubt is epistemic")
    assert figure.charts[0].count("<circle") == 30
    row = doubting(summary).blocks[-1]
    assert isinstance(row, Row)
    assert row.blocks[-1] == figure
