"""The database schema.

Times are seconds since 1970. Classes and actions are stored as their positions in the policy. All
policies of one database share their classes, so a label means the same under each of them.
"""

from sqlalchemy import (
    Boolean,
    Column,
    Double,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
)

MAX_ID_LENGTH = 200

metadata = MetaData()

policies = Table(
    "policies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("document", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("trained_until", Double),  # of a refit: the newest row it was fitted to
)

# The active policy is that of the last activation that is not undone.
activations = Table(
    "activations",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("policy_id", Integer, nullable=False),
    Column("created", Double, nullable=False),
    Column("is_undone", Boolean, nullable=False, default=False),
)

decisions = Table(
    "decisions",
    metadata,
    Column("id", String(MAX_ID_LENGTH), primary_key=True),
    Column("policy_id", Integer, nullable=False),
    Column("created", Double, nullable=False, index=True),
    Column("digest", LargeBinary(16), nullable=False),  # of everything sent about the row
    Column("is_logits", Boolean, nullable=False),
    Column("outputs", LargeBinary, nullable=False),
    Column("probabilities", LargeBinary, nullable=False),  # calibrated
    Column("action", SmallInteger, nullable=False),
    Column("class_", Integer, nullable=False),
    Column("probability", Double, nullable=False),
    Column("expected_cost", Double, nullable=False),
    Column("reason", SmallInteger, nullable=False),
    Column("review_value", Double, nullable=False),
    Column("propensity", Double, nullable=False),  # the probability of being sent to review
    Column("is_audit", Boolean, nullable=False),
    Column("row_cost", Double),
    Column("link", Text),
    Column("features", LargeBinary),
    Column("audit_probability", Double, nullable=False),
    Column("position", Integer, nullable=False),  # within its request
)

idempotency_keys = Table(
    "idempotency_keys",
    metadata,
    Column("key", String(MAX_ID_LENGTH), primary_key=True),
    Column("digest", LargeBinary(16), nullable=False),  # of the body
    Column("created", Double, nullable=False),
)

# A label may arrive before its decision.
labels = Table(
    "labels",
    metadata,
    Column("decision_id", String(MAX_ID_LENGTH), primary_key=True),
    Column("label", Integer, nullable=False),
    Column("reviewer", String(MAX_ID_LENGTH)),  # null for labels sent to /v1/labels
    Column("created", Double, nullable=False),
)

# Previous values of labels that were corrected.
corrections = Table(
    "corrections",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("decision_id", String(MAX_ID_LENGTH), nullable=False, index=True),
    Column("label", Integer, nullable=False),
    Column("reviewer", String(MAX_ID_LENGTH)),
    Column("created", Double, nullable=False),
    Column("corrected", Double, nullable=False),
    Column("corrected_by", String(MAX_ID_LENGTH), nullable=False),
)

# `priority` orders the queue: the review value of rejected rows, random for audited rows.
reviews = Table(
    "reviews",
    metadata,
    Column("decision_id", String(MAX_ID_LENGTH), primary_key=True),
    Column("created", Double, nullable=False),
    Column("priority", Double, nullable=False),
    Column("is_audit", Boolean, nullable=False),
    Column("is_open", Boolean, nullable=False),
    Column("reviewer", String(MAX_ID_LENGTH)),  # who holds it until the lease expires
    Column("lease_until", Double, nullable=False),
)
Index("reviews_queue", reviews.c.is_open, reviews.c.is_audit.desc(), reviews.c.priority.desc())

review_events = Table(
    "review_events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("decision_id", String(MAX_ID_LENGTH), nullable=False),
    Column("reviewer", String(MAX_ID_LENGTH), nullable=False),
    Column("kind", String(10), nullable=False),  # label, escalate or skip
    Column("label", Integer),
    Column("created", Double, nullable=False),
    Column("is_undone", Boolean, nullable=False),
)
Index("review_events_of", review_events.c.decision_id, review_events.c.reviewer)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(MAX_ID_LENGTH), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("scopes", String(100), nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double),
    Column("revoked", Double),
)

# Keys that only the processes of the service know.
secrets = Table(
    "secrets",
    metadata,
    Column("name", String(MAX_ID_LENGTH), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

# Sessions that were signed out, kept until they would have expired.
ended_sessions = Table(
    "ended_sessions",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("until", Double, nullable=False),
)
