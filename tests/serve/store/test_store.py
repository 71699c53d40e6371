import os
import shlex
import sqlite3
import subprocess
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
from dubito.serve.store.store import _hide_password, _migrate, _open_engine, _writing


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
    again.check_writing()
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
        pytest.raises(BadValueError) as caught,
    ):
        Store.open(empty_postgres)
    assert str(caught.value) == (
        "dubito: `--database` must sync its commits to disk, got fsync = off. "
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
    with pytest.raises(BadValueError) as caught:
        _open_engine(url)
    assert str(caught.value) == (
        "dubito: `--database` must be sqlite:///file or "
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
        path.chmod(0o600)
    with pytest.raises(BadValueError) as caught:
        Store.open(f"sqlite:///{path}")
    reason = "file is not a database" if kind == "no database" else "unable to open database file"
    assert str(caught.value) == (
        "dubito: `--database` must be a database that can be reached and written to, "
        f"got sqlite:///{path} ({reason}). "
        "Check that the directory of the file exists and is writable."
    )


def test_an_unreachable_server_is_reported_without_the_password() -> None:
    with pytest.raises(BadValueError) as caught:
        Store.open("postgresql+psycopg://ann:hidden@127.0.0.1:1/dubito?connect_timeout=2")
    assert "got postgresql+psycopg://ann:***@127.0.0.1:1/dubito" in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_the_address_of_a_database_is_shown_without_its_password(url: str) -> None:
    store = Store.open(url)
    assert url.startswith(store.dialect)
    assert store.address == _hide_password(url)
    store.close()
    target = "postgresql+psycopg://ann:hidden@host/dubito?sslpassword=hidden"
    unopened = Store(create_engine(target))
    assert unopened.address == "postgresql+psycopg://ann:***@host/dubito"
    assert unopened.has_password
    unopened.close()


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
        with pytest.raises(BadValueError) as caught:
            second.lock(timeout=0.1)
        assert str(caught.value) == (
            "dubito: `--database` must be a file that no other process serves, "
            f"got {first.engine.url.database} (database is locked). "
            "Stop the other process, or use another file or PostgreSQL."
        )
        assert second.get_label("a") == 1
    else:
        second.lock()
    first.close()
    second.lock()
    second.close()


FILES = ("", "-wal", "-shm", "-serving")


@pytest.fixture
def no_umask() -> Iterator[None]:
    """New files are readable by all, unless a program takes care."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_only_the_owner_can_read_the_files(tmp_path: Path, no_umask: None) -> None:
    store = Store.open(f"sqlite:///{tmp_path}/dubito.db")
    store.lock()
    store.create_token("ann", ["admin"])
    for ending in FILES:
        assert (tmp_path / f"dubito.db{ending}").stat().st_mode & 0o777 == 0o600
    store.close()


@pytest.mark.parametrize("ending", [*FILES, "-journal"])
@pytest.mark.parametrize("mode", [0o644, 0o640, 0o620, 0o602])
def test_a_file_that_others_can_read_raises(tmp_path: Path, ending: str, mode: int) -> None:
    name = tmp_path / "a b.db"
    Store.open(f"sqlite:///{name}").close()
    exposed = Path(f"{name}{ending}")
    exposed.touch()
    exposed.chmod(mode)
    with pytest.raises(BadValueError) as caught:
        Store.open(f"sqlite:///{name}")
    assert str(caught.value) == (
        "dubito: `--database` must be readable by its owner only, got "
        f"{exposed} with mode {mode:o}. Run `chmod 600 '{exposed}'`."
    )
    remedy = str(caught.value).split("`")[3]
    subprocess.run(shlex.split(remedy), check=True)
    Store.open(f"sqlite:///{name}").close()


def test_a_link_leads_to_the_file_that_is_checked_and_locked(
    tmp_path: Path, no_umask: None
) -> None:
    (tmp_path / "there").mkdir(0o700)
    link, file = tmp_path / "link.db", tmp_path / "there" / "dubito.db"
    link.symlink_to(file)
    first = Store.open(f"sqlite:///{link}")  # creates the file it points to
    assert file.stat().st_mode & 0o777 == 0o600
    first.lock()
    second = Store.open(f"sqlite:///{file}")
    with pytest.raises(BadValueError, match="no other process serves"):
        second.lock(timeout=0)
    first.close()
    second.close()
    file.chmod(0o644)
    with pytest.raises(BadValueError, match=f"chmod 600 {file}"):
        Store.open(f"sqlite:///{link}")


def test_a_directory_in_which_all_can_write_raises(tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    with pytest.raises(BadValueError) as caught:
        Store.open(f"sqlite:///{shared}/dubito.db")
    assert f"got {shared} with mode 777. Run `mkdir -m 700 {shared}/private`" in str(caught.value)
    shared.chmod(0o1777)  # as /tmp: nobody can replace the files of others
    Store.open(f"sqlite:///{shared}/dubito.db").close()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file of another user")
def test_a_file_of_another_user_in_a_shared_directory_raises(tmp_path: Path) -> None:
    file = tmp_path / "dubito.db"
    file.touch(0o600)
    os.chown(file, 65_534, 65_534)
    Store.open(f"sqlite:///{file}").close()  # root may use the database of the service
    tmp_path.chmod(0o1777)
    with pytest.raises(BadValueError, match="other users cannot replace it"):
        Store.open(f"sqlite:///{file}")


@pytest.mark.parametrize(
    "url",
    [
        "postgresql+psycopg://ann:hunter2@127.0.0.1:port/name",
        "postgresql//ann:hunter2@127.0.0.1/name",
        "postgresql+psycopg://ann:hun@hunter2@127.0.0.1:1/name",
        "postgresql+psycopg://ann@127.0.0.1:1/name?password=hunter2",
        "mysql://ann:hunter2@127.0.0.1/name",
    ],
)
def test_a_password_is_in_no_message(url: str) -> None:
    with pytest.raises(BadValueError) as caught:
        Store.open(url)
    assert "hunter2" not in str(caught.value)


def test_a_file_with_options_of_sqlite_raises(tmp_path: Path) -> None:
    with pytest.raises(BadValueError, match="got the option uri"):
        Store.open(f"sqlite:///file:{tmp_path}/dubito.db?uri=true&mode=memory")


def test_a_connection_in_use_is_closed_when_its_thread_returns_it(url: str) -> None:
    store = Store.open(url)
    connection = store.engine.connect()
    held = connection.connection.dbapi_connection
    store.close()
    connection.close()
    if store.dialect == "sqlite":
        with pytest.raises(sqlite3.ProgrammingError, match="closed"):
            held.execute("SELECT 1")  # type: ignore[union-attr]
    else:
        assert held.closed  # type: ignore[union-attr]
