"""Verdicts follow from the stored tables, and no word contradicts its estimate."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from studies.claims import CLAIMS
from studies.verdicts import (
    Claim,
    Evidence,
    Where,
    claims_table,
    overview,
    verdict_lines,
    with_verdicts,
)

ROOT = Path(__file__).parents[2]
REPORTS = {name: (ROOT / "docs" / "studies" / f"{name}.md").read_text() for name in CLAIMS}
README = (ROOT / "studies" / "README.md").read_text()
PAGE = (ROOT / "docs" / "studies" / "README.md").read_text()
LITERATURE = (ROOT / "docs" / "literature.md").read_text()

TEXT = r"""**Error** by loss

|  | one | two |
|---|---:|---:|
| a | 0.200 ± 0.010 | +1.50 (-0.50 to +3.50)* |
| b | 0.100 ± 0.020 | **0.300 ± 0.000** |

| Depth | one |
|---|---:|
| a | -0.200 ± 0.010 |

Gain, same seed: a 0.431 ± 0.037; b -0.152 ± 0.010.

Seeds: 4."""


def test_intervals_equal_those_of_scipy() -> None:
    rng = np.random.default_rng(0)
    first, second = rng.normal(size=(2, 4))
    text = (
        f"| t | x |\n|---|---:|\n| a | {first.mean():.9f} ± {first.std(ddof=1):.9f} |\n"
        f"| b | {second.mean():.9f} ± {second.std(ddof=1):.9f} |\n\nSeeds: 4."
    )
    alone = Evidence("", ("t", "a", "x")).interval(text)
    expected = stats.ttest_1samp(first, 0).confidence_interval()
    assert [alone.low, alone.high] == pytest.approx([expected.low, expected.high], abs=1e-7)
    assert alone.low <= expected.low < expected.high <= alone.high
    gap = Evidence("", ("t", "a", "x"), minus=("t", "b", "x")).interval(text)
    welch = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert [gap.low, gap.high] == pytest.approx([welch.low, welch.high], abs=1e-6)


def test_cells_are_found_by_table_row_and_column_or_after_words() -> None:
    assert Evidence("", ("Error", "a", "one")).interval(TEXT).value == 0.2
    assert Evidence("", ("Depth", "a", "one")).interval(TEXT).value == -0.2
    printed = Evidence("", ("Error", "a", "two")).interval(TEXT)
    assert (printed.value, printed.low, printed.high) == (1.5, -0.5, 3.5)
    assert Evidence("", ("Error", "b", "two")).interval(TEXT).value == 0.3
    assert Evidence("", ("Gain", "b ")).interval(TEXT).value == -0.152
    with pytest.raises(LookupError, match="No table 'Error' has a row 'c'"):
        Evidence("", ("Error", "c", "one")).interval(TEXT)


@pytest.mark.parametrize(
    ("places", "verdict"),
    [
        ([("Gain", "a ")], "agrees"),
        ([("Gain", "b ")], "disagrees"),
        ([("Error", "a", "two")], "not shown"),
        ([("Gain", "a "), ("Error", "a", "one")], "agrees"),
        ([("Gain", "a "), ("Gain", "b ")], "mixed"),
        ([("Gain", "a "), ("Gain", "b "), ("Error", "a", "two")], "mixed"),
        ([("Gain", "a "), ("Error", "a", "two")], "agrees in part"),
        ([("Gain", "b "), ("Error", "a", "two")], "disagrees in part"),
    ],
)
def test_the_word_is_what_all_figures_say(places: list[tuple[str, ...]], verdict: str) -> None:
    evidence = tuple(Evidence("x", place) for place in places)  # type: ignore[arg-type]
    claim = Claim("it holds", "A 2000", evidence)
    assert claim.verdict(TEXT) == verdict
    rows = with_verdicts(TEXT, [claim]).split("**Verdicts**\n\n")[1].splitlines()
    assert len(rows) == 2 + len(places)
    assert f"| it holds (A 2000) | **{verdict}** |" in rows[2]
    assert with_verdicts(with_verdicts(TEXT, [claim]), [claim]) == with_verdicts(TEXT, [claim])


@pytest.mark.parametrize("name", CLAIMS)
def test_stored_verdicts_are_those_of_the_stored_tables(name: str) -> None:
    stored = REPORTS[name].rstrip("\n")
    assert with_verdicts(stored, CLAIMS[name]) == stored
    assert f"<!-- {name} -->\n{stored}\n<!-- end of {name} -->" in README
    assert overview(REPORTS, CLAIMS) in README


def test_rounded_cells_leave_their_last_digit_open() -> None:
    # A mean of 0.0005 and a spread of 0.0005, with four seeds: 0.0005 + 3.182 * 0.0005 / 2.
    text = "| t | x |\n|---|---:|\n| a | 0.000 ± 0.000 |\n\nSeeds: 4."
    found = Evidence("", ("t", "a", "x"), highest=0.001).interval(text)
    assert (found.low, found.high) == pytest.approx((-0.002, 0.001))
    assert Evidence("", ("t", "a", "x"), "within", 0.003).side(text) == "agrees"
    assert Evidence("", ("t", "a", "x"), "within", 0.001).side(text) == "undecided"


@pytest.mark.parametrize(
    ("claimed", "bound", "known", "side"),
    [
        ("above", -0.6, 0.0, "agrees"),
        ("above", -0.5, 0.0, "undecided"),
        ("below", 3.6, 0.0, "agrees"),
        ("below", -1.0, 0.0, "disagrees"),
        ("within", 2.1, 1.5, "agrees"),
        ("within", 2.0, 1.5, "undecided"),
        ("within", 1.0, 5.0, "disagrees"),
        ("within", 1.0, -2.0, "disagrees"),
    ],
)
def test_an_estimate_agrees_if_its_whole_interval_lies_where_claimed(
    claimed: Where, bound: float, known: float, side: str
) -> None:
    one = Evidence("", ("Error", "a", "two"), claimed, bound, known=known)  # -0.5 to 3.5
    assert one.side(TEXT) == side
    assert one.side(TEXT.replace("Seeds: 4", "Seeds: 2")) == "undecided"


def word(claimed: str, estimate: str) -> str:
    """Return the verdict of a printed estimate on where it is claimed to be."""
    low, high = (float(one) for one in estimate.split("(")[1].rstrip(")").split(" to "))
    side, bound = claimed.split(" ")
    if side == "within":
        margin = float(bound.lstrip("±"))
        inside, outside = max(-low, high) < margin, low > margin or high < -margin
    else:
        sign = 1 if side == "above" else -1
        near, far = sorted((sign * low, sign * high))
        inside, outside = near > sign * float(bound), far < sign * float(bound)
    return "agrees" if inside else "disagrees" if outside else "undecided"


@pytest.mark.parametrize("name", CLAIMS)
def test_printed_words_follow_from_the_printed_estimates(name: str) -> None:
    table = REPORTS[name].split("**Verdicts**\n\n")[1]
    verdict, sides = "", set()
    for line in reversed(table.splitlines()[2:]):
        cells = [one.strip() for one in re.split(r"(?<!\\)\|", line)[1:-1]]
        verdict, _, claimed, estimate, side = cells[1:6]
        assert side == word(claimed, estimate), line
        sides.add(side)
        if verdict:
            some = {one for one in ("agrees", "disagrees") if one in sides}
            expected = "mixed" if len(some) == 2 else "not shown" if not some else min(some)
            expected += " in part" if len(some) == 1 and "undecided" in sides else ""
            assert verdict == f"**{expected}**", line
            sides = set()
    assert not sides


def test_other_pages_have_the_same_verdicts() -> None:
    assert claims_table(REPORTS, CLAIMS) in LITERATURE
    for name, claims in CLAIMS.items():
        lines = verdict_lines(REPORTS[name], claims)
        assert f"<!-- {name} -->\n{lines}\n<!-- end of {name} -->" in PAGE
