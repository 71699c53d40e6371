from collections.abc import Callable
from typing import Any

from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import text

from dubito.decide import Policy
from dubito.serve.migrations.versions import step_0001_first
from dubito.serve.running import put_in_force
from dubito.serve.store import NewDecisions, Store
from dubito.serve.store.inserting import insert_rows
from dubito.serve.store.opening import open_engine, writing
from dubito.serve.store.tables import decisions, labels, reviews
from tests.serve.conftest import SURE

N_ROWS = 40


def test_what_the_first_version_kept_is_there(
    url: str, new: Callable[..., NewDecisions], policy: Policy
) -> None:
    rows = {f"r{k}": [k / 10, 0.0, 0.0] for k in range(N_ROWS)}
    columns = new(rows, audit_share=0.125).columns
    for name in ("features", "audit_share", "place"):
        del columns[name]
    engine = open_engine(url)
    with writing(engine).begin() as connection:
        with Operations.context(MigrationContext.configure(connection)):
            step_0001_first.upgrade()
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('0001')"))
        insert_rows(connection, decisions, columns)
        label: dict[str, list[Any]] = {"decision_id": ["r3"], "label": [2], "created": [1.0]}
        insert_rows(connection, labels, label)
        insert_rows(connection, reviews, waiting(columns))
    engine.dispose()
    store = Store.open(url)
    put_in_force(store, policy)
    found = store.rows_for_monitor()
    assert sorted(found.id.tolist()) == sorted(rows)
    is_passed = found.propensity < 1
    assert 0 < is_passed.sum() < N_ROWS
    assert set(found.audit_share.tolist()) == {0.125}
    assert [one.learned_until for one in store.policies().all] == [None]
    assert store.label("r3") == 2
    assert store.features_of(list(rows)) is None
    waits = store.next_ids("ann", N_ROWS)
    review_order = sorted(
        waits, key=lambda name: -columns["review_value"][columns["id"].index(name)]
    )
    assert len(waits) == N_ROWS - 1
    assert waits != review_order
    assert store.add_decisions(new({"s": SURE}, features=[[1.0, 2.0]])) == {}
    kept = store.features_of(["s"])
    assert kept is not None
    assert kept.tolist() == [[1.0, 2.0]]
    store.add_labels(["r3"], [1], "ann")
    assert [one.label for one in store.corrections("r3")] == [2]
    assert len(store.session_secret()) == 32
    store.close()


def waiting(columns: dict[str, list[Any]]) -> dict[str, list[Any]]:
    n_rows = len(columns["id"])
    return {
        "decision_id": columns["id"],
        "created": columns["created"],
        "review_value": columns["review_value"],
        "is_audit": [True] * n_rows,
        "is_open": [True] * n_rows,
        "lease_until": [0.0] * n_rows,
    }
