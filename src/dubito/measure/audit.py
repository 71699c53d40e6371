"""`audit`: all metrics of a model's confidence in one call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from typing import Any, final, overload

import numpy as np
from numpy.typing import ArrayLike

from dubito.arrays import FloatArray, as_fraction, draw_seed
from dubito.data.batch import make_batch
from dubito.data.labels import distinct, is_absent
from dubito.data.shards import ArrayShards, Shards, require_shards
from dubito.errors import BadValueError
from dubito.measure.audit_state import AuditSums, BootstrapState
from dubito.measure.binary import (
    THRESHOLD,
    BinaryAudit,
    error_interval,
    errors_if_calibrated,
    positive_column,
)
from dubito.measure.calibration_error import ClasswiseCalibrationState, ReliabilityCurve
from dubito.measure.detection import (
    auroc_bounds,
    auroc_of,
    average_precision_of,
    false_positive_rate_of,
)
from dubito.measure.groups import DecidesRows, GroupComparison
from dubito.measure.intervals import Interval, as_n_resamples, ends_of, interval_of
from dubito.measure.multilabel import MultiLabelAudit
from dubito.measure.regression_audit import RegressionAudit
from dubito.measure.selective import RiskCoverageCurve, area_bounds
from dubito.measure.state import GroupedState, json_fields, require_weight
from dubito.measure.text import audit_html, audit_lines, verdict_on
from dubito.outputs import (
    BaseClassOutputs,
    ClassName,
    MultiLabel,
    Normal,
    Quantiles,
    RegressionMembers,
    Samples,
    TopLabel,
)

LEVEL = 0.95
N_RESAMPLES = 1000
N_BINS, N_POSITIVE_BINS = 15, 10
MAX_RESAMPLED_ROWS = 20_000  # above, resamples are drawn from the moments of the rows


@final
@dataclass(frozen=True, slots=True)
class ClassReport:
    """Calibration of one class.

    Attributes
    ----------
    name : str or int
        The class.
    frequency : float
        Observed frequency of the class.
    probability : float
        Mean predicted probability of the class.
    calibration_error : float
        Binned calibration error of the class.
    """

    name: ClassName
    frequency: float
    probability: float
    calibration_error: float


@final
@dataclass(frozen=True, slots=True, eq=False)
class Audit:
    """Metrics of a classifier's confidence; `print(audit)` gives a readable summary.

    Made by :func:`audit` from arrays, or by :meth:`Audit.of` from shards. Metrics that need a whole
    distribution are None for `TopLabel` outputs.

    Attributes
    ----------
    n_rows, n_effective : int, float
        Rows with a label and positive weight, and how many rows their weights stand for.
    n_missing, n_impossible : int
        Rows without a label, and rows whose true class had probability 0.
    n_classes, n_bins : int
        Number of classes and of confidence bins.
    accuracy, confidence, gap : float
        Accuracy, mean top-label confidence, and confidence minus accuracy.
    log_loss, brier_score : float or None
        Proper scores.
    entropy, sharpness : float or None
        Mean predictive entropy, and mean sum of squared probabilities.
    expected_calibration_error, maximum_calibration_error, debiased_calibration_error : float
        Binned calibration errors of the top label (`n_bins` uniform bins).
    smooth_calibration_error : float
        Calibration error without bins (smECE).
    classwise_calibration_error : float or None
        Mean calibration error over all classes, same bins.
    expected_if_calibrated : float
        ECE that a perfectly calibrated model would show on so many rows.
    gap_if_calibrated : float
        Standard deviation of `gap` for a perfectly calibrated model.
    calibration_p_value : float
        p-value of the calibration test.
    area_under_risk_coverage, excess_area_under_risk_coverage : float
        AURC and E-AURC of least confidence.
    area_under_generalized_risk_coverage : float
        AUGRC of least confidence.
    error_detection_auroc, error_detection_average_precision, error_detection_fpr95 : float or None
        How well least confidence detects the model's own errors: the probability that an error is
        less confident than a correct row (the AUROC of error detection, not of a class), average
        precision, and the false positive rate at 95 % recall.
    risk_coverage_bounds, error_separation_bounds : tuple of float
        Range of AURC and error detection AUROC over all orders of tied rows; for streamed rows, the
        error bounds of the fixed grid.
    curve : ReliabilityCurve
        Confidence and accuracy per bin.
    selective : RiskCoverageCurve
        Risk at each coverage.
    classes : tuple of ClassReport
        Calibration per class.
    intervals : dict of str to Interval
        95 % bootstrap intervals. Resamples exceed the calibration error as it exceeds the truth:
        the lower end of its interval mirrors their upper quantile, and is 0 where a calibrated
        model may show as large an error.
    groups : dict of str to Audit
        Audits per group.
    group_comparison : GroupComparison or None
        Rates, calibration and cost of the groups with simultaneous intervals, and the largest
        differences between them.
    mean_cost : float or None
        Mean realized cost per row of the decisions of lowest expected cost, if costs were given.
    positive : BinaryAudit or None
        Metrics of the probability of the positive class, for two classes of which one is positive.

    Examples
    --------
    >>> from dubito import Probabilities, audit
    >>> report = audit([0, 1, 1], Probabilities([0.2, 0.9, 0.6]))
    >>> report.accuracy
    1.0
    """

    n_rows: int
    n_effective: float
    n_missing: int
    n_impossible: int
    n_classes: int | None
    n_bins: int
    accuracy: float
    confidence: float
    gap: float
    log_loss: float | None
    brier_score: float | None
    entropy: float | None
    sharpness: float | None
    expected_calibration_error: float
    maximum_calibration_error: float
    debiased_calibration_error: float
    smooth_calibration_error: float
    classwise_calibration_error: float | None
    expected_if_calibrated: float
    gap_if_calibrated: float
    calibration_p_value: float
    area_under_risk_coverage: float
    excess_area_under_risk_coverage: float
    area_under_generalized_risk_coverage: float
    risk_coverage_bounds: tuple[float, float]
    error_detection_auroc: float | None
    error_separation_bounds: tuple[float, float] | None
    error_detection_average_precision: float | None
    error_detection_fpr95: float | None
    curve: ReliabilityCurve
    selective: RiskCoverageCurve
    classes: tuple[ClassReport, ...] = ()
    intervals: dict[str, Interval] = field(default_factory=dict)
    groups: dict[str, Audit] = field(default_factory=dict)
    group_comparison: GroupComparison | None = None
    mean_cost: float | None = None
    positive: BinaryAudit | None = None

    @classmethod
    def of(
        cls,
        shards: Shards,
        *,
        n_bins: int | None = None,
        n_resamples: int | None = None,
        random_state: Any = 0,
        pos_label: ClassName | None = None,
        bin_strategy: str = "quantile",
        threshold: float = THRESHOLD,
        costs: DecidesRows | None = None,
    ) -> Audit:
        """Audit rows wherever they are.

        In memory (`ArrayShards`) this equals `audit`. Streamed, rankings come from a fixed fine
        grid, and groups take another pass, as do the intervals of few rows.

        Parameters
        ----------
        shards : Shards
            The rows: `ArrayShards`, `scan(...)` or `DaskShards`.
        n_bins : int, optional
            Number of bins, as in `audit`.
        n_resamples : int, optional
            Bootstrap resamples, as in `audit`.
        random_state : None, int or RandomState, default=0
            Seed of the bootstrap.
        pos_label : str or int, optional
            The positive class of two, as in `audit`.
        bin_strategy : {"quantile", "uniform", "log"}, default="quantile"
            Bins of the probability of the positive class.
        threshold : float, default=0.5
            Rows of at least this probability are predicted positive.
        costs : CostMatrix, optional
            Costs that decide instead of the threshold, as in `audit`.

        Returns
        -------
        Audit
        """
        shards = require_shards(shards, "Audit.of", "Use audit(y_true, outputs)")
        first = next(shards.batches())
        column = positive_column(first.outputs, pos_label, "audit")
        seed = draw_seed(random_state, "audit")
        n_confidence_bins = N_BINS if n_bins is None else n_bins
        n_resamples = N_RESAMPLES if n_resamples is None else n_resamples
        n_drawn = as_n_resamples(n_resamples, "audit") if n_resamples else 0
        batch = shards.in_memory
        is_small = batch is not None and len(batch) <= MAX_RESAMPLED_ROWS
        of = partial(
            AuditSums.of,
            n_bins=n_confidence_bins,
            is_gridded=batch is None,
            has_moments=n_drawn > 0 and not is_small,
            pos_column=column,
            threshold=as_fraction(threshold, "threshold", "audit"),
            costs=costs,
        )
        sums = shards.pool(of) if batch is None or is_small else AuditSums.of_blocks(shards, of)
        groups: dict[str, AuditSums] = {}
        if first.groups is not None:
            groups = shards.pool(partial(GroupedState.of, of=of)).value
        read = partial(
            _read,
            threshold=None if costs is not None else float(threshold),
            audit_positives=partial(
                BinaryAudit.of,
                pos_label=(getattr(first.outputs, "classes", None) or (0, 1))[column or 0],
                n_bins=N_POSITIVE_BINS if n_bins is None else n_bins,
                bin_strategy=bin_strategy,
                n_resamples=n_drawn,
                seed=seed,
            ),
        )
        result, audits = read(sums), {name: read(one) for name, one in groups.items()}
        drawn: dict[str, dict[str, list[float]]] = {}
        if n_drawn and result.n_rows > MAX_RESAMPLED_ROWS:
            resamples = sums.resampled(n_drawn, seed)
            drawn = {name: one.resampled(n_drawn, seed) for name, one in groups.items()}
        elif n_drawn:
            settings: dict[str, Any] = {"n_resamples": n_drawn, "random_state": seed}
            settings["n_bins"] = n_confidence_bins
            resamples = shards.pool(partial(BootstrapState.of, **settings)).value
            if audits:
                states = shards.pool(partial(BootstrapState.of_groups, **settings)).states
                drawn = {name: states[name].value for name in audits}
        if n_drawn:
            result = _with_intervals(result, resamples, _errors_if_calibrated(sums, n_drawn, seed))
        if not audits:
            return result
        for name, values in drawn.items():
            errors = _errors_if_calibrated(groups[name], n_drawn, seed)
            audits[name] = _with_intervals(audits[name], values, errors)
            values["expected_if_calibrated"] = errors.tolist()
        decided = {name: one.decided for name, one in groups.items()}
        comparison = GroupComparison.of(
            audits, decided, drawn, has_costs=costs is not None, seed=seed
        )
        return replace(result, groups=audits, group_comparison=comparison)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        return verdict_on(self)

    @property
    def figures(self) -> dict[str, float]:
        """All finite single numbers in a flat dictionary, for experiment trackers."""
        flat = {f.name: getattr(self, f.name) for f in fields(self)}
        numbers = {k: v for k, v in flat.items() if isinstance(v, int | float) and np.isfinite(v)}
        if self.positive is not None:
            numbers |= self.positive.figures
        numbers |= ends_of(self.intervals)
        for group, inner in self.groups.items():
            numbers |= {f"group.{group}.{k}": v for k, v in inner.figures.items()}
        if self.group_comparison is not None:
            numbers |= self.group_comparison.numbers
        return numbers

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as JSON-ready values; an infinite log loss is None.

        Returns
        -------
        dict
            All figures, the verdict, and the audits of groups.
        """
        return {**json_fields(self), "verdict": self.verdict}

    def __str__(self) -> str:
        return "\n".join(audit_lines(self))

    def _repr_html_(self) -> str:
        return audit_html(self)


