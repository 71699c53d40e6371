"""What learns from features of rows, and gives each row a doubt."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar, Self

import numpy as np

from dubito.arrays import FloatArray
from dubito.doubt.feature_shards import (
    FeatureRows,
    FeatureShards,
    as_feature_matrix,
    feature_shards,
    unlabeled_shards,
)
from dubito.errors import BadValueError
from dubito.keeping import BaseKept
from dubito.kept_checks import entries, names, whole
from dubito.kernels.blocks import kept_threads, map_in_order, row_blocks
from dubito.measure.labeled import warn_of_missing
from dubito.outputs import ClassName

__all__ = [
    "BaseFeatureScore",
    "BaseOODScore",
    "FeatureRows",
    "FeatureShards",
    "as_feature_matrix",
    "over_blocks",
]

HIGHEST = float(np.finfo(np.float64).max)  # a doubt too large to be held


class BaseFeatureScore(BaseKept):
    """What was fitted on features and gives each row of them a doubt; larger = more doubt."""

    n_features_: int

    learned_checks = entries(n_features_=whole(1))

    def score(self, features: Any) -> FloatArray:
        """Return the doubt of each row, in float64; what is too large to hold is the largest."""
        known = self._known(features, "score")
        doubt = over_blocks(self._doubt, known, self._n_entries())
        return np.nan_to_num(doubt, nan=HIGHEST, posinf=HIGHEST, neginf=-HIGHEST)

    @abstractmethod
    def _doubt(self, features: FloatArray) -> FloatArray:
        """Return the doubt of a block of checked rows; overflow may leave infinity or NaN."""

    def _n_entries(self) -> int:
        """How many numbers a row takes while it is scored: what the size of blocks hangs on."""
        return max(self.n_features_, len(getattr(self, "classes_", None) or ()))

    def _known(self, features: Any, method: str) -> FloatArray:
        """Return checked features, as many a row as in the fit."""
        self._require_fitted(method)
        caller = f"{type(self).__name__}.{method}"
        array = as_feature_matrix(features, caller)
        if array.shape[1] != self.n_features_:
            rule, fix = f"of {self.n_features_} columns, as in the fit", "the features of the fit"
            raise BadValueError("features", caller, rule, f"{array.shape[1]}", fix)
        return array


class BaseOODScore(BaseFeatureScore):
    """Learns from features and labels of classes which rows are strange.

    It says what it learns of shards (`_learn`) and the doubt of some rows (`_doubt`). Classes are
    those that occur, by the names or numbers that `y` has; `classes_` is None without labels.
    """

    classes_: tuple[ClassName, ...] | None

    learned_checks = entries(classes_=names())

    uses_labels: ClassVar[bool] = True  # where not, labels are not even read

    def fit(self, features: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from rows x dimensions and labels, if any, or from shards that hold both.

        Rows without a label are left out where others have one, unless labels are of no use to it.
        """
        name = type(self).__name__
        reader = feature_shards if self.uses_labels else unlabeled_shards
        shards = reader(features, y, sample_weight, name)
        warn_of_missing(shards.n_missing, shards.n_rows, name, stacklevel=3)
        self._forget()
        self.n_features_, self.classes_ = shards.n_features, shards.classes
        try:
            self._require_settings()
            self._learn(shards)
        except BaseException:
            self._forget()
            raise
        return self

    @abstractmethod
    def _learn(self, shards: FeatureShards) -> None:
        """Set whatever is learned."""


def over_blocks(
    function: Callable[[FloatArray], FloatArray], features: FloatArray, n_entries: int
) -> FloatArray:
    """Return what a function gives for each row, block by block, over threads."""

    def quietly(rows: slice) -> FloatArray:
        with np.errstate(over="ignore", invalid="ignore"):
            return function(features[rows])

    blocks = row_blocks(features.shape[0], n_entries) or [slice(0, 0)]
    with kept_threads():
        return np.concatenate(list(map_in_order(quietly, blocks)))
