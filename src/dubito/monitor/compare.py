"""Models, or versions of one, compared on the same rows."""

from __future__ import annotations

from textwrap import wrap
from typing import TYPE_CHECKING

from dubito.measure.intervals import Interval
from dubito.monitor.metrics import TITLES

if TYPE_CHECKING:
    pass
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, final

import numpy as np

from dubito.arrays import as_share
from dubito.data.batch import Batch
from dubito.data.labels import Labels, Targets
from dubito.data.shards import as_shards, load_rows
from dubito.decide import CostMatrix, cost_report, cost_savings
from dubito.decide.value import MeanInterval
from dubito.errors import BadTypeError, BadValueError, EmptyStateError
from dubito.measure.intervals import as_n_resamples, interval_of
from dubito.measure.state import warn_of_missing
from dubito.monitor.metrics import (
    HIGHER_IS_BETTER,
    figures_of,
    holm,
    losses_of_rows,
    normal_p_value,
    plain,
    resampled_figures,
)
from dubito.outputs import BaseClassOutputs, Quantiles, TopLabel

WIDTH = 80
FEWEST_ROWS_SHOWN = 20


def _verdict_on(found: Comparison) -> str:
    """Say of each model in what it is better or worse than the first, and which is best."""
    if found.n_rows < FEWEST_ROWS_SHOWN:
        return f"Too few rows to tell ({found.n_rows:,})."
    first = found.models[0]
    words = [_pair_words(found, model, first) for model in found.models[1:]]
    if len(found.models) > 2:
        words.append(_best_words(found))
    endless = [
        model for model, one in found.figures.items() if one.get("log_loss") and _is_endless(one)
    ]
    if endless:
        words.append(
            f"Log loss is infinite for {_listed(endless)}: a class of probability 0 happened."
        )
    return " ".join(words)


def _is_endless(figures: dict[str, Interval]) -> bool:
    """Whether a log loss is infinite."""
    return figures["log_loss"].value == float("inf")


def _pair_words(found: Comparison, model: str, baseline: str) -> str:
    """Say in what a model differs from a baseline."""
    pair = [d for d in found.differences if (d.model, d.baseline) == (model, baseline)]
    better = [_amount(d) for d in pair if d.is_better]
    worse = [_amount(d) for d in pair if d.is_better is False]
    unsure = [TITLES[d.metric] for d in pair if d.is_better is None]
    if not better and not worse:
        return f"No sure difference between {model} and {baseline} in {_listed(unsure)}."
    parts = [f"better than {baseline} in {_listed(better)}"] if better else []
    parts += [f"worse {'' if better else f'than {baseline} '}in {_listed(worse)}"] if worse else []
    rest = f"; no sure difference in {_listed(unsure)}" if unsure else ""
    return f"{model} is {' but '.join(parts)}{rest}."


def _best_words(found: Comparison) -> str:
    """Say which model is best on these rows, and than which of the others it surely is better."""
    title, best = TITLES[found.best_by], found.best
    beaten = [model for model in found.models if model != best and _surely_beats(found, model)]
    others = [model for model in found.models if model != best and model not in beaten]
    said = f"Best by {title} on these rows: {best}"
    if beaten:
        said += f", surely better than {_listed(beaten)}"
    return f"{said}{', not surely than ' + _listed(others) if others else ''}."


def _surely_beats(found: Comparison, model: str) -> bool:
    """Whether the best is surely better than another model in what it is best by."""
    for one in found.differences:
        if one.metric == found.best_by and {one.model, one.baseline} == {model, found.best}:
            return one.is_better is (one.model == found.best)
    return False


def _amount(difference: Difference) -> str:
    """Say in what and by how much, without a sign."""
    one = difference.interval
    ends = (one.low, one.high) if one.value >= 0 else (-one.high, -one.low)
    by = f"{abs(one.value):.3g} ({ends[0]:.3g} to {ends[1]:.3g})"
    return f"{TITLES[difference.metric]} by {by}"


