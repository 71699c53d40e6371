from collections.abc import Callable
from concurrent.futures import wait
from threading import Event
from typing import Any

import pytest
from sqlalchemy import event
from sqlalchemy.exc import IntegrityError, OperationalError

from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.labeling import add_labels
from tests.serve.conftest import TORN

New = Callable[..., NewDecisions]


def test_no_answer_before_its_commit(store: Store, new: New) -> None:
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


def test_jobs_that_wait_are_committed_together(store: Store, new: New) -> None:
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
    assert len(store.rows_for_monitor()) == 100
    event.remove(store.engine, "commit", counted)


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
    assert store.label("half") is None
    assert len(store.rows_for_monitor()) == 2


def test_decisions_that_cannot_be_kept_fail_alone(store: Store, new: New) -> None:
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
    assert sorted(store.rows_for_monitor().id) == ["a", "b"]


def test_a_database_that_gives_way_is_asked_again(store: Store) -> None:
    tries = []

    def unlucky(connection: Any) -> int:
        tries.append(1)
        if len(tries) < 3:
            raise OperationalError("deadlock", None, Exception("deadlock"))
        return add_labels(connection, ["a"], [1]).n_new

    assert store.write(unlucky) == 1
    assert len(tries) == 3


def test_a_commit_that_fails_is_told_to_all(store: Store, new: New) -> None:
    def broken(_: Any) -> None:
        raise OperationalError("disk full", None, Exception("disk full"))

    event.listen(store.engine, "commit", broken)
    with pytest.raises(OperationalError):
        store.add_decisions(new({"a": TORN}))
    event.remove(store.engine, "commit", broken)
    assert store.decision("a") is None
    assert store.add_decisions(new({"a": TORN})) == {}
