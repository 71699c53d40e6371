"""Several models on different inputs of the same rows, as one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dubito.arrays import BoolArray, as_array, as_floats, as_list, require_rows
from dubito.calibrate.rows import as_class_outputs
from dubito.decide.priors import as_prior, log_posteriors, log_prior, probabilities_of
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.outputs import BaseOutputs, Logits, Probabilities, unchecked

__all__ = ["as_models", "combine_posteriors"]


def combine_posteriors(outputs: Any, prior: Any, *, present: Any = None) -> Probabilities:
    """Return the posterior given all inputs: the product of `outputs` over prior^(models - 1).

    For models whose inputs are independent within each class (an X-ray and a blood test) and that
    share one prior; `conditional_independence_test` tells whether data contradict that. `present` (booleans,
    rows x models) leaves models out row by row; where none is present the prior remains. A
    probability of 0 counts as the smallest that its precision holds. PRML (Bishop), section 1.5.4.

    >>> combine_posteriors([[[0.8, 0.2]], [[0.8, 0.2]]], [0.5, 0.5]).array.round(3).tolist()
    [[0.941, 0.059]]
    """
    caller = "combine_posteriors"
    is_there = None if present is None else as_present(present, caller)
    models = as_models(outputs, caller, is_there)
    first = models[0]
    shares = as_prior(prior, first, "prior", caller)
    logs, is_possible = log_prior(shares), shares > 0
    precision = np.result_type(*(model.array.dtype for model in models))
    result = np.empty(first.array.shape, precision)

    def fill(rows: slice) -> None:
        scores = np.tile(logs, (rows.stop - rows.start, 1))
        for m, model in enumerate(models):
            evidence = log_posteriors(model.take(rows)) - logs
            counts = is_possible if is_there is None else is_possible & is_there[rows, m, None]
            scores += np.where(counts, evidence, 0)
        result[rows] = probabilities_of(scores, precision)

    for _ in map_in_order(fill, row_blocks(first.n_rows, first.n_classes)):
        pass
    return unchecked(Probabilities, {"array": result, "classes": first.classes})


def as_models(
    outputs: Any, caller: str, is_there: BoolArray | None = None
) -> list[Logits | Probabilities]:
    """Return the outputs of several models over the same rows and classes.

    Names of one model are those of all. Rows of a plain array where its model is not there may
    hold anything, NaN too.
    """
    rule, fix = "a list of outputs, one a model", "[outputs_a, outputs_b]"
    if isinstance(outputs, BaseOutputs):
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    listed = as_list(outputs, "outputs", caller, rule, fix)
    if not listed:
        raise BadValueError("outputs", caller, "1 model or more", "none", fix)
    if is_there is not None:
        require_columns(is_there, len(listed), caller)
        listed = [filled(one, is_there[:, m], caller) for m, one in enumerate(listed)]
    models = [as_class_outputs(one, caller) for one in listed]
    require_alike(models, caller)
    if is_there is not None:
        require_rows(is_there, models[0].n_rows, "present", caller)
    names = next((model.classes for model in models if model.classes is not None), None)
    return [unchecked(type(model), {"array": model.array, "classes": names}) for model in models]


def require_alike(models: Sequence[Logits | Probabilities], caller: str) -> None:
    """Raise unless all models speak of as many rows and of the same classes."""
    names = next((model.classes for model in models if model.classes is not None), None)
    shape = models[0].array.shape
    for m, model in enumerate(models):
        if model.array.shape != shape or model.classes not in (None, names):
            raise BadValueError(
                f"outputs[{m}]",
                caller,
                f"like the other models, shape {shape}, classes {names}",
                f"shape {model.array.shape}, classes {model.classes}",
                "models of the same rows, columns in the same order",
            )


def filled(outputs: Any, is_there: BoolArray, caller: str) -> Any:
    """Return a plain array with something harmless in the rows that are not there."""
    if isinstance(outputs, BaseOutputs):
        return outputs
    array = as_floats(outputs, "outputs", caller)
    if len(array) != len(is_there) or array.ndim > 2:
        return array
    n_columns = max(1, array[0].size) if array.size else 1
    return np.where(is_there[:, None] if array.ndim == 2 else is_there, array, 1 / n_columns)


def as_present(value: Any, caller: str) -> BoolArray:
    """Return which models each row has, rows x models."""
    array = as_array(value, "present", caller)
    if array.dtype.kind != "b" or array.ndim != 2:
        rule, fix = "booleans, rows x models", "`~np.isnan(...)` of what each model saw"
        got = f"shape {array.shape}, dtype {array.dtype}"
        raise BadValueError("present", caller, rule, got, fix)
    return array


def require_columns(is_there: BoolArray, n_models: int, caller: str) -> None:
    """Raise unless there is a column for each model."""
    if is_there.shape[1] != n_models:
        rule, fix = f"rows x {n_models} models", "one column a model"
        raise BadValueError("present", caller, rule, f"{is_there.shape[1]} columns", fix)
