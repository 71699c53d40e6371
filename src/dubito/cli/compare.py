"""`dubito compare A B...`: models on the same rows; `dubito drift A B`: periods of one model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

import typer

from dubito.cli.columns import MULTILABEL, ColumnOptions
from dubito.cli.cost_options import CostOptions, require_unused
from dubito.cli.limits import as_shown, crossed_limits
from dubito.cli.options import command
from dubito.cli.printing import passes, put, say, say_json, say_rearranged, typed
from dubito.cli.reading import (
    Reader,
    count_rearranged,
    require_output_paths,
    require_positive,
    resolved,
)
from dubito.errors import BadValueError, BaseRuleError

if TYPE_CHECKING:
    from dubito.data import Batch, Shards

SAME_ROWS = "Pass predictions for the same rows"


@command("features", "group", "uncertain", "scores", hidden=MULTILABEL)
def compare(
    files: list[str],
    *,
    options: ColumnOptions,
    costs: Path | None = None,
    cost: list[str] | None = None,
    output: Path | None = None,
    fail_on: list[str] | None = None,
    reader: Reader,
) -> None:
    """Compare models on the same rows, with confidence intervals; the first is the baseline.

    Example: dubito compare old.csv new.csv --label y --logits 'logit_*' --id id

    Example: dubito compare old.csv new.csv --label demand --quantiles 'q_*'

    Options
    -------
    files
        Predictions for the same rows: one file, directory or glob per model.
    output
        Write an HTML report, e.g. compare.html.
    fail_on
        Exit with code 1 if a new model crosses a limit on a metric ('log_loss>0.3') or its
        change ('change.log_loss>0.01'), or if any is significantly worse ('worse.*>0').
    """
    from dubito.monitor import compare as compare_models

    options.require_single_label("compare")
    if options.is_regression:
        unsuited = {"--costs": costs, "--cost": cost, "--positive": options.positive}
        require_unused(unsuited, "for a regression")
    require_output_paths({"--output": output}, files, {"--output": (".html",)})
    names = _model_names(files)
    given = CostOptions(costs, tuple(cost or ()))
    predictions = options.open(*files, row_costs=given.expressions)
    with passes():
        rows = list(map(reader.rows, predictions))
        if options.id is not None:
            rows = _matched_by_id(files, _sampled(files, rows))
        require_positive(options.positive, next(rows[0].batches()).outputs, files[0])
        table = given.read(next(rows[0].batches()).outputs) if given.is_given else None
        models = dict(zip(names, rows, strict=True))
        with _named_files(dict(zip((f"models[{name!r}]" for name in names), files, strict=True))):
            comparison = compare_models(None, models, costs=table, pos_label=options.positive)
    if output is not None:
        from dubito.report import comparison_report

        comparison_report(comparison, command=typed()).save(output)
    findings: list[str] = []
    for name in comparison.models[1:]:
        figures = as_shown(comparison.figures(name))
        findings += crossed_limits(fail_on or [], figures, subject=f"{name}: ")
    say_json({**comparison.to_dict(), "findings": findings})
    say(str(comparison))
    if output is not None:
        say(f"\nThe report is in {output}.")
    for one in findings:
        put(f"dubito: {one}", is_error=True)
    if findings:
        raise typer.Exit(1)


@contextmanager
def _named_files(files: dict[str, str]) -> Iterator[None]:
    """Report what is wrong with an argument as what is wrong with its file."""
    try:
        yield
    except BaseRuleError as error:
        if error.argument not in files:
            raise
        rule = error.rule
        for argument, file in files.items():
            rule = rule.replace(f"`{argument}`", file)
        fix = error.fix
        if "same rows" in fix:
            fix = "Pass the same rows in the same order, or match them with --id NAME"
        elif fix == "Pass outputs of one model":
            fix = "Pass predictions of one model, with the same columns"
        raise type(error)("", files[error.argument], rule, error.got, fix) from error


def _model_names(files: list[str]) -> list[str]:
    """Return short names of the models that tell them apart: file stems, or the paths."""
    if len(set(map(resolved, files))) < max(len(files), 2):
        rule, fix = "needs two or more different files", "Run dubito compare old.csv new.csv"
        raise BadValueError("", "dubito compare", rule, ", ".join(files), fix)
    short = [PurePath(file).stem for file in files]
    return short if len(set(short)) == len(files) else files


def _sampled(files: list[str], rows: list[Shards]) -> list[Batch]:
    """Return all rows of each model, or the rows of one sample if they are streamed."""
    import numpy as np

    from dubito.data import ArrayShards
    from dubito.data.shards import SAMPLE_ROWS, joined, sample_rows

    in_memory = [one.batch for one in rows if isinstance(one, ArrayShards)]
    if len(in_memory) == len(rows):
        return in_memory
    sizes = [one.sum(len) for one in rows]
    for file, size in zip(files, sizes, strict=True):
        if size != sizes[0]:
            rule, got = f"must hold the ids of {files[0]}", f"{size:,} rows instead of {sizes[0]:,}"
            raise BadValueError("", f"{file}: --id", rule, got, SAME_ROWS)
    first = sample_rows(rows[0], SAMPLE_ROWS)
    wanted = np.asarray(first.ids).astype(str)

    def matching(_: int, batch: Batch) -> Batch:
        return batch.take(np.flatnonzero(np.isin(np.asarray(batch.ids).astype(str), wanted)))

    return [first, *(joined(list(one.apply(matching))) for one in rows[1:])]


def _matched_by_id(files: list[str], batches: list[Batch]) -> list[Shards]:
    """Return the rows of each file in the order of the first, matched by their ids."""
    import numpy as np

    from dubito.data import ArrayShards

    keys = [np.asarray(batch.ids).astype(str) for batch in batches]
    orders = [np.argsort(ids, kind="stable") for ids in keys]
    wanted = keys[0][orders[0]]
    back = np.argsort(orders[0])
    for file, ids, order in zip(files, keys, orders, strict=True):
        rows = ids[order]
        is_repeated = rows[1:] == rows[:-1]
        if is_repeated.any():
            rule, got = "must be unique per row", f"{rows[1:][is_repeated][0]} twice"
            fix = "Pass --id with a column of unique identifiers"
            raise BadValueError("", f"{file}: --id", rule, got, fix)
        unmatched = np.setxor1d(rows, wanted)
        if unmatched.size:
            rule, got = f"must hold the ids of {files[0]}", f"{unmatched[0]} in only one of them"
            raise BadValueError("", f"{file}: --id", rule, got, SAME_ROWS)
    return [
        ArrayShards(batch.take(order[back])) for batch, order in zip(batches, orders, strict=True)
    ]


@command("weight", "group", "id", "cost", "uncertain", "scores", hidden=MULTILABEL)
def drift(
    reference: str,
    current: str,
    *,
    options: ColumnOptions,
    output: Path | None = None,
    fail_on_drift: bool = False,
    reader: Reader,
) -> None:
    """Test whether predictions, uncertainty, labels or features drifted between two periods.

    Labels are optional. For regression, it tests predictions and interval widths,
    and with targets also bias, errors, coverage and PIT.

    Example: dubito drift old.csv new.csv --label y --logits 'logit_*'

    Example: dubito drift may.csv june.csv --quantiles 'q_*' --label demand

    Options
    -------
    reference
        Predictions from the reference period: a file, directory or glob.
    current
        Predictions from the period to check.
    output
        Write an HTML report, e.g. drift.html.
    fail_on_drift
        Exit with code 1 if drift is detected.
    """
    from dubito.monitor import detect_drift

    files = [reference, current]
    options.require_single_label("drift")
    if options.confidence is not None and options.correct is None:
        rule, column = "needs --correct in a test of drift", options.confidence
        fix = f"Pass --correct NAME, or --probability {column} to compare without labels"
        raise BadValueError("", "--confidence", rule, f"{column} alone", fix)
    require_output_paths({"--output": output}, files, {"--output": (".html",)})
    predictions = options.open(*files, label="optional", has_features=True)
    with passes():
        rows = [reader.rows(one) for one in predictions]
        with _named_files({"reference": reference, "current": current}):
            result = detect_drift(*rows)
        n_rearranged = count_rearranged(*rows) if options.rearrange else 0
    if output is not None:
        from dubito.report import drift_report

        title = f"{PurePath(reference).name} and {PurePath(current).name}"
        drift_report(result, title=title, command=typed()).save(output)
    counted = {"rearranged": n_rearranged} if options.rearrange else {}
    say_json({**result.to_dict(), **counted})
    say(str(result))
    say_rearranged(n_rearranged)
    if output is not None:
        say(f"\nThe report is in {output}.")
    if fail_on_drift and result.has_drifted:
        raise typer.Exit(1)
