"""What every calibrator of class probabilities can do, and what each must say of itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from copy import copy
from typing import Any, Self

import numpy as np
from sklearn.base import clone

from dubito.arrays import FloatArray, IntArray, as_share, contiguous
from dubito.calibrate.cross_validation import evidence_of, mark_of
from dubito.calibrate.inputs import FLOOR, as_class_outputs, labeled_outputs, labeled_shards
from dubito.data.cache import cached
from dubito.data.shards import ArrayShards, CountedShards, Shards
from dubito.errors import BadValueError
from dubito.kernels.blocks import kept_threads, map_in_order, row_blocks
from dubito.kernels.softmax import softmax_rows
from dubito.measure.state import warn_of_missing
from dubito.outputs import ClassName, Logits, Probabilities
from dubito.serialization.fields import (
    Entry,
    Omittable,
    class_names,
    declare,
    integer,
    number,
    record,
)
from dubito.serialization.objects import Serializable

WIDE_ENTRIES = 1 << 18  # of a block whose rows take more numbers than they have: 2 MB


class BaseCalibrator(Serializable):
    """Learns from outputs and labels, and turns outputs into honest probabilities.

    A calibrator says three things: what it learns of shards (`_learn`), the calibrated logits of
    some rows (`_logits`), and what it learned in words (`_words`). Learned names end in `_`; they
    and the settings are what `to_dict` keeps.
    """

    n_classes_: int
    classes_: tuple[ClassName, ...] | None

    fitted_fields = declare(
        n_classes_=integer(2),
        classes_=class_names("n_classes_"),
        evidence_=Omittable(record(before=number(), after=number(), n_rows=integer())),
    )

    def fit(self, outputs: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from outputs and labels, or from shards that hold both.

        Weights count rows: one of 2 is a row twice, and those that sum to 1 are one row in all.
        """
        name = type(self).__name__
        shards = labeled_shards(outputs, y, sample_weight, name)
        first = labeled_outputs(next(shards.batches()), name)
        self._forget()
        self.n_classes_, self.classes_ = first.n_classes, first.classes
        # Rows in memory were counted by now, counted shards are those of a fit around this one.
        is_counted = isinstance(shards, ArrayShards | CountedShards)
        try:
            self._check_params()
            with kept_threads(), cached(shards) as quick:
                counted = None if is_counted else CountedShards(quick)
                self._learn(counted or quick)
            if counted:
                is_around = type(self).fit is not BaseCalibrator.fit  # one more frame to leave
                warn_of_missing(*counted.n_missing_and_rows(), name, stacklevel=3 + is_around)
        except BaseException:
            self._forget()
            raise
        # What summary() cross-fits on when asked. It is neither pickled nor kept by to_dict.
        self._shards, self._mark = shards, mark_of(shards)
        return self

    def predict_proba(self, outputs: Any) -> FloatArray:
        """Return calibrated probabilities, rows x classes, none below 1e-12."""
        known = self._known(outputs, "predict_proba")
        result = np.empty(known.array.shape, known.array.dtype)

        def fill(rows: slice) -> None:
            softmax_rows(contiguous(self._logits(known.take(rows))), FLOOR, result[rows])

        self._over_blocks(fill, known)
        return result

    def predict(self, outputs: Any) -> IntArray:
        """Return the number of each row's most probable class, the first of equals."""
        known = self._known(outputs, "predict")
        result = np.empty(known.n_rows, np.int64)

        def fill(rows: slice) -> None:
            result[rows] = self._logits(known.take(rows)).argmax(axis=1)

        self._over_blocks(fill, known)
        return result

    def transform(self, outputs: Any) -> Logits:
        """Return calibrated logits, for whatever comes next: no small probability is lost."""
        known = self._known(outputs, "transform")
        result = np.empty(known.array.shape, known.array.dtype)

        def fill(rows: slice) -> None:
            result[rows] = self._logits(known.take(rows))

        self._over_blocks(fill, known)
        return Logits(result, self.classes_)

    def summary(self) -> str:
        """Say in words what was learned, and what it does to log loss, out of sample."""
        self._require_fitted("summary")
        return f"{self._words()}; {evidence_of(self)}"

    def for_folds(self) -> BaseCalibrator:
        """Return one of the same settings that knows nothing yet, to be fitted to some rows."""
        fresh: BaseCalibrator = clone(self)
        return fresh

    def thinned(self, bound: float = 1e-4) -> Self:
        """Return what needs fewer knots, and no curve of which moves by more than `bound`.

        For keeping: rising curves have a knot or two for every step of theirs. `bound` is a
        probability, that of one class against the rest; what has no knots is returned as it is.
        """
        self._require_fitted("thinned")
        as_share(bound, "bound", f"{type(self).__name__}.thinned")
        return self._thinned(float(bound))

    def _thinned(self, bound: float) -> Self:
        """Return it with its parts thinned, if it has any; what has knots of its own does more."""
        parts = self._learned().get("calibrators_", [])
        thinner = [one._thinned(bound) for one in parts]
        if all(after is before for after, before in zip(thinner, parts, strict=True)):
            return self
        twin = copy(self)
        twin.__dict__["calibrators_"] = thinner
        return twin

    @abstractmethod
    def _learn(self, shards: Shards) -> None:
        """Set whatever is learned."""

    @abstractmethod
    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        """Return calibrated log probabilities of a block of rows, up to a shift a row."""

    @abstractmethod
    def _words(self) -> str:
        """Say in a few words what was learned."""

    def _n_numbers(self) -> int:
        """How many numbers a row takes while it is calibrated: what the size of blocks hangs on."""
        return self.n_classes_

    def _over_blocks(self, fill: Callable[[slice], None], outputs: Logits | Probabilities) -> None:
        """Call `fill` with every block of rows, over threads."""
        n_numbers = self._n_numbers()
        entries = WIDE_ENTRIES if n_numbers > outputs.n_classes else None
        with kept_threads():
            for _ in map_in_order(fill, row_blocks(outputs.n_rows, n_numbers, entries)):
                pass

    def _known(self, outputs: Any, method: str) -> Logits | Probabilities:
        """Return outputs over the classes it was fitted for."""
        self._require_fitted(method)
        caller = f"{type(self).__name__}.{method}"
        wrapped = as_class_outputs(outputs, caller)
        if wrapped.n_classes != self.n_classes_:
            rule, fix = f"over the {self.n_classes_} classes of the fit", "the same columns"
            raise BadValueError("outputs", caller, rule, f"{wrapped.n_classes} columns", fix)
        if None not in (wrapped.classes, self.classes_) and wrapped.classes != self.classes_:
            rule, fix = f"over the classes {self.classes_}", "the columns in the fit's order"
            raise BadValueError("outputs", caller, rule, f"{wrapped.classes}", fix)
        return wrapped


def require_same_classes(outer: BaseCalibrator, inner: BaseCalibrator, entry: Entry) -> None:
    """Raise unless a calibrator inside another one is of the same classes."""
    if inner.n_classes_ != outer.n_classes_:
        raise entry.error(f"of {outer.n_classes_} classes", f"{inner.n_classes_}")
    if inner.classes_ != outer.classes_:
        raise entry.error("of the same classes", "other names")
