"""Progress of long passes over rows."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from contextvars import ContextVar
from html import escape
from pathlib import PurePath
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any, Literal, Protocol, final

from dubito.formatting import duration, printable

if TYPE_CHECKING:
    from rich.progress import Progress, Task, TaskID

Unit = Literal["rows", "tasks"]
PERIOD = 0.1  # seconds between two updates in a notebook


class ProgressListener(Protocol):
    """Receives each pass over `name`; returns a function that takes the number of new steps."""

    def start(self, name: str, unit: Unit, total: int | None) -> Callable[[int], None]: ...


LISTENER: ContextVar[ProgressListener | None] = ContextVar("listener", default=None)


@contextmanager
def report_progress_to(listener: ProgressListener) -> Iterator[None]:
    """Report all passes over streamed rows that start inside the block to a listener.

    Parameters
    ----------
    listener : object
        Its `start(name, unit, total)` is called with each pass, and returns a function that takes
        the number of new steps. Both may be called from several threads at once.

    Returns
    -------
    context manager
    """
    token = LISTENER.set(listener)
    try:
        yield
    finally:
        LISTENER.reset(token)


def started(
    name: str | None, unit: Unit = "rows", total: int | None = None
) -> Callable[[int], None]:
    """Report the start of a pass; return a function that reports its steps.

    Nothing is reported without a name (rows in memory) or without a listener.

    >>> started("predictions/")(1000)
    """
    listener = LISTENER.get()
    if listener is None or name is None:
        return ignore
    return listener.start(name, unit, total)


def ignore(_: int) -> None:
    """Report nothing."""


@contextmanager
def show_progress() -> Iterator[None]:
    """Show the progress of each pass over streamed rows, in a notebook or on a terminal.

    In a notebook it is a line below the cell, on a terminal a bar; both disappear at the end, and
    where the standard error stream is neither, nothing is shown. Rows in memory need no progress.

    Returns
    -------
    context manager

    Examples
    --------
    >>> from dubito.data import show_progress
    >>> with show_progress():
    ...     pass  # policy = Policy.fit(scan("predictions/*.parquet", columns), costs=costs)
    """
    if (display := _notebook()) is not None:
        with closing(NotebookProgress(display)) as line, report_progress_to(line):
            yield
        return
    if not sys.stderr.isatty():
        yield
        return
    # Results go to the standard output, which the bar must not capture.
    bar = progress_bar(redirect_stdout=False, transient=True)
    try:
        with report_progress_to(PassProgress(bar)):
            yield
    finally:
        bar.stop()


def _notebook() -> Callable[..., Any] | None:
    """Return what displays output in a notebook, None elsewhere; IPython is not imported for it."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    if getattr(shell, "kernel", None) is None:  # such as in a terminal
        return None
    from IPython.display import display

    return display


def progress_bar(**settings: Any) -> Progress:
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


class _Passes:
    """The number of the pass, and the rows of each table."""

    def __init__(self) -> None:
        self.n_passes = 0
        self.totals: dict[str, int | None] = {}

    def begin(self, name: str, unit: str, total: int | None) -> tuple[str, int | None]:
        """Return the title of the next pass, and how many rows or tasks it has."""
        from dubito.data.table_queries import row_count

        self.n_passes += 1
        if unit == "rows" and name not in self.totals:
            self.totals[name] = row_count(name)
        text = printable(f"pass {self.n_passes} over {PurePath(name).name}")
        return text, total or self.totals.get(name)


@final
class PassProgress(_Passes):
    """Progress of passes over rows, shown as one bar that restarts with each pass."""

    def __init__(self, bar: Progress) -> None:
        super().__init__()
        self.bar = bar
        self.tasks: list[TaskID] = []

    def start(self, name: str, unit: str, total: int | None) -> Callable[[int], None]:
        """Start a pass and return the function that advances its bar."""
        self.bar.start()  # not before: rows in memory need no bar
        text, total = self.begin(name, unit, total)
        for task in self.tasks:
            self.bar.remove_task(task)
        task = self.bar.add_task(text, total=total, unit=unit)
        self.tasks = [task]

        def step(n_done: int) -> None:
            with suppress(KeyError):  # a late report of an earlier pass
                self.bar.advance(task, n_done)

        return step


@final
class NotebookProgress(_Passes):
    """Progress of passes over rows as one line below a cell, which is emptied at the end.

    It needs no widgets: the line is an output that is updated.
    """

    def __init__(self, display: Callable[..., Any]) -> None:
        super().__init__()
        self.display = display
        self.line: Any = None
        self.lock = Lock()

    def start(self, name: str, unit: str, total: int | None) -> Callable[[int], None]:
        """Start a pass and return the function that advances its line."""
        text, total = self.begin(name, unit, total)
        number, started, n_done, shown = self.n_passes, monotonic(), 0, 0.0

        def step(n_more: int) -> None:
            nonlocal n_done, shown
            with self.lock:  # steps come from several threads
                n_done, now = n_done + n_more, monotonic()
                is_late = number != self.n_passes
                if is_late or (now - shown < PERIOD and n_done != total):
                    return
                shown = now
                self._show(text, unit, n_done, total, now - started)

        step(0)
        return step

    def close(self) -> None:
        """Empty the line."""
        if self.line is not None:
            self.line.update({"text/plain": "", "text/html": ""}, raw=True)

    def _show(self, text: str, unit: str, n_done: int, total: int | None, seconds: float) -> None:
        """Show or update the line."""
        of_all = f" of {total:,}" if total else ""
        done = f"{text}: {n_done:,}{of_all} {unit}"
        if total and 0 < n_done < total:
            done += f", {duration(seconds * (total - n_done) / n_done)} left"
        bar = f'<progress value="{min(n_done, total)}" max="{total}"></progress> ' if total else ""
        bundle = {"text/plain": done, "text/html": f"<div>{bar}{escape(done)}</div>"}
        if self.line is None:
            self.line = self.display(bundle, raw=True, display_id=True)
        else:
            self.line.update(bundle, raw=True)
