from typing import Any

import numpy as np
import pytest
from sqlalchemy import Connection, select
from sqlalchemy.exc import DataError

from dubito.serve.store import Store
from dubito.serve.store.inserting import insert_all, insert_rows
from dubito.serve.store.tables import labels, requests


@pytest.mark.parametrize("n_rows", [0, 1, 7, 8, 600, 1300])
def test_each_row_goes_in_once(store: Store, n_rows: int) -> None:
    columns = {
        "decision_id": [f"r{k}" for k in range(n_rows)],
        "label": list(range(n_rows)),
        "reader": [None if k % 2 else "ann" for k in range(n_rows)],
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


def test_nothing_in_a_value_is_run(store: Store) -> None:
    nasty = "'); DROP TABLE labels; --%s ? :x"
    columns: dict[str, list[Any]] = {"key": [nasty], "digest": [b"\x00\xff'"], "created": [1.0]}
    assert store.write(lambda c: insert_rows(c, requests, columns)) == 1
    found = store.read(lambda c: c.execute(select(requests)).one())
    assert tuple(found) == (nasty, b"\x00\xff'", 1.0)


def some_labels(*names: str) -> dict[str, list[Any]]:
    n = len(names)
    return {
        "decision_id": list(names),
        "label": list(range(n)),
        "reader": [None] * n,
        "created": [0.5] * n,
    }


def test_all_rows_go_in_or_the_caller_is_told(store: Store) -> None:
    assert store.write(lambda c: insert_all(c, labels, some_labels("a", "b")))
    assert store.write(lambda c: insert_all(c, labels, some_labels()))

    def undone(connection: Connection, *names: str) -> bool:
        with connection.begin_nested() as nested:
            is_done = insert_all(connection, labels, some_labels(*names))
            nested.rollback()
        return is_done

    assert store.write(lambda c: undone(c, "c", "d"))
    assert not store.write(lambda c: undone(c, "c", "a"))
    assert not store.write(lambda c: undone(c, "c", "c"))
    rows = store.read(lambda c: c.execute(select(labels).order_by(labels.c.label)).all())
    assert [tuple(row) for row in rows] == [("a", 0, None, 0.5), ("b", 1, None, 0.5)]


def test_an_error_while_copying_is_that_of_any_statement(empty_postgres: str) -> None:
    store = Store.open(empty_postgres)
    with pytest.raises(DataError, match=r"COPY labels \(decision_id, label, reader, created\)"):
        store.write(lambda c: insert_all(c, labels, some_labels("long" * 100)))
    assert store.write(lambda c: insert_all(c, labels, some_labels("short")))
    store.close()
