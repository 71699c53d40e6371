"""The probability of the positive class of two: ranking, calibration, lift, and thresholds."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from math import erfc
from statistics import NormalDist
from typing import Any, final

import numpy as np

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_count,
    as_fraction,
    dot,
    freeze,
    require_choice,
)
from dubito.data.batch import Batch
from dubito.errors import BadValueError
from dubito.kernels.sums import logistic_sums
from dubito.measure.calibration_error import ReliabilityCurve
from dubito.measure.detection import RankingState, average_precision_of
from dubito.measure.intervals import Interval, ends_of
from dubito.measure.state import labeled_batch
from dubito.outputs import BaseClassOutputs, ClassName, Logits, as_class_matrix

BIN_STRATEGIES = ("quantile", "uniform", "log")
LEVEL = 0.95
Z = NormalDist().inv_cdf((1 + LEVEL) / 2)
FLOOR = 1e-12  # probabilities of 0 and 1 have finite log odds
MAX_POISSON = 1e15  # above, a Poisson number is as good as normal
MAX_ROUNDS = 100
MAX_UNPOOLED = 50_000  # above, Newton's method starts from a fit to pooled values
N_POOLED = 4096
MAX_SLOPE = 1e3  # a steeper line means that the labels are separable
TOLERANCE = 1e-12
N_DECILES = 10
REACH = 10.0  # standard deviations
THRESHOLD = 0.5
RATES = ("selection_rate", "false_positive_rate", "false_negative_rate", "precision", "recall")
ERRORS = ("expected_calibration_error", "maximum_calibration_error")
SHARED_NAMES = ("gap", "calibration_p_value", *ERRORS)


@final
@dataclass(frozen=True, slots=True)
class Confusion:
    """The outcomes of predicting the positive class.

    Attributes
    ----------
    threshold : float or None
        Rows of at least this probability are predicted positive; None if costs decide.
    true_positive, false_positive, false_negative, true_negative : float
        Weights of the rows.

    Examples
    --------
    >>> from dubito.measure import confusion_at
    >>> found = confusion_at([0, 1, 1], [0.2, 0.9, 0.4], threshold=0.5)
    >>> found.precision, found.recall
    (1.0, 0.5)
    """

    threshold: float | None
    true_positive: float
    false_positive: float
    false_negative: float
    true_negative: float

    @property
    def total(self) -> float:
        """The weight of all rows."""
        return self.true_positive + self.false_positive + self.false_negative + self.true_negative

    @property
    def precision(self) -> float | None:
        """The fraction of predicted positives that are positive; None if there are none."""
        return _ratio(self.true_positive, self.true_positive + self.false_positive)

    @property
    def recall(self) -> float | None:
        """The fraction of positives that are predicted (sensitivity); None if there are none."""
        return _ratio(self.true_positive, self.true_positive + self.false_negative)

    @property
    def false_positive_rate(self) -> float | None:
        """The fraction of negatives that are predicted positive; None if there are none."""
        return _ratio(self.false_positive, self.false_positive + self.true_negative)

    @property
    def false_negative_rate(self) -> float | None:
        """The fraction of positives that are missed; None if there are none."""
        return _ratio(self.false_negative, self.true_positive + self.false_negative)

    @property
    def selection_rate(self) -> float | None:
        """The fraction of rows that are predicted positive."""
        return _ratio(self.true_positive + self.false_positive, self.total)

    @property
    def f1(self) -> float | None:
        """The harmonic mean of precision and recall; None without positives of either kind."""
        wrong = self.false_positive + self.false_negative
        return _ratio(2 * self.true_positive, 2 * self.true_positive + wrong)

    @property
    def accuracy(self) -> float | None:
        """The fraction of rows that are predicted correctly."""
        return _ratio(self.true_positive + self.true_negative, self.total)


@final
@dataclass(frozen=True, slots=True)
class Decile:
    """The rows of highest probability, one decile after the other: a line of a gains table.

    Attributes
    ----------
    fraction : float
        Fraction of all rows in this decile and those before; ties are never divided.
    threshold : float
        The lowest probability in it.
    frequency : float
        Observed frequency of the positive class in this decile.
    lift : float
        That frequency relative to the base rate.
    recall : float
        Fraction of all positives in this decile and those before (gain).
    """

    fraction: float
    threshold: float
    frequency: float
    lift: float
    recall: float


@final
@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class BinaryAudit:
    """Metrics of the probability of the positive class.

    `Audit.positive` of an audit of two classes. Confidence of the top label says little where one
    class is rare: here everything is about the positive one.

    Attributes
    ----------
    pos_label : str or int
        The positive class.
    base_rate, mean_probability : float
        Observed frequency and mean probability of the positive class.
    gap : float
        Mean probability minus base rate.
    roc_auc, average_precision : float or None
        How well the probability ranks positives before negatives; None with one class only.
    brier_skill_score : float or None
        1 minus the Brier score relative to that of the base rate: 0 for a constant, 1 is perfect.
    calibration_intercept : float or None
        Calibration-in-the-large: the shift of the log odds that would make the mean right, at
        slope 1 (0 if calibrated).
    calibration_slope, joint_intercept : float or None
        Coefficient of the log odds, and intercept, in a logistic regression of the labels: a slope
        below 1 if probabilities are too extreme. None where labels are separable.
    calibration_p_value : float
        p-value of the likelihood-ratio test of intercept 0 and slope 1.
    saturated_fraction : float
        Fraction of probabilities of exactly 0 or 1, which have no finite log odds. Slope and
        intercepts leave them out unless there are no others; the p-value is then adjusted for a
        second test, whether they are wrong more often than rounding explains.
    expected_calibration_error, maximum_calibration_error : float
        Mean and largest difference of probability and frequency over the bins of `curve`.
    curve : ReliabilityCurve
        Probability (`confidence`) and observed frequency (`accuracy`) per bin, with the 95 % range
        of a calibrated model.
    bin_strategy : str
        How the bins were made.
    deciles : tuple of Decile
        Gains and lift.
    operating_point : Confusion
        The confusion matrix at the threshold, or of the decisions of lowest expected cost.
    ranked : RankingState
        The distinct probabilities, from which all figures are computed.
    intervals : dict of str to Interval
        95 % intervals: Wilson's for the base rate, precision and recall, DeLong's for the ROC-AUC,
        on the scale of log odds for average precision, a bootstrap for the calibration
        error, and from derivatives for the others.

    References
    ----------
    DeLong, DeLong and Clarke-Pearson, "Comparing the areas under two or more correlated receiver
    operating characteristic curves", Biometrics, 1988.
    Van Calster et al., "A calibration hierarchy for risk models was defined", Journal of Clinical
    Epidemiology, 2016.
    """

    pos_label: ClassName
    base_rate: float
    mean_probability: float
    gap: float
    roc_auc: float | None = None
    average_precision: float | None = None
    brier_skill_score: float | None = None
    calibration_intercept: float | None = None
    calibration_slope: float | None = None
    joint_intercept: float | None = None
    calibration_p_value: float
    saturated_fraction: float
    expected_calibration_error: float
    maximum_calibration_error: float
    curve: ReliabilityCurve
    bin_strategy: str
    deciles: tuple[Decile, ...]
    operating_point: Confusion
    ranked: RankingState
    intervals: dict[str, Interval] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        ranked: RankingState,
        pos_label: ClassName = 1,
        *,
        n_bins: int = 10,
        bin_strategy: str = "quantile",
        operating_point: Confusion | None = None,
        means: tuple[float, float] | None = None,
        n_resamples: int = 0,
        seed: int = 0,
    ) -> BinaryAudit:
        """Compute all figures from distinct probabilities, their weights and positives.

        `means` are the mean probability and Brier score of rows whose ranking is on a grid.

        Parameters
        ----------
        ranked : RankingState
            Rows by the probability of the positive class, and the positives among them.
        pos_label : str or number, default=1
            The name of the positive class.
        n_bins : int, default=10
            Number of bins of the reliability curve.
        bin_strategy : {"quantile", "uniform", "log"}, default="quantile"
            Bins of equal weight, of equal width, or of equal width in the logarithm for rare
            events.
        operating_point : Confusion, optional
            The confusion matrix at the threshold in use; by default at 0.5.
        means : tuple of two floats, optional
            Exact mean probability and Brier score, where `ranked` lies on a grid.
        n_resamples : int, default=0
            Bootstrap resamples for the intervals; 0 gives no bootstrap intervals.
        seed : int, default=0
            Seed of the resamples.

        Returns
        -------
        BinaryAudit
            The audit of the positive class.
        """
        p, weight = ranked.value.score, ranked.weight
        total, n_positive = float(weight.sum()), float(ranked.positive.sum())
        base_rate = n_positive / total
        mean, brier = (dot(weight, p) / total, None) if means is None else means
        around = _normal(mean, dot(weight, (p - mean) ** 2) / total / total)
        line, p_value = _calibration_line(ranked)
        intervals = {
            "base_rate": wilson_interval(base_rate, total),
            "mean_probability": Interval(mean, max(around.low, 0.0), min(around.high, 1.0)),
            "gap": _normal(mean - base_rate, _gap_variance(ranked) / total),
            **(_skill_intervals(ranked, brier) if 0 < n_positive < total else {}),
            **line,
        }
        estimates: dict[str, Any] = {name: one.value for name, one in intervals.items()}
        point = _confusion(ranked, THRESHOLD) if operating_point is None else operating_point
        n_selected = point.true_positive + point.false_positive
        if point.precision is not None:
            intervals["precision"] = wilson_interval(point.precision, n_selected)
        if point.recall is not None:
            intervals["recall"] = wilson_interval(point.recall, n_positive)
        curve = _binned(ranked, bin_edges(ranked, n_bins, bin_strategy))
        differences = np.abs(curve.confidence - curve.accuracy)
        error = float(curve.count @ differences / total)
        if n_resamples:
            draws = error_draws(ranked, curve.edges, n_resamples, seed)
            intervals["expected_calibration_error"] = error_interval(error, *draws, LEVEL)
        return cls(
            **estimates,
            pos_label=pos_label,
            calibration_p_value=p_value,
            saturated_fraction=float(weight[(p <= 0) | (p >= 1)].sum()) / total,
            expected_calibration_error=error,
            maximum_calibration_error=float(differences.max()),
            curve=curve,
            bin_strategy=bin_strategy,
            deciles=_deciles(ranked),
            operating_point=point,
            ranked=ranked,
            intervals=intervals,
        )

    @property
    def figures(self) -> dict[str, float]:
        """All finite single numbers; those that an audit has too are called `positive_*`."""
        values = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "pos_label"}
        values |= {name: getattr(self.operating_point, name) for name in RATES}
        values |= ends_of(self.intervals)
        return {
            f"positive_{name}" if name.split(".")[0] in SHARED_NAMES else name: value
            for name, value in values.items()
            if isinstance(value, float) and np.isfinite(value)
        }

    def confusion(self, threshold: float) -> Confusion:
        """Return the confusion matrix of predicting the positive class from a threshold on.

        Parameters
        ----------
        threshold : float
            Rows with at least this probability are predicted positive.

        Returns
        -------
        Confusion
            Counts, precision, recall and so on at this threshold.
        """
        wanted = as_fraction(threshold, "threshold", "BinaryAudit.confusion")
        return _confusion(self.ranked, wanted)


def confusion_at(
    y_true: Any, outputs: Any, *, threshold: float = 0.5, sample_weight: Any = None
) -> Confusion:
    """Return the confusion matrix of two classes at a threshold of the positive probability.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        True labels.
    outputs : array-like, Logits or Probabilities of two classes
        Model outputs; the second column, or a single one, is the positive class.
    threshold : float, default=0.5
        Rows of at least this probability are predicted positive.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.

    Returns
    -------
    Confusion

    Examples
    --------
    >>> from dubito.measure import confusion_at
    >>> confusion_at([0, 1, 1], [0.2, 0.9, 0.4], threshold=0.3).recall
    1.0
    """
    batch = labeled_batch(y_true, outputs, sample_weight, "confusion_at")
    wanted = as_fraction(threshold, "threshold", "confusion_at")
    return _confusion(rank_positives(batch).value, wanted)


def positive_column(outputs: Any, pos_label: ClassName | None, caller: str) -> int | None:
    """Return the column of the positive class; None unless one of two classes is positive.

    Of labels 0 and 1, or False and True, the latter is positive; of names, it must be stated.
    """
    is_binary = isinstance(outputs, BaseClassOutputs) and outputs.n_classes == 2
    names: tuple[ClassName, ...] = (outputs.classes or (0, 1)) if is_binary else ()
    if pos_label is None:
        is_known = tuple(map(str, names)) in (("0", "1"), ("False", "True"))
        return 1 if is_known else None
    if not names:
        n_classes = getattr(outputs, "n_classes", None)
        got = type(outputs).__name__ if n_classes is None else f"{n_classes} classes"
        raise BadValueError("pos_label", caller, "needs outputs of 2 classes", got, "Leave it out")
    if pos_label not in names:
        rule, fix = "must be one of the two classes", f"Pass {' or '.join(map(repr, names))}"
        raise BadValueError("pos_label", caller, rule, repr(pos_label), fix)
    return names.index(pos_label)


def rank_positives(batch: Batch, column: int = 1, *, is_gridded: bool = False) -> RankingState:
    """Return the distinct probabilities of one of two classes, with weights and positives."""
    p, is_positive = positive_rows(batch, column)
    if is_gridded:
        return RankingState.of_cells(p, batch.labeled_weight, 1 - is_positive)
    return RankingState.of_scores(is_positive, p, batch.labeled_weight)


def positive_rows(batch: Batch, column: int) -> tuple[FloatArray, FloatArray]:
    """Return the probability of one of two classes in each row, and whether it is the true one."""
    outputs = as_class_matrix(batch.outputs, "outputs", "a binary audit")
    if outputs.n_classes != 2:
        rule, fix = "must have two classes", "Pass the probability of the positive class"
        raise BadValueError("outputs", "a binary audit", rule, f"{outputs.n_classes}", fix)
    array = outputs.array
    if isinstance(outputs, Logits):
        odds = array[:, column].astype(np.float64) - array[:, 1 - column]
        p = np.exp(-np.logaddexp(0.0, -odds))
    else:
        p = array[:, column].astype(np.float64)
    labels, soft = batch.class_labels, batch.class_labels.probabilities
    return p, (labels.codes == column) * 1.0 if soft is None else soft[:, column]


def error_draws(
    ranked: RankingState, edges: FloatArray, n_resamples: int, seed: int
) -> tuple[FloatArray, FloatArray]:
    """Return the calibration errors of bootstrap resamples, and those of a calibrated model.

    The bins stay. Positives and negatives of a bin are drawn in Poisson numbers; given these, the
    sums of their probabilities are as good as normal.
    """
    rng = np.random.default_rng(seed)
    p, bins = ranked.score, bins_of(ranked.score, edges)
    sums = np.zeros((2, n_resamples, edges.size - 1))
    for is_positive, weight in enumerate((ranked.weight - ranked.positive, ranked.positive)):
        count, total, squares = (
            np.asarray(np.bincount(bins, weight * values, edges.size - 1), np.float64)
            for values in (1.0, p, p * p)
        )
        held = np.maximum(count, np.finfo(np.float64).tiny)
        mean = total / held
        n = count + np.sqrt(count) * rng.standard_normal((n_resamples, count.size))
        n = np.where(
            count < MAX_POISSON,
            rng.poisson(np.minimum(count, MAX_POISSON), n.shape),
            np.maximum(n, 0),
        )
        deviation = np.sqrt(n * np.maximum(squares / held - mean**2, 0.0))
        noise = deviation * rng.standard_normal(n.shape)
        sums += np.stack([n, n * (mean - is_positive) + noise])
    drawn, differences = sums[:, sums[0].any(axis=1)]  # of few rows, none may be drawn
    spread = ranked.weight * p * (1 - p)
    variance = np.asarray(np.bincount(bins, spread, edges.size - 1), np.float64)
    calibrated = errors_if_calibrated(variance, float(ranked.weight.sum()), n_resamples, seed)
    return np.asarray(np.abs(differences).sum(axis=1) / drawn.sum(axis=1)), calibrated


def errors_if_calibrated(
    variance: FloatArray, total: float, n_resamples: int, seed: int
) -> FloatArray:
    """Return calibration errors that a calibrated model may show, given its variance per bin."""
    drawn = np.random.default_rng(seed).standard_normal((n_resamples, variance.size))
    return np.asarray(np.abs(drawn * np.sqrt(variance)).sum(axis=1) / total)


def error_interval(
    value: float, drawn: FloatArray, if_calibrated: FloatArray, level: float
) -> Interval:
    """Return the interval of a calibration error from bootstrap resamples.

    Resamples exceed the error as it exceeds the truth, so that the lower end is their upper
    quantile, mirrored. It is 0 where a calibrated model may show as large an error.
    """
    low, high = np.quantile(drawn, [(1 - level) / 2, (1 + level) / 2])
    is_by_chance = value <= np.quantile(if_calibrated, (1 + level) / 2)
    least = 0.0 if is_by_chance else min(max(2 * value - high, 0.0), value)
    return Interval(value, float(least), float(max(high, 2 * value - low)))


def _ratio(part: float, whole: float) -> float | None:
    return part / whole if whole > 0 else None


def _confusion(ranked: RankingState, threshold: float) -> Confusion:
    """Return the outcomes at a threshold."""
    is_selected = ranked.score >= threshold
    positive, negative = ranked.positive, ranked.weight - ranked.positive
    outcomes = (
        float(column[rows].sum())
        for rows in (is_selected, ~is_selected)
        for column in (positive, negative)
    )
    return Confusion(threshold, *outcomes)


def bin_edges(ranked: RankingState, n_bins: int, strategy: str) -> FloatArray:
    """Return bin edges between 0 and 1; fewer than asked for where rows are tied."""
    as_count(n_bins, "n_bins", "audit", example=10)
    require_choice(strategy, BIN_STRATEGIES, "bin_strategy", "audit")
    if strategy == "uniform":
        return np.linspace(0, 1, n_bins + 1)
    p, weight = ranked.score, ranked.weight
    if strategy == "log":
        inside = p[p > 0]
        lowest = float(inside[0]) if inside.size else 0.5
        return np.append(0.0, np.geomspace(min(lowest, 0.5), 1.0, n_bins + 1)[1:])
    cumulative = np.cumsum(weight)
    wanted = cumulative[-1] * np.arange(1, n_bins) / n_bins
    cuts = p[np.searchsorted(cumulative, wanted - 1e-9 * cumulative[-1])]
    # Probabilities of exactly 0 and 1 have bins of their own, if there are as many.
    inside = np.clip(cuts, np.nextafter(0.0, 1.0), np.nextafter(1.0, 0.0))
    return np.unique(np.concatenate([[0.0], inside, [1.0]]))


def _binned(ranked: RankingState, edges: FloatArray) -> ReliabilityCurve:
    """Return probability and frequency per bin, with the range of a calibrated model."""
    p, weight = ranked.score, ranked.weight
    bins = bins_of(p, edges)
    count, predicted, observed = (
        np.bincount(bins, column, edges.size - 1)
        for column in (weight, weight * p, ranked.positive)
    )
    used = np.flatnonzero(count)
    held: FloatArray = np.asarray(count[used], np.float64)
    probability = predicted[used] / held
    ends = [_outcomes_at(p, max(round(n), 1)) for p, n in zip(probability, held, strict=True)]
    low, high = np.array(ends).T
    return ReliabilityCurve(
        edges=edges,
        bins=used,
        count=held,
        confidence=probability,
        accuracy=observed[used] / held,
        low=low,
        high=high,
    )


def bins_of(p: FloatArray, edges: FloatArray) -> IntArray:
    """Return the right-closed bin of each probability, as `assign` does with a kernel."""
    return np.searchsorted(edges[1:-1], p)


def _outcomes_at(probability: float, n: int) -> tuple[float, float]:
    """Return the frequencies at both ends of the middle 95 % of a binomial distribution.

    >>> _outcomes_at(0.5, 10)
    (0.2, 0.8)
    """
    p = min(max(probability, FLOOR), 1 - FLOOR)
    reach = REACH * (np.sqrt(n * p * (1 - p)) + 1)  # beyond, outcomes have no weight
    counts = np.arange(max(int(n * p - reach), 0), min(int(n * p + reach) + 1, n) + 1)
    ratios = np.log((n - counts[:-1]) / (counts[:-1] + 1)) + np.log(p) - np.log1p(-p)
    heights = np.append(0.0, np.cumsum(ratios))
    below = np.cumsum(np.exp(heights - heights.max()))
    at = np.searchsorted(below / below[-1], ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
    low, high = counts[at] / n
    return float(low), float(high)


def _deciles(ranked: RankingState) -> tuple[Decile, ...]:
    """Return gains and lift, from the highest probability down."""
    p, weight, positive = (c[::-1] for c in (ranked.score, ranked.weight, ranked.positive))
    rows, hits = np.cumsum(weight), np.cumsum(positive)
    ends = np.unique(np.searchsorted(rows, rows[-1] * (np.arange(1, 11) / N_DECILES - 1e-12)))
    frequency = np.diff(hits[ends], prepend=0.0) / np.diff(rows[ends], prepend=0.0)
    lift = recall = np.ones(ends.size)
    if hits[-1]:
        lift, recall = frequency / (hits[-1] / rows[-1]), hits[ends] / hits[-1]
    columns = (rows[ends] / rows[-1], p[ends], frequency, lift, recall)
    return tuple(Decile(*line) for line in np.stack(columns, axis=1).tolist())


def _calibration_line(ranked: RankingState) -> tuple[dict[str, Interval], float]:
    """Return intercepts and slope of the log odds, and the p-value of 0 and 1.

    There are no intervals where the labels are separable.
    """
    inner = _inner(ranked)
    intervals: dict[str, Interval] = {}
    if 0 < inner.positive.sum() < inner.weight.sum():
        p = np.clip(inner.score, FLOOR, 1 - FLOOR)
        odds = np.log(p) - np.log1p(-p)
        shift, _ = _logistic(inner, odds, is_line=False)
        line, p_value = _logistic(inner, odds, is_line=True)
        intervals |= zip(("calibration_intercept",), shift, strict=False)
        intervals |= zip(("joint_intercept", "calibration_slope"), line, strict=False)
    else:
        # Of labels of a single class, only their probability is known.
        p = inner.score if inner.positive.any() else 1 - inner.score
        p_value = float(np.exp(dot(inner.weight, np.log(np.maximum(p, FLOOR)))))
    if inner is not ranked:
        p_value = min(2 * min(p_value, _saturated_p_value(ranked, inner)), 1.0)
    return intervals, p_value


def _inner(ranked: RankingState) -> RankingState:
    """Return the ranking without probabilities of exactly 0 and 1, unless there are no others."""
    p = ranked.score
    start, end = int(p[0] <= 0), p.size - int(p[-1] >= 1)
    if start >= end or end - start == p.size:
        return ranked
    columns = (p, ranked.weight, ranked.positive)
    return RankingState(*(freeze(column[start:end]) for column in columns))


def _saturated_p_value(ranked: RankingState, inner: RankingState) -> float:
    """Return how probable so many errors at 0 and 1 are, if these are rounded probabilities.

    They then are no further from 0 and 1 than the others. The bound is Hoeffding's, 1963.
    """
    found = 1.0
    for k, step in ((0, inner.score[0]), (-1, 1 - inner.score[-1])):
        n, wrong = float(ranked.weight[k]), float(ranked.positive[k])
        wrong = wrong if k == 0 else n - wrong
        if ranked.score[k] in (0.0, 1.0) and wrong > n * step:
            right = max(n - wrong, 0.0)
            exponent = wrong * np.log(wrong / (n * max(step, FLOOR)))
            exponent += right * np.log(right / (n * (1 - step))) if right else 0.0
            found = min(found, 2 * float(np.exp(-exponent)))
    return found


def _logistic(
    ranked: RankingState, odds: FloatArray, *, is_line: bool
) -> tuple[list[Interval], float]:
    """Return intercept and slope of a logistic regression on the log odds, or that at slope 1.

    Beside it, the p-value of the likelihood-ratio test of the log odds as they are. There are none
    where the labels are separable.
    """
    weight, positive = ranked.weight, ranked.positive
    unchanged = np.array([0.0, 1.0])
    start = unchanged
    if is_line:
        start = np.array([np.log(positive.sum() / (weight - positive).sum()), 0.0])
    if odds.size > MAX_UNPOOLED:  # the fit to pooled neighbors is as good as the answer
        starts = np.arange(0, odds.size, odds.size // N_POOLED)
        total, hits, sums = (
            np.add.reduceat(one, starts) for one in (weight, positive, weight * odds)
        )
        start, *_ = logistic_line((sums / total, total, hits), start, is_line)
    found, loss, information = logistic_line((odds, weight, positive), start, is_line)
    before, *_ = _loss_at(unchanged, (odds, weight, positive), is_line)
    if information is None:
        # Separable: the likelihood has no maximum, but comes as close to 1 as one likes.
        return [], float(np.exp(-before))
    gained = max(before - loss, 0.0)
    # Twice the gain has a chi-squared distribution, of two degrees of freedom for a line.
    p_value = np.exp(-gained) if is_line else erfc(np.sqrt(gained))
    errors = np.diag(np.linalg.inv(information))
    intervals = [_normal(*pair) for pair in zip(found.tolist(), errors.tolist(), strict=False)]
    return intervals, float(p_value)


def logistic_line(
    columns: tuple[FloatArray, FloatArray, FloatArray], start: FloatArray, is_line: bool
) -> tuple[FloatArray, float, FloatArray | None]:
    """Return intercept and slope of lowest loss, the loss, and its curvature if there is one."""
    found = start
    loss, gradient, information = _loss_at(found, columns, is_line)
    for _ in range(MAX_ROUNDS):
        try:
            step = np.append(np.linalg.solve(information, gradient), [] if is_line else 0.0)
        except np.linalg.LinAlgError:
            break
        if np.abs(step).max() < TOLERANCE * max(1.0, float(np.abs(found).max())):
            return found, loss, information
        while (new := _loss_at(found + step, columns, is_line))[0] > loss + TOLERANCE * abs(loss):
            step = step / 2  # a shorter step is better
        found = found + step
        loss, gradient, information = new
        if not np.abs(found).max() < MAX_SLOPE:
            break
    return start, loss, None


def _loss_at(
    at: FloatArray, columns: tuple[FloatArray, FloatArray, FloatArray], is_line: bool
) -> tuple[float, FloatArray, FloatArray]:
    """Return the log loss of a line through the log odds, minus its gradient, and its curvature."""
    sums = np.zeros(6)
    logistic_sums(*map(freeze, columns), at[0], at[1], sums)
    size = 2 if is_line else 1
    return float(sums[0]), sums[1 : 1 + size], sums[[[3, 4], [4, 5]]][:size, :size]


def _normal(value: float, variance: float) -> Interval:
    """Return an estimate with its normal interval."""
    margin = Z * float(np.sqrt(max(variance, 0.0)))
    return Interval(value, value - margin, value + margin)


def log_odds_interval(value: float, margin: float) -> Interval:
    """Return the interval of a fraction that reaches as far to both sides in log odds."""
    if not 0 < value < 1:
        return Interval(value, value, value)
    odds = np.log(value / (1 - value))
    low, high = (1 / (1 + np.exp(-(odds + sign * margin))) for sign in (-1, 1))
    return Interval(value, float(low), float(high))


def _on_log_odds(value: float, variance: float) -> Interval:
    """Return the interval of a fraction that is normal on the scale of log odds."""
    slope = value * (1 - value)
    return log_odds_interval(value, Z * float(np.sqrt(max(variance, 0.0))) / slope if slope else 0)


def wilson_interval(value: float, total: float) -> Interval:
    """Return Wilson's 95 % interval of a frequency among so many rows."""
    center = (value + Z**2 / (2 * total)) / (1 + Z**2 / total)
    spread = value * (1 - value) / total + Z**2 / (4 * total**2)
    margin = Z * float(np.sqrt(spread)) / (1 + Z**2 / total)
    return Interval(value, min(max(center - margin, 0.0), value), max(center + margin, value))


