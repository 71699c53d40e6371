"""Models, or versions of one, compared on the same rows."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.data.batch import Batch, require_labels
from dubito.data.labels import Labels
from dubito.data.shards import load_rows, make_shards
from dubito.decide import CostMatrix, cost_report, cost_savings
from dubito.decide.value import MeanInterval
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, EmptyStateError
from dubito.measure.binary import positive_column
from dubito.measure.intervals import Interval, interval_of
from dubito.measure.regression import moment_matched
from dubito.measure.state import json_fields, warn_of_missing
from dubito.monitor.metrics import (
    HIGHER_IS_BETTER,
    INTERVALS,
    TITLES,
    PositiveRows,
    adjusted,
    describe_outputs,
    normal_p_value,
    resampled_metrics,
    row_losses,
    row_metrics,
)
from dubito.monitor.verdicts import comparison_html, comparison_lines, comparison_verdict
from dubito.outputs import BaseClassOutputs, ClassName, Quantiles, TopLabel

CALLER = "compare"
CRPS = ("continuous_ranked_probability_score", "crps_from_quantiles")


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """A metric of a model minus that of its baseline, on the same rows.

    Attributes
    ----------
    model, baseline : str
        The names of both models.
    metric : str
        The name of the metric, such as "log_loss".
    interval : Interval
        The difference and its confidence interval.
    p_value : float
        Adjusted for all comparisons (Holm).
    is_better : bool or None
        Whether the model is significantly better; None if the difference is not significant.
    """

    model: str
    baseline: str
    metric: str
    interval: Interval
    p_value: float
    is_better: bool | None


@final
@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of `compare`; `print(comparison)` shows it as text.

    Attributes
    ----------
    models : tuple of str
        The names of the models; the first is the baseline.
    best : str
        The best model on these rows, by the metric `best_by`: cost if there are costs, otherwise
        log loss, CRPS or accuracy.
    best_by : str
        The name of that metric.
    metrics : dict
        The interval of each metric, by model and name of the metric.
    differences : tuple of Difference
        Differences to the first model and, if that is another one, to the best model. Infinite
        losses have none.
    level : float
        The level of each interval. Significance is adjusted for all comparisons (Holm).
    n_rows, n_missing : int
        Labeled rows, and rows left out because they have no label.

    Examples
    --------
    >>> from dubito.monitor import compare
    >>> a, b = [[0.6, 0.4], [0.4, 0.6]] * 50, [[0.9, 0.1], [0.1, 0.9]] * 50
    >>> comparison = compare([0, 1] * 50, {"a": a, "b": b})
    >>> comparison.difference("b", "a", "log_loss").is_better
    True
    """

    models: tuple[str, ...]
    best: str
    best_by: str
    metrics: dict[str, dict[str, Interval]]
    differences: tuple[Difference, ...]
    level: float
    n_rows: int
    n_missing: int

    def difference(self, model: str, baseline: str, metric: str) -> Difference:
        """Return the difference of two models in one metric.

        Parameters
        ----------
        model, baseline : str
            The names of both models.
        metric : str
            The name of the metric.

        Returns
        -------
        Difference
        """
        for one in self.differences:
            if (one.model, one.baseline, one.metric) == (model, baseline, metric):
                return one
        known = sorted({f"{one.model} - {one.baseline}" for one in self.differences})
        rule = f"must be one of {', '.join(known)} in a metric of both"
        got = f"{model} - {baseline} in {metric}"
        raise BadValueError("model", "difference", rule, got, "See `differences`")

    def figures(self, model: str) -> dict[str, float]:
        """Return the metrics of a model and how they changed, in a flat dictionary.

        Beside each metric there are its `change.` from the baseline, and how much it is `worse.`:
        0 unless significantly so (Holm). `.low` and `.high` are the ends of intervals.

        Parameters
        ----------
        model : str
            The name of a model, not the baseline.

        Returns
        -------
        dict of str to float

        Examples
        --------
        >>> from dubito.monitor import compare
        >>> a, b = [[0.6, 0.4], [0.4, 0.6]] * 50, [[0.9, 0.1], [0.1, 0.9]] * 50
        >>> figures = compare([0, 1] * 50, {"a": a, "b": b}).figures("b")
        >>> round(figures["change.log_loss"], 3), figures["worse.log_loss"]
        (-0.405, 0.0)
        """
        baseline, *others = self.models
        if model not in others:
            rule = f"must be one of {', '.join(others)}"
            raise BadValueError("model", "figures", rule, repr(model), "See `models`")
        pair = model, baseline
        known = {d.metric: d for d in self.differences if (d.model, d.baseline) == pair}
        found: dict[str, float] = {}
        for name, one in self.metrics[model].items():
            if name in known:
                change, is_worse = known[name].interval, known[name].is_better is False
            else:  # a loss is infinite
                was = self.metrics[baseline][name].value
                size = 0.0 if np.isinf(was) and np.isinf(one.value) else one.value - was
                change, is_worse = Interval(size, size, size), size > 0
            found |= {name: one.value, f"{name}.low": one.low, f"{name}.high": one.high}
            found |= {f"change.{name}": change.value, f"change.{name}.low": change.low}
            found |= {f"change.{name}.high": change.high}
            found[f"worse.{name}"] = abs(change.value) if is_worse else 0.0
        return found

    @property
    def verdict(self) -> str:
        """The significant differences, in sentences."""
        return comparison_verdict(self)

    def to_dict(self) -> dict[str, Any]:
        """Return the comparison as JSON values; infinite numbers become None.

        Returns
        -------
        dict
            The metrics of each model, their differences, and the verdict.
        """
        return {**json_fields(self), "verdict": self.verdict}

    def __str__(self) -> str:
        return "\n".join(comparison_lines(self))

    def _repr_html_(self) -> str:
        return comparison_html(self)


