"""Conformal prediction sets for classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, final

import numpy as np

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    RandomState,
    contiguous,
    draw_seed,
    freeze,
    require_bool,
    require_choice,
    require_random_state,
)
from dubito.data.batch import Batch
from dubito.data.labels import Labels, names_of
from dubito.data.shards import Shards
from dubito.doubt.conformal.predictor import BaseConformalPredictor
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.kernels.softmax import log_odds_rows, log_softmax_rows
from dubito.measure.state import warn_of_missing
from dubito.outputs import (
    ClassName,
    Logits,
    Probabilities,
    as_class_matrix,
    require_classes,
    unchecked,
)
from dubito.serialization.fields import boolean, class_names, declare, integer, one_of
from dubito.serialization.objects import clone

FLOOR = 1e-300  # of a probability, so that log odds stay finite
GOLDEN = 0x9E3779B97F4A7C15  # the increment of SplitMix64


@final
class ConformalClassifier(BaseConformalPredictor):
    """Prediction sets that contain the true class with probability at least `level`.

    The guarantee holds for any model and any number of calibration rows, if these were not
    trained on and are exchangeable with new rows.

    Parameters
    ----------
    level : float, default=0.9
        The coverage, above 0 and below 1.
    method : {"lac", "aps"}, default="lac"
        "lac" scores a class by 1 - its probability and gives the smallest sets on average. "aps"
        sums the probabilities of the more probable classes, and adapts better to difficult rows.
    randomize : bool, default=True
        For "aps", count a random part of a class's own probability, which makes the coverage
        exact and the sets smaller. The random number depends on the row's outputs and
        `random_state` only, so that a row has the same set alone and in a batch.
    allow_empty : bool, default=True
        If False, an empty set holds the most probable class instead.
    random_state : int, RandomState or None, default=0
        The seed of the randomization.

    Attributes
    ----------
    thresholds_ : dict
        The threshold by group ("all" without groups), as log odds of the score; None if there
        are too few rows.
    n_rows_ : dict
        The number (or weight) of calibration rows by group.
    is_grouped_ : bool
        Whether the fit had groups.
    n_classes_, classes_ : int, tuple or None
        The number of classes, and their names if they have any.
    method_, is_randomized_, random_state_ : str, bool, int
        The settings of the fit, with the seed drawn.

    References
    ----------
    Vovk, Gammerman and Shafer, "Algorithmic learning in a random world", 2005; Sadinle, Lei and
    Wasserman, "Least ambiguous set-valued classifiers with bounded error levels", 2019 (LAC);
    Romano, Sesia and Candès, "Classification with valid and adaptive coverage", 2020 (APS).

    Examples
    --------
    >>> p = [[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]]
    >>> sets = ConformalClassifier(level=0.8).fit(p, [0, 0, 0, 0]).predict([[0.9, 0.1], [0.6, 0.4]])
    >>> sets.sizes.tolist(), sets.names(0), sets.names(1)
    ([1, 2], [0], [0, 1])
    """

    n_classes_: int
    classes_: tuple[ClassName, ...] | None
    method_: Literal["lac", "aps"]
    is_randomized_: bool
    random_state_: int

    fitted_fields = declare(
        n_classes_=integer(2),
        classes_=class_names("n_classes_"),
        method_=one_of("lac", "aps"),
        is_randomized_=boolean,
        random_state_=integer(0, 2**32 - 1),
    )

    unbounded = "sets hold every class"

    def __init__(
        self,
        level: float = 0.9,
        method: Literal["lac", "aps"] = "lac",
        randomize: bool = True,
        allow_empty: bool = True,
        random_state: RandomState = 0,
    ) -> None:
        self.level = level
        self.method = method
        self.randomize = randomize
        self.allow_empty = allow_empty
        self.random_state = random_state

    def predict(
        self, outputs: Any, groups: Any = None, density_ratio: Any = None
    ) -> PredictionSets:
        """Return the prediction set of each row.

        Parameters
        ----------
        outputs : Logits, Probabilities, Members or array-like of shape (n_rows, n_classes)
            Outputs over the classes of the fit.
        groups : array-like of shape (n_rows,), optional
            The group of each row, if the fit had groups.
        density_ratio : array-like of shape (n_rows,), optional
            The density ratio of each row, if the fit had it.

        Returns
        -------
        PredictionSets
            The sets; they hold every class if there were too few calibration rows.
        """
        self._require_fitted("predict")
        caller = f"{type(self).__name__}.predict"
        wrapped = self._as_outputs(outputs, caller)
        require_classes(wrapped, self.n_classes_, self.classes_, caller)
        require_bool(self.allow_empty, "allow_empty", caller)
        thresholds = self._row_thresholds(groups, wrapped.n_rows, "predict", density_ratio)
        contains = np.empty(wrapped.array.shape, dtype=bool)

        def fill(rows: slice) -> None:
            part, limit = wrapped.take(rows), thresholds[rows, np.newaxis]
            scores = _class_scores(part, self.method_, self.is_randomized_, self.random_state_)
            contains[rows] = scores <= limit
            if self.method_ == "aps" and not self.is_randomized_:
                contains[rows] |= _cumulative_odds(part, np.zeros((part.n_rows, 1))) < limit
            if not self.allow_empty:
                best = scores.argmin(axis=1, keepdims=True)
                np.put_along_axis(contains[rows], best, True, axis=1)

        run_in_order(fill, row_blocks(wrapped.n_rows, wrapped.n_classes))
        return PredictionSets(freeze(contains), self.classes_)

    def _check_params(self) -> None:
        super()._check_params()
        name = type(self).__name__
        require_choice(self.method, ("lac", "aps"), "method", name)
        require_bool(self.randomize, "randomize", name)
        require_bool(self.allow_empty, "allow_empty", name)
        require_random_state(self.random_state, name)

    def _prepare(
        self, shards: Shards, ratio: FloatArray | None
    ) -> tuple[Self, Shards, FloatArray | None]:
        scorer: Self = clone(self)
        scorer.random_state = draw_seed(self.random_state, type(self).__name__)
        return scorer, shards, ratio

    def _as_outputs(self, outputs: Any, caller: str) -> Logits | Probabilities:
        fix = "Pass probabilities of all classes, or use ConformalRegressor for regression"
        return as_class_matrix(outputs, "outputs", caller, fix)

    def _facts(self, batch: Batch) -> dict[str, Any]:
        outputs = self._as_outputs(batch.outputs, type(self).__name__)
        _require_labels(batch.labels, type(self).__name__)
        return {
            "n_classes_": outputs.n_classes,
            "classes_": outputs.classes,
            "method_": self.method,
            "is_randomized_": bool(self.randomize),
            "random_state_": draw_seed(self.random_state, type(self).__name__),
        }

    def _scores(self, batch: Batch) -> FloatArray:
        name = type(self).__name__
        outputs, seed = self._as_outputs(batch.outputs, name), draw_seed(self.random_state, name)
        scores = _class_scores(outputs, self.method, self.randomize, seed)
        columns = np.maximum(batch.class_labels.codes, 0)[:, np.newaxis]
        return np.asarray(np.take_along_axis(scores, columns, axis=1)[:, 0])


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PredictionSets:
    """A set of classes per row.

    Attributes
    ----------
    contains : ndarray of bool, shape (n_rows, n_classes)
        Whether each class is in the set.
    classes : tuple or None
        The names of the classes.

    Examples
    --------
    >>> sets = PredictionSets(np.array([[True, False], [True, True]]), ("cat", "dog"))
    >>> sets.sizes.tolist(), sets.names(1), sets.coverage(["cat", "dog"])
    ([1, 2], ['cat', 'dog'], 1.0)
    """

    contains: BoolArray
    classes: tuple[ClassName, ...] | None = None

    def __repr__(self) -> str:
        n_rows, n_classes = self.contains.shape
        size = f", mean size {self.sizes.mean():.3g}" if n_rows else ""
        return f"PredictionSets({n_rows} rows x {n_classes} classes{size})"

    @property
    def sizes(self) -> IntArray:
        """The number of classes in each set."""
        return np.asarray(np.count_nonzero(self.contains, axis=1))

    def names(self, row: int) -> list[ClassName]:
        """Return the classes in a row's set.

        Parameters
        ----------
        row : int
            The row.

        Returns
        -------
        list
            Names, or column indices if classes have no names.
        """
        every = names_of(self._columns())
        return [every[column] for column in np.flatnonzero(self.contains[row])]

    def coverage(self, y: Any) -> float:
        """Return the fraction of rows whose label is in their set.

        Parameters
        ----------
        y : array-like of shape (n_rows,)
            The true labels. Rows where it is missing are ignored with a warning.

        Returns
        -------
        float
            The empirical coverage.
        """
        caller = "PredictionSets.coverage"
        labels = _require_labels(Labels.of(y, self._columns(), "y", caller), caller)
        warn_of_missing(labels.n_missing, labels.codes.size, caller, stacklevel=3)
        is_known = ~labels.is_missing
        if not is_known.any():
            raise EmptyStateError("Coverage")
        return float(self.contains[is_known, labels.codes[is_known]].mean())

    def _columns(self) -> Probabilities:
        """Return outputs of the same shape and classes, against which labels are read."""
        blank = np.broadcast_to(np.float32(1), self.contains.shape)
        return unchecked(Probabilities, {"array": blank, "classes": self.classes})


def _require_labels(labels: Any, caller: str) -> Labels:
    """Return labels with one class per row, or raise."""
    if not isinstance(labels, Labels):
        fix = "Pass y, or shards with a label column"
        raise BadTypeError("y", caller, "must hold the labels", "None", fix)
    if labels.probabilities is not None:
        rule, fix = "must hold one label per row", "Use the most probable class of each row"
        raise BadValueError("y", caller, rule, "label probabilities", fix)
    return labels


def _class_scores(
    outputs: Logits | Probabilities, method: str, randomize: bool, seed: int
) -> FloatArray:
    """Return the score of each class as log odds, for fit and predict alike."""
    if method == "lac":
        return _complement_odds(outputs)
    part = _row_uniforms(_canonical(outputs), seed) if randomize else np.ones(outputs.n_rows)
    return _cumulative_odds(outputs, part[:, np.newaxis])


def _complement_odds(outputs: Logits | Probabilities) -> FloatArray:
    """Return the log odds of 1 - p for each class."""
    odds = np.empty(outputs.array.shape)
    log_odds_rows(contiguous(outputs.array), isinstance(outputs, Logits), FLOOR, odds)
    return -odds


def _cumulative_odds(outputs: Logits | Probabilities, part: FloatArray) -> FloatArray:
    """Return the log odds of the sum over more probable classes plus a part of the class's own.

    The complement is summed from the other end, to avoid 1 - 0.9999999. Of equally probable
    classes the first counts as more probable.
    """
    p = outputs.array.astype(np.float64)
    if isinstance(outputs, Logits):
        log_softmax_rows(contiguous(p.copy()), 1.0, True, FLOOR, p)
        p = np.exp(p)
    order = _descending_order(p)
    ranked = np.take_along_axis(p, order, axis=1)
    before, after = np.zeros_like(p), np.zeros_like(p)
    before[:, 1:] = np.cumsum(ranked[:, :-1], axis=1)
    after[:, :-1] = np.cumsum(ranked[:, :0:-1], axis=1)[:, ::-1]
    inside = np.maximum(before + part * ranked, FLOOR)
    outside = np.maximum(after + (1 - part) * ranked, FLOOR)
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, np.log(inside) - np.log(outside), axis=1)
    return scores


def _descending_order(p: FloatArray) -> IntArray:
    """Return the columns of each row by descending value, ties in column order.

    The default sort is faster but not stable: only rows with ties are sorted again.
    """
    order = np.argsort(-p, axis=1)
    ranked = np.take_along_axis(p, order, axis=1)
    has_ties = (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)
    order[has_ties] = np.argsort(-p[has_ties], axis=1, kind="stable")
    return order


def _canonical(outputs: Logits | Probabilities) -> FloatArray:
    """Return float64 entries that are the same for float32 outputs and their float64 copies.

    Both kinds of probabilities are renormalized and rounded to float32. There is no -0.
    """
    entries = outputs.array.astype(np.float64)
    if isinstance(outputs, Probabilities):
        normalized = entries / entries.sum(axis=1, keepdims=True)
        entries = normalized.astype(np.float32).astype(np.float64)
    return np.asarray(entries + 0.0)


def _row_uniforms(array: FloatArray, seed: int) -> FloatArray:
    """Return a pseudorandom number from 0 to 1 per row, determined by its entries and the seed.

    The score of a row is then a function of the row alone: the guarantee needs exchangeable rows
    only, and a row has the same set alone and in a batch.
    """
    words = contiguous(array).view(np.uint32).astype(np.uint64)
    steps = np.arange(1, words.shape[1] + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    factors = _mixed(steps + np.array([seed], dtype=np.uint64)) | np.uint64(1)
    bits = _mixed((words * factors).sum(axis=1, dtype=np.uint64))
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53)


def _mixed(bits: Any) -> Any:
    """Return 64-bit words hashed by the finalizer of SplitMix64."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
