"""`Store`: the one interface to the database, opened with durable settings."""

from __future__ import annotations

import os
import re
import shlex
import sqlite3
import time
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import asdict
from functools import partial, wraps
from itertools import chain
from pathlib import Path
from stat import S_IMODE, S_ISVTX, S_IWOTH
from typing import Any, Concatenate, ParamSpec, Self, TypeVar, final
from uuid import uuid4

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, delete, event, insert, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from dubito.decide.policy.loading import policy_or_cascade_from_json
from dubito.errors import BadValueError
from dubito.serve.http_errors import CONFLICT, HTTPError
from dubito.serve.store import decisions, labels, policies, review, stages, tokens
from dubito.serve.store.decisions import NewDecisions
from dubito.serve.store.tables import metadata, secrets
from dubito.serve.store.writer import PART_ROWS, GroupCommitWriter, Work, lock_until_commit

MIGRATIONS = str(Path(__file__).parents[1] / "migrations")
MIGRATION_LOCK = 7_230_991  # arbitrary, the same in every process
PROBE, PROBE_BYTES = "write probe ", 16_384
WRITE_SECONDS = 5.0  # after which writing counts as failed
LOCK_SECONDS = 5.0  # to wait for a process that is shutting down
Arguments = ParamSpec("Arguments")
Result = TypeVar("Result")
Query = Callable[Concatenate[Connection, Arguments], Result]
Method = Callable[Concatenate["Store", Arguments], Result]


