"""Group commit: a single writer thread, and bulk inserts for both databases."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import lru_cache
from queue import SimpleQueue
from threading import Lock, Thread
from time import perf_counter
from typing import Any, Protocol, final

from sqlalchemy import Connection, Dialect, Engine, Table, text
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

MAX_JOBS = 512  # per commit
FEW_ROWS, PART_ROWS = 100, 1000  # of a small job, and of a part of many rows
COMMIT_SECONDS = 0.15  # parts are committed together as long as they take no longer: others wait
MAX_ATTEMPTS = 3  # the database may abort one of two processes that deadlock
# Rows of about 20 columns per statement, of few sizes, so that few statements are compiled: SQLite
# allows 32,766 values, and releases the GIL once per statement: row by row, each would wait.
CHUNKS = (1000, 100, 10, 1)
MIN_SHARED = 100  # rows for which a column of equal values is bound once


class InsertBatch(Protocol):
    """Rows that can be inserted together with those of other requests, or alone."""

    def __len__(self) -> int: ...

    def insert(self, connection: Connection) -> Any:
        """Insert the rows alone and return the result of the job."""

    def insert_together(self, connection: Connection, others: list[Any]) -> bool:
        """Insert the rows of several batches, `self` included; return whether all were new."""


Work = InsertBatch | Callable[[Connection], Any]


@final
@dataclass(slots=True, eq=False)
class Job:
    """A piece of work and the future that receives its result."""

    work: Work
    n_rows: int = 1
    future: Future[Any] = field(default_factory=Future)

    def run(self, connection: Connection) -> tuple[bool, Any]:
        """Run within a savepoint; return whether it succeeded, and its result or exception."""
        try:
            with connection.begin_nested():
                work = self.work if callable(self.work) else self.work.insert
                return True, work(connection)
        except OperationalError:
            raise
        except BaseException as error:
            return False, error


@final
class GroupCommitWriter:
    """Runs jobs from any thread in groups, with one commit per group.

    While one group is being synced to disk, the next one accumulates. Groups of small and of large
    jobs alternate, so that small ones never wait for long. A failing job does not affect the others
    of its group, and no failure ends the thread. A future is resolved only after the commit that
    contains its work. Work whose future is cancelled before it begins is left out.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.queue: SimpleQueue[Job | None] = SimpleQueue()
        self.lock, self.is_closed = Lock(), False
        self.thread = Thread(target=self._run, name="dubito-writer", daemon=True)
        self.thread.start()

    def submit(self, work: Work) -> Future[Any]:
        """Queue work and return the future of its result."""
        job = Job(work, 1 if callable(work) else len(work))
        with self.lock:  # nothing is queued behind the end
            if self.is_closed:
                raise RuntimeError("The store is closed.")
            self.queue.put(job)
        return job.future

    def close(self) -> None:
        """Write everything that was accepted, then stop."""
        with self.lock:
            if not self.is_closed:
                self.is_closed = True
                self.queue.put(None)
        self.thread.join()

    def _run(self) -> None:
        """Write group after group until the writer is closed."""
        large: deque[Job] = deque()
        n_parts = 1
        while large or not (self.is_closed and self.queue.empty()):
            self._resolve(self._gather(large))
            parts = [large.popleft() for _ in range(min(n_parts, len(large)))]
            if parts:
                start = perf_counter()
                self._resolve(parts)
                seconds = (perf_counter() - start) / len(parts)
                n_parts = max(int(COMMIT_SECONDS / seconds), 1)

    def _gather(self, large: deque[Job]) -> list[Job]:
        """Wait for a job and take those that are queued behind it; return the small ones."""
        small: list[Job] = []
        n_rows = 0
        while not (small or large) or not self.queue.empty():
            job = self.queue.get()
            if job is None:
                break
            if job.n_rows > FEW_ROWS:
                large.append(job)
                continue
            small.append(job)
            n_rows += job.n_rows
            if len(small) >= MAX_JOBS or n_rows >= PART_ROWS:
                break
        return small

    def _resolve(self, group: list[Job]) -> None:
        """Write a group of jobs, and resolve their futures."""
        # From here on, a future cannot be cancelled.
        group = [job for job in group if job.future.set_running_or_notify_cancel()]
        try:
            results = self._write(group) if group else []
        except BaseException as error:
            results = [(False, error)] * len(group)
        for job, (is_done, result) in zip(group, results, strict=True):
            (job.future.set_result if is_done else job.future.set_exception)(result)

    def _write(self, group: list[Job]) -> list[tuple[bool, Any]]:
        """Commit a group; return, for each job, whether it succeeded, and its result or error."""
        n_failed = 0
        while True:
            try:
                with self.engine.begin() as connection:
                    return _run_group(connection, group)
            except OperationalError:
                n_failed += 1
                if n_failed == MAX_ATTEMPTS:
                    raise


def _run_group(connection: Connection, group: list[Job]) -> list[tuple[bool, Any]]:
    """Run the jobs of a group within one transaction; batches go in together if all are new."""
    batches: list[Any] = [job.work for job in group if not callable(job.work)]
    is_done = bool(batches) and _inserted_together(connection, batches)
    return [
        (True, {}) if is_done and not callable(job.work) else job.run(connection) for job in group
    ]


