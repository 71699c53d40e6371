"""The audit of several binary labels per row: figures per label, their means, and row metrics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Any, Self, final

import numpy as np

from dubito.arrays import FloatArray, IntArray, as_fraction, contiguous, draw_seed
from dubito.data.batch import Batch, require_labels
from dubito.data.labels import LabelMatrix, require_own_places
from dubito.data.shards import Shards, require_shards
from dubito.errors import BadTypeError
from dubito.formatting import HTMLTable, html_view, percent, printable, quantity, wrapped
from dubito.kernels.blocks import map_in_order
from dubito.kernels.sums import (
    N_CELLS,
    N_LABEL_SUMS,
    N_ROW_SUMS,
    label_sums,
    pooled_areas,
)
from dubito.measure.binary import (
    LEVEL,
    THRESHOLD,
    BinaryAudit,
    error_interval,
    errors_if_calibrated,
    logistic_line,
)
from dubito.measure.calibration_error import ReliabilityCurve, expected_gaps
from dubito.measure.detection import RankingState
from dubito.measure.groups import (
    ECE,
    IF_CALIBRATED,
    MIN_ROWS,
    DecisionState,
    Disparity,
    GroupComparison,
)
from dubito.measure.groups import TITLES as GROUP_TITLES
from dubito.measure.intervals import Interval, as_n_resamples, ends_of, interval_of
from dubito.measure.state import GroupedState, State, json_fields, require_weight, sums_field
from dubito.measure.text import ends_text, figure_texts, group_tables
from dubito.outputs import MultiLabel
from dubito.serialization.fields import converted, list_of, number, optional, text
from dubito.serialization.objects import record_of, stores_fields

N_RESAMPLES = 1000
BUCKETS = {32: 499, 128: 199}  # of rows that are resampled together, by the number of labels
MIN_BUCKETS = 97
N_BINS = 10
GROUP_BUCKETS = 97  # of the rows of a group
MAX_DIFFERENCES = 10  # between groups, in the text
RANGE = 1 << 19  # scores of all labels that are ranked together
MAX_SHOWN = 20
LABEL_HEADS = ("rows", "frequency", "mean p", "ECE", "slope", "ROC-AUC", "F1")
ALPHA = 0.001
ROW_TITLES = {
    "subset_accuracy": "subset accuracy",
    "ranking_loss": "ranking loss",
    "coverage_error": "coverage error",
    "label_ranking_average_precision": "label ranking AP",
    "hamming_loss": "Hamming loss",
}
MEANS = ("macro", "micro", "weighted")
# Figures of each label that its sums do not determine.
RANKED = ("roc_auc", "average_precision", "calibration_intercept", "calibration_slope", ECE)
BINS = {"quantile": "equal-mass", "uniform": "equal-width", "log": "logarithmic"}
PROPER = {"log_loss": "log loss", "brier_score": "Brier score"}
TITLES = {**PROPER, "roc_auc": "ROC-AUC", "average_precision": "average precision", "f1": "F1"}


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class MultiLabelState(State):
    """Sums over rows of several labels, in buckets that are resampled, and the rankings of labels.

    Adding two states pools their rows.

    Attributes
    ----------
    names : tuple of str
        The labels.
    threshold : float
        The probability from which a label is selected.
    n_missing : int
        Rows without any known label.
    n_known : array of shape (n_labels,)
        Rows in which each label is known.
    rows : array of shape (n_buckets, n_sums)
        Per bucket: rows, weight, exact matches, ranking loss, coverage and average precision.
    sums : array of shape (n_buckets, n_labels, n_sums)
        Per label: weight, probability, label, squared error, selected, correctly selected, and log
        loss.
    cells : array of shape (n_buckets, n_labels, n_cells, 3), or None
        Weight, label and probability on a coarse grid, for resamples of rankings, if kept.
    rankings : tuple of RankingState
        Rows by the probability of each label.

    Examples
    --------
    >>> from dubito import MultiLabel
    >>> from dubito.data import Batch
    >>> from dubito.measure import MultiLabelState
    >>> first = MultiLabelState.of(Batch.of([[1, 0]], MultiLabel([[0.9, 0.2]])))
    >>> second = MultiLabelState.of(Batch.of([[1, None]], MultiLabel([[0.4, 0.7]])))
    >>> (first + second).n_known.tolist()
    [2.0, 1.0]
    """

    names: Annotated[tuple[str, ...], converted(tuple, list_of(text, least=1))]
    threshold: Annotated[float, number(0, 1)]
    n_missing: int
    n_known: Annotated[FloatArray, sums_field("names", low=0)]
    # buckets x sums
    rows: Annotated[FloatArray, sums_field(None, N_ROW_SUMS, low=0)]
    # buckets x labels x sums
    sums: Annotated[FloatArray, sums_field("rows", "names", N_LABEL_SUMS, low=0)]
    # buckets x labels x cells x weight, label and probability
    cells: Annotated[FloatArray | None, optional(sums_field("rows", "names", N_CELLS, 3, low=0))]
    rankings: Annotated[
        tuple[RankingState, ...], converted(tuple, list_of(record_of(RankingState), "names"))
    ]
    shared = ("names", "threshold")

    @classmethod
    def of(
        cls,
        batch: Batch,
        *,
        threshold: float = THRESHOLD,
        is_gridded: bool = False,
        n_buckets: int = 1,
        has_cells: bool = True,
    ) -> Self:
        """Return the sums of a batch; with `is_gridded`, rankings of many batches stay small.

        More than one bucket of rows also keeps what resamples are drawn from: with `has_cells`,
        resamples of rankings and calibration too.

        Parameters
        ----------
        batch : Batch
            Rows with `MultiLabel` outputs and a label matrix.
        threshold : float, default=0.5
            The probability from which a label is selected.
        is_gridded : bool, default=False
            Round probabilities to a fixed grid, which bounds the size of the rankings.
        n_buckets : int, default=1
            Rows are spread over this many buckets by their number, which the bootstrap resamples.
        has_cells : bool, default=True
            Whether buckets keep what resamples of rankings and calibration need.

        Returns
        -------
        MultiLabelState
            The sums of these rows.
        """
        outputs, labels = batch.outputs, batch.labels
        assert isinstance(outputs, MultiLabel)
        assert isinstance(labels, LabelMatrix)
        n_labels = outputs.n_labels
        rows, n_known = np.zeros((n_buckets, N_ROW_SUMS)), np.zeros(n_labels)
        sums = np.zeros((n_buckets, n_labels, N_LABEL_SUMS))
        cells = np.zeros((n_buckets * (has_cells and n_buckets > 1), n_labels, N_CELLS, 3))
        names = tuple(map(str, outputs.names))
        columns = contiguous(outputs.array), contiguous(labels.values), batch.weight
        order = _by_name(names)
        label_sums(*columns, threshold, batch.first_row, order, rows, sums, cells, n_known)

        is_weighted, is_unit = batch.weight > 0, bool((batch.weight == 1).all())

        def ranking(label: int) -> RankingState:
            y = np.ascontiguousarray(labels.values[:, label])
            p = outputs.array[:, label].astype(np.float64)
            is_known, weight = ~np.isnan(y) & is_weighted, batch.weight
            if not is_known.all():
                y, p = y[is_known], p[is_known]
                weight = np.ones(y.size) if is_unit else weight[is_known]
            if is_gridded and p.size:
                return RankingState.of_cells(p, contiguous(weight), 1 - y)
            return RankingState.of_scores(y, p, weight)

        rankings = tuple(map_in_order(ranking, range(n_labels)))
        kept = cells if cells.size else None
        return cls(names, threshold, batch.n_missing, n_known, rows, sums, kept, rankings)

    @property
    def value(self) -> Self:
        """The state itself, from which `MultiLabelAudit` is computed; raises for no labels."""
        require_weight(self.sums.sum(), "An audit of several labels")
        return self


@final
@dataclass(frozen=True, slots=True, eq=False)
class MultiLabelAudit:
    """Metrics of several binary labels per row; `print(audit)` gives a readable summary.

    Made by :func:`audit` from arrays with `MultiLabel` outputs, or by :meth:`MultiLabelAudit.of`
    from shards. Unknown labels are left out, pair by pair of row and label.

    Attributes
    ----------
    n_rows, n_effective : int, float
        Rows with a known label and positive weight, and how many rows their weights stand for.
    n_missing : int
        Rows without any known label.
    n_known : dict of str to int
        Known labels of each name. A label with none is audited no further.
    threshold : float
        Labels of at least this probability are predicted.
    n_bins, bin_strategy : int, str
        The bins of the probabilities of each label, by which calibration errors are measured.
    log_losses, brier_scores : dict of str to float
        Log loss and Brier score of each label; probabilities are at least 1e-12 in the log loss.
    labels : dict of str to BinaryAudit
        The audit of each label, the worst calibrated first: by the calibration error in excess of
        that expected of a calibrated model on so many rows.
    means : dict of str to dict
        Means of the figures of all labels that have them, by name: "macro" counts each label once,
        "weighted" by its positives. "micro" pools all pairs of row and label: its calibration error
        is the mean over pairs, each in the bins of its label.
    subset_accuracy : float
        Fraction of the rows whose known labels are all predicted correctly. For labels that are
        probabilities, its mean if labels are independent.
    hamming_loss : float
        Fraction of the known labels that are predicted wrongly.
    ranking_loss, coverage_error, label_ranking_average_precision : float
        How well the known labels of a row are ranked, as in scikit-learn; labels that are neither 0
        nor 1 are left out.
    intervals : dict of str to Interval
        95 % bootstrap intervals of row metrics, and of means such as "macro.roc_auc". Rows are
        resampled, so that the labels of a row stay together; of many rows, random sets of them.
    groups : dict of str to MultiLabelAudit
        Audits per group; bootstrap intervals of rates and row metrics only.
    group_comparison : dict of str to GroupComparison
        The groups compared, label by label. The intervals of a figure hold for all groups and
        labels at once (Bonferroni over labels).

    References
    ----------
    Tsoumakas, Katakis and Vlahavas, "Mining multi-label data", in Data Mining and Knowledge
    Discovery Handbook, 2010.

    Examples
    --------
    >>> from dubito import MultiLabel, audit
    >>> found = audit([[1, 0], [0, 1]], MultiLabel([[0.9, 0.2], [0.4, 0.6]], ["cough", "fever"]))
    >>> found.hamming_loss, found.labels["cough"].roc_auc, found.means["macro"]["roc_auc"]
    (0.0, 1.0, 1.0)
    """

    n_rows: int
    n_effective: float
    n_missing: int
    n_known: dict[str, int]
    threshold: float
    n_bins: int
    bin_strategy: str
    log_losses: dict[str, float]
    brier_scores: dict[str, float]
    labels: dict[str, BinaryAudit]
    means: dict[str, dict[str, float]]
    subset_accuracy: float
    hamming_loss: float
    ranking_loss: float
    coverage_error: float
    label_ranking_average_precision: float
    intervals: dict[str, Interval] = field(default_factory=dict)
    groups: dict[str, MultiLabelAudit] = field(default_factory=dict)
    group_comparison: dict[str, GroupComparison] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        shards: Shards,
        *,
        n_bins: int | None = None,
        n_resamples: int | None = None,
        random_state: Any = 0,
        bin_strategy: str = "quantile",
        threshold: float = THRESHOLD,
    ) -> MultiLabelAudit:
        """Audit rows wherever they are, in one pass, and in a second one if there are groups.

        Streamed, ROC-AUC, average precision and calibration errors come from a fixed fine grid.

        Parameters
        ----------
        shards : Shards
            The rows: `ArrayShards`, `scan(...)` or `DaskShards`.
        n_bins : int, optional
            Number of bins of the probabilities of each label. Default: 10.
        n_resamples : int, optional
            Bootstrap resamples for the intervals of means; 0 leaves them out. Default: 1,000.
        random_state : None, int or RandomState, default=0
            Seed of the bootstrap.
        bin_strategy : {"quantile", "uniform", "log"}, default="quantile"
            Bins of the probabilities of each label.
        threshold : float, default=0.5
            Labels of at least this probability are predicted.

        Returns
        -------
        MultiLabelAudit
        """
        shards = require_shards(shards, "MultiLabelAudit.of", "Use audit(y_true, outputs)")
        first = next(shards.batches())
        _require_labels(first)
        seed = draw_seed(random_state, "audit")
        n_resamples = N_RESAMPLES if n_resamples is None else n_resamples
        n_drawn = as_n_resamples(n_resamples, "audit") if n_resamples else 0
        n_labels = first.n_columns
        n_buckets = next((n for most, n in BUCKETS.items() if n_labels <= most), MIN_BUCKETS)
        threshold = as_fraction(threshold, "threshold", "audit")
        is_gridded = shards.in_memory is None
        of = partial(MultiLabelState.of, threshold=threshold, is_gridded=is_gridded)
        state = shards.pool(partial(of, n_buckets=n_buckets if n_drawn else 1)).value
        n_bins = N_BINS if n_bins is None else n_bins
        read = partial(
            _read, n_bins=n_bins, bin_strategy=bin_strategy, n_resamples=n_drawn, seed=seed
        )
        result = read(state)
        if first.groups is None:
            return result
        of_group = partial(of, n_buckets=GROUP_BUCKETS if n_drawn else 1, has_cells=False)
        groups = shards.pool(partial(GroupedState.of, of=of_group)).value
        audits = {name: read(one) for name, one in groups.items()}
        comparison = _compare(groups, audits, n_drawn, seed)
        return replace(result, groups=audits, group_comparison=comparison)

    @property
    def miscalibrated(self) -> list[str]:
        """The labels whose calibration test rejects, at a level of 0.001 for all of them at once.

        The worst comes first. A label of fewer than 20 rows is not among them.
        """
        return [
            name
            for name, one in self.labels.items()
            if one.calibration_p_value * len(self.labels) < ALPHA
            and one.ranked.weight.sum() >= MIN_ROWS
        ]

    @property
    def small_groups(self) -> tuple[str, ...]:
        """Groups of fewer than 20 rows, which are not compared."""
        return tuple(name for name, one in self.groups.items() if one.n_effective < MIN_ROWS)

    @property
    def group_differences(self) -> list[tuple[str, str, Disparity]]:
        """Label, figure and groups of all differences beyond chance, by their lower bounds."""
        found = [
            (label, figure, one)
            for label, comparison in self.group_comparison.items()
            for figure, one in comparison.disparities.items()
            if one.interval.low > 0
        ]
        return sorted(found, key=lambda one: -one[2].interval.low)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        n_labels = quantity(len(self.labels), "label")
        if self.n_effective < MIN_ROWS:
            return f"Too few rows for a verdict on {n_labels} ({quantity(self.n_rows, 'row')})."
        found = self.miscalibrated
        if not found:
            rows = quantity(self.n_rows, "row")
            return f"No sign of miscalibration of any of {n_labels} on {rows}."
        worst = self.labels[found[0]]
        slope, sloped = worst.intervals.get("calibration_slope"), ""
        if slope is not None and not slope.low <= 1 <= slope.high:
            sloped = f"calibration slope {slope.value:.2f} (1 if calibrated), "
        return (
            f"{len(found)} of {n_labels} {'is' if len(found) == 1 else 'are'} miscalibrated, "
            f"'{found[0]}'{' the most' if len(found) > 1 else ''}: {sloped}mean probability "
            f"{percent(worst.mean_probability)}, observed frequency {percent(worst.base_rate)}."
        )

    @property
    def figures(self) -> dict[str, float]:
        """All single numbers in a flat dictionary, such as `label.NAME.roc_auc`, `macro.f1`."""
        flat = {f.name: getattr(self, f.name) for f in fields(self)}
        numbers = {k: v for k, v in flat.items() if isinstance(v, int | float)}
        for mean, values in self.means.items():
            numbers |= {f"{mean}.{name}": value for name, value in values.items()}
        numbers |= ends_of(self.intervals)
        for name, one in self.labels.items():
            point = one.operating_point
            own = {
                **_unprefixed(one.figures),
                "f1": point.f1,
                "accuracy": point.accuracy,
                "log_loss": self.log_losses[name],
                "brier_score": self.brier_scores[name],
            }
            numbers |= {f"label.{name}.{k}": v for k, v in own.items() if v is not None}
        for group, inner in self.groups.items():
            numbers |= {f"group.{group}.{k}": v for k, v in inner.figures.items()}
        for label, comparison in self.group_comparison.items():
            for group, metrics in comparison.metrics.items():
                numbers |= ends_of(_unprefixed(metrics), f"group.{group}.label.{label}.")
            for name, one in _unprefixed(comparison.disparities).items():
                ends = ends_of({name: one.interval}, f"disparity.label.{label}.")
                numbers |= {**ends, f"disparity.label.{label}.{name}": one.interval.value}
        return numbers

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as JSON-ready values.

        Returns
        -------
        dict
            All figures, the miscalibrated labels, and the verdict.
        """
        stated = {"miscalibrated": self.miscalibrated, "verdict": self.verdict}
        return {**json_fields(self), **stated}

    def _repr_html_(self) -> str:
        return _html(self)

    def __str__(self) -> str:
        return "\n".join(_lines(self))


