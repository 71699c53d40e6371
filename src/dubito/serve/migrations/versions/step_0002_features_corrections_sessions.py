"""Features are kept, labels may be corrected, and sessions are signed."""

import sqlalchemy as sa
from alembic import op

__all__ = ["down_revision", "revision", "upgrade"]

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add a column for features, and tables for labels that were corrected and for secrets.

    Rows that chance drew wait in any order from now on, not in that of what a look is worth.
    """
    op.execute("UPDATE reviews SET worth = random() WHERE is_audit")
    op.add_column("decisions", sa.Column("features", sa.LargeBinary))
    op.create_table(
        "corrections",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("decision_id", sa.String(200), nullable=False),
        sa.Column("label", sa.Integer, nullable=False),
        sa.Column("reader", sa.String(200)),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("corrected", sa.Double, nullable=False),
        sa.Column("corrected_by", sa.String(200), nullable=False),
    )
    op.create_index("ix_corrections_decision_id", "corrections", ["decision_id"])
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
