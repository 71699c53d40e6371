"""Regression in `dubito calibrate`: calibrated means, standard deviations and quantiles."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from dubito.calibrate import QuantileRecalibration, VarianceScaling, cross_validate_calibrator
from dubito.calibrate.cross_validation import RegressionEvidence
from dubito.calibrate.quantile_recalibration import (
    DRAW_LEVELS,
    regression_candidates,
    select_regression_calibrator,
)
from dubito.cli.columns import ColumnOptions
from dubito.cli.cost_options import require_unused
from dubito.cli.options import join_choices
from dubito.cli.printing import passes, say, say_json, say_note, say_rearranged, show_table
from dubito.cli.reading import Reader, count_rearranged
from dubito.data import Batch
from dubito.data.columns import BoundColumns
from dubito.data.sink import write_atomic
from dubito.errors import BadValueError
from dubito.formatting import decimal, percent, quantity
from dubito.measure.regression import moment_matched, moment_matched_shards
from dubito.outputs import BaseOutputs, Normal, Quantiles

RegressionCalibrator = QuantileRecalibration | VarianceScaling
NAMES = ("auto", "VarianceScaling", "QuantileRecalibration")
WORSE = 1.01  # a CRPS after calibration by this factor above that before is warned about
INTERVALS = (0.5, 0.8, 0.9, 0.95)  # whose coverage is printed, or the nearest ones
KIND_OPTIONS = {
    "Normal": "--mean and --std",
    "Quantiles": "--quantiles 'q_*'",
    "Samples": "--samples 's_*'",
}


def calibrators_named(name: str, outputs: BaseOutputs) -> list[RegressionCalibrator]:
    """Return the calibrator of this name, or for `auto` those to select from."""
    if name not in NAMES:
        rule = f"must be {join_choices(NAMES)} for a regression"
        raise BadValueError("", "--calibrator", rule, name, "Use auto")
    if name == "auto":
        return regression_candidates(outputs)
    levels = outputs.levels.tolist() if isinstance(outputs, Quantiles) else DRAW_LEVELS
    return [VarianceScaling() if name == "VarianceScaling" else QuantileRecalibration(levels)]


def fit_calibrator(
    file: str, output: str, options: ColumnOptions, reader: Reader, name: str, as_json: bool
) -> None:
    """Fit a calibrator, save it, and print what it achieves on held-out rows."""
    require_unused({"--positive": options.positive, "--classes": options.classes}, "here")
    [predictions] = options.open(file)
    with passes():
        rows = moment_matched_shards(reader.rows(predictions))
        candidates = calibrators_named(name, next(rows.batches()).outputs)
        fitted = candidates[0].fit(rows)  # which also warns of missing targets
        names = [type(one).__name__ for one in candidates]
        tried = [cross_validate_calibrator(one, rows) for one in candidates]
        chosen, reason = select_regression_calibrator(dict(zip(names, tried, strict=True)))
        best = names.index(chosen)
        fitted = candidates[best].fit(rows) if best else fitted
        n_rearranged = count_rearranged(rows) if options.rearrange else 0
    document = {**fitted.to_dict(), "columns": options.outputs}
    write_atomic(output, json.dumps(document, allow_nan=False))
    reason = reason if name == "auto" else "named"
    _warn_if_worse(tried[best])
    if as_json:
        scores = [{"name": each, **_scores(one)} for each, one in zip(names, tried, strict=True)]
        found: dict[str, Any] = {"chosen": chosen, "reason": reason, "leaderboard": scores}
        found |= {"rearranged": n_rearranged} if options.rearrange else {}
        say_json({**found, "evidence": tried[best].to_dict(), "output": output})
        return
    say(f"{chosen}: {fitted.summary()}.")
    if len(candidates) > 1:
        say(f"{reason[0].upper()}{reason[1:]}.")
    say()
    _show_evidence(tried[best])
    say_rearranged(n_rearranged)
    say(f"\nWritten to {output}. Next:")
    options.say_next(f"calibrate --apply {output}", file, "calibrated.parquet")


def _scores(evidence: RegressionEvidence) -> dict[str, float]:
    """Return the CRPS before and after calibration."""
    before, after = (
        one.continuous_ranked_probability_score for one in (evidence.before, evidence.after)
    )
    return {"crps_before": before, "crps_after": after}


def _warn_if_worse(evidence: RegressionEvidence) -> None:
    """Print a warning if calibration did not help on held-out rows."""
    if evidence.relative_crps > WORSE:
        before, after = map(decimal, _scores(evidence).values())
        say_note(
            f"Calibration did not help on held-out rows: {evidence.before.crps_title} {after} "
            f"after it, {before} before. Calibrate on more than {quantity(evidence.n_rows)}, or "
            "use the uncalibrated outputs."
        )


def _show_evidence(evidence: RegressionEvidence) -> None:
    """Print the metrics before and after calibration."""
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