@overload
def audit(
    y_true: Any,
    outputs: Normal | Samples | Quantiles | RegressionMembers,
    *,
    sample_weight: Any = None,
    groups: Any = None,
) -> RegressionAudit: ...


@overload
def audit(
    y_true: Any,
    outputs: MultiLabel,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    n_bins: int | None = None,
    n_resamples: int | None = None,
    random_state: Any = 0,
    bin_strategy: str = "quantile",
    threshold: float = THRESHOLD,
) -> MultiLabelAudit: ...


@overload
def audit(
    y_true: Any,
    outputs: ArrayLike | BaseClassOutputs | TopLabel | None = None,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    n_bins: int | None = None,
    n_resamples: int | None = None,
    random_state: Any = 0,
    pos_label: ClassName | None = None,
    bin_strategy: str = "quantile",
    threshold: float = THRESHOLD,
    costs: DecidesRows | None = None,
) -> Audit: ...


def audit(
    y_true: Any,
    outputs: Any = None,
    *,
    sample_weight: Any = None,
    groups: Any = None,
    n_bins: int | None = None,
    n_resamples: int | None = None,
    random_state: Any = 0,
    pos_label: ClassName | None = None,
    bin_strategy: str = "quantile",
    threshold: float = THRESHOLD,
    costs: DecidesRows | None = None,
) -> Audit | MultiLabelAudit | RegressionAudit:
    """Audit a model's confidence: calibration, accuracy, proper scores, error detection.

    Start here to find out whether confidence can be trusted. All metrics are computed in one pass
    over the outputs. For files and clusters use `Audit.of(shards)`.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,) or (n_samples, n_labels)
        True labels, or targets for regression; for `MultiLabel` outputs 0, 1 or a probability per
        label, None or NaN where it is unknown. `TopLabel` outputs are passed alone, in this place:
        `audit(TopLabel(confidence, correct))`.
    outputs : array-like or outputs
        `Logits`, `Probabilities`, `Members`, `TopLabel`; `MultiLabel` for several labels per row;
        for regression `Normal`, `Samples`, `Quantiles` or `RegressionMembers`. A plain array holds
        probabilities.
    sample_weight : array-like of shape (n_samples,), optional
        Frequency weights.
    groups : array-like of shape (n_samples,), optional
        Group of each row; each group is audited as well, and `group_comparison` compares them.
    n_bins : int, optional
        Number of bins: uniform ones of the confidence (default: 15), and those of `bin_strategy`
        for the probability of the positive class, or of each of several labels (default: 10).
    n_resamples : int, optional
        Bootstrap resamples for the intervals; 0 leaves them out. Default: 1,000. Above 20,000
        rows, the sums of a resample are drawn from their moments instead of row by row.
    random_state : None, int or RandomState, default=0
        Seed of the bootstrap.
    pos_label : str or int, optional
        The positive class of two, for the metrics of `Audit.positive`. Labels 0 and 1 need none:
        1 is positive.
    bin_strategy : {"quantile", "uniform", "log"}, default="quantile"
        Bins of the probability of the positive class: equal-mass, equal-width, or equally
        wide on a logarithmic scale.
    threshold : float, default=0.5
        Rows of at least this probability of the positive class are predicted positive: in the
        confusion matrix, and in the rates of groups.
    costs : CostMatrix, optional
        Decides rows by the lowest expected cost instead of the threshold, and adds the realized
        cost; a row is selected if its action is the cheapest one in the positive class.

    Returns
    -------
    Audit, MultiLabelAudit or RegressionAudit

    Examples
    --------
    >>> from dubito import audit
    >>> print(audit([0, 0, 0, 1] * 30, [0.25] * 120).verdict)
    No sign of miscalibration of P(1) on 120 rows: mean 25.00 %, observed frequency 25.00 %.
    """
    columns = {"sample_weight": sample_weight, "groups": groups}
    try:
        batch = make_batch(y_true, outputs, caller="audit", **columns)
    except BadValueError as error:
        raise _with_classes(error, y_true, pos_label) from error
    rows, given = ArrayShards(batch), batch.outputs
    of_class: dict[str, Any] = {"pos_label": pos_label, "costs": costs}
    of_positives: dict[str, Any] = {"bin_strategy": bin_strategy, "threshold": threshold}
    if isinstance(given, Normal | Samples | Quantiles | RegressionMembers):
        options = {**of_class, "n_bins": n_bins, **of_positives}
        _require_default(options, "a classifier", type(given).__name__)
        return RegressionAudit.of(rows)
    settings = {"n_resamples": n_resamples, "random_state": random_state, "n_bins": n_bins}
    settings |= of_positives
    if isinstance(given, MultiLabel):
        _require_default(of_class, "one class per row", "MultiLabel")
        return MultiLabelAudit.of(rows, **settings)
    if costs is not None:
        _require_default({"threshold": threshold}, "a decision without costs", "both")
    if positive_column(given, pos_label, "audit") is None:
        names, fix = tuple(getattr(given, "classes", None) or ()), "Leave it out"
        if len(names) == 2:
            fix = f"Pass pos_label={names[0]!r} or pos_label={names[1]!r}"
        got = f"{len(names) or getattr(given, 'n_classes', 'no')} classes"
        got += " and none of them positive" if len(names) == 2 else ""
        _require_default(of_positives, "the positive class of two", got, fix)
    return Audit.of(rows, **of_class, **settings)