def _listed(words: list[str]) -> str:
    """Return words as a list in a sentence."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"


def _shown(one: Interval, sign: str = "") -> str:
    """Return an interval in a few digits."""
    return f"{one.value:{sign}.4g} ({one.low:{sign}.4g} to {one.high:{sign}.4g})"


def _comparison_lines(found: Comparison) -> list[str]:
    """Tell a comparison line by line, in 80 columns."""
    missing = f"; {found.n_missing:,} more without a truth left out" if found.n_missing else ""
    note = (
        f"{found.n_rows:,} rows{missing}. Each interval holds at {found.level:.0%}; what is said "
        f"to be better or worse holds for all {len(found.differences)} comparisons together (Holm)."
    )
    lines = [*wrap(found.verdict, WIDTH), "", *wrap(note, WIDTH)]
    for model in found.models:
        lines += ["", f"  {model[:76]}"]
        figures = found.figures[model].items()
        lines += [f"    {TITLES[name]:<30} {_shown(figure)}" for name, figure in figures]
    pairs = dict.fromkeys((one.model, one.baseline) for one in found.differences)
    for pair in pairs:
        lines += ["", f"  {pair[0][:35]} less {pair[1][:35]}"]
        for one in found.differences:
            if (one.model, one.baseline) == pair:
                word = {True: "  better", False: "  worse", None: ""}[one.is_better]
                lines.append(f"    {TITLES[one.metric]:<30} {_shown(one.interval, '+')}{word}")
    return lines


CALLER = "compare"
FEWEST_ROWS = 20  # below, nothing is said to be sure


@final
@dataclass(frozen=True, slots=True)
class Difference:
    """A figure of a model less that of its baseline, on the same rows.

    `p_value` is adjusted for all comparisons that were made; `is_better` is None where there is no
    sure difference.
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
    """Models on the same rows. `print(comparison)` tells it in words.

    `figures` are those of each model by metric; `differences` are to the first model and, where
    that is another, to the best: the one of least cost, or else log loss, CRPS or AURC, picked on
    these very rows. Each interval holds at `level` by itself; what is said to be sure holds for all
    comparisons together (Holm). An infinite log loss has no difference.
    """

    models: tuple[str, ...]
    best: str
    best_by: str
    figures: dict[str, dict[str, Interval]]
    differences: tuple[Difference, ...]
    level: float
    n_rows: int
    n_missing: int

    def difference(self, model: str, baseline: str, metric: str) -> Difference:
        """Return one of the differences."""
        wanted = (model, baseline, metric)
        for one in self.differences:
            if (one.model, one.baseline, one.metric) == wanted:
                return one
        known = sorted({f"{one.model} less {one.baseline}" for one in self.differences})
        rule, fix = f"one of {', '.join(known)}, in a metric of both", "one of `differences`"
        raise BadValueError(
            "model", "difference", rule, f"{model} less {baseline} in {metric}", fix
        )

    @property
    def verdict(self) -> str:
        """Which model is better than the first, and in what, as far as that is sure."""
        return _verdict_on(self)

    def to_dict(self) -> dict[str, Any]:
        """Return plain numbers, texts and lists, ready for JSON; what is infinite is None."""
        values = {f.name: plain(getattr(self, f.name)) for f in fields(self)}
        values["differences"] = [
            {f.name: plain(getattr(one, f.name)) for f in fields(one)} for one in self.differences
        ]
        return {**values, "verdict": self.verdict}

    def __str__(self) -> str:
        return "\n".join(_comparison_lines(self))


def compare(
    y_true: Any,
    models: Mapping[str, Any],
    *,
    sample_weight: Any = None,
    level: float = 0.95,
    seed: int = 0,
    n_resamples: int = 1000,
    costs: CostMatrix | None = None,
    row_costs: Any = None,
) -> Comparison:
    """Return how models differ on the same rows, the first of them being what others are held to.

    `models` are outputs by name: of classes, or all `Normal`, `Samples` or `Quantiles`; or shards
    of the same rows, of which 100,000 are drawn by `seed`, with `y_true` None. With `costs`, what
    deciding by each costs. Intervals are paired Poisson bootstraps.

    >>> a, b = [[0.6, 0.4], [0.4, 0.6]] * 50, [[0.9, 0.1], [0.1, 0.9]] * 50
    >>> compare([0, 1] * 50, {"a": a, "b": b}).best
    'b'
    """
    share = as_share(level, "level", CALLER, is_open=True)
    sampling = Sampling(share, seed, as_n_resamples(n_resamples, CALLER))
    if row_costs is not None and (costs is None or costs.rate is None):
        rule, fix = "None, as no cost grows with it", "`costs=CostMatrix(..., rate=...)` with it"
        raise BadValueError("row_costs", CALLER, rule, type(row_costs).__name__, fix)
    batches = _as_models(y_true, models, sample_weight, row_costs, seed)
    first = next(iter(batches.values()))
    warn_of_missing(first.n_missing, len(first), CALLER, stacklevel=3)
    if not first.labeled_weight.any():
        raise EmptyStateError("A comparison")
    found = _found_in(batches, sampling, costs)
    known = [name for name in TITLES if all(name in one for one in found.figures.values())]
    figures = {model: {name: one[name] for name in known} for model, one in found.figures.items()}
    best_by = known[0]
    best = _best_of(figures, best_by)
    n_rows = int(np.count_nonzero(first.labeled_weight))
    return Comparison(
        models=tuple(batches),
        best=best,
        best_by=best_by,
        figures=figures,
        differences=_judged(found.differences(list(batches), best, known), share, n_rows),
        level=share,
        n_rows=n_rows,
        n_missing=first.n_missing,
    )