def compare(
    y_true: Any,
    models: Mapping[str, Any],
    *,
    sample_weight: Any = None,
    level: float = 0.95,
    random_state: Any = 0,
    n_resamples: int = 1000,
    costs: CostMatrix | None = None,
    row_costs: Any = None,
    pos_label: ClassName | None = None,
) -> Comparison:
    """Compare models on the same rows, with confidence intervals of their differences.

    Use it before replacing a model: it shows in which metrics the new one is significantly better.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Labels or targets; None if `models` are shards or `TopLabel` outputs.
    models : dict
        Outputs by name; the first model is the baseline. All are outputs over classes, or all are
        `Normal`, `Samples`, `Quantiles` or `RegressionMembers` (by their moments); or shards of the
        same rows, 100,000 of them sampled.
    sample_weight : array-like of shape (n_rows,), optional
        Frequency weights.
    level : float, default 0.95
        The level of confidence intervals and of significance.
    random_state : None, int or RandomState, default 0
        For the bootstrap and for sampling.
    n_resamples : int, default 1000
        The number of paired Poisson bootstrap resamples.
    costs : CostMatrix, optional
        Adds the cost per row of optimal decisions.
    row_costs : dict, data frame or array, optional
        The columns that `costs` depend on, or the costs of each row, rows x actions x classes.
    pos_label : str or int, optional
        The positive class of two: adds ROC-AUC, average precision, Brier skill score and the
        calibration error of its probability. Labels 0 and 1 need none: 1 is positive.

    Returns
    -------
    Comparison

    Examples
    --------
    >>> from dubito.monitor import compare
    >>> a, b = [[0.6, 0.4], [0.4, 0.6]] * 50, [[0.9, 0.1], [0.1, 0.9]] * 50
    >>> compare([0, 1] * 50, {"a": a, "b": b}).best
    'b'
    """
    bootstrap = MeanInterval.of(level, random_state, n_resamples, CALLER)
    if row_costs is not None and costs is None:
        rule, fix = "must be None without costs", "Pass costs=CostMatrix(...)"
        raise BadValueError("row_costs", CALLER, rule, type(row_costs).__name__, fix)
    batches = _as_models(y_true, models, sample_weight, row_costs, bootstrap.seed)
    first = next(iter(batches.values()))
    warn_of_missing(first.n_missing, len(first), CALLER, stacklevel=3)
    if not first.labeled_weight.any():
        raise EmptyStateError("A comparison")
    found, difference = _estimates(batches, bootstrap, costs, pos_label)
    names = [name for name in TITLES if all(name in one for one in found.values())]
    if not names:
        rule, fix = "must have a metric in common", "Pass the same quantiles of all models"
        raise BadValueError("models", CALLER, rule, f"none of {', '.join(batches)}", fix)
    metrics = {model: {name: one[name] for name in names} for model, one in found.items()}
    sign = -1 if names[0] in HIGHER_IS_BETTER else 1
    best = min(metrics, key=lambda model: sign * metrics[model][names[0]].value)
    baseline, *others = batches
    pairs = [(model, baseline) for model in others]
    if best != baseline:
        pairs += [(model, best) for model in others if model != best]
    differences = {
        (*pair, name): interval
        for pair in pairs
        for name in names
        if (interval := difference(*pair, name)) is not None
    }
    n_rows = int(np.count_nonzero(first.labeled_weight))
    return Comparison(
        models=tuple(batches),
        best=best,
        best_by=names[0],
        metrics=metrics,
        differences=_with_significance(differences, bootstrap.level, n_rows),
        level=bootstrap.level,
        n_rows=n_rows,
        n_missing=first.n_missing,
    )