def _with_classes(error: BadValueError, y_true: Any, pos_label: Any) -> BadValueError:
    """Return the error for labels of classes without names, with the names in their order."""
    if pos_label is None or "classes=[negative, positive]" not in error.fix:
        return error
    names, _ = distinct(np.asarray(y_true, dtype=object))
    others = [one for one in names if one != pos_label and not is_absent(one)]
    if len(others) != 1:
        return error
    call = f"{error.fix.partition('(')[0]}(p, classes=[{others[0]!r}, {pos_label!r}])"
    fix = f"{call}: a single column is the probability of the second class"
    return error.moved(fix=fix)


def _require_default(
    options: Mapping[str, Any], needs: str, got: str, fix: str = "Leave it out"
) -> None:
    """Raise for an option that would have no effect."""
    defaults = {"bin_strategy": "quantile", "threshold": THRESHOLD}
    for name, value in options.items():
        if value is not None and value != defaults.get(name):
            raise BadValueError(name, "audit", f"is for {needs}", got, fix)


def _read(
    sums: AuditSums, *, threshold: float | None, audit_positives: Callable[..., BinaryAudit]
) -> Audit:
    """Compute all metrics from their sums; without a threshold, costs decided."""
    state, decided, positive = sums.state, sums.decided, None
    require_weight(state.ranked.weight.sum(), "audit")
    if state.positive is not None:
        positive = audit_positives(
            state.positive,
            operating_point=decided.confusion(threshold),
            means=(decided.probability / decided.weight, decided.square / decided.weight),
        )
    scores, bins = state.value.scores.value, state.reliability
    selective = RiskCoverageCurve.of(state.ranked)
    wrong, weight = state.ranked.positive.sum(), state.ranked.weight.sum()
    ranked = state.ranked if 0 < wrong < weight else None  # detection needs errors and others
    by_class = state.by_class
    return Audit(
        n_rows=int(bins.count.sum()),
        n_effective=float(bins.weight.sum()),
        n_missing=state.scores.n_missing,
        n_impossible=state.scores.n_impossible,
        n_classes=None if by_class is None else len(by_class.weight),
        n_bins=bins.edges.size - 1,
        **asdict(scores),
        gap=scores.gap,
        expected_calibration_error=bins.expected(),
        maximum_calibration_error=bins.expected("max"),
        debiased_calibration_error=bins.debiased,
        smooth_calibration_error=state.smooth.value,
        classwise_calibration_error=None if by_class is None else by_class.value,
        expected_if_calibrated=bins.expected_if_calibrated,
        gap_if_calibrated=float(np.sqrt(bins.variance.sum()) / bins.weight.sum()),
        calibration_p_value=state.test.value.p_value,
        area_under_risk_coverage=selective.area,
        excess_area_under_risk_coverage=selective.excess_area,
        area_under_generalized_risk_coverage=selective.generalized_area,
        risk_coverage_bounds=area_bounds(state.ranked),
        error_detection_auroc=auroc_of(ranked) if ranked else None,
        error_separation_bounds=auroc_bounds(ranked) if ranked else None,
        error_detection_average_precision=average_precision_of(state.ranked) if wrong > 0 else None,
        error_detection_fpr95=false_positive_rate_of(ranked) if ranked else None,
        curve=bins.value,
        selective=selective,
        classes=() if by_class is None else _class_reports(by_class, state.classes),
        mean_cost=decided.mean_cost if threshold is None else None,
        positive=positive,
    )


