"""A name is of one reader, and a session that was ended stays so."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Give a name of its own to each valid token, and add a table for sessions that were ended."""
    op.execute(
        "UPDATE tokens SET name = substr(name, 1, 180) || ' ' || id WHERE revoked IS NULL AND "
        "EXISTS (SELECT 1 FROM tokens AS other WHERE other.name = tokens.name "
        "AND other.id < tokens.id AND other.revoked IS NULL)"
    )
    op.create_table(
        "ended_sessions",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("until", sa.Double, nullable=False),
    )
