"""Directives of the benchmarks page: `ratios` plots a printed table, `printed` shows a whole file.

Both read what a command printed (docs/benchmarks/*.txt); the page holds no number of its own.
"""

import re
import subprocess
from html import escape
from math import ceil, floor, log10
from pathlib import Path

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = Path(__file__).parents[1] / "benchmarks"
# The commands that a file does not name itself, where they are not `python -m benchmarks.NAME`.
COMMANDS = {
    "calarena": "benchmarks.calarena FOLDER",
    "forecasts": "benchmarks.forecasts FOLDER",
    "intervals": "benchmarks.intervals FOLDER",
    "row_costs": "benchmarks.row_costs FOLDER",
    "scale": "benchmarks.scale --rows 100000000",
    "selection_speed": "benchmarks.calibration_speed --only selection",
    "sets": "benchmarks.sets FOLDER",
    "startup": "benchmarks.startup --cold",
}


def seconds_of(text: str, table: str, column: str) -> dict[str, float]:
    """Return a column of the table that follows a line, by the first column."""
    lines = text.splitlines()
    start = next(k for k, line in enumerate(lines) if line.startswith(table)) if table else 0
    titles = [re.split(r" {2,}|(?<=seconds) ", line.strip()) for line in lines]
    head = next(k for k in range(start, len(lines)) if column in titles[k])
    place = titles[head].index(column)
    found: dict[str, float] = {}
    for line in lines[head + 1 :]:
        cells = re.match(r"(\S.*?) {2,}(.*)", line)
        if cells is None:
            break
        try:
            found[cells[1]] = float(re.split(r" +", cells[2].strip())[place].replace(",", ""))
        except (ValueError, IndexError):
            break
    return found


class Ratios(SphinxDirective):
    """Seconds of each method relative to one of them, on a logarithmic axis."""

    required_arguments = 1
    final_argument_whitespace = True
    option_spec = {  # noqa: RUF012 - Sphinx reads it as it is
        "title": directives.unchanged,
        "table": directives.unchanged,
        "column": directives.unchanged,
        "to": directives.unchanged_required,
        "leave-out": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        """Return the plot as HTML, which follows the colors of the page."""
        path = FOLDER / self.arguments[0]
        self.env.note_dependency(str(path))
        table = self.options.get("table", "")
        seconds = seconds_of(path.read_text(), table, self.options.get("column", "seconds"))
        for name in self.options.get("leave-out", "").split(";"):
            seconds.pop(name.strip(), None)
        to = self.options["to"]
        ratios = {name: value / seconds[to] for name, value in seconds.items()}
        text = _plot(self.options.get("title") or table or path.stem, ratios, seconds, to)
        return [nodes.raw("", text, format="html")]


def _plot(title: str, ratios: dict[str, float], seconds: dict[str, float], to: str) -> str:
    """Return rows of dots: left of the line is faster than the reference, right is slower."""
    low = min(-0.3, floor(log10(min(ratios.values())) * 2) / 2)
    high = max(0.3, ceil(log10(max(ratios.values())) * 2) / 2)

    def place(ratio: float) -> float:
        return 100 * (log10(ratio) - low) / (high - low)

    one = place(1)
    rows = []
    for name, ratio in ratios.items():
        here, kind = place(ratio), " ours" if name.startswith("dubito") else ""
        left, width = min(one, here), abs(here - one)
        shown = f"{seconds[name]:.3g} s" + ("" if name == to else f", x {ratio:.3g}")
        rows.append(
            f'<div class="speed{kind}"><span class="ratio-name">{escape(name)}</span>'
            f'<span class="ratio-track"><i class="one" style="left:{one:.1f}%"></i>'
            f'<i class="stem" style="left:{left:.1f}%;width:{width:.1f}%"></i>'
            f'<i class="dot" style="left:{here:.1f}%"></i></span>'
            f'<span class="ratio-value">{shown}</span></div>'
        )
    caption = f"{escape(title)}: seconds, and relative to {escape(to)} (log scale)"
    return f'<figure class="ratios"><figcaption>{caption}</figcaption>{"".join(rows)}</figure>'


class Printed(SphinxDirective):
    """A printed file: its command, the day of the run, and the whole text, folded."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the command and the text."""
        path = FOLDER / self.arguments[0]
        self.env.note_dependency(str(path))
        text = path.read_text()
        command = f"python -m {COMMANDS.get(path.stem, f'benchmarks.{path.stem}')}"
        if text.startswith("$ "):
            command, text = text[2:].split("\n", 1)
        day = _day(path)
        head = nodes.paragraph()
        head += nodes.literal(command, command)
        head += nodes.Text(f", printed on {day}" if day else "")
        opening = f'<details class="printed"><summary>{escape(path.name)}</summary>'
        block = nodes.literal_block(text.strip("\n"), text.strip("\n"), language="none")
        return [
            head,
            nodes.raw("", opening, format="html"),
            block,
            nodes.raw("", "</details>", format="html"),
        ]


def _day(path: Path) -> str:
    """Return the day on which the file was committed last, or nothing without a history."""
    command = ["git", "log", "-1", "--format=%as", "--", str(path)]
    done = subprocess.run(command, cwd=path.parent, capture_output=True, text=True, check=False)
    return done.stdout.strip()


def setup(app: Sphinx) -> dict[str, bool]:
    """Add the directives."""
    app.add_directive("ratios", Ratios)
    app.add_directive("printed", Printed)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
