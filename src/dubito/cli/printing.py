"""Text, tables, JSON, errors and progress on the terminal; plain text when piped."""

from __future__ import annotations

import json
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from pathlib import Path
from shutil import get_terminal_size
from textwrap import wrap
from typing import Any

from dubito.errors import BadValueError

FLAG_REMEDIES = {  # what errors of the library suggest, as options of the command line
    r"Use Logits\(\.\.\.\) for logits": "Pass --logits if these are logits",
    r"Use Probabilities\(array, normalize=True\)": "Pass --normalize",
    r"or use MultiLabel\(array\) if several labels may apply to a row \(multilabel\)": (
        "or --multilabel if several labels may apply to a row"
    ),
    r"Use Probabilities\(array / 100\)": "Pass --percent",
    r"use Probabilities\(array / 100\)": "pass --percent",
    r"Divide percentages by 100": "Pass --percent for percentages",
    r"Use Scores\(\.\.\.\) for": "Pass --scores instead of --confidence for",
    r"use MultiLabel\(array\)": "pass --multilabel instead of --probabilities (audit, fit)",
    r"^Pass classes=\[\.\.\.\]": "Pass a pattern such as --multilabel 'p_*', or a single --label",
    r"uncertain='ignore'": "--uncertain ignore",
    r"\bmultilabel='p_\*' if several labels may apply to a row, or one label column": (
        "--multilabel 'p_*' if several labels may apply to a row, or a single --label"
    ),
    r"label='y_\*'": "--label 'y_*'",
    r"rearrange=True": "--rearrange",
    r"Pass when outcomes are known": "Pass --known with the column of when outcomes were known",
    r"levels=\[(\d[\d.,]*)\]": r"--levels \1",
    r"levels=\[\.\.\.\]": "--levels",
    r"mean='mean_\*', std='std_\*'": "--mean 'mean_*' --std 'std_*'",
    r"pass only_labels=\[\.\.\.\] [a-z ]*": "list those that have some, e.g. --multilabel p_a,p_b",
    r"uncertain=0\.5": "--uncertain 0.5",
    r"Exchange labels and outputs": "Exchange --label and --multilabel",
    r"Pass the probabilities of the model as outputs.*labels": "Check --label and --multilabel",
    r"Use MultiLabel\.from_logits\(\w+\)": "Pass --multilabel-logits instead of --multilabel",
    r"Pass these, and no others": "Pass a --multilabel pattern of their columns",
    r"[Aa]pply `\.clip\(0\)` if rounding made it negative": "write 0 if rounding made it negative",
    r"; one dimension is a single column, so pass one row as array\[np\.newaxis\]": "",
    r"or use None for a missing label": "or leave the cell blank for a missing label",
    r"Use NaN or None for a missing label": "Leave the cell blank for a missing label",
    r"Pass \w+\(array, classes=\['?0'?, '?1'?, \.\.\.\]\), or map the labels to these names": (
        "Name the columns by the labels, such as p_0 and p_1, or write class names into the labels"
    ),
    r"Pass \w+\(array, classes=\[.*\]\) with the names .*?(?=\.?$)": (
        "Name the columns by class, such as p_cat, or pass --classes for a column of lists"
    ),
}
FAULTS = {  # the rules that a cell breaks, as what is wrong with it
    "must be numbers": "{} is not a number",
    "must not have missing values": "the value is missing",
    "must be finite": "{} is not finite",
}
MAX_WIDTH = 100  # longer lines are hard to read


_HAS_JSON: ContextVar[bool] = ContextVar("has_json", default=False)


@contextmanager
def printed_as_json(is_json: bool) -> Iterator[None]:
    """Print the results of a command as JSON, or as text."""
    before = _HAS_JSON.set(is_json)
    try:
        yield
    finally:
        _HAS_JSON.reset(before)


def has_json() -> bool:
    """Whether results are printed as JSON."""
    return _HAS_JSON.get()


def put(text: str, *, is_error: bool = False) -> None:
    """Print text, with control characters shown; results only if they are not printed as JSON."""
    from dubito.formatting import printable

    if is_error or not has_json():
        print(printable(text), file=sys.stderr if is_error else None)


