"""Features are kept, labels may be corrected, and sessions are signed."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add a column for features, and tables for labels that were corrected and for secrets.

    Rows that chance drew wait in any order from now on, not in that of what a look is worth.
    """
    op.execute("UPDATE reviews SET review_value = random() WHERE is_audit")
    op.add_column("decisions", sa.Column("features", sa.LargeBinary))
    op.add_column("policies", sa.Column("learned_until", sa.Double))
    keep_draws()
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


def keep_draws() -> None:
    """Add the chance to be drawn, for rows that were handed over too, and the order in a request.

    Of rows that were handed over it was not kept: it is that of the nearest row that was let pass.
    """
    for name, kind in (("audit_share", sa.Double), ("place", sa.Integer)):
        op.add_column("decisions", sa.Column(name, kind, nullable=False, server_default="0"))
    op.execute("UPDATE decisions SET audit_share = propensity WHERE propensity < 1")
    near = "SELECT near.propensity FROM decisions AS near"
    near += " WHERE near.propensity < 1 AND near.created"
    op.execute(
        f"UPDATE decisions SET audit_share = COALESCE("
        f"({near} <= decisions.created ORDER BY near.created DESC LIMIT 1), "
        f"({near} > decisions.created ORDER BY near.created LIMIT 1), "
        f"CASE WHEN is_audit THEN 1.0 ELSE 0.0 END) WHERE propensity >= 1"
    )
