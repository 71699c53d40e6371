"""Batches that have what a metric needs."""

from __future__ import annotations

import warnings
from typing import Any

from dubito.data.batch import Batch
from dubito.errors import MissingLabelsWarning

__all__ = ["labeled_batch", "warn_of_missing"]


def labeled_batch(y_true: Any, outputs: Any, sample_weight: Any, caller: str) -> Batch:
    """Return a batch that has labels, and warn of those that are missing."""
    batch = Batch.of(y_true, outputs, sample_weight=sample_weight, caller=caller)
    batch.require_truth(caller)
    warn_of_missing(batch.n_missing, len(batch), caller, stacklevel=5)
    return batch


def warn_of_missing(n_missing: int, n_rows: int, caller: str, stacklevel: int) -> None:
    """Say how many rows have no truth and are left out."""
    if n_missing:
        text = f"{caller}: {n_missing:,} of {n_rows:,} rows have no label and were left out."
        warnings.warn(text, MissingLabelsWarning, stacklevel)
