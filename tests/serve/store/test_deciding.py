from collections.abc import Callable

import pytest
from sqlalchemy import Table, func, select

from dubito.serve.refusals import RefusedError
from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.deciding import add_one, stored_rows
from dubito.serve.store.tables import decisions, requests, reviews
from tests.serve.conftest import SURE, TORN

New = Callable[..., NewDecisions]


def n_rows(store: Store, table: Table) -> int:
    return int(
        store.read(lambda c: c.execute(select(func.count()).select_from(table)).scalar_one())
    )


def test_a_repeated_id_gets_the_first_answer(store: Store, new: New) -> None:
    assert store.add_decisions(new({"a": TORN, "b": SURE})) == {}
    found = store.add_decisions(new({"b": SURE, "c": SURE}))
    assert set(found) == {"b"}
    assert found["b"]["action"] == 0
    assert n_rows(store, decisions) == 3


def test_another_body_is_refused_whole(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}))
    with pytest.raises(RefusedError) as refused:
        store.add_decisions(new({"new": SURE, "a": SURE}))
    assert str(refused.value) == (
        "Id 'a' was decided before with another body. Try another id, or the same body."
    )
    assert refused.value.status == 409
    assert n_rows(store, decisions) == 1
    assert store.decision("new") is None


def test_an_idempotency_key_stands_for_one_body(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN}, key="k"))
    assert set(store.add_decisions(new({"a": TORN}, key="k"))) == {"a"}
    other = new({"a": TORN}, key="k")
    with pytest.raises(RefusedError, match="Idempotency key 'k' came before with another body"):
        store.add_decisions(NewDecisions(other.columns, other.is_rejected, "k", b"another"))
    assert n_rows(store, requests) == 1


def test_what_is_rejected_or_drawn_waits_for_a_look(store: Store, new: New) -> None:
    store.add_decisions(new({"a": TORN, "b": SURE}))
    assert n_rows(store, reviews) == 1
    store.add_decisions(new({"c": SURE}, audit_share=1.0))
    assert n_rows(store, reviews) == 2
    [c] = [row for row in store.rows_for_monitor().id.tolist() if row == "c"]
    rows = store.rows_for_monitor()
    assert rows.propensity[rows.id == c].tolist() == [1.0]
    assert rows.propensity[rows.id == "b"].tolist() == [0.0]


def test_requests_of_one_group_may_repeat_each_other(store: Store, new: New) -> None:
    futures = [store.submit(new({"x": TORN})) for _ in range(20)]
    futures.append(store.submit(new({"x": SURE})))
    futures += [store.submit(new({f"y{k}": TORN})) for k in range(20)]
    kept = [future for future in futures if future.exception() is None]
    assert len(kept) == 40
    assert n_rows(store, decisions) == 21
    assert n_rows(store, reviews) == 21


def test_more_ids_than_one_query_takes(store: Store, new: New) -> None:
    many = {f"r{k}": TORN for k in range(1100)}
    store.add_decisions(new(many))
    assert set(store.read(lambda c: stored_rows(c, list(many)))) == set(many)
    assert len(store.write(lambda c: add_one(c, new(many)))) == 1100
