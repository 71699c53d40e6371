"""`dubito calibrate FILE`: what is the calibrated probability?"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

from dubito.cli.columns import ColumnOptions, output_columns
from dubito.cli.cost_options import require_unused
from dubito.cli.options import command
from dubito.cli.printing import passes, say, say_json, say_note, say_rearranged, show_table
from dubito.cli.reading import Reader, check_rows, require_output_paths
from dubito.errors import BadValueError

Z = 1.96  # standard errors to each side of a 95 % interval


@command("features")
def calibrate(
    file: str,
    *,
    options: ColumnOptions,
    output: str | None = None,
    calibrator: str = "auto",
    apply: Path | None = None,
    columns: str | None = None,
    reader: Reader,
) -> None:
    """Fit the calibrator with the best cross-validated score and save it, or apply it.

    The score is the log loss of classes, or the CRPS of a regression.

    --apply writes the input columns, and calibrated_p for a column p,
    or calibrated_CLASS for each of several classes or labels.
    Scores of answers become p_correct, with p_correct_low and p_correct_high.
    For a regression it adjusts intervals to their coverage, and --apply
    writes the calibrated means and standard deviations, or quantiles.

    Example: dubito calibrate dubito-demo/payments.csv --positive fraud -o c.json

    Example: dubito calibrate --apply c.json new.csv -o calibrated.csv

    Example: dubito calibrate predictions.csv --label y --logits 'logit_*'

    Example: dubito calibrate answers.csv --scores logprob,judge --correct ok

    Example: dubito calibrate xrays.csv --multilabel 'p_*' --label 'y_*'

    Example: dubito calibrate sales.csv --quantiles 'q_*' --label demand

    Options
    -------
    group
        Column of groups; rows of one group stay in one fold. With --scores, groups are
        partially pooled.
    output
        Write the calibrator here; with --apply, the calibrated rows. Default: calibrator.json,
        or calibrated.parquet.
    apply
        Apply this saved calibrator to the file, instead of fitting one.
    columns
        With --apply: comma-separated input columns to keep, or '' for none. Default: all,
        except lists and more than 20 logits, probabilities or features.
    """
    if apply is not None:
        output = output or "calibrated.parquet"
        require_output_paths({"--output": output}, [file, apply])
        _apply(apply, file, output, options, reader, columns)
        return
    if columns is not None:
        rule, fix = "requires --apply", "Pass --apply calibrator.json, or leave it out"
        raise BadValueError("", "--columns", rule, f"{columns} alone", fix)
    from dubito.cli.calibrators import fit_regression

    output = output or "calibrator.json"
    require_output_paths({"--output": output}, [file], {"--output": (".json",)})
    (fit_regression if options.is_regression else _fit)(file, output, options, reader, calibrator)


def _fit(file: str, output: str, options: ColumnOptions, reader: Reader, name: str) -> None:
    """Fit a calibrator, save it and print what it achieves on held-out rows."""
    import json

    from dubito.calibrate import (
        AutoCalibrator,
        ConfidenceCalibrator,
        MultiLabelCalibrator,
        cross_validate_calibrator,
    )
    from dubito.calibrate.confidence import BASE_RATE, no_better
    from dubito.cli.calibrators import answer_calibrator, calibrator_named, multilabel_calibrator
    from dubito.data.sink import write_atomic

    [predictions] = options.open(file, as_scores=True)
    chosen_by: Any
    if options.is_multilabel:
        require_unused({"--positive": options.positive})
        chosen_by = multilabel_calibrator(name)
    elif options.is_answers:
        require_unused({"--positive": options.positive}, "with --confidence or --scores")
        chosen_by = answer_calibrator(name)
    else:
        chosen_by = calibrator_named(name)
    fitted = AutoCalibrator() if chosen_by == "auto" else chosen_by
    with passes():
        rows = reader.rows(predictions)
        if not options.is_multilabel:
            check_rows(rows, file, options)
        fitted.fit(rows)
        if isinstance(fitted, ConfidenceCalibrator):
            fitted.columns_ = output_columns(predictions.columns)
        is_auto = isinstance(fitted, AutoCalibrator | MultiLabelCalibrator)
        evidence = fitted.evidence_ if is_auto else cross_validate_calibrator(fitted, rows)
    document = {**fitted.to_dict(), "columns": options.outputs}
    write_atomic(output, json.dumps(document, allow_nan=False))
    chosen, reason = (fitted.chosen_, fitted.reason_) if is_auto else (repr(fitted), "named")
    leaderboard: list[dict[str, Any]] = []
    for line in fitted.leaderboard_ if is_auto else ():
        loss, reach = line["log_loss"], Z * line["standard_error"]
        leaderboard.append({**line, "low": loss - reach, "high": loss + reach})
    found = {"chosen": chosen, "reason": reason, "leaderboard": leaderboard}
    if say_json({**found, "evidence": evidence.to_dict(), "output": output}):
        return
    is_plain = is_auto or options.is_answers
    what = fitted.summary() if is_plain else f"{type(fitted).__name__} ({fitted.summary()})"
    say(f"{what[0].upper()}{what[1:]}; {evidence}.\n")
    if options.is_answers and options.confidence is None:
        say(f"{BASE_RATE}\n")
    if options.is_answers and not evidence.is_better:
        say_note(no_better(options.confidence is not None))
    if leaderboard:
        _show_leaderboard(leaderboard, chosen)
    say(f"Written to {output}. Next:")
    shown = ColumnOptions() if options.is_answers else options  # its calibrator holds its columns
    shown.say_next(f"calibrate --apply {output}", file, "calibrated.parquet")


def _show_leaderboard(lines: list[dict[str, Any]], chosen: str) -> None:
    """Print the log loss of each candidate."""
    from dubito.formatting import percent

    is_mixed = "weight" in lines[0]  # of several labels per row, nothing is mixed

    def weight(line: dict[str, Any]) -> str:
        if not is_mixed:
            return "selected" if line["name"] == chosen else ""
        if line["dropped"]:
            return "dropped"
        return "" if line["weight"] is None else f"{percent(line['weight'])}"

    rows = []
    for line in lines:
        between = f"{line['low']:.4f} to {line['high']:.4f}"
        rows.append((line["name"], f"{line['log_loss']:.4f}", between, weight(line)))
    show_table(("calibrator", "log loss", "95 % interval", "weight" if is_mixed else ""), rows)
    say("\nLog loss is cross-validated.")
    if any(line.get("dropped") for line in lines):
        say("A dropped candidate was fitted in two folds: its log loss is an estimate.")


def _apply(
    path: Path,
    file: str,
    output: str,
    options: ColumnOptions,
    reader: Reader,
    wanted: str | None,
) -> None:
    """Write the calibrated probabilities of new predictions beside their columns."""
    from dubito.cli.calibrators import load_application
    from dubito.cli.writing import RowRun, is_directory

    is_directory(output)  # raises for a file of an unknown kind
    application = load_application(path)
    predictions = application.open(file, options)
    options = application.options
    run = RowRun(
        application.columns_of,
        [predictions],
        output,
        reader,
        verb="calibrating",
        results=application.names,
        settings={"calibrator": sha256(path.read_bytes()).hexdigest(), "columns": options.given},
        id_column=options.id,
        wanted=wanted,
    )
    n_rows = sum(run.write().values())
    n_rearranged = run.count_rearranged()
    counted = {"rearranged": n_rearranged} if options.rearrange else {}
    say_json({"rows": n_rows, **counted, "output": output})
    say(application.done.format(n_rows, file, output))
    say_rearranged(n_rearranged)
