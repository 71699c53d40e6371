"""The audit of a regression: coverage and width of its prediction intervals, and scores."""

from __future__ import annotations

from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Any, Self, final

import numpy as np

from dubito.arrays import FloatArray
from dubito.data.batch import Batch
from dubito.data.shards import Shards, require_shards
from dubito.formatting import HTMLTable, decimal, html_view, level_percent, percent, quantity
from dubito.measure.regression import (
    central_interval,
    crps_of_rows,
    has_median,
    interval_scores,
    moment_matched,
    nll_of_rows,
    pinballs,
    pit_of_rows,
    require_targets,
    squared_errors,
    values_of,
)
from dubito.measure.state import (
    WEIGHT,
    GroupedState,
    State,
    json_fields,
    require_weight,
    sums_field,
)
from dubito.measure.text import group_tables
from dubito.outputs import BaseOutputs, Normal, Quantiles, RegressionMembers, Samples
from dubito.serialization.array_fields import array
from dubito.serialization.objects import stores_fields

MIDDLE = 0.5 - 1e-9  # levels that are summed up may miss it by rounding
LEVELS = (0.5, 0.8, 0.9, 0.95)
N_PIT_BINS = 20
MIN_ROWS = 20


@final
@stores_fields
@dataclass(frozen=True, slots=True, eq=False)
class RegressionState(State):
    """Weighted sums that determine the audit of a regression.

    `nll` is None except for `Normal`, `pinball` except for `Quantiles`, and both variances except
    for `RegressionMembers`.

    Attributes
    ----------
    levels : array of shape (n_levels,)
        The levels of the central intervals.
    n_rows, n_missing : int
        Rows with a target and without one.
    weight : float
        Total weight.
    squared_error : float or None
        Sum of squared errors of the point prediction; None for quantiles without a median.
    crps : float
        Sum of continuous ranked probability scores.
    nll, pinball : float or None
        Sums of negative log-likelihoods, and of pinball losses.
    covered, width, score : array of shape (n_levels,)
        Per level: weight of the covered targets, and sums of widths and interval scores.
    pit : array of shape (n_bins,)
        Weight per bin of the probability integral transform.
    aleatoric, epistemic : float or None
        Sums of the two parts of the variance.
    n_rearranged : int
        Rows whose quantiles crossed and were sorted.
    """

    levels: Annotated[FloatArray, array(None, low=0.0, high=1.0, is_empty_allowed=True)]
    n_rows: int
    n_missing: int
    weight: Annotated[float, WEIGHT]
    squared_error: float | None
    crps: float
    nll: float | None
    pinball: float | None
    covered: Annotated[FloatArray, sums_field("levels", low=0)]
    width: Annotated[FloatArray, sums_field("levels", low=0)]
    score: Annotated[FloatArray, sums_field("levels", low=0)]
    pit: Annotated[FloatArray, sums_field(None, low=0)]
    aleatoric: float | None
    epistemic: float | None
    n_rearranged: int
    shared = ("levels",)

    @classmethod
    def of(cls, batch: Batch) -> Self:
        """Return the sums of a batch.

        Parameters
        ----------
        batch : Batch
            Rows with predictive distributions and targets.

        Returns
        -------
        RegressionState
            The sums of these rows.
        """
        given, batch = batch.outputs, moment_matched(batch)
        require_targets(batch, "audit")
        outputs, y, weight = batch.outputs, values_of(batch), batch.labeled_weight
        levels = interval_levels(outputs)
        ends = [central_interval(outputs, level, "audit") for level in levels]

        def total(values: Any) -> float:
            """Return the weighted sum over rows of the mean over coordinates."""
            array = np.asarray(values, dtype=np.float64)
            return float(weight @ (array if array.ndim == 1 else array.mean(axis=1)))

        scores = zip(ends, levels, strict=True)
        place = pit_of_rows(outputs, y)
        bins = np.minimum((place * N_PIT_BINS).astype(np.int64), N_PIT_BINS - 1)
        parts = np.broadcast_to(weight.reshape(-1, *[1] * (y.ndim - 1)), y.shape) / y[:1].size
        quantiles = outputs if isinstance(outputs, Quantiles) else None
        members = given if isinstance(given, RegressionMembers) else None
        return cls(
            levels=np.array(levels),
            n_rows=len(batch) - batch.n_missing,
            n_missing=batch.n_missing,
            weight=float(weight.sum()),
            squared_error=total(squared_errors(outputs, y)) if has_median(outputs) else None,
            crps=total(crps_of_rows(outputs, y)),
            nll=total(nll_of_rows(outputs, y)) if isinstance(outputs, Normal) else None,
            pinball=None if quantiles is None else total(pinballs(quantiles, y).mean(axis=1)),
            covered=np.array([total((low <= y) & (y <= high)) for low, high in ends]),
            width=np.array([total(high - low) for low, high in ends]),
            score=np.array([total(interval_scores(y, *pair, level)) for pair, level in scores]),
            pit=np.bincount(bins.ravel(), parts.ravel(), minlength=N_PIT_BINS) * 1.0,
            aleatoric=None if members is None else total(members.aleatoric_variance),
            epistemic=None if members is None else total(members.epistemic_variance),
            n_rearranged=0 if quantiles is None else quantiles.n_rearranged,
        )

    @property
    def value(self) -> RegressionAudit:
        require_weight(self.weight, "A regression audit")
        return RegressionAudit(
            n_rows=self.n_rows,
            n_missing=self.n_missing,
            root_mean_squared_error=_root_mean(self.squared_error, self.weight),
            continuous_ranked_probability_score=self.crps / self.weight,
            negative_log_likelihood=None if self.nll is None else self.nll / self.weight,
            pinball_loss=None if self.pinball is None else self.pinball / self.weight,
            levels=self.levels,
            coverage=self.covered / self.weight,
            coverage_deviation=np.sqrt(self.levels * (1 - self.levels) / self.weight),
            width=self.width / self.weight,
            interval_score=self.score / self.weight,
            pit=self.pit / self.weight,
            aleatoric_std=_root_mean(self.aleatoric, self.weight),
            epistemic_std=_root_mean(self.epistemic, self.weight),
            n_rearranged=self.n_rearranged,
        )


