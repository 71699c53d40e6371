"""What every calibrator of class probabilities can do, and what each must say of itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Self

import numpy as np
from sklearn.base import BaseEstimator

from dubito.arrays import FloatArray, contiguous
from dubito.calibrate.rows import FLOOR, as_class_outputs, labelled_shards
from dubito.data.shards import Shards
from dubito.errors import BadTypeError, BadValueError, UnfittedError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.softmax import softmax_rows
from dubito.outputs import ClassName, Logits, Probabilities

__all__ = ["AbstractCalibrator"]

FORMAT = 1  # of `to_dict`; goes up when what older versions wrote can no longer be read as it is


class AbstractCalibrator(BaseEstimator, ABC):
    """Learns from outputs and labels, and turns outputs into honest probabilities.

    A calibrator says three things: what it learns of shards (`_learn`), the calibrated logits of
    some rows (`_logits`), and what it learnt in words (`_words`). Learned names end in `_`; they
    and the settings are what `to_dict` keeps.
    """

    n_classes_: int
    classes_: tuple[ClassName, ...] | None

    def fit(self, outputs: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Learn from outputs and labels, or from shards that hold both."""
        shards = labelled_shards(outputs, y, sample_weight, type(self).__name__)
        first = as_class_outputs(next(shards.batches()).outputs, type(self).__name__)
        self._forget()
        self.n_classes_, self.classes_ = first.n_classes, first.classes
        try:
            self._learn(shards)
        except BaseException:
            self._forget()
            raise
        # What summary() cross-fits on when asked. It is neither pickled nor kept by to_dict.
        self._shards = shards
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

    def transform(self, outputs: Any) -> Logits:
        """Return calibrated logits, for whatever comes next: no small probability is lost."""
        known = self._known(outputs, "transform")
        blocks = row_blocks(known.n_rows, known.n_classes) or [slice(0, 0)]
        parts = list(map_in_order(lambda rows: self._logits(known.take(rows)), blocks))
        return Logits(np.concatenate(parts).astype(known.array.dtype), self.classes_)

    def summary(self) -> str:
        """Say in words what was learnt, and what it does to log loss, out of sample."""
        self._require_fitted("summary")
        from dubito.calibrate.cross_fit import evidence_of

        return f"{self._words()}; {evidence_of(self)}"

    def to_dict(self) -> dict[str, Any]:
        """Return the settings and what was learnt as plain numbers and lists, ready for JSON."""
        self._require_fitted("to_dict")
        return plain_calibrator(self)

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Return the calibrator that `to_dict` wrote; of AbstractCalibrator, any of them."""
        kind = calibrator_named(values, cls)
        result = kind(**{name: revived(value) for name, value in values["settings"].items()})
        if values["n_classes"] is not None:
            result.n_classes_ = int(values["n_classes"])
            result.classes_ = None if values["classes"] is None else tuple(values["classes"])
        for name, value in values["learned"].items():
            setattr(result, name, revived(value))
        return result

    @abstractmethod
    def _learn(self, shards: Shards) -> None:
        """Set whatever is learned."""

    @abstractmethod
    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        """Return calibrated log probabilities of a block of rows, up to a shift a row."""

    @abstractmethod
    def _words(self) -> str:
        """Say in a few words what was learnt."""

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

    def _forget(self) -> None:
        for name in [name for name in vars(self) if name.endswith("_") or name == "_shards"]:
            delattr(self, name)

    def _require_fitted(self, method: str) -> None:
        if not self.__sklearn_is_fitted__():
            raise UnfittedError(type(self).__name__, method)

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "n_classes_")

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_shards"}


def calibrator_named(values: Any, kind: type[AbstractCalibrator]) -> type[AbstractCalibrator]:
    """Return the class that wrote `values`, or raise where it is not what was asked for."""
    import dubito.calibrate as package

    caller = f"{kind.__name__}.from_dict"
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        rule, fix = "what `to_dict` of a calibrator wrote", "`calibrator.to_dict()`"
        got = f"a {type(values).__name__}"
        if isinstance(values, dict) and "format" in values:
            got, fix = f"format {values['format']!r}", "the version of dubito that wrote it"
        raise BadTypeError("values", caller, rule, got, fix)
    found = getattr(package, str(values.get("calibrator")), None)
    if not (isinstance(found, type) and issubclass(found, kind)):
        fix = "AbstractCalibrator.from_dict, which takes any of them"
        got = f"{values['calibrator']!r}"
        raise BadValueError("values", caller, f"a {kind.__name__}", got, fix)
    return found


def plain_calibrator(calibrator: AbstractCalibrator) -> dict[str, Any]:
    """Return a calibrator, fitted or not, as what JSON holds."""
    known = dict(vars(calibrator))
    settings = calibrator.get_params(deep=False)
    n_classes, classes = known.pop("n_classes_", None), known.pop("classes_", None)
    return {
        "calibrator": type(calibrator).__name__,
        "format": FORMAT,
        "n_classes": n_classes,
        "classes": None if classes is None else list(classes),
        "settings": {name: to_plain(value) for name, value in settings.items() if is_plain(value)},
        "learned": {name: to_plain(value) for name, value in known.items() if name.endswith("_")},
    }


def is_plain(value: Any) -> bool:
    """Tell a setting that JSON can hold from one that only matters while fitting: a splitter."""
    return value is None or isinstance(
        value, AbstractCalibrator | bool | int | float | str | np.generic
    )


def to_plain(value: Any) -> Any:
    """Return a setting, or something learned, as what JSON holds."""
    if isinstance(value, AbstractCalibrator):
        return plain_calibrator(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, dict):
        return {name: to_plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(entry) for entry in value]
    return value


def revived(value: Any) -> Any:
    """Return what `to_plain` made plain: lists of numbers as arrays, calibrators as they were."""
    if isinstance(value, dict):
        if "calibrator" in value:
            return AbstractCalibrator.from_dict(value)
        return {name: revived(entry) for name, entry in value.items()}
    if isinstance(value, list):
        if any(isinstance(entry, dict | str) for entry in value):
            return [revived(entry) for entry in value]
        return np.array(value)
    return value