def _width() -> int:
    """Return the width of the terminal, at most `MAX_WIDTH`; 80 when piped."""
    return min(get_terminal_size().columns, MAX_WIDTH)


def say(text: str = "") -> None:
    """Print text wrapped at word boundaries; continuation lines keep their indentation."""
    from dubito.formatting import printable

    width = _width()
    for line in printable(text).split("\n"):
        indent = " " * (len(line) - len(line.lstrip()))
        put(line if len(line) <= width else _wrapped(line, width, indent))


def _wrapped(line: str, width: int, indent: str) -> str:
    """Return a line wrapped to a width; words longer than that, such as paths, stay whole."""
    from dubito.formatting import printable, wrapped

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
    if isinstance(error, BadValueError) and error.row is not None:
        problem = _cell_problem(error) or problem
    for call, flag in FLAG_REMEDIES.items():
        fix = re.sub(call, flag, fix)
    role = re.search(r"^has no column.* \((\w+)\)$", getattr(error, "rule", ""))
    role = role or re.search(r", column `.*` \((\w+)\)$", getattr(error, "caller", ""))
    if role is not None:
        option = f"--{role[1].replace('_', '-')}"
        problem = problem.replace(f"({role[1]})", f"({option})")
        fix = re.sub(r"^Pass \w+[= ]", f"Pass {option} ", fix)
    prefix = "" if problem.startswith("dubito") else "dubito: "
    end = "" if problem.endswith(".") else "."
    for line in (f"{prefix}{problem}{end}", fix):
        if line:
            put(line.replace("\n", "\\n"), is_error=True)


def _cell_problem(error: BadValueError) -> str | None:
    """Return what is wrong with a cell, None if an error is about several cells."""
    if not error.argument or ", ..." in error.argument or not error.rule.startswith("must "):
        return None
    classes = re.fullmatch(r"must be one of the classes \((.*?),?\)", error.rule)
    if classes is not None:
        names = re.sub(r"'(.*?)'", r"\1", classes[1])
        problem = f"{error.got} is not one of the classes {names}"
    elif error.rule in FAULTS:
        problem = FAULTS[error.rule].format(error.got)
    else:
        problem = f"{error.rule}, got {error.got}"
    entry = "" if error.column is None else f", entry {error.column}"
    return f"{error.caller}, column `{error.argument}`, row {error.row}{entry}: {problem}."


def say_note(text: str) -> None:
    """Print a note or warning to the standard error stream."""
    put(_wrapped(f"dubito: {text}", _width(), "  "), is_error=True)


def say_rearranged(n_rows: int) -> None:
    """Print the number of rows in which quantiles were sorted, if there are any."""
    from dubito.formatting import quantity

    if n_rows:
        say(f"{quantity(n_rows)} with crossing quantiles sorted.")


def say_bad_rows(n_rows: int, path: Path) -> None:
    """Print the number of invalid rows that were set aside."""
    from dubito.formatting import quantity

    say(f"{quantity(n_rows, 'invalid row', 'was')} set aside in {path}.")


def typed() -> str:
    """Return the command line as the user typed it."""
    return shlex.join(["dubito", *sys.argv[1:]])


def say_json(values: Any) -> bool:
    """Print values if results are printed as JSON; return whether they are."""
    from dubito.formatting import UNPRINTABLE

    if not has_json():
        return False
    text = json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
    # JSON escapes all control characters below a space by itself.
    print(UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text))
    return True


def show_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with text in the first column and numbers in the others."""
    from dubito.formatting import printable

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


@contextmanager
def progress(text: str, total: Callable[[], int | None]) -> Iterator[Callable[[int], None]]:
    """Show rows done, speed and time left, on a terminal only; `total` is called only there."""
    if not sys.stderr.isatty():
        yield lambda n_done: None
        return
    from dubito.data.progress import progress_bar

    with progress_bar() as bar:
        task = bar.add_task(text, total=total())
        yield lambda n_done: bar.update(task, completed=n_done)


def passes() -> AbstractContextManager[None]:
    """Show the progress of each pass over streamed rows, on a terminal only."""
    from dubito.data.progress import show_progress

    return show_progress()
