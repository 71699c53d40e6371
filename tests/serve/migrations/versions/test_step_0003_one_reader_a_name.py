from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import insert, text

from dubito.serve.migrations.versions import (
    step_0001_first,
    step_0002_features_corrections_sessions,
)
from dubito.serve.store import Store
from dubito.serve.store.opening import open_engine, writing
from dubito.serve.store.tables import tokens


def test_readers_of_one_name_are_told_apart_from_now_on(url: str) -> None:
    engine = open_engine(url)
    with writing(engine).begin() as connection:
        with Operations.context(MigrationContext.configure(connection)):
            step_0001_first.upgrade()
            step_0002_features_corrections_sessions.upgrade()
        connection.execute(text("CREATE TABLE alembic_version (version_num VARCHAR(32))"))
        connection.execute(text("INSERT INTO alembic_version VALUES ('0002')"))
        names, revoked = ["me", "me", "ann", "me", "x" * 200, "x" * 200], [1.0, *[None] * 5]
        for number, (name, ended) in enumerate(zip(names, revoked, strict=True)):
            values = {"name": name, "hash": str(number), "scopes": "review", "created": 0.0}
            connection.execute(insert(tokens).values(**values, revoked=ended))
    engine.dispose()
    store = Store.open(url)
    assert [one.name for one in store.tokens()] == [
        "me", "me", "ann", "me 4", "x" * 200, "x" * 180 + " 6",
    ]  # fmt: skip
    store.close()
