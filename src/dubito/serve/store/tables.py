"""The tables: what was decided, what was true, who looked at it, and who may ask.

Times are seconds since 1970. Classes and actions are numbers in the policy's order; all policies
of one store have the same classes, so that a label means the same under each of them.
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

LONGEST_ID = 200

metadata = MetaData()

policies = Table(
    "policies",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("digest", String(64), nullable=False, unique=True),
    Column("document", Text, nullable=False),
    Column("created", Double, nullable=False),
    Column("learned_until", Double),  # rows that a refit learned from were decided until then
)

# The policy in force is that of the last activation which is not undone.
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
    Column("id", String(LONGEST_ID), primary_key=True),
    Column("policy_id", Integer, nullable=False),
    Column("created", Double, nullable=False, index=True),
    Column("digest", LargeBinary(16), nullable=False),
    Column("is_logits", Boolean, nullable=False),
    Column("outputs", LargeBinary, nullable=False),
    Column("probabilities", LargeBinary, nullable=False),
    Column("action", SmallInteger, nullable=False),
    Column("class_", Integer, nullable=False),
    Column("probability", Double, nullable=False),
    Column("expected_cost", Double, nullable=False),
    Column("reason", SmallInteger, nullable=False),
    Column("review_value", Double, nullable=False),
    Column("propensity", Double, nullable=False),
    Column("is_audit", Boolean, nullable=False),
    Column("amount", Double),
    Column("link", Text),
    Column("features", LargeBinary),
    Column("audit_share", Double, nullable=False, server_default="0"),
    Column("place", Integer, nullable=False, server_default="0"),  # among rows that came with it
)

# A request that named an idempotency key, and what it said.
requests = Table(
    "requests",
    metadata,
    Column("key", String(LONGEST_ID), primary_key=True),
    Column("digest", LargeBinary(16), nullable=False),
    Column("created", Double, nullable=False),
)

# No foreign key: truth may arrive before the decision that it is about.
labels = Table(
    "labels",
    metadata,
    Column("decision_id", String(LONGEST_ID), primary_key=True),
    Column("label", Integer, nullable=False),
    Column("reader", String(LONGEST_ID)),  # who settled it in review; none for what was sent
    Column("created", Double, nullable=False),
)

# What a label was before it was corrected.
corrections = Table(
    "corrections",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("decision_id", String(LONGEST_ID), nullable=False, index=True),
    Column("label", Integer, nullable=False),
    Column("reader", String(LONGEST_ID)),
    Column("created", Double, nullable=False),
    Column("corrected", Double, nullable=False),
    Column("corrected_by", String(LONGEST_ID), nullable=False),
)

# `review_value` is the order of the queue: by chance among rows that chance drew.
reviews = Table(
    "reviews",
    metadata,
    Column("decision_id", String(LONGEST_ID), primary_key=True),
    Column("created", Double, nullable=False),
    Column("review_value", Double, nullable=False),
    Column("is_audit", Boolean, nullable=False),
    Column("is_open", Boolean, nullable=False),
    Column("reader", String(LONGEST_ID)),  # who holds it until the lease ends
    Column("lease_until", Double, nullable=False),
)
Index("reviews_queue", reviews.c.is_open, reviews.c.is_audit.desc(), reviews.c.review_value.desc())

review_events = Table(
    "review_events",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("decision_id", String(LONGEST_ID), nullable=False),
    Column("reader", String(LONGEST_ID), nullable=False),
    Column("kind", String(10), nullable=False),  # settle, unsure or skip
    Column("label", Integer),
    Column("created", Double, nullable=False),
    Column("is_undone", Boolean, nullable=False),
)
Index("review_events_of", review_events.c.decision_id, review_events.c.reader)

tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(LONGEST_ID), nullable=False),
    Column("hash", String(64), nullable=False, unique=True),
    Column("scopes", String(100), nullable=False),
    Column("created", Double, nullable=False),
    Column("expires", Double),
    Column("revoked", Double),
)

# What only the processes of the service know.
secrets = Table(
    "secrets",
    metadata,
    Column("name", String(LONGEST_ID), primary_key=True),
    Column("value", LargeBinary, nullable=False),
)

# Sessions that someone signed out of, until they would have ended by themselves.
ended_sessions = Table(
    "ended_sessions",
    metadata,
    Column("id", String(64), primary_key=True),
    Column("until", Double, nullable=False),
)
