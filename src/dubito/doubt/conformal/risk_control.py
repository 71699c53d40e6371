"""Risk control: thresholds whose expected loss is bounded, of any loss and of sets of labels."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import scipy

from dubito.arrays import (
    BoolArray,
    FloatArray,
    as_floats,
    as_fraction,
    as_number,
    as_numbers,
    freeze,
    require_bool,
    require_choice,
    require_dimensions,
)
from dubito.data.batch import as_weights
from dubito.data.labels import as_label_matrix, require_own_places
from dubito.data.shards import load_rows, make_shards
from dubito.doubt.conformal.classifier import PredictionSets
from dubito.errors import BadValueError, DubitoWarning, EmptyStateError
from dubito.formatting import join_words, percent
from dubito.outputs import ClassName, MultiLabel, as_multilabel, in_fitted_order
from dubito.serialization.array_fields import array
from dubito.serialization.fields import Entry, boolean, class_names, fitted, integer, number
from dubito.serialization.objects import Serializable

METRICS = ("recall", "false_positives", "precision")
NEVER = 2.0  # a threshold above every probability
ROUNDING = 1e-9  # relative error of sums of losses
MIN_KNOWN = 0.8  # fraction of labels; with fewer, overall recall is biased visibly
N_SHOWN = 5  # names of labels in a warning


@final
class RiskControl(Serializable):
    """The boldest threshold whose expected loss is guaranteed to stay within a target.

    For any loss that depends on a threshold: the fraction of a lesion that a segmentation misses,
    the cost of a row. Conformal risk control ("crc") bounds the expected loss of a new row, over
    new rows and calibration sets; the loss of a row must not fall from a safe threshold to a bolder
    one. Learn then test ("ltt") bounds the mean loss of new rows except with probability `delta`,
    for any loss: it tests the thresholds one after the other, by the p-values of Hoeffding and
    Bentkus, and stops at the first that fails. Rows must be exchangeable with new ones ("ltt":
    independent) and unseen by the model; thresholds must be chosen without looking at the losses.

    Parameters
    ----------
    target : float, default=0.1
        The highest expected loss, above 0 and below `max_loss`.
    method : {"crc", "ltt"}, default="crc"
        Conformal risk control or learn then test.
    delta : float, optional
        For "ltt" only: the probability that the mean loss exceeds the target, e.g. 0.1.
    max_loss : float, default=1.0
        The largest loss that a row can have (B in the literature), not only those of the fit.
    monotonize : bool, default=False
        For "crc" only: replace the loss of a row at each threshold by its largest at this and all
        safer ones. That never falls, so its bound holds for the loss as well.

    Attributes
    ----------
    threshold_ : float
        The last threshold, from safe to bold, for which the guarantee holds.
    thresholds_, mean_losses_ : array of shape (n_thresholds,)
        All thresholds, and their mean loss on the calibration rows (monotonized if requested).
    bounds_ : array of shape (n_thresholds,)
        What is compared with the target ("crc": the bound of the expected loss) or with `delta`
        ("ltt": the p-value of a mean loss above the target).
    n_rows_ : float
        The number (or weight) of calibration rows.
    n_thresholds_ : int
        The number of thresholds.

    References
    ----------
    Angelopoulos, Bates, Fisch, Lei and Schuster, "Conformal risk control", ICLR 2024;
    Angelopoulos, Bates, Candès, Jordan and Lei, "Learn then test: calibrating predictive algorithms
    to achieve risk control", 2021.

    Examples
    --------
    Masks of 200 images: the fraction of the true pixels that a threshold misses.

    >>> import numpy as np
    >>> from dubito import RiskControl
    >>> rng = np.random.default_rng(0)
    >>> scores = rng.random((200, 8, 8))
    >>> masks = rng.random(scores.shape) < scores
    >>> def missed(threshold):
    ...     return 1 - (masks & (scores >= threshold)).sum(axis=(1, 2)) / masks.sum(axis=(1, 2))
    >>> print(RiskControl(0.1).fit(missed, np.linspace(0, 1, 101)))
    Threshold 0.31: the expected loss is at most 0.1 (conformal risk control).
    Mean loss 0.09523 of 200 rows, of at most 1.

    A matrix of losses, rows x thresholds, and a guarantee for the mean loss of new rows:

    >>> losses = np.column_stack([missed(0.1), missed(0.2), missed(0.3)])
    >>> print(RiskControl(0.1, "ltt", delta=0.1).fit(losses, [0.1, 0.2, 0.3]))
    Threshold 0.2: the mean loss is at most 0.1 with probability 90.0 % (learn then test).
    Mean loss 0.04142 of 200 rows, of at most 1.
    """

    n_thresholds_: int = fitted(integer(1))
    threshold_: float = fitted(number())
    thresholds_: FloatArray = fitted(array("n_thresholds_"))
    mean_losses_: FloatArray = fitted(array("n_thresholds_", low=0))
    bounds_: FloatArray = fitted(array("n_thresholds_", low=0))
    n_rows_: float = fitted(number(0))

    def __init__(
        self,
        target: float = 0.1,
        method: str = "crc",
        delta: float | None = None,
        max_loss: float = 1.0,
        monotonize: bool = False,
    ) -> None:
        self.target = target
        self.method = method
        self.delta = delta
        self.max_loss = max_loss
        self.monotonize = monotonize

    def fit(self, losses: Any, thresholds: Any, sample_weight: Any = None) -> Self:
        """Find the threshold, on rows that the model was not fitted on.

        Parameters
        ----------
        losses : array of shape (n_rows, n_thresholds) or callable
            From 0 to `max_loss`, one column per threshold; or a function of a threshold that
            returns the losses of all rows, for which no matrix is kept.
        thresholds : array of shape (n_thresholds,)
            From the safest to the boldest: rising if a higher threshold can lose more (missed
            pixels), falling if a lower one can (false alarms).
        sample_weight : array of shape (n_rows,), optional
            Frequency weights.

        Returns
        -------
        RiskControl
            Itself.
        """
        name = type(self).__name__
        self._check_params()
        order = as_numbers(thresholds, "thresholds", name, shape="a list of numbers")
        steps = np.diff(order)
        if not order.size or not ((steps > 0).all() or (steps < 0).all()):
            rule, got = "must rise or fall from the safest to the boldest", f"{order.tolist()[:5]}"
            raise BadValueError("thresholds", name, rule, got, "Sort them, without repetitions")
        sums, n_rows = self._add_up(losses, order, sample_weight)
        if self.method == "crc":
            bounds = (sums + self.max_loss) / (n_rows + 1)
            is_fine = bounds <= self.target * (1 + ROUNDING)
        else:
            bounds = _p_values(sums / self.max_loss, n_rows, self.target / self.max_loss)
            is_fine = bounds <= float(self.delta or 0)
        n_fine = _n_before_failure(is_fine)
        if not n_fine:
            is_bound = self.method == "crc"
            limit, what = (self.target, "bound") if is_bound else (self.delta, "p-value")
            rule = f"must allow a threshold whose {what} is at most {limit:g}"
            got = f"{bounds[0]:.4g} at the safest, {order[0]:g}, of {n_rows:g} rows"
            fix = "Add a safer threshold or more rows, or allow a higher target"
            raise BadValueError("losses", name, rule, got, fix)
        self._forget()
        self.n_thresholds_, self.n_rows_ = order.size, n_rows
        self.threshold_ = float(order[n_fine - 1])
        self.thresholds_, self.mean_losses_ = freeze(order.copy()), freeze(sums / n_rows)
        self.bounds_ = freeze(bounds)
        return self

    def _check_fitted(self, entry: Entry) -> None:
        if self.threshold_ not in self.thresholds_:
            raise entry.at("threshold_").error("one of thresholds_", f"{self.threshold_:g}")

    def __str__(self) -> str:
        if not self.__sklearn_is_fitted__():
            return repr(self)
        mean = self.mean_losses_[np.flatnonzero(self.thresholds_ == self.threshold_)[0]]
        promise, how = f"expected loss is at most {self.target:g}", "conformal risk control"
        if self.delta is not None:
            promise = f"mean loss is at most {self.target:g} with probability "
            promise, how = promise + percent(1 - self.delta), "learn then test"
        return (
            f"Threshold {self.threshold_:g}: the {promise} ({how}).\n"
            f"Mean loss {mean:.4g} of {self.n_rows_:,g} rows, of at most {self.max_loss:g}."
        )

    def _add_up(
        self, losses: Any, thresholds: FloatArray, sample_weight: Any
    ) -> tuple[FloatArray, float]:
        """Return the sum of the losses at each threshold, and the number of rows."""
        name = type(self).__name__
        sums = np.empty(thresholds.size)
        weight: FloatArray = np.empty(0)
        before = weight
        for k, column in enumerate(_columns(losses, thresholds, name)):
            if not k:
                weight = as_weights(sample_weight, column.size, name)
                if not weight.any():
                    raise EmptyStateError(name)
            elif column.size != before.size:
                rule = f"must return {before.size:,} losses for every threshold"
                got = f"{column.size:,} for {thresholds[k]:g}"
                raise BadValueError("losses", name, rule, got, "Return one loss per row")
            column = np.where(weight > 0, column, 0.0)
            is_outside = ~((column >= 0) & (column <= self.max_loss * (1 + ROUNDING)))
            if is_outside.any():
                row = int(np.argmax(is_outside))
                rule = f"must be from 0 to max_loss={self.max_loss:g}"
                got = f"{column[row]:g} in row {row}, threshold {thresholds[k]:g}"
                fix = "Use losses that start at 0, one for every row"
                if column[row] > self.max_loss:
                    fix = "Pass the largest possible loss as max_loss"
                raise BadValueError("losses", name, rule, got, fix)
            if self.monotonize and k:
                column = np.maximum(column, before)
            elif self.method == "crc" and k:
                self._require_no_fall(before, column, thresholds[k - 1 : k + 1])
            sums[k] = weight @ column
            before = column
        return sums, float(weight.sum())

    def _require_no_fall(
        self, before: FloatArray, column: FloatArray, thresholds: FloatArray
    ) -> None:
        """Raise if the loss of a row falls from one threshold to the next."""
        falls = before - column
        row = int(np.argmax(falls))
        if falls[row] > ROUNDING * self.max_loss:
            rule = "must not fall from a threshold to the next with method='crc'"
            got = (
                f"{before[row]:g} at {thresholds[0]:g} and {column[row]:g} at {thresholds[1]:g} "
                f"in row {row}, a fall by {falls[row]:g}"
            )
            fix = "Pass monotonize=True, or method='ltt' with a delta"
            if (falls >= 0).all():
                fix = "If it falls in every row, pass thresholds from the safest to the boldest, "
                fix += "in reverse; otherwise monotonize=True, or method='ltt' with a delta"
            raise BadValueError("losses", type(self).__name__, rule, got, fix)

    def _check_params(self) -> None:
        name = type(self).__name__
        require_choice(self.method, ("crc", "ltt"), "method", name)
        require_bool(self.monotonize, "monotonize", name)
        as_number(self.max_loss, "max_loss", name, 0, fix="Pass max_loss=1", is_open=True)
        as_number(self.target, "target", name, 0, fix="Pass target=0.1", is_open=True)
        if self.target >= self.max_loss:
            rule, fix = f"must be below max_loss={self.max_loss:g}", "Lower it, or raise max_loss"
            raise BadValueError("target", name, rule, f"{self.target:g}", fix)
        if (self.delta is not None) != (self.method == "ltt"):
            rule, fix = "must be None for method='crc'", "Leave it out, or pass method='ltt'"
            if self.method == "ltt":
                rule, fix = "must be given for method='ltt'", "Pass delta=0.1"
            raise BadValueError("delta", name, rule, repr(self.delta), fix)
        if self.delta is not None:
            as_fraction(self.delta, "delta", name, is_open=True)
            if self.monotonize:
                rule, fix = "must be False for method='ltt'", "Leave it out: any loss is tested"
                raise BadValueError("monotonize", name, rule, "True", fix)


def _columns(losses: Any, thresholds: FloatArray, caller: str) -> Iterator[FloatArray]:
    """Yield the losses of all rows at each threshold, from a matrix or a function."""
    if not callable(losses):
        matrix = as_floats(losses, "losses", caller)
        require_dimensions(matrix, (2,), "losses", caller, "rows x thresholds")
        if matrix.shape[1] != thresholds.size:
            rule = f"must have one column per threshold ({thresholds.size:,})"
            fix = "Compute the losses at these thresholds, in the same order"
            raise BadValueError("losses", caller, rule, f"{matrix.shape[1]:,} columns", fix)
    for k, threshold in enumerate(thresholds.tolist()):
        column = losses(threshold) if callable(losses) else matrix[:, k]
        column = as_floats(column, "losses", caller).astype(np.float64)
        require_dimensions(column, (1,), "losses", caller, "one loss per row")
        yield column


def _p_values(sums: FloatArray, n_rows: float, limit: float) -> FloatArray:
    """Return the p-values of mean losses above a limit, of losses from 0 to 1.

    They are those of Hoeffding and Bentkus, valid for whole rows; a part of a row is left out.
    """
    n_whole = int(n_rows)
    mean = np.clip(sums / max(n_rows, 1), 0, 1)
    bentkus = np.e * scipy.special.bdtr(np.ceil(mean * n_whole - ROUNDING), n_whole, limit)
    low = np.minimum(mean, limit)
    entropy = scipy.special.rel_entr(low, limit) + scipy.special.rel_entr(1 - low, 1 - limit)
    return np.asarray(np.minimum(bentkus, np.exp(-n_whole * entropy)))


def _n_before_failure(is_fine: BoolArray) -> int:
    """Return how many entries come before the first that is not fine."""
    return int(np.argmin(np.append(is_fine, False)))


@final
class MultiLabelRiskControl(Serializable):
    """Sets of labels with a guaranteed recall, number of false labels or precision.

    A set holds the labels whose probability reaches a threshold. The threshold is searched exactly,
    over all distinct probabilities of the calibration rows. Recall and false positives change in
    one direction with the threshold, so that conformal risk control bounds their expectation over
    new rows and calibration sets. Precision does not: a lower threshold may raise it. It needs a
    `delta`, the probability that the bound fails, and is controlled by testing thresholds from high
    to low (learn then test). Rows must be exchangeable with new ones and unseen by the model; a
    calibrator must be fitted on other rows, too.

    Where labels are unknown, the guarantees for false positives, precision and the recall of each
    label are for all labels if these are unknown at random: each known label counts by the inverse
    of the fraction known. Overall recall is that of known labels, in rows where one is known to be
    true; the fit warns if more than a fifth is unknown. No guarantee covers labels that are unknown
    for a reason, or in every row.

    Parameters
    ----------
    metric : {"recall", "false_positives", "precision"}, default="recall"
        "recall" is the mean, over rows with at least one true label, of the fraction of these in
        the set. "false_positives" is the mean number of false labels in a set. "precision" is 1
        minus the mean fraction of false labels in a set, 0 for an empty one.
    target : float, default=0.9
        The lowest mean recall or precision, between 0 and 1, or the highest mean number of false
        positives.
    per_label : bool, default=False
        One threshold per label, with a guarantee for each: the recall over the rows that have the
        label, or how often it is a false positive. Not for precision.
    delta : float, optional
        For precision only: the probability that it is below the target, e.g. 0.1.

    Attributes
    ----------
    thresholds_ : array of shape (n_labels,)
        The lowest probability with which a label is in the set; 2 if it never is.
    n_rows_ : array of shape (n_labels,)
        The number (or weight) of calibration rows that each threshold is based on.
    n_labels_, label_names_ : int, tuple or None
        The number of labels, and their names if they have any.
    is_per_label_ : bool
        Whether each label has a threshold of its own.

    References
    ----------
    Angelopoulos, Bates, Fisch, Lei and Schuster, "Conformal risk control", ICLR 2024;
    Angelopoulos, Bates, Candès, Jordan and Lei, "Learn then test: calibrating predictive algorithms
    to achieve risk control", 2021.

    Examples
    --------
    >>> import numpy as np
    >>> from dubito.doubt import MultiLabelRiskControl
    >>> rng = np.random.default_rng(0)
    >>> p = rng.random((2000, 3))
    >>> y = (rng.random((2000, 3)) < p).astype(float)
    >>> control = MultiLabelRiskControl(target=0.9).fit(p[:1000], y[:1000])
    >>> sets = control.predict(p[1000:])
    >>> has_any = y[1000:].any(axis=1)
    >>> found = (sets.contains * y[1000:]).sum(axis=1)[has_any] / y[1000:].sum(axis=1)[has_any]
    >>> round(float(found.mean()), 2), round(float(sets.sizes.mean()), 2)
    (0.92, 2.07)
    """

    n_labels_: int = fitted(integer(1))
    label_names_: tuple[ClassName, ...] | None = fitted(class_names("n_labels_"))
    thresholds_: FloatArray = fitted(array("n_labels_", low=0, high=NEVER))
    n_rows_: FloatArray = fitted(array("n_labels_", low=0))
    is_per_label_: bool = fitted(boolean)

    def __init__(
        self,
        metric: str = "recall",
        target: float = 0.9,
        per_label: bool = False,
        delta: float | None = None,
    ) -> None:
        self.metric = metric
        self.target = target
        self.per_label = per_label
        self.delta = delta

    def fit(self, outputs: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the threshold, on rows that neither the model nor its calibrator was fitted on.

        Parameters
        ----------
        outputs : MultiLabel, MultiLabelMembers, array of shape (n_rows, n_labels), Batch or Shards
            Probabilities of labels; calibrated ones give smaller sets. A batch or shards hold
            labels and weights themselves; of streamed rows, a sample of 100,000 is used.
        y : array of shape (n_rows, n_labels) or LabelMatrix, optional
            0 and 1; NaN or None where a label is unknown.
        sample_weight : array of shape (n_rows,), optional
            Frequency weights.

        Returns
        -------
        MultiLabelRiskControl
            Itself.
        """
        name = type(self).__name__
        self._check_params()
        shards = make_shards(
            outputs, y, sample_weight=sample_weight, caller=name, convert=as_multilabel
        )
        batch = load_rows(shards)
        known = as_multilabel(batch.outputs, name)
        labels = as_label_matrix(batch.labels, name)
        if not (batch.labeled_weight > 0).any():
            raise EmptyStateError(name)
        require_own_places(known, labels, "y", name)
        self._forget()
        self.n_labels_, self.label_names_ = known.n_labels, known.label_names
        self.is_per_label_ = bool(self.per_label)
        columns = [[k] for k in range(known.n_labels)] if self.per_label else [slice(None)]
        found = [
            self._threshold(known.array[:, some], labels.values[:, some], batch.weight)
            for some in columns
        ]
        pairs = np.broadcast_to(np.array(found, np.float64), (known.n_labels, 2))
        self.thresholds_, self.n_rows_ = (freeze(column.copy()) for column in pairs.T)
        self._warn_about_bounds(known)
        is_known = ~np.isnan(labels.values[batch.weight > 0])
        never = [str(known.names[k]) for k in np.flatnonzero(~is_known.any(axis=0))]
        if never:
            which = join_words(never, N_SHOWN)
            text = f"{name}: no guarantee covers labels that are unknown in every row: {which}."
            warnings.warn(text, DubitoWarning, stacklevel=2)
        elif self.metric == "recall" and not self.per_label and is_known.mean() < MIN_KNOWN:
            text = (
                f"{name}: {percent(1 - is_known.mean())} of the labels are unknown. The recall is "
                "that of known labels, where rows with many true labels count more. Pass "
                "per_label=True for a guarantee that holds for unknown labels as well."
            )
            warnings.warn(text, DubitoWarning, stacklevel=2)
        return self

    def predict(self, outputs: Any) -> PredictionSets:
        """Return the set of labels of each row.

        Parameters
        ----------
        outputs : MultiLabel, MultiLabelMembers or array of shape (n_rows, n_labels)
            Probabilities of the labels of the fit, by name if both have names.

        Returns
        -------
        PredictionSets
            `contains` is rows x labels.
        """
        caller = self._require_fitted("predict")
        known = as_multilabel(outputs, caller)
        known = in_fitted_order(known, self.n_labels_, self.label_names_, caller)
        return PredictionSets(freeze(known.array >= self.thresholds_), self.label_names_)

    def _threshold(self, p: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[float, float]:
        """Return the threshold of some labels, and the number of rows it is based on."""
        is_known = ~np.isnan(y)
        weight = np.where(is_known.any(axis=1), weight, 0.0)
        true_labels, false_labels = np.nan_to_num(y), np.nan_to_num(1 - y)
        if self.metric == "recall":
            n_true = true_labels.sum(axis=1)
            weight = np.where(n_true > 0, weight, 0.0)
            recall = true_labels / np.maximum(n_true, ROUNDING)[:, np.newaxis]
            curve = _LossCurve.of(p, -recall, weight, start=1.0)
            return curve.highest(1 - self.target), curve.n_rows
        # A known label stands for unknown ones, too: inverse-probability weights of Horvitz and
        # Thompson, with which the expected loss of a row is that of all its labels.
        known_weight = weight @ is_known
        stands_for = weight.sum() / np.where(known_weight > 0, known_weight, np.inf)
        false_labels *= stands_for
        if self.metric == "false_positives":
            curve = _LossCurve.of(p, false_labels, weight, start=0.0)
            worst = float(np.maximum(stands_for, 1).sum())
            return curve.lowest(self.target, worst, p.shape[1]), curve.n_rows
        worst = max(1.0, float(stands_for.max()))
        curve = _LossCurve.of(*_false_fractions(p, false_labels / worst), weight, start=0.0)
        return curve.lowest_tested((1 - self.target) / worst, float(self.delta or 0)), curve.n_rows

    def _warn_about_bounds(self, outputs: MultiLabel) -> None:
        """Warn where rows are too few for the guarantee, and labels are always or never taken."""
        bound, what = (0.0, "always") if self.metric == "recall" else (NEVER, "never")
        at_bound = np.flatnonzero(self.thresholds_ == bound)
        if at_bound.size:
            which = join_words([str(outputs.names[k]) for k in at_bound], N_SHOWN)
            few = "rows with the label" if self.per_label else "rows"
            text = (
                f"MultiLabelRiskControl: for {self.metric} {self.target:g}, labels are {what} in "
                f"the set: {which}. There are too few {few}, or the scores are too weak."
            )
            warnings.warn(text, DubitoWarning, stacklevel=3)

    def _check_params(self) -> None:
        name = type(self).__name__
        if self.metric not in METRICS and isinstance(self.metric, str):
            rule = f"must be one of {', '.join(map(repr, METRICS))}"
            fix = "Other losses are not monotone in the threshold, and cannot be controlled"
            raise BadValueError("metric", name, rule, repr(self.metric), fix)
        require_choice(self.metric, METRICS, "metric", name)
        require_bool(self.per_label, "per_label", name)
        if self.metric != "false_positives":
            as_fraction(self.target, "target", name, is_open=True)
        else:
            fix = "Pass target=0.5, a number of false labels per row"
            as_number(self.target, "target", name, 0, fix=fix, is_open=True)
        if (self.delta is not None) != (self.metric == "precision"):
            rule, fix = f"must be None for {self.metric}", "Leave it out"
            if self.metric == "precision":
                rule = "must be given for precision, which is not monotone in the threshold"
                fix = "Pass delta=0.1, or control metric='false_positives'"
            raise BadValueError("delta", name, rule, repr(self.delta), fix)
        if self.delta is not None:
            as_fraction(self.delta, "delta", name, is_open=True)
            if self.per_label:
                rule, fix = "must be False for precision", "Use metric='false_positives'"
                raise BadValueError("per_label", name, rule, "True", fix)


def _false_fractions(p: FloatArray, false_labels: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return each row's probabilities in descending order, and how each changes its loss.

    The loss is the fraction of false labels among those down to this probability.
    """
    order = np.argsort(-p, axis=1, kind="stable")
    n_false = np.cumsum(np.take_along_axis(false_labels, order, axis=1), axis=1)
    fractions = n_false / np.arange(1, p.shape[1] + 1)
    return np.take_along_axis(p, order, axis=1), np.diff(fractions, axis=1, prepend=0.0)


@final
@dataclass(frozen=True, slots=True, eq=False)
class _LossCurve:
    """The sum of the losses of all rows at every threshold where it changes, from high to low.

    The first entry is that of a threshold above every probability.
    """

    thresholds: FloatArray
    losses: FloatArray
    n_rows: float

    @classmethod
    def of(cls, p: FloatArray, changes: FloatArray, weight: FloatArray, start: float) -> _LossCurve:
        """Add up what the loss of each row changes by when a label enters its set."""
        steps = changes * weight[:, np.newaxis]
        is_step = steps != 0
        scores = p[is_step].astype(np.float64)
        order = np.argsort(-scores, kind="stable")
        ranked = scores[order]
        is_last = np.append(ranked[1:] != ranked[:-1], np.ones(min(ranked.size, 1), bool))
        n_rows = float(weight.sum())
        losses = start * n_rows + np.cumsum(steps[is_step][order])[is_last]
        return cls(np.append(NEVER, ranked[is_last]), np.append(start * n_rows, losses), n_rows)

    def highest(self, limit: float) -> float:
        """Return the highest threshold whose expected loss, of at most 1, is within a limit.

        The loss falls from high to low thresholds; 0 takes all labels.
        """
        is_fine = self.losses + 1 <= limit * (self.n_rows + 1) * (1 + ROUNDING)
        return float(self.thresholds[np.argmax(is_fine)]) if is_fine.any() else 0.0

    def lowest(self, limit: float, worst: float, n_labels: int) -> float:
        """Return the lowest threshold whose expected loss, of at most `worst`, is within a limit.

        The loss rises from high to low thresholds: it first exceeds the limit at the next entry.
        More false labels than there are labels may always be in a set.
        """
        is_fine = self.losses + worst <= limit * (self.n_rows + 1) * (1 + ROUNDING)
        return self._last_of(is_fine) if limit < n_labels else 0.0

    def lowest_tested(self, limit: float, delta: float) -> float:
        """Return the lowest threshold such that no test down to it fails at level `delta`."""
        return self._last_of(_p_values(self.losses, self.n_rows, limit) <= delta)

    def _last_of(self, is_fine: Any) -> float:
        """Return the lowest threshold before the first that is not fine.

        Between two entries nothing changes, so that the limit is just above the next one.
        """
        n_fine = _n_before_failure(is_fine)
        if n_fine == is_fine.size:
            return 0.0
        next_one = max(np.nextafter(self.thresholds[n_fine], np.inf), 0.0)
        return NEVER if n_fine == 0 else float(next_one)
