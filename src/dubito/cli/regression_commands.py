"""Regression in `dubito calibrate` and `dubito fit`: calibrated intervals, costs and policies."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, final

from dubito.cli.columns import ColumnOptions
from dubito.cli.cost_options import require_unused
from dubito.cli.options import OptionGroup, flag
from dubito.cli.printing import passes, say, say_json, say_note, say_rearranged, show_table
from dubito.cli.reading import Reader, count_rearranged
from dubito.errors import BadFileError, BadValueError

if TYPE_CHECKING:
    from dubito.calibrate import QuantileRecalibration, VarianceScaling
    from dubito.calibrate.cross_validation import RegressionEvidence
    from dubito.data import Batch, Shards
    from dubito.data.columns import BoundColumns
    from dubito.decide import ErrorCosts
    from dubito.outputs import BaseOutputs

    RegressionCalibrator = QuantileRecalibration | VarianceScaling

NAMES = ("auto", "VarianceScaling", "QuantileRecalibration")
WORSE = 1.01  # a CRPS after calibration by this factor above that before is warned about
FAR = 3.0  # standard errors of a coverage from the nominal one
CLEARLY = 0.99  # a more flexible calibrator must lower the CRPS of a simpler one by this factor
INTERVALS = (0.5, 0.8, 0.9, 0.95)  # whose coverage is printed, or the nearest ones
KIND_OPTIONS = {
    "Normal": "--mean and --std",
    "Quantiles": "--quantiles 'q_*'",
    "Samples": "--samples 's_*'",
}
ROLES = ("mean", "std", "quantiles", "levels", "samples")
LEVELS = (0.025, *(k / 20 for k in range(1, 20)), 0.975)  # of quantiles of draws


def _calibrators_named(name: str, outputs: BaseOutputs) -> list[RegressionCalibrator]:
    """Return the calibrator of this name, or for `auto` those to choose from, simple ones first.

    They return what is calibrated in its own form: means with standard deviations, or quantiles at
    the same levels. Draws become quantiles.
    """
    from dubito.calibrate import QuantileRecalibration, VarianceScaling
    from dubito.outputs import Normal, Quantiles

    if name not in NAMES:
        rule, fix = f"must be {', '.join(NAMES[:-1])} or {NAMES[-1]} for a regression", "Use auto"
        raise BadValueError("", "--calibrator", rule, name, fix)
    levels = outputs.levels.tolist() if isinstance(outputs, Quantiles) else None
    if name == "VarianceScaling" or (name == "auto" and isinstance(outputs, Normal)):
        return [VarianceScaling()]
    by_level = QuantileRecalibration(levels or LEVELS)
    return [VarianceScaling(), by_level] if name == "auto" and levels else [by_level]


def fit_calibrator(
    file: str, output: str, options: ColumnOptions, reader: Reader, name: str, as_json: bool
) -> None:
    """Fit a calibrator, save it, and print what it achieves on held-out rows."""
    import json

    from dubito.calibrate import cross_validate_calibrator
    from dubito.data.sink import write_atomic
    from dubito.measure.regression import moment_matched_shards

    require_unused({"--positive": options.positive, "--classes": options.classes}, "here")
    [predictions] = options.open(file)
    with passes():
        rows = moment_matched_shards(reader.rows(predictions))
        candidates = _calibrators_named(name, next(rows.batches()).outputs)
        fitted = candidates[0].fit(rows)  # which also warns of missing targets
        evidence = [cross_validate_calibrator(one, rows) for one in candidates]
        best = 0
        if len(candidates) > 1 and _is_better(evidence[1], evidence[0]):
            best, fitted = 1, candidates[1].fit(rows)
        n_rearranged = count_rearranged(rows) if options.rearrange else 0
    document = {**fitted.to_dict(), "columns": options.outputs}
    write_atomic(output, json.dumps(document, allow_nan=False))
    names = [type(one).__name__ for one in candidates]
    reason = "named" if name != "auto" else "the calibrator for outputs of this kind"
    if len(candidates) > 1:
        gains = zip(names, map(_gain, evidence), strict=True)
        changes = ", ".join(f"{each} {100 * (gain - 1):+.1f} %" for each, gain in gains)
        title = evidence[0].before.crps_title
        reason = f"held-out {title}: {changes}; the second must be 1 % better than the first, "
        reason += "or as good and clearly closer to the nominal coverage"
    _warn_if_worse(evidence[best])
    if as_json:
        scores = [{"name": each, **_scores(one)} for each, one in zip(names, evidence, strict=True)]
        found: dict[str, Any] = {"chosen": names[best], "reason": reason, "leaderboard": scores}
        found |= {"rearranged": n_rearranged} if options.rearrange else {}
        say_json({**found, "evidence": evidence[best].to_dict(), "output": output})
        return
    say(f"{names[best]}: {fitted.summary()}.")
    if len(candidates) > 1:
        say(f"{reason[0].upper()}{reason[1:]}.")
    say()
    _show_evidence(evidence[best])
    say_rearranged(n_rearranged)
    say(f"\nWritten to {output}. Next:")
    shown = replace(options, label=None, weight=None, group=None)
    words = f"dubito calibrate --apply {output} NEW{PurePath(file).suffix} {shown}".rstrip()
    say(f"  {words} -o calibrated.parquet")


def _scores(evidence: RegressionEvidence) -> dict[str, float]:
    """Return the CRPS before and after calibration."""
    before, after = (
        one.continuous_ranked_probability_score for one in (evidence.before, evidence.after)
    )
    return {"crps_before": before, "crps_after": after}


def _gain(evidence: RegressionEvidence) -> float:
    """Return the CRPS after calibration in relation to that before."""
    scores = _scores(evidence)
    return scores["crps_after"] / max(scores["crps_before"], 1e-300)


def _warn_if_worse(evidence: RegressionEvidence) -> None:
    """Print a warning if calibration did not help on held-out rows."""
    from dubito.formatting import decimal, quantity

    if _gain(evidence) > WORSE:
        before, after = map(decimal, _scores(evidence).values())
        say_note(
            f"Calibration did not help on held-out rows: {evidence.before.crps_title} {after} "
            f"after it, {before} before. Calibrate on more than {quantity(evidence.n_rows)}, or "
            "use the uncalibrated outputs."
        )


def _is_better(flexible: RegressionEvidence, simple: RegressionEvidence) -> bool:
    """Whether a more flexible calibrator has a lower CRPS, or as low a one and better coverage."""
    audits = [one.after for one in (flexible, simple)]
    misses = [
        float((abs(one.coverage - one.levels) / one.coverage_deviation).max()) for one in audits
    ]
    is_closer = misses[1] > FAR and misses[0] < misses[1] / 2
    return _gain(flexible) < (1.0 if is_closer else CLEARLY) * _gain(simple)


def _show_evidence(evidence: RegressionEvidence) -> None:
    """Print the metrics before and after calibration."""
    from dubito.formatting import decimal, percent

    before, after = evidence.before, evidence.after
    rows = []
    shown = {
        min(before.levels.tolist(), key=lambda one: abs(one - k), default=0) for k in INTERVALS
    }
    for k, level in enumerate(before.levels.tolist()):
        if level in shown:
            name, both = f"{level * 100:.3g} % intervals", (before, after)
            rows.append((f"coverage of {name}", *(percent(one.coverage[k]) for one in both)))
            rows.append((f"mean width of {name}", *(decimal(one.width[k]) for one in both)))
    figures = {
        before.crps_title: "continuous_ranked_probability_score",
        "pinball loss": "pinball_loss",
        "negative log-likelihood": "negative_log_likelihood",
    }
    for title, field in figures.items():
        scores = [getattr(one, field) for one in (before, after)]
        if None not in scores:
            rows.append((title, *map(decimal, scores)))
    show_table(("", "before", "after"), rows)
    folds = f"cross-fitted in {evidence.n_folds} folds"
    say(f"\n{evidence.n_rows:,} rows, {folds}: every figure is of rows held out of the fit.")


def calibrated_names(calibrator: RegressionCalibrator, bound: BoundColumns) -> list[str]:
    """Return the names of the calibrated columns: those of the input, or the level of quantiles."""
    from dubito.calibrate import QuantileRecalibration

    columns = [*bound.found[bound.kind], *bound.found.get("std", ())]
    is_list = columns[0] in bound.widths
    if bound.kind == "mean":
        names = columns if len(columns) == 2 and not is_list else ["mean", "std"]
    else:
        names = (
            [f"{columns[0]}_{k}" for k in range(bound.widths[columns[0]])] if is_list else columns
        )
    if isinstance(calibrator, QuantileRecalibration):
        levels = tuple(float(one) for one in calibrator.levels)
        if is_list or levels != bound.levels:
            names = [f"q_{level:g}" for level in levels]
    return names


def calibrated_arrays(calibrator: RegressionCalibrator, batch: Batch) -> list[Any]:
    """Return the calibrated columns of a batch."""
    from dubito.measure.regression import moment_matched
    from dubito.outputs import Normal

    outputs = calibrator.transform(moment_matched(batch).outputs)
    if isinstance(outputs, Normal):
        return [outputs.mean, outputs.std]
    return list(outputs.array.T)


def require_outputs(calibrator: RegressionCalibrator, options: ColumnOptions, path: Path) -> None:
    """Raise unless there are options of outputs, as files of other names need them."""
    if not options.outputs:
        rule, fix = f"calibrates {calibrator.kind_}", f"Pass {KIND_OPTIONS[calibrator.kind_]}"
        raise BadValueError("", str(path), rule, "none of the columns of the fit", fix)


def require_same_kind(calibrator: RegressionCalibrator, bound: BoundColumns, path: Path) -> None:
    """Raise unless a calibrator was fitted on outputs of this kind, at these levels."""
    from dubito.calibrate import QuantileRecalibration

    kinds = {"mean": "Normal", "quantiles": "Quantiles", "samples": "Samples"}
    got = kinds.get(bound.kind, "")
    if got != calibrator.kind_:
        rule, fix = f"calibrates {calibrator.kind_}", f"Pass {KIND_OPTIONS[calibrator.kind_]}"
        raise BadValueError("", str(path), rule, f"columns of {bound.kind}", fix)
    if isinstance(calibrator, QuantileRecalibration) and got == "Quantiles":
        levels = tuple(float(one) for one in calibrator.levels)
        if levels != bound.levels:
            shown, given = (
                ", ".join(f"{one:g}" for one in each) for each in (levels, bound.levels)
            )
            fix = "Pass the columns of the fit to --quantiles"
            raise BadValueError("", str(path), f"calibrates the levels {shown}", given, fix)


@final
@dataclass(frozen=True, slots=True)
class ValueOptions(OptionGroup):
    """The options that only policies of a regression have; None for those that were not given.

    Regression
    ----------
    cost_under
        Cost per unit of deciding below the true value (newsvendor: underage, a lost sale).
    cost_over
        Cost per unit of deciding above the true value (newsvendor: overage, a leftover).
    cost_squared
        Cost of a squared error of 1, instead of costs per unit: decides for the mean.
    values
        The only values that may be decided, e.g. 0,12,24 for boxes of 12.
    review_cost
        Cost of a human review (assumed to be correct).
    max_width
        Review rows whose interval is wider than this.
    max_relative_width
        Review rows whose interval is wider than this multiple of the prediction.
    interval
        Coverage of the prediction intervals. Default: 0.9.
    """

    cost_under: float | None = None
    cost_over: float | None = None
    cost_squared: float | None = None
    values: str | None = None
    review_cost: float | None = None
    max_width: float | None = None
    max_relative_width: float | None = None
    interval: float | None = None

    def read(self, file: Path | None) -> dict[str, Any]:
        """Return the costs and limits as arguments of a fit; `file` has costs by error."""
        limits = {
            name: value
            for name, value in self.given.items()
            if name != "values" and not name.startswith("cost_")
        }
        for name, value in self.given.items():
            highest = 1.0 if name == "interval" else float("inf")
            if name != "values" and not 0 < value < highest:
                rule = "must be above 0" if highest > 1 else "must be between 0 and 1"
                fix = f"Pass {flag(name)} {'0.9' if name == 'interval' else '1'}"
                raise BadValueError("", flag(name), rule, f"{value:g}", fix)
        for limit in ("max_width", "max_relative_width"):
            if limit in limits and self.review_cost is None:
                rule, fix = "requires --review-cost", "Pass --review-cost 5, the cost of a review"
                raise BadValueError("", flag(limit), rule, f"{limits[limit]:g} alone", fix)
        return {"costs": self._costs(file), **limits}

    def _costs(self, file: Path | None) -> ErrorCosts:
        """Return the costs of errors, of a file or of the options."""
        from dubito.decide import ErrorCosts

        pair = [name for name in ("cost_under", "cost_over") if name in self.given]
        kinds = pair[:1] + ["cost_squared"] * (self.cost_squared is not None)
        kinds += ["costs"] * (file is not None)
        if len(kinds) > 1:
            rule, fix = f"cannot be combined with {flag(kinds[0])}", "Leave one of them out"
            got = f"{file}" if kinds[-1] == "costs" else f"{self.cost_squared:g}"
            raise BadValueError("", flag(kinds[-1]), rule, got, fix)
        values = None if self.values is None else _read_values(self.values)
        if file is not None:
            return replace(_read_error_costs(file), values=values)
        if self.cost_squared is not None:
            return ErrorCosts.squared(self.cost_squared, values)
        if self.cost_under is None or self.cost_over is None:
            rule = "needs the costs per unit of a value that is too low and of one too high"
            got = " alone".join([*map(flag, pair), ""]) or "none"
            fix = "Pass --cost-under 4 --cost-over 1, --cost-squared 1, or --costs FILE"
            raise BadValueError("", "dubito fit for a regression", rule, got, fix)
        return ErrorCosts.linear(self.cost_under, self.cost_over, values)


def _read_values(text: str) -> list[float]:
    """Return the values that may be decided, in increasing order.

    >>> _read_values("24, 0, 12")
    [0.0, 12.0, 24.0]
    """
    try:
        found = sorted({float(one) for one in text.split(",")})
    except ValueError:
        found = []
    if not found or not all(abs(one) <= 1e15 for one in found):
        rule, fix = "must be numbers separated by commas", "Pass --values 0,12,24"
        raise BadValueError("", "--values", rule, text, fix)
    return found


def _read_error_costs(path: Path) -> ErrorCosts:
    """Return piecewise linear costs from lines of `error,cost`; a header line is optional."""
    import csv

    from dubito.decide import ErrorCosts
    from dubito.serialization.documents import read_text

    fix = "Write three or more lines of error,cost, such as -1,4 and 0,0 and 1,1"
    try:
        lines = [line for line in csv.reader(read_text(path).splitlines()) if line]
        has_header = bool(lines) and lines[0][0].strip().lower() == "error"
        pairs = [(float(error), float(cost)) for error, cost in lines[has_header:]]
    except (csv.Error, ValueError) as error:
        raise BadFileError(str(path), "each line must be an error and its cost", fix) from error
    pairs.sort()
    try:
        return ErrorCosts([error for error, _ in pairs], [cost for _, cost in pairs])
    except BadValueError as error:
        problem = f"its {error.argument} {error.rule}, got {error.got}"
        raise BadFileError(str(path), problem, fix) from error


def fit_policy(
    file: str,
    options: ColumnOptions,
    reader: Reader,
    settings: dict[str, Any],
    calibrator: str,
    evaluate_on: str | None,
) -> tuple[Any, Any, Shards]:
    """Fit the policy of a regression; return it, its held-out rows, and all rows."""
    from dubito.decide import RegressionPolicy
    from dubito.measure.regression import moment_matched_shards
    from dubito.measure.regression_audit import interval_levels

    has_reviews = "review_cost" in settings
    [predictions] = options.open(file, has_features=has_reviews)
    with passes():
        rows = reader.rows(predictions)
        if calibrator != "auto":
            settings["calibrator"] = None
            if calibrator != "none":
                outputs = next(moment_matched_shards(rows).batches()).outputs
                [settings["calibrator"]] = _calibrators_named(calibrator, outputs)
        try:
            with reader.held_out(predictions, evaluate_on) as others:
                policy, evidence = RegressionPolicy.fit_shards(rows, evaluate_on=others, **settings)
        except BadValueError as error:
            if error.argument != "level":
                raise
            levels = interval_levels(next(rows.batches()).outputs)
            fix = f"Pass --interval {int(100 * levels[-1]) / 100:g}" if levels else "Add quantiles"
            raise error.moved(argument="", caller="--interval", fix=fix) from error
    given = options.given
    policy.provenance["columns"] = {role: given[role] for role in ROLES if role in given}
    return policy, evidence, rows
