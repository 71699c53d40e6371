"""`dubito calibrate FILE`: what is the calibrated probability?"""

from __future__ import annotations

from dataclasses import fields, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dubito.cli.columns import (
    ColumnOptions,
    as_fitted,
    note_scores,
    note_single_class,
    output_columns,
    require_classes,
    require_positive,
)
from dubito.cli.cost_options import require_unused
from dubito.cli.options import command
from dubito.cli.printing import passes, say, say_json, say_note, say_rearranged, show_table
from dubito.cli.reading import (
    Reader,
    answer_calibrator,
    calibrator_named,
    multilabel_calibrator,
    require_output_paths,
)
from dubito.errors import BadFileError, BadTypeError, BadValueError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from dubito.calibrate import BaseCalibrator, MultiLabelCalibrator
    from dubito.calibrate.regression import BaseRegressionCalibrator
    from dubito.data import Batch
    from dubito.outputs import ClassName

Z = 1.96  # standard errors to each side of a 95 % interval
PREFIX = "calibrated_"


@command("features")
def calibrate(
    file: str,
    *,
    options: ColumnOptions,
    output: str | None = None,
    calibrator: str = "auto",
    apply: Path | None = None,
    columns: str | None = None,
    as_json: bool = False,
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
        rows = output or "calibrated.parquet"
        require_output_paths({"--output": rows}, [file, apply])
        _apply(apply, file, rows, options, reader, columns, as_json)
        return
    if columns is not None:
        rule, fix = "requires --apply", "Pass --apply calibrator.json, or leave it out"
        raise BadValueError("", "--columns", rule, f"{columns} alone", fix)
    place = output or "calibrator.json"
    require_output_paths({"--output": place}, [file], {"--output": (".json",)})
    if options.is_regression:
        from dubito.cli.regression_commands import fit_calibrator

        fit_calibrator(file, place, options, reader, calibrator, as_json)
        return
    _fit(file, place, options, reader, calibrator, as_json)


def _fit(
    file: str, output: str, options: ColumnOptions, reader: Reader, name: str, as_json: bool
) -> None:
    """Fit a calibrator, save it and print what it achieves on held-out rows."""
    import json

    from dubito.calibrate import (
        AutoCalibrator,
        ConfidenceCalibrator,
        MultiLabelCalibrator,
        cross_validate_calibrator,
    )
    from dubito.calibrate.confidence import BASE_RATE, no_better
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
            require_positive(options.positive, next(rows.batches()).outputs, file)
            note_single_class(rows, file)
        if options.is_answers:
            note_scores(rows, file)
        fitted.fit(rows)
        if isinstance(fitted, ConfidenceCalibrator):
            fitted.columns_ = output_columns(predictions.columns)
        is_auto = isinstance(fitted, AutoCalibrator | MultiLabelCalibrator)
        evidence = fitted.evidence_ if is_auto else cross_validate_calibrator(fitted, rows)
    document = {**fitted.to_dict(), "columns": options.outputs}
    write_atomic(output, json.dumps(document, allow_nan=False))
    chosen, reason = (fitted.chosen_, fitted.reason_) if is_auto else (repr(fitted), "named")
    leaderboard = [_with_interval(line) for line in fitted.leaderboard_] if is_auto else []
    if as_json:
        found = {"chosen": chosen, "reason": reason, "leaderboard": leaderboard}
        say_json({**found, "evidence": evidence.to_dict(), "output": output})
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

    show_table(
        ("calibrator", "log loss", "95 % interval", "weight" if is_mixed else ""),
        [
            (
                line["name"],
                f"{line['log_loss']:.4f}",
                f"{line['low']:.4f} to {line['high']:.4f}",
                weight(line),
            )
            for line in lines
        ],
    )
    say("\nLog loss is cross-validated.")
    if any(line.get("dropped") for line in lines):
        say("A dropped candidate was fitted in two folds: its log loss is an estimate.")


def _with_interval(line: dict[str, Any]) -> dict[str, Any]:
    """Return a line of the leaderboard with the 95 % interval of its log loss."""
    reach = Z * line["standard_error"]
    return {**line, "low": line["log_loss"] - reach, "high": line["log_loss"] + reach}


def _apply(
    path: Path,
    file: str,
    output: str,
    options: ColumnOptions,
    reader: Reader,
    wanted: str | None,
    as_json: bool,
) -> None:
    """Write the calibrated probabilities of new predictions beside their columns."""
    from dubito.calibrate import ConfidenceCalibrator
    from dubito.calibrate.confidence import ANSWER_COLUMNS, answer_columns
    from dubito.cli import regression_commands as regression
    from dubito.cli.writing import RowRun, is_directory
    from dubito.data import scan
    from dubito.data.sink import class_columns
    from dubito.data.sources import open_source

    is_directory(output)  # raises for a file of an unknown kind
    calibrator: Any
    calibrator, remembered = _load(path)
    is_regression = hasattr(calibrator, "kind_")
    is_answers = isinstance(calibrator, ConfidenceCalibrator)
    if not (options.outputs or is_answers):  # which know the names of their scores
        like_fit = replace(options, **remembered)
        options = like_fit if like_fit.has_outputs(open_source(file).schema.names) else options
    if is_regression:
        regression.require_outputs(calibrator, options, path)
    n_rearranged: list[int] = []  # of each batch
    known: dict[str, Any] = {}
    names: Sequence[Any]
    if is_answers:
        names = calibrator.names_
        fitted = calibrator.columns_ or ({"scores": ",".join(names)} if names else {})
        known = {"as_scores": True, "fitted": fitted}
    elif not is_regression:
        classes = _classes(calibrator, path, options)
        known["label_names" if options.is_multilabel else "classes"] = classes
    predictions = options.open(file, label="unused", **known)
    if is_answers:
        predictions = [as_fitted(one, calibrator) for one in predictions]
        if calibrator.groups_ and options.group is None and "group" not in fitted:
            say_note(f"{path} has coefficients of groups: pass --group NAME to use them.")
    elif not (is_regression or options.is_multilabel):
        require_classes(predictions, calibrator.n_classes_, classes, path, remembered)
    bound = scan(predictions[0].source, predictions[0].columns).columns
    [first, *others] = bound.found[bound.kind]
    is_single = not others and first not in bound.widths
    if is_answers:
        names = ANSWER_COLUMNS
    elif is_regression:
        regression.require_same_kind(calibrator, bound, path)
        names = regression.calibrated_names(calibrator, bound)
    elif is_single:
        names = [first]
    else:
        names = classes or range(getattr(calibrator, "n_classes_", 0) or calibrator.n_labels_)

    def results_of(batch: Batch) -> dict[str, Any]:
        if is_answers:
            return answer_columns(calibrator, batch.outputs)
        if is_regression:
            n_rearranged.append(getattr(batch.outputs, "n_rearranged", 0))
            arrays = regression.calibrated_arrays(calibrator, batch)
            return {f"{PREFIX}{name}": one for name, one in zip(names, arrays, strict=True)}
        p = calibrator._predict_proba(batch.outputs)
        return {f"{PREFIX}{first}": p[:, -1]} if is_single else class_columns(PREFIX, p, names)

    def columns_of(batch: Batch, source: str | None) -> dict[str, Any]:
        return {**batch.beside(source), **results_of(batch)}

    run = RowRun(
        columns_of,
        predictions,
        output,
        reader,
        verb="calibrating",
        results=ANSWER_COLUMNS if is_answers else [f"{PREFIX}{name}" for name in names],
        settings={"calibrator": sha256(path.read_bytes()).hexdigest(), "columns": options.given},
        id_column=options.id,
        wanted=wanted,
    )
    n_rows = sum(run.write().values())
    if as_json:
        counted = {"rearranged": sum(n_rearranged)} if options.rearrange else {}
        say_json({"rows": n_rows, **counted, "output": output})
        return
    if is_answers:
        say(f"P(correct) of {n_rows:,} rows of {file}, with its interval, is in {output}.")
        return
    say(f"{n_rows:,} rows of {file} are calibrated in {output}.")
    say_rearranged(sum(n_rearranged))


def _classes(
    calibrator: BaseCalibrator | MultiLabelCalibrator, path: Path, options: ColumnOptions
) -> tuple[ClassName, ...] | None:
    """Return the names of classes or labels; raise if the options are for the other kind."""
    from dubito.calibrate import MultiLabelCalibrator

    is_by_label = isinstance(calibrator, MultiLabelCalibrator)
    if is_by_label != options.is_multilabel:
        rule = f"calibrates {'several labels per row' if is_by_label else 'classes'}"
        fix = "Pass --multilabel 'p_*'" if is_by_label else "Leave --multilabel out"
        raise BadValueError("", str(path), rule, "columns of the other kind", fix)
    return calibrator.label_names_ if is_by_label else calibrator.classes_


def _load(
    path: Path,
) -> tuple[BaseCalibrator | MultiLabelCalibrator | BaseRegressionCalibrator, dict[str, Any]]:
    """Return a saved calibrator, and the options of the outputs that it was fitted to."""
    import json

    from dubito.calibrate import BaseCalibrator, MultiLabelCalibrator
    from dubito.calibrate.regression import BaseRegressionCalibrator
    from dubito.serialization.documents import read_text

    fix = "Pass a file written by dubito calibrate"
    try:
        values = json.loads(read_text(path))
        kinds: dict[Any, Any] = {"MultiLabelCalibrator": MultiLabelCalibrator}
        kinds |= {one.__name__: one for one in BaseRegressionCalibrator.__subclasses__()}
        name = values.get("class") if isinstance(values, dict) else None
        kind = kinds.get(name, BaseCalibrator) if isinstance(name, str) else BaseCalibrator
        if isinstance(name, str) and (name.endswith("Policy") or name == "Cascade"):
            use = f"Use `dubito {'cascade ' * (name == 'Cascade')}decide {path}`"
            raise BadFileError(str(path), f"it is a policy ({name}), not a calibrator", use)
        columns = values.pop("columns", {}) if isinstance(values, dict) else {}
        names = {one.name for one in fields(ColumnOptions)}
        found: BaseCalibrator = kind.from_dict(values)
        known = isinstance(columns, dict) and names.issuperset(columns)
        return found, columns if known else {}
    except json.JSONDecodeError as error:
        problem = f"it is not valid JSON (line {error.lineno}, column {error.colno})"
        raise BadFileError(str(path), problem, fix) from error
    except (BadValueError, BadTypeError) as error:
        raise BadFileError(
            str(path), f"it is not a calibrator ({error.rule}, got {error.got})", fix
        ) from error
