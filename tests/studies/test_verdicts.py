"""Verdicts follow from the stored tables, and no word contradicts its figure."""

import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from studies.claims import CLAIMS
from studies.verdicts import Claim, Evidence, overview, with_verdicts

ROOT = Path(__file__).parents[2]
REPORTS = {name: (ROOT / "docs" / "studies" / f"{name}.md").read_text() for name in CLAIMS}
README = (ROOT / "studies" / "README.md").read_text()

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
        ([("Error", "a", "two")], "not significant"),
        ([("Gain", "a "), ("Error", "a", "one")], "agrees"),
        ([("Gain", "a "), ("Gain", "b ")], "in part"),
        ([("Gain", "a "), ("Error", "a", "two")], "in part"),
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


@pytest.mark.parametrize("name", CLAIMS)
def test_words_and_figures_agree_in_sign(name: str) -> None:
    for claim in CLAIMS[name]:
        for one in claim.evidence:
            found = one.interval(REPORTS[name])
            assert found.low <= found.value <= found.high
            distance = found.value - one.bound
            if one.side(REPORTS[name]) == "agrees":
                assert distance * (1 if one.claimed == "above" else -1) > 0
            if one.side(REPORTS[name]) == "disagrees":
                assert distance * (1 if one.claimed == "above" else -1) < 0


@pytest.mark.parametrize("name", CLAIMS)
def test_what_was_found_starts_with_the_verdicts(name: str) -> None:
    section = README.split(f"<!-- end of {name} -->")[1].split("\n## ")[0]
    found = section.split("**Found.**")[1]
    first = " ".join(found.split()).split(". ")[0].lower()
    verdicts = {claim.verdict(REPORTS[name]) for claim in CLAIMS[name]}
    words = {"agrees": "agrees", "in part": "in part", "disagrees": "disagrees"}
    for verdict, word in words.items():
        plain = re.sub("disagrees|agrees in part", "", first) if word == "agrees" else first
        assert (word in plain) == (verdict in verdicts), f"{name}: {first}"
