"""What the tables of the studies support: a verdict per claim, with the estimates it rests on.

    python -m studies.verdicts    # read docs/studies/*.md again and rewrite all verdicts

A verdict is never written by hand. `studies.claims` names the cells of a study's tables that speak
for or against a claim, and where the claim puts each: above a bound, below it, or within a distance
of a value. An estimate agrees if its whole 95 % interval over seeds lies there, disagrees if no
part of it does, and is undecided otherwise or with fewer than three seeds. A claim

- agrees or disagrees if all of its estimates do;
- agrees in part (disagrees in part) if some do and the others are undecided;
- is mixed if some estimates agree and others disagree;
- is not shown if all are undecided.

A cell is a mean ± standard deviation (Student's interval) or has its interval beside it. The
difference of two cells that no table pairs is "unpaired" (Welch's interval). Cells are rounded:
intervals include what their last digit leaves open, so that no word depends on it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import numpy as np
from scipy.stats import t

from dubito.measure import Interval
from studies.common.reporting import README, markdown_table, put_into_readme
from studies.common.seeds import LEVEL

DOCS = Path(__file__).parents[1] / "docs" / "studies"
LITERATURE = DOCS.parent / "literature.md"
TITLE = "**Verdicts**"
TINY = 1e-6  # of the last digit: floating-point noise
NUMBER = r"([+-]?\d+(?:\.\d+)?)"
SPREAD = re.compile(rf"{NUMBER} ± {NUMBER}")
BOUNDED = re.compile(rf"{NUMBER} \({NUMBER} to {NUMBER}\)")

Place = tuple[str, str, str] | tuple[str, str]  # table, row, column; or title, words before it
Where = Literal["above", "below", "within"]
Side = Literal["agrees", "disagrees", "undecided"]
WORDS = {"agrees": "agree", "disagrees": "disagree", "undecided": "undecided"}
FEWEST_SEEDS = 3


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """An estimate of a study, and where the claim puts it: on a side of `bound`, or so close to 0.

    With `known`, the estimate is the distance to a known value. `highest` is the largest value that
    the estimate can have.
    """

    what: str
    at: Place
    claimed: Where = "above"
    bound: float = 0.0
    minus: Place | None = None
    n_seeds: int | None = None  # if not those of the whole study
    known: float = 0.0
    highest: float = np.inf

    def interval(self, text: str) -> Interval:
        """Return the estimate in a report, with its interval over seeds, rounded outwards."""
        cells = [_cell(text, place) for place in (self.at, self.minus) if place is not None]
        found = _student_or_welch(cells, self.seeds(text))
        unit = 10.0 ** -self.n_digits(text)
        low = np.floor((found.low - self.known) / unit + TINY) * unit
        high = np.ceil((min(found.high, self.highest) - self.known) / unit - TINY) * unit
        return Interval(found.value - self.known, float(low), float(high))

    def n_digits(self, text: str) -> int:
        """Return the number of decimals with which the estimate is printed, at least three."""
        match = re.match(NUMBER, _cell(text, self.at))
        return max(3, len(match[1].partition(".")[2]) if match else 0)

    def seeds(self, text: str) -> int:
        """Return the number of seeds behind the estimate."""
        return self.n_seeds or int(re.findall(r"^Seeds: (\d+)\.$", text, re.MULTILINE)[-1])

    def side(self, text: str) -> Side:
        """Return what the interval shows about this estimate."""
        found = self.interval(text)
        ends = {
            "above": (self.bound, np.inf),
            "below": (-np.inf, self.bound),
            "within": (-self.bound, self.bound),
        }
        low, high = ends[self.claimed]
        if self.seeds(text) < FEWEST_SEEDS:
            return "undecided"
        if low < found.low and found.high < high:
            return "agrees"
        return "disagrees" if found.high < low or high < found.low else "undecided"

    def name(self) -> str:
        """Return what the estimate is."""
        return self.what if self.minus is None else f"{self.what} (unpaired)"

    def place(self) -> str:
        """Return where the claim puts the estimate."""
        return f"{self.claimed} {'±' if self.claimed == 'within' else ''}{self.bound:g}"

    def formatted(self, text: str) -> str:
        """Return the estimate and its interval, with the digits of its cell."""
        found, spec = self.interval(text), f"z.{self.n_digits(text)}f"
        return f"{found.value:{spec}} ({found.low:{spec}} to {found.high:{spec}})"


@final
@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the literature, its source, and the evidence of one study."""

    claim: str
    source: str
    evidence: tuple[Evidence, ...]

    def sides(self, text: str) -> Counter[Side]:
        """Return how many estimates agree, disagree and are undecided."""
        return Counter(one.side(text) for one in self.evidence)

    def verdict(self, text: str) -> str:
        """Return the verdict from all estimates."""
        sides = set(self.sides(text))
        if {"agrees", "disagrees"} <= sides:
            return "mixed"
        decided = sides - {"undecided"}
        if not decided:
            return "not shown"
        return decided.pop() + (" in part" if "undecided" in sides else "")

    def counts(self, text: str) -> str:
        """Return how many estimates agree, disagree and are undecided, as text."""
        return ", ".join(f"{n} {WORDS[side]}" for side, n in sorted(self.sides(text).items()))

    def rows(self, text: str) -> list[list[str]]:
        """Return one row per estimate; the claim and its verdict are in the first."""
        head = [f"{self.claim} ({self.source})", f"**{self.verdict(text)}**"]
        return [
            [
                *(head if number == 0 else ["", ""]),
                one.name(),
                one.place(),
                one.formatted(text),
                one.side(text),
                str(one.seeds(text)),
            ]
            for number, one in enumerate(self.evidence)
        ]


