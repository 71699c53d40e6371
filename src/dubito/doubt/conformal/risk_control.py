"""Conformal risk control of several labels per row: sets of labels with a stated recall."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self, final

import numpy as np
import scipy

from dubito.arrays import FloatArray, as_fraction, as_number, freeze, require_bool, require_choice
from dubito.data.labels import as_label_matrix, require_own_places
from dubito.data.shards import as_shards, load_rows
from dubito.doubt.conformal.classifier import PredictionSets
from dubito.errors import BadValueError, DubitoWarning, EmptyStateError
from dubito.formatting import join_words, percent
from dubito.outputs import ClassName, MultiLabel, as_multilabel, in_fitted_order
from dubito.serialization.array_fields import array
from dubito.serialization.fields import boolean, class_names, declare, integer
from dubito.serialization.objects import Serializable

METRICS = ("recall", "false_positives", "precision")
NEVER = 2.0  # a threshold above every probability
ROUNDING = 1e-9  # relative error of sums of losses
MIN_KNOWN = 0.8  # fraction of labels; with fewer, overall recall is biased visibly
N_SHOWN = 5  # names of labels in a warning


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

    thresholds_: FloatArray
    n_rows_: FloatArray
    n_labels_: int
    label_names_: tuple[ClassName, ...] | None
    is_per_label_: bool

    fitted_fields = declare(
        n_labels_=integer(1),
        label_names_=class_names("n_labels_"),
        thresholds_=array("n_labels_", low=0, high=NEVER),
        n_rows_=array("n_labels_", low=0),
        is_per_label_=boolean,
    )

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
        shards = as_shards(
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
        thresholds, n_rows = (np.array(one, np.float64) for one in zip(*found, strict=True))
        self.thresholds_, self.n_rows_ = (
            freeze(np.broadcast_to(one, known.n_labels).copy()) for one in (thresholds, n_rows)
        )
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
        self._require_fitted("predict")
        caller = f"{type(self).__name__}.predict"
        known = as_multilabel(outputs, caller)
        known = in_fitted_order(known, self.n_labels_, self.label_names_, caller)
        return PredictionSets(freeze(known.array >= self.thresholds_), self.label_names_)

    def _threshold(self, p: FloatArray, y: FloatArray, weight: FloatArray) -> tuple[float, float]:
        """Return the threshold of some labels, and the number of rows it is based on."""
        is_known = ~np.isnan(y)
        weight = np.where(is_known.any(axis=1), weight, 0.0)
        truth, falsehood = np.nan_to_num(y), np.nan_to_num(1 - y)
        if self.metric == "recall":
            n_true = truth.sum(axis=1)
            weight = np.where(n_true > 0, weight, 0.0)
            found = truth / np.maximum(n_true, ROUNDING)[:, np.newaxis]
            curve = _LossCurve.of(p, -found, weight, start=1.0)
            return curve.highest(1 - self.target), curve.n_rows
        # A known label stands for unknown ones, too: inverse-probability weights of Horvitz and
        # Thompson, with which the expected loss of a row is that of all its labels.
        known_weight = weight @ is_known
        stands_for = weight.sum() / np.where(known_weight > 0, known_weight, np.inf)
        falsehood *= stands_for
        if self.metric == "false_positives":
            curve = _LossCurve.of(p, falsehood, weight, start=0.0)
            worst = float(np.maximum(stands_for, 1).sum())
            return curve.lowest(self.target, worst, p.shape[1]), curve.n_rows
        worst = max(1.0, float(stands_for.max()))
        curve = _LossCurve.of(*_false_fractions(p, falsehood / worst), weight, start=0.0)
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


def _false_fractions(p: FloatArray, falsehood: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return each row's probabilities in descending order, and how each changes its loss.

    The loss is the fraction of false labels among those down to this probability.
    """
    order = np.argsort(-p, axis=1, kind="stable")
    n_false = np.cumsum(np.take_along_axis(falsehood, order, axis=1), axis=1)
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
        return cls(
            np.append(NEVER, ranked[is_last]), np.append(start * n_rows, losses), float(n_rows)
        )

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
        """Return the lowest threshold such that no test down to it fails at level `delta`.

        The p-values are those of Hoeffding and Bentkus, for mean losses from 0 to 1.
        """
        n_rows = int(self.n_rows)
        mean = np.clip(self.losses / max(self.n_rows, 1), 0, 1)
        bentkus = np.e * scipy.special.bdtr(np.ceil(mean * n_rows - ROUNDING), n_rows, limit)
        low = np.minimum(mean, limit)
        entropy = scipy.special.rel_entr(low, limit) + scipy.special.rel_entr(1 - low, 1 - limit)
        return self._last_of(np.minimum(bentkus, np.exp(-n_rows * entropy)) <= delta)

    def _last_of(self, is_fine: Any) -> float:
        """Return the lowest threshold before the first that is not fine.

        Between two entries nothing changes, so that the limit is just above the next one.
        """
        n_fine = int(np.argmin(is_fine)) if not is_fine.all() else is_fine.size
        if n_fine == is_fine.size:
            return 0.0
        next_one = max(np.nextafter(self.thresholds[n_fine], np.inf), 0.0)
        return NEVER if n_fine == 0 else float(next_one)
