from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import text

from dubito.serve.migrations.versions import step_0001_first as first
from dubito.serve.migrations.versions import step_0003_one_reader_a_name as newest
from dubito.serve.store import Store
from dubito.serve.store.opening import _migrate
from dubito.serve.store.tables import metadata


def test_the_steps_lead_to_the_tables_as_they_are_now(store: Store) -> None:
    with store.engine.connect() as connection:
        assert compare_metadata(MigrationContext.configure(connection), metadata) == []


def test_a_store_knows_its_step_and_does_it_once(store: Store) -> None:
    store.add_labels(["x"], [1])
    _migrate(store.engine)
    with store.engine.connect() as connection:
        found = connection.execute(text("SELECT version_num FROM alembic_version")).scalars().all()
    assert found == [newest.revision]
    assert (first.revision, first.down_revision) == ("0001", None)
    assert store.label("x") == 1
