"""Combining posteriors of conditionally independent models, and a test of that assumption."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
import scipy

from dubito.arrays import (
    ArrayResult,
    BoolArray,
    FloatArray,
    IntArray,
    as_array,
    as_floats,
    as_fraction,
    as_list,
    freeze,
    require_rows,
)
from dubito.calibrate.calibrator import as_class_outputs, log_odds
from dubito.decide.priors import as_prior, log_posteriors, log_prior, plain_codes, probabilities_of
from dubito.errors import BadTypeError, BadValueError
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.outputs import BaseOutputs, Logits, Probabilities, unchecked


def combine_posteriors(outputs: Any, prior: Any, *, present: Any = None) -> Probabilities:
    """Return the posterior given the inputs of several models: their product over the prior.

    For models with the same prior whose inputs are conditionally independent given the class, such
    as an X-ray and a blood test. `conditional_independence_test` checks the assumption.

    Parameters
    ----------
    outputs : list of outputs
        Calibrated posteriors of each model for the same rows and classes. A probability of 0
        counts as the smallest positive number of its precision.
    prior : array or dict
        The class prior that the models share.
    present : array of bool, rows x models, optional
        Which models are available for each row; where none is, the prior is returned.

    Returns
    -------
    Probabilities

    References
    ----------
    Bishop, "Pattern recognition and machine learning", 2006, section 1.5.4.

    Examples
    --------
    >>> combine_posteriors([[[0.8, 0.2]], [[0.8, 0.2]]], [0.5, 0.5]).array.round(3).tolist()
    [[0.941, 0.059]]
    """
    caller = "combine_posteriors"
    is_there = None if present is None else _as_present(present, caller)
    models = as_models(outputs, caller, is_there)
    first = models[0]
    priors = as_prior(prior, first, "prior", caller)
    logs, is_possible = log_prior(priors), priors > 0
    precision = np.result_type(*(model.array.dtype for model in models))
    result = np.empty(first.array.shape, precision)

    def fill(rows: slice) -> None:
        scores = np.tile(logs, (rows.stop - rows.start, 1))
        for m, model in enumerate(models):
            evidence = log_posteriors(model.take(rows)) - logs
            counts = is_possible if is_there is None else is_possible & is_there[rows, m, None]
            scores += np.where(counts, evidence, 0)
        result[rows] = probabilities_of(scores, precision)

    run_in_order(fill, row_blocks(first.n_rows, first.n_classes))
    return unchecked(Probabilities, {"array": result, "classes": first.classes})


def as_models(
    outputs: Any, caller: str, is_there: BoolArray | None = None
) -> list[Logits | Probabilities]:
    """Return the outputs of several models for the same rows and classes.

    Class names of one model apply to all. Where a model is absent, the rows of a plain array may
    hold anything, including NaN.
    """
    rule, fix = "must be a list of outputs, one per model", "Pass [outputs_a, outputs_b]"
    if isinstance(outputs, BaseOutputs):
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    listed = as_list(outputs, "outputs", caller, rule, fix)
    if not listed:
        raise BadValueError("outputs", caller, "must have at least 1 model", "0", fix)
    if is_there is not None:
        if is_there.shape[1] != len(listed):
            rule, fix = f"must have {len(listed)} columns", "Give one column per model"
            raise BadValueError("present", caller, rule, f"{is_there.shape[1]}", fix)
        listed = [_filled(one, is_there[:, m], caller) for m, one in enumerate(listed)]
    models = [as_class_outputs(one, caller) for one in listed]
    names = next((model.classes for model in models if model.classes is not None), None)
    shape = models[0].array.shape
    for m, model in enumerate(models):
        if model.array.shape != shape or model.classes not in (None, names):
            rule = f"must have shape {shape} and classes {names}, like the other models"
            got = f"shape {model.array.shape}, classes {model.classes}"
            fix = "Pass the same rows with columns in the same order"
            raise BadValueError(f"outputs[{m}]", caller, rule, got, fix)
    if is_there is not None:
        require_rows(is_there, models[0].n_rows, "present", caller)
    return [unchecked(type(model), {"array": model.array, "classes": names}) for model in models]


def _filled(outputs: Any, is_there: BoolArray, caller: str) -> Any:
    """Return a plain array with valid values in absent rows."""
    if isinstance(outputs, BaseOutputs):
        return outputs
    array = as_floats(outputs, "outputs", caller)
    if len(array) != len(is_there) or array.ndim > 2:
        return array
    n_columns = max(1, array[0].size) if array.size else 1
    return np.where(is_there[:, None] if array.ndim == 2 else is_there, array, 1 / n_columns)


def _as_present(value: Any, caller: str) -> BoolArray:
    """Return which models are available, rows x models."""
    array = as_array(value, "present", caller)
    if array.dtype.kind != "b" or array.ndim != 2:
        rule, fix = "must be booleans, rows x models", "Use ~np.isnan(...) of the models' inputs"
        got = f"shape {array.shape}, dtype {array.dtype}"
        raise BadValueError("present", caller, rule, got, fix)
    return array


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ConditionalIndependenceTest(ArrayResult):
    """Rank correlations of each pair of models within classes, with p-values.

    Attributes
    ----------
    correlation, p_value : array, models x models
        1 on the diagonal.
    significance : float
        The significance level.
    n_rows : int
        The number of labeled rows.
    """

    correlation: FloatArray
    p_value: FloatArray
    significance: float
    n_rows: int

    @property
    def is_contradicted(self) -> bool:
        """Whether some pair is significantly correlated, after Bonferroni correction."""
        n_models = len(self.p_value)
        return bool(self.p_value.min() * (n_models * (n_models - 1) // 2) < self.significance)

    def summary(self) -> str:
        """Return the result in a sentence, with the most significant pair."""
        upper = np.triu_indices(len(self.p_value), 1)
        strongest = np.lexsort((-np.abs(self.correlation[upper]), self.p_value[upper]))[0]
        a, b = (int(index[strongest]) for index in upper)
        p = self.p_value[a, b]
        figures = (
            f"rank correlation {self.correlation[a, b]:.2f} of models {a} and {b}, "
            f"p {f'= {p:.2g}' if p >= 1e-99 else '< 1e-99'}, {self.n_rows:,} rows"
        )
        if not self.is_contradicted:
            return f"The data do not contradict conditional independence ({figures})."
        effect = "is under-confident"
        if self.correlation[a, b] > 0:
            effect = "counts shared evidence more than once and is over-confident"
        return (
            f"The data contradict conditional independence ({figures}): the product {effect}. "
            "Use LogLinearPool."
        )


def conditional_independence_test(
    outputs: Any, y: Any, *, significance: float = 0.01
) -> ConditionalIndependenceTest:
    """Test whether labeled rows contradict the assumption of `combine_posteriors`.

    Within a class, the log odds of the true class under conditionally independent models are not
    rank-correlated, calibrated or not. Other kinds of dependence are not detected.

    Parameters
    ----------
    outputs : list of outputs
        Outputs of each model for the same rows and classes.
    y : array
        Labels.
    significance : float, default 0.01
        The significance level.

    Returns
    -------
    ConditionalIndependenceTest

    References
    ----------
    Spearman, "The proof and measurement of association between two things", 1904; here pooled
    over classes.

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3], [0.6, 0.4], [0.55, 0.45], [0.5, 0.5]] * 4
    >>> conditional_independence_test([p, p], [0] * 24).is_contradicted
    True
    """
    caller = "conditional_independence_test"
    alpha = as_fraction(significance, "significance", caller, is_open=True)
    models = as_models(outputs, caller)
    if len(models) < 2:
        rule, fix = "must have at least 2 models", "Pass [outputs_a, outputs_b]"
        raise BadValueError("outputs", caller, rule, "1", fix)
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

    Under independence the correlation of n rows has variance 1 / (n - 1), also with ties. Groups
    where either is constant are left out; without any group the p-value is 1.
    """
    total, freedom = 0.0, 0
    for rows in groups:
        first, second = (scipy.stats.rankdata(values[rows]) for values in (a, b))
        first, second = first - first.mean(), second - second.mean()
        scale = float(np.sqrt((first @ first) * (second @ second)))
        if scale > 0:
            total += (rows.size - 1) * float(first @ second) / scale
            freedom += rows.size - 1
    if not freedom:
        return 0.0, 1.0
    return total / freedom, float(2 * scipy.special.ndtr(-abs(total) / np.sqrt(freedom)))
