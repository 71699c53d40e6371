"""Decisions of files: streamed, written in order, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from dubito.data.batch import Batch
from dubito.data.shards import Shards
from dubito.data.sink import EncodedLabels, Sink
from dubito.decide.decisions import REASONS
from dubito.decide.policy import Policy

__all__ = ["decision_columns", "write_decisions"]


def write_decisions(
    policy: Policy,
    shards: Shards,
    sink: Sink,
    *,
    source: str | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> int:
    """Write what a policy decides for each row of shards, in order; return how many there are.

    Rows are named by their ids, or by their numbers in the file, which `source` may name.
    """
    return shards.write(
        lambda batch: decision_columns(policy, batch, source), sink, on_progress=on_progress
    )


def decision_columns(policy: Policy, batch: Batch, source: str | None = None) -> dict[str, Any]:
    """Return what a policy decides for each row of a batch, as columns for a sink."""
    found = policy.decide(batch.outputs, batch.features, batch.amounts)
    numbers = batch.first_row + np.arange(len(batch))
    named = {} if source is None else {"file": source}
    return {
        **named,
        "id": numbers if batch.ids is None else batch.ids,
        "action": EncodedLabels(found.action, found.actions),
        "class": EncodedLabels(found.class_, tuple(str(name) for name in found.classes)),
        "probability": found.probability,
        "expected_cost": found.expected_cost,
        "reason": EncodedLabels(found.reason, REASONS),
        "worth": found.worth,
    }