def _reads(query: Query[Arguments, Result]) -> Method[Arguments, Result]:
    """Return a method that runs a query on a connection of its own."""

    @wraps(query)
    def method(self: Store, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self.read(lambda connection: query(connection, *args, **kwargs))

    return method


def _writes(query: Query[Arguments, Result]) -> Method[Arguments, Result]:
    """Return a method that runs a query in the writer, and returns after its commit."""

    @wraps(query)
    def method(self: Store, /, *args: Arguments.args, **kwargs: Arguments.kwargs) -> Result:
        return self.write(lambda connection: query(connection, *args, **kwargs))

    return method


@final
class Store:
    """Decisions, labels, reviews, policies and tokens in one database.

    Created by `Store.open`. Methods that write return once the data is on disk; `submit` returns a
    future instead.

    Examples
    --------
    >>> import tempfile
    >>> store = Store.open(f"sqlite:///{tempfile.mkdtemp()}/dubito.db")
    >>> store.add_labels(["a"], [1]).n_new, store.add_labels(["a"], [1]).n_new
    (1, 0)
    >>> store.close()
    """

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.writer = GroupCommitWriter(_writing(engine))
        self.lock_file: sqlite3.Connection | None = None

    @classmethod
    def open(cls, url: str) -> Self:
        """Open a database by its URL, and upgrade its schema.

        Parameters
        ----------
        url : str
            `sqlite:///file` or `postgresql+psycopg://user@host/name`.
        """
        engine = _open_engine(url)
        try:
            _prepare(engine)
        except Exception:
            engine.dispose()
            raise
        return cls(engine)

    @property
    def address(self) -> str:
        """The URL of the database, without its password."""
        return _address(self.engine)

    @property
    def dialect(self) -> str:
        """The kind of database, "sqlite" or "postgresql"."""
        return self.engine.dialect.name

    @property
    def has_password(self) -> bool:
        """Whether the URL that was opened has a password."""
        return self.engine.url.password is not None

    def close(self) -> None:
        """Write everything that was accepted, and release the database."""
        # Connections that other threads still use are closed when these return them.
        event.listen(self.engine.pool, "checkin", lambda _, record: record.invalidate())
        self.writer.close()
        self.engine.dispose()
        if self.lock_file is not None:
            self.lock_file.close()

    def lock(self, timeout: float | None = None) -> None:
        """Keep other processes from serving the same SQLite file until `close`, or raise.

        The lock is that of an SQLite file beside the database, so it ends with the process in any
        case. PostgreSQL serves any number of processes.
        """
        if self.dialect != "sqlite":
            return
        path = f"{os.path.realpath(str(self.engine.url.database))}-serving"
        _create_private(path)
        lock_file = sqlite3.connect(
            path,
            timeout=LOCK_SECONDS if timeout is None else timeout,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            lock_file.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            lock_file.close()
            rule = "must be a file that no other process serves"
            got = f"{self.engine.url.database} ({error})"
            fix = "Stop the other process, or use another file or PostgreSQL"
            raise _database_error(rule, got, fix) from error
        self.lock_file = lock_file

    def submit(self, work: Work) -> Future[Any]:
        """Queue work for the writer; the future is resolved after the commit."""
        return self.writer.submit(work)

    def write(self, work: Callable[[Connection], Result]) -> Result:
        """Run work in the writer, and return its result after the commit."""
        result: Result = self.submit(work).result()
        return result

    def read(self, work: Callable[[Connection], Result]) -> Result:
        """Run a query on a connection of its own."""
        with self.engine.connect() as connection:
            return work(connection)

    def check_writing(self, timeout: float = WRITE_SECONDS) -> None:
        """Raise unless a few pages are written and committed in time, however full the disk is."""
        future = self.submit(_write_probe)
        try:
            future.result(timeout)
        finally:
            future.cancel()  # a write that has not begun is not needed any more

    def add_decisions(
        self, new: NewDecisions, *, are_known_new: bool = False
    ) -> dict[str, dict[str, Any]]:
        """Store decisions; return, by id, those that exist already.

        Many rows are stored in several transactions, between which others write. If their ids may
        exist, all are compared first, so that nothing is stored if one was made from other inputs.
        """
        parts = [
            new.part(slice(start, start + PART_ROWS), None if start else new.key)
            for start in range(0, len(new), PART_ROWS)
        ]
        if len(parts) > 1 and not are_known_new:
            new.require_same(self.find_decisions(new.columns["id"]))
        futures = [self.submit(part) for part in parts]  # small jobs are written in between
        return dict(chain.from_iterable(future.result().items() for future in futures))

    def delete_before(self, before: float) -> int:
        """Delete all decisions made before a time, and return how many there were."""
        n_deleted = 0
        while n_new := self.write(partial(decisions.delete_oldest, before=before)):
            n_deleted += n_new
        return n_deleted

    def add_policy(self, document: str, trained_until: float | None = None) -> int:
        """Store a policy file and return its id; one that exists keeps its id.

        It is validated here, not in the writer, so that no write waits for it. `trained_until` is
        the time of the newest row that a refit was fitted to.
        """
        if self.has_forecasts():
            problem = "This database serves forecasts, and no policies"
            raise HTTPError(CONFLICT, problem, "Use another database for a policy")
        new = policy_or_cascade_from_json(document, policies.FILE)
        digest = policies.checksum(document)
        while True:
            oldest = self.find_document()
            if oldest is not None:
                name = f"Policy {oldest[0]} of the database"
                existing = policy_or_cascade_from_json(oldest[1], name)
                policies.require_same_classes(new, existing)
            values = {"digest": digest, "document": document, "trained_until": trained_until}
            added = self.write(
                partial(policies.insert_policy, values=values, oldest=oldest and oldest[0])
            )
            if added is not None:
                return added

    def get_decision(self, decision_id: str) -> dict[str, Any] | None:
        """Return a decision, or None."""
        return self.find_decisions([decision_id]).get(decision_id)

    def get_label(self, decision_id: str) -> decisions.Label | None:
        """Return the label of a decision, or None."""
        return self.find_labels([decision_id]).get(decision_id)

    def label_history(self, decision_id: str, decode: Callable[[Any], Any]) -> dict[str, Any]:
        """Return a decision's label, None if unknown, and those it had before, for a response."""
        label = self.get_label(decision_id)
        previous = [asdict(one) for one in self.find_corrections(decision_id)]
        return {
            "label": None if label is None else decode(label),
            "previous_labels": [{**one, "label": decode(one["label"])} for one in previous],
        }

    find_decisions = _reads(decisions.find_decisions)
    find_features = _reads(decisions.find_features)
    decisions_since = _reads(decisions.decisions_since)
    alarm_history = _reads(decisions.alarm_history)
    label_delay = _reads(decisions.label_delay)

    find_stages = _reads(stages.find_stages)
    find_model_answers = _reads(stages.find_model_answers)
    find_arrivals = _reads(stages.find_arrivals)
    count_waiting = _reads(stages.count_waiting)
    count_asked = _reads(stages.count_asked)

    find_labels = _reads(labels.find_labels)
    find_corrections = _reads(labels.find_corrections)
    add_labels = _writes(labels.add_labels)

    claim_review = _writes(review.claim_review)
    label_review = _writes(review.label_review)
    pass_review = _writes(review.pass_review)
    undo_review = _writes(review.undo_review)
    last_review = _reads(review.last_review)
    answers_of = _reads(review.answers_of)
    review_queue = _reads(review.review_queue)
    queue_length = _reads(review.queue_length)

    waiting_rows = _reads(review.waiting_rows)
    arrived_rows = _reads(review.arrived_rows)
    answered_rows = _reads(review.answered_rows)
    used_capacity = _reads(review.used_capacity)
    team_members = _reads(review.team_members_of)
    join_team = _writes(review.join_team)
    save_prices = _writes(review.save_prices)
    claim_within = _writes(review.claim_within)
    undo_within = _writes(review.undo_within)
    label_by_answers = _writes(review.label_by_answers)

    find_document = _reads(policies.find_document)
    activate = _writes(policies.activate)
    roll_back = _writes(policies.roll_back)
    active_id = _reads(policies.active_id)
    list_policies = _reads(policies.list_policies)

    has_forecasts = _reads(policies.has_forecasts)
    find_forecasts = _reads(policies.find_forecasts)
    forecasts_since = _reads(policies.forecasts_since)

    create_token = _writes(tokens.create_token)
    revoke_token = _writes(tokens.revoke_token)
    find_token = _reads(tokens.find_token)
    session_token = _reads(tokens.session_token)
    end_session = _writes(tokens.end_session)
    session_secret = _writes(tokens.session_secret)
    list_tokens = _reads(tokens.list_tokens)


def _write_probe(connection: Connection) -> None:
    """Replace a row of a few pages by another one."""
    names, name = secrets.c.name, f"{PROBE}{uuid4().hex}"
    connection.execute(insert(secrets).values(name=name, value=os.urandom(PROBE_BYTES)))
    connection.execute(delete(secrets).where(names.startswith(PROBE), names != name))


def _open_engine(url: str) -> Engine:
    """Return an engine whose commits are on disk when they return.

    Its errors hide parameter values: these come from users, and errors are logged.
    """
    rule = "must be sqlite:///file or postgresql+psycopg://user@host/name"
    fix = "Use --database sqlite:///dubito.db"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise _database_error(rule, repr(_hide_password(url)), fix) from error
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if parsed.database in (None, "", ":memory:"):
            raise _database_error(rule, "an in-memory database", fix)
        if "uri" in parsed.query:
            raise _database_error(rule, "the option uri", fix)
        _secure_files(os.path.realpath(parsed.database))
        engine = create_engine(
            parsed, pool_size=8, hide_parameters=True, connect_args={"timeout": 30}
        )
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    if parsed.drivername == "postgresql+psycopg":
        if "@" in (parsed.host or ""):  # it is part of the password, and would be printed
            raise _database_error(rule, "two @", "Write @ in a password as %40")
        engine = create_engine(parsed, pool_size=8, hide_parameters=True, pool_pre_ping=True)
        event.listen(engine, "connect", _set_up_postgresql)
        return engine
    raise _database_error(rule, parsed.drivername, fix)


def _database_error(rule: str, got: str, fix: str) -> BadValueError:
    """Return the error of a database that cannot be used."""
    return BadValueError("--database", "dubito", rule, got, fix)


def _hide_password(url: str) -> str:
    """Return a database URL without its password, wherever it is, and without its options.

    >>> _hide_password("postgresql+psycopg://ann:p@ss?word@host/name?sslpassword=secret")
    'postgresql+psycopg://ann:***@host/name'
    """
    return re.sub(r"//([^:/@]*):.*@", r"//\1:***@", url).partition("?")[0]


def _create_private(path: str) -> None:
    """Create a file that only its owner can read, unless it exists."""
    with suppress(OSError):  # a file that cannot be created is reported when it is opened
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))


