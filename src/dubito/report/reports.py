"""`make_report`: from a model's outputs to one HTML file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple, final

from markupsafe import Markup

from dubito.arrays import draw_seed
from dubito.calibrate import BaseCalibrator
from dubito.calibrate.calibrator import drop_unlabeled
from dubito.calibrate.held_out_answers import HeldOutAnswers
from dubito.data.batch import Batch, make_batch, require_labels
from dubito.data.shards import ArrayShards, Shards, sample_rows
from dubito.data.sink import write_atomic
from dubito.decide import CostMatrix, MultiLabelPolicy, Policy, RegressionPolicy
from dubito.decide.costs import as_costs
from dubito.decide.multilabel.label_decisions import LabelEvidence
from dubito.decide.policy.loading import AnyPolicy
from dubito.decide.policy.report import Evidence
from dubito.decide.regression.value_decisions import ValueEvidence
from dubito.errors import BadTypeError, BadValueError
from dubito.measure import Audit, MultiLabelAudit, RegressionAudit
from dubito.measure.regression import moment_matched_shards
from dubito.outputs import (
    BaseOutputs,
    MultiLabel,
    Normal,
    Quantiles,
    RegressionMembers,
    Samples,
    Scores,
)
from dubito.report.content import Section, Verdict, render
from dubito.report.regression_summary import RegressionSummary
from dubito.report.sections.abstention import decisions_section, review_section, uncertainty_section
from dubito.report.sections.answers import answers_sections, answers_verdict
from dubito.report.sections.calibration import (
    calibrators_section,
    groups_section,
    metrics_section,
    reliability_section,
)
from dubito.report.sections.inspection import inspection_section, provenance_section
from dubito.report.sections.labels import (
    label_decisions_section,
    label_policy_verdict,
    labels_sections,
    labels_verdict,
)
from dubito.report.sections.positive_class import positive_class_section, thresholds_section
from dubito.report.sections.prediction_intervals import (
    regression_sections,
    regression_verdict,
    value_decisions_section,
    value_policy_verdict,
)
from dubito.report.summary import MAX_ROWS_MEASURED, REPORTED, Provenance, Summary
from dubito.report.verdict import classifier_verdict

CALLER = "make_report"
TITLE = "Confidence report"
INTERVALS = ("Intervals", "Poisson bootstrap, 95 %, percentiles")


@final
@dataclass(frozen=True, slots=True)
class Report:
    """One self-contained HTML page.

    Made by `make_report`, `comparison_report` and `drift_report`. A notebook shows it in a frame;
    `print(report)` prints the verdict.

    Parameters
    ----------
    title : str
        The title of the page.
    verdict : str
        The conclusion as text.
    html : str
        The page.

    Examples
    --------
    >>> from dubito.report import make_report
    >>> report = make_report([0, 1] * 10, [[0.8, 0.2], [0.3, 0.7]] * 10)
    >>> report.html.startswith("<!doctype html>")
    True
    """

    title: str
    verdict: str
    html: str

    @classmethod
    def of(
        cls,
        shards: Shards,
        *,
        calibration: Any = None,
        ood: Any = None,
        costs: CostMatrix | None = None,
        policy: AnyPolicy | None = None,
        evidence: Evidence | LabelEvidence | ValueEvidence | None = None,
        title: str | None = None,
        command: str | None = None,
        audit: Audit | MultiLabelAudit | RegressionAudit | None = None,
        random_state: Any = 0,
    ) -> Report:
        """Return a report on shards of rows.

        The verdict is based on all rows, everything else on a random sample of 40,000 rows if there
        are more, which the page states.

        Parameters
        ----------
        shards : Shards
            Rows with outputs and labels, such as `dubito.data.scan("rows.parquet", columns)`.
        evidence : Evidence, LabelEvidence or ValueEvidence, optional
            The rows that the fit of the policy held out, and its decisions, from
            `fit_shards`: the report is about them, with the figures of `policy.report`.
        audit : Audit, MultiLabelAudit or RegressionAudit, optional
            The audit of the same rows, if there is one already.
        calibration : pair (y, outputs) or fitted calibrator, optional
            Other rows to fit the calibrator on; by default it is cross-fitted on the rows
            themselves.
        ood : outputs or Batch, optional
            Outputs of out-of-distribution rows, or a `Batch` of them with features.
        costs : CostMatrix, optional
            Costs of actions; by default an error costs 1 and a review 0.1.
        policy : Policy, MultiLabelPolicy or RegressionPolicy, optional
            A fitted policy, whose calibrator and costs are used, compared with other decision
            rules.
        title, command : str, optional
            The title of the page, and the command that reproduces it.
        random_state : None, int or RandomState, default 0
            For sampling, folds and bootstrap intervals.

        Returns
        -------
        Report
        """
        title = TITLE if title is None else title
        seed = draw_seed(random_state, CALLER)
        if costs is not None:
            as_costs(costs, "costs", CALLER)
        outputs: BaseOutputs = next(shards.batches()).outputs
        if isinstance(outputs, RegressionMembers):
            if not isinstance(audit, RegressionAudit):
                audit = RegressionAudit.of(shards)
            shards = moment_matched_shards(shards)
            outputs = outputs.normal
        if policy is not None:
            _require_policy(policy, outputs)
            rule = "must be None with a policy, which has its own"
            _require_none(rule, costs=costs, calibration=calibration)
        page = _Page(title, command, seed, shards, policy, evidence)
        if isinstance(outputs, MultiLabel | Scores):
            has_scores = isinstance(outputs, Scores)
            kind = "scores of answers" if has_scores else "several labels per row"
            rule = f"must be None for {kind}"
            _require_none(rule, costs=costs, ood=ood, calibration=calibration)
            return page.of_answers() if has_scores else page.of_labels(audit)
        is_regression = isinstance(outputs, Normal | Samples | Quantiles)
        others = _as_calibration(calibration, is_regression)
        if is_regression:
            _require_none("must be None for a regression", costs=costs, ood=ood)
            return page.of_regression(others, audit if isinstance(audit, RegressionAudit) else None)
        if not (ood is None or isinstance(ood, Batch)):
            ood = make_batch(None, ood, caller=CALLER)
        assert policy is None or isinstance(policy, Policy)
        assert evidence is None or isinstance(evidence, Evidence)
        summary = Summary.of(
            shards,
            calibration=others,
            ood=ood,
            costs=costs,
            policy=policy,
            evidence=evidence,
            command=command,
            audit=audit if isinstance(audit, Audit) else None,
            seed=seed,
        )
        return _classifier_report(summary, title)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page to an HTML file, atomically, and return its path.

        Parameters
        ----------
        path : str or path
            The file, which ends in .html.

        Returns
        -------
        Path
            The file that was written.
        """
        if Path(path).suffix.lower() not in (".html", ".htm"):
            fix = "Use report.html, and print it to PDF in a browser"
            raise BadValueError("path", "Report.save", "must end in .html", str(path), fix)
        write_atomic(path, self.html)
        return Path(path)

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 85vh; border: 0"
        frame = Markup('<iframe title="{}" style="{}" srcdoc="{}"></iframe>')
        return str(frame.format(self.title, style, self.html))

    def __str__(self) -> str:
        return self.verdict


