"""Conformal outlier detection: p-values and a bound on the false alarm rate."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, Literal, Self, final

import numpy as np

from dubito.arrays import (
    BoolArray,
    FloatArray,
    as_finite,
    as_floats,
    as_share,
    require_dimensions,
    require_rows,
)
from dubito.data.batch import Batch, as_weights
from dubito.data.shards import ArrayShards, Shards
from dubito.doubt.conformal.scores import KnownScores, ranked
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, EmptyStateError
from dubito.measure.ranking import RankingState
from dubito.serialization.arrays import array, require_rising
from dubito.serialization.estimators import BaseKept
from dubito.serialization.fields import MOST, Entry, entries

HEAVIEST = 1e200  # rows with a doubt; sums of such can be held


@final
class ConformalOutlierDetector(BaseKept):
    """Call a point strange where at most `epsilon` of known ones would be called so.

    Any doubt will do, and how it is distributed does not matter: if known and new points are
    exchangeable, a new one has a p-value below `epsilon` with at most that probability, so that
    `epsilon=0.01` sends 1 % of normal inputs to review. Bates et al., "Testing for outliers with
    conformal p-values", 2023.

    >>> region = ConformalOutlierDetector(epsilon=0.05).fit(np.arange(100) / 100)
    >>> region.threshold_, region.contains([0.5, 0.99, 2.0]).tolist()
    (0.95, [False, True, True])
    """

    doubt_: FloatArray  # the different known doubts, rising
    weight_: FloatArray  # how many rows have each

    learned_checks = entries(
        doubt_=array(None, low=-MOST, high=MOST),
        weight_=array("doubt_", low=0, high=HEAVIEST),
    )

    def __init__(self, epsilon: float = 0.05) -> None:
        self.epsilon = epsilon

    def _require_settings(self) -> None:
        as_share(self.epsilon, "epsilon", type(self).__name__, is_open=True)

    def _require_learned(self, entry: Entry) -> None:
        with np.errstate(over="ignore"):  # two doubts may be further apart than a float holds
            require_rising(self.doubt_, entry.at("doubt_"))

    def fit(
        self,
        known: Any,
        sample_weight: Any = None,
        *,
        doubt: Callable[[Any], Any] | None = None,
        of: Literal["outputs", "features", "batch"] = "outputs",
    ) -> Self:
        """Learn the doubts of known rows that the model was not trained on: an array, or shards.

        With shards, `doubt` gives the doubts of a batch's outputs, of its features or, for
        `of="batch"`, of all of it. Of more than 1,000,000 streamed doubts some move up past a few
        others, so that p-values are never lower than exact ones. A weight counts rows: 2 is a row
        that came twice.
        """
        name = type(self).__name__
        epsilon = as_share(self.epsilon, "epsilon", name, is_open=True)
        if isinstance(known, Shards):
            state = _streamed(known, sample_weight, doubt, of, name)
        elif doubt is not None:
            rule, fix = "None beside an array of doubts", "`.fit(doubt(outputs))`"
            raise BadTypeError("doubt", name, rule, type(doubt).__name__, fix)
        else:
            values = _as_doubts(known, name)
            state = ranked(values, as_weights(sample_weight, len(values), name))
        if not state.weight.size:
            raise EmptyStateError(name, is_labeled=False)
        self._forget()
        self.doubt_, self.weight_ = state.doubt, state.weight
        _warn_of_few(float(state.weight.sum()), epsilon, name)
        return self

    def p_value(self, doubt: Any) -> FloatArray:
        """Return (1 + how many known doubts are as large or larger) / (1 + how many there are)."""
        self._require_fitted("p_value")
        values = _as_doubts(doubt, f"{type(self).__name__}.p_value")
        as_large = np.append(np.cumsum(self.weight_[::-1])[::-1], 0.0)
        return np.asarray((1 + as_large[np.searchsorted(self.doubt_, values)]) / (1 + as_large[0]))

    def contains(self, doubt: Any) -> BoolArray:
        """Return which points are strange: those with a p-value below `epsilon`."""
        self._require_fitted("contains")
        epsilon = as_share(self.epsilon, "epsilon", type(self).__name__, is_open=True)
        return np.asarray(self.p_value(doubt) < epsilon)

    @property
    def threshold_(self) -> float:
        """The doubt above which a point is strange; infinite where known rows are too few."""
        self._require_fitted("threshold_")
        if not self.contains([np.finfo(np.float64).max])[0]:
            return float(np.inf)
        return float(self.doubt_[~self.contains(self.doubt_)][-1])


def _streamed(shards: Shards, sample_weight: Any, doubt: Any, of: str, caller: str) -> RankingState:
    """Rank the doubts of shards: exactly in memory, in cells of ranks where they are many."""
    if not callable(doubt):
        rule, fix = "a function of a batch beside shards", "`.fit(shards, doubt=entropy)`"
        raise BadTypeError("doubt", caller, rule, type(doubt).__name__, fix)
    if sample_weight is not None:
        rule, fix = "None beside shards", "weights among the shards' columns"
        raise BadTypeError("sample_weight", caller, rule, type(sample_weight).__name__, fix)
    if of not in ("outputs", "features", "batch"):
        raise BadValueError(
            "of", caller, "'outputs', 'features' or 'batch'", repr(of), "of='outputs'"
        )

    def of_batch(batch: Batch) -> tuple[FloatArray, FloatArray]:
        values = _as_doubts(doubt(batch if of == "batch" else getattr(batch, of)), caller)
        require_rows(values, len(batch), "doubt", caller, "the batch")
        return values, batch.weight

    if isinstance(shards, ArrayShards):
        return ranked(*of_batch(shards.batch))
    return shards.sum(lambda batch: KnownScores.of(*of_batch(batch))).ranked


def _as_doubts(value: Any, caller: str) -> FloatArray:
    """Return doubts as float64, one number a row."""
    doubt = as_finite(as_floats(value, "doubt", caller), "doubt", caller)
    require_dimensions(doubt, (1,), "doubt", caller, "one number a row")
    return doubt.astype(np.float64)


def _warn_of_few(n_rows: float, epsilon: float, caller: str) -> None:
    """Say that nothing is ever strange, and how many rows it takes."""
    if 1 / (n_rows + 1) < epsilon:
        return
    about = int(min(1 / epsilon, 1e300))
    needed = next((n for n in (about - 1, about) if 1 / (n + 1) < epsilon), about + 1)
    text = (
        f"{caller}: with {n_rows:g} known rows no point is ever strange at epsilon = {epsilon:g}. "
        f"Try {needed:,} rows or more."
    )
    warnings.warn(text, DubitoWarning, stacklevel=3)
