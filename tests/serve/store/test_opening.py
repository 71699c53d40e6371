import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from dubito.errors import BadValueError
from dubito.serve.store import Store, opening
from dubito.serve.store.opening import _migrate, hold_alone, open_engine, writing


def test_a_commit_is_synced(store: Store) -> None:
    with writing(store.engine).begin() as connection:
        if connection.dialect.name == "sqlite":
            assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
            assert connection.execute(text("PRAGMA synchronous")).scalar() == 2  # FULL
        else:
            assert connection.execute(text("SHOW synchronous_commit")).scalar() == "on"
            assert connection.execute(text("SHOW fsync")).scalar() == "on"


@contextmanager
def told(url: str, setting: str, reset: str) -> Iterator[None]:
    engine = create_engine(url, isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(setting))
        connection.execute(text("SELECT pg_reload_conf()"))
        try:
            time.sleep(0.2)
            yield
        finally:
            connection.execute(text(reset))
            connection.execute(text("SELECT pg_reload_conf()"))
            time.sleep(0.2)
    engine.dispose()


def test_a_server_that_does_not_sync_is_refused(empty_postgres: str) -> None:
    with (
        told(empty_postgres, "ALTER SYSTEM SET fsync = off", "ALTER SYSTEM RESET fsync"),
        pytest.raises(BadValueError) as refused,
    ):
        Store.open(empty_postgres)
    assert str(refused.value) == (
        "`--database` of dubito serve must be a server that syncs what it commits. "
        "Got fsync = off. Try `ALTER SYSTEM SET fsync = on`."
    )


@pytest.mark.parametrize(
    ("setting", "kept"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
)
def test_a_commit_waits_where_the_server_would_not(
    empty_postgres: str, setting: str, kept: str
) -> None:
    change = "ALTER DATABASE dubito SET synchronous_commit = "
    with told(empty_postgres, change + setting, change + "DEFAULT"):
        store = Store.open(empty_postgres)
        with store.engine.connect() as connection:
            assert connection.execute(text("SHOW synchronous_commit")).scalar() == kept
        store.close()


def test_processes_that_start_at_once_make_the_tables_once(url: str) -> None:
    engines = [open_engine(url) for _ in range(4)]
    threads = [Thread(target=_migrate, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with engines[0].connect() as connection:
        assert len(connection.execute(text("SELECT * FROM alembic_version")).all()) == 1
    for engine in engines:
        engine.dispose()


def test_who_reads_does_not_wait_for_who_writes(store: Store) -> None:
    with writing(store.engine).begin() as connection:
        connection.execute(text("DELETE FROM tokens"))
        start = time.monotonic()
        assert store.tokens() == []
        assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("url", "got"),
    [
        ("mysql://root@host/name", "mysql"),
        ("sqlite://", "a database in memory"),
        ("sqlite:///:memory:", "a database in memory"),
        ("no address", "'no address'"),
    ],
)
def test_other_databases_are_refused(url: str, got: str) -> None:
    with pytest.raises(BadValueError) as refused:
        open_engine(url)
    assert str(refused.value) == (
        "`--database` of dubito serve must be sqlite:///file or "
        f"postgresql+psycopg://user@host/name. Got {got}. Try sqlite:///dubito.db."
    )


def test_errors_tell_nothing_that_was_sent(store: Store) -> None:
    with pytest.raises(SQLAlchemyError) as failed, store.engine.connect() as connection:
        connection.execute(text("SELECT * FROM missing WHERE id = :id"), {"id": "SECRET"})
    assert "SECRET" not in str(failed.value)


@pytest.mark.parametrize("kind", ["no folder", "a folder", "no database"])
def test_a_file_that_cannot_be_used_is_told(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "missing" / "dubito.db"
    if kind == "a folder":
        path = tmp_path
    if kind == "no database":
        path = tmp_path / "text"
        path.write_text("This is a text, and no database at all. " * 50)
    with pytest.raises(BadValueError) as refused:
        Store.open(f"sqlite:///{path}")
    said = "file is not a database" if kind == "no database" else "unable to open database file"
    assert str(refused.value) == (
        "`--database` of dubito serve must be a database that can be reached and written to. "
        f"Got sqlite:///{path} ({said}). "
        "Try another address, or `dubito serve` once it is there."
    )


def test_a_server_that_is_away_is_told_without_the_password() -> None:
    with pytest.raises(BadValueError) as refused:
        Store.open("postgresql+psycopg://ann:hidden@127.0.0.1:1/dubito?connect_timeout=2")
    assert "Got postgresql+psycopg://ann:***@127.0.0.1:1/dubito" in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_database_of_a_newer_version_is_told(url: str) -> None:
    store = Store.open(url)
    with writing(store.engine).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    with pytest.raises(BadValueError, match="must be of a version that this dubito knows"):
        Store.open(url)


def test_one_process_serves_a_file_and_any_number_a_server(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "HOLD_SECONDS", 0.1)
    first, second = Store.open(url), Store.open(url)
    first.hold()
    first.add_labels(["a"], [1])
    if url.startswith("sqlite"):
        with pytest.raises(BadValueError) as refused:
            second.hold()
        assert str(refused.value) == (
            "`--database` of dubito serve must be a file that no other process serves, as SQLite "
            f"is for one process. Got {first.engine.url.database} (database is locked). "
            "Try another file, or PostgreSQL."
        )
        assert second.label("a") == 1
    else:
        assert hold_alone(first.engine) is None
    first.close()
    second.hold()
    second.close()
