"""The database of the service: decisions, labels, reviews, policies and tokens.

SQLite for a single process, PostgreSQL for any number. `Store` is the only interface.
"""

from dubito.serve.store.decisions import AlarmHistory, NewDecisions, StoredRows
from dubito.serve.store.policies import StoredPolicy
from dubito.serve.store.review import ReviewItem
from dubito.serve.store.store import Store
from dubito.serve.store.tokens import Token

__all__ = [
    "AlarmHistory",
    "NewDecisions",
    "ReviewItem",
    "Store",
    "StoredPolicy",
    "StoredRows",
    "Token",
]
