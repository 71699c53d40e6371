"""The initial schema."""

from functools import partial

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
column, required = sa.Column, partial(sa.Column, nullable=False)


def upgrade() -> None:
    """Create all tables."""
    op.create_table(
        "policies",
        column("id", sa.Integer, primary_key=True), required("digest", sa.String(64), unique=True),
        required("document", sa.Text), required("created", sa.Double),
        column("trained_until", sa.Double),
    )  # fmt: skip
    op.create_table(
        "activations",
        column("id", sa.Integer, primary_key=True), required("policy_id", sa.Integer),
        required("created", sa.Double), required("is_undone", sa.Boolean),
    )  # fmt: skip
    op.create_table(
        "decisions",
        column("id", sa.String(200), primary_key=True), required("policy_id", sa.Integer),
        required("created", sa.Double), required("digest", sa.LargeBinary(16)),
        required("is_logits", sa.Boolean), required("outputs", sa.LargeBinary),
        required("probabilities", sa.LargeBinary), required("action", sa.SmallInteger),
        required("class_", sa.Integer), required("probability", sa.Double),
        required("expected_cost", sa.Double), required("reason", sa.SmallInteger),
        required("review_value", sa.Double), required("propensity", sa.Double),
        required("is_audit", sa.Boolean), column("row_cost", sa.Double), column("link", sa.Text),
        column("features", sa.LargeBinary), required("audit_probability", sa.Double),
        required("position", sa.Integer),
    )  # fmt: skip
    op.create_index("ix_decisions_created", "decisions", ["created"])
    op.create_table(
        "idempotency_keys",
        column("key", sa.String(200), primary_key=True), required("digest", sa.LargeBinary(16)),
        required("created", sa.Double),
    )  # fmt: skip
    op.create_table(
        "labels",
        column("decision_id", sa.String(200), primary_key=True), required("label", sa.Integer),
        column("reviewer", sa.String(200)), required("created", sa.Double),
    )  # fmt: skip
    op.create_table(
        "corrections",
        column("id", sa.Integer, primary_key=True), required("decision_id", sa.String(200)),
        required("label", sa.Integer), column("reviewer", sa.String(200)),
        required("created", sa.Double), required("corrected", sa.Double),
        required("corrected_by", sa.String(200)),
    )  # fmt: skip
    op.create_index("ix_corrections_decision_id", "corrections", ["decision_id"])
    op.create_table(
        "reviews",
        column("decision_id", sa.String(200), primary_key=True), required("created", sa.Double),
        required("priority", sa.Double), required("is_audit", sa.Boolean),
        required("is_open", sa.Boolean), column("reviewer", sa.String(200)),
        required("lease_until", sa.Double),
    )  # fmt: skip
    order = [sa.text("is_open"), sa.text("is_audit DESC"), sa.text("priority DESC")]
    op.create_index("reviews_queue", "reviews", order)
    op.create_table(
        "review_events",
        column("id", sa.Integer, primary_key=True), required("decision_id", sa.String(200)),
        required("reviewer", sa.String(200)), required("kind", sa.String(10)),
        column("label", sa.Integer), required("created", sa.Double),
        required("is_undone", sa.Boolean),
    )  # fmt: skip
    op.create_index("review_events_of", "review_events", ["decision_id", "reviewer"])
    op.create_table(
        "tokens",
        column("id", sa.Integer, primary_key=True), required("name", sa.String(200)),
        required("hash", sa.String(64), unique=True), required("scopes", sa.String(100)),
        required("created", sa.Double), column("expires", sa.Double), column("revoked", sa.Double),
    )  # fmt: skip
    op.create_table(
        "secrets",
        column("name", sa.String(200), primary_key=True), required("value", sa.LargeBinary),
    )  # fmt: skip
    op.create_table(
        "ended_sessions",
        column("id", sa.String(64), primary_key=True), required("until", sa.Double),
    )  # fmt: skip
