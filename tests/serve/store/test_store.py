import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from threading import Thread

import pytest
from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import SQLAlchemyError

from dubito.errors import BadValueError
from dubito.serve.store import Store
from dubito.serve.store.store import _migrate, _open_engine, _writing


def kept(number: int, _: Connection) -> int:
    return number


def test_accepted_work_is_written_before_the_store_closes(url: str) -> None:
    store = Store.open(url)
    answers = [store.submit(partial(kept, k)) for k in range(200)]
    store.add_labels(["a"], [1])
    store.close()
    assert [answer.result(0) for answer in answers] == list(range(200))
    store.close()
    with pytest.raises(RuntimeError, match="The store is closed"):
        store.add_labels(["b"], [1])
    again = Store.open(url)
    assert again.get_label("a") == 1
    assert again.get_label("b") is None
    again.ping()
    again.close()


def test_a_commit_is_synced(store: Store) -> None:
    with _writing(store.engine).begin() as connection:
        if connection.dialect.name == "sqlite":
            assert connection.execute(text("PRAGMA journal_mode")).scalar() == "wal"
            assert connection.execute(text("PRAGMA synchronous")).scalar() == 2  # FULL
        else:
            assert connection.execute(text("SHOW synchronous_commit")).scalar() == "on"
            assert connection.execute(text("SHOW fsync")).scalar() == "on"


@contextmanager
def server_setting(url: str, setting: str, reset: str) -> Iterator[None]:
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


def test_a_server_without_fsync_is_rejected(empty_postgres: str) -> None:
    with (
        server_setting(empty_postgres, "ALTER SYSTEM SET fsync = off", "ALTER SYSTEM RESET fsync"),
        pytest.raises(BadValueError) as refused,
    ):
        Store.open(empty_postgres)
    assert str(refused.value) == (
        "dubito serve: `--database` must sync its commits to disk, got fsync = off. "
        "Run `ALTER SYSTEM SET fsync = on`."
    )


@pytest.mark.parametrize(
    ("setting", "kept"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
)
def test_a_commit_waits_where_the_server_would_not(
    empty_postgres: str, setting: str, kept: str
) -> None:
    change = "ALTER DATABASE dubito SET synchronous_commit = "
    with server_setting(empty_postgres, change + setting, change + "DEFAULT"):
        store = Store.open(empty_postgres)
        with store.engine.connect() as connection:
            assert connection.execute(text("SHOW synchronous_commit")).scalar() == kept
        store.close()


def test_processes_that_start_at_once_make_the_tables_once(url: str) -> None:
    engines = [_open_engine(url) for _ in range(4)]
    threads = [Thread(target=_migrate, args=(engine,)) for engine in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    with engines[0].connect() as connection:
        assert len(connection.execute(text("SELECT * FROM alembic_version")).all()) == 1
    for engine in engines:
        engine.dispose()


def test_readers_do_not_wait_for_writers(store: Store) -> None:
    with _writing(store.engine).begin() as connection:
        connection.execute(text("DELETE FROM tokens"))
        start = time.monotonic()
        assert store.list_tokens() == []
        assert time.monotonic() - start < 10


@pytest.mark.parametrize(
    ("url", "got"),
    [
        ("mysql://root@host/name", "mysql"),
        ("sqlite://", "an in-memory database"),
        ("sqlite:///:memory:", "an in-memory database"),
        ("no address", "'no address'"),
    ],
)
def test_other_databases_are_rejected(url: str, got: str) -> None:
    with pytest.raises(BadValueError) as refused:
        _open_engine(url)
    assert str(refused.value) == (
        "dubito serve: `--database` must be sqlite:///file or "
        f"postgresql+psycopg://user@host/name, got {got}. Use --database sqlite:///dubito.db."
    )


def test_errors_contain_no_parameter_values(store: Store) -> None:
    with pytest.raises(SQLAlchemyError) as failed, store.engine.connect() as connection:
        connection.execute(text("SELECT * FROM missing WHERE id = :id"), {"id": "SECRET"})
    assert "SECRET" not in str(failed.value)


@pytest.mark.parametrize("kind", ["no folder", "a folder", "no database"])
def test_a_file_that_cannot_be_used_is_reported(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "missing" / "dubito.db"
    if kind == "a folder":
        path = tmp_path
    if kind == "no database":
        path = tmp_path / "text"
        path.write_text("This is a text, and no database at all. " * 50)
    with pytest.raises(BadValueError) as refused:
        Store.open(f"sqlite:///{path}")
    reason = "file is not a database" if kind == "no database" else "unable to open database file"
    assert str(refused.value) == (
        "dubito serve: `--database` must be a database that can be reached and written to, "
        f"got sqlite:///{path} ({reason}). "
        "Check the address, and that the server is running."
    )


def test_an_unreachable_server_is_reported_without_the_password() -> None:
    with pytest.raises(BadValueError) as refused:
        Store.open("postgresql+psycopg://ann:hidden@127.0.0.1:1/dubito?connect_timeout=2")
    assert "got postgresql+psycopg://ann:***@127.0.0.1:1/dubito" in str(refused.value)
    assert "hidden" not in str(refused.value)


def test_a_database_of_a_newer_version_is_reported(url: str) -> None:
    store = Store.open(url)
    with _writing(store.engine).begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    with pytest.raises(BadValueError, match="must have a schema version that this dubito knows"):
        Store.open(url)


def test_one_process_serves_a_file_and_any_number_a_server(url: str) -> None:
    first, second = Store.open(url), Store.open(url)
    first.lock()
    first.add_labels(["a"], [1])
    if url.startswith("sqlite"):
        with pytest.raises(BadValueError) as refused:
            second.lock(timeout=0.1)
        assert str(refused.value) == (
            "dubito serve: `--database` must be a file that no other process serves, "
            f"got {first.engine.url.database} (database is locked). "
            "Stop the other process, or use another file or PostgreSQL."
        )
        assert second.get_label("a") == 1
    else:
        second.lock()
    first.close()
    second.lock()
    second.close()