# Intervals of each metric by model, and a function for the difference of two models in a metric.
_Difference = Callable[[str, str, str], Interval | None]
_Estimates = tuple[dict[str, dict[str, Interval]], _Difference]


def _estimates(
    batches: dict[str, Batch],
    bootstrap: MeanInterval,
    costs: CostMatrix | None,
    pos_label: ClassName | None,
) -> _Estimates:
    """Return the metrics of classifiers or regression models, and costs if they are given."""
    first = next(iter(batches.values()))
    if isinstance(first.outputs, BaseClassOutputs | TopLabel):
        found = _classifier_estimates(batches, bootstrap, pos_label)
        return found if costs is None else _with_costs(found, batches, bootstrap, costs)
    if costs is not None:
        rule, fix = "must be None for a regression", "Pass outputs over classes, or leave it out"
        raise BadValueError("costs", CALLER, rule, type(costs).__name__, fix)
    return _regression_estimates(batches, bootstrap)


def _classifier_estimates(
    batches: dict[str, Batch], bootstrap: MeanInterval, pos_label: ClassName | None
) -> _Estimates:
    """Return all metrics of all models from the same resamples."""
    level = bootstrap.level
    settings = bootstrap.seed, bootstrap.n_resamples
    values, draws, metrics = {}, {}, {}
    for model, batch in batches.items():
        column = positive_column(batch.outputs, pos_label, CALLER)
        positive = None if column is None else PositiveRows.of(batch, column)
        values[model] = own = row_metrics(batch, positive)
        draws[model] = drawn = resampled_metrics(batch, list(own), *settings, positive)
        metrics[model] = {k: interval_of(v, drawn[k], level, CALLER) for k, v in own.items()}

    def difference(model: str, baseline: str, name: str) -> Interval | None:
        pair = values[model][name], values[baseline][name]
        if not np.isfinite(pair).all():
            return None
        drawn = draws[model][name] - draws[baseline][name]
        return interval_of(pair[0] - pair[1], drawn, level, CALLER)

    return metrics, difference


def _regression_estimates(batches: dict[str, Batch], bootstrap: MeanInterval) -> _Estimates:
    """Return the mean losses of regression models, and of their differences row by row."""
    losses = {model: row_losses(batch, CALLER) for model, batch in batches.items()}
    outputs = [batch.outputs for batch in batches.values()]
    if len({tuple(one.levels) for one in outputs if isinstance(one, Quantiles)}) > 1:
        for one in losses.values():  # means over different levels cannot be compared
            one.pop("pinball_loss", None)
            one.pop("crps_from_quantiles", None)
    if not any(all(name in one for one in losses.values()) for name in CRPS):
        warnings.warn(
            "compare() leaves out the CRPS: one from quantiles is a mean over their levels, which "
            "cannot be compared with that of other levels or of a whole distribution. Pass the "
            "same quantiles of all models.",
            DubitoWarning,
            stacklevel=4,
        )
    names = [f"interval_score_{level}" for level in INTERVALS]
    common = [name for name in names if all(name in one for one in losses.values())]
    for one in losses.values():  # one of them is enough
        for name in names:
            if name not in common[:1]:
                one.pop(name, None)
    weight = next(iter(batches.values())).labeled_weight
    metrics = {
        model: {name: bootstrap(rows, weight) for name, rows in one.items()}
        for model, one in losses.items()
    }
    return metrics, lambda a, b, name: bootstrap(losses[a][name] - losses[b][name], weight)


def _with_costs(
    found: _Estimates, batches: dict[str, Batch], bootstrap: MeanInterval, costs: CostMatrix
) -> _Estimates:
    """Add the cost of optimal decisions from each model."""
    first = next(iter(batches.values()))
    labeled = np.flatnonzero(first.labeled_weight)  # missing labels have been warned about
    rows = {model: batch.take(labeled) for model, batch in batches.items()}
    settings: dict[str, Any] = {
        "level": bootstrap.level,
        "random_state": bootstrap.seed,
        "n_resamples": bootstrap.n_resamples,
        "sample_weight": first.weight[labeled],
        "row_costs": rows[next(iter(rows))].row_costs,
    }
    known, known_difference = found
    metrics = {}
    for model, one in rows.items():
        cost = cost_report(one.labels, one.outputs, costs, **settings).realized
        metrics[model] = {**known[model], "cost": cost}

    def difference(model: str, baseline: str, name: str) -> Interval | None:
        if name != "cost":
            return known_difference(model, baseline, name)
        a, b = rows[model], rows[baseline]
        # What the baseline saves is what the model costs more.
        return cost_savings(a.labels, a.outputs, b.outputs, costs, **settings).saved

    return metrics, difference