HEADS = ["Claim", "Verdict", "Estimate", "Claimed", "Found (95 % interval)", "Result", "Seeds"]


def with_verdicts(text: str, claims: Sequence[Claim]) -> str:
    """Return the report of a study, followed by the verdicts that its tables support."""
    report = text.split(f"\n\n{TITLE}")[0]
    if not claims:
        return report
    rows = [row for claim in claims for row in claim.rows(report)]
    return f"{report}\n\n{TITLE}\n\n{_table(HEADS, rows)}"


def overview(reports: dict[str, str], claims: dict[str, tuple[Claim, ...]]) -> str:
    """Return the verdicts of all studies in one table."""
    rows = []
    for name, of_study in claims.items():
        for number, claim in enumerate(of_study):
            study = f"[{name}](../docs/studies/{name}.md)" if number == 0 else ""
            estimates = [f"{one.name()}: {one.formatted(reports[name])}" for one in claim.evidence]
            seeds = sorted({one.seeds(reports[name]) for one in claim.evidence})
            verdict = f"**{claim.verdict(reports[name])}**"
            counts = ", ".join(map(str, seeds))
            rows.append([study, claim.claim, claim.source, verdict, "; ".join(estimates), counts])
    return _table(
        ["Study", "Claim", "Source", "Verdict", "Estimates (95 % interval)", "Seeds"], rows
    )


def claims_table(reports: dict[str, str], claims: dict[str, tuple[Claim, ...]]) -> str:
    """Return one line per claim, with its study, its verdict and what its estimates say."""
    rows = [
        [
            claim.claim,
            claim.source,
            f"`python -m studies.{name}`",
            claim.verdict(reports[name]),
            claim.counts(reports[name]),
        ]
        for name, of_study in claims.items()
        for claim in of_study
    ]
    return _table(["Claim", "Source", "Study", "Verdict", "Estimates"], rows)


def verdict_lines(text: str, claims: Sequence[Claim]) -> str:
    """Return the verdicts of one study as a list."""
    return "\n".join(
        f"- {claim.claim} ({claim.source}): **{claim.verdict(text)}** ({claim.counts(text)})"
        for claim in claims
    )


def _table(heads: list[str], rows: list[list[str]]) -> str:
    """Return a Markdown table whose columns of words are aligned to the left."""
    return markdown_table(heads, rows).replace("---:", "---")


def _cell(text: str, place: Place) -> str:
    """Return the text of a cell, or the text that follows some words."""
    if len(place) == 2:
        title, words = place
        start = text.index(words, text.index(title)) + len(words)
        return text[start : start + 60]
    title, row, column = place
    for heads, rows in _tables(text, title):
        for cells in rows:
            if cells[0] == row and column in heads:
                return cells[heads.index(column)].replace("*", "")
    raise LookupError(f"No table {title!r} has a row {row!r} with a column {column!r}.")


def _tables(text: str, title: str) -> list[tuple[list[str], list[list[str]]]]:
    """Return the tables whose first head, or the paragraph above them, starts with a title."""
    found = []
    blocks = text.split("\n\n")
    for above, block in zip(["", *blocks], blocks, strict=False):
        if not block.startswith("|"):
            continue
        lines = [
            [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
            for line in block.splitlines()
        ]
        if (lines[0][0] or above.replace("*", "")).startswith(title):
            found.append((lines[0], lines[2:]))
    return found


def _mean_and_spread(cell: str) -> tuple[float, float, float]:
    """Return the mean, the largest standard deviation, and half a unit of the last digit."""
    match = SPREAD.match(cell)
    if match is None:
        raise ValueError(f"Expected a mean ± its standard deviation, got {cell!r}.")
    half_unit = 0.5 * 10.0 ** -len(match[1].partition(".")[2])
    return float(match[1]), float(match[2]) + half_unit, half_unit


def _student_or_welch(cells: Sequence[str], n_seeds: int) -> Interval:
    """Return the interval of a cell: printed, or Student's; of two: Welch's of the difference."""
    bounded = BOUNDED.match(cells[0])
    if len(cells) == 1 and bounded is not None:
        return Interval(*(float(one) for one in bounded.groups()))
    means, spreads, half_units = np.transpose([_mean_and_spread(cell) for cell in cells])
    errors = np.square(spreads) / n_seeds
    degrees = errors.sum() ** 2 / np.square(errors).sum() * (n_seeds - 1)
    half = t.ppf((1 + LEVEL) / 2, degrees) * np.sqrt(errors.sum()) + half_units.sum()
    value = means[0] - means[1:].sum()
    return Interval(float(value), float(value - half), float(value + half))


def main() -> None:
    """Rewrite the verdicts of all studies from their stored tables."""
    from studies.claims import CLAIMS

    reports = {}
    for name, claims in CLAIMS.items():
        path = DOCS / f"{name}.md"
        reports[name] = with_verdicts(path.read_text().rstrip("\n"), claims)
        path.write_text(f"{reports[name]}\n")
        put_into_readme(name, reports[name])
        put_into_readme(name, verdict_lines(reports[name], claims), DOCS / "README.md")
    put_into_readme("verdicts", overview(reports, CLAIMS))
    put_into_readme("claims", claims_table(reports, CLAIMS), LITERATURE)
    print(f"{README} and {len(reports)} reports in {DOCS}")


if __name__ == "__main__":
    main()