def _secure_files(path: str) -> None:
    """Create the file of a database for its owner only, or raise if others can read or replace it.

    It holds the key that signs sessions. SQLite gives its journals the mode of the database.
    """
    if os.name != "posix":
        return
    _create_private(path)
    journals = (path + ending for ending in ("", "-wal", "-shm", "-journal", "-serving"))
    files = {name: os.stat(name) for name in journals if os.path.isfile(name)}
    exposed = [name for name, file in files.items() if file.st_mode & 0o066]
    if exposed:
        got = f"{exposed[0]} with mode {S_IMODE(files[exposed[0]].st_mode):o}"
        fix = f"Run `chmod 600 {shlex.join(exposed)}`"
        raise _database_error("must be readable by its owner only", got, fix)
    folder = Path(path).parent
    mode = folder.stat().st_mode if files else 0
    is_foreign = any(file.st_uid != os.geteuid() for file in files.values())
    if mode & S_IWOTH and (is_foreign or not mode & S_ISVTX):
        rule = "must be in a directory in which other users cannot replace it"
        got = f"{folder} with mode {S_IMODE(mode):o}"
        fix = f"Run `mkdir -m 700 {shlex.quote(f'{folder}/private')}` and use that directory"
        raise _database_error(rule, got, fix)


def _address(engine: Engine) -> str:
    """Return the URL of a database without its password."""
    return _hide_password(engine.url.render_as_string(hide_password=False))


