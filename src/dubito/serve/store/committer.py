"""One thread that writes: groups of jobs, one commit each, and only then the answers."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import SimpleQueue
from threading import Thread
from typing import Any, final

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import OperationalError

from dubito.serve.store.deciding import add_all, add_one
from dubito.serve.store.records import NewDecisions

MOST_JOBS, MOST_ROWS = 512, 50_000  # a commit
TRIES = 3  # two processes may wait for each other: the database ends one of them


@final
@dataclass(slots=True, eq=False)
class Job:
    """Something to write, and where its answer goes."""

    work: NewDecisions | Callable[[Connection], Any]
    answer: Future[Any] = field(default_factory=Future)

    @property
    def n_rows(self) -> int:
        """How many rows it writes, about."""
        return len(self.work) if isinstance(self.work, NewDecisions) else 1


@final
class Committer:
    """Takes jobs from any thread; while one group is being synced the next one gathers.

    A job fails alone: others of its group are kept. An answer is given after the commit that it
    speaks of, never before.
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.queue: SimpleQueue[Job | None] = SimpleQueue()
        self.is_closed = False
        self.thread = Thread(target=self.run, name="dubito-committer", daemon=True)
        self.thread.start()

    def submit(self, work: NewDecisions | Callable[[Connection], Any]) -> Future[Any]:
        """Return the answer to come: for decisions, those of them that were there before."""
        if self.is_closed:
            raise RuntimeError("The store is closed.")
        job = Job(work)
        self.queue.put(job)
        return job.answer

    def close(self) -> None:
        """Write what was accepted, and stop."""
        if not self.is_closed:
            self.is_closed = True
            self.queue.put(None)
            self.thread.join()

    def run(self) -> None:
        """Write group after group, until told to stop."""
        while True:
            group, is_last = self.gather()
            if group:
                self.write(group)
            if is_last:
                return

    def gather(self) -> tuple[list[Job], bool]:
        """Wait for a job, and take along what else is there."""
        group: list[Job] = []
        n_rows = 0
        while True:
            job = self.queue.get()
            if job is None:
                return group, True
            group.append(job)
            n_rows += job.n_rows
            if self.queue.empty() or len(group) >= MOST_JOBS or n_rows >= MOST_ROWS:
                return group, False

    def write(self, group: list[Job]) -> None:
        """Commit a group, then give the answers."""
        for attempt in range(1, TRIES + 1):
            try:
                with self.engine.begin() as connection:
                    results = _written(connection, group)
                break
            except OperationalError as error:
                if attempt == TRIES:
                    return _refuse(group, error)
            except Exception as error:
                return _refuse(group, error)
        for job, (is_kept, result) in zip(group, results, strict=True):
            if is_kept:
                job.answer.set_result(result)
            else:
                job.answer.set_exception(result)
        return None


def _written(connection: Connection, group: list[Job]) -> list[tuple[bool, Any]]:
    """Write a group within a transaction; return of each job whether it was kept, and its result.

    Decisions go in together as long as all of them are new, which they nearly always are.
    """
    new = [job.work for job in group if isinstance(job.work, NewDecisions)]
    is_done = bool(new) and _are_added(connection, new)
    results: list[tuple[bool, Any]] = []
    for job in group:
        if is_done and isinstance(job.work, NewDecisions):
            results.append((True, {}))
        else:
            results.append(_alone(connection, job))
    return results


def _are_added(connection: Connection, new: list[NewDecisions]) -> bool:
    """Insert the decisions of many requests, or none of them; tell which."""
    try:
        with connection.begin_nested() as nested:
            is_done = add_all(connection, new)
            if not is_done:
                nested.rollback()
            return is_done
    except OperationalError:
        raise
    except Exception:
        return False  # one of them cannot be kept: alone, it will be told


def _alone(connection: Connection, job: Job) -> tuple[bool, Any]:
    """Do one job, so that it leaves nothing behind if it fails."""
    try:
        with connection.begin_nested():
            if isinstance(job.work, NewDecisions):
                return True, add_one(connection, job.work)
            return True, job.work(connection)
    except OperationalError:
        raise
    except Exception as error:
        return False, error


def _refuse(group: list[Job], error: Exception) -> None:
    """Tell all of a group that nothing was kept."""
    for job in group:
        job.answer.set_exception(error)