@final
@dataclass(frozen=True, slots=True, eq=False)
class RegressionAudit:
    """Metrics of a regression's predictive distributions; `print(audit)` gives a readable summary.

    Made by :func:`audit` from arrays, or by :meth:`RegressionAudit.of` from shards.

    Attributes
    ----------
    n_rows, n_missing : int
        Rows with and without a target.
    root_mean_squared_error : float or None
        RMSE of the mean (median for `Quantiles`; None if all levels are on one side of it).
    continuous_ranked_probability_score : float
        CRPS.
    negative_log_likelihood, pinball_loss : float or None
        For `Normal` and `Quantiles` outputs.
    levels : ndarray
        Nominal coverage of the central prediction intervals.
    coverage, coverage_deviation : ndarray
        Fraction of targets inside them, and its standard deviation on so many rows.
    width, interval_score : ndarray
        Their mean width, and their interval score (Winkler score).
    pit : ndarray
        Histogram of the probability integral transform in 20 bins.
    aleatoric_std, epistemic_std : float or None
        Roots of the mean variance that the members of an ensemble predict (noise in the data) and
        of the mean variance between their means (what the model does not know).
    n_rearranged : int
        Rows whose quantiles crossed and were sorted.
    groups : dict of str to RegressionAudit
        Audits per group.

    Examples
    --------
    >>> from dubito import Normal, audit
    >>> audit([0.0, 1.0], Normal([0.0, 0.0], [1.0, 1.0])).coverage.tolist()
    [0.5, 1.0, 1.0, 1.0]
    """

    n_rows: int
    n_missing: int
    root_mean_squared_error: float | None
    continuous_ranked_probability_score: float
    negative_log_likelihood: float | None
    pinball_loss: float | None
    levels: FloatArray
    coverage: FloatArray
    coverage_deviation: FloatArray
    width: FloatArray
    interval_score: FloatArray
    pit: FloatArray
    aleatoric_std: float | None = None
    epistemic_std: float | None = None
    n_rearranged: int = 0
    groups: dict[str, RegressionAudit] = field(default_factory=dict)

    @classmethod
    def of(cls, shards: Shards) -> RegressionAudit:
        """Audit rows wherever they are, in one pass, and in a second one if there are groups.

        Parameters
        ----------
        shards : Shards
            Rows with predictive distributions and targets.

        Returns
        -------
        RegressionAudit
            The audit, with one per group if the rows have groups.
        """
        shards = require_shards(shards, "RegressionAudit.of", "Use audit(y_true, outputs)")
        result = shards.sum(RegressionState.of).value
        if next(shards.batches()).groups is None:
            return result
        states = shards.sum(partial(GroupedState.of, of=RegressionState.of)).value
        return replace(result, groups={name: state.value for name, state in states.items()})

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        rows = quantity(self.n_rows, "row")
        if not self.levels.size:
            return f"No central interval among the quantile levels ({rows})."
        k = int(np.argmax(np.abs(self.coverage - self.levels) / self.coverage_deviation))
        level, covered = float(self.levels[k]), float(self.coverage[k])
        coverage = f"{level_percent(level)} intervals contain {percent(covered)} of the targets"
        if self.n_rows < MIN_ROWS:
            return f"Too few rows for a verdict ({rows}): {coverage}."
        if abs(covered - level) <= 3 * self.coverage_deviation[k]:
            return f"No sign of miscalibration on {rows}: {coverage}."
        if covered < level:
            return f"Over-confident: {coverage}, so they are too narrow."
        return f"Under-confident: {coverage}, so they are too wide."

    @property
    def crps_title(self) -> str:
        """The name of the CRPS: a mean over quantile levels is not that of a distribution."""
        return "CRPS" if self.pinball_loss is None else "CRPS (from quantiles)"

    @property
    def figures(self) -> dict[str, float]:
        """All single numbers in a flat dictionary, for experiment trackers."""
        flat = {f.name: getattr(self, f.name) for f in fields(self)}
        numbers = {k: v for k, v in flat.items() if isinstance(v, int | float)}
        for name in ("coverage", "width", "interval_score"):
            for level, value in zip(self.levels, getattr(self, name), strict=True):
                numbers[f"{name}.{level:g}"] = float(value)
        for group, inner in self.groups.items():
            numbers |= {f"group.{group}.{k}": v for k, v in inner.figures.items()}
        return numbers

    def to_dict(self) -> dict[str, Any]:
        """Return the audit as JSON-ready numbers and lists.

        Returns
        -------
        dict
            All figures, the verdict, and the audits of groups.
        """
        return {**json_fields(self), "verdict": self.verdict}

    def _repr_html_(self) -> str:
        tables = [HTMLTable(("metric", "value"), self._metric_cells())]
        if self.levels.size:
            heads = ("interval", "coverage", "mean width", "interval score")
            tables.append(HTMLTable(heads, self._interval_cells()))
        return html_view(self.verdict, self._size(), *tables, *group_tables(self.groups))

    def __str__(self) -> str:
        lines = [self.verdict, "", self._size(), ""]
        lines += [f"  {name:<24} {value:>10}" for name, value in self._metric_cells()]
        table = [("interval", "coverage", "mean width", "interval score"), *self._interval_cells()]
        if self.levels.size:
            lines += ["", *(f"  {a:>8} {b:>9} {c:>12} {d:>15}" for a, b, c, d in table)]
        for name, one in self.groups.items():
            lines += ["", f"{name}: {one.verdict}"]
        return "\n".join(lines)

    def _size(self) -> str:
        """Return the number of rows, and of those left out or changed."""
        rows = [quantity(self.n_rows, "row")]
        if self.n_missing:
            rows.append(f"{quantity(self.n_missing, 'row')} without a target left out")
        if self.n_rearranged:
            rows.append(f"{quantity(self.n_rearranged, 'row')} with crossing quantiles sorted")
        return "; ".join(rows)

    def _metric_cells(self) -> list[tuple[str, str]]:
        """Return name and value of each known metric."""
        figures = {
            "root mean squared error": self.root_mean_squared_error,
            self.crps_title: self.continuous_ranked_probability_score,
            "negative log-likelihood": self.negative_log_likelihood,
            "pinball loss": self.pinball_loss,
            "aleatoric std": self.aleatoric_std,
            "epistemic std": self.epistemic_std,
        }
        return [(name, decimal(value)) for name, value in figures.items() if value is not None]

    def _interval_cells(self) -> list[tuple[str, str, str, str]]:
        """Return level, coverage, width and score of each interval."""
        columns = zip(self.levels, self.coverage, self.width, self.interval_score, strict=True)
        return [
            (level_percent(level), percent(covered), decimal(width), decimal(score))
            for level, covered, width, score in columns
        ]


def interval_levels(outputs: BaseOutputs) -> list[float]:
    """Return the levels whose central intervals the outputs can give."""
    if isinstance(outputs, Samples):
        # Between draws nothing is known: of m draws, k from each end hold 1 - 2 k / (m + 1).
        n_gaps = outputs.array.shape[1] + 1
        from_each_end = {max(1, round((1 - level) / 2 * n_gaps)) for level in LEVELS}
        levels = (1 - 2 * k / n_gaps for k in from_each_end)
        return sorted(level for level in levels if level > 0)
    if not isinstance(outputs, Quantiles):
        return list(LEVELS)
    pairs = [
        low for low in outputs.levels if low < MIDDLE and np.isclose(outputs.levels, 1 - low).any()
    ]
    return sorted(round(float(1 - 2 * low), 12) for low in pairs)


def _root_mean(total: float | None, weight: float) -> float | None:
    """Return the root of a weighted mean, None for what is unknown."""
    return None if total is None else float(np.sqrt(total / weight))
