"""The database schema.

Times are seconds since 1970. Classes and actions are stored as their positions in the policy. All
policies of one database share their classes or label names, so a label means the same under each of
them. For a policy of several labels per row, `answers` has one character per label, "y", "n", or
"?" for unknown, and the positions of classes are of no meaning. For a regression policy `answers`
is the true value, `outputs` holds what was sent, `probabilities` the decided value and its interval
(see `value_rows`), and `probability` a confidence that falls with the width of the interval.
"""

from typing import Any

import sqlalchemy as sa

MAX_ID_LENGTH = 200

metadata = sa.MetaData()


def _table(name: str, *columns: sa.Column[Any]) -> sa.Table:
    """Declare a table of the schema."""
    return sa.Table(name, metadata, *columns)


policies = _table(
    "policies",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("digest", sa.String(64), nullable=False, unique=True),
    sa.Column("document", sa.Text, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("trained_until", sa.Double),  # of a refit: the newest row it was fitted to
)

# The active policy is that of the last activation that is not undone.
activations = _table(
    "activations",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("policy_id", sa.Integer, nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("is_undone", sa.Boolean, nullable=False, default=False),
)

decisions = _table(
    "decisions",
    sa.Column("id", sa.String(MAX_ID_LENGTH), primary_key=True),
    sa.Column("policy_id", sa.Integer, nullable=False),
    sa.Column("created", sa.Double, nullable=False, index=True),
    sa.Column("digest", sa.LargeBinary(16), nullable=False),  # of everything sent about the row
    sa.Column("is_logits", sa.Boolean, nullable=False),
    sa.Column("outputs", sa.LargeBinary, nullable=False),
    sa.Column("probabilities", sa.LargeBinary, nullable=False),  # calibrated
    sa.Column("action", sa.SmallInteger, nullable=False),
    sa.Column("predicted_class", sa.Integer, nullable=False),
    sa.Column("probability", sa.Double, nullable=False),
    sa.Column("expected_cost", sa.Double, nullable=False),
    sa.Column("reason", sa.SmallInteger, nullable=False),
    sa.Column("review_value", sa.Double, nullable=False),
    sa.Column("propensity", sa.Double, nullable=False),  # the probability of being sent to review
    sa.Column("is_audit", sa.Boolean, nullable=False),
    sa.Column("row_costs", sa.Text),  # JSON: the columns that costs depend on, by name
    sa.Column("link", sa.Text),
    sa.Column("features", sa.LargeBinary),
    sa.Column("audit_probability", sa.Double, nullable=False),
    sa.Column("position", sa.Integer, nullable=False),  # within its request
    sa.Column("label_actions", sa.LargeBinary),  # of several labels per row: one byte per label
)

idempotency_keys = _table(
    "idempotency_keys",
    sa.Column("key", sa.String(MAX_ID_LENGTH), primary_key=True),
    sa.Column("digest", sa.LargeBinary(16), nullable=False),  # of the body
    sa.Column("created", sa.Double, nullable=False),
)

# A label may arrive before its decision.
labels = _table(
    "labels",
    sa.Column("decision_id", sa.String(MAX_ID_LENGTH), primary_key=True),
    sa.Column("label", sa.Integer, nullable=False),
    sa.Column("answers", sa.Text),
    sa.Column("reviewer", sa.String(MAX_ID_LENGTH)),  # null for labels sent to /v1/labels
    sa.Column("created", sa.Double, nullable=False),
)

# Previous values of labels that were corrected.
corrections = _table(
    "corrections",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("decision_id", sa.String(MAX_ID_LENGTH), nullable=False, index=True),
    sa.Column("label", sa.Integer, nullable=False),
    sa.Column("answers", sa.Text),
    sa.Column("reviewer", sa.String(MAX_ID_LENGTH)),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("corrected", sa.Double, nullable=False),
    sa.Column("corrected_by", sa.String(MAX_ID_LENGTH), nullable=False),
)

# `priority` orders the queue: the review value of rejected rows, random for audited rows.
reviews = _table(
    "reviews",
    sa.Column("decision_id", sa.String(MAX_ID_LENGTH), primary_key=True),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("priority", sa.Double, nullable=False),
    sa.Column("is_audit", sa.Boolean, nullable=False),
    sa.Column("is_open", sa.Boolean, nullable=False),
    sa.Column("reviewer", sa.String(MAX_ID_LENGTH)),  # who holds it until the lease expires
    sa.Column("lease_until", sa.Double, nullable=False),
)
sa.Index("reviews_queue", reviews.c.is_open, reviews.c.is_audit.desc(), reviews.c.priority.desc())

review_events = _table(
    "review_events",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("decision_id", sa.String(MAX_ID_LENGTH), nullable=False),
    sa.Column("reviewer", sa.String(MAX_ID_LENGTH), nullable=False),
    sa.Column("kind", sa.String(10), nullable=False),  # label, escalate or skip
    sa.Column("label", sa.Integer),
    sa.Column("answers", sa.Text),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("is_undone", sa.Boolean, nullable=False),
)
sa.Index("review_events_of", review_events.c.decision_id, review_events.c.reviewer)

# Reviewers of `dubito serve --team`: the last shadow price, and when each claimed a row.
team_members = _table(
    "team_members",
    sa.Column("name", sa.String(MAX_ID_LENGTH), primary_key=True),
    sa.Column("shadow_price", sa.Double, nullable=False),
    sa.Column("seen", sa.Double, nullable=False),
)

# What `dubito serve state.json` issued; outcomes are in `labels`. Bounds are null where infinite.
forecasts = _table(
    "forecasts",
    sa.Column("id", sa.String(MAX_ID_LENGTH), primary_key=True),
    sa.Column("created", sa.Double, nullable=False, index=True),
    sa.Column("digest", sa.LargeBinary(16), nullable=False),  # of all that was sent; or empty
    sa.Column("series", sa.String(MAX_ID_LENGTH), nullable=False),
    sa.Column("horizon", sa.Integer, nullable=False),
    sa.Column("time", sa.String(MAX_ID_LENGTH), nullable=False),
    sa.Column("moment", sa.Double),  # the time as a number, of dates that of days
    sa.Column("raw_low", sa.Double),  # the uncorrected interval
    sa.Column("raw_high", sa.Double),
    sa.Column("low", sa.Double),
    sa.Column("high", sa.Double),
    sa.Column("members", sa.LargeBinary),  # of a set of classes: one byte per class
)

# All that changed the online state, in order: a state, then forecasts and outcomes, as JSON.
forecast_events = _table(
    "forecast_events",
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("tag", sa.String(32), nullable=False),  # random: two events are never taken for one
    sa.Column("content", sa.Text, nullable=False),
)

# What was sent about a row of a cascade, request by request, and what was answered. The last
# decision, once no further model is to be called, is in `decisions` too: its classes are wrong and
# correct, and `row_costs` has what the calls of the models cost. Of a policy that asks models,
# stages are their answers and what these led to, from number 1: `decisions` has the first one.
cascade_stages = _table(
    "cascade_stages",
    sa.Column("decision_id", sa.String(MAX_ID_LENGTH), primary_key=True),
    sa.Column("number", sa.Integer, primary_key=True, autoincrement=False),
    sa.Column("policy_id", sa.Integer, nullable=False),
    sa.Column("created", sa.Double, nullable=False, index=True),
    sa.Column("position", sa.Integer, nullable=False),  # within its request
    sa.Column("next_model", sa.Text),  # null of the last decision
    sa.Column("sent", sa.Text, nullable=False),  # JSON
    sa.Column("response", sa.Text, nullable=False),  # JSON
)

tokens = _table(
    "tokens",
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("name", sa.String(MAX_ID_LENGTH), nullable=False),
    sa.Column("hash", sa.String(64), nullable=False, unique=True),
    sa.Column("scopes", sa.String(100), nullable=False),
    sa.Column("created", sa.Double, nullable=False),
    sa.Column("expires", sa.Double),
    sa.Column("revoked", sa.Double),
)

# Keys that only the processes of the service know.
secrets = _table(
    "secrets",
    sa.Column("name", sa.String(MAX_ID_LENGTH), primary_key=True),
    sa.Column("value", sa.LargeBinary, nullable=False),
)

# Sessions that were signed out, kept until they would have expired.
ended_sessions = _table(
    "ended_sessions",
    sa.Column("id", sa.String(64), primary_key=True),
    sa.Column("until", sa.Double, nullable=False),
)
