"""Rows in memory, of arrays as they are and of shards as a seeded sample."""

from __future__ import annotations

from typing import Any

from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.errors import BadTypeError

SAMPLE_ROWS = 100_000  # of shards; more would only make small differences sure


def rows_in_memory(
    y: Any,
    outputs: Any,
    seed: int,
    argument: str,
    caller: str,
    label: str = "y_true",
    **known: Any,
) -> Batch:
    """Return outputs with all that is known of them; of shards at most 100,000 rows, seeded.

    `argument` is what the caller calls the outputs, `label` what it calls their truth; `known` are
    further arguments of `Batch.of`.
    """
    if not isinstance(outputs, Shards):
        return Batch.of(y, outputs, caller=caller, argument=label, **known)
    given = [name for name, value in {"labels": y, **known}.items() if value is not None]
    if given:
        fix = "columns of the shards for all that is known of their rows"
        rule = "arrays beside labels, weights, features or amounts"
        raise BadTypeError(argument, caller, rule, f"shards beside {given[0]}", fix)
    if isinstance(outputs, ArrayShards):
        return outputs.batch
    return sample_rows(outputs, SAMPLE_ROWS, seed)