def _gap_variance(ranked: RankingState) -> float:
    """Return the variance of probability minus label."""
    p, weight, positive = ranked.score, ranked.weight, ranked.positive
    total = weight.sum()
    mean = (dot(weight, p) - positive.sum()) / total
    squares = dot(positive, (p - 1) ** 2) + dot(weight - positive, p**2)
    return float(squares / total - mean**2)


def _skill_intervals(ranked: RankingState, brier: float | None) -> dict[str, Interval]:
    """Return ROC-AUC, average precision and Brier skill score of rows of both classes."""
    auc, auc_variance = _delong(ranked)
    precision = average_precision_of(ranked)
    precision_variance = precision * (1 - precision) / float(ranked.positive.sum())
    skill = _normal(*_brier_skill(ranked, brier))
    return {
        "roc_auc": _on_log_odds(auc, auc_variance),
        "average_precision": _on_log_odds(precision, precision_variance),
        "brier_skill_score": Interval(skill.value, skill.low, min(skill.high, 1.0)),
    }


def _brier_skill(ranked: RankingState, exact: float | None) -> tuple[float, float]:
    """Return the Brier skill score and its variance, by the delta method."""
    p, positive = ranked.score, ranked.positive
    negative, total = ranked.weight - positive, ranked.weight.sum()
    base_rate = positive.sum() / total
    reference = base_rate * (1 - base_rate)
    hit, miss = (p - 1) ** 2, p**2
    brier = (dot(positive, hit) + dot(negative, miss)) / total if exact is None else exact
    # What a row contributes to the skill: through its loss, and through the base rate.
    pull = brier * (1 - 2 * base_rate) / reference**2
    of_positive = -(hit - brier) / reference + pull * (1 - base_rate)
    of_negative = -(miss - brier) / reference - pull * base_rate
    variance = (dot(positive, of_positive**2) + dot(negative, of_negative**2)) / total**2
    return float(1 - brier / reference), float(variance)


