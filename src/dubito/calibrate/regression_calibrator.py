"""What every calibrator of regressions can do, and how its figures come out of sample."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Self, final

import numpy as np
from sklearn.base import clone

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.data.sampling import sample_rows
from dubito.data.shards import ArrayShards, Shards
from dubito.errors import (
    BadTypeError,
    BadValueError,
    BoundWarning,
    EmptyStateError,
    StateMismatchError,
)
from dubito.keeping import BaseKept
from dubito.kept_checks import entries, one_of, optional, whole
from dubito.kernels.blocks import row_blocks
from dubito.measure.labeled import warn_of_missing
from dubito.measure.regression import require_targets
from dubito.measure.regression_audit import RegressionAudit, RegressionState
from dubito.outputs import BaseOutputs, Normal, Quantiles, Samples

__all__ = ["BaseRegressionCalibrator", "Regression", "n_targets_of", "narrowed", "small_blocks"]

Regression = Normal | Samples | Quantiles

N_FOLDS = 5
MOST_ROWS = 20_000  # that a summary cross-fits on
LEVEL = 0.9  # of the interval whose coverage a summary tells


class BaseRegressionCalibrator(BaseKept):
    """Learns from predictive distributions and targets, and mends distributions alike.

    It says what it learns of shards (`_learn`), the mended outputs (`_mended`), what these are
    compared with (`_as_stated`), and what it learned in words (`_words`). Learned names end in `_`;
    they and the settings are what `to_dict` keeps.
    """

    kind_: str  # of outputs, by name
    n_targets_: int | None  # None for one number a row

    learned_checks = entries(
        kind_=one_of("Normal", "Samples", "Quantiles"),
        n_targets_=optional(whole(1)),
    )

    def fit(self, outputs: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from outputs and targets, or from shards that hold both.

        A weight counts rows: 2 is a row that came twice. Rows without a target are left out.
        """
        name = type(self).__name__
        shards = target_shards(outputs, y, sample_weight, name)
        seen = shards.sum(lambda batch: SeenRows.of(batch, name))
        if not seen.weight > 0:
            raise EmptyStateError(name)
        warn_of_missing(seen.n_missing, seen.n_rows, name, stacklevel=3)
        self._forget()
        self.kind_, self.n_targets_ = seen.kind, seen.n_targets
        self._require_settings()
        self._learn(shards)
        # What summary() cross-fits on when asked. It is neither pickled nor kept by to_dict.
        self._shards = shards
        return self

    def transform(self, outputs: Any) -> Regression:
        """Return recalibrated outputs of the rows given."""
        return self._mended(self._known(outputs, "transform"))

    def summary(self) -> str:
        """Say in words what was learned, and what it does to coverage and CRPS, out of sample."""
        self._require_fitted("summary")
        if not hasattr(self, "_shards"):
            return f"{self._words()}; the rows of the fit are no longer at hand to cross-fit on"
        return f"{self._words()}; {evidence_of(self, self._shards)}"

    @abstractmethod
    def _learn(self, shards: Shards) -> None:
        """Set whatever is learned."""

    @abstractmethod
    def _mended(self, outputs: Regression) -> Regression:
        """Return recalibrated outputs."""

    @abstractmethod
    def _as_stated(self, outputs: Regression) -> Regression:
        """Return outputs as they came, in the form in which they will be after recalibration."""

    @abstractmethod
    def _words(self) -> str:
        """Say in a few words what was learned."""

    def _known(self, outputs: Any, method: str) -> Regression:
        """Return outputs of the kind and the targets it was fitted for."""
        self._require_fitted(method)
        caller = f"{type(self).__name__}.{method}"
        regression = as_spread(outputs, caller)
        kind, n_targets = type(regression).__name__, n_targets_of(regression)
        if kind != self.kind_:
            fix = "a fit on outputs of this kind"
            raise BadTypeError("outputs", caller, f"{self.kind_}, as in the fit", kind, fix)
        if n_targets != self.n_targets_:
            rule = f"of {named(self.n_targets_)}, as in the fit"
            raise BadValueError("outputs", caller, rule, named(n_targets), "the same columns")
        return regression


@final
@dataclass(frozen=True, slots=True)
class SeenRows:
    """What the rows of a fit are, and how many."""

    kind: str
    n_targets: int | None
    n_rows: int
    n_missing: int
    weight: float

    @classmethod
    def of(cls, batch: Batch, caller: str) -> SeenRows:
        outputs = as_spread(batch.outputs, caller)
        require_targets(batch, caller, "y")
        return cls(
            kind=type(outputs).__name__,
            n_targets=n_targets_of(outputs),
            n_rows=len(batch),
            n_missing=batch.n_missing,
            weight=float(batch.labeled_weight.sum()),
        )

    def __add__(self, other: SeenRows) -> SeenRows:
        mine, others = (self.kind, self.n_targets), (other.kind, other.n_targets)
        if mine != others:
            raise StateMismatchError("kinds and targets", mine, others)
        return SeenRows(
            *mine,
            self.n_rows + other.n_rows,
            self.n_missing + other.n_missing,
            self.weight + other.weight,
        )


