"""Reports of studies: tables of means and spreads, a figure, and the section of the README."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, final

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from matplotlib.figure import Figure


README = Path(__file__).parents[1] / "README.md"
MANY = 1_000  # means from here on are printed without decimals


@final
@dataclass(frozen=True, slots=True, eq=False)
class StudyReport:
    """The tables and sentences of a study in Markdown, and its figure."""

    text: str
    picture: Figure

    def write(self, folder: Path, name: str) -> None:
        """Write NAME.md and NAME.png."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.md").write_text(f"{self.text}\n")
        self.picture.savefig(folder / f"{name}.png", dpi=110)


def mean_and_spread(values: npt.ArrayLike, digits: int = 3) -> str:
    """Format the mean over seeds and their standard deviation; thousands as integers.

    >>> mean_and_spread([0.1, 0.2, 0.3]), mean_and_spread([1000.2, 3000.4])
    ('0.200 ± 0.100', '2,000 ± 1,414')
    """
    array = np.asarray(values, dtype=float)
    form = ",.0f" if abs(array.mean()) >= MANY else f".{digits}f"
    if array.size < 2:
        return f"{array.mean():{form}}"
    return f"{array.mean():{form}} ± {array.std(ddof=1):{form}}"


def markdown_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table with numbers aligned to the right.

    >>> print(markdown_table(["net", "ECE"], [["LeNet5", "0.05"]]))
    | net | ECE |
    |---|---:|
    | LeNet5 | 0.05 |
    """
    lines = [heads, ["---", *["---:"] * (len(heads) - 1)], *rows]
    texts = ["| " + " | ".join(line) + " |" for line in lines]
    texts[1] = texts[1].replace(" ", "")
    return "\n".join(texts)


def panels(n_rows: int, n_columns: int, *, size: tuple[float, float] = (4.2, 3.4)) -> Figure:
    """Return a figure with panels of `size` inches each, in the style of all studies."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({"axes.spines.top": False, "axes.spines.right": False, "font.size": 9}):
        figure = Figure(figsize=(size[0] * n_columns, size[1] * n_rows), layout="constrained")
        figure.subplots(n_rows, n_columns)
    return figure


def put_into_readme(name: str, text: str, path: Path = README) -> None:
    """Replace the text of a study in the README, between its two marks."""
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    before = path.read_text()
    pattern = re.compile(f"{re.escape(begin)}.*?{re.escape(end)}", re.DOTALL)
    if not pattern.search(before):
        raise ValueError(
            f"put_into_readme: {path.name} has no marks for {name}. Add the lines {begin} and "
            f"{end} where its tables belong."
        )
    path.write_text(pattern.sub(lambda _: f"{begin}\n{text}\n{end}", before))
