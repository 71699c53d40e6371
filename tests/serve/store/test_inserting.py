from typing import Any

import numpy as np
import pytest
from sqlalchemy import select

from dubito.serve.store import Store
from dubito.serve.store.inserting import insert_rows
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
