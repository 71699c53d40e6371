"""The distribution of uncertainty over kinds of rows."""

from dataclasses import replace

import numpy as np

from dubito import Logits, Members
from dubito.data import ArrayShards, Batch
from dubito.report.content import Figure, Row, Text
from dubito.report.sections.abstention import (
    _decomposition_figure,
    _error_figure,
    _ood_texts,
    uncertainty_section,
)
from dubito.report.summary import Summary


def test_ood_rows_are_shown_if_given(summary: Summary) -> None:
    *texts, row = uncertainty_section(summary).blocks
    assert isinstance(row, Row)
    titles = [figure.title for figure in row.blocks if isinstance(figure, Figure)]
    assert titles == [
        "Correct and wrong rows",
        "OOD rows by confidence",
        "OOD rows by distance",
    ]
    assert all(isinstance(text, Text) for text in texts)
    bare = uncertainty_section(replace(summary, ood=None)).blocks[-1]
    assert isinstance(bare, Row)
    assert len(bare.blocks) == 1


def test_error_figure_rows_are_counted(summary: Summary) -> None:
    figure = _error_figure(summary)
    is_right = summary.after.rows.correct == 1
    names = [name for _, name in figure.legend]
    assert names == [f"correct rows ({is_right.sum()})", f"wrong rows ({(~is_right).sum()})"]
    area = summary.audit_after.error_detection_auroc
    assert area is not None
    assert f"Error detection AUROC: {area:.4f}" in figure.caption


def test_the_fraction_of_detected_ood_rows_is_stated(summary: Summary) -> None:
    found = summary.ood
    assert found is not None
    fitted, detected = (one.text for one in _ood_texts(found))
    assert fitted.startswith("Distances are to the nearest class, fitted on the features of ")
    assert detected.startswith("At a false positive rate of 5 %, the distance detects ")
    assert detected.endswith("of the 60 OOD rows.")


def test_the_epistemic_fraction_is_that_of_the_decomposition() -> None:
    rng = np.random.default_rng(0)
    members = Members.of([Logits(one) for one in 3 * rng.normal(size=(3, 30, 2))])
    summary = Summary.of(ArrayShards(Batch.of(rng.integers(0, 2, 30), members)))
    figure = _decomposition_figure(summary)
    assert summary.uncertainty is not None
    share = summary.uncertainty.epistemic.sum() / summary.uncertainty.total.sum()
    assert figure.caption.startswith(f"{share * 100:.1f} % of the uncertainty is epistemic")
    assert figure.drawings[0].count("<circle") == 30
    row = uncertainty_section(summary).blocks[-1]
    assert isinstance(row, Row)
    last = row.blocks[-1]
    assert isinstance(last, Figure)
    assert last.drawings == figure.drawings