def _writing(engine: Engine) -> Engine:
    """Return the same engine for transactions that write."""
    return engine.execution_options(is_writing=True)


def _prepare(engine: Engine) -> None:
    """Upgrade a database, or raise if it cannot be reached, written to or trusted."""
    address = _address(engine)
    try:
        if engine.dialect.name == "postgresql":
            with engine.connect() as connection:
                if connection.execute(text("SHOW fsync")).scalar() == "off":
                    rule, fix = "must sync its commits to disk", "Run `ALTER SYSTEM SET fsync = on`"
                    raise _database_error(rule, "fsync = off", fix)
        _migrate(engine)
    except DBAPIError as error:
        reason = str(error.orig).splitlines()[0]
        rule, got = "must be a database that can be reached and written to", f"{address} ({reason})"
        fix = "Check the address, and that the server is running"
        if engine.dialect.name == "sqlite":
            fix = "Check that the directory of the file exists and is writable"
        raise _database_error(rule, got, fix) from error
    except CommandError as error:
        rule, got = "must have a schema version that this dubito knows", f"{address} ({error})"
        fix = "Upgrade dubito"
        raise _database_error(rule, got, fix) from error


def _set_up_sqlite(connection: Any, _: Any) -> None:
    """Use a write-ahead log that is synced at every commit."""
    connection.isolation_level = None  # transactions begin in `_begin_sqlite`
    connection.execute("PRAGMA busy_timeout=30000")
    _enter_wal_mode(connection)
    connection.execute("PRAGMA synchronous=FULL")


def _enter_wal_mode(connection: Any, *, seconds: float = 30) -> None:
    """Turn on the write-ahead log; SQLite does not wait when two processes do so at once."""
    deadline = time.monotonic() + seconds
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
        except sqlite3.OperationalError as error:
            is_busy = error.sqlite_errorcode & 0xFF in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
            if not is_busy or time.monotonic() > deadline:
                raise
            time.sleep(0.01)
        else:
            return


def _begin_sqlite(connection: Connection) -> None:
    """Begin a transaction; a writer takes the lock at once, as upgrading a read lock may fail."""
    is_writing = connection.get_execution_options().get("is_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")


def _set_up_postgresql(connection: Any, _: Any) -> None:
    """Wait for the write-ahead log at every commit, even if the server's default does not."""
    from psycopg.types.string import BytesBinaryDumper

    # For COPY, psycopg would choose the dumper of its `Binary`, which is not compiled.
    connection.adapters.register_dumper(bytes, BytesBinaryDumper)
    if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":
        connection.execute("SET synchronous_commit TO on")
    connection.commit()


def _migrate(engine: Engine) -> None:
    """Upgrade the schema; of several processes that start at once, one does it."""
    script = ScriptDirectory(MIGRATIONS, version_locations=[MIGRATIONS])
    with _writing(engine).begin() as connection:
        lock_until_commit(connection, MIGRATION_LOCK)
        steps = EnvironmentContext(
            Config(), script, fn=lambda revision, _: script._upgrade_revs("head", revision)
        )
        with steps:
            steps.configure(connection=connection, target_metadata=metadata)
            steps.run_migrations()
