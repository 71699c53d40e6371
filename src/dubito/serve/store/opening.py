"""Opening the database: settings that make a commit last, and the newest schema."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any

from alembic.config import Config
from alembic.runtime.environment import EnvironmentContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, Engine, create_engine, event, make_url, text
from sqlalchemy.exc import ArgumentError, DBAPIError

from dubito.errors import BadValueError
from dubito.serve.store.tables import metadata

MIGRATIONS = Path(__file__).parents[1] / "migrations"
MIGRATION_LOCK = 7_230_991  # any number, the same in every process
HOLD_SECONDS = 5.0  # to wait for a process that is about to end


def open_engine(url: str) -> Engine:
    """Return an engine on which a commit is on the disk when it returns.

    Its errors tell no values: they are what people send, and errors are logged.
    """
    rule = "sqlite:///file or postgresql+psycopg://user@host/name"
    fix = "sqlite:///dubito.db"
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise BadValueError("--database", "dubito serve", rule, repr(url), fix) from error
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if parsed.database in (None, "", ":memory:"):
            raise BadValueError("--database", "dubito serve", rule, "a database in memory", fix)
        engine = create_engine(
            parsed, pool_size=8, hide_parameters=True, connect_args={"timeout": 30}
        )
        event.listen(engine, "connect", _set_up_sqlite)
        event.listen(engine, "begin", _begin_sqlite)
        return engine
    if parsed.drivername == "postgresql+psycopg":
        engine = create_engine(parsed, pool_size=8, hide_parameters=True, pool_pre_ping=True)
        event.listen(engine, "connect", _set_up_postgresql)
        return engine
    raise BadValueError("--database", "dubito serve", rule, parsed.drivername, fix)


def prepare(engine: Engine) -> None:
    """Bring a database up to date, or raise where it cannot be reached, written or trusted."""
    address = engine.url.render_as_string(hide_password=True)
    try:
        _require_synced(engine)
        _migrate(engine)
    except DBAPIError as error:
        said = str(error.orig).splitlines()[0]
        rule, got = "a database that can be reached and written to", f"{address} ({said})"
        fix = "another address, or `dubito serve` once it is there"
        raise BadValueError("--database", "dubito serve", rule, got, fix) from error
    except CommandError as error:
        rule, got = "of a version that this dubito knows", f"{address} ({error})"
        raise BadValueError("--database", "dubito serve", rule, got, "a newer dubito") from error


def hold_alone(engine: Engine) -> sqlite3.Connection | None:
    """Keep other processes from serving the same SQLite file, until what is returned is closed.

    A lock of SQLite itself, on a file beside it: it ends with the process, however that ends.
    PostgreSQL is for any number of processes.
    """
    if engine.dialect.name != "sqlite":
        return None
    path = f"{engine.url.database}-serving"
    held = sqlite3.connect(
        path, timeout=HOLD_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        held.execute("BEGIN EXCLUSIVE")
    except sqlite3.OperationalError as error:
        held.close()
        rule = "a file that no other process serves, as SQLite is for one process"
        got, fix = f"{engine.url.database} ({error})", "another file, or PostgreSQL"
        raise BadValueError("--database", "dubito serve", rule, got, fix) from error
    return held


def _set_up_sqlite(connection: Any, _: Any) -> None:
    """Write ahead, and sync the log at every commit."""
    connection.isolation_level = None  # transactions begin where `_begin_sqlite` says
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute("PRAGMA synchronous=FULL")
    connection.execute("PRAGMA busy_timeout=30000")


def _begin_sqlite(connection: Connection) -> None:
    """Begin: who is to write takes the lock at once, as one who read first may be refused it."""
    is_writing = connection.get_execution_options().get("is_writing", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if is_writing else "BEGIN")


def _set_up_postgresql(connection: Any, _: Any) -> None:
    """Wait for the log at every commit, even where the server's own setting does not."""
    if connection.execute("SHOW synchronous_commit").fetchone()[0] == "off":
        connection.execute("SET synchronous_commit TO on")
    connection.commit()


def _require_synced(engine: Engine) -> None:
    """Raise where a server tells that something is on the disk before it is."""
    if engine.dialect.name != "postgresql":
        return
    with engine.connect() as connection:
        if connection.execute(text("SHOW fsync")).scalar() == "off":
            rule, fix = "a server that syncs what it commits", "`ALTER SYSTEM SET fsync = on`"
            raise BadValueError("--database", "dubito serve", rule, "fsync = off", fix)


def writing(engine: Engine) -> Engine:
    """Return the same engine for transactions that write."""
    return engine.execution_options(is_writing=True)


def _migrate(engine: Engine) -> None:
    """Bring the schema up to date; of several processes that start at once, one does it."""
    script = ScriptDirectory(str(MIGRATIONS))
    with writing(engine).begin() as connection:
        if connection.dialect.name == "postgresql":
            lock = text("SELECT pg_advisory_xact_lock(:lock)")
            connection.execute(lock, {"lock": MIGRATION_LOCK})
        steps = EnvironmentContext(
            Config(), script, fn=lambda revision, _: script._upgrade_revs("head", revision)
        )
        with steps:
            steps.configure(connection=connection, target_metadata=metadata)
            steps.run_migrations()
