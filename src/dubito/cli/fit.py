"""`dubito fit FILE`: a policy from predictions and costs."""

from __future__ import annotations

from dataclasses import replace
from itertools import compress
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dubito.cli.columns import (
    ColumnOptions,
    note_scores,
    note_single_class,
    output_columns,
    require_positive,
    with_columns,
)
from dubito.cli.cost_options import (
    CELL_HELP,
    CostOptions,
    LabelOptions,
    require_unused,
    review_hint,
)
from dubito.cli.reading import (
    CALIBRATOR_HELP,
    Reader,
    answer_calibrator,
    calibrator_named,
    multilabel_calibrator,
)
from dubito.cli.regression_commands import ValueOptions, fit_policy, value_groups
from dubito.errors import BadFileError, BadValueError

if TYPE_CHECKING:
    from dubito.data import Batch, Shards
    from dubito.decide import MultiLabelPolicy, OODGate, Policy
    from dubito.decide.multilabel.label_decisions import LabelEvidence
    from dubito.decide.policy.report import Evidence
    from dubito.outputs import BaseClassOutputs, ClassName

OF_FEATURES: dict[str, tuple[str, dict[str, bool]]] = {
    "mahalanobis": ("MahalanobisDistance", {}),
    "mahalanobis-normalized": ("MahalanobisDistance", {"normalize": True}),
    "mahalanobis-relative": ("MahalanobisDistance", {"relative": True}),
    "neighbors": ("NearestNeighborDistance", {}),
}
OF_OUTPUTS = ("least-confidence", "entropy", "generalized-entropy", "margin-uncertainty", "energy")
OOD_SCORES = (*OF_FEATURES, *OF_OUTPUTS)
OOD_ALPHA, RISK_DELTA = 0.01, 0.05
LABELS, VALUES = "Several labels per row", "Regression"  # panels of the help
MAX_GROUPS = 20  # of several labels per row, in the text


