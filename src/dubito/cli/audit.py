"""`dubito audit FILE`: is the confidence in a file of predictions calibrated?"""

from __future__ import annotations

from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path, PurePath
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from dubito.cli.ahead import compile_ahead
from dubito.cli.columns import ColumnOptions
from dubito.cli.cost_options import CostOptions, require_unused
from dubito.cli.limits import as_shown, crossed_limits, limit_warnings
from dubito.cli.options import command
from dubito.cli.printing import passes, put, say, say_bad_rows, say_json, typed
from dubito.cli.reading import Reader, check_rows, require_output_paths
from dubito.errors import BadValueError

if TYPE_CHECKING:
    from dubito.calibrate.held_out_answers import HeldOutAnswers
    from dubito.data import Shards
    from dubito.decide import CostMatrix, CostReport
    from dubito.measure import Audit, MultiLabelAudit, RegressionAudit


MAX_COST_ROWS = 100_000  # above, costs are estimated on a random sample of this size


class BinStrategy(StrEnum):
    """How the probability of the positive class is binned."""

    quantile = "quantile"
    uniform = "uniform"
    log = "log"


@command()
def audit(
    file: str,
    *,
    options: ColumnOptions,
    bins: Annotated[int | None, typer.Option(min=1, max=100_000)] = None,
    bin_strategy: BinStrategy = BinStrategy.quantile,
    threshold: Annotated[float | None, typer.Option(min=0.0, max=1.0)] = None,
    costs: Path | None = None,
    cost: list[str] | None = None,
    reject_action: str | None = None,
    output: Path | None = None,
    fail_on: list[str] | None = None,
    bad_rows: Path | None = None,
    reader: Reader,
) -> None:
    """Measure the calibration, accuracy and error detection of a file of predictions.

    With --scores, P(correct) is cross-fitted from the scores and audited.

    Example: dubito audit dubito-demo/payments.csv --positive fraud -o report.html

    Example: dubito audit predictions.csv --label y --probabilities 'p_*'

    Example: dubito audit answers.csv --scores logprob,judge --correct ok

    Options
    -------
    bins
        Number of bins. Default: 15 of the confidence, 10 of the positive class.
    bin_strategy
        Bins of the probability of the positive class.
    threshold
        Predict the positive class at or above this probability. Default: 0.5.
    reject_action
        The reject action in --costs or --cost, e.g. review.
    output
        Write an HTML report, e.g. report.html.
    fail_on
        Exit with code 1 if a metric crosses a limit, e.g. 'ece>0.03', 'abs(gap)>0.02',
        'group.*.fpr>0.1' (any group), 'label.*.ece>0.1' (any of several labels) or
        'disparity.fpr>0.05' (between groups).
    """
    from dubito.cli.writing import bad_rows_remedy
    from dubito.data import BadRows, Sink
    from dubito.data.sources.opening import TEXTS
    from dubito.measure.binary import THRESHOLD

    given = CostOptions(costs, tuple(cost or ()), None, reject_action)
    _require_suited(options, given, threshold, bins)
    paths, endings = {"--output": output, "--bad-rows": bad_rows}, {"--output": (".html",)}
    require_output_paths(paths, [file], {**endings, "--bad-rows": TEXTS})
    [predictions] = options.open(
        file,
        has_features=output is not None and not options.is_answers,
        row_costs=given.expressions,
    )
    bad = None if bad_rows is None else BadRows()
    settings: dict[str, Any] = {"n_bins": bins, "bin_strategy": bin_strategy}
    settings["threshold"] = THRESHOLD if threshold is None else threshold
    with passes(), bad_rows_remedy(bad_rows, keep_others=True):
        rows = reader.rows(predictions, bad)
        outputs = next(rows.batches()).outputs
        compile_ahead(outputs, is_audit=output is None)
        matrix = given.read(outputs) if given.is_given else None
        found = _measure(rows, file, options, matrix, settings)
        if threshold is not None:
            _require_positive_class(found.result, f"{threshold:g}", file)
        metrics = as_shown(_metrics(found.result))
        findings = crossed_limits(fail_on or [], metrics, found.result.groups, found.too_few)
        if output is not None:
            from dubito.report import Report

            title = PurePath(file).name
            report = Report.of(rows, costs=matrix, title=title, command=typed(), audit=found.result)
            report.save(output)
    if bad_rows is not None and bad is not None:
        with Sink(bad_rows) as sink:
            sink.write(bad.columns)
    set_aside = {} if bad is None else {"bad_rows": len(bad)}
    last = {**set_aside, "findings": findings, "streamed": found.is_streamed}
    if not say_json({**found.to_dict(), **last}):
        _say(found, options)
        if bad_rows is not None and bad is not None:
            say()
            say_bad_rows(len(bad), bad_rows)
        if output is not None:
            say(f"\nThe report is in {output}.")
        _say_next(
            file, options, given, has_reviews=matrix is not None and matrix.reject is not None
        )
    for one in [*limit_warnings(fail_on or [], found.too_few, metrics), *findings]:
        put(f"dubito: {one}", is_error=True)
    if findings:
        raise typer.Exit(1)