def make_report(
    y_true: Any,
    outputs: Any = None,
    *,
    sample_weight: Any = None,
    features: Any = None,
    ids: Any = None,
    groups: Any = None,
    row_costs: Any = None,
    calibration: Any = None,
    ood: Any = None,
    costs: CostMatrix | None = None,
    policy: AnyPolicy | None = None,
    title: str | None = None,
    command: str | None = None,
    random_state: Any = 0,
) -> Report:
    """Return an HTML report on the confidence of a model.

    It shows whether the confidence is calibrated, before and after calibration, which rows to send
    to review at which cost, and whether uncertainty finds errors and out-of-distribution rows. For
    `MultiLabel` outputs it compares the labels, for `Normal`, `Samples` or `Quantiles` it is about
    prediction intervals.

    Parameters
    ----------
    y_true : array-like of shape (n_rows,)
        Labels or targets; missing ones are left out. `TopLabel` outputs are passed alone, in this
        place.
    outputs : outputs or array-like
        Outputs of the model; a plain array holds probabilities.
    sample_weight : array-like of shape (n_rows,), optional
        Frequency weights.
    features : array-like of shape (n_rows, n_features), optional
        Features, for distances to the training distribution.
    ids : array-like of shape (n_rows,), optional
        Names of the rows.
    groups : array-like of shape (n_rows,), optional
        Groups to compare, such as regions or devices.
    row_costs : dict, data frame or array, optional
        The columns that the costs depend on, or the costs of each row, rows x actions x classes.
    calibration : pair (y, outputs) or fitted calibrator, optional
        Other rows to fit the calibrator on; by default it is cross-fitted on the rows themselves.
    ood : outputs or Batch, optional
        Outputs of out-of-distribution rows, or a `Batch` of them with features.
    costs : CostMatrix, optional
        Costs of actions; by default an error costs 1 and a review 0.1.
    policy : Policy, MultiLabelPolicy or RegressionPolicy, optional
        A fitted policy, whose calibrator and costs are used, compared with other decision rules.
    title : str, optional
        The title of the page.
    command : str, optional
        The command that reproduces the page.
    random_state : None, int or RandomState, default 0
        For sampling, folds and bootstrap intervals.

    Returns
    -------
    Report
        Save it with `report.save("report.html")`.

    Examples
    --------
    >>> from dubito.report import make_report
    >>> report = make_report([0, 0, 0, 1] * 30, [[0.75, 0.25]] * 120)
    >>> "120 rows" in report.verdict
    True
    """
    batch = make_batch(
        y_true,
        outputs,
        sample_weight=sample_weight,
        features=features,
        ids=ids,
        groups=groups,
        row_costs=row_costs,
        caller=CALLER,
    )
    require_labels(batch, CALLER)
    return Report.of(
        ArrayShards(batch),
        calibration=calibration,
        ood=ood,
        costs=costs,
        policy=policy,
        title=title,
        command=command,
        random_state=random_state,
    )


