"""Rows of shards as one batch in memory: all of them, or a seeded sample."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dubito.arrays import IntArray
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.data.truth import Labels, Targets
from dubito.outputs import BaseOutputs, Members, unchecked

__all__ = ["joined", "sample_rows"]

OF_ALL_ROWS = ("classes", "levels")  # fields of outputs that have no entry a row


def sample_rows(shards: Shards, n_rows: int, seed: int = 0, *, is_labeled: bool = False) -> Batch:
    """Return all rows as one batch, or a seeded sample in order where there are over `n_rows`.

    `is_labeled` is for rows with truth and weight alone: the others are neither drawn nor counted.
    The sample is the same wherever the rows are.
    """

    def n_in(batch: Batch) -> int:
        return int(np.count_nonzero(batch.labeled_weight)) if is_labeled else len(batch)

    def taken(batch: Batch, wanted: IntArray) -> Batch:
        if wanted.size == len(batch):
            return batch
        return batch.take(np.flatnonzero(batch.labeled_weight)[wanted] if is_labeled else wanted)

    def part(number: int, batch: Batch) -> Batch:
        low, high = np.searchsorted(chosen, ends[number : number + 2])
        return taken(batch, chosen[low:high] - ends[number])

    if isinstance(shards, ArrayShards):
        return taken(shards.batch, choice(n_in(shards.batch), n_rows, seed))
    ends = np.cumsum([0, *shards.sum(lambda batch: [n_in(batch)])]).tolist()
    chosen = choice(ends[-1], n_rows, seed)
    return joined(list(shards.map(part)))


def choice(total: int, n_rows: int, seed: int) -> IntArray:
    """Return the numbers of the rows that are taken, in order."""
    if total <= n_rows:
        return np.arange(total)
    return np.sort(np.random.default_rng(seed).choice(total, n_rows, replace=False))


def joined(batches: Sequence[Batch]) -> Batch:
    """Return the rows of batches that are alike as one."""

    def column(name: str) -> Any:
        return concatenated([getattr(batch, name) for batch in batches])

    return Batch(
        outputs=joined_outputs([batch.outputs for batch in batches]),
        truth=joined_truth([batch.truth for batch in batches]),
        weight=column("weight"),
        features=column("features"),
        ids=column("ids"),
        groups=column("groups"),
        amounts=column("amounts"),
    )


def joined_outputs(parts: Sequence[BaseOutputs]) -> BaseOutputs:
    """Return outputs of one kind as one."""
    first = parts[0]
    axis = 1 if isinstance(first, Members) else 0
    names: tuple[str, ...] = first.__slots__
    columns = {name: [getattr(part, name) for part in parts] for name in names}
    fields = {
        name: column[0] if name in OF_ALL_ROWS else concatenated(column, axis)
        for name, column in columns.items()
    }
    return unchecked(type(first), fields)


def joined_truth(parts: Sequence[Labels | Targets | None]) -> Labels | Targets | None:
    """Return labels or targets as one."""
    if isinstance(parts[0], Targets):
        return Targets(concatenated([part.values for part in parts if isinstance(part, Targets)]))
    labels = [part for part in parts if isinstance(part, Labels)]
    if not labels:
        return None
    return Labels(
        concatenated([part.codes for part in labels]),
        concatenated([part.probabilities for part in labels]),
    )


def concatenated(parts: Sequence[Any], axis: int = 0) -> Any:
    """Return arrays as one, None if there are none."""
    return None if parts[0] is None else np.concatenate(parts, axis=axis)