def _require_suited(
    options: ColumnOptions, costs: CostOptions, threshold: float | None, bins: int | None
) -> None:
    """Raise for options that have no meaning for outputs of this kind, or exclude each other."""
    if threshold is not None and costs.is_given:
        rule, fix = "cannot be used with --costs, which decide", "Leave one of them out"
        raise BadValueError("", "--threshold", rule, f"{threshold:g}", fix)
    if options.is_multilabel and (costs.is_given or options.positive is not None):
        rule, fix = "must be used without --costs, --cost and --positive", "Leave them out"
        raise BadValueError("", "--multilabel", rule, "one of them", fix)
    unsuited = {
        "--threshold": threshold, "--bins": bins, "--costs": costs.file, "--cost": costs.cells,
        "--positive": options.positive, "--classes": options.classes,
    }  # fmt: skip
    if options.is_regression:
        require_unused(unsuited, "for a regression")
    if options.scores is not None:
        require_unused({**unsuited, "--features": options.features}, "with --scores")


class _Measured(NamedTuple):
    """An audit, with what else was measured of rows; `too_few` are groups of too few rows."""

    result: Audit | MultiLabelAudit | RegressionAudit
    too_few: tuple[str, ...]
    answers: HeldOutAnswers | None
    paid: CostReport | None
    is_streamed: bool

    def to_dict(self) -> dict[str, Any]:
        """Return the audit and what else was measured as JSON values."""
        found = self.result.to_dict()
        if self.paid is not None:
            found["cost"] = asdict(self.paid)
        if self.answers is not None:
            areas = {one.name: one.roc_auc for one in self.answers.separations()}
            found["scores"] = {name: one and asdict(one) for name, one in areas.items()}
        return found


def _require_positive_class(result: object, threshold: str, file: str) -> None:
    """Raise if a threshold was given, and no class of two is the positive one."""
    from dubito.measure import Audit

    if not isinstance(result, Audit) or result.positive is not None:
        return
    rule, fix = f"applies to two classes; {file} has {result.n_classes or 'none'}", "Leave it out"
    if result.n_classes == 2:
        names = sorted(quote(str(one.name)) for one in result.classes)
        rule = f"needs to know the positive class of {file}"
        fix = f"Add --positive {names[0]} or --positive {names[1]}"
    raise BadValueError("", f"--threshold {threshold}", rule, "", fix)


