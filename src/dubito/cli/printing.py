"""Text, tables, JSON, errors and progress on the terminal; plain text when piped."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePath
from shutil import get_terminal_size
from textwrap import wrap
from typing import TYPE_CHECKING, Any, final

from dubito.errors import BadValueError
from dubito.formatting import UNPRINTABLE, printable, wrapped

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID

FLAG_REMEDIES = {  # what errors of the library suggest, as options of the command line
    r"Use Logits\(\.\.\.\) for logits": "Pass --logits if these are logits",
    r"Use Probabilities\(array, normalize=True\)": "Pass --normalize",
    r"Use Probabilities\(array / 100\)": "Pass --percent",
    r"use Probabilities\(array / 100\)": "pass --percent",
    r"Divide percentages by 100": "Pass --percent for percentages",
    r"use MultiLabel\(array\)": "pass --multilabel instead of --probabilities (audit, fit)",
    r"uncertain='ignore'": "--uncertain ignore",
    r"label='y_\*'": "--label 'y_*'",
    r"rearrange=True": "--rearrange",
    r"Pass when truths are known": "Pass --known with the column of when truths were known",
    r"levels=\[([\d.,]+)\]": r"--levels \1",
    r"levels=\[\.\.\.\]": "--levels",
    r"mean='mean_\*', std='std_\*'": "--mean 'mean_*' --std 'std_*'",
    r"pass only_labels=\[\.\.\.\] [a-z ]*": "list those that have some, e.g. --multilabel p_a,p_b",
    r"uncertain=0\.5": "--uncertain 0.5",
    r"Exchange labels and outputs": "Exchange --label and --multilabel",
    r"Pass the probabilities of the model as outputs.*labels": "Check --label and --multilabel",
    r"Use MultiLabel\.from_logits\(\w+\)": "Pass --multilabel-logits instead of --multilabel",
    r"Pass these, and no others": "Pass a --multilabel pattern of their columns",
    r"Use OneVsRest\(\w+\(\)\)": "Pass --calibrator auto or --calibrator TemperatureScaling",
}
NUMBERS = "must be numbers"  # the rule that a text cell in a column of numbers breaks
MAX_WIDTH = 100  # longer lines are hard to read


def put(text: str, *, is_error: bool = False) -> None:
    """Print text, with control characters shown: all output goes through here."""
    print(printable(text), file=sys.stderr if is_error else None)


def _width() -> int:
    """Return the width of the terminal, at most `MAX_WIDTH`; 80 when piped."""
    return min(get_terminal_size().columns, MAX_WIDTH)


def say(text: str = "") -> None:
    """Print text wrapped at word boundaries; continuation lines keep their indentation."""
    width = _width()
    for line in printable(text).split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        put(line if len(line) <= width else _wrapped(line, width, indent))


def _wrapped(line: str, width: int, indent: str) -> str:
    """Return a line wrapped to a width; words longer than that, such as paths, stay whole."""
    settings = {"break_long_words": False, "break_on_hyphens": False}
    return "\n".join(wrapped(printable(line), width, subsequent_indent=indent, **settings))


def say_error(error: Exception) -> None:
    """Print the problem on one line and the remedy on the next."""
    problem, fix = str(error), ""
    if isinstance(error, FileNotFoundError):
        problem, fix = f"{error.filename} cannot be read: there is no such file.", "Check the path."
    elif isinstance(error, OSError):
        problem = f"{error.filename or 'A file'}: {error.strerror or error}."
    elif getattr(error, "fix", ""):
        fix = f"{error.fix}."  # type: ignore[attr-defined]
        problem = problem.removesuffix(fix).rstrip()
    if isinstance(error, BadValueError) and (error.rule, error.row is None) == (NUMBERS, False):
        place = f"{error.caller}, column `{error.argument}`, row {error.row}"
        problem = f"{place}: {error.got} is not a number."
    for call, flag in FLAG_REMEDIES.items():
        fix = re.sub(call, flag, fix)
    prefix = "" if problem.startswith("dubito") else "dubito: "
    end = "" if problem.endswith(".") else "."
    for line in (f"{prefix}{problem}{end}", fix):
        if line:
            put(line.replace("\n", "\\n"), is_error=True)


def say_note(text: str) -> None:
    """Print a note or warning to the standard error stream."""
    put(_wrapped(f"dubito: {text}", _width(), "  "), is_error=True)


def typed() -> str:
    """Return the command line as the user typed it."""
    return shlex.join(["dubito", *sys.argv[1:]])


def say_json(values: Any) -> None:
    """Print values as JSON."""
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    # JSON escapes all control characters below a space by itself.
    print(UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with text in the first column and numbers in the others."""
    table = [[printable(cell).replace("\n", "\\n") for cell in row] for row in (header, *rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    spare = _width() - sum(widths[1:]) - 2 * len(widths[1:])
    for first, *others in table:
        cells = "".join(
            f"  {cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)
        )
        name, *more = wrap(first, max(spare, 10), subsequent_indent="  ") or [""]
        put(f"{name:<{min(widths[0], max(spare, 10))}}{cells}".rstrip())
        for line in more:
            put(line)


def _progress_bar(**settings: Any) -> Progress:
    """Return a progress bar of at most 80 columns on the standard error stream."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.text import Text

    @final
    class RowColumn(ProgressColumn):
        """The rows or tasks done so far."""

        def render(self, task: Task) -> Text:
            return Text(_rows_done(task), no_wrap=True)

    text = TextColumn("{task.description}", markup=False)  # a file may be named [red]
    columns = text, BarColumn(24), RowColumn(), TimeRemainingColumn()
    return Progress(*columns, console=Console(file=sys.stderr), **settings)


def _rows_done(task: Task) -> str:
    """Return the rows done and rows per second, or the tasks done of all tasks."""
    speed = task.finished_speed or task.speed
    unit = task.fields.get("unit", "rows")
    of_all = f" of {task.total:,.0f}" if task.total and unit == "tasks" else ""
    rate = f", {speed:,.0f}/s" if speed and unit == "rows" else ""
    return f"{task.completed:,.0f}{of_all} {unit}{rate}"


@contextmanager
def progress(text: str, total: Callable[[], int | None]) -> Iterator[Callable[[int], None]]:
    """Show rows done, speed and time left, on a terminal only; `total` is called only there."""
    if not sys.stderr.isatty():
        yield lambda n_done: None
        return
    with _progress_bar() as bar:
        task = bar.add_task(text, total=total())
        yield lambda n_done: bar.update(task, completed=n_done)


@contextmanager
def passes() -> Iterator[None]:
    """Show the progress of each pass over streamed rows, on a terminal only."""
    from dubito.data.progress import report_progress_to

    if not sys.stderr.isatty():
        yield
        return
    # Results go to the standard output, which the bar must not capture.
    bar = _progress_bar(redirect_stdout=False, transient=True)
    try:
        with report_progress_to(PassProgress(bar)):
            yield
    finally:
        bar.stop()


@final
class PassProgress:
    """Progress of passes over rows, shown as one bar that restarts with each pass."""

    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        self.n_passes = 0
        self.totals: dict[str, int | None] = {}
        self.tasks: list[TaskID] = []

    def start(self, name: str, unit: str, total: int | None) -> Callable[[int], None]:
        """Start a pass and return the function that advances its bar."""
        from dubito.data.table_queries import row_count

        self.bar.start()  # not before: rows in memory need no bar
        self.n_passes += 1
        if unit == "rows" and name not in self.totals:
            self.totals[name] = row_count(name)
        for task in self.tasks:
            self.bar.remove_task(task)
        text = printable(f"pass {self.n_passes} over {PurePath(name).name}")
        task = self.bar.add_task(text, total=total or self.totals.get(name), unit=unit)
        self.tasks = [task]

        def step(n_done: int) -> None:
            with suppress(KeyError):  # a late report of an earlier pass
                self.bar.advance(task, n_done)

        return step
