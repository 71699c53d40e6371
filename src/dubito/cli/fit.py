"""`dubito fit FILE`: a policy from predictions and costs."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, final

from dubito.cli.ahead import compile_ahead
from dubito.cli.columns import REGRESSION, ColumnOptions, output_columns
from dubito.cli.cost_options import (
    CostOptions,
    LabelOptions,
    ValueOptions,
    require_unused,
    review_hint,
)
from dubito.cli.options import OptionGroup, command, flag
from dubito.cli.printing import passes, say, say_json, say_note, say_rearranged, typed
from dubito.cli.reading import Reader, check_rows, count_rearranged, require_output_paths
from dubito.errors import BadFileError, BadValueError

if TYPE_CHECKING:
    from collections.abc import Callable

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
ANY_KIND = ("costs", "ood_alpha", "calibrator", "evaluate_on", "seed")
ROLES = (*REGRESSION, "std", "levels")  # of a regression
MAX_GROUPS = 20  # of several labels per row, in the text


@final
@dataclass(frozen=True, slots=True)
class FitOptions(OptionGroup):
    """How a policy is fitted: its costs, limits and calibrator; None for what was not given.

    Options
    -------
    costs
        Cost matrix: CSV (first header cell `action` or `truth`) or JSON. For several labels per
        row: CSV of label, false_positive, false_negative and review. For regression: CSV of
        error,cost (value - truth), interpolated linearly. Default: 0-1.
    reject_cost
        Cost of rejecting a row, i.e. of a human review; or an expression.
    reject_action
        The reject action in --costs or --cost, e.g. review; or a name for that of
        --reject-cost.
    max_risk
        Upper bound on the error rate of the rows decided automatically.
    max_cost
        Upper bound on the mean cost of these rows, instead of --max-risk.
    deploy_prior
        CSV of class,prior for the deployment population.
    risk_delta
        1 - confidence level of the --max-risk or --max-cost bound. Default: 0.05.
    ood_alpha
        False positive rate of out-of-distribution detection. Default: 0.01.
    ood_score
        Score of out-of-distribution detection: mahalanobis, mahalanobis-normalized,
        mahalanobis-relative, neighbors, least-confidence, entropy, generalized-entropy,
        margin-uncertainty, energy. Repeat it to combine several. Default: mahalanobis, with
        features.
    evaluate_on
        Labeled predictions of other rows to evaluate on, with the same columns. Default:
        cross-validation.
    current_threshold
        Threshold on the uncalibrated P(positive class) in use today, as a baseline. Default: the
        most probable class.
    current_action
        Column of the actions taken today, as a baseline.
    max_review_rate
        Warn if a larger fraction of rows is sent to review.
    rows_per_day
        Rows to decide per day: print what the policy saves per day.
    """

    costs: Path | None = None
    cost: list[str] | None = None
    reject_cost: str | None = None
    reject_action: str | None = None
    max_risk: float | None = None
    max_cost: float | None = None
    deploy_prior: Path | None = None
    risk_delta: float | None = None
    ood_alpha: float | None = None
    ood_score: list[str] | None = None
    calibrator: str = "auto"
    evaluate_on: str | None = None
    current_threshold: float | None = None
    current_action: str | None = None
    max_review_rate: float | None = None
    rows_per_day: float | None = None
    seed: int = 0

    @property
    def inputs(self) -> list[str | Path]:
        """The files that are read besides the predictions."""
        files = (self.costs, self.deploy_prior, self.evaluate_on)
        return [one for one in files if one is not None]

    @property
    def cost_options(self) -> CostOptions:
        """The costs of classes."""
        return CostOptions(self.costs, tuple(self.cost or ()), self.reject_cost, self.reject_action)

    @property
    def for_classes(self) -> dict[str, Any]:
        """The options that were given and have a meaning for classes only, as they are typed."""
        return {flag(name): one for name, one in self.given.items() if name not in ANY_KIND}

    def require_valid(self) -> None:
        """Raise for values out of range, and for options that exclude each other."""
        for name in ("max_risk", "risk_delta", "current_threshold", "max_review_rate"):
            value = self.given.get(name, 0)
            if not 0 <= value <= 1:
                fix = f"Pass {flag(name)} {value / 100 if 1 < value <= 100 else 0.05:g}"
                raise BadValueError("", flag(name), "must be between 0 and 1", f"{value:g}", fix)
        if self.rows_per_day is not None and not 0 < self.rows_per_day <= 1e15:
            rule, fix = "must be above 0 and at most 1e15", "Pass --rows-per-day 20000"
            raise BadValueError("", "--rows-per-day", rule, f"{self.rows_per_day:g}", fix)
        if self.risk_delta is not None and self.max_risk is self.max_cost is None:
            rule, fix = "requires --max-risk or --max-cost", "Add --max-risk 0.05, or leave it out"
            raise BadValueError("", "--risk-delta", rule, f"{self.risk_delta:g} alone", fix)
        for one, other in (("current_threshold", "current_action"), ("max_risk", "max_cost")):
            if {one, other} <= self.given.keys():
                rule, got = f"cannot be combined with {flag(one)}", self.given[other]
                got = got if isinstance(got, str) else f"{got:g}"
                raise BadValueError("", flag(other), rule, got, "Pass one of them")


@command("id")
def fit(
    file: str,
    *,
    options: ColumnOptions,
    wanted: FitOptions,
    by_label: LabelOptions,
    by_value: ValueOptions,
    output: Path = Path("policy.json"),
    report: Path | None = None,
    reader: Reader,
) -> None:
    """Fit a policy: a calibrator, costs, and a rule that sends uncertain rows to human review.

    Example: dubito fit dubito-demo/payments.csv --positive fraud --reject-cost .1

    Example: dubito fit predictions.csv --logits 'logit_*' --reject-cost 0.3

    Example: dubito fit answers.csv --scores judge --correct ok --reject-cost 0.2

    Example: dubito fit xrays.csv --multilabel 'p_*' --label 'y_*' --review-row 1

    Example: dubito fit sales.csv --quantiles 'q_*' --cost-under 4 --cost-over 1

    Example: dubito fit sales.csv --mean m --std s --cost-squared 1 --values 0,12

    Options
    -------
    group
        Column of groups whose decisions are compared; rows of one group stay in one fold. With
        --scores, groups are partially pooled.
    file
        Labeled predictions on held-out rows: a file, directory, glob or URL.
    output
        Write the policy here.
    report
        Write an HTML report on the policy, e.g. report.html.
    """
    outcomes = {"--output": output, "--report": report}
    require_output_paths(outcomes, [file, *wanted.inputs], {"--report": (".html",)})
    if options.is_multilabel or options.is_regression:
        kind, cost = "for a regression", wanted.reject_cost
        fix = f"Pass --review-cost {cost}"
        if options.is_multilabel:
            kind = "with --multilabel"
            fix = f"Pass --review-label {cost} (per label) or --review-row {cost} (per row)"
        if cost is not None:
            raise BadValueError("", "--reject-cost", f"cannot be used {kind}", cost, fix)
        require_unused({**wanted.for_classes, "--positive": options.positive}, kind)
    wanted.require_valid()
    if not options.is_multilabel:
        by_label.require_none("--multilabel", "--multilabel 'p_*'")
    if not options.is_regression:
        by_value.require_none("a regression", "--quantiles 'q_*'")
    policy: Any
    evidence: Any
    if options.is_multilabel:
        policy, evidence, rows = _fit_labels(file, options, reader, wanted, by_label)
    elif options.is_regression:
        policy, evidence, rows = _fit_values(file, options, reader, wanted, by_value)
    else:
        policy, evidence, rows = _fit_classes(file, options, reader, wanted, report is not None)
    with passes():
        _save(policy, evidence, rows, file, output, report)
        n_rearranged = count_rearranged(rows) if options.rearrange else 0
    results = {"report": policy.report.to_dict(), "provenance": policy.provenance}
    results |= {"rearranged": n_rearranged} if options.rearrange else {}
    if say_json({**results, "output": str(output)}):
        return
    # Without the notes that were printed as warnings.
    notes = tuple(one for one in policy.report.notes if one not in evidence.warnings)
    say(str(replace(policy, report=replace(policy.report, notes=notes))))
    say_rearranged(n_rearranged)
    if options.group is not None:
        is_class = not (options.is_multilabel or options.is_regression)
        say((_compared_groups if is_class else _groups_table)(policy, evidence))
    written = f"{output}" if report is None else f"{output}, and the report to {report}"
    say(f"\nWritten to {written}. Next:")
    options.say_next(f"decide {output}", file, "decisions.parquet")


def _fit_classes(
    file: str, options: ColumnOptions, reader: Reader, wanted: FitOptions, has_ids: bool
) -> tuple[Policy, Evidence, Shards]:
    """Fit a policy of classes; return it, its held-out rows, and all rows."""
    from dubito.cli.calibrators import answer_calibrator, calibrator_named
    from dubito.decide import Policy, RiskBound
    from dubito.decide.policy.fit import as_decidable

    costs, is_answers = wanted.cost_options, options.is_answers
    if is_answers:
        _require_for_answers(options, costs, wanted)
    if not costs.can_reject:
        needing = ("max_risk", "max_cost", "max_review_rate", "ood_score", "ood_alpha")
        unset = {flag(name): getattr(wanted, name) for name in needing}
        _require_unset({**unset, "--features": options.features})
    settings: dict[str, Any] = {
        "calibrator": (answer_calibrator if is_answers else calibrator_named)(wanted.calibrator),
        "risk": None,
        "pos_label": options.positive,
        "current": "argmax" if wanted.current_threshold is None else wanted.current_threshold,
        "deploy_prior": None,
        "max_review_rate": wanted.max_review_rate,
        "random_state": wanted.seed,
    }
    if not wanted.max_risk is wanted.max_cost is None:
        delta = RISK_DELTA if wanted.risk_delta is None else wanted.risk_delta
        settings["risk"] = RiskBound(wanted.max_risk, delta, wanted.max_cost)
    [predictions] = options.open(
        file,
        has_features=costs.can_reject and not is_answers,
        row_costs=costs.expressions,
        as_scores=True,
    )
    columns = replace(predictions.columns, current_action=wanted.current_action)
    if has_ids and "id" in predictions.source.schema.names:
        columns = replace(columns, id="id")
    predictions = predictions._replace(columns=columns)
    with passes():
        rows = reader.rows(predictions)
        first = next(rows.batches())
        outputs = as_decidable(first.outputs, "dubito fit")
        check_rows(rows, file, options, is_single_error=True)
        compile_ahead(outputs, ends_with_audit=True)
        settings["costs"] = costs.read(outputs)
        if (hint := review_hint(settings["costs"])) is not None:
            say_note(hint)
        if wanted.deploy_prior is not None:
            settings["deploy_prior"] = _read_prior(wanted.deploy_prior, outputs)
        settings["ood"] = _ood_gate(wanted.ood_score, wanted.ood_alpha, first)
        with reader.held_out(predictions, wanted.evaluate_on) as others:
            policy, evidence = Policy.fit_shards(rows, evaluate_on=others, **settings)
    policy.provenance["columns"] = output_columns(predictions.columns)
    if wanted.rows_per_day is not None:
        figures = policy.report
        notes = (*figures.notes, figures.saved_per_day(wanted.rows_per_day))
        policy = replace(policy, report=replace(figures, notes=notes))
    return policy, evidence, rows


def _require_for_answers(options: ColumnOptions, costs: CostOptions, wanted: FitOptions) -> None:
    """Raise for options that make no sense for scores of answers, or if nothing is to decide."""
    unsuited = {
        "--features": options.features, "--ood-score": wanted.ood_score,
        "--ood-alpha": wanted.ood_alpha, "--positive": options.positive,
        "--classes": options.classes,
    }  # fmt: skip
    require_unused(unsuited, "with --confidence or --scores")
    if wanted.current_threshold is not None and options.confidence is None:
        rule, fix = "requires --confidence, which it is a threshold on", "Leave it out"
        got = f"{wanted.current_threshold:g}"
        raise BadValueError("", "--current-threshold", rule, got, fix)
    if not (costs.can_reject or costs.is_given):
        rule, got = "decides which answers to reject", "no cost of rejecting one"
        fix = "Add --reject-cost 0.2 (a wrong answer costs 1)"
        raise BadValueError("", "dubito fit with --confidence or --scores", rule, got, fix)


def _fit_labels(
    file: str, options: ColumnOptions, reader: Reader, wanted: FitOptions, own: LabelOptions
) -> tuple[MultiLabelPolicy, LabelEvidence, Shards]:
    """Fit a policy for several labels per row; return it, its held-out rows, and all rows."""
    from dubito.cli.calibrators import multilabel_calibrator
    from dubito.decide import MultiLabelPolicy
    from dubito.decide.multilabel.label_costs import COLUMNS

    require_unused({"--features": options.features, "--ood-alpha": wanted.ood_alpha})
    settings: dict[str, Any] = {**own.read(wanted.costs), "random_state": wanted.seed}
    settings["calibrator"] = multilabel_calibrator(wanted.calibrator)
    [predictions] = options.open(file)
    with passes():
        rows = reader.rows(predictions)
        try:
            with reader.held_out(predictions, wanted.evaluate_on) as others:
                policy, evidence = MultiLabelPolicy.fit_shards(rows, evaluate_on=others, **settings)
        except BadValueError as error:
            if wanted.costs is None or error.argument not in COLUMNS:
                raise
            raise error.moved(argument="", caller=f"--costs {wanted.costs}") from error
    policy.provenance["columns"] = output_columns(predictions.columns)
    return policy, evidence, rows


def _fit_values(
    file: str, options: ColumnOptions, reader: Reader, wanted: FitOptions, own: ValueOptions
) -> tuple[Any, Any, Shards]:
    """Fit the policy of a regression; return it, its held-out rows, and all rows."""
    from dubito.cli.calibrators import regression_calibrators
    from dubito.decide import OODGate, RegressionPolicy
    from dubito.measure.regression import moment_matched_shards
    from dubito.measure.regression_audit import interval_levels

    settings = {**own.read(wanted.costs), "random_state": wanted.seed}
    if own.review_cost is None:
        unset = {"--features": options.features, "--ood-alpha": wanted.ood_alpha}
        _require_unset(unset, "--review-cost 5")
    if wanted.ood_alpha is not None:
        settings["ood"] = OODGate(alpha=wanted.ood_alpha)
    [predictions] = options.open(file, has_features=own.review_cost is not None)
    with passes():
        rows = reader.rows(predictions)
        if wanted.calibrator != "auto":
            settings["calibrator"] = None
            if wanted.calibrator != "none":
                outputs = next(moment_matched_shards(rows).batches()).outputs
                [settings["calibrator"]] = regression_calibrators(wanted.calibrator, outputs)
        try:
            with reader.held_out(predictions, wanted.evaluate_on) as others:
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


def _groups_table(policy: Any, evidence: Any) -> str:
    """Return costs and reviews of each group, by the held-out decisions of a policy."""
    from dubito.decide import MultiLabelPolicy
    from dubito.formatting import align_table, decimal, percent, printable

    unit = "cost"
    rates: dict[str, Callable[[Any], float]] = {}
    if not isinstance(policy, MultiLabelPolicy):
        rates["coverage"] = lambda one: one.coverage.value
        rates["reviewed"] = lambda one: one.review_rate.value
    else:
        unit = "cost" if policy.f_beta is None else "errors"
        if policy.costs.review_row is not None:
            rates["review row"] = lambda one: one.row_review_rate.value
        if policy.costs.review is not None:
            rates["review labels"] = lambda one: one.label_review_rate
    table = [("group", "rows", unit, "95 % interval", "expected", *rates)]
    parts = evidence.by_group()
    for name, part in list(parts.items())[:MAX_GROUPS]:
        one = policy.report_on(part)
        between = f"{decimal(one.cost.low)} to {decimal(one.cost.high)}"
        cells = (decimal(one.cost.value), between, decimal(one.expected_cost))
        shown = (percent(rate(one)) for rate in rates.values())
        table.append((printable(name)[:20], f"{one.n_rows:,}", *cells, *shown))
    lines = align_table(table)
    lines += [f"and {len(parts) - MAX_GROUPS} more groups"] if len(parts) > MAX_GROUPS else []
    title = f"Held-out decisions by group, {unit} per row:"
    return "\n".join(["", title, *(f"  {line}" for line in lines)])


def _save(
    policy: Any, evidence: Any, rows: Shards, file: str, output: Path, report: Path | None
) -> None:
    """Write a policy, and a report on it if one is wanted."""
    if report is None:
        policy.save(output)
        return
    from dubito.report import Report

    title = f"Policy for {PurePath(file).name}"
    page = Report.of(rows, policy=policy, evidence=evidence, title=title, command=typed())
    policy.save(output)
    page.save(report)


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


def _require_unset(options: dict[str, Any], remedy: str = "--reject-cost 0.3") -> None:
    """Raise if an option that rejects rows is given without a reject action."""
    for option, value in options.items():
        if value is not None:
            rule, fix = "requires a reject action", f"Add {remedy}"
            got = ", ".join(value) if isinstance(value, list) else f"{value}"
            raise BadValueError("", option, rule, f"{got} without one", fix)


def _ood_gate(names: list[str] | None, alpha: float | None, first: Batch) -> OODGate | None:
    """Return the gate of the scores with these names; without any, a distance on features."""
    from dubito import doubt
    from dubito.decide import OODGate
    from dubito.outputs import Logits

    if not names and first.features is None:
        if alpha is None:
            return None
        rule = "requires features or --ood-score"
        fix = "Add --features 'x_*' or --ood-score entropy, or leave it out"
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
    scores: list[Any] = []
    for name in names:
        kind, settings = OF_FEATURES.get(name, ("", {}))
        scores.append(getattr(doubt, kind)(**settings) if kind else name.replace("-", "_"))
    return OODGate(scores if len(scores) > 1 else scores[0], alpha)


def _read_prior(path: Path, outputs: BaseClassOutputs) -> dict[ClassName, float]:
    """Return the prior of each class from lines of `class,prior`; a header line is optional."""
    import csv

    from dubito.data.labels import names_of
    from dubito.serialization.documents import read_text

    fix = "Write one line per class, such as cat,0.25"
    if not path.exists():
        remedy = "Pass a CSV with one line per class, such as cat,0.25"
        raise BadValueError("", f"--deploy-prior {path}:", "there is no such file", "", remedy)
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