def _classifier_report(summary: Summary, title: str) -> Report:
    """Return the report on a classifier."""
    before = summary.audit_before
    classes = "top labels only" if before.n_classes is None else f"{before.n_classes:,}"
    facts = (
        ("Rows", f"{summary.whole.n_rows:,} with a label, {summary.whole.n_missing:,} without"),
        ("Rows behind the metrics", f"{before.n_rows:,}"),
        ("Rows behind the decisions", f"{_n_decided(summary):,}"),
        ("Classes", classes),
        ("Confidence bins", f"{before.n_bins}, of equal width, right-closed"),
        INTERVALS,
        ("Calibration", summary.recalibration.method),
        *summary.provenance.facts,
    )
    thresholds, positive = summary.thresholds, positive_class_section(summary)
    reliability, groups = reliability_section(summary), groups_section(summary)
    decisions = decisions_section if thresholds is None else thresholds_section
    diagnostics = [
        *([] if positive is None else [reliability]),
        metrics_section(summary),
        *([] if groups is None else [groups]),
        *([] if thresholds is None else [review_section(summary)]),
        uncertainty_section(summary),
        inspection_section(summary),
        provenance_section(facts, summary.provenance.command),
        calibrators_section(summary),
    ]
    details = (replace(one, is_detail=True) for one in diagnostics)
    sections = [decisions(summary), positive or reliability, *details]
    data = None if summary.has_row_costs else summary.sample.to_dict()
    if thresholds is not None:
        data = {"thresholds": thresholds.to_dict()}
    verdict = classifier_verdict(summary)
    return Report(title, verdict.text, render(title, verdict, sections, data=data))


def _n_decided(summary: Summary) -> int:
    """Return the number of rows whose decisions are evaluated."""
    if summary.policy_report is not None:
        return summary.policy_report.n_rows
    return len(summary.sample.batch) if summary.thresholds is None else summary.thresholds.n_rows