def _class_reports(
    by_class: ClasswiseCalibrationState, names: Iterable[ClassName] | None
) -> tuple[ClassReport, ...]:
    """Return a report for each class."""
    total = by_class.weight.sum(axis=1)
    frequency = by_class.true.sum(axis=1) / total
    probability = by_class.probability.sum(axis=1) / total
    labels = range(total.size) if names is None else names
    columns = (frequency.tolist(), probability.tolist(), by_class.by_class.tolist())
    return tuple(ClassReport(*line) for line in zip(labels, *columns, strict=True))


def _errors_if_calibrated(sums: AuditSums, n_resamples: int, seed: int) -> FloatArray:
    """Return calibration errors that a calibrated model of these rows may show."""
    bins = sums.state.reliability
    return errors_if_calibrated(bins.variance, float(bins.weight.sum()), n_resamples, seed)


def _with_intervals(
    result: Audit, resamples: dict[str, list[float]], if_calibrated: FloatArray
) -> Audit:
    """Return an audit with bootstrap intervals."""
    intervals = {
        name: interval_of(getattr(result, name), values, LEVEL, "audit")
        for name, values in resamples.items()
    }
    if (name := "expected_calibration_error") in intervals:
        drawn = np.asarray(resamples[name])
        intervals[name] = error_interval(getattr(result, name), drawn, if_calibrated, LEVEL)
    if result.n_impossible:
        intervals.pop("log_loss", None)
    if result.accuracy in (0, 1):  # all resamples are alike: the exact binomial bound
        least = ((1 - LEVEL) / 2) ** (1 / result.n_effective)
        ends = (least, 1.0) if result.accuracy == 1 else (0.0, 1 - least)
        intervals["accuracy"] = Interval(result.accuracy, *ends)
    return replace(result, intervals=intervals)
