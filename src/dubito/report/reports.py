"""`make_report`: from a model's outputs to one HTML file."""

from __future__ import annotations

from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any, final

from markupsafe import Markup

from dubito.calibrate import BaseCalibrator
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards, Shards
from dubito.data.sink import write_whole
from dubito.decide import CostMatrix, Policy
from dubito.decide.costs import as_costs
from dubito.errors import BadTypeError
from dubito.outputs import Normal, Quantiles, Samples
from dubito.report.blocks import Section
from dubito.report.page import render
from dubito.report.regression_summary import RegressionSummary
from dubito.report.sections.calibration import diagrams, figures, leaderboard
from dubito.report.sections.decisions import deciding
from dubito.report.sections.notable import computing, looking
from dubito.report.sections.regression import regression_sections, regression_verdict
from dubito.report.sections.uncertainty import doubting
from dubito.report.summary import Summary
from dubito.report.verdict import verdict_on

TITLE = "What this model's confidence is worth"


@final
@dataclass(frozen=True, slots=True)
class Report:
    """One HTML page that needs no network: `html`, or `save` it. `verdict` is what it says first.

    >>> page = make_report([0, 1] * 10, [[0.8, 0.2], [0.3, 0.7]] * 10)
    >>> page.html.startswith("<!doctype html>")
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
        strange: Any = None,
        costs: CostMatrix | None = None,
        policy: Policy | None = None,
        title: str | None = None,
        command: str | None = None,
        seed: int = 0,
    ) -> Report:
        """Report on rows wherever they are.

        The verdict is on all rows; what needs rows is taken of a seeded sample of 50,000 where
        there are more, which the page says. The other arguments are as in `make_report`.
        """
        if costs is not None:
            as_costs(costs, "costs", "report")
        if policy is not None:
            _as_policy(policy)
            given = {"costs": costs, "calibration": calibration}
            _require_none(given, "None beside a policy, which has its own")
        if isinstance(next(shards.batches()).outputs, Normal | Samples | Quantiles):
            given = {"costs": costs, "strange": strange, "policy": policy}
            _require_none(given, "None for a regression")
            found = RegressionSummary.of(
                shards, calibration=_as_rows(calibration), command=command, seed=seed
            )
            return _regression_report(found, TITLE if title is None else title)
        summary = Summary.of(
            shards,
            calibration=_as_calibration(calibration),
            strange=_as_strange(strange),
            costs=costs,
            policy=policy,
            command=command,
            seed=seed,
        )
        return _classifier_report(summary, TITLE if title is None else title)

    def save(self, path: str | PathLike[str]) -> Path:
        """Write the page, whole or not at all, and return where it is."""
        write_whole(path, self.html)
        return Path(path)

    def _repr_html_(self) -> str:
        style = "width: 100%; height: 85vh; border: 0"
        frame = Markup('<iframe title="{}" style="{}" srcdoc="{}"></iframe>')
        return str(frame.format(self.title, style, self.html))

    def __str__(self) -> str:
        return self.verdict


def make_report(
    y_true: Any,
    outputs: Any,
    *,
    sample_weight: Any = None,
    features: Any = None,
    ids: Any = None,
    groups: Any = None,
    row_costs: Any = None,
    calibration: Any = None,
    strange: Any = None,
    costs: CostMatrix | None = None,
    policy: Policy | None = None,
    title: str | None = None,
    command: str | None = None,
    seed: int = 0,
) -> Report:
    """Return a page on what a model's confidence is worth: one HTML file, to show and to keep.

    Figures after calibration are cross-fitted, or learned from `calibration`: a pair of labels and
    outputs of other rows, or a calibrator that was fitted on them. `strange` are outputs of rows
    the model was not made for, or a `Batch` of them with features. A fitted `policy` brings its own
    calibrator and costs, and is shown beside other ways to decide. `command` is what made the page.

    >>> print(make_report([0, 0, 0, 1] * 30, [[0.75, 0.25]] * 120).verdict.split(".")[0])
    No sign of false confidence on 120 rows
    """
    batch = Batch.of(
        y_true,
        outputs,
        sample_weight=sample_weight,
        features=features,
        ids=ids,
        groups=groups,
        row_costs=row_costs,
        caller="report",
    )
    batch.require_labels("report")
    return Report.of(
        ArrayShards(batch),
        calibration=calibration,
        strange=strange,
        costs=costs,
        policy=policy,
        title=title,
        command=command,
        seed=seed,
    )


def _classifier_report(summary: Summary, title: str) -> Report:
    """Put together what there is to say of a classifier."""
    verdict = verdict_on(summary)
    before = summary.audit_before
    facts = (
        ("rows", f"{summary.whole.n_rows:,} with a label, {summary.whole.n_missing:,} without"),
        ("rows that figures are of", f"{before.n_rows:,}"),
        ("classes", "top labels only" if before.n_classes is None else f"{before.n_classes:,}"),
        ("bins of confidence", f"{before.n_bins}, of equal width, closed on the right"),
        ("intervals", "Poisson bootstrap, 95 %, percentiles"),
        ("rows that ways to decide are tried on", f"{len(summary.sample.batch):,}"),
        ("after calibration", summary.mended.how),
    )
    sections: list[Section] = [
        diagrams(summary),
        figures(summary),
        leaderboard(summary),
        deciding(summary),
        doubting(summary),
        looking(summary),
        computing(summary.provenance, facts),
    ]
    data = None if summary.has_growing_costs else summary.sample.to_dict()
    html = render(title, verdict, sections, data=data)
    return Report(title, " ".join([verdict.headline, *verdict.sentences]), html)


def _regression_report(summary: RegressionSummary, title: str) -> Report:
    """Put together what there is to say of a regression."""
    verdict = regression_verdict(summary)
    n_rows = summary.before.audit.n_rows
    facts = (
        ("rows", f"{summary.whole.n_rows:,} with a target, {summary.whole.n_missing:,} without"),
        ("rows that figures are of", f"{n_rows:,}"),
        ("bins of the PIT", f"{summary.whole.pit.size}, of equal width"),
        ("intervals", "Poisson bootstrap, 95 %, percentiles"),
        ("after recalibration", summary.how),
    )
    sections = [*regression_sections(summary), computing(summary.provenance, facts)]
    html = render(title, verdict, sections)
    return Report(title, " ".join([verdict.headline, *verdict.sentences]), html)


def _require_none(given: dict[str, Any], rule: str) -> None:
    """Raise where something is given that has no place beside the rest."""
    for argument, value in given.items():
        if value is not None:
            raise BadTypeError(argument, "report", rule, type(value).__name__, "leaving it out")


def _as_policy(policy: Any) -> Policy:
    """Return a policy, which must be one."""
    if not isinstance(policy, Policy):
        rule, fix = "a fitted Policy", "Policy.fit(...) or Policy.load(path)"
        raise BadTypeError("policy", "report", rule, type(policy).__name__, fix)
    return policy


def _as_calibration(pair: Any) -> Batch | BaseCalibrator | None:
    """Return the rows that a calibrator is to learn from, or one that has learned."""
    if pair is None or isinstance(pair, BaseCalibrator):
        return pair
    if not (isinstance(pair, tuple) and len(pair) == 2):
        rule = "a pair of labels and outputs, or a fitted calibrator"
        fix = "calibration=(y, Logits(logits))"
        raise BadTypeError("calibration", "report", rule, type(pair).__name__, fix)
    return Batch.of(*pair, caller="report")


def _as_rows(calibration: Any) -> Batch | None:
    """Return rows that a recalibration is to learn from; fitted ones are of classes only."""
    found = _as_calibration(calibration)
    if isinstance(found, BaseCalibrator):
        rule, fix = "a pair of targets and outputs", "calibration=(y, Normal(mean, std))"
        raise BadTypeError("calibration", "report", rule, type(found).__name__, fix)
    return found


def _as_strange(strange: Any) -> Batch | None:
    """Return the rows that are strange to the model."""
    if strange is None or isinstance(strange, Batch):
        return strange
    return Batch.of(None, strange, caller="report")
