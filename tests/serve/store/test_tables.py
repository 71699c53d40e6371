from sqlalchemy import inspect

from dubito.serve.store import Store
from dubito.serve.store.tables import metadata


def test_all_tables_are_there(store: Store) -> None:
    there = set(inspect(store.engine).get_table_names())
    assert there == {*metadata.tables, "alembic_version"}
    assert set(metadata.tables) == {
        "activations", "corrections", "decisions", "ended_sessions", "labels", "policies",
        "requests", "review_events", "reviews", "secrets", "tokens",
    }  # fmt: skip


def test_no_table_holds_a_token() -> None:
    assert set(metadata.tables["tokens"].columns.keys()) == {
        "id", "name", "hash", "scopes", "created", "expires", "revoked",
    }  # fmt: skip