@final
@dataclass(frozen=True, slots=True)
class Sampling:
    """How intervals are made."""

    level: float
    seed: int
    n_resamples: int


@final
class Found:
    """Figures of each model, and what makes the difference of two of them."""

    def __init__(
        self,
        figures: dict[str, dict[str, Interval]],
        difference: Callable[[str, str, str], Interval | None],
    ) -> None:
        self.figures = figures
        self.difference = difference

    def differences(self, models: list[str], best: str, metrics: list[str]) -> list[Difference]:
        """Return all differences to the first model, and to the best."""
        pairs = [(model, models[0]) for model in models[1:]]
        if best != models[0]:
            pairs += [(model, best) for model in models[1:] if model != best]
        return [
            Difference(model, baseline, name, interval, 1.0, None)
            for model, baseline in pairs
            for name in metrics
            if (interval := self.difference(model, baseline, name)) is not None
        ]


def _found_in(batches: dict[str, Batch], sampling: Sampling, costs: CostMatrix | None) -> Found:
    """Return the figures of classifiers or of regressions, and of costs if there are any."""
    first = next(iter(batches.values()))
    if isinstance(first.outputs, BaseClassOutputs | TopLabel):
        found = _found_in_classifiers(batches, sampling)
        return found if costs is None else _with_costs(found, batches, sampling, costs)
    if costs is not None:
        rule, fix = "None for a regression", "outputs over classes"
        raise BadValueError("costs", CALLER, rule, type(costs).__name__, fix)
    return _found_in_regressions(batches, sampling)


def _found_in_classifiers(batches: dict[str, Batch], sampling: Sampling) -> Found:
    """Return what one set of resamples says of all figures of all models."""
    values = {model: figures_of(batch) for model, batch in batches.items()}
    draws = {
        model: resampled_figures(batch, list(values[model]), sampling.seed, sampling.n_resamples)
        for model, batch in batches.items()
    }

    def difference(model: str, baseline: str, name: str) -> Interval | None:
        value = values[model][name], values[baseline][name]
        if not np.isfinite(value).all():
            return None
        drawn = draws[model][name] - draws[baseline][name]
        return interval_of(value[0] - value[1], drawn, sampling.level, CALLER)

    figures = {
        model: {
            name: interval_of(value, draws[model][name], sampling.level, CALLER)
            for name, value in one.items()
        }
        for model, one in values.items()
    }
    return Found(figures, difference)


def _found_in_regressions(batches: dict[str, Batch], sampling: Sampling) -> Found:
    """Return the mean losses of regressions, and those of their differences row by row."""
    mean = MeanInterval(sampling.level, sampling.seed, sampling.n_resamples)
    losses = {model: losses_of_rows(batch, CALLER) for model, batch in batches.items()}
    outputs = [batch.outputs for batch in batches.values()]
    if len({tuple(one.levels) for one in outputs if isinstance(one, Quantiles)}) > 1:
        for one in losses.values():  # means over other levels are not to be compared
            one.pop("pinball_loss", None)
    weight = next(iter(batches.values())).labeled_weight
    figures = {
        model: {name: mean(rows, weight) for name, rows in one.items()}
        for model, one in losses.items()
    }
    return Found(figures, lambda a, b, name: mean(losses[a][name] - losses[b][name], weight))


