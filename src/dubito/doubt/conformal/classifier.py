"""Conformal prediction sets for classification."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Self, final

import numpy as np
from sklearn.base import clone

from dubito.arrays import (
    BoolArray,
    FloatArray,
    IntArray,
    RandomState,
    contiguous,
    draw_seed,
    freeze,
    require_random_state,
)
from dubito.data.batch import Batch
from dubito.data.labels import Labels, names_of
from dubito.doubt.conformal.scores import BaseConformal
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.softmax import log_odds_rows, log_softmax_rows
from dubito.measure.state import warn_of_missing
from dubito.outputs import ClassName, Logits, Members, Probabilities, as_outputs, unchecked
from dubito.serialization.fields import boolean, class_names, declare, integer, one_of

FLOOR = 1e-300  # a share below counts as this, so that log odds stay finite
GOLDEN = 0x9E3779B97F4A7C15  # steps of the generator SplitMix64


@final
class ConformalClassifier(BaseConformal):
    """Give each row the classes that it may be of: the truth is among them with chance `level`.

    The guarantee holds for any model and any n, if the rows of the fit were not trained on and are
    exchangeable with those to come. `method`, `randomize` and `random_state` are told above. With
    `allow_empty=False` a set that would be empty holds the most probable class: not smaller, so
    that the guarantee stays. Vovk, Gammerman and Shafer, "Algorithmic learning in a random
    world", 2005.

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

    unbounded = "their sets hold every class"

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

    def predict(self, outputs: Any, groups: Any = None) -> PredictionSets:
        """Return the set of each row, by the threshold of its group if the fit had groups."""
        self._require_fitted("predict")
        caller = f"{type(self).__name__}.predict"
        known = self._as_known(outputs, caller)
        _require_classes(known, self.n_classes_, self.classes_, caller)
        _require_bool(self.allow_empty, "allow_empty", caller)
        reach = self._reach(groups, known.n_rows, "predict")
        contains = np.empty(known.array.shape, dtype=bool)

        def fill(rows: slice) -> None:
            part, most = known.take(rows), reach[rows, np.newaxis]
            scores = _class_scores(part, self.method_, self.is_randomized_, self.random_state_)
            contains[rows] = scores <= most
            if self.method_ == "aps" and not self.is_randomized_:
                contains[rows] |= _odds_of_sums(part, np.zeros((part.n_rows, 1))) < most
            if not self.allow_empty:
                best = scores.argmin(axis=1, keepdims=True)
                np.put_along_axis(contains[rows], best, True, axis=1)

        for _ in map_in_order(fill, row_blocks(known.n_rows, known.n_classes)):
            pass
        return PredictionSets(freeze(contains), self.classes_)

    def _check_params(self) -> None:
        super()._check_params()
        name = type(self).__name__
        if self.method not in ("lac", "aps"):
            rule, fix = "'lac' or 'aps'", "method='lac'"
            raise BadValueError("method", name, rule, repr(self.method), fix)
        _require_bool(self.randomize, "randomize", name)
        _require_bool(self.allow_empty, "allow_empty", name)
        require_random_state(self.random_state, name)

    def _scorer(self) -> Self:
        scorer: Self = clone(self)
        scorer.random_state = draw_seed(self.random_state, type(self).__name__)
        return scorer

    def _as_known(self, outputs: Any, caller: str) -> Logits | Probabilities:
        wrapped = as_outputs(outputs, "outputs", caller)
        if isinstance(wrapped, Members):
            return wrapped.mean
        if not isinstance(wrapped, Logits | Probabilities):
            rule = "Logits, Probabilities, Members or an array of probabilities"
            fix = "the whole distribution over classes, or ConformalRegressor for a regression"
            raise BadTypeError("outputs", caller, rule, type(wrapped).__name__, fix)
        return wrapped

    def _facts(self, batch: Batch) -> dict[str, Any]:
        outputs = self._as_known(batch.outputs, type(self).__name__)
        _require_labels(batch.labels, "y", type(self).__name__)
        return {
            "n_classes_": outputs.n_classes,
            "classes_": outputs.classes,
            "method_": self.method,
            "is_randomized_": bool(self.randomize),
            "random_state_": draw_seed(self.random_state, type(self).__name__),
        }

    def _scores(self, batch: Batch) -> FloatArray:
        outputs, labels = self._as_known(batch.outputs, type(self).__name__), batch.labels
        assert isinstance(labels, Labels)
        columns = np.maximum(labels.codes, 0)[:, np.newaxis]
        seed = draw_seed(self.random_state, type(self).__name__)

        def of(rows: slice) -> FloatArray:
            part = outputs.take(rows)
            scores = _class_scores(part, self.method, self.randomize, seed)
            return np.asarray(np.take_along_axis(scores, columns[rows], axis=1)[:, 0])

        blocks = row_blocks(outputs.n_rows, outputs.n_classes) or [slice(0, 0)]
        return np.concatenate(list(map_in_order(of, blocks)))