@with_columns(
    "id",
    group="Column of groups whose decisions are compared; rows of one group stay in one fold. With "
    "--scores, groups are partially pooled.",
)
def fit(
    file: Annotated[
        str,
        typer.Argument(
            help="Labeled predictions on held-out rows: a file, directory, glob or URL."
        ),
    ],
    options: ColumnOptions,
    reader: Reader,
    costs: Annotated[
        Path | None,
        typer.Option(
            help="Cost matrix: CSV (first header cell `action` or `truth`) or JSON. For several "
            "labels per row: CSV of label, false_positive, false_negative and review. For "
            "regression: CSV of error,cost (value - truth), interpolated linearly. Default: 0-1."
        ),
    ] = None,
    cost: Annotated[list[str] | None, typer.Option(help=CELL_HELP)] = None,
    reject_cost: Annotated[
        str | None,
        typer.Option(help="Cost of rejecting a row, i.e. of a human review; or an expression."),
    ] = None,
    reject_action: Annotated[
        str | None,
        typer.Option(
            help="The reject action in --costs or --cost, e.g. review; or a name for that of "
            "--reject-cost."
        ),
    ] = None,
    false_positive: Annotated[
        float | None,
        typer.Option(rich_help_panel=LABELS, help="Cost of a false positive. Default: 1."),
    ] = None,
    false_negative: Annotated[
        float | None,
        typer.Option(rich_help_panel=LABELS, help="Cost of a false negative. Default: 1."),
    ] = None,
    review: Annotated[
        float | None, typer.Option(rich_help_panel=LABELS, help="Cost of reviewing one label.")
    ] = None,
    review_row: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=LABELS, help="Cost of reviewing a row with all of its labels."
        ),
    ] = None,
    f_beta: Annotated[
        float | None,
        typer.Option(rich_help_panel=LABELS, help="Maximize F-beta instead, e.g. 1 for F1."),
    ] = None,
    average: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=LABELS,
            help="What --f-beta averages: macro, micro or samples. Default: macro.",
        ),
    ] = None,
    cost_under: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=VALUES,
            help="Cost per unit of deciding below the true value (newsvendor: underage, a lost "
            "sale).",
        ),
    ] = None,
    cost_over: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=VALUES,
            help="Cost per unit of deciding above the true value (newsvendor: overage, a "
            "leftover).",
        ),
    ] = None,
    cost_squared: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=VALUES,
            help="Cost of a squared error of 1, instead of costs per unit: decides for the mean.",
        ),
    ] = None,
    values: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=VALUES,
            help="The only values that may be decided, e.g. 0,12,24 for boxes of 12.",
        ),
    ] = None,
    review_cost: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=VALUES, help="Cost of a human review (assumed to be correct)."
        ),
    ] = None,
    max_width: Annotated[
        float | None,
        typer.Option(rich_help_panel=VALUES, help="Review rows whose interval is wider than this."),
    ] = None,
    max_relative_width: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=VALUES,
            help="Review rows whose interval is wider than this multiple of the prediction.",
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=VALUES, help="Coverage of the prediction intervals. Default: 0.9."
        ),
    ] = None,
    max_risk: Annotated[
        float | None,
        typer.Option(help="Upper bound on the error rate of the rows decided automatically."),
    ] = None,
    max_cost: Annotated[
        float | None,
        typer.Option(help="Upper bound on their mean cost, instead of --max-risk."),
    ] = None,
    deploy_prior: Annotated[
        Path | None, typer.Option(help="CSV of class,prior for the deployment population.")
    ] = None,
    risk_delta: Annotated[
        float | None,
        typer.Option(
            help="1 - confidence level of the --max-risk or --max-cost bound. Default: 0.05."
        ),
    ] = None,
    ood_alpha: Annotated[
        float | None,
        typer.Option(help="False positive rate of out-of-distribution detection. Default: 0.01."),
    ] = None,
    ood_score: Annotated[
        list[str] | None,
        typer.Option(
            help=f"Score of out-of-distribution detection: {', '.join(OOD_SCORES)}. Repeat it to "
            "combine several. Default: mahalanobis, with features."
        ),
    ] = None,
    calibrator: Annotated[str, typer.Option(help=CALIBRATOR_HELP)] = "auto",
    evaluate_on: Annotated[
        str | None,
        typer.Option(
            help="Labeled predictions of other rows to evaluate on, with the same columns. "
            "Default: cross-validation."
        ),
    ] = None,
    current_threshold: Annotated[
        float | None,
        typer.Option(
            help="Threshold on the raw P(positive class) in use today, as a baseline. Default: "
            "the most probable class."
        ),
    ] = None,
    current_action: Annotated[
        str | None, typer.Option(help="Column of the actions taken today, as a baseline.")
    ] = None,
    max_review_rate: Annotated[
        float | None, typer.Option(help="Warn if a larger fraction of rows is sent to review.")
    ] = None,
    rows_per_day: Annotated[
        float | None,
        typer.Option(help="Rows to decide per day: print what the policy saves per day."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Random seed.")] = 0,
    output: Annotated[Path, typer.Option("--output", "-o", help="Write the policy here.")] = Path(
        "policy.json"
    ),
    report: Annotated[
        Path | None, typer.Option(help="Write an HTML report on the policy, e.g. report.html.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the results as JSON.")] = False,
) -> None:
    """Fit a policy: a calibrator, costs, and a rule that sends uncertain rows to human review.

    Example: dubito fit dubito-demo/payments.csv --positive fraud --reject-cost .1

    Example: dubito fit predictions.csv --logits 'logit_*' --reject-cost 0.3

    Example: dubito fit answers.csv --scores judge --correct ok --reject-cost 0.2

    Example: dubito fit xrays.csv --multilabel 'p_*' --label 'y_*' --review 0.4

    Example: dubito fit sales.csv --quantiles 'q_*' --cost-under 4 --cost-over 1

    Example: dubito fit sales.csv --mean m --std s --cost-squared 1 --values 0,12
    """
    from dubito.cli.reading import require_output_paths
    from dubito.decide import OODGate, RiskBound

    others = (costs, deploy_prior, evaluate_on)
    inputs = [file, *(one for one in others if one is not None)]
    outcomes = {"--output": output, "--report": report}
    require_output_paths(outcomes, inputs, {"--report": (".html",)})
    _require_fraction("--max-risk", max_risk)
    _require_fraction("--risk-delta", risk_delta)
    _require_fraction("--current-threshold", current_threshold)
    _require_fraction("--max-review-rate", max_review_rate)
    by_label = LabelOptions(false_positive, false_negative, review, review_row, f_beta, average)
    by_value = ValueOptions(
        cost_under,
        cost_over,
        cost_squared,
        values,
        review_cost,
        max_width,
        max_relative_width,
        interval,
    )
    is_class = not (options.is_multilabel or options.is_regression)
    if not is_class:
        unsuited = {
            "--cost": cost, "--reject-cost": reject_cost, "--reject-action": reject_action,
            "--max-risk": max_risk, "--max-cost": max_cost, "--deploy-prior": deploy_prior,
            "--current-threshold": current_threshold, "--current-action": current_action,
            "--max-review-rate": max_review_rate, "--rows-per-day": rows_per_day,
            "--positive": options.positive, "--ood-score": ood_score, "--risk-delta": risk_delta,
        }  # fmt: skip
        if options.is_regression and reject_cost is not None:
            rule, fix = "cannot be used for a regression", f"Pass --review-cost {reject_cost}"
            raise BadValueError("", "--reject-cost", rule, f"{reject_cost}", fix)
        require_unused(
            unsuited, "with --multilabel" if options.is_multilabel else "for a regression"
        )
    if not options.is_multilabel:
        by_label.require_none()
    if not options.is_regression:
        by_value.require_none()
    settings: dict[str, Any] = {"random_state": seed}
    if options.is_multilabel:
        require_unused({"--features": options.features, "--ood-alpha": ood_alpha})
        settings |= {**by_label.read(costs), "calibrator": multilabel_calibrator(calibrator)}
        fitted = _fit_labels(file, options, reader, settings, evaluate_on)
        _write_results(*fitted, file, options, output, report, as_json)
        return
    if options.is_regression:
        settings |= by_value.read(costs)
        if review_cost is None:
            _require_unset("--features", options.features, "--review-cost 5")
            _require_unset("--ood-alpha", ood_alpha, "--review-cost 5")
        if ood_alpha is not None:
            settings["ood"] = OODGate(alpha=ood_alpha)
        fitted = fit_policy(file, options, reader, settings, calibrator, evaluate_on)
        _write_results(*fitted, file, options, output, report, as_json)
        return
    if rows_per_day is not None and not 0 < rows_per_day <= 1e15:
        rule, fix = "must be above 0 and at most 1e15", "Pass --rows-per-day 20000"
        raise BadValueError("", "--rows-per-day", rule, f"{rows_per_day:g}", fix)
    if current_threshold is not None and current_action is not None:
        rule, fix = "cannot be combined with --current-threshold", "Pass one of them"
        raise BadValueError("", "--current-action", rule, current_action, fix)
    is_bound = max_risk is not None or max_cost is not None
    if risk_delta is not None and not is_bound:
        rule, fix = "requires --max-risk or --max-cost", "Add --max-risk 0.05, or leave it out"
        raise BadValueError("", "--risk-delta", rule, f"{risk_delta:g} alone", fix)
    delta = RISK_DELTA if risk_delta is None else risk_delta
    if max_risk is not None and max_cost is not None:
        rule, fix = "cannot be combined with --max-risk", "Pass one of them"
        raise BadValueError("", "--max-cost", rule, f"{max_cost:g}", fix)
    given = CostOptions(costs, tuple(cost or ()), reject_cost, reject_action)
    if options.is_answers:
        _require_for_answers(options, given, current_threshold, ood_score, ood_alpha)
    if not given.can_reject:
        _require_unset("--max-risk", max_risk)
        _require_unset("--max-cost", max_cost)
        _require_unset("--max-review-rate", max_review_rate)
        _require_unset("--features", options.features)
        _require_unset("--ood-score", ood_score)
        _require_unset("--ood-alpha", ood_alpha)
    settings |= {
        "calibrator": (answer_calibrator if options.is_answers else calibrator_named)(calibrator),
        "risk": RiskBound(max_risk, delta, max_cost) if is_bound else None,
        "pos_label": options.positive,
        "current": "argmax" if current_threshold is None else current_threshold,
        "max_review_rate": max_review_rate,
    }
    policy, evidence, rows = _fit_classes(
        file,
        options,
        reader,
        given,
        settings,
        deploy_prior=deploy_prior,
        ood=(ood_score, ood_alpha),
        evaluate_on=evaluate_on,
        current_action=current_action,
        has_ids=report is not None,
    )
    if rows_per_day is not None:
        figures = policy.report
        notes = (*figures.notes, figures.saved_per_day(rows_per_day))
        policy = replace(policy, report=replace(figures, notes=notes))
    _write_results(policy, evidence, rows, file, options, output, report, as_json)


def _fit_classes(
    file: str,
    options: ColumnOptions,
    reader: Reader,
    costs: CostOptions,
    settings: dict[str, Any],
    *,
    deploy_prior: Path | None,
    ood: tuple[list[str] | None, float | None],
    evaluate_on: str | None,
    current_action: str | None,
    has_ids: bool,
) -> tuple[Policy, Evidence, Shards]:
    """Fit a policy of classes; return it, its held-out rows, and all rows."""
    from dubito.cli.ahead import compile_ahead
    from dubito.cli.printing import passes, say_note
    from dubito.decide import Policy
    from dubito.decide.policy.fit import as_decidable

    is_answers = options.is_answers
    [predictions] = options.open(
        file,
        has_features=costs.can_reject and not is_answers,
        row_costs=costs.expressions,
        as_scores=True,
    )
    if current_action is not None:
        columns = replace(predictions.columns, current_action=current_action)
        predictions = predictions._replace(columns=columns)
    if has_ids and "id" in predictions.source.schema.names:
        predictions = predictions._replace(columns=replace(predictions.columns, id="id"))
    with passes():
        rows = reader.rows(predictions)
        first = next(rows.batches())
        outputs = as_decidable(first.outputs, "dubito fit")
        require_positive(options.positive, outputs, file)
        note_single_class(rows, file, is_error=True)
        if is_answers:
            note_scores(rows, file)
        compile_ahead(outputs, ends_with_audit=True)
        table = costs.read(outputs)
        if (hint := review_hint(table)) is not None:
            say_note(hint)
        with reader.held_out(predictions, evaluate_on) as others:
            policy, evidence = Policy.fit_shards(
                rows,
                costs=table,
                deploy_prior=None if deploy_prior is None else _read_prior(deploy_prior, outputs),
                ood=_ood_gate(*ood, first),
                evaluate_on=others,
                **settings,
            )
    policy.provenance["columns"] = output_columns(predictions.columns)
    return policy, evidence, rows


def _require_for_answers(
    options: ColumnOptions,
    costs: CostOptions,
    current_threshold: float | None,
    ood_score: list[str] | None,
    ood_alpha: float | None,
) -> None:
    """Raise for options that make no sense for scores of answers, or if nothing is to decide."""
    unsuited = {
        "--features": options.features, "--ood-score": ood_score, "--ood-alpha": ood_alpha,
        "--positive": options.positive, "--classes": options.classes,
    }  # fmt: skip
    require_unused(unsuited, "with --confidence or --scores")
    if current_threshold is not None and options.confidence is None:
        rule, fix = "requires --confidence, which it is a threshold on", "Leave it out"
        raise BadValueError("", "--current-threshold", rule, f"{current_threshold:g}", fix)
    if not (costs.can_reject or costs.is_given):
        rule, got = "decides which answers to reject", "no cost of rejecting one"
        fix = "Add --reject-cost 0.2 (a wrong answer costs 1)"
        raise BadValueError("", "dubito fit with --confidence or --scores", rule, got, fix)


def _fit_labels(
    file: str,
    options: ColumnOptions,
    reader: Reader,
    settings: dict[str, Any],
    evaluate_on: str | None,
) -> tuple[MultiLabelPolicy, LabelEvidence, Shards]:
    """Fit a policy for several labels per row; return it, its held-out rows, and all rows."""
    from dubito.cli.printing import passes
    from dubito.decide import MultiLabelPolicy

    [predictions] = options.open(file)
    with passes():
        rows = reader.rows(predictions)
        with reader.held_out(predictions, evaluate_on) as others:
            policy, evidence = MultiLabelPolicy.fit_shards(rows, evaluate_on=others, **settings)
    policy.provenance["columns"] = output_columns(predictions.columns)
    return policy, evidence, rows


def _write_results(
    policy: Any,
    evidence: Any,
    rows: Shards,
    file: str,
    options: ColumnOptions,
    output: Path,
    report: Path | None,
    as_json: bool,
) -> None:
    """Save a policy, and print its results and what to do next."""
    from dubito.cli.printing import passes, say, say_rearranged
    from dubito.cli.reading import count_rearranged

    with passes():
        _save(policy, evidence, rows, file, output, report)
        n_rearranged = count_rearranged(rows) if options.rearrange else 0
    _say_results(policy, evidence, output, as_json, n_rearranged if options.rearrange else None)
    if as_json:
        return
    say_rearranged(n_rearranged)
    if options.group is not None:
        is_class = not (options.is_multilabel or options.is_regression)
        by_group = value_groups if options.is_regression else _label_groups
        say(_compared_groups(policy, evidence) if is_class else by_group(policy, evidence))
    _say_next(file, replace(options, uncertain=None), output, report)


def _label_groups(policy: MultiLabelPolicy, evidence: LabelEvidence) -> str:
    """Return costs and reviews of each group, by the held-out decisions of a policy."""
    from dubito.decide import MultiLabelPolicyReport
    from dubito.formatting import align_table, decimal, percent, printable

    unit = "cost" if policy.f_beta is None else "errors"
    rows = [("group", "rows", unit, "95 % interval", "expected", "review row", "review labels")]
    parts = evidence.by_group()
    for name, part in list(parts.items())[:MAX_GROUPS]:
        one = MultiLabelPolicyReport.of(part, policy.rule)
        between = f"{decimal(one.cost.low)} to {decimal(one.cost.high)}"
        costs = (decimal(one.cost.value), between, decimal(one.expected_cost))
        reviews = (percent(one.row_review_rate.value), percent(one.label_review_rate))
        rows.append((printable(name)[:20], f"{one.n_rows:,}", *costs, *reviews))
    has = (
        *(True,) * 5, policy.costs.review_row is not None, policy.costs.review is not None
    )  # fmt: skip
    lines = align_table([tuple(compress(row, has)) for row in rows])
    more = [f"and {len(parts) - MAX_GROUPS} more groups"] if len(parts) > MAX_GROUPS else []
    return "\n".join(
        [
            "",
            f"Held-out decisions by group, {unit} per row:",
            *(f"  {line}" for line in lines + more),
        ]
    )


def _save(
    policy: Any, evidence: Any, rows: Shards, file: str, output: Path, report: Path | None
) -> None:
    """Write a policy, and a report on it if one is wanted."""
    from dubito.cli.printing import typed

    page = None
    if report is not None:
        from dubito.report import Report

        title = f"Policy for {PurePath(file).name}"
        page = Report.of(rows, policy=policy, evidence=evidence, title=title, command=typed())
    policy.save(output)
    if page is not None and report is not None:
        page.save(report)


def _say_results(
    policy: Any, evidence: Any, output: Path, as_json: bool, n_rearranged: int | None = None
) -> None:
    """Print the report of a policy, without the notes that were printed as warnings."""
    from dubito.cli.printing import say, say_json

    if as_json:
        results = {"report": policy.report.to_dict(), "provenance": policy.provenance}
        results |= {} if n_rearranged is None else {"rearranged": n_rearranged}
        say_json({**results, "output": str(output)})
        return
    untold = tuple(one for one in policy.report.notes if one not in evidence.warnings)
    say(str(replace(policy, report=replace(policy.report, notes=untold))))


def _say_next(file: str, options: ColumnOptions, output: Path, report: Path | None) -> None:
    """Print where the results are, and the command that decides new rows."""
    from dubito.cli.printing import say

    written = f"{output}" if report is None else f"{output}, and the report to {report}"
    say(f"\nWritten to {written}. Next:")
    shown = replace(options, label=None, weight=None, group=None, correct=None)  # for `decide`
    words = f"dubito decide {output} NEW{PurePath(file).suffix} {shown}".rstrip()
    say(f"  {words} -o decisions.parquet")


def _compared_groups(policy: Policy, evidence: Evidence) -> str:
    """Return the figures of groups, by the held-out decisions of a policy."""
    from dubito.data.shards import ArrayShards
    from dubito.measure import Audit
    from dubito.measure.text import group_lines
    from dubito.outputs import Scores

    calibrated = evidence.decisions.calibrated
    rows = replace(evidence.batch, outputs=calibrated, weight=evidence.weight)
    if isinstance(scores := evidence.batch.outputs, Scores):
        rows = replace(rows, groups=scores.groups)
    positive = policy.classes[policy.pos_column] if len(policy.classes) == 2 else None
    audit = Audit.of(ArrayShards(rows), n_resamples=0, pos_label=positive, costs=policy.costs)
    assert audit.group_comparison is not None
    return "\n".join(["", *group_lines(audit, audit.group_comparison)])


def _require_fraction(option: str, value: float | None) -> None:
    """Raise unless a value is between 0 and 1."""
    if value is not None and not 0 <= value <= 1:
        percentage = value / 100 if 1 < value <= 100 else 0.05
        rule, fix = "must be between 0 and 1", f"Pass {option} {percentage:g}"
        raise BadValueError("", option, rule, f"{value:g}", fix)


def _require_unset(option: str, value: object, remedy: str = "--reject-cost 0.3") -> None:
    """Raise if an option that rejects rows is given without a reject action."""
    if value is not None:
        rule, fix = "requires a reject action", f"Add {remedy}"
        raise BadValueError("", option, rule, f"{value} without one", fix)


def _ood_gate(names: list[str] | None, alpha: float | None, first: Batch) -> OODGate | None:
    """Return the gate of the scores with these names; without any, a distance on features."""
    from dubito import doubt
    from dubito.decide import OODGate
    from dubito.outputs import Logits

    if not names and first.features is None:
        if alpha is None:
            return None
        rule, fix = "requires features or --ood-score", "Add --features 'x_*', or leave it out"
        raise BadValueError("", "--ood-alpha", rule, f"{alpha:g} alone", fix)
    alpha = OOD_ALPHA if alpha is None else alpha
    if not names:
        return OODGate(alpha=alpha)
    for name in names:
        rule, fix = f"must be one of {', '.join(OOD_SCORES)}", "Pass --ood-score entropy"
        if name in OF_FEATURES and first.features is None:
            rule, fix = "requires features", "Pass --features 'feature_*', or --ood-score entropy"
        elif name == "energy" and not isinstance(first.outputs, Logits):
            rule, fix = "requires logits", "Pass --logits 'logit_*', or --ood-score entropy"
        elif name in OOD_SCORES:
            continue
        raise BadValueError("", "--ood-score", rule, name, fix)
    scores = [
        getattr(doubt, OF_FEATURES[name][0])(**OF_FEATURES[name][1])
        if name in OF_FEATURES
        else name.replace("-", "_")
        for name in names
    ]
    return OODGate(scores if len(scores) > 1 else scores[0], alpha)


def _read_prior(path: Path, outputs: BaseClassOutputs) -> dict[ClassName, float]:
    """Return the prior of each class from lines of `class,prior`; a header line is optional."""
    import csv

    from dubito.data.labels import names_of
    from dubito.serialization.documents import read_text

    fix = "Write one line per class, such as cat,0.25"
    try:
        lines = [line for line in csv.reader(read_text(path).splitlines()) if line]
    except csv.Error as error:
        raise BadFileError(str(path), f"it is not a CSV file ({error})", fix) from error
    known = {str(name): name for name in names_of(outputs)}
    rows = lines[1:] if lines and lines[0][0].strip() not in known else lines
    try:
        prior = {known[name.strip()]: float(value) for name, value in rows}
    except (KeyError, ValueError) as error:
        problem = f"each line must be a class and its prior, for the classes {', '.join(known)}"
        raise BadFileError(str(path), problem, fix) from error
    if len(prior) != len(rows):
        raise BadFileError(str(path), "a class occurs twice", fix)
    missing = [name for name in known if known[name] not in prior]
    if missing:
        problem = f"it has no prior for {', '.join(missing)}"
        raise BadFileError(str(path), problem, "Add one line per class, such as cat,0.25")
    return prior