def _with_costs(
    found: Found, batches: dict[str, Batch], sampling: Sampling, costs: CostMatrix
) -> Found:
    """Return the same with what deciding by each model costs."""
    settings: dict[str, Any] = {
        "level": sampling.level,
        "seed": sampling.seed,
        "n_resamples": sampling.n_resamples,
    }
    first = next(iter(batches.values()))
    labeled = np.flatnonzero(first.labeled_weight)  # the others were told of already
    rows = {model: batch.take(labeled) for model, batch in batches.items()}
    settings["sample_weight"] = first.weight[labeled]
    settings["row_costs"] = None if costs.rate is None else rows[next(iter(rows))].row_costs
    figures = {
        model: {
            **found.figures[model],
            "cost": cost_report(one.labels, one.outputs, costs, **settings).realized,
        }
        for model, one in rows.items()
    }

    def difference(model: str, baseline: str, name: str) -> Interval | None:
        if name != "cost":
            return found.difference(model, baseline, name)
        a, b = rows[model], rows[baseline]
        # What the baseline saved is what the model costs more.
        return cost_savings(a.labels, a.outputs, b.outputs, costs, **settings).saved

    return Found(figures, difference)


def _judged(differences: list[Difference], level: float, n_rows: int) -> tuple[Difference, ...]:
    """Return differences with adjusted p-values, and what is sure."""
    raw = [normal_p_value(one.interval, level) for one in differences]
    adjusted = holm(raw) if n_rows >= FEWEST_ROWS else np.ones(len(raw))
    return tuple(
        replace(
            one,
            p_value=float(p_value),
            is_better=None
            if p_value >= 1 - level
            else (one.interval.value > 0) == (one.metric in HIGHER_IS_BETTER),
        )
        for one, p_value in zip(differences, adjusted, strict=True)
    )


def _best_of(figures: dict[str, dict[str, Interval]], metric: str) -> str:
    """Return the model whose figure is best, the first on a tie."""
    sign = -1 if metric in HIGHER_IS_BETTER else 1
    return min(figures, key=lambda model: sign * figures[model][metric].value)


def _as_models(
    y_true: Any, models: Any, sample_weight: Any, row_costs: Any, seed: int
) -> dict[str, Batch]:
    """Return two models or more, by name, on rows that are the same."""
    is_named = isinstance(models, Mapping) and all(isinstance(name, str) for name in models)
    if not is_named or len(models) < 2:
        got = f"{len(models)} of them" if is_named else type(models).__name__
        rule, fix = "outputs of two models or more, by name", "{'old': outputs, 'new': outputs}"
        raise BadTypeError("models", CALLER, rule, got, fix)
    batches = {}
    for name, outputs in models.items():
        shards = as_shards(
            outputs, y_true, sample_weight=sample_weight, row_costs=row_costs,
            caller=CALLER, argument=f"models[{name!r}]", label_argument="y_true",
        )  # fmt: skip
        batches[name] = load_rows(shards, seed=seed)
    first = next(iter(batches.values()))
    for name, batch in batches.items():
        batch.require_labels(CALLER)
        _require_alike(f"models[{name!r}]", batch, first)
    return batches


def _require_alike(argument: str, batch: Batch, first: Batch) -> None:
    """Raise unless a model speaks of the same rows and in the same way as the first."""
    kinds = (BaseClassOutputs, TopLabel)
    if isinstance(batch.outputs, kinds) != isinstance(first.outputs, kinds):
        rule, fix = "of classes, like the first, or of numbers, like it", "one kind of models"
        raise BadTypeError(argument, CALLER, rule, type(batch.outputs).__name__, fix)
    if len(batch) != len(first) or not _is_same_truth(batch.labels, first.labels):
        got = "other labels" if len(batch) == len(first) else f"{len(batch)} rows"
        rule, fix = f"of the {len(first)} rows of the first", "outputs of the same rows, in order"
        raise BadValueError(argument, CALLER, rule, got, fix)


def _is_same_truth(a: Labels | Targets | None, b: Labels | Targets | None) -> bool:
    """Whether two models were held to the same truth, as far as that is known of both."""
    if isinstance(a, Labels) and isinstance(b, Labels):
        pairs: list[tuple[Any, Any]] = [(a.codes, b.codes), (a.probabilities, b.probabilities)]
    elif isinstance(a, Targets) and isinstance(b, Targets):
        pairs = [(a.values, b.values)]
    else:
        return True
    return all(
        (x is None) == (y is None) and (x is None or np.array_equal(x, y, equal_nan=True))
        for x, y in pairs
    )
