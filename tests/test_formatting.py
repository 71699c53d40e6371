"""Numbers as text: one style everywhere, and an estimate has as many decimals as its interval."""

import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dubito.formatting import (
    ABSENT,
    HTMLTable,
    cost,
    decimal,
    html_rows,
    html_view,
    or_dash,
    p_value,
    percent,
    plain,
    points,
    short_percent,
)
from dubito.measure import Interval

ROOT = Path(__file__).parents[1]
PERCENT_SIGN = re.compile(r"(?<=[\d}])(?<!a0)%(?!;)")  # no `\xa0%`, no `width: 100%;`
numbers = st.floats(-1e7, 1e7)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.08521, "0.0852"),
        (-0.5, "-0.5000"),
        (12.345, "12.35"),
        (1e4, "10,000"),
        (0.00012345, "0.000123"),
        (0.0, "0.0000"),
        (2e-7, "2.000e-07"),
        (-3e12, "-3.000e+12"),
    ],
)
def test_numbers_have_as_many_digits_as_they_need(value: float, text: str) -> None:
    assert decimal(value) == text


def test_short_numbers() -> None:
    assert (short_percent(0.125), plain(0.1), plain(123456.7)) == ("12.5 %", "0.1", "123,457")
    assert (short_percent(0.9999), short_percent(1 - 0.95)) == ("99.99 %", "5 %")


def test_unknown_values_are_a_dash() -> None:
    assert decimal(None) == percent(None) == points(None) == p_value(None) == ABSENT
    assert (or_dash(None), or_dash(Interval(2, 1, 3))) == (ABSENT, "2.0000 (1.0000 to 3.0000)")


def test_percentages_points_and_p_values() -> None:
    assert (percent(0.12346, 2), percent(1.0)) == ("12.35 %", "100.0 %")
    assert (points(-0.0123), p_value(0.00004), p_value(0.5)) == ("-1.2", "< 0.0001", "0.5000")


@given(numbers, numbers, numbers)
def test_an_estimate_and_its_interval_have_the_same_decimals(a: float, b: float, c: float) -> None:
    low, value, high = sorted([a, b, c])
    for text in (f"{Interval(value, low, high)}", f"{Interval(value, low, high):+}"):
        shown = re.fullmatch(r"(\S+) \((\S+) to (\S+)\)", text)
        assert shown is not None
        decimals = {len(one.partition(".")[2].partition("e")[0]) for one in shown.groups()}
        assert len(decimals) == 1
        largest = max(abs(a), abs(b), abs(c))
        for one, number in zip(shown.groups(), (value, low, high), strict=True):
            assert float(one.replace(",", "")) == pytest.approx(
                number, abs=0.006 * largest + 1e-300
            )
            assert not re.fullmatch(r"-[0.]+", one)
    assert len({len(one.partition(".")[2]) for one in cost(low, value, high)}) == 1


def test_signs_are_shown_on_request() -> None:
    assert f"{Interval(0.25, -0.125, 1):+}" == "+0.2500 (-0.1250 to +1.0000)"


def test_a_percent_sign_follows_a_space() -> None:
    texts = {path: path.read_text() for path in (ROOT / "src" / "dubito").rglob("*.py")}
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")):
        texts[page] = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    assert len(PERCENT_SIGN.findall('f"{x:.1%}", "5% of", f"{y}% of", "5 %", "%s", "d%Y"')) == 3
    wrong = [
        f"{path.relative_to(ROOT)}: {line.strip()}"
        for path, text in texts.items()
        for line in text.splitlines()
        if PERCENT_SIGN.search(line)
    ]
    assert wrong == []


def test_tables_in_notebooks_align_numbers_and_drop_empty_columns() -> None:
    rows = [("  a", "1.5 (1 to 2)", "", "0.5 if random"), ("b", "-", "", "")]
    html = html_view(
        "It works.", "x\n<y>", HTMLTable(("name", "value", "gone", "note"), rows, "More")
    )
    assert "<p>x<br>&lt;y&gt;</p>" in html
    assert "<summary>More</summary>" in html
    assert "gone" not in html
    sides = re.findall(r"<t[hd][^>]*text-align:(\w+)[^>]*>([^<]*)<", html)
    assert ("right", "1.5 (1 to 2)") in sides
    assert ("left", "0.5 if random") in sides
    assert ("left", "\u2003a") in sides


def test_rows_in_notebooks_are_few() -> None:
    table = html_rows({"expected_cost": np.arange(12) / 3, "action": np.array(["pass"] * 12)}, 12)
    assert table.head == ("row", "expected cost", "action")
    assert table.rows[1] == ("1", "0.3333", "pass")
    assert len(table.rows) == 11
    assert table.rows[-1] == ("\N{HORIZONTAL ELLIPSIS}", "", "")
