"""Words, tables and progress, as wide as the terminal and plain where there is none."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import PurePath
from textwrap import fill, wrap
from typing import Any, final

from rich.console import Console
from rich.progress import (
    BarColumn,
    Progress,
    ProgressColumn,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

WIDEST = 100  # longer lines are hard to read


def say(text: str = "") -> None:
    """Print text, wrapped between words; lines that start with spaces go on with as many."""
    width = min(Console().width, WIDEST)
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        print(line if len(line) <= width else _wrapped(line, width, indent))


def _wrapped(line: str, width: int, indent: str) -> str:
    """Return a line as several; words that are longer than one, such as paths, stay whole."""
    return fill(
        line, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def say_error(error: Exception) -> None:
    """Tell what is wrong in one line, and what to try in another."""
    problem, _, fix = str(error).partition(". Try ")
    if isinstance(error, OSError):
        problem, fix = f"{error.filename or 'A file'}: {error.strerror or error}", ""
    lines = [f"dubito: {problem.rstrip('.')}."] + ([f"Try {fix}"] if fix else [])
    print("\n".join(lines), file=sys.stderr)


def say_note(text: str) -> None:
    """Tell what is worth knowing, beside what was asked."""
    print(_wrapped(f"dubito: {text}", min(Console().width, WIDEST), "  "), file=sys.stderr)


def typed() -> str:
    """Return the command as it was typed."""
    return shlex.join(["dubito", *sys.argv[1:]])


def say_json(values: Any) -> None:
    """Print figures as JSON."""
    print(json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False))


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table whose first column is text and whose others are numbers."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    spare = min(Console().width, WIDEST) - sum(widths[1:]) - 2 * len(widths[1:])
    for first, *others in (header, *rows):
        cells = "".join(
            f"  {cell:>{width}}" for cell, width in zip(others, widths[1:], strict=True)
        )
        name, *more = wrap(first, max(spare, 10), subsequent_indent="  ") or [""]
        print(f"{name:<{min(widths[0], max(spare, 10))}}{cells}".rstrip())
        for line in more:
            print(line)


def _bar_columns() -> tuple[ProgressColumn, ...]:
    """Return what a bar shows, in no more than 80 columns of a terminal."""
    return TextColumn("{task.description}"), BarColumn(24), Rows(), TimeRemainingColumn()


@contextmanager
def progress(words: str, total: Callable[[], int | None]) -> Iterator[Callable[[int], None]]:
    """Show how many rows are done, how fast, and the time left; on a terminal only.

    Only there is the total asked for.
    """
    console = Console(file=sys.stderr)
    if not sys.stderr.isatty():
        yield lambda n_done: None
        return
    with Progress(*_bar_columns(), console=console) as bar:
        task = bar.add_task(words, total=total())
        yield lambda n_done: bar.update(task, completed=n_done)


@contextmanager
def passes() -> Iterator[None]:
    """Show each pass over streamed rows: which it is, how far, how fast, and the time left."""
    from dubito.data.progress import watched_by

    console = Console(file=sys.stderr)
    if not sys.stderr.isatty():
        yield
        return
    # Results go to the standard output: nothing of it may be caught for the bar's sake.
    bar = Progress(*_bar_columns(), console=console, redirect_stdout=False, transient=True)
    with bar, watched_by(Passes(bar)):
        yield


@final
class Passes:
    """What is told of passes, as one bar that begins anew with each."""

    def __init__(self, bar: Progress) -> None:
        self.bar = bar
        self.n_passes = 0
        self.totals: dict[str, int | None] = {}
        self.tasks: list[TaskID] = []

    def start(self, name: str, unit: str, total: int | None) -> Callable[[int], None]:
        """Show that a pass begins; return what moves the bar."""
        from dubito.data.tables import row_count

        self.n_passes += 1
        if unit == "rows" and name not in self.totals:
            self.totals[name] = row_count(name)
        for task in self.tasks:
            self.bar.remove_task(task)
        words = f"pass {self.n_passes} over {PurePath(name).name}"
        task = self.bar.add_task(words, total=total or self.totals.get(name), unit=unit)
        self.tasks = [task]

        def step(n_done: int) -> None:
            with suppress(KeyError):  # a task of an earlier pass that was told late
                self.bar.advance(task, n_done)

        return step


@final
class Rows(ProgressColumn):
    """Rows done, and how many a second; or tasks done, of all."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        unit = task.fields.get("unit", "rows")
        of_all = f" of {task.total:,.0f}" if task.total and unit == "tasks" else ""
        rate = f", {speed:,.0f}/s" if speed and unit == "rows" else ""
        return Text(f"{task.completed:,.0f}{of_all} {unit}{rate}", no_wrap=True)
