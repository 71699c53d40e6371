"""The base class of class-probability calibrators, and how their inputs are read."""

from __future__ import annotations

import sys
import warnings
from abc import abstractmethod
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, final

import numpy as np
from numpy.typing import NDArray

from dubito.arrays import (
    FloatArray,
    IntArray,
    Origin,
    as_fraction,
    as_frame,
    as_number,
    contiguous,
    freeze,
    require_choice,
    restored,
)
from dubito.data.batch import Batch
from dubito.data.cache import cached
from dubito.data.labels import require_no_labels
from dubito.data.shards import ArrayShards, CountedShards, Shards, make_shards
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, SingleClassWarning
from dubito.kernels.blocks import kept_threads, row_blocks, run_in_order
from dubito.kernels.columns import add_softmax, log_odds_columns, log_softmax_columns
from dubito.kernels.scaling import log_softmax_rows, softmax_rows
from dubito.measure.state import warn_of_missing
from dubito.outputs import (
    BaseClassOutputs,
    ClassName,
    Logits,
    Probabilities,
    TopLabel,
    as_class_matrix,
    require_classes,
)
from dubito.serialization.fields import Entry, class_names, fitted, integer
from dubito.serialization.objects import Serializable, clone

if TYPE_CHECKING:
    from dubito.calibrate.cross_validation import CalibrationEvidence, Folds

CONTAINERS = ("default", "pandas", "polars")
KEPT = ("_columns", "_sklearn_output_config")  # of what is pickled besides parameters
FLOOR = 1e-12  # the lowest calibrated probability; lower input probabilities are raised to it
MIN_TOTAL_WEIGHT = 2  # a smaller sum over many rows suggests weights normalized to sum to 1
FIRST_ROWS = slice(0, 100)  # where labels of several classes are looked for first
WIDE_ENTRIES = 1 << 18  # block size (2 MB) of calibrators that need extra numbers per row


def frame_columns(outputs: Any) -> tuple[str, ...] | None:
    """Return the columns of a data frame, or of outputs that were read from one."""
    origin = Origin.of(outputs)
    return None if origin is None else origin.columns


def require_columns(outputs: Any, fitted: Sequence[str] | None, caller: str) -> None:
    """Raise unless a data frame has the columns of the fit, in their order, as scikit-learn does.

    Columns without names, and a fit without a data frame, have nothing to compare. Outputs with
    class names may come from other columns, though not from the same ones in another order.
    """
    given = frame_columns(outputs)
    if given is None or fitted is None or len(given) != len(fitted) or given == (*fitted,):
        return
    numbered = [str(k) for k in range(len(given))]
    is_permuted = sorted(given) == sorted(fitted)
    if numbered in ([*given], [*fitted]) and not is_permuted:
        return
    if is_permuted or getattr(outputs, "classes", None) is None:
        first = next(k for k, (a, b) in enumerate(zip(given, fitted, strict=True)) if a != b)
        rule = f"must have the columns of the fit, in its order: {_shown(fitted)}"
        fix = f"Pass frame[{_shown(fitted)}]" if is_permuted else "Rename the columns"
        raise BadValueError("outputs", caller, rule, f"{given[first]!r} as column {first}", fix)


def _shown(names: Sequence[str]) -> str:
    """Return a list of names as text, of which some are left out if there are many."""
    listed = ", ".join(map(repr, names[:5]))
    return f"[{listed}{', ...' if len(names) > 5 else ''}]"


