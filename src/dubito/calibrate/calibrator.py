"""What every calibrator of class probabilities can do, and what each must say of itself."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any, Self

import numpy as np

from dubito.arrays import FloatArray, IntArray, contiguous
from dubito.calibrate.cross_fit import evidence_of, mark_of
from dubito.calibrate.rows import FLOOR, as_class_outputs, labelled_outputs, labelled_shards
from dubito.data.shards import ArrayShards, CountedShards, Shards
from dubito.errors import BadValueError
from dubito.keeping import AbstractKept
from dubito.kernels.blocks import kept_threads, map_in_order, row_blocks
from dubito.kernels.softmax import softmax_rows
from dubito.measure.labelled import warn_of_missing
from dubito.outputs import ClassName, Logits, Probabilities

__all__ = ["AbstractCalibrator"]


class AbstractCalibrator(AbstractKept):
    """Learns from outputs and labels, and turns outputs into honest probabilities.

    A calibrator says three things: what it learns of shards (`_learn`), the calibrated logits of
    some rows (`_logits`), and what it learnt in words (`_words`). Learned names end in `_`; they
    and the settings are what `to_dict` keeps.
    """

    n_classes_: int
    classes_: tuple[ClassName, ...] | None

    def fit(self, outputs: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from outputs and labels, or from shards that hold both."""
        name = type(self).__name__
        shards = labelled_shards(outputs, y, sample_weight, name)
        first = labelled_outputs(next(shards.batches()), name)
        self._forget()
        self.n_classes_, self.classes_ = first.n_classes, first.classes
        # Rows in memory were counted by now, counted shards are those of a fit around this one.
        is_counted = isinstance(shards, ArrayShards | CountedShards)
        counted = None if is_counted else CountedShards(shards)
        try:
            with kept_threads():
                self._learn(counted or shards)
            if counted:
                is_around = type(self).fit is not AbstractCalibrator.fit  # one more frame to leave
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
            logits = contiguous(self._logits(known.take(rows)))
            softmax_rows(logits, FLOOR, result[rows])

        for _ in map_in_order(fill, row_blocks(known.n_rows, known.n_classes)):
            pass
        return result

    def predict(self, outputs: Any) -> IntArray:
        """Return the number of each row's most probable class, the first of equals."""
        known = self._known(outputs, "predict")
        return np.concatenate([logits.argmax(axis=1) for logits in self._blocks(known)])

    def transform(self, outputs: Any) -> Logits:
        """Return calibrated logits, for whatever comes next: no small probability is lost."""
        known = self._known(outputs, "transform")
        logits = np.concatenate(list(self._blocks(known)))
        return Logits(logits.astype(known.array.dtype), self.classes_)

    def summary(self) -> str:
        """Say in words what was learnt, and what it does to log loss, out of sample."""
        self._require_fitted("summary")
        return f"{self._words()}; {evidence_of(self)}"

    @abstractmethod
    def _learn(self, shards: Shards) -> None:
        """Set whatever is learned."""

    @abstractmethod
    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        """Return calibrated log probabilities of a block of rows, up to a shift a row."""

    @abstractmethod
    def _words(self) -> str:
        """Say in a few words what was learnt."""

    def _blocks(self, outputs: Logits | Probabilities) -> Iterator[FloatArray]:
        """Yield calibrated log probabilities block by block, of no rows as one empty block."""
        blocks = row_blocks(outputs.n_rows, outputs.n_classes) or [slice(0, 0)]
        return map_in_order(lambda rows: self._logits(outputs.take(rows)), blocks)

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
