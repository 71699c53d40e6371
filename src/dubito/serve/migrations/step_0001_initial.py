"""The initial schema."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "policies",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("document", sa.Text, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("trained_until", sa.Double),
    )
    op.create_table(
        "activations",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("policy_id", sa.Integer, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("is_undone", sa.Boolean, nullable=False),
    )
    op.create_table(
        "decisions",
        sa.Column("id", sa.String(200), primary_key=True),
        sa.Column("policy_id", sa.Integer, nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("is_logits", sa.Boolean, nullable=False),
        sa.Column("outputs", sa.LargeBinary, nullable=False),
        sa.Column("probabilities", sa.LargeBinary, nullable=False),
        sa.Column("action", sa.SmallInteger, nullable=False),
        sa.Column("class_", sa.Integer, nullable=False),
        sa.Column("probability", sa.Double, nullable=False),
        sa.Column("expected_cost", sa.Double, nullable=False),
        sa.Column("reason", sa.SmallInteger, nullable=False),
        sa.Column("review_value", sa.Double, nullable=False),
        sa.Column("propensity", sa.Double, nullable=False),
        sa.Column("is_audit", sa.Boolean, nullable=False),
        sa.Column("row_cost", sa.Double),
        sa.Column("link", sa.Text),
        sa.Column("features", sa.LargeBinary),
        sa.Column("audit_probability", sa.Double, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
    )
    op.create_index("ix_decisions_created", "decisions", ["created"])
    op.create_table(
        "idempotency_keys",
        sa.Column("key", sa.String(200), primary_key=True),
        sa.Column("digest", sa.LargeBinary(16), nullable=False),
        sa.Column("created", sa.Double, nullable=False),
    )
    op.create_table(
        "labels",
        sa.Column("decision_id", sa.String(200), primary_key=True),
        sa.Column("label", sa.Integer, nullable=False),
        sa.Column("reviewer", sa.String(200)),
        sa.Column("created", sa.Double, nullable=False),
    )
    op.create_table(
        "corrections",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("decision_id", sa.String(200), nullable=False),
        sa.Column("label", sa.Integer, nullable=False),
        sa.Column("reviewer", sa.String(200)),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("corrected", sa.Double, nullable=False),
        sa.Column("corrected_by", sa.String(200), nullable=False),
    )
    op.create_index("ix_corrections_decision_id", "corrections", ["decision_id"])
    op.create_table(
        "reviews",
        sa.Column("decision_id", sa.String(200), primary_key=True),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("priority", sa.Double, nullable=False),
        sa.Column("is_audit", sa.Boolean, nullable=False),
        sa.Column("is_open", sa.Boolean, nullable=False),
        sa.Column("reviewer", sa.String(200)),
        sa.Column("lease_until", sa.Double, nullable=False),
    )
    order = [sa.text("is_open"), sa.text("is_audit DESC"), sa.text("priority DESC")]
    op.create_index("reviews_queue", "reviews", order)
    op.create_table(
        "review_events",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("decision_id", sa.String(200), nullable=False),
        sa.Column("reviewer", sa.String(200), nullable=False),
        sa.Column("kind", sa.String(10), nullable=False),
        sa.Column("label", sa.Integer),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("is_undone", sa.Boolean, nullable=False),
    )
    op.create_index("review_events_of", "review_events", ["decision_id", "reviewer"])
    op.create_table(
        "tokens",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("name", sa.String(200), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False, unique=True),
        sa.Column("scopes", sa.String(100), nullable=False),
        sa.Column("created", sa.Double, nullable=False),
        sa.Column("expires", sa.Double),
        sa.Column("revoked", sa.Double),
    )
    op.create_table(
        "secrets",
        sa.Column("name", sa.String(200), primary_key=True),
        sa.Column("value", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "ended_sessions",
        sa.Column("id", sa.String(64), primary_key=True),
        sa.Column("until", sa.Double, nullable=False),
    )
