"""Words, tables and progress, as wide as the terminal and plain where there is none."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from textwrap import fill, wrap
from typing import Any, final

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TextColumn, TimeRemainingColumn
from rich.text import Text

__all__ = ["progress", "say", "say_error", "say_json", "say_note", "show_table", "typed"]

WIDEST = 100  # longer lines are hard to read


def say(text: str = "") -> None:
    """Print text, wrapped between words; lines that start with spaces go on with as many."""
    width = min(Console().width, WIDEST)
    for line in text.split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        print(line if len(line) <= width else wrapped(line, width, indent))


def wrapped(line: str, width: int, indent: str) -> str:
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
    print(wrapped(f"dubito: {text}", min(Console().width, WIDEST), "  "), file=sys.stderr)


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


@contextmanager
def progress(words: str, total: int | None = None) -> Iterator[Callable[[int], None]]:
    """Show how many rows are done, how fast, and the time left; on a terminal only."""
    console = Console(file=sys.stderr)
    columns = (TextColumn("{task.description}"), BarColumn(), Rows(), TimeRemainingColumn())
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(words, total=total)
        yield lambda n_done: bar.update(task, completed=n_done)


@final
class Rows(ProgressColumn):
    """Rows done, and how many a second."""

    def render(self, task: Task) -> Text:
        speed = task.finished_speed or task.speed
        return Text(f"{task.completed:,.0f} rows" + (f", {speed:,.0f} a second" if speed else ""))
