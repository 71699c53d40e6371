"""What the tables of the studies support: a verdict per claim, with the figures it rests on.

    python -m studies.verdicts    # read docs/studies/*.md again and rewrite all verdicts

A verdict is never written by hand. `studies.claims` names the cells of a study's tables that speak
for or against a claim, and the side on which the claim puts each; the word follows from their 95 %
intervals over seeds. A cell is a mean ± standard deviation (Student's interval) or has its interval
beside it. A difference of two cells that the tables do not pair is unpaired (Welch's interval).
"""

from __future__ import annotations

import re
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
NUMBER = r"([+-]?\d+(?:\.\d+)?)"
SPREAD = re.compile(rf"{NUMBER} ± {NUMBER}")
BOUNDED = re.compile(rf"{NUMBER} \({NUMBER} to {NUMBER}\)")

Place = tuple[str, str, str] | tuple[str, str]  # table, row, column; or title, words before it
Side = Literal["agrees", "disagrees", "not significant"]


@final
@dataclass(frozen=True, slots=True)
class Evidence:
    """A figure of a study, and the side of `bound` on which the claim puts it."""

    what: str
    at: Place
    claimed: Literal["above", "below"] = "above"
    bound: float = 0.0
    minus: Place | None = None
    n_seeds: int | None = None  # if not those of the whole study

    def interval(self, text: str) -> Interval:
        """Return the figure in a study's report, with its interval over seeds."""
        n_seeds = self.seeds(text)
        found = _cell(text, self.at)
        if self.minus is None:
            return _student(found, n_seeds)
        return _welch(found, _cell(text, self.minus), n_seeds)

    def seeds(self, text: str) -> int:
        """Return the number of seeds behind the figure."""
        return self.n_seeds or int(re.findall(r"^Seeds: (\d+)\.$", text, re.MULTILINE)[-1])

    def side(self, text: str) -> Side:
        """Return what the interval shows about this figure."""
        interval = self.interval(text)
        if interval.low <= self.bound <= interval.high:
            return "not significant"
        is_above = interval.low > self.bound
        return "agrees" if is_above == (self.claimed == "above") else "disagrees"


@final
@dataclass(frozen=True, slots=True)
class Claim:
    """A claim of the literature, its source, and the evidence of one study."""

    claim: str
    source: str
    evidence: tuple[Evidence, ...]

    def verdict(self, text: str) -> str:
        """Return the one word that all figures have in common, or "in part"."""
        sides = {one.side(text) for one in self.evidence}
        return sides.pop() if len(sides) == 1 else "in part"

    def rows(self, text: str) -> list[list[str]]:
        """Return one row per figure; the claim and its verdict are in the first."""
        head = [f"{self.claim} ({self.source})", f"**{self.verdict(text)}**"]
        return [
            [
                *(head if number == 0 else ["", ""]),
                one.what,
                f"{one.claimed} {one.bound:g}",
                _formatted(one.interval(text)),
                one.side(text),
                str(one.seeds(text)),
            ]
            for number, one in enumerate(self.evidence)
        ]


HEADS = ["Claim", "Verdict", "Figure", "Claimed", "Found (95 % interval)", "Figure says", "Seeds"]


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
            figures = [
                f"{one.what}: {_formatted(one.interval(reports[name]))}" for one in claim.evidence
            ]
            seeds = sorted({one.seeds(reports[name]) for one in claim.evidence})
            verdict = f"**{claim.verdict(reports[name])}**"
            counts = ", ".join(map(str, seeds))
            rows.append([study, claim.claim, claim.source, verdict, "; ".join(figures), counts])
    return _table(["Study", "Claim", "Source", "Verdict", "Figures (95 % interval)", "Seeds"], rows)


def claims_table(reports: dict[str, str], claims: dict[str, tuple[Claim, ...]]) -> str:
    """Return one line per claim, with its study and verdict."""
    rows = [
        [claim.claim, claim.source, f"`python -m studies.{name}`", claim.verdict(reports[name])]
        for name, of_study in claims.items()
        for claim in of_study
    ]
    return _table(["Claim", "Source", "Study", "Verdict"], rows)


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


def _mean_and_spread(cell: str) -> tuple[float, float]:
    """Return the mean and the standard deviation over seeds."""
    match = SPREAD.match(cell)
    if match is None:
        raise ValueError(f"Expected a mean ± its standard deviation, got {cell!r}.")
    return float(match[1]), float(match[2])


def _student(cell: str, n_seeds: int) -> Interval:
    """Return the interval of a cell: the printed one, or Student's."""
    bounded = BOUNDED.match(cell)
    if bounded is not None:
        return Interval(*(float(one) for one in bounded.groups()))
    mean, spread = _mean_and_spread(cell)
    half = t.ppf((1 + LEVEL) / 2, n_seeds - 1) * spread / np.sqrt(n_seeds)
    return Interval(mean, float(mean - half), float(mean + half))


def _welch(first: str, second: str, n_seeds: int) -> Interval:
    """Return Welch's interval of the difference of two means."""
    means, spreads = zip(_mean_and_spread(first), _mean_and_spread(second), strict=True)
    errors = np.square(spreads) / n_seeds
    # Printed digits may show two spreads of 0: then the means are as they are in every seed.
    degrees = errors.sum() ** 2 / max(np.square(errors).sum(), 1e-300) * (n_seeds - 1)
    half = t.ppf((1 + LEVEL) / 2, max(degrees, 1)) * np.sqrt(errors.sum())
    difference = round(means[0] - means[1], 12)
    return Interval(difference, float(difference - half), float(difference + half))


def _formatted(interval: Interval) -> str:
    """Return a figure and its interval with three digits."""
    return f"{interval.value:.3f} ({interval.low:.3f} to {interval.high:.3f})"


def main() -> None:
    """Rewrite the verdicts of all studies from their stored tables."""
    from studies.claims import CLAIMS

    reports = {}
    for name, claims in CLAIMS.items():
        path = DOCS / f"{name}.md"
        reports[name] = with_verdicts(path.read_text().rstrip("\n"), claims)
        path.write_text(f"{reports[name]}\n")
        put_into_readme(name, reports[name])
    put_into_readme("verdicts", overview(reports, CLAIMS))
    put_into_readme("claims", claims_table(reports, CLAIMS), LITERATURE)
    print(f"{README} and {len(reports)} reports in {DOCS}")


if __name__ == "__main__":
    main()
