"""What was collected: rows in memory or in a file, and the last layer."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.data.columns import Columns
from dubito.data.files import scan
from dubito.data.sampling import joined
from dubito.data.shards import ArrayShards, Shards
from dubito.data.sink import Sink
from dubito.data.truth import Labels
from dubito.outputs import Logits

__all__ = ["CollectedOutputs", "in_file", "in_memory"]


@final
@dataclass(frozen=True, eq=False)
class CollectedOutputs:
    """What a model said of all rows of a loader.

    `shards` hold logits, features and labels, in memory or in a file, for anything that takes
    shards. `weights` (classes x features) and `bias` are those of the last layer, None where it is
    not known.
    """

    shards: Shards
    weights: FloatArray | None
    bias: FloatArray | None

    @cached_property
    def batch(self) -> Batch:
        """All rows in memory; of a file, read when first asked for."""
        return joined(list(self.shards.batches()))

    @property
    def logits(self) -> Logits:
        """The model's outputs."""
        assert isinstance(self.batch.outputs, Logits)
        return self.batch.outputs

    @property
    def features(self) -> FloatArray | None:
        """What the layer gave out, rows x features, or None."""
        return self.batch.features

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels, or rows x classes of label probabilities, NaN where missing; or None."""
        return labels_of(self.batch)


def in_memory(batches: Iterable[Batch]) -> Shards:
    """Return rows that are held."""
    return ArrayShards(joined(list(batches)))


def in_file(
    batches: Iterable[Batch], path: str | os.PathLike[str], is_weighted: bool = False
) -> Shards:
    """Write rows to a file, whole or not at all, and return them as they are read from it."""
    has: dict[str, str] = {}
    with Sink(path) as sink:
        for batch in batches:
            columns, has = columns_of(batch)
            if is_weighted:
                columns, has = {**columns, "weight": batch.weight}, {**has, "weight": "weight"}
            sink.write(columns)
    return scan(path, Columns(logits="logit_*", **has))


def columns_of(batch: Batch) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return a batch as columns, and what those beside the logits are found by."""
    assert isinstance(batch.outputs, Logits)
    columns, has = numbered("logit", batch.outputs.array), {}
    if batch.features is not None:
        columns, has["features"] = columns | numbered("feature", batch.features), "feature_*"
    labels = labels_of(batch)
    if labels is None:
        return columns, has
    if labels.ndim == 2:
        return columns | numbered("label", labels), {**has, "label": "label_*"}
    if labels.dtype.kind == "f":  # a gap among whole numbers
        labels = np.array([None if np.isnan(one) else int(one) for one in labels], object)
    return {**columns, "label": labels}, {**has, "label": "label"}


def labels_of(batch: Batch) -> NDArray[Any] | None:
    """Return the labels of a batch, NaN where missing, or None where it has none."""
    if not isinstance(batch.truth, Labels):
        return None
    soft, is_missing = batch.truth.probabilities, batch.truth.is_missing
    if soft is not None:
        return np.where(is_missing[:, np.newaxis], np.nan, soft)
    return (
        np.where(is_missing, np.nan, batch.truth.codes) if is_missing.any() else batch.truth.codes
    )


def numbered(name: str, matrix: FloatArray) -> dict[str, NDArray[Any]]:
    """Return the columns of a matrix by name and number."""
    return {f"{name}_{k}": column for k, column in enumerate(matrix.T)}
