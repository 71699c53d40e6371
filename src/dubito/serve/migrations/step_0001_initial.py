"""The initial schema: the declared tables.

It is frozen here, as calls of `op.create_table`, with the first release: from then on a change of
the tables is a step of its own.
"""

from alembic import op

from dubito.serve.store.tables import metadata

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    metadata.create_all(op.get_bind(), checkfirst=False)