def _delong(ranked: RankingState) -> tuple[float, float]:
    """Return the area under the ROC curve and DeLong's variance of it; weights count as rows."""
    positive, negative = ranked.positive, ranked.weight - ranked.positive
    n_positive, n_negative = positive.sum(), negative.sum()
    below = (np.cumsum(negative) - negative / 2) / n_negative  # negatives ranked lower
    above = 1 - (np.cumsum(positive) - positive / 2) / n_positive  # positives ranked higher
    area = float(dot(positive, below) / n_positive)
    variance = dot(positive, (below - area) ** 2) / max(n_positive - 1, 1) / n_positive
    variance += dot(negative, (above - area) ** 2) / max(n_negative - 1, 1) / n_negative
    return area, float(variance)


def auroc_interval(is_positive: FloatArray, scores: FloatArray, weight: FloatArray) -> Interval:
    """Return the AUROC of scores and its 95 % interval after DeLong et al. (1988), ties half.

    Both outcomes must occur, with positive weight.

    >>> auroc_interval(np.array([0, 0, 1, 1]), np.array([1.0, 3, 2, 4]), np.ones(4)).value
    0.75
    """
    found = _normal(*_delong(RankingState.of_scores(is_positive, scores, weight)))
    return Interval(found.value, max(found.low, 0.0), min(found.high, 1.0))
