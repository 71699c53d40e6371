from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import inspect, text

from dubito.serve.migrations import step_0001_initial as initial
from dubito.serve.store import Store
from dubito.serve.store.store import _migrate
from dubito.serve.store.tables import metadata


def test_all_tables_exist(store: Store) -> None:
    there = set(inspect(store.engine).get_table_names())
    assert there == {*metadata.tables, "alembic_version"}
    assert set(metadata.tables) == {
        "activations", "cascade_stages", "corrections", "decisions", "ended_sessions",
        "forecast_events", "forecasts", "idempotency_keys", "labels", "policies",
        "review_events", "reviews", "secrets", "team_members", "tokens",
    }  # fmt: skip


def test_tokens_are_not_stored() -> None:
    assert set(metadata.tables["tokens"].columns.keys()) == {
        "id", "name", "hash", "scopes", "created", "expires", "revoked",
    }  # fmt: skip


def test_the_migrations_create_the_declared_tables(store: Store) -> None:
    with store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_migration_is_applied_once(store: Store) -> None:
    store.add_labels(["x"], [1])
    _migrate(store.engine)
    with store.engine.connect() as connection:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    assert found == [initial.revision]
    assert (initial.revision, initial.down_revision) == ("0001", None)
    assert store.get_label("x") == 1