@final
@dataclass(frozen=True, slots=True, eq=False)
class PredictionSets:
    """A set of classes a row: `contains` says of each class (rows x classes) whether it is in."""

    contains: BoolArray
    classes: tuple[ClassName, ...] | None = None

    @property
    def sizes(self) -> IntArray:
        """How many classes each set holds."""
        return np.asarray(np.count_nonzero(self.contains, axis=1))

    def names(self, row: int) -> list[ClassName]:
        """Return the classes of a row's set: by name, or by column number if they have none."""
        every = names_of(self._columns())
        return [every[column] for column in np.flatnonzero(self.contains[row])]

    def coverage(self, y: Any) -> float:
        """Return the share of rows whose label is in their set; rows without one are left out."""
        caller = "PredictionSets.coverage"
        labels = _require_labels(Labels.of(y, self._columns(), "y", caller), "y", caller)
        warn_of_missing(labels.n_missing, labels.codes.size, caller, stacklevel=3)
        is_known = ~labels.is_missing
        if not is_known.any():
            raise EmptyStateError("Coverage")
        return float(self.contains[is_known, labels.codes[is_known]].mean())

    def _columns(self) -> Probabilities:
        """Return outputs of the same rows and classes, by which labels are read."""
        blank = np.broadcast_to(np.float32(1), self.contains.shape)
        return unchecked(Probabilities, {"array": blank, "classes": self.classes})


def _require_labels(labels: Any, argument: str, caller: str) -> Labels:
    """Return labels that are one class a row, or raise."""
    if not isinstance(labels, Labels):
        fix = "the true labels; of shards, a column of them"
        raise BadTypeError(argument, caller, "the labels", "None", fix)
    if labels.probabilities is not None:
        rule, fix = "one label a row", "the most probable class of each row, or a draw from them"
        raise BadValueError(argument, caller, rule, "label probabilities", fix)
    return labels


def _require_classes(
    outputs: Logits | Probabilities,
    n_classes: int,
    classes: tuple[ClassName, ...] | None,
    caller: str,
) -> None:
    """Raise unless outputs are over the classes of the fit."""
    if outputs.n_classes != n_classes:
        rule, fix = f"over the {n_classes} classes of the fit", "the same columns"
        raise BadValueError("outputs", caller, rule, f"{outputs.n_classes} columns", fix)
    if None not in (outputs.classes, classes) and outputs.classes != classes:
        rule, fix = f"over the classes {classes}", "the columns in the fit's order"
        raise BadValueError("outputs", caller, rule, f"{outputs.classes}", fix)


def _require_bool(value: Any, argument: str, caller: str) -> None:
    """Raise unless a setting is True or False."""
    if not isinstance(value, bool | np.bool_):
        fix = f"{argument}=True"
        raise BadValueError(argument, caller, "True or False", repr(value), fix)


