"""Outputs of regressors: a distribution per row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import (
    BoolArray,
    FloatArray,
    as_finite,
    as_floats,
    freeze,
    own,
    require_bool,
    require_dimensions,
    require_everywhere,
)
from dubito.errors import BadValueError
from dubito.outputs.base import BaseOutputs, set_field


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Normal(BaseOutputs):
    """A normal distribution per row.

    Parameters
    ----------
    mean : array of shape (n_rows,) or (n_rows, n_targets)
        Means.
    std : array of the shape of `mean`
        Standard deviations, above 0.

    Examples
    --------
    >>> Normal(mean=[1.0, 2.0], std=[0.5, 0.1]).n_rows
    2
    """

    axes = ("row", "target")
    mean: FloatArray
    std: FloatArray

    def __init__(self, mean: Any, std: Any) -> None:
        means = as_finite(as_floats(mean, "mean", "Normal"), "mean", "Normal")
        stds = as_finite(as_floats(std, "std", "Normal"), "std", "Normal")
        require_dimensions(means, (1, 2), "mean", "Normal", "rows, or rows x targets")
        if stds.shape != means.shape:
            rule, got = f"must have the shape of `mean`, {means.shape}", f"shape {stds.shape}"
            raise BadValueError("std", "Normal", rule, got, "Broadcast it to that shape")
        rule, fix = "must be positive", "Set a floor, such as 1e-6"
        require_everywhere(stds > 0, stds, "std", "Normal", rule, fix)
        set_field(self, "mean", own(means, mean))
        set_field(self, "std", own(stds, std))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Samples(BaseOutputs):
    """Draws from the predictive distribution of each row.

    Parameters
    ----------
    array : array of shape (n_rows, n_draws) or (n_rows, n_draws, n_targets)
        The draws.

    Examples
    --------
    >>> Samples([[1.0, 1.2, 0.9], [3.0, 2.5, 2.8]]).n_rows
    2
    """

    axes = ("row", "draw", "target")
    array: FloatArray

    def __init__(self, array: Any) -> None:
        draws = as_finite(as_floats(array, "array", "Samples"), "array", "Samples")
        require_dimensions(draws, (2, 3), "array", "Samples", "rows x draws (x targets)")
        set_field(self, "array", own(draws, array))


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Quantiles(BaseOutputs):
    """Quantiles of the predictive distribution of each row.

    Parameters
    ----------
    array : array of shape (n_rows, n_levels) or (n_rows, n_levels, n_targets)
        Quantiles, which must not decrease along the levels.
    levels : array of shape (n_levels,)
        Their probability levels, increasing, strictly between 0 and 1.
    rearrange : bool, default=False
        Sort each row whose quantiles cross, which is never further from the true quantiles
        (Chernozhukov, Fernandez-Val and Galichon, "Quantile and probability curves without
        crossing", Econometrica 2010). `n_rearranged` counts them. Crossed rows are an error
        otherwise.

    Attributes
    ----------
    rearranged : array of bool, shape (n_rows,), or None
        Which rows were sorted; None without `rearrange`.

    Examples
    --------
    >>> Quantiles([[1.0, 2.0, 4.0]], levels=[0.1, 0.5, 0.9]).n_rows
    1
    >>> crossed = Quantiles([[2.0, 1.0], [3.0, 3.5]], levels=[0.1, 0.9], rearrange=True)
    >>> crossed.array.tolist(), crossed.n_rearranged
    ([[1.0, 2.0], [3.0, 3.5]], 1)
    """

    axes = ("row", "level", "target")
    array: FloatArray
    levels: FloatArray
    rearranged: BoolArray | None

    def __init__(self, array: Any, levels: Any, rearrange: bool = False) -> None:
        require_bool(rearrange, "rearrange", "Quantiles")
        values = as_finite(as_floats(array, "array", "Quantiles"), "array", "Quantiles")
        require_dimensions(values, (2, 3), "array", "Quantiles", "rows x levels (x targets)")
        checked = as_levels(levels, "Quantiles")
        if checked.size != values.shape[1]:
            rule = f"must have one level for each of {values.shape[1]} columns"
            raise BadValueError(
                "levels", "Quantiles", rule, f"{checked.size}", "Name every column's level"
            )
        set_field(self, "levels", own(checked, levels))
        is_crossed = values[:, 1:] < values[:, :-1]
        rows = np.asarray(is_crossed.any(axis=tuple(range(1, values.ndim))))
        if rows.any() and not rearrange:
            raise _crossed(values, checked, is_crossed, int(rows.sum()))
        set_field(self, "array", own(np.sort(values, axis=1) if rows.any() else values, array))
        set_field(self, "rearranged", freeze(rows) if rearrange else None)

    @property
    def n_rearranged(self) -> int:
        """The number of rows whose quantiles crossed and were sorted."""
        return 0 if self.rearranged is None else int(self.rearranged.sum())


def _crossed(
    values: FloatArray, levels: FloatArray, is_crossed: BoolArray, n_crossed: int
) -> BadValueError:
    """Return the error for quantiles that decrease, at the first row that has some."""
    row, left, *target = (int(one) for one in np.argwhere(is_crossed)[0])
    low, high = (values[(row, k, *target)] for k in (left, left + 1))
    got = f"{high} at level {levels[left + 1]:g} below {low} at level {levels[left]:g}"
    if len(values) > 1:
        got = f"{n_crossed:,} of {len(values):,} rows that cross, the first with {got}"
    rule, fix = "must not decrease along the levels", "Pass rearrange=True to sort such rows"
    return BadValueError("array", "Quantiles", rule, got, fix, row, left + 1)


def as_levels(value: Any, caller: str) -> FloatArray:
    """Return the levels of quantiles, increasing between 0 and 1."""
    levels = as_finite(as_floats(value, "levels", caller), "levels", caller)
    require_dimensions(levels, (1,), "levels", caller, "one number per column")
    is_rising = (levels > np.append(0.0, levels[:-1])) & (levels < 1)
    if not is_rising.all():
        rule, fix = "must increase strictly between 0 and 1", "Use levels such as [0.1, 0.5, 0.9]"
        raise BadValueError("levels", caller, rule, f"{levels.tolist()}", fix)
    return levels