def _with_significance(
    intervals: dict[tuple[str, str, str], Interval], level: float, n_rows: int
) -> tuple[Difference, ...]:
    """Return differences, by model, baseline and metric, with adjusted p-values."""
    p_values = adjusted([normal_p_value(one, level) for one in intervals.values()], n_rows)

    def is_better(metric: str, value: float, p_value: float) -> bool | None:
        return None if p_value >= 1 - level else (value > 0) == (metric in HIGHER_IS_BETTER)

    return tuple(
        Difference(*names, interval, p_value, is_better(names[2], interval.value, p_value))
        for (names, interval), p_value in zip(intervals.items(), p_values, strict=True)
    )


def _as_models(
    y_true: Any, models: Any, sample_weight: Any, row_costs: Any, seed: int
) -> dict[str, Batch]:
    """Return two or more models, by name, on the same rows."""
    if isinstance(y_true, Mapping) and not isinstance(models, Mapping):
        rule, held = "got its arguments swapped:", "`y_true` holds models, by name"
        raise BadTypeError("", CALLER, rule, held, f"The order is {CALLER}(y_true, models)")
    is_named = isinstance(models, Mapping) and all(isinstance(name, str) for name in models)
    if not is_named or len(models) < 2:
        got = f"{len(models)}" if is_named else type(models).__name__
        fix = "Pass {'old': outputs, 'new': outputs}"
        rule = "must be outputs of two or more models, by name"
        raise BadTypeError("models", CALLER, rule, got, fix)
    batches = {}
    for name, outputs in models.items():
        if isinstance(y_true, Sized) and isinstance(outputs, Sized) and len(outputs) != len(y_true):
            rule = f"must have {len(y_true)} rows, the length of `y_true`"
            fix = "Pass outputs for the same rows in the same order"
            raise BadValueError(f"models[{name!r}]", CALLER, rule, f"{len(outputs)} rows", fix)
        shards = make_shards(
            outputs, y_true, sample_weight=sample_weight, row_costs=row_costs,
            caller=CALLER, argument=f"models[{name!r}]", label_argument="y_true",
        )  # fmt: skip
        batches[name] = moment_matched(load_rows(shards, seed=seed))
    first = next(iter(batches.values()))
    for name, batch in batches.items():
        require_labels(batch, CALLER)
        _require_same_rows(f"models[{name!r}]", batch, first, f"`models[{next(iter(models))!r}]`")
    return batches


def _require_same_rows(argument: str, batch: Batch, first: Batch, baseline: str) -> None:
    """Raise an error unless a model has the kind of outputs and the rows of the first model."""
    kinds = (BaseClassOutputs, TopLabel)
    if isinstance(batch.outputs, kinds) != isinstance(first.outputs, kinds):
        kind = "classifier" if isinstance(first.outputs, kinds) else "regression"
        rule = f"must hold outputs of a {kind}, like {baseline}"
        got, fix = describe_outputs(batch.outputs), "Compare models of one kind"
        raise BadTypeError(argument, CALLER, rule, got, fix)
    fix = "Pass outputs for the same rows in the same order"
    if len(batch) != len(first):
        rule, got = f"must have the {len(first):,} rows of {baseline}", f"{len(batch):,} rows"
        raise BadValueError(argument, CALLER, rule, got, fix)
    pairs = zip(_label_arrays(batch), _label_arrays(first), strict=False)  # as far as both have any
    if not all(np.array_equal(x, y, equal_nan=True) for x, y in pairs):
        rule = f"must have the labels of {baseline}, row by row"
        raise BadValueError(argument, CALLER, rule, "different labels", fix)


def _label_arrays(batch: Batch) -> tuple[Any, ...]:
    """Return what determines the labels of a batch."""
    labels = batch.labels
    if isinstance(labels, Labels):
        soft = np.empty(0) if labels.probabilities is None else labels.probabilities
        return labels.codes, soft
    return () if labels is None else (labels.values,)
