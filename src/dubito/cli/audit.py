"""`dubito audit FILE`: is the confidence in a file of predictions calibrated?"""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path, PurePath
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubito.cli.columns import (
    ColumnOptions,
    note_scores,
    note_single_class,
    note_unknown_answers,
    require_positive,
    with_columns,
)
from dubito.cli.cost_options import CELL_HELP, CostOptions, require_unused
from dubito.cli.reading import Reader
from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.data import Shards
    from dubito.decide import CostMatrix, CostReport
    from dubito.measure import Audit, MultiLabelAudit, RegressionAudit


MAX_COST_ROWS = 100_000  # above, costs are estimated on a random sample of this size


class BinStrategy(StrEnum):
    """How the probability of the positive class is binned."""

    quantile = "quantile"
    uniform = "uniform"
    log = "log"


@with_columns()
def audit(
    file: Annotated[
        str,
        typer.Argument(
            help="Predictions: a Parquet, CSV, Arrow or NPZ file, directory, glob or URL."
        ),
    ],
    options: ColumnOptions,
    reader: Reader,
    bins: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            help="Number of bins. Default: 15 of the confidence, 10 of the positive class.",
        ),
    ] = None,
    bin_strategy: Annotated[
        BinStrategy, typer.Option(help="Bins of the probability of the positive class.")
    ] = BinStrategy.quantile,
    threshold: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Predict the positive class at or above this probability. Default: 0.5.",
        ),
    ] = None,
    costs: Annotated[
        Path | None,
        typer.Option(help="Cost matrix (CSV or JSON); adds the cost of the decisions."),
    ] = None,
    cost: Annotated[list[str] | None, typer.Option(help=CELL_HELP)] = None,
    reject_action: Annotated[
        str | None, typer.Option(help="The reject action in --costs or --cost, e.g. review.")
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Write an HTML report, e.g. report.html."),
    ] = None,
    fail_on: Annotated[
        list[str] | None,
        typer.Option(
            help="Exit with code 1 if a metric crosses a limit, e.g. 'ece>0.03', 'abs(gap)>0.02', "
            "'group.*.fpr>0.1' (any group), 'label.*.ece>0.1' (any of several labels) or "
            "'disparity.fpr>0.05' (between groups)."
        ),
    ] = None,
    bad_rows: Annotated[
        Path | None, typer.Option(help="Write invalid rows to this CSV or TSV and continue.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Measure the calibration, accuracy and error detection of a file of predictions.

    With --scores, P(correct) is cross-fitted from the scores and audited.

    Example: dubito audit dubito-demo/payments.csv --positive fraud -o report.html

    Example: dubito audit predictions.csv --label y --probabilities 'p_*'

    Example: dubito audit answers.csv --scores logprob,judge --correct ok
    """
    from dubito.cli.ahead import compile_ahead
    from dubito.cli.limits import as_shown, crossed_limits, limit_warnings
    from dubito.cli.printing import passes, put, say, say_json, typed
    from dubito.cli.reading import require_output_paths
    from dubito.cli.writing import bad_rows_remedy
    from dubito.data import ArrayShards, BadRows, Sink
    from dubito.data.sink import TEXTS
    from dubito.formatting import wrapped
    from dubito.measure import Audit, MultiLabelAudit, RegressionAudit
    from dubito.measure.binary import THRESHOLD

    given = CostOptions(costs, tuple(cost or ()), None, reject_action)
    if threshold is not None and given.is_given:
        rule, fix = "cannot be used with --costs, which decide", "Leave one of them out"
        raise BadValueError("", "--threshold", rule, f"{threshold:g}", fix)
    if options.is_multilabel and (given.is_given or options.positive is not None):
        rule, fix = "must be used without --costs, --cost and --positive", "Leave them out"
        raise BadValueError("", "--multilabel", rule, "one of them", fix)
    if options.is_regression:
        unsuited = {
            "--threshold": threshold, "--bins": bins, "--costs": costs, "--cost": cost,
            "--positive": options.positive, "--classes": options.classes,
        }  # fmt: skip
        require_unused(unsuited, "for a regression")
    paths, endings = {"--output": output, "--bad-rows": bad_rows}, {"--output": (".html",)}
    require_output_paths(paths, [file], {**endings, "--bad-rows": TEXTS})
    if options.scores is not None:
        unsuited = {
            "--threshold": threshold, "--costs": costs, "--cost": cost, "--bins": bins,
            "--positive": options.positive, "--classes": options.classes,
            "--features": options.features,
        }  # fmt: skip
        require_unused(unsuited, "with --scores")
    [predictions] = options.open(
        file,
        has_features=output is not None and not options.is_answers,
        row_costs=given.expressions,
    )
    bad = None if bad_rows is None else BadRows()
    with passes(), bad_rows_remedy(bad_rows, keep_others=True):
        rows = reader.rows(predictions, bad)
        answers = None
        compile_ahead(next(rows.batches()).outputs, is_audit=output is None)
        matrix = None
        if given.is_given:
            matrix = given.read(next(rows.batches()).outputs)
        point = THRESHOLD if threshold is None else threshold
        result: Audit | MultiLabelAudit | RegressionAudit
        too_few: tuple[str, ...] = ()
        if options.is_regression:
            result = RegressionAudit.of(rows)
        elif options.is_multilabel:
            result = MultiLabelAudit.of(
                rows, n_bins=bins, bin_strategy=bin_strategy, threshold=point
            )
            too_few = result.small_groups
        elif options.scores is not None:
            from dubito.calibrate.held_out_answers import HeldOutAnswers

            note_single_class(rows, file, is_error=True)
            note_scores(rows, file)
            answers = HeldOutAnswers.cross_fit(rows, 0, "dubito audit")
            result = Audit.of(ArrayShards(answers.calibrated))
        else:
            pos_label = options.positive
            require_positive(pos_label, next(rows.batches()).outputs, file)
            note_single_class(rows, file)
            if options.confidence is not None and options.weight is None:
                note_unknown_answers(rows, file)
            result = Audit.of(
                rows,
                n_bins=bins,
                pos_label=pos_label,
                bin_strategy=bin_strategy,
                threshold=point,
                costs=matrix,
            )
            comparison = result.group_comparison
            too_few = () if comparison is None else comparison.too_few_rows
        paid = None if matrix is None else _cost_report(rows, matrix)
        metrics = as_shown(_metrics(result))
        findings = crossed_limits(fail_on or [], metrics, result.groups, too_few)
        if output is not None:
            from dubito.report import Report

            title = PurePath(file).name
            report = Report.of(rows, costs=matrix, title=title, command=typed(), audit=result)
            report.save(output)
    if bad_rows is not None and bad is not None:
        with Sink(bad_rows) as sink:
            sink.write(bad.columns)
    if as_json:
        extra: dict[str, Any] = {} if paid is None else {"cost": asdict(paid)}
        if answers is not None:
            extra["scores"] = {
                one.name: None if one.auroc is None else asdict(one.auroc)
                for one in answers.separations()
            }
        extra |= {} if bad is None else {"bad_rows": len(bad)}
        is_streamed = not isinstance(rows, ArrayShards)
        say_json({**result.to_dict(), **extra, "findings": findings, "streamed": is_streamed})
    else:
        text = str(result)
        if answers is not None:
            text = text.replace("\n\n", f"\n\n{answers.title}\n\n", 1)
        say(text if paid is None else f"{text}\n\n{paid}")
        if answers is not None:
            put("\n".join(["", *answers.separation_lines()]))
        elif not isinstance(rows, ArrayShards) and not options.is_regression:
            ranked = "AURC, AUGRC and error detection"
            if options.is_multilabel:
                ranked = "ROC-AUC, average precision, ECE and slopes"
            elif isinstance(result, Audit) and result.positive is not None:
                name = f"P({result.positive.pos_label})"
                ranked += f", and ROC-AUC, average precision, slope, bins and deciles of {name},"
            said = f"The rows were streamed: {ranked} come from a fine grid, which "
            said += "changes probabilities by less than 1 part in 1,024. Other figures are exact."
            say("\n" + "\n".join(wrapped(said, 80)))
        if isinstance(result, Audit) and result.n_classes == 2 and result.positive is None:
            one, other = (quote(str(each.name)) for each in result.classes)
            say(f"\nPass --positive {one} or --positive {other} to audit P(positive class).")
        if bad is not None:
            each = "row was" if len(bad) == 1 else "rows were"
            say(f"\n{len(bad):,} invalid {each} set aside in {bad_rows}.")
        if output is not None:
            say(f"\nThe report is in {output}.")
        if options.is_regression:
            shown = replace(options, group=None, id=None)
            say("\nNext, calibrate the intervals, or fit a policy that decides values by cost:")
            say(f"  dubito calibrate {quote(file)} {shown}")
            say(f"  dubito fit {quote(file)} {shown} --cost-under 4 --cost-over 1")
        else:
            what = "labels" if options.is_multilabel else "rows"
            what = "answers" if options.is_answers else what
            say(f"\nNext, fit a policy that sends uncertain {what} to human review:")
            more = f" {given}".rstrip()
            if options.is_multilabel:
                more += " --review 0.3"
            elif matrix is None or matrix.reject is None:
                more += f" --reject-cost {0.2 if options.is_answers else 0.3}"
            group = options.group if options.is_answers else None
            columns = replace(options, group=group, id=None)  # as `fit` uses them
            say(f"  dubito fit {quote(file)} {columns}{more}".replace("  --", " --"))
    for one in [*limit_warnings(fail_on or [], too_few, metrics), *findings]:
        put(f"dubito: {one}", is_error=True)
    if findings:
        raise typer.Exit(1)


def _metrics(result: Audit | MultiLabelAudit | RegressionAudit) -> dict[str, float]:
    """Return the metrics that limits apply to, including log losses that may be infinite."""
    audits = {"": result, **{f"group.{name}.": one for name, one in result.groups.items()}}
    losses = {f"{prefix}log_loss": getattr(one, "log_loss", None) for prefix, one in audits.items()}
    known = {name: loss for name, loss in losses.items() if loss is not None}
    return {**result.figures, **known}


def _cost_report(rows: Shards, costs: CostMatrix) -> CostReport:
    """Return the cost of decisions made with the uncalibrated outputs."""
    from dubito.data.shards import sample_rows
    from dubito.decide import cost_report

    batch = sample_rows(rows, MAX_COST_ROWS, is_labeled=True)
    return cost_report(
        batch.labels,
        batch.outputs,
        costs,
        batch.row_costs,
        sample_weight=batch.weight,
    )
