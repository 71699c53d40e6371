"""Class priors: how common each class was in training, and how common it is where it matters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dubito.arrays import FloatArray, as_distributions, as_floats, contiguous, require_dimensions
from dubito.calibrate.rows import as_class_outputs
from dubito.data.codes import names_of
from dubito.errors import BadValueError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.softmax import log_softmax_rows, softmax_rows
from dubito.outputs import BaseClassOutputs, Logits, Probabilities, unchecked

__all__ = ["adjust_prior", "as_prior", "log_posteriors", "log_prior", "probabilities_of"]

NOTHING = -1e300  # the log of a prior of 0, kept finite for the kernels
LEAST = -1e250  # no posterior's log is below; a sum of many is still far above nothing


def adjust_prior(outputs: Any, from_prior: Any, to_prior: Any) -> Probabilities:
    """Return posteriors as if classes were as common as `to_prior`, not as in training.

    Use it where a model trained on 5:5 meets 1:99; outputs must be calibrated for `from_prior`.
    A class of prior 0 gets 0; a probability of 0 counts as the smallest that its precision holds.
    Saerens, Latinne and Decaestecker, "Adjusting the outputs of a classifier", 2002.

    >>> adjust_prior([[0.5, 0.5]], [0.5, 0.5], [0.01, 0.99]).array.tolist()
    [[0.01, 0.99]]
    """
    caller = "adjust_prior"
    known = as_class_outputs(outputs, caller)
    before = as_prior(from_prior, known, "from_prior", caller, is_positive=True)
    shift = log_prior(as_prior(to_prior, known, "to_prior", caller)) - np.log(before)
    result = np.empty(known.array.shape, known.array.dtype)

    def fill(rows: slice) -> None:
        result[rows] = probabilities_of(log_posteriors(known.take(rows)) + shift, result.dtype)

    for _ in map_in_order(fill, row_blocks(known.n_rows, known.n_classes)):
        pass
    return unchecked(Probabilities, {"array": result, "classes": known.classes})


def as_prior(
    value: Any,
    outputs: BaseClassOutputs,
    argument: str,
    caller: str,
    *,
    is_positive: bool = False,
) -> FloatArray:
    """Return one share a class in the order of the columns, of a list or of shares by name."""
    if isinstance(value, Mapping):
        value = shares_by_name(value, outputs, argument, caller)
    shares = as_floats(value, argument, caller).astype(np.float64)
    require_dimensions(shares, (1,), argument, caller, "one share a class")
    if shares.size != outputs.n_classes:
        rule, fix = f"{outputs.n_classes} shares, one a class", "a share for every column"
        raise BadValueError(argument, caller, rule, f"{shares.size}", fix)
    prior: FloatArray = as_distributions(shares[np.newaxis], argument, caller)[0]
    if is_positive and not prior.all():
        name = names_of(outputs)[int(np.argmin(prior))]
        rule, fix = "above 0 for every class", "leaving out columns that no training row had"
        raise BadValueError(argument, caller, rule, f"0 for class {name!r}", fix)
    return prior


def shares_by_name(
    value: Mapping[Any, Any], outputs: BaseClassOutputs, argument: str, caller: str
) -> list[Any]:
    """Return shares in the order of the columns."""
    names = list(names_of(outputs))
    if set(value) != set(names):
        rule = f"a share for each of the classes {names}"
        raise BadValueError(argument, caller, rule, f"{list(value)}", "the names of the outputs")
    return [value[name] for name in names]


def log_prior(prior: FloatArray) -> FloatArray:
    """Return the log of each share, of 0 a finite number that leaves nothing."""
    return np.log(prior, out=np.full(prior.shape, NOTHING), where=prior > 0)


def log_posteriors(outputs: Logits | Probabilities) -> FloatArray:
    """Return log probabilities in float64, of 0 that of the smallest normal number."""
    result = np.empty(outputs.array.shape)
    least = float(np.finfo(outputs.array.dtype).tiny)
    log_softmax_rows(contiguous(outputs.array), 1.0, isinstance(outputs, Logits), least, result)
    return np.maximum(result, LEAST)


def probabilities_of(scores: FloatArray, precision: Any) -> FloatArray:
    """Return the probabilities that log scores stand for, 0 where a prior is 0."""
    result = np.empty(scores.shape, precision)
    softmax_rows(contiguous(scores), 0.0, result)
    result[scores < NOTHING / 2] = 0
    return result
