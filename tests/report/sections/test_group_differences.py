"""The section on groups shows the figures of the audit, and escapes any name."""

import numpy as np
import pytest

from dubito.charts import SpanRow
from dubito.data import ArrayShards, Batch
from dubito.report import Report
from dubito.report.content import Figure, Row, Table, Text
from dubito.report.sections.calibration import groups_section
from dubito.report.summary import Summary

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def rows() -> ArrayShards:
    rng = np.random.default_rng(0)
    p = rng.beta(1, 3, 400)
    names = np.where(np.arange(400) < 5, "tiny", np.where(rng.random(400) < 0.5, "<b>a", "c.d / e"))
    return ArrayShards(Batch.of((rng.random(400) < p).astype(int), p, groups=names))


def test_charts_and_tables_are_those_of_the_audit(rows: ArrayShards) -> None:
    summary = Summary.of(rows)
    section, comparison = groups_section(summary), summary.whole.group_comparison
    assert section is not None
    assert comparison is not None
    intro, differences, charts, figures = section.blocks
    assert isinstance(intro, Text)
    assert "class 1 predicted where P(1) >= 0.5." in intro.text
    assert intro.text.endswith("Groups with fewer than 20 rows, not compared: tiny.")
    assert isinstance(differences, Table)
    assert [row[0] for row in differences.rows][:2] == ["base rate", "selection rate"]
    assert isinstance(charts, Row)
    shown = charts.blocks[1]
    assert isinstance(shown, Figure)
    for row in shown.charts[0].marks:
        assert isinstance(row, SpanRow)
        one = comparison.metrics[row.title]["selection_rate"]
        assert (row.spans[0].low, row.spans[0].value) == (one.low, one.value)
    assert isinstance(figures, Table)
    assert {row[0] for row in figures.rows} == {"<b>a", "c.d / e"}


def test_without_groups_there_is_no_section(rows: ArrayShards) -> None:
    html = Report.of(rows).html
    assert 'id="groups"' in html
    assert "<b>a" not in html
    plain = Batch.of(rows.batch.labels, rows.batch.outputs)
    assert groups_section(Summary.of(ArrayShards(plain))) is None