class OutputContainers(Serializable):
    """What `predict_proba` and `transform` return: data frames on request, tensors for tensors.

    Attributes
    ----------
    feature_names_in_ : array of str
        The columns of the data frame that was fitted on, if it was one.
    """

    _columns: tuple[str, ...] | None = None  # of the data frame that was fitted on

    def set_output(
        self, *, transform: Literal["default", "pandas", "polars"] | None = None
    ) -> Self:
        """Choose what `transform` and `predict_proba` return, as in scikit-learn.

        Parameters
        ----------
        transform : {"default", "pandas", "polars"}, optional
            A data frame with the index of the outputs, if they have one. Its columns are those of
            the data frame of the fit, or else the names of the classes or labels. None changes
            nothing.

        Returns
        -------
        BaseCalibrator
            The calibrator itself.
        """
        if transform is not None:
            caller = f"{type(self).__name__}.set_output"
            require_choice(transform, CONTAINERS, "transform", caller)
            self._sklearn_output_config = {"transform": transform}
        return self

    def fit_transform(self, outputs: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit, and return calibrated logits of the rows of the fit, as in scikit-learn.

        They are not held out: what calibration achieves is measured on other rows, or by
        `cross_validate_calibrator`.

        Parameters
        ----------
        outputs : Logits, Probabilities, MultiLabel, Scores or array
            Model outputs on rows that the model was not trained on.
        y : array, optional
            Labels, as `fit` takes them.
        **fit_params : any
            Passed to `fit`, such as `sample_weight`.

        Returns
        -------
        Logits, array, tensor or data frame
            What `transform` returns.
        """
        fitted: Any = self
        return fitted.fit(outputs, y, **fit_params).transform(outputs)

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Return the names of the columns of data frames that `transform` returns.

        Parameters
        ----------
        input_features : list of str, optional
            Used where neither the classes or labels nor the columns of the fit have names.

        Returns
        -------
        array of str
            The columns of the data frame that was fitted on, or the classes or labels.
        """
        self._require_fitted("get_feature_names_out")
        names, is_named = self._output_names()
        n_columns = len(names)
        if input_features is not None and not is_named:
            names = [str(one) for one in input_features]
        elif input_features is None and len(self._columns or ()) == n_columns:
            names = [*(self._columns or ())]
        if len(names) != n_columns:
            rule, fix = f"must be {n_columns} names, one per column", "Leave them out"
            caller = f"{type(self).__name__}.get_feature_names_out"
            raise BadValueError("input_features", caller, rule, f"{len(names)}", fix)
        return np.array(names, dtype=object)

    @property
    def feature_names_in_(self) -> NDArray[Any]:
        """The columns of the data frame that was fitted on; without one there is no such attribute.

        A data frame with other columns, or these in another order, is then refused.
        """
        if self._columns is None:
            raise AttributeError(f"{type(self).__name__} was not fitted on a data frame")
        return np.array(self._columns, dtype=object)

    @abstractmethod
    def _output_names(self) -> tuple[list[str], bool]:
        """Return the names of the classes or labels, and whether they are known."""

    def _contained(self, result: FloatArray, outputs: Any, *, is_transformed: bool = False) -> Any:
        """Return results in the container that was chosen, or as the kind that outputs are."""
        library = getattr(self, "_sklearn_output_config", {}).get("transform")
        if library is None and is_transformed and "sklearn" in sys.modules:
            library = sys.modules["sklearn"].get_config()["transform_output"]
        if library in (None, "default"):
            return restored(result, outputs)
        origin = Origin.of(outputs)
        index = None if origin is None else origin.index
        return as_frame(result, library, self.get_feature_names_out(), index)

    def __getstate__(self) -> dict[str, Any]:
        kept = {name: value for name, value in vars(self).items() if name in KEPT}
        return {**super().__getstate__(), **kept}


class BaseCalibrator(OutputContainers):
    """Base class of calibrators: fits on outputs and labels, returns calibrated probabilities.

    A subclass implements `_learn` (set the parameters from shards), `_logits` (calibrated logits
    of a block of rows) and `_describe` (the parameters in words). Parameters are attributes that
    end in `_`. They and the settings are all that a fitted calibrator holds, pickles and
    serializes; it never holds its training rows.

    Attributes
    ----------
    n_classes_ : int
        Number of classes, from the columns of the outputs.
    classes_ : tuple of str or int, or None
        Class names, if the outputs have any.

    See Also
    --------
    cross_validate_calibrator : What a calibrator achieves on held-out rows.
    """

    _label_argument: str = "y"  # what `fit` calls labels
    _is_rough: bool = False  # set for fits that only compare calibrators: save some rounds
    _needs_several_classes: ClassVar[bool] = True  # otherwise labels of one class are no problem

    n_classes_: int = fitted(integer(2))
    classes_: tuple[ClassName, ...] | None = fitted(class_names("n_classes_"))

    def fit(self, outputs: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Fit the calibrator.

        Parameters
        ----------
        outputs : Logits, Probabilities, Members, array of probabilities, or Shards
            Model outputs on rows that the model was not trained on. Shards hold labels and
            weights themselves.
        y : array of shape (n_rows,) or (n_rows, n_classes), optional
            Labels, or label probabilities. Rows with a missing label are left out with a warning.
        sample_weight : array of shape (n_rows,), optional
            Frequency weights: a weight of 2 equals two identical rows.

        Returns
        -------
        BaseCalibrator
            The fitted calibrator itself.
        """
        name = type(self).__name__
        known: dict[str, Any] = {
            "convert": self._as_outputs,
            "label_argument": self._label_argument,
        }
        shards = labeled_shards(outputs, y, sample_weight, name, **known)
        first = labeled_outputs(next(shards.batches()), name, **known)
        self._columns = frame_columns(outputs)
        # labeled_shards has counted missing labels in memory; CountedShards belong to an outer fit.
        is_counted = isinstance(shards, ArrayShards | CountedShards)
        stacklevel = 3 + (type(self).fit is not BaseCalibrator.fit)  # one more if overridden
        facts = {"n_classes_": first.n_classes, "classes_": first.classes}
        with self._fitting(**facts), kept_threads(), cached(shards) as quick:
            counted = None if is_counted else CountedShards(quick)
            self._learn(counted or quick)
            if self._needs_several_classes:
                self._warn_of_single_class(quick, stacklevel)
            if counted:
                warn_of_missing(*counted.n_missing_and_rows(), name, stacklevel)
        return self

    def _warn_of_single_class(self, shards: Shards, stacklevel: int) -> None:
        """Warn where all labels are of one class; more rows are read only if the first are."""

        def counts(batch: Batch) -> IntArray:
            labels, is_used = batch.class_labels, batch.labeled_weight > 0
            if labels.probabilities is not None:
                return np.asarray(np.count_nonzero(labels.probabilities[is_used] > 0, axis=0))
            return np.bincount(labels.codes[is_used], minlength=self.n_classes_)

        first = next(shards.batches())
        if any(np.count_nonzero(counts(one)) > 1 for one in (first.take(FIRST_ROWS), first)):
            return
        n_rows = shards.sum(counts)
        if np.count_nonzero(n_rows) == 1 and n_rows.sum() > 1:
            k = int(n_rows.argmax())
            name = repr((self.classes_ or range(self.n_classes_))[k])
            text = (
                f"{type(self).__name__}: all {n_rows[k]:,} labeled rows are of one class, {name}. "
                "Nothing can be learned about the others: their calibrated probabilities are too "
                "low. Fit on rows of several classes."
            )
            warnings.warn(text, SingleClassWarning, stacklevel)

    def predict_proba(self, outputs: Any) -> FloatArray:
        """Return calibrated probabilities.

        Parameters
        ----------
        outputs : Logits, Probabilities, Members or array of probabilities
            Model outputs over the classes of the fit.

        Returns
        -------
        array of shape (n_rows, n_classes)
            Rows sum to 1; no entry is below 1e-12. A tensor for tensors (of PyTorch, JAX or any
            library with the array API), without gradients: for these, see `export.to_module`.
        """
        result: FloatArray = self._contained(self._predict_proba(outputs), outputs)
        return result

    def _predict_proba(self, outputs: Any, method: str = "predict_proba") -> FloatArray:
        """Return calibrated probabilities as a NumPy array, whatever was chosen for users."""
        known = self._check_outputs(outputs, method)
        result = np.empty((known.n_rows, self.n_classes_), known.array.dtype)
        self._over_blocks(known, result, self._fill_probabilities)
        return result

    def predict(self, outputs: Any) -> IntArray:
        """Return the index of the most probable class after calibration.

        Parameters
        ----------
        outputs : Logits, Probabilities, Members or array of probabilities
            Model outputs over the classes of the fit.

        Returns
        -------
        array of int of shape (n_rows,)
            Column indices; ties go to the first column.
        """
        known = self._check_outputs(outputs, "predict")
        result = np.empty(known.n_rows, np.int64)
        self._over_blocks(known, result, self._fill_classes)
        return result

    def transform(self, outputs: Any) -> Logits:
        """Return calibrated logits, which keep probabilities too small for `predict_proba`.

        Parameters
        ----------
        outputs : Logits, Probabilities, Members or array of probabilities
            Model outputs over the classes of the fit.

        Returns
        -------
        Logits
            Their softmax is `predict_proba`, before its floor of 1e-12. For tensors a tensor, and
            after `set_output` a data frame, of these logits.
        """
        found = self._transform(outputs)
        result: Any = self._contained(found.array, outputs, is_transformed=True)
        chosen: Logits = found if result is found.array else result
        return chosen

    def _transform(self, outputs: Any) -> Logits:
        """Return calibrated logits, whatever was chosen for users."""
        known = self._check_outputs(outputs, "transform")
        if len(self._blocks(known)) == 1:  # of a block alone, the logits need not be copied
            with kept_threads():
                found = self._logits(known)
            is_shared = np.may_share_memory(found, known.array)
            result = np.array(found, known.array.dtype, copy=True if is_shared else None)
        else:
            result = np.empty((known.n_rows, self.n_classes_), known.array.dtype)
            self._over_blocks(known, result, lambda rows, out: np.copyto(out, self._logits(rows)))
        return Logits(freeze(result), self.classes_)

    def apply(self, outputs: Any) -> Logits | Probabilities:
        """Return calibrated outputs as they are computed: logits, or probabilities of a mixture.

        Parameters
        ----------
        outputs : Logits, Probabilities, Members or array of probabilities
            Model outputs over the classes of the fit.

        Returns
        -------
        Logits or Probabilities
            What `transform` or `predict_proba` returns, without computing one from the other.
        """
        return self._transform(outputs)

    def _output_names(self) -> tuple[list[str], bool]:
        return numbered_names(self.classes_, self.n_classes_, "class")

    def summary(self) -> str:
        """Return the fitted parameters in words, as part of a sentence.

        `cross_validate_calibrator` measures what calibration achieves.

        Returns
        -------
        str
            One sentence.
        """
        self._require_fitted("summary")
        return self._describe()

    def reduce_knots(self, tolerance: float = 1e-4) -> Self:
        """Return an equivalent calibrator with fewer knots, for smaller files.

        Parameters
        ----------
        tolerance : float
            How much the calibrated probability of one class against the rest may change.

        Returns
        -------
        BaseCalibrator
            A copy with simplified isotonic curves; the calibrator itself if it has none.
        """
        self._require_fitted("reduce_knots")
        as_fraction(tolerance, "tolerance", f"{type(self).__name__}.reduce_knots")
        return self._with_fewer_knots(float(tolerance))

    def _with_fewer_knots(self, tolerance: float) -> Self:
        """Return a copy whose parts have fewer knots; overridden by curves themselves."""
        parts = self._learned().get("calibrators_", [])
        reduced = [one._with_fewer_knots(tolerance) for one in parts]
        if all(after is before for after, before in zip(reduced, parts, strict=True)):
            return self
        twin = copy(self)
        twin.__dict__["calibrators_"] = reduced
        return twin

    def _unfitted_copy(self) -> BaseCalibrator:
        """Return an unfitted copy to fit on folds, which keeps what was selected on all rows."""
        return clone(self)

    def _fold_copy(self, outputs: Any) -> BaseCalibrator:
        """Return an unfitted copy to fit on folds of these outputs."""
        return self._unfitted_copy()

    def _labeled_shards(
        self, outputs: Any, y: Any, sample_weight: Any, groups: Any, caller: str
    ) -> Shards:
        known = (self._as_outputs, self._label_argument)
        shards = labeled_shards(outputs, y, sample_weight, caller, groups, *known, stacklevel=5)
        labeled_outputs(next(shards.batches()), caller, *known)
        return shards

    def _evidence(self, batch: Batch, folds: Folds) -> CalibrationEvidence:
        from dubito.calibrate.cross_validation import classification_evidence  # imports this

        return classification_evidence(self, batch, folds)

    def _as_outputs(self, outputs: Any, caller: str) -> Any:
        """Return outputs as the calibrator takes them: a matrix of classes, or scores."""
        return as_class_outputs(outputs, caller)

    def _uncalibrated(self, batch: Batch) -> Logits | Probabilities:
        """Return the outputs that calibration is compared with."""
        return as_class_outputs(batch.outputs, type(self).__name__)

    @abstractmethod
    def _learn(self, shards: Shards) -> None:
        """Set the parameters."""

    @abstractmethod
    def _logits(self, outputs: Logits | Probabilities) -> FloatArray:
        """Return calibrated log probabilities of a block, up to a constant per row."""

    def _add_probabilities(self, block: ColumnBlock, weight: float, mixed: FloatArray) -> None:
        """Add the calibrated probabilities of a block, times a weight, to `mixed`.

        `mixed` is classes x rows. Overridden where log probabilities would be a detour, and where
        the block knows them already.
        """
        logits = np.ascontiguousarray(self._logits(block.outputs).T, np.float64)
        add_softmax(logits, 1.0, weight, mixed)

    def _fill_probabilities(self, outputs: Logits | Probabilities, result: FloatArray) -> None:
        """Fill `result` with the calibrated probabilities of a block."""
        softmax_rows(contiguous(self._logits(outputs)), FLOOR, result)

    def _fill_classes(self, outputs: Logits | Probabilities, result: IntArray) -> None:
        """Fill `result` with the first most probable class of each row of a block."""
        np.argmax(self._logits(outputs), axis=1, out=result)

    @abstractmethod
    def _describe(self) -> str:
        """Return the parameters in a few words."""

    def _numbers_per_row(self) -> int:
        """Return how many numbers calibrating a row needs, which determines the block size."""
        return self.n_classes_

    def _over_blocks(
        self,
        outputs: Logits | Probabilities,
        result: NDArray[Any],
        fill: Callable[[Logits | Probabilities, NDArray[Any]], Any],
    ) -> None:
        """Call `fill` with each block of rows and its part of the result, using threads."""

        def fill_rows(rows: slice) -> None:
            fill(outputs.take(rows), result[rows])

        with kept_threads():
            run_in_order(fill_rows, self._blocks(outputs))

    def _blocks(self, outputs: Logits | Probabilities) -> list[slice]:
        """Return the ranges of rows that are calibrated at a time."""
        n_numbers = self._numbers_per_row()
        entries = WIDE_ENTRIES if n_numbers > outputs.n_classes else None
        return row_blocks(outputs.n_rows, n_numbers, entries)

    def _check_outputs(self, outputs: Any, method: str) -> Any:
        """Return outputs over the classes of the fit, or raise."""
        self._require_fitted(method)
        caller = f"{type(self).__name__}.{method}"
        require_columns(outputs, self._columns, caller)
        known = self._as_outputs(outputs, caller)
        require_classes(known, self.n_classes_, self.classes_, caller)
        return known


def not_a_calibrator(
    value: Any, caller: str, rule: str, fix: str, kind: type = Serializable
) -> BadTypeError:
    """Return the error for an option that is no calibrator, or the class instead of one."""
    got = repr(value)
    if isinstance(value, type):
        got = f"the class {value.__name__}"
        fix = f"Pass an instance: {value.__name__}()" if issubclass(value, kind) else fix
    return BadTypeError("calibrator", caller, rule, got, fix)


def require_same_classes(outer: BaseCalibrator, inner: BaseCalibrator, entry: Entry) -> None:
    """Raise unless a calibrator inside another one has the same classes."""
    if inner.n_classes_ != outer.n_classes_:
        raise entry.error(f"of {outer.n_classes_} classes", f"{inner.n_classes_}")
    if inner.classes_ != outer.classes_:
        raise entry.error("of the same classes", "other names")


def numbered_names(names: Sequence[Any] | None, n: int, noun: str) -> tuple[list[str], bool]:
    """Return names, or numbered ones, and whether they are known.

    >>> numbered_names(None, 2, "class")
    (['class0', 'class1'], False)
    """
    if names is None:
        return [f"{noun}{k}" for k in range(n)], False
    return [str(name) for name in names], True


@final
@dataclass(frozen=True, slots=True, eq=False)
class LabeledRows:
    """A batch as calibration kernels take it; rows without a label have weight 0.

    `soft_labels` (rows x classes) has no rows unless labels are probabilities.
    """

    outputs: Logits | Probabilities
    array: FloatArray
    is_logits: bool
    labels: IntArray
    soft_labels: FloatArray
    weight: FloatArray

    @classmethod
    def of(cls, batch: Batch) -> LabeledRows:
        outputs = as_class_outputs(batch.outputs, "a calibrator")
        labels, soft = batch.class_labels, batch.class_labels.probabilities
        return cls(
            outputs=outputs,
            array=contiguous(outputs.array),
            is_logits=isinstance(outputs, Logits),
            labels=contiguous(labels.codes),
            soft_labels=contiguous(np.empty((0, outputs.n_classes)) if soft is None else soft),
            weight=contiguous(batch.labeled_weight),
        )

    @property
    def is_soft(self) -> bool:
        """Whether labels are probabilities."""
        return len(self.soft_labels) == self.labels.size

    def label_likelihoods(
        self, probabilities: Sequence[FloatArray]
    ) -> tuple[FloatArray, FloatArray, IntArray]:
        """Return the likelihood of each label under several models, with weights and row numbers.

        Likelihoods are entries x models. A labeled row is one entry, a soft label one for each
        class of positive probability.
        """
        rows, classes, weights = self.label_entries()
        return np.stack([p[rows, classes] for p in probabilities], axis=1), weights, rows

    def label_entries(self) -> tuple[IntArray, IntArray, FloatArray]:
        """Return row, class and weight of each label; a soft label has several entries."""
        if self.is_soft:
            soft_weight = self.weight[:, np.newaxis] * self.soft_labels
            rows, classes = np.nonzero(soft_weight)
            return rows, classes, soft_weight[rows, classes]
        rows = np.flatnonzero(self.weight)
        return rows, np.asarray(self.labels[rows]), self.weight[rows]


def as_penalty(value: Any, argument: str, caller: str) -> float:
    """Return a penalty weight: a finite, non-negative number."""
    return as_number(value, argument, caller, 0, fix=f"Pass {argument}=1.0")


def as_class_outputs(
    outputs: Any, caller: str, argument: str = "outputs"
) -> Logits | Probabilities:
    """Return outputs as a single rows x classes matrix: the mean of members, arrays unchanged."""
    fix = "Pass the whole distribution over classes, or use VarianceScaling for regression"
    return as_class_matrix(outputs, argument, caller, fix)


def labeled_outputs(
    batch: Batch,
    caller: str,
    convert: Callable[[Any, str], Any] = as_class_outputs,
    label_argument: str = "y",
) -> Any:
    """Return the outputs of a batch that must have labels."""
    outputs = convert(batch.outputs, caller)
    if batch.labels is None:
        fix = "Pass the labels, or shards with a label column"
        raise BadTypeError(label_argument, caller, "must hold the labels", "None", fix)
    return outputs


def labeled_shards(
    outputs: Any,
    y: Any,
    sample_weight: Any,
    caller: str,
    groups: Any = None,
    convert: Callable[[Any, str], Any] = as_class_outputs,
    label_argument: str = "y",
    stacklevel: int = 4,
) -> Shards:
    """Return labeled rows as shards; arrays warn about missing labels and very small weights."""
    given = y
    if isinstance(outputs, TopLabel) and y is None:
        y = outputs.correct
    columns = {"sample_weight": sample_weight, "groups": groups}
    shards = make_shards(
        outputs, y, caller=caller, label_argument=label_argument, convert=convert, **columns
    )
    require_no_labels(given, outputs, label_argument, caller)
    batch = None if isinstance(outputs, Shards) else shards.in_memory
    if batch is not None:
        warn_of_missing(batch.n_missing, len(batch), caller, stacklevel)
        if sample_weight is not None:
            _warn_about_small_weights(batch.labeled_weight, caller, stacklevel)
    return shards


def _warn_about_small_weights(weight: FloatArray, caller: str, stacklevel: int) -> None:
    """Warn where many rows together count as about one."""
    n_rows, total = np.count_nonzero(weight), weight.sum()
    if total < min(MIN_TOTAL_WEIGHT, n_rows / 10):
        text = (
            f"{caller}: the weights of {n_rows:,} rows sum to {total:.3g}, and frequency weights "
            "count as that many rows. Rescale them to a mean of 1."
        )
        warnings.warn(text, DubitoWarning, stacklevel)


def correct_answers(batch: Batch) -> FloatArray:
    """Return 1 for correct answers and 0 for wrong ones, or the probability of being correct."""
    labels, soft = batch.class_labels, batch.class_labels.probabilities
    return labels.codes.astype(np.float64) if soft is None else soft[:, 1].copy()


def drop_unlabeled(batch: Batch) -> Batch:
    """Return the rows that have a label and a positive weight."""
    is_used = batch.labeled_weight > 0
    return batch if is_used.all() else batch.take(np.flatnonzero(is_used))


def log_probabilities(
    outputs: Logits | Probabilities, beta: float = 1.0, precision: str = "float64"
) -> FloatArray:
    """Return log probabilities at an inverse temperature."""
    result = np.empty(outputs.array.shape, precision)
    is_logits = isinstance(outputs, Logits)
    log_softmax_rows(contiguous(outputs.array), float(beta), is_logits, FLOOR, result)
    return result


def log_odds(outputs: Logits | Probabilities) -> FloatArray:
    """Return the log odds of each class against the rest, in float64."""
    return np.ascontiguousarray(ColumnBlock(outputs).log_odds.T)


@final
class ColumnBlock:
    """A block of rows, class by class: what several calibrators need is computed once.

    Attributes
    ----------
    outputs : Logits or Probabilities
    log_proba, log_odds : array of float64 of shape (n_classes, n_rows)
        Log probabilities, and the log odds of each class against the rest.
    features : dict of array of shape (n_features, n_rows)
        Features of log probabilities by inverse temperature, which parts of a mixture share.
    """

    def __init__(self, outputs: Logits | Probabilities) -> None:
        self.outputs = outputs
        self.features: dict[float, FloatArray] = {}

    @cached_property
    def log_proba(self) -> FloatArray:
        result = np.empty(self.outputs.array.shape[::-1])
        is_logits = isinstance(self.outputs, Logits)
        log_softmax_columns(contiguous(self.outputs.array), is_logits, FLOOR, result)
        return result

    @cached_property
    def log_odds(self) -> FloatArray:
        result = np.empty(self.log_proba.shape)
        log_odds_columns(self.log_proba, FLOOR, result)
        return result


def class_weights(shards: Shards) -> FloatArray:
    """Return the total weight of the labels of each class."""

    def weigh(batch: Batch) -> FloatArray:
        labels, weight = batch.class_labels, batch.labeled_weight
        if labels.probabilities is not None:
            return np.asarray(weight @ labels.probabilities)
        assert isinstance(batch.outputs, BaseClassOutputs)
        codes = np.maximum(labels.codes, 0)
        return np.bincount(codes, weight, batch.outputs.n_classes).astype(np.float64)

    return freeze(shards.sum(weigh))