def target_shards(outputs: Any, y: Any, sample_weight: Any, caller: str) -> Shards:
    """Return rows with targets as shards: what is shards already, or arrays in memory."""
    if not isinstance(outputs, Shards):
        regression = as_spread(outputs, caller)
        return ArrayShards(
            Batch.of(y, regression, sample_weight=sample_weight, caller=caller, argument="y")
        )
    if y is not None or sample_weight is not None:
        got = "targets" if y is not None else "weights"
        fix = f"{caller}().fit(shards), with targets and weights among the shards' columns"
        raise BadTypeError("outputs", caller, "arrays beside targets or weights", got, fix)
    return outputs


def as_spread(outputs: Any, caller: str) -> Regression:
    """Return outputs that are distributions of a number with a spread of their own."""
    if not isinstance(outputs, Normal | Samples | Quantiles):
        rule, fix = "one of Normal, Samples, Quantiles", "wrapping them, say Normal(mean, std)"
        raise BadTypeError("outputs", caller, rule, type(outputs).__name__, fix)
    if not isinstance(outputs, Normal) and outputs.array.shape[1] < 2:
        what = "draws" if isinstance(outputs, Samples) else "levels"
        rule, fix = f"of 2 {what} or more a row", f"more {what}: one says nothing of the spread"
        raise BadValueError("outputs", caller, rule, "1", fix)
    return outputs


def n_targets_of(outputs: BaseOutputs) -> int | None:
    """Return how many targets a row has, None for one plain number."""
    assert isinstance(outputs, Normal | Samples | Quantiles)
    shape = outputs.mean.shape[1:] if isinstance(outputs, Normal) else outputs.array.shape[2:]
    return int(shape[0]) if shape else None


def named(n_targets: int | None) -> str:
    """Return a number of targets in words."""
    return "one number a row" if n_targets is None else f"rows x {n_targets} targets"


def small_blocks(batch: Batch) -> Iterator[Batch]:
    """Yield a batch in parts whose matrices stay small, whatever the number of draws."""
    outputs = batch.outputs
    array = outputs.mean if isinstance(outputs, Normal) else getattr(outputs, "array", np.empty(0))
    n_entries = int(np.prod(array.shape[1:]))
    return (batch.take(rows) for rows in row_blocks(len(batch), n_entries))


def narrowed(values: FloatArray, kind: np.dtype[Any]) -> FloatArray:
    """Return values in a float type, the largest finite one where they are beyond it."""
    most = float(np.finfo(kind).max)
    return np.asarray(np.clip(values, -most, most).astype(kind))


def evidence_of(calibrator: BaseRegressionCalibrator, shards: Shards) -> str:
    """Say what recalibration does to rows that were not fitted on, in seeded folds."""
    rows = sample_rows(shards, MOST_ROWS, is_labeled=True)
    if len(rows) < 2:
        return "too few rows to cross-fit on (1)"
    before = audited(rows, calibrator._as_stated(as_spread(rows.outputs, "summary"))).value
    order = np.random.default_rng(0).permutation(len(rows))
    folds = np.array_split(order, min(N_FOLDS, len(rows)))
    states = []
    for fold in folds:
        others, held_out = np.setdiff1d(order, fold), rows.take(fold)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BoundWarning)  # of a fold: the fit told of its own
            fitted = clone(calibrator).fit(ArrayShards(rows.take(others)))
        states.append(audited(held_out, fitted.transform(held_out.outputs)))
    after = sum(states[1:], start=states[0]).value
    return f"{compared(before, after)}, cross-fitted on {len(rows):,} rows"


def audited(batch: Batch, outputs: Regression) -> RegressionState:
    """Return the audit's sums of the rows of a batch with other outputs."""
    return RegressionState.of(replace(batch, outputs=outputs))


def compared(before: RegressionAudit, after: RegressionAudit) -> str:
    """Say what coverage and CRPS were, and what they are now."""
    crps = [one.continuous_ranked_probability_score for one in (before, after)]
    words = f"CRPS was {crps[0]:.4g}, now {crps[1]:.4g}"
    if not before.levels.size:
        return words
    k = int(np.argmin(np.abs(before.levels - LEVEL)))
    level = f"{before.levels[k] * 100:.3g} %"
    held = f"was {before.coverage[k]:.2f}, now {after.coverage[k]:.2f}"
    return f"interval coverage at {level} {held}; {words}"
