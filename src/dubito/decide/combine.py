"""Posteriors of several models combined as conditionally independent evidence, and a test of that assumption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
from scipy.stats import norm, rankdata

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    as_array,
    as_floats,
    as_list,
    as_share,
    freeze,
    require_rows,
)
from dubito.calibrate.calibrator import as_class_outputs, log_odds
from dubito.decide.priors import as_prior, log_posteriors, log_prior, plain_codes, probabilities_of
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.outputs import BaseOutputs, Logits, Probabilities, unchecked


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
    is_there = None if present is None else _as_present(present, caller)
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
        _require_columns(is_there, len(listed), caller)
        listed = [_filled(one, is_there[:, m], caller) for m, one in enumerate(listed)]
    models = [as_class_outputs(one, caller) for one in listed]
    _require_alike(models, caller)
    if is_there is not None:
        require_rows(is_there, models[0].n_rows, "present", caller)
    names = next((model.classes for model in models if model.classes is not None), None)
    return [unchecked(type(model), {"array": model.array, "classes": names}) for model in models]


def _require_alike(models: Sequence[Logits | Probabilities], caller: str) -> None:
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


def _filled(outputs: Any, is_there: BoolArray, caller: str) -> Any:
    """Return a plain array with something harmless in the rows that are not there."""
    if isinstance(outputs, BaseOutputs):
        return outputs
    array = as_floats(outputs, "outputs", caller)
    if len(array) != len(is_there) or array.ndim > 2:
        return array
    n_columns = max(1, array[0].size) if array.size else 1
    return np.where(is_there[:, None] if array.ndim == 2 else is_there, array, 1 / n_columns)


def _as_present(value: Any, caller: str) -> BoolArray:
    """Return which models each row has, rows x models."""
    array = as_array(value, "present", caller)
    if array.dtype.kind != "b" or array.ndim != 2:
        rule, fix = "booleans, rows x models", "`~np.isnan(...)` of what each model saw"
        got = f"shape {array.shape}, dtype {array.dtype}"
        raise BadValueError("present", caller, rule, got, fix)
    return array


def _require_columns(is_there: BoolArray, n_models: int, caller: str) -> None:
    """Raise unless there is a column for each model."""
    if is_there.shape[1] != n_models:
        rule, fix = f"rows x {n_models} models", "one column a model"
        raise BadValueError("present", caller, rule, f"{is_there.shape[1]} columns", fix)


@final
@dataclass(frozen=True, slots=True, eq=False)
class ConditionalIndependenceTest:
    """Rank correlations of each pair of models within classes, and how likely chance makes them.

    `correlation` and `p_value` are models x models; those of a model with itself are 1.
    """

    correlation: FloatArray
    p_value: FloatArray
    significance: float
    n_rows: int

    @property
    def is_contradicted(self) -> bool:
        """Whether some pair is correlated beyond chance, by as many tests as there are pairs."""
        n_models = len(self.p_value)
        return bool(self.p_value.min() * (n_models * (n_models - 1) // 2) < self.significance)

    def summary(self) -> str:
        """Say in words what the data say of independence, by the most telling pair."""
        upper = np.triu_indices(len(self.p_value), 1)
        strongest = np.lexsort((-np.abs(self.correlation[upper]), self.p_value[upper]))[0]
        a, b = (int(index[strongest]) for index in upper)
        p = self.p_value[a, b]
        figures = (
            f"rank correlation {self.correlation[a, b]:.2f} of models {a} and {b}, "
            f"p {f'= {p:.2g}' if p >= 1e-99 else '< 1e-99'}, {self.n_rows:,} rows"
        )
        if not self.is_contradicted:
            return f"The data do not contradict independence within classes ({figures})."
        what = (
            "counts what they share more than once and is too sure"
            if self.correlation[a, b] > 0
            else "takes them for less than they are worth together"
        )
        return (
            f"The data contradict independence within classes ({figures}): the product {what}. "
            "Try LogLinearPool."
        )


def conditional_independence_test(
    outputs: Any, y: Any, *, significance: float = 0.01
) -> ConditionalIndependenceTest:
    """Return whether labeled rows contradict what `combine_posteriors` assumes.

    Within a class, independent models give the true class log odds whose ranks do not correlate,
    calibrated or not. Dependence that leaves these alone is not seen. Spearman, "The proof and
    measurement of association between two things", 1904, pooled over classes.

    >>> p = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4], [0.55, 0.45], [0.5, 0.5]] * 4
    >>> conditional_independence_test([p, p], [0] * 24).is_contradicted
    True
    """
    caller = "conditional_independence_test"
    alpha = as_share(significance, "significance", caller, is_open=True)
    models = as_models(outputs, caller)
    if len(models) < 2:
        raise BadValueError("outputs", caller, "2 models or more", "1", "[outputs_a, outputs_b]")
    codes = plain_codes(y, models[0], "y", caller, stacklevel=2)
    rows = np.flatnonzero(codes >= 0)
    odds = [log_odds(model)[rows, codes[rows]] for model in models]
    groups = [np.flatnonzero(codes[rows] == k) for k in np.unique(codes[rows])]
    correlation, p_value = np.eye(len(models)), np.ones((len(models), len(models)))
    for a, b in combinations(range(len(models)), 2):
        pair = _within_classes(odds[a], odds[b], groups)
        correlation[[a, b], [b, a]], p_value[[a, b], [b, a]] = pair
    return ConditionalIndependenceTest(freeze(correlation), freeze(p_value), alpha, int(rows.size))


def _within_classes(
    a: FloatArray, b: FloatArray, groups: Sequence[IntArray]
) -> tuple[float, float]:
    """Return the rank correlation within groups of rows, pooled, and its p-value.

    Under independence that of n rows has variance 1 / (n - 1), with ties too; a group where
    either is constant says nothing. Where none says anything the p-value is 1.
    """
    total, freedom = 0.0, 0
    for rows in groups:
        first, second = (rankdata(values[rows]) for values in (a, b))
        first, second = first - first.mean(), second - second.mean()
        scale = float(np.sqrt((first @ first) * (second @ second)))
        if scale > 0:
            total += (rows.size - 1) * float(first @ second) / scale
            freedom += rows.size - 1
    if not freedom:
        return 0.0, 1.0
    return total / freedom, float(2 * norm.sf(abs(total) / np.sqrt(freedom)))
