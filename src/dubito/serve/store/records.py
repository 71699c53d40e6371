"""What goes into the store, and what comes out of it."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.decide import Decisions, Policy
from dubito.serve.store.documents import policy_of


@final
@dataclass(frozen=True, slots=True, eq=False)
class NewDecisions:
    """Decisions of one request, column by column, as the store takes them.

    `digests` are of what each row was decided from: an id that comes again must have the same.
    """

    columns: dict[str, list[Any]]
    is_rejected: BoolArray
    key: str | None = None
    key_digest: bytes = b""

    @classmethod
    def of(
        cls,
        policy_id: int,
        ids: Sequence[str],
        decisions: Decisions,
        probabilities: FloatArray,
        outputs: FloatArray,
        *,
        digests: Sequence[bytes],
        is_logits: bool = True,
        is_audit: BoolArray | None = None,
        audit_share: float = 0.0,
        row_costs: FloatArray | None = None,
        links: Sequence[str | None] | None = None,
        features: FloatArray | None = None,
        key: str | None = None,
        key_digest: bytes = b"",
        now: float | None = None,
    ) -> Self:
        """Return what is to be kept of decisions; `is_audit` says which rows were drawn."""
        n = len(decisions)
        drawn = np.zeros(n, dtype=bool) if is_audit is None else is_audit
        rejected = decisions.is_rejected
        created = time.time() if now is None else now
        return cls(
            columns={
                "id": list(ids),
                "policy_id": [policy_id] * n,
                "created": [created] * n,
                "digest": list(digests),
                "is_logits": [is_logits] * n,
                "outputs": _bytes_of_rows(outputs),
                "probabilities": _bytes_of_rows(probabilities),
                "action": decisions.action.tolist(),
                "class_": decisions.class_.tolist(),
                "probability": decisions.probability.tolist(),
                "expected_cost": decisions.expected_cost.tolist(),
                "reason": decisions.reason.tolist(),
                "review_value": decisions.review_value.tolist(),
                "propensity": np.where(rejected, 1.0, audit_share).tolist(),
                "is_audit": drawn.tolist(),
                "amount": [None] * n if row_costs is None else row_costs.tolist(),
                "link": [None] * n if links is None else list(links),
                "features": [None] * n if features is None else _bytes_of_rows(features),
                "audit_share": [audit_share] * n,
                "place": list(range(n)),
            },
            is_rejected=rejected,
            key=key,
            key_digest=key_digest,
        )

    def part(self, rows: slice, key: str | None, key_digest: bytes) -> NewDecisions:
        """Return some of the rows as those of a request of their own."""
        columns = {name: values[rows] for name, values in self.columns.items()}
        return NewDecisions(columns, self.is_rejected[rows], key, key_digest)

    def __len__(self) -> int:
        return len(self.columns["id"])


@final
@dataclass(frozen=True, slots=True, eq=False)
class ReviewItem:
    """A row that a person is to look at, held for them until `lease_until`.

    `n_unsure` is how many readers were unsure of it before.
    """

    id: str
    reader: str
    lease_until: float
    policy_id: int
    created: float
    action: int
    class_: int
    probability: float
    probabilities: NDArray[np.float32]
    reason: int
    review_value: float
    is_audit: bool
    amount: float | None
    link: str | None
    n_unsure: int


@final
@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """Decisions, column by column, oldest first; `label` is -1 where truth is not known yet.

    `propensity` is the chance that a row had to get into review: 1 if it was rejected, else
    `audit_share`, the chance to be drawn at random, which `is_audit` was. `is_unsettled` says
    whether readers passed it on and nobody knows its label, `labeled` when that came. `amount` and
    `labeled` are NaN where there is none.
    """

    id: NDArray[np.str_]
    policy_id: IntArray
    created: FloatArray
    is_logits: BoolArray
    outputs: NDArray[np.float32]
    probabilities: NDArray[np.float32]
    action: IntArray
    class_: IntArray
    propensity: FloatArray
    audit_share: FloatArray
    is_audit: BoolArray
    amount: FloatArray
    label: IntArray
    labeled: FloatArray
    is_unsettled: BoolArray

    def __len__(self) -> int:
        return self.action.size


@final
@dataclass(frozen=True, slots=True, eq=False)
class History:
    """What alarms look at, of all rows that one policy decided, as it came.

    `doubt` is that of each row. `confidence` and `is_right` are of rows that chance drew, by the
    first label that each got, in the order in which a row and its label were both there: a label
    that is corrected or taken back later does not change what was seen.
    """

    doubt: FloatArray
    confidence: FloatArray
    is_right: BoolArray


@final
@dataclass(frozen=True)
class StoredPolicy:
    """A policy as it was uploaded or refitted, which learned from rows until `learned_until`.

    `was_active` says whether it is in force or ever was.
    """

    id: int
    created: float
    document: str
    is_active: bool
    was_active: bool = False
    learned_until: float | None = None

    @cached_property
    def policy(self) -> Policy:
        """The policy itself, checked again."""
        return policy_of(self.document)


@final
@dataclass(frozen=True, slots=True)
class Policies:
    """All policies of a store, oldest first; `before` is what a rollback would put in force."""

    all: tuple[StoredPolicy, ...]
    before: int | None = None

    @property
    def active(self) -> StoredPolicy | None:
        """The one in force."""
        return next((one for one in self.all if one.is_active), None)


def _bytes_of_rows(array: FloatArray) -> list[bytes]:
    r"""Return each row as the bytes of float32, little end first.

    >>> _bytes_of_rows(np.array([[1.0, 0.0]]))
    [b'\x00\x00\x80?\x00\x00\x00\x00']
    """
    whole = np.ascontiguousarray(array, "<f4")
    content, width = whole.tobytes(), whole.shape[1] * 4
    return [content[row * width : (row + 1) * width] for row in range(len(whole))]