def _unprefixed(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures of a label by the names that they have without other classes."""
    return {name.removeprefix("positive_"): one for name, one in figures.items()}


def _compare(
    states: Mapping[str, MultiLabelState],
    audits: Mapping[str, MultiLabelAudit],
    n_resamples: int,
    seed: int,
) -> dict[str, GroupComparison]:
    """Return the groups compared label by label, where at least one has enough rows."""
    names = next(iter(states.values())).names
    found = {}
    for k, label in enumerate(names):
        known = {group: one.labels[label] for group, one in audits.items() if label in one.labels}
        sums = {group: _decisions(states[group].sums[:, k].sum(axis=0)) for group in known}
        comparison = GroupComparison.of_positive(
            known, sums, n_resamples=n_resamples, seed=seed, level=1 - (1 - LEVEL) / len(names)
        )
        if comparison.metrics:
            found[label] = comparison
    return found


def _decisions(sums: FloatArray) -> DecisionState:
    """Return the decisions on a label, without costs."""
    return DecisionState(*[*sums[:6].tolist(), 0.0, 0.0])


def _require_labels(batch: Batch) -> None:
    """Raise unless there are labels of several outputs, and not in each other's place."""
    outputs, labels = batch.outputs, batch.labels
    if not isinstance(outputs, MultiLabel):
        rule, fix = "must be MultiLabel", "Pass MultiLabel(array), or use Audit.of"
        raise BadTypeError("outputs", "MultiLabelAudit.of", rule, type(outputs).__name__, fix)
    require_labels(batch, "audit")
    assert isinstance(labels, LabelMatrix)
    require_own_places(outputs, labels, "y_true", "audit")


def _read(
    state: MultiLabelState, *, n_bins: int, bin_strategy: str, n_resamples: int, seed: int
) -> MultiLabelAudit:
    """Compute all metrics from their sums, labels by name: their order changes no figure."""
    names, state = state.names, _sorted(state)
    rows, sums = state.rows.sum(axis=0), state.sums.sum(axis=0)

    audit_label = partial(
        BinaryAudit.of, n_bins=n_bins, bin_strategy=bin_strategy, n_resamples=n_resamples, seed=seed
    )

    def binary(label: int) -> BinaryAudit | None:
        decided = _decisions(sums[label])
        if not decided.weight > 0:
            return None
        point = decided.confusion(state.threshold)
        return audit_label(state.rankings[label], state.names[label], operating_point=point)

    audits = list(map_in_order(binary, range(len(state.names))))
    known = {name: one for name, one in zip(state.names, audits, strict=True) if one is not None}
    worst_first = sorted(known, key=lambda name: -_excess(known[name]))
    by_label = _rates(sums)
    by_label |= {
        name: np.array([getattr(one, name, None) for one in audits], dtype=np.float64)
        for name in RANKED
    }
    means = _means(by_label, sums, _areas_of(state.rankings))
    losses, scores = (
        {k: float(v) for k, v in zip(state.names, by_label[name], strict=True) if k in known}
        for name in PROPER
    )
    of_rows: dict[str, Any] = {k: float(v) for k, v in _row_figures(rows, sums).items()}
    result = MultiLabelAudit(
        n_rows=int(rows[0]),
        n_effective=float(rows[1]),
        n_missing=state.n_missing,
        n_known={name: int(n) for name, n in zip(state.names, state.n_known, strict=True)},
        threshold=state.threshold,
        n_bins=n_bins,
        bin_strategy=bin_strategy,
        log_losses=losses,
        brier_scores=scores,
        labels={name: known[name] for name in worst_first},
        means={
            kind: {name: float(value) for name, value in values.items() if np.isfinite(value)}
            for kind, values in means.items()
        },
        **of_rows,
    )
    if n_resamples and rows[0] >= 2:  # one row shows no variation
        result = _with_intervals(result, state, by_label, n_resamples, seed)
    return replace(
        result,
        n_known={name: result.n_known[name] for name in names},
        log_losses={name: losses[name] for name in names if name in losses},
        brier_scores={name: scores[name] for name in names if name in scores},
    )


def _by_name(names: Sequence[str]) -> IntArray:
    """Return the positions of labels in the order of their names."""
    return np.array(sorted(range(len(names)), key=names.__getitem__), dtype=np.int64)


def _sorted(state: MultiLabelState) -> MultiLabelState:
    """Return a state with its labels in the order of their names."""
    order = _by_name(state.names)
    return replace(
        state,
        names=tuple(state.names[k] for k in order),
        n_known=state.n_known[order],
        sums=np.ascontiguousarray(state.sums[:, order]),
        cells=None if state.cells is None else np.ascontiguousarray(state.cells[:, order]),
        rankings=tuple(state.rankings[k] for k in order),
    )


def _excess(audit: BinaryAudit) -> float:
    """Return the calibration error beyond that of a calibrated model on so many rows."""
    gaps = expected_gaps(_variance_in_bins(audit.curve))
    return audit.expected_calibration_error - float(gaps.sum() / audit.curve.count.sum())


def _variance_in_bins(curve: ReliabilityCurve) -> FloatArray:
    """Return the variance of the positives in each bin of a calibrated model."""
    return np.asarray(curve.count * curve.confidence * (1 - curve.confidence))


def _areas_of(rankings: tuple[RankingState, ...], n_together: int = RANGE) -> dict[str, float]:
    """Return ROC-AUC and average precision of all labels together, if both outcomes occur."""
    held = [one for one in rankings if one.weight.size]
    total, hits = (
        float(sum(getattr(one, k).sum() for one in held)) for k in ("weight", "positive")
    )
    if not 0 < hits < total:
        return {}
    # Range by range of scores, as fresh memory for all at once takes as long as merging them.
    n_ranges = 1 + sum(one.weight.size for one in held) // n_together
    longest = max(held, key=lambda one: one.weight.size).score
    edges = longest[np.arange(1, n_ranges) * longest.size // n_ranges]
    cuts = [np.searchsorted(one.score, edges).tolist() for one in held]
    bounds = [[0, *inner, one.weight.size] for inner, one in zip(cuts, held, strict=True)]
    sums = np.zeros(4)
    for k in range(n_ranges):
        parts = [
            (one, slice(*ends[k : k + 2]))
            for one, ends in zip(held, bounds, strict=True)
            if ends[k] < ends[k + 1]
        ]
        if parts:
            columns = (
                np.concatenate([getattr(one, name)[rows] for one, rows in parts])
                for name in ("score", "weight", "positive")
            )
            ends = np.cumsum([rows.stop - rows.start for _, rows in parts])
            pooled_areas(*columns, ends, total, hits, sums)
    area, precision = sums[2] / (hits * (total - hits)), sums[3] / hits
    return {"roc_auc": float(area), "average_precision": float(precision)}


def _row_figures(rows: FloatArray, sums: FloatArray) -> dict[str, FloatArray]:
    """Return the figures of rows from sums on the last axis, and of wrong labels among all."""
    weight, _, hit, _, selected, both, _ = np.moveaxis(sums.sum(axis=-2), -1, 0)
    means = (
        *np.moveaxis(rows[..., 2:] / rows[..., 1:2], -1, 0),
        (selected + hit - 2 * both) / weight,
    )
    return dict(zip(ROW_TITLES, means, strict=True))


def _means(
    by_label: Mapping[str, FloatArray], sums: FloatArray, pooled: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    """Return the means of figures over labels, the last axis; NaN where no label has a figure.

    `sums` holds the sums of each label; `pooled` what is known of all pairs of row and label.
    """
    weight, positive = sums[..., 0], sums[..., 2]
    every = {name: _mean(values, np.ones(weight.shape)) for name, values in by_label.items()}
    by_support = {name: _mean(values, positive) for name, values in by_label.items()}
    micro = {**_rates(sums.sum(axis=-2)), **pooled}
    for name in (ECE, IF_CALIBRATED):
        if name in by_label:
            micro[name] = _mean(by_label[name], weight)
    return dict(zip(MEANS, (every, micro, by_support), strict=True))


def _mean(values: FloatArray, weight: FloatArray) -> FloatArray:
    """Return the mean of the values that are not NaN, over the last axis."""
    is_known = ~np.isnan(values)
    total = np.where(is_known, weight, 0.0)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((np.where(is_known, values, 0.0) * total).sum(-1) / total.sum(-1))


def _rates(sums: FloatArray) -> dict[str, FloatArray]:
    """Return the figures that weighted sums determine, NaN where they are undefined."""
    weight, predicted, hit, square, selected, both, loss = np.moveaxis(sums, -1, 0)
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = hit / weight
        skill = 1 - square / weight / (rate * (1 - rate))
        return {
            "base_rate": rate,
            "mean_probability": predicted / weight,
            "gap": predicted / weight - rate,
            "log_loss": loss / weight,
            "brier_score": square / weight,
            "brier_skill_score": np.where(np.isfinite(skill), skill, np.nan),
            "selection_rate": selected / weight,
            "false_positive_rate": (selected - both) / (weight - hit),
            "false_negative_rate": (hit - both) / hit,
            "precision": both / selected,
            "recall": both / hit,
            "f1": 2 * both / (selected + hit),
            "accuracy": (weight - selected - hit + 2 * both) / weight,
        }


def _with_intervals(
    result: MultiLabelAudit,
    state: MultiLabelState,
    by_label: Mapping[str, FloatArray],
    n_resamples: int,
    seed: int,
) -> MultiLabelAudit:
    """Return an audit with bootstrap intervals of its means.

    Each bucket of rows is drawn a Poisson number of times. What ranks rows is computed from cells,
    and its difference from that of all rows in the same cells counts.
    """
    draws = np.random.default_rng(seed).poisson(1.0, (n_resamples, len(state.rows))) * 1.0
    draws = draws[draws @ state.rows[:, 1] > 0]  # of few rows, none may be drawn
    rows, sums = draws @ state.rows, np.tensordot(draws, state.sums, 1)
    drawn, together = _rates(sums), dict[str, FloatArray]()
    if state.cells is not None:
        ranked, together = _ranked_draws(result, state.cells, by_label, draws, seed)
        drawn |= ranked
    intervals = {}
    percentiles = partial(interval_of, level=LEVEL, caller="audit")
    for kind, means in _means(drawn, sums, together).items():
        finite = {name: values[np.isfinite(values)] for name, values in means.items()}
        calibrated = finite.pop(IF_CALIBRATED, np.empty(0))
        for name, found in finite.items():
            value = result.means[kind].get(name)
            if value is None or not found.size:
                continue
            if name == ECE:
                interval = error_interval(value, found, calibrated, LEVEL)
            else:
                interval = percentiles(value, found)
            if name == "average_precision":
                interval = _mirrored(interval)
            intervals[f"{kind}.{name}"] = interval
    for name, resampled in _row_figures(rows, sums).items():
        intervals[name] = percentiles(getattr(result, name), resampled)
    return replace(result, intervals=intervals)


def _ranked_draws(
    result: MultiLabelAudit,
    cells: FloatArray,
    by_label: Mapping[str, FloatArray],
    draws: FloatArray,
    seed: int,
) -> tuple[dict[str, FloatArray], dict[str, FloatArray]]:
    """Return resampled figures of rankings: of each label, and of all labels together."""
    figures: dict[str, list[FloatArray]] = {}
    pooled: Any = 0.0
    for k, label in enumerate(result.n_known):
        own = np.concatenate(
            [cells[:, k].sum(axis=0)[np.newaxis], np.tensordot(draws, cells[:, k], 1)]
        )
        pooled = pooled + own
        for name, values in {**_cell_figures(own, result.n_bins), **_line_figures(own)}.items():
            figures.setdefault(name, []).append(by_label[name][k] + values[1:] - values[0])
        errors = np.full(len(draws), np.nan)
        if label in result.labels:
            curve = result.labels[label].curve
            total = float(curve.count.sum())
            errors = errors_if_calibrated(_variance_in_bins(curve), total, len(draws), seed + k)
        figures.setdefault(IF_CALIBRATED, []).append(errors)
    together = {
        name: result.means["micro"].get(name, np.nan) + values[1:] - values[0]
        for name, values in _cell_figures(pooled, result.n_bins).items()
        if name != ECE
    }
    return {name: np.stack(values, axis=-1) for name, values in figures.items()}, together


def _mirrored(interval: Interval) -> Interval:
    """Return the basic bootstrap interval of a fraction, from that of percentiles.

    A positive that is drawn twice stands beside itself: with few positives, resamples exceed the
    average precision as it exceeds that of all rows that might occur.
    """
    value = interval.value
    low, high = 2 * value - interval.high, 2 * value - interval.low
    return Interval(value, min(max(low, 0.0), value), max(min(high, 1.0), value))


def _cell_figures(cells: FloatArray, n_bins: int) -> dict[str, FloatArray]:
    """Return ROC-AUC, average precision and ECE of resamples x cells, NaN where undefined.

    The first resample holds all rows: its cells are pooled into bins of about equal weight.
    """
    weight, positive, predicted = np.moveaxis(cells, -1, 0)
    negative, hits = weight - positive, positive.sum(-1)
    below = np.cumsum(negative, -1) - negative / 2
    above, hits_above = (np.cumsum(one[:, ::-1], -1)[:, ::-1] for one in (weight, positive))
    with np.errstate(divide="ignore", invalid="ignore"):
        area = (positive * below).sum(-1) / (hits * negative.sum(-1))
        precision = np.where(positive > 0, hits_above / above, 0.0)
        average = (positive * precision).sum(-1) / hits
        place = np.cumsum(weight[0]) - weight[0] / 2
        bins = np.minimum(place / weight[0].sum() * n_bins, n_bins - 1)
        starts = np.searchsorted(bins, np.arange(n_bins))
        starts = np.unique(starts[starts < bins.size])
        gaps = np.abs(np.add.reduceat(predicted - positive, starts, axis=-1)).sum(-1)
        return {"roc_auc": area, "average_precision": average, ECE: gaps / weight.sum(-1)}


def _line_figures(cells: FloatArray) -> dict[str, FloatArray]:
    """Return calibration slope and intercept of resamples x cells, by a Newton step from the first.

    It is that of all rows. They are measured from it, NaN if the labels are separable.
    """
    weight, positive, predicted = np.moveaxis(cells, -1, 0)
    is_held = (weight[0] > 0) & (predicted[0] > 0) & (predicted[0] < weight[0])
    weight, positive = weight[:, is_held], positive[:, is_held]
    p = predicted[0, is_held] / weight[0]
    odds = np.log(p / (1 - p))
    names = ("calibration_intercept", "calibration_slope")
    found = {name: np.full(len(cells), np.nan) for name in names}
    if not 0 < positive[0].sum() < weight[0].sum():
        return found
    for is_line, name in enumerate(names):
        columns, start = (odds, weight[0], positive[0]), np.array([0.0, 1.0])
        at, _, information = logistic_line(columns, start, bool(is_line))
        if information is not None:
            residual = positive - weight / (1 + np.exp(-(at[0] + at[1] * odds)))
            gradient = residual @ np.stack([np.ones(odds.size), odds], axis=1)[:, : 1 + is_line]
            found[name] = np.linalg.solve(information, gradient.T)[-1]
    return found


def _html(audit: MultiLabelAudit) -> str:
    """Return an audit for notebooks: the verdict, the metrics, then labels and groups."""
    heads, marked = ("label", *LABEL_HEADS, ""), set(audit.miscalibrated)
    labels = [
        (name, *_label_cells(audit, name), "miscalibrated" if name in marked else "")
        for name in audit.labels
    ]
    more = f"; the first {MAX_SHOWN} are shown" if len(labels) > MAX_SHOWN else ""
    parts: list[str | HTMLTable] = [
        f"{_size(audit)}. Labels by calibration error, the worst first{more}.",
        HTMLTable(heads, labels[:MAX_SHOWN]),
        HTMLTable(("metric", "value", "95 % interval"), _metric_cells(audit), "Metrics"),
        _bin_note(audit),
    ]
    parts += group_tables(audit.groups)
    if beyond := audit.group_differences[:MAX_DIFFERENCES]:
        differences = [
            (f"{label}, {GROUP_TITLES[figure]}", *figure_texts(one.interval, figure, "points"),
             f"{one.highest} - {one.lowest}")
            for label, figure, one in beyond
        ]  # fmt: skip
        title = "Differences between groups beyond chance"
        parts.append(HTMLTable(("", "difference", "interval", "groups"), differences, title))
    return html_view(audit.verdict, *parts)


def _lines(audit: MultiLabelAudit) -> list[str]:
    """Return an audit as lines of at most 80 columns."""
    lines = [*wrapped(audit.verdict, 80), "", _size(audit)]
    if empty := [name for name in audit.n_known if name not in audit.labels]:
        lines += wrapped(f"Labels without a known row, left out: {', '.join(empty)}", 80)
    head = f"  {'':<27} {'value':>7} {'95 % interval' if audit.intervals else ''}"
    lines += ["", head.rstrip()]
    for title, value, between in _metric_cells(audit):
        lines.append(f"  {title:<27} {value:>7} {between}".rstrip())
    lines += [_bin_note(audit), "", *_label_lines(audit)]
    return lines + _group_lines(audit)


def _size(audit: MultiLabelAudit) -> str:
    """Return the numbers of rows and labels, and of labels that are not known."""
    size = f"{quantity(audit.n_rows, 'row')}, {quantity(len(audit.n_known), 'label')}"
    n_pairs = (audit.n_rows + audit.n_missing) * len(audit.n_known)
    n_unknown = n_pairs - sum(audit.n_known.values())
    return f"{size}; {n_unknown:,} unknown labels left out" if n_unknown else size


def _bin_note(audit: MultiLabelAudit) -> str:
    """Return what bins the calibration error has."""
    micro = "micro: the mean over pairs of row and label"
    return f"ECE: {BINS[audit.bin_strategy]} bins per label; {micro}."


def _metric_cells(audit: MultiLabelAudit) -> list[tuple[str, str, str]]:
    """Return name, value and interval of each metric of rows and of all labels."""
    titles = {**TITLES, ECE: f"ECE ({audit.n_bins} bins)"}
    found = [(title, name, getattr(audit, name)) for name, title in ROW_TITLES.items()]
    found += [
        (f"{title}, {kind}", f"{kind}.{name}", audit.means[kind].get(name))
        for name, title in titles.items()
        for kind in MEANS
    ]
    return [
        (title, f"{value:.4f}", ends_text(audit.intervals.get(name)))
        for title, name, value in found
        if value is not None
    ]


def _group_lines(audit: MultiLabelAudit) -> list[str]:
    """Return the verdict on each group, and the largest differences between groups."""
    lines = []
    for name, inner in audit.groups.items():
        lines += ["", *wrapped(f"{printable(name)}: {inner.verdict}", 80)]
    if not any(one.disparities for one in audit.group_comparison.values()):
        return lines
    beyond = audit.group_differences
    if not beyond:
        return [*lines, "", "No difference between groups is beyond chance, label by label."]
    head = "Differences between groups beyond chance; intervals hold for all labels at once"
    lines += ["", *wrapped(head, 80)]
    for label, figure, one in beyond[:MAX_DIFFERENCES]:
        value, ends = figure_texts(one.interval, figure, "points")
        pair = f"{printable(one.highest)[:12]} - {printable(one.lowest)[:12]}"
        title = f"{printable(label)[:14]}, {GROUP_TITLES[figure]}"
        lines.append(f"  {title:<35}{value:>12} {f'({ends})':<15} {pair}")
    if (n_more := len(beyond) - MAX_DIFFERENCES) > 0:
        lines.append(f"  and {n_more} more")
    return lines


def _label_cells(audit: MultiLabelAudit, name: str) -> tuple[str, ...]:
    """Return the figures of a label, in the order of `LABEL_HEADS`."""
    one = audit.labels[name]
    return (
        f"{audit.n_known[name]:,}",
        percent(one.base_rate),
        percent(one.mean_probability),
        f"{one.expected_calibration_error:.4f}",
        "-" if one.calibration_slope is None else f"{one.calibration_slope:.2f}",
        "-" if one.roc_auc is None else f"{one.roc_auc:.3f}",
        "-" if one.operating_point.f1 is None else f"{one.operating_point.f1:.3f}",
    )


def _label_lines(audit: MultiLabelAudit) -> list[str]:
    """Return the figures of each label, the worst calibrated first."""
    title = f"label (worst {MAX_SHOWN})" if len(audit.labels) > MAX_SHOWN else "label"
    widths = (9, 9, 8, 7, 6, 7, 6)
    head = "".join(f" {text:>{width}}" for text, width in zip(LABEL_HEADS, widths, strict=True))
    lines = [f"  {title:<19}{head}"]
    marked = set(audit.miscalibrated)
    for name in list(audit.labels)[:MAX_SHOWN]:
        cells = _label_cells(audit, name)
        line = "".join(f" {text:>{width}}" for text, width in zip(cells, widths, strict=True))
        lines.append(f"{'*' if name in marked else ' '} {printable(name)[:19]:<19}{line}")
    if marked:
        lines.append("* miscalibrated: the test of slope 1 and intercept 0 rejects")
    return lines
