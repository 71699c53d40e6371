"""Covariances that can be inverted: drawn towards their diagonal, or refused with a way out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.linalg import lapack

from dubito.arrays import BoolArray, FloatArray
from dubito.errors import BadValueError

__all__ = ["Shrunk", "as_shrinkage", "shrunk_covariance", "usable_variances"]

ROUNDING = 1e-9  # a deviation this small beside how far apart the means are
LEAST_SHARE = 1e-15  # a feature: the share of a variance that no others explain, below none is left

INDEPENDENT = "of columns that differ within classes, none a combination of others"
MORE = "shrinkage='auto', fewer features or more rows"


@final
@dataclass(frozen=True, slots=True, eq=False)
class Shrunk:
    """A covariance that has an inverse, and the share of its diagonal that was mixed in."""

    covariance: FloatArray
    shrinkage: float


def as_shrinkage(value: Any, caller: str) -> float | None:
    """Return how much of the diagonal is mixed in, None for "auto"."""
    if isinstance(value, str) and value == "auto":
        return None
    is_number = isinstance(value, int | float | np.number) and not isinstance(value, bool)
    if not (is_number and 0 <= value <= 1):
        rule = "'auto' or a number between 0 and 1"
        raise BadValueError("shrinkage", caller, rule, repr(value), "shrinkage='auto'")
    return float(value)


def usable_variances(
    variances: FloatArray,
    fallback: FloatArray,
    reach: FloatArray,
    shrinkage: float | None,
    caller: str,
) -> tuple[FloatArray, BoolArray]:
    """Return variances above 0, the fallback's where features never vary, and which those are.

    Where that is 0 too, it is the mean of the others. Without shrinkage, none may be 0.
    """
    is_constant = is_rounding(variances, reach)
    if shrinkage == 0 and is_constant.any():
        raise dependent(int(np.argmax(is_constant)), caller)
    is_lost = is_rounding(fallback, reach)
    if is_lost.all():
        fix = "more rows a class, fewer classes, or no labels at all"
        raise BadValueError("features", caller, "rows that differ within a class", "none", fix)
    filled = np.where(is_lost, fallback[~is_lost].mean(), fallback)
    return np.where(is_constant, filled, variances), is_constant


def shrunk_covariance(
    covariance: FloatArray,
    fallback: FloatArray,
    reach: FloatArray,
    n_effective: float,
    shrinkage: float | None,
    caller: str,
) -> Shrunk:
    """Return correlations drawn towards 0, variances as they are.

    Without a share given, it is the one that comes closest for normal data: the oracle
    approximating estimator. Chen et al., "Shrinkage algorithms for MMSE covariance estimation",
    2010.
    """
    variances, is_constant = usable_variances(
        np.diag(covariance), fallback, reach, shrinkage, caller
    )
    scale = np.sqrt(variances)
    correlations = covariance / scale / scale[:, np.newaxis]
    correlations[is_constant] = correlations[:, is_constant] = 0.0
    np.fill_diagonal(correlations, 1.0)
    share = oracle_share(correlations, n_effective) if shrinkage is None else shrinkage
    mixed = (1 - share) * correlations
    np.fill_diagonal(mixed, 1.0)
    require_independent(mixed, caller)
    return Shrunk(mixed * scale * scale[:, np.newaxis], share)


def is_rounding(variances: FloatArray, reach: FloatArray) -> BoolArray:
    """Which variances are nothing but rounding, if anything."""
    return np.asarray(variances <= np.square(ROUNDING * reach))


def oracle_share(correlations: FloatArray, n_effective: float) -> float:
    """Return how far correlations of so many rows are best drawn towards 0."""
    mean_square = float(np.mean(np.square(correlations)))
    excess = (n_effective + 1) * (mean_square - 1 / correlations.shape[0])
    return 1.0 if excess <= 0 else min(1.0, (mean_square + 1) / excess)


def require_independent(correlations: FloatArray, caller: str) -> None:
    """Raise at the first feature that is a combination of those before it."""
    lower, info = lapack.dpotrf(correlations, lower=1)
    shares = np.square(np.diag(lower))
    if info > 0:
        shares[info - 1 :] = 0.0
    is_explained = shares < LEAST_SHARE * correlations.shape[0]
    if is_explained.any():
        raise dependent(int(np.argmax(is_explained)), caller)


def dependent(column: int, caller: str) -> BadValueError:
    """Say which feature adds nothing, and what to do about it."""
    got = "one that is constant, or follows from those before it,"
    return BadValueError("features", caller, INDEPENDENT, got, MORE, column=column)