def _inserted_together(connection: Connection, batches: list[Any]) -> bool:
    """Insert all batches, or none of them; return which."""
    try:
        with connection.begin_nested() as nested:
            is_done = bool(batches[0].insert_together(connection, batches))
            if not is_done:
                nested.rollback()
            return is_done
    except OperationalError:
        raise
    except Exception:
        return False  # a batch is invalid: it will fail when it is inserted alone


def lock_until_commit(connection: Connection, number: int) -> None:
    """Wait for a lock that one process holds until its commit; SQLite has one writer anyway."""
    if connection.dialect.name == "postgresql":
        connection.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": number})


def insert_rows(connection: Connection, table: Table, columns: Mapping[str, list[Any]]) -> int:
    """Insert rows given as columns, ignoring keys that exist.

    Values are bound parameters: several rows per statement for SQLite, one binary array per column
    for PostgreSQL. Most of the time is that of binding and copying values, so columns without any
    value are left out, and SQLite gets a value that all rows share once.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    table : Table
        The table; column names come from it.
    columns : mapping of str to list
        Columns of equal length.

    Returns
    -------
    int
        The number of new rows.
    """
    names = _column_names(table, columns)
    if not names:
        return 0
    if connection.dialect.name == "postgresql":
        arrays = ", ".join(
            f"%b::{kind}[]" for kind in _type_names(table, names, connection.dialect)
        )
        into = f"INSERT INTO {table.name} ({', '.join(names)})"
        statement = f"{into} SELECT * FROM unnest({arrays}) ON CONFLICT DO NOTHING"
        values = tuple(columns[name] for name in names)
        return int(connection.exec_driver_sql(statement, values).rowcount)
    shared = [name for name in names if _is_shared(columns[name])]
    own = [name for name in names if name not in shared]
    into = f"INSERT INTO {table.name} ({', '.join([*shared, *own])})"
    # A question mark stands for the next parameter after the last one: not for one with a number.
    marks = f"({', '.join([*(f'?{k + 1}' for k in range(len(shared)))] + ['?'] * len(own))})"
    once = [columns[name][0] for name in shared]
    width, n_rows = len(own), len(columns[names[0]])
    flat: list[Any] = [None] * (width * n_rows)
    for k, name in enumerate(own):
        flat[k::width] = columns[name]
    n_new, start = 0, 0
    while start < n_rows:
        size = next(size for size in CHUNKS if size <= n_rows - start)
        statement = f"{into} VALUES {', '.join([marks] * size)} ON CONFLICT DO NOTHING"
        given = (*once, *flat[start * width : (start + size) * width])
        n_new += int(connection.exec_driver_sql(statement, given).rowcount)
        start += size
    return n_new


def insert_new_rows(connection: Connection, table: Table, columns: Mapping[str, list[Any]]) -> bool:
    """Insert rows given as columns, if all of them are new.

    PostgreSQL uses COPY, which is much faster than INSERT but fails on the first duplicate key.

    Parameters
    ----------
    connection : Connection
        Supplied by `Store`.
    table : Table
        The table; column names come from it.
    columns : mapping of str to list
        Columns of equal length.

    Returns
    -------
    bool
        Whether all rows are new. If not, the caller has to roll back.
    """
    n_rows = len(next(iter(columns.values())))
    if connection.dialect.name != "postgresql" or not n_rows:
        return insert_rows(connection, table, columns) == n_rows
    try:
        _copy_rows(connection, table, columns)
    except IntegrityError:
        return False
    return True


def _copy_rows(connection: Connection, table: Table, columns: Mapping[str, list[Any]]) -> None:
    """Copy rows into PostgreSQL; driver errors become those of SQLAlchemy."""
    names = _column_names(table, columns)
    statement = f"COPY {table.name} ({', '.join(names)}) FROM STDIN (FORMAT BINARY)"
    dialect = connection.dialect
    driver = dialect.loaded_dbapi
    cursor: Any = connection.connection.cursor()
    try:
        with cursor, cursor.copy(statement) as copy:
            copy.set_types(_type_names(table, names, dialect))
            for row in zip(*(columns[name] for name in names), strict=True):
                copy.write_row(row)
    except driver.Error as error:
        wrapped = DBAPIError.instance(statement, None, error, driver.Error, dialect=dialect)
        raise wrapped from error


def _column_names(table: Table, columns: Mapping[str, list[Any]]) -> tuple[str, ...]:
    """Return the names of the given columns that have a value, in the order of the table."""
    given = (column.name for column in table.columns if column.name in columns)
    return tuple(name for name in given if columns[name].count(None) < len(columns[name]))


def _is_shared(values: list[Any]) -> bool:
    """Return whether all of many rows have the same value.

    Few rows may share some by chance: then each request would be a statement of its own to compile.
    """
    first = values[0]
    return len(values) >= MIN_SHARED and values[-1] == first and values.count(first) == len(values)


@lru_cache(maxsize=64)
def _type_names(table: Table, names: tuple[str, ...], dialect: Dialect) -> list[str]:
    """Return the PostgreSQL types of columns, without lengths."""
    kinds = [table.columns[name].type.compile(dialect) for name in names]
    return [kind.partition("(")[0].lower() for kind in kinds]