class _Page(NamedTuple):
    """What a page is about, what is stated on every page, and the seed of what it draws."""

    title: str
    command: str | None
    seed: int
    shards: Shards
    policy: Any
    evidence: Any

    def of_regression(self, others: Any, audit: RegressionAudit | None) -> Report:
        """Return the report on a regression model, or on its policy: its decisions come first.

        Calibrators are fitted on `others`, if any; `audit` is known of all rows, or of an ensemble.
        """
        origin: dict[str, Any] = {"command": self.command, "seed": self.seed}
        if self.policy is not None:
            evidence, figures = self._decided(REPORTED)
            summary = RegressionSummary.of_policy(self.policy, evidence, members=audit, **origin)
            details = [replace(one, is_detail=True) for one in regression_sections(summary)]
            sections = [value_decisions_section(self.policy, figures), *details]
            facts = [_decision_fact(figures), INTERVALS, self._calibrator_fact]
            return self._report(value_policy_verdict(figures), sections, facts, summary.provenance)
        summary = RegressionSummary.of(self.shards, calibration=others, audit=audit, **origin)
        whole = summary.whole
        facts = [
            ("Rows", f"{whole.n_rows:,} with a target, {whole.n_missing:,} without"),
            ("Rows behind the metrics", f"{summary.before.audit.n_rows:,}"),
            ("PIT bins", f"{whole.pit.size}, of equal width"),
            INTERVALS,
            ("Calibration", summary.method),
        ]
        sections = regression_sections(summary)
        return self._report(regression_verdict(summary), sections, facts, summary.provenance)

    def of_labels(self, audit: Any) -> Report:
        """Return the report on several labels per row, or on a policy: its decisions come first."""
        figures = None
        if self.policy is not None:
            evidence, figures = self._decided(REPORTED)
            batch, p = evidence.batch, evidence.decisions.probabilities
            calibrated = replace(batch, outputs=MultiLabel(p, self.policy.calibrator.label_names_))
            audit = MultiLabelAudit.of(ArrayShards(calibrated), random_state=self.seed)
        else:
            batch = sample_rows(self.shards, MAX_ROWS_MEASURED, self.seed)
            if not isinstance(audit, MultiLabelAudit):
                audit = MultiLabelAudit.of(self.shards, random_state=self.seed)
        n_known = f"{len(audit.n_known):,}, {sum(audit.n_known.values()):,} of them known"
        labels = ("Labels", n_known)
        provenance = self._provenance(batch)
        if figures is None:
            rows = f"{audit.n_rows:,} with a known label, {audit.n_missing:,} without"
            facts = [("Rows", rows), labels, INTERVALS]
            return self._report(labels_verdict(audit), labels_sections(audit), facts, provenance)
        facts = [_decision_fact(figures), labels, INTERVALS, self._calibrator_fact]
        sections = [label_decisions_section(self.policy, figures), *labels_sections(audit, figures)]
        verdict = label_policy_verdict(self.policy, figures, audit)
        return self._report(verdict, sections, facts, provenance)

    def of_answers(self) -> Report:
        """Return the report on scores of answers, and on the policy that rejects some, if any.

        Without a policy, P(correct) is cross-fitted here.
        """
        figures = None
        if self.policy is None:
            found = HeldOutAnswers.cross_fit(self.shards, self.seed, CALLER)
        else:
            evidence, figures = self._decided("other rows than those of the fit")
            batch = replace(evidence.batch, weight=evidence.weight)
            p_correct = evidence.decisions.probabilities[:, 1]
            found = HeldOutAnswers(batch, p_correct, evidence.evaluation)
        audit = Audit.of(ArrayShards(found.calibrated), random_state=self.seed)
        facts = [
            ("Rows", f"{len(found.batch):,}, {found.evaluation}"),
            ("Scores", ", ".join(found.scores.names or (f"{found.scores.n_scores}",))),
            INTERVALS,
            *([] if self.policy is None else [self._calibrator_fact]),
        ]
        sections = answers_sections(found, audit, self.policy, figures)
        verdict = answers_verdict(found, audit, self.policy, figures)
        return self._report(verdict, sections, facts, self._provenance(found.batch))

    def _decided(self, evaluation: str) -> tuple[Any, Any]:
        """Return decided rows and their figures: held out by the fit, or else a sample of all."""
        if self.evidence is not None:
            return self.evidence, self.policy.report
        rows = sample_rows(self.shards, MAX_ROWS_MEASURED, self.seed, is_labeled=True)
        evidence = self.policy.evidence_on(drop_unlabeled(rows), evaluation)
        return evidence, self.policy.report_on(evidence, self.seed)

    @property
    def _calibrator_fact(self) -> tuple[str, str]:
        return "Calibration", self.policy.provenance["calibrator"]

    def _provenance(self, batch: Batch) -> Provenance:
        """Return the origin of the numbers."""
        return Provenance.of([batch], self.seed, self.command)

    def _report(
        self,
        verdict: Verdict,
        sections: Sequence[Section],
        facts: Sequence[tuple[str, str]],
        provenance: Provenance,
    ) -> Report:
        """Return a page that ends with how it was computed."""
        origin = provenance_section((*facts, *provenance.facts), provenance.command)
        html = render(self.title, verdict, [*sections, origin])
        return Report(self.title, verdict.text, html)


def _decision_fact(figures: Any) -> tuple[str, str]:
    return "Rows behind the decisions", f"{figures.n_rows:,}, {figures.evaluation}"


def _require_policy(policy: Any, outputs: BaseOutputs) -> None:
    """Raise unless a policy takes outputs of this kind."""
    kind: type[AnyPolicy] = MultiLabelPolicy if isinstance(outputs, MultiLabel) else Policy
    if isinstance(outputs, Normal | Samples | Quantiles):
        kind = RegressionPolicy
    if not isinstance(policy, kind):
        name = kind.__name__
        rule, fix = f"must be a fitted {name}", f"Use {name}.fit(...) or {name}.load(path)"
        raise BadTypeError("policy", CALLER, rule, type(policy).__name__, fix)


def _require_none(rule: str, **given: Any) -> None:
    """Raise an error for arguments that cannot be combined."""
    for argument, value in given.items():
        if value is not None:
            raise BadTypeError(argument, CALLER, rule, type(value).__name__, "Leave it out")


def _as_calibration(calibration: Any, is_regression: bool) -> Batch | BaseCalibrator | None:
    """Return the rows to fit a calibrator on, or a fitted calibrator of a classifier."""
    if calibration is None or (isinstance(calibration, BaseCalibrator) and not is_regression):
        return calibration
    if isinstance(calibration, tuple) and len(calibration) == 2:
        return make_batch(*calibration, caller=CALLER)
    if is_regression:
        rule = "must be a pair of targets and outputs for a regression"
        fix = "Pass calibration=(y, Normal(mean, std))"
    else:
        rule = "must be a pair of labels and outputs, or a fitted calibrator"
        fix = "Pass calibration=(y, Logits(logits))"
    raise BadTypeError("calibration", CALLER, rule, type(calibration).__name__, fix)