def _measure(
    rows: Shards,
    file: str,
    options: ColumnOptions,
    costs: CostMatrix | None,
    settings: dict[str, Any],
) -> _Measured:
    """Audit rows; of scores of answers, the cross-fitted P(correct)."""
    from dubito.data import ArrayShards
    from dubito.measure import Audit, MultiLabelAudit, RegressionAudit

    result: Audit | MultiLabelAudit | RegressionAudit
    answers, too_few = None, tuple[str, ...]()
    if options.is_regression:
        result = RegressionAudit.of(rows)
    elif options.is_multilabel:
        result = MultiLabelAudit.of(rows, **settings)
        too_few = result.small_groups
    elif options.scores is not None:
        from dubito.calibrate.held_out_answers import HeldOutAnswers

        check_rows(rows, file, options, is_single_error=True)
        answers = HeldOutAnswers.cross_fit(rows, 0, "dubito audit")
        result = Audit.of(ArrayShards(answers.calibrated))
    else:
        check_rows(rows, file, options)
        result = Audit.of(rows, pos_label=options.positive, costs=costs, **settings)
        comparison = result.group_comparison
        too_few = () if comparison is None else comparison.too_few_rows
    paid = None if costs is None else _cost_report(rows, costs)
    return _Measured(result, too_few, answers, paid, not isinstance(rows, ArrayShards))


def _say(found: _Measured, options: ColumnOptions) -> None:
    """Print an audit, and how exact it is if rows were streamed."""
    from dubito.formatting import wrapped
    from dubito.measure import Audit

    result, answers, text = found.result, found.answers, str(found.result)
    if answers is not None:
        text = text.replace("\n\n", f"\n\n{answers.title}\n\n", 1)
    say(text if found.paid is None else f"{text}\n\n{found.paid}")
    if answers is not None:
        put("\n".join(["", *answers.separation_lines()]))
    elif found.is_streamed and not options.is_regression:
        ranked = "AURC, AUGRC and error detection"
        if options.is_multilabel:
            ranked = "ROC-AUC, average precision, ECE and slopes"
        elif isinstance(result, Audit) and result.positive is not None:
            name = f"P({result.positive.pos_label})"
            ranked += f", and ROC-AUC, average precision, slope, bins and deciles of {name},"
        note = f"The rows were streamed: {ranked} come from a fine grid, which "
        note += "changes probabilities by less than 1 part in 1,024. Other figures are exact."
        say("\n" + "\n".join(wrapped(note, 80)))
    if isinstance(result, Audit) and result.n_classes == 2 and result.positive is None:
        one, other = (quote(str(each.name)) for each in result.classes)
        say(f"\nPass --positive {one} or --positive {other} to audit P(positive class).")


def _say_next(file: str, options: ColumnOptions, costs: CostOptions, *, has_reviews: bool) -> None:
    """Print the commands that follow an audit."""
    if options.is_regression:
        shown = replace(options, group=None, id=None)
        say("\nNext, calibrate the intervals, or fit a policy that decides values by cost:")
        say(f"  dubito calibrate {quote(file)} {shown}")
        say(f"  dubito fit {quote(file)} {shown} --cost-under 4 --cost-over 1")
        return
    what, group, cost = "rows", None, "--reject-cost 0.3"
    if options.is_multilabel:
        what, cost = "labels", "--review-label 0.3"
    elif options.is_answers:
        what, group, cost = "answers", options.group, "--reject-cost 0.2"
    say(f"\nNext, fit a policy that sends uncertain {what} to human review:")
    more = f" {costs}".rstrip() + ("" if has_reviews else f" {cost}")
    columns = replace(options, group=group, id=None)  # as `fit` uses them
    say(f"  dubito fit {quote(file)} {columns}{more}".replace("  --", " --"))


def _metrics(result: Audit | MultiLabelAudit | RegressionAudit) -> dict[str, float]:
    """Return the metrics that limits apply to, including log losses that may be infinite."""
    audits = {"": result, **{f"group.{name}.": one for name, one in result.groups.items()}}
    losses = {f"{prefix}log_loss": getattr(one, "log_loss", None) for prefix, one in audits.items()}
    return {**result.figures, **{name: one for name, one in losses.items() if one is not None}}


def _cost_report(rows: Shards, costs: CostMatrix) -> CostReport:
    """Return the cost of decisions made with the uncalibrated outputs."""
    from dubito.data.shards import sample_rows
    from dubito.decide import cost_report

    batch = sample_rows(rows, MAX_COST_ROWS, is_labeled=True)
    return cost_report(
        batch.labels, batch.outputs, costs, batch.row_costs, sample_weight=batch.weight
    )
