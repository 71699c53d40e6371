"""What is known of one period: its outputs, and what of it two periods are compared by."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray, IntArray
from dubito.data.batch import Batch
from dubito.data.truth import Labels
from dubito.decide.priors import log_posteriors, probabilities_of
from dubito.errors import BadTypeError, BadValueError
from dubito.measure.labeled import warn_of_missing
from dubito.monitor.rows import rows_in_memory
from dubito.outputs import BaseClassOutputs, Logits, Members, Probabilities, TopLabel

__all__ = ["CALLER", "Period", "both_periods"]

CALLER = "drift"


@final
@dataclass(frozen=True, eq=False)
class Period:
    """Rows of one period, members by their mean."""

    batch: Batch

    def __len__(self) -> int:
        return len(self.batch)

    @property
    def outputs(self) -> Logits | Probabilities | None:
        """All classes of all rows; None for top labels alone."""
        outputs = self.batch.outputs
        if isinstance(outputs, Members):
            return outputs.mean
        return outputs if isinstance(outputs, Logits | Probabilities) else None

    @property
    def n_classes(self) -> int:
        """How many classes there are; 0 for top labels alone."""
        outputs = self.batch.outputs
        return outputs.n_classes if isinstance(outputs, BaseClassOutputs) else 0

    @cached_property
    def labeled(self) -> Batch | None:
        """The rows whose truth is known, None if it is known of none."""
        batch = self.batch
        if batch.truth is None:
            return batch if isinstance(batch.outputs, TopLabel) else None
        known = np.flatnonzero(~batch.truth.is_missing)
        return batch.take(known) if known.size else None

    @property
    def codes(self) -> IntArray | None:
        """The column number of each label, -1 where it is missing; None without plain labels."""
        truth = self.batch.truth
        is_plain = isinstance(truth, Labels) and truth.probabilities is None
        return truth.codes if isinstance(truth, Labels) and is_plain else None

    @property
    def mean_probability(self) -> FloatArray:
        """How common the outputs themselves say that each class is."""
        assert self.outputs is not None
        shares = probabilities_of(log_posteriors(self.outputs), np.float64)
        return np.asarray(shares.mean(axis=0))


def both_periods(
    reference: Any, current: Any, y: tuple[Any, Any], features: tuple[Any, Any], seed: int
) -> tuple[Period, Period]:
    """Return what is known of both periods, outputs of one model."""
    before = period_of(reference, y[0], features[0], seed, "reference")
    after = period_of(current, y[1], features[1], seed + 1, "current")
    kinds = type(before.batch.outputs), type(after.batch.outputs)
    if kinds[0] is not kinds[1] or before.n_classes != after.n_classes:
        rule = f"{kinds[0].__name__} of {before.n_classes} classes, like `reference`"
        got = f"{kinds[1].__name__} of {after.n_classes}"
        raise BadValueError("current", CALLER, rule, got, "outputs of one model")
    if (before.batch.features is None) != (after.batch.features is None):
        alone = "reference" if after.batch.features is None else "current"
        rule, fix = "given of both periods", "features of the other too, or of neither"
        raise BadValueError("features", CALLER, rule, f"those of `{alone}` alone", fix)
    return before, after


def period_of(outputs: Any, y: Any, features: Any, seed: int, argument: str) -> Period:
    """Return what is known of one period, and warn of missing labels."""
    batch = rows_in_memory(
        y, outputs, seed, argument, CALLER, features=features, label=f"y_{argument}"
    )
    if not isinstance(batch.outputs, BaseClassOutputs | TopLabel):
        kinds = "Logits, Probabilities, Members, TopLabel or an array of probabilities"
        got = type(batch.outputs).__name__
        raise BadTypeError(argument, CALLER, kinds, got, "a classifier's outputs")
    if not len(batch):
        raise BadValueError(argument, CALLER, "1 row or more", "none", "rows of both periods")
    if (batch.weight != 1).any():
        rule, fix = "without weights: each row counts once", "columns without `weight`"
        raise BadValueError(argument, CALLER, rule, "weights", fix)
    warn_of_missing(batch.n_missing, len(batch), CALLER, stacklevel=5)
    return Period(batch)
