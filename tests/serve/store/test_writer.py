import asyncio
import time
from collections.abc import Callable
from concurrent.futures import Future, wait
from contextlib import suppress
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, event, select
from sqlalchemy.exc import DataError, IntegrityError, OperationalError

from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.labels import add_labels
from dubito.serve.store.tables import idempotency_keys, labels, secrets
from dubito.serve.store.writer import FEW_ROWS, insert_new_rows, insert_rows
from tests.serve.conftest import TORN

New = Callable[..., NewDecisions]


def test_no_future_is_resolved_before_its_commit(store: Store, new: New) -> None:
    may_commit, is_committing = Event(), Event()

    def held(_: Any) -> None:
        is_committing.set()
        may_commit.wait(30)

    event.listen(store.engine, "commit", held)
    answers = [store.submit(new({"a": TORN})), store.submit(lambda c: add_labels(c, ["b"], [1]))]
    assert is_committing.wait(30)
    assert not wait(answers, timeout=0.2).done
    may_commit.set()
    assert wait(answers, timeout=30).not_done == set()
    event.remove(store.engine, "commit", held)


def test_waiting_jobs_are_committed_together(store: Store, new: New) -> None:
    commits = []
    may_go = Event()

    def counted(connection: Any) -> None:
        commits.append(connection)

    event.listen(store.engine, "commit", counted)
    first = store.submit(lambda _: may_go.wait(30))
    answers = [store.submit(new({f"r{k}": TORN})) for k in range(100)]
    may_go.set()
    wait([first, *answers])
    assert len(commits) == 2
    assert len(store.decisions_since()) == 100
    event.remove(store.engine, "commit", counted)


def test_small_jobs_are_committed_before_large_ones(store: Store, new: New) -> None:
    may_go = Event()
    order: list[str] = []
    first = store.submit(lambda _: may_go.wait(30))
    rows = range(FEW_ROWS + 1)
    jobs = {f"large {k}": new({f"{k}-{row}": TORN for row in rows}) for k in range(3)}
    jobs["small"] = new({"a": TORN})
    answers = {store.submit(job): name for name, job in jobs.items()}
    for answer in answers:
        answer.add_done_callback(lambda one: order.append(answers[one]))
    may_go.set()
    wait([first, *answers])
    assert [answer.result() for answer in answers] == [{}] * 4
    assert order == ["small", "large 0", "large 1", "large 2"]


def test_a_job_fails_alone(store: Store, new: New) -> None:
    may_go = Event()

    def spoiled(connection: Any) -> None:
        add_labels(connection, ["half"], [1])
        raise ZeroDivisionError("a mistake")

    first = store.submit(lambda _: may_go.wait(30))
    before, bad, after = (
        store.submit(new({"a": TORN})),
        store.submit(spoiled),
        store.submit(new({"b": TORN})),
    )
    may_go.set()
    wait([first, before, bad, after])
    assert isinstance(bad.exception(), ZeroDivisionError)
    assert before.result() == after.result() == {}
    assert store.get_label("half") is None
    assert len(store.decisions_since()) == 2


def test_invalid_decisions_fail_alone(store: Store, new: New) -> None:
    may_go = Event()
    spoiled = new({"bad": TORN})
    spoiled.columns["created"][0] = None
    first = store.submit(lambda _: may_go.wait(30))
    before, bad, after = (
        store.submit(one) for one in (new({"a": TORN}), spoiled, new({"b": TORN}))
    )
    may_go.set()
    wait([first, before, bad, after])
    assert isinstance(bad.exception(), IntegrityError)
    assert before.result() == after.result() == {}
    assert sorted(store.decisions_since().id) == ["a", "b"]


def test_a_cancelled_job_is_left_out_and_the_writer_goes_on(store: Store) -> None:
    may_go, has_begun = Event(), Event()

    def held(_: Connection) -> bool:
        has_begun.set()
        return may_go.wait(30)

    first = store.submit(held)
    assert has_begun.wait(30)
    waiting = store.submit(lambda c: add_labels(c, ["left"], [1]))
    after = store.submit(lambda c: add_labels(c, ["a"], [1]))
    assert not first.cancel()
    assert waiting.cancel()
    may_go.set()
    assert first.result(30)
    assert after.result(30).n_new == 1
    assert store.get_label("left") is None


@pytest.mark.slow
def test_a_request_that_is_cancelled_while_it_is_written_ends_no_thread(store: Store) -> None:
    may_go, has_begun = Event(), Event()

    def held(_: Connection) -> bool:
        has_begun.set()
        return may_go.wait(30)

    async def leave() -> None:
        request = asyncio.ensure_future(asyncio.wrap_future(store.submit(held)))
        assert await asyncio.to_thread(has_begun.wait, 30)
        request.cancel()
        await asyncio.gather(request, return_exceptions=True)

    asyncio.run(leave())
    may_go.set()
    assert store.submit(lambda c: add_labels(c, ["a"], [1])).result(30).n_new == 1


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, MemoryError])
def test_no_failure_ends_the_writer(store: Store, kind: type[BaseException]) -> None:
    def broken(_: Any) -> None:
        raise kind

    assert isinstance(store.submit(broken).exception(30), kind)
    event.listen(store.engine, "commit", broken)
    assert isinstance(store.submit(lambda _: None).exception(30), kind)
    event.remove(store.engine, "commit", broken)
    assert store.add_labels(["a"], [1]).n_new == 1


def test_what_is_accepted_while_the_store_closes_is_written(url: str) -> None:
    store = Store.open(url)
    accepted: list[Future[Any]] = []

    def submit() -> None:
        with suppress(RuntimeError):  # the store is closed
            for _ in range(200):
                accepted.append(store.submit(lambda _: 1))
                time.sleep(0)

    threads = [Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.01)
    store.close()
    for thread in threads:
        thread.join()
    assert {future.result(30) for future in accepted} == {1}