def _class_scores(
    outputs: Logits | Probabilities, method: str, randomize: bool, seed: int
) -> FloatArray:
    """Return the log odds of the score of each class: what fit and predict both go by."""
    if method == "lac":
        return _odds_against(outputs)
    share = _shares_of(_canonical(outputs), seed) if randomize else np.ones(outputs.n_rows)
    return _odds_of_sums(outputs, share[:, np.newaxis])


def _odds_against(outputs: Logits | Probabilities) -> FloatArray:
    """Return the log odds of 1 - p, a class each."""
    odds = np.empty(outputs.array.shape)
    log_odds_rows(contiguous(outputs.array), isinstance(outputs, Logits), FLOOR, odds)
    return -odds


def _odds_of_sums(outputs: Logits | Probabilities, share: FloatArray) -> FloatArray:
    """Return the log odds of the sum over more probable classes and of a share of the class's own.

    What is left of 1 is summed from the other end: no 1 - 0.9999999. Of equal classes the first is
    taken as more probable.
    """
    p = outputs.array.astype(np.float64)
    if isinstance(outputs, Logits):
        log_softmax_rows(contiguous(p.copy()), 1.0, True, FLOOR, p)
        p = np.exp(p)
    order = _falling(p)
    ranked = np.take_along_axis(p, order, axis=1)
    before, after = np.zeros_like(p), np.zeros_like(p)
    before[:, 1:] = np.cumsum(ranked[:, :-1], axis=1)
    after[:, :-1] = np.cumsum(ranked[:, :0:-1], axis=1)[:, ::-1]
    inside = np.maximum(before + share * ranked, FLOOR)
    outside = np.maximum(after + (1 - share) * ranked, FLOOR)
    scores = np.empty_like(p)
    np.put_along_axis(scores, order, np.log(inside) - np.log(outside), axis=1)
    return scores


def _falling(p: FloatArray) -> IntArray:
    """Return the columns of each row by falling value, of equal ones the first before the others.

    The quick sort keeps no order among equals: only rows that have some are sorted by the slow one.
    """
    order = np.argsort(-p, axis=1)
    ranked = np.take_along_axis(p, order, axis=1)
    has_equals = (ranked[:, 1:] == ranked[:, :-1]).any(axis=1)
    order[has_equals] = np.argsort(-p[has_equals], axis=1, kind="stable")
    return order


def _canonical(outputs: Logits | Probabilities) -> FloatArray:
    """Return entries as float64 that are the same of float32 numbers and of their float64 copies.

    Probabilities of float64 were made to sum to 1 more closely than those of float32: here both
    are, and are then rounded to float32. There is no -0.
    """
    entries = outputs.array.astype(np.float64)
    if isinstance(outputs, Probabilities):
        shares = entries / entries.sum(axis=1, keepdims=True)
        entries = shares.astype(np.float32).astype(np.float64)
    return np.asarray(entries + 0.0)


def _shares_of(array: FloatArray, seed: int) -> FloatArray:
    """Return a number from 0 to 1 a row, as good as random, that its entries and a seed determine.

    The score of a row is then a function of the row alone, so that the guarantee needs no more than
    exchangeable rows, and one row served by itself fares as it would among many.
    """
    words = contiguous(array).view(np.uint32).astype(np.uint64)
    steps = np.arange(1, words.shape[1] + 1, dtype=np.uint64) * np.uint64(GOLDEN)
    factors = _mixed(steps + np.array([seed], dtype=np.uint64)) | np.uint64(1)
    bits = _mixed((words * factors).sum(axis=1, dtype=np.uint64))
    return np.asarray((bits >> np.uint64(11)) * 2.0**-53)


def _mixed(bits: Any) -> Any:
    """Return 64-bit words, each bit of which depends on all bits of its own (SplitMix64)."""
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return bits ^ (bits >> np.uint64(31))
