"""Labels that must be plain: one known class a row, or none."""

from __future__ import annotations

from typing import Any

from dubito.arrays import IntArray
from dubito.data.batch import Batch
from dubito.data.truth import Labels
from dubito.errors import BadValueError
from dubito.measure.labeled import warn_of_missing
from dubito.outputs import Logits, Probabilities

__all__ = ["plain_codes"]


def plain_codes(
    y: Any, outputs: Logits | Probabilities, argument: str, caller: str, stacklevel: int
) -> IntArray:
    """Return the column number of each label, -1 where it is missing, and warn of those."""
    batch = Batch.of(y, outputs, caller=caller, argument=argument)
    if not isinstance(batch.truth, Labels) or batch.truth.probabilities is not None:
        got = "None" if batch.truth is None else "label probabilities"
        fix = "the most probable label of each row"
        raise BadValueError(argument, caller, "plain labels, one a row", got, fix)
    warn_of_missing(batch.n_missing, len(batch), caller, stacklevel + 2)
    return batch.truth.codes
