import re

from dubito.report.figures.charts import MOST_LETTERS, Span, span_chart


def test_a_row_has_a_line_from_end_to_end_and_a_mark_at_its_value() -> None:
    chart = span_chart("Both", [("log loss", [Span("right", -0.4, -0.3, -0.2)])], "change")
    lines = re.findall(r'class="line right" d="M([\d.]+) ([\d.]+)L([\d.]+) ([\d.]+)"', chart)
    across, *marks = [[float(end) for end in line] for line in lines]
    assert across[1] == across[3]
    assert [mark[0] for mark in marks] == [mark[2] for mark in marks]
    low, value, high = (mark[0] for mark in marks)
    assert (low, high) == (across[0], across[2])
    assert abs(value - (low + high) / 2) < 0.11
    # The axis goes from -0.4 to 0 over the whole width.
    assert low == 64.0
    assert high == 64.0 + (400 - 64 - 18) / 2
    assert "diagonal" in chart  # where nothing changes


def test_rows_come_from_the_top_with_their_names_escaped() -> None:
    rows = [(name, [Span("before", 0.1, 0.1, 0.1)]) for name in ("<b>", "y" * 99, "z")]
    chart = span_chart("Classes", rows, "share")
    texts = re.findall(r'<text class="label" x="64" y="([\d.]+)">([^<]*)</text>', chart)
    names = [name for _, name in texts]
    assert names == ["&lt;b&gt;", "y" * (MOST_LETTERS - 1) + "\u2026", "z"]
    heights = [float(y) for y, _ in texts]
    assert heights == sorted(heights)
