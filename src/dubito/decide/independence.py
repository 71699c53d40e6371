"""Whether labeled data contradict that models are independent within each class."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, final

import numpy as np
from scipy.stats import norm, rankdata

from dubito.arrays import FloatArray, IntArray, as_share, freeze
from dubito.calibrate.rows import log_odds
from dubito.decide.combine import as_models
from dubito.decide.labels import plain_codes
from dubito.errors import BadValueError

__all__ = ["ConditionalIndependenceTest", "conditional_independence_test"]


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
        pair = within_classes(odds[a], odds[b], groups)
        correlation[[a, b], [b, a]], p_value[[a, b], [b, a]] = pair
    return ConditionalIndependenceTest(freeze(correlation), freeze(p_value), alpha, int(rows.size))


def within_classes(a: FloatArray, b: FloatArray, groups: Sequence[IntArray]) -> tuple[float, float]:
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
