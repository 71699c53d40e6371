"""Tables of rows, classes and groups."""

from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards
from dubito.report.blocks import Row, Table, Text
from dubito.report.formatting import share
from dubito.report.sections.notable import _class_table, _group_table, looking
from dubito.report.summary import Summary


def test_rows_confusions_classes_and_groups(summary: Summary) -> None:
    rows, *tables = looking(summary).blocks
    assert isinstance(rows, Row)
    captions = [table.caption for table in tables if isinstance(table, Table)]
    assert [caption.split(",")[0] for caption in captions] == [
        "The classes most confused",
        "Classes",
        "Groups",
    ]
    doubtful = rows.blocks[0]
    assert isinstance(doubtful, Table)
    assert doubtful.rows[0][0].startswith("<b>row-")
    assert len(doubtful.rows) == 15


def test_classes_are_the_audit_s_the_worst_first(summary: Summary) -> None:
    worst = max(summary.audit_before.classes, key=lambda one: one.calibration_error)
    first = _class_table(summary).rows[0]
    assert first[:3] == (str(worst.name), share(worst.frequency), share(worst.probability))
    assert first[4] == share(worst.calibration_error, 2)


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


def test_where_nothing_is_wrong_there_is_nothing_to_show() -> None:
    found = Summary.of(ArrayShards(Batch.of([0, 1], [[0.9, 0.1], [0.2, 0.8]])))
    rows = looking(found).blocks[0]
    assert isinstance(rows, Row)
    assert rows.blocks[1] == Text("The most confidently wrong rows: there are none.")