def test_a_write_is_tested(store: Store) -> None:
    may_go = Event()
    held = store.submit(lambda _: may_go.wait(30))
    with pytest.raises(TimeoutError):
        store.check_writing(0.05)
    may_go.set()
    assert held.result(30)
    for _ in range(3):
        store.check_writing()
    names = store.read(lambda c: c.execute(select(secrets.c.name)).scalars().all())
    assert len(names) == 1


def test_an_aborted_transaction_is_repeated(store: Store) -> None:
    tries = []

    def unlucky(connection: Any) -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OperationalError("deadlock", None, Exception("deadlock"))
        return add_labels(connection, ["a"], [1]).n_new

    assert store.write(unlucky) == 1
    assert len(tries) == 3


def test_a_failed_commit_fails_all_its_jobs(store: Store, new: New) -> None:
    def broken(_: Any) -> None:
        raise OperationalError("disk full", None, Exception("disk full"))

    event.listen(store.engine, "commit", broken)
    with pytest.raises(OperationalError):
        store.add_decisions(new({"a": TORN}))
    event.remove(store.engine, "commit", broken)
    assert store.get_decision("a") is None
    assert store.add_decisions(new({"a": TORN})) == {}


@pytest.mark.parametrize("n_rows", [0, 1, 7, 8, 600, 1300])
def test_each_row_is_inserted_once(store: Store, n_rows: int) -> None:
    columns = {
        "decision_id": [f"r{k}" for k in range(n_rows)],
        "label": list(range(n_rows)),
        "answers": [None if k % 3 else "yn?" for k in range(n_rows)],
        "reviewer": [None if k % 2 else "ann" for k in range(n_rows)],
        "created": np.linspace(0, 1, n_rows).tolist(),
    }
    assert store.write(lambda c: insert_rows(c, labels, columns)) == n_rows
    more = {name: [*values, *([values[0]] if values else [])] for name, values in columns.items()}
    more["decision_id"] = [*columns["decision_id"], *(["new"] if n_rows else [])]
    assert store.write(lambda c: insert_rows(c, labels, more)) == min(n_rows, 1)
    query = select(labels).order_by(labels.c.label, labels.c.decision_id.desc())
    rows = store.read(lambda c: c.execute(query).all())
    kept = [tuple(row) for row in rows if row.decision_id != "new"]
    assert kept == list(zip(*columns.values(), strict=True))


def test_what_many_rows_share_is_bound_once_and_what_none_has_is_left_out(store: Store) -> None:
    columns = {**some_labels(*map(str, range(1110))), "label": [3] * 1110}
    bound: list[int] = []

    @event.listens_for(store.engine, "before_cursor_execute")
    def count(*given: Any) -> None:
        if given[2].startswith("INSERT"):
            bound.append(len(given[3]))

    assert store.write(lambda c: insert_rows(c, labels, columns)) == 1110
    event.remove(store.engine, "before_cursor_execute", count)
    # SQLite: the ids of each part, and one label, answer and time; PostgreSQL: an array per column.
    assert bound == ([1003, 103, 13] if store.dialect == "sqlite" else [4])
    rows = store.read(lambda c: c.execute(select(labels)).all())
    assert {tuple(row) for row in rows} == {(str(k), 3, "y", None, 0.5) for k in range(1110)}
    assert store.write(lambda c: insert_rows(c, labels, columns)) == 0


def test_values_are_not_executed(store: Store) -> None:
    nasty = "'); DROP TABLE labels; --%s ? :x"
    columns: dict[str, list[Any]] = {"key": [nasty], "digest": [b"\x00\xff'"], "created": [1.0]}
    assert store.write(lambda c: insert_rows(c, idempotency_keys, columns)) == 1
    found = store.read(lambda c: c.execute(select(idempotency_keys)).one())
    assert tuple(found) == (nasty, b"\x00\xff'", 1.0)


def some_labels(*names: str) -> dict[str, list[Any]]:
    n = len(names)
    return {
        "decision_id": list(names),
        "label": list(range(n)),
        "answers": ["y"] * n,
        "reviewer": [None] * n,
        "created": [0.5] * n,
    }


def test_all_rows_are_inserted_or_the_caller_rolls_back(store: Store) -> None:
    assert store.write(lambda c: insert_new_rows(c, labels, some_labels("a", "b")))
    assert store.write(lambda c: insert_new_rows(c, labels, some_labels()))

    def undone(connection: Connection, *names: str) -> bool:
        with connection.begin_nested() as nested:
            is_done = insert_new_rows(connection, labels, some_labels(*names))
            nested.rollback()
        return is_done

    assert store.write(lambda c: undone(c, "c", "d"))
    assert not store.write(lambda c: undone(c, "c", "a"))
    assert not store.write(lambda c: undone(c, "c", "c"))
    rows = store.read(lambda c: c.execute(select(labels).order_by(labels.c.label)).all())
    assert [tuple(row) for row in rows] == [("a", 0, "y", None, 0.5), ("b", 1, "y", None, 0.5)]


@pytest.mark.slow
def test_copy_errors_are_sqlalchemy_errors(empty_postgres: str) -> None:
    store = Store.open(empty_postgres)
    copied = r"COPY labels \(decision_id, label, answers, created\)"
    with pytest.raises(DataError, match=copied):
        store.write(lambda c: insert_new_rows(c, labels, some_labels("long" * 100)))
    assert store.write(lambda c: insert_new_rows(c, labels, some_labels("short")))
    store.close()
