"""What is kept: decisions, labels, reviews, policies and tokens, in SQLite or PostgreSQL."""

from dubito.serve.store.records import NewDecisions, Policies, ReviewItem, StoredPolicy, StoredRows
from dubito.serve.store.store import Store

__all__ = ["NewDecisions", "Policies", "ReviewItem", "Store", "StoredPolicy", "StoredRows"]
