"""Everything a classification report shows, computed once."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito import __version__
from dubito.arrays import IntArray
from dubito.calibrate import BaseCalibrator
from dubito.calibrate.cross_validation import labeled_only
from dubito.calibrate.inputs import as_class_outputs
from dubito.data.batch import Batch
from dubito.data.labels import is_absent
from dubito.data.shards import ArrayShards, Shards, fingerprint, sample_rows
from dubito.decide import CostMatrix, CostReport, Policy, PolicyReport, cost_report
from dubito.decide.policy.report import Evidence
from dubito.doubt import UncertaintyDecomposition, decompose_uncertainty
from dubito.errors import EmptyStateError
from dubito.measure import Audit, ReliabilityCurve, RiskCoverageCurve, audit
from dubito.measure.calibration_error import ReliabilityState
from dubito.measure.ranking import RankingState
from dubito.outputs import Members
from dubito.report.notable import class_names
from dubito.report.ood import Strangeness, strangeness
from dubito.report.recalibration import Mended, mended
from dubito.report.sample import MOST_ROWS, Sample, drawn

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


@final
@dataclass(frozen=True, slots=True)
class Provenance:
    """What a report was made of, and by what."""

    fingerprint: str
    seed: int
    command: str | None
    versions: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, batches: Iterable[Batch | None], seed: int, command: str | None) -> Provenance:
        """Take the fingerprints of all rows, and the versions at work."""
        own = [("dubito", __version__), ("Python", platform.python_version())]
        others = [(name, version(name)) for name in PACKAGES]
        marks = [fingerprint(ArrayShards(batch)) for batch in batches if batch is not None]
        return cls(", ".join(marks), seed, command, (*own, *others))


@final
@dataclass(frozen=True, slots=True, eq=False)
class Decided:
    """The action that a policy takes on each row, and the figures of that."""

    action: IntArray
    report: PolicyReport


def _decided_by(policy: Policy, batch: Batch, seed: int) -> Decided:
    """Let a policy decide labeled rows, by their features and row costs where it needs them."""
    raw = as_class_outputs(batch.outputs, "report")
    decisions = policy.decide(raw, batch.features, batch.row_costs)
    evidence = Evidence(
        batch=batch,
        raw=raw,
        decisions=decisions,
        unbound=None,
        row_costs=np.empty(0) if batch.row_costs is None else batch.row_costs,
        weight=batch.labeled_weight,
        how="the rows of the report",
    )
    return Decided(decisions.action, PolicyReport.of(evidence, policy.rule, seed=seed))


MOST_MEASURED = 50_000  # rows that figures are taken of, where they need rows
MOST_VIEWS = 12  # classes, and groups, that have a diagram of their own: the most frequent ones


@final
@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Reliability before and after, of all rows or of some."""

    name: str
    before: ReliabilityCurve
    after: ReliabilityCurve


@final
@dataclass(frozen=True, eq=False)
class Summary:
    """What there is to say of a classifier's confidence.

    `whole` audits every row that there is; all else is of the rows in `before`, which are the same
    unless there are more than 50,000, and of `after`, the same rows calibrated out of sample.
    `decided` is what a policy, where there is one, does with the rows of `sample`.
    """

    whole: Audit
    before: Batch
    audit_before: Audit
    audit_after: Audit
    mended: Mended
    sample: Sample
    costs: CostMatrix | None
    decided: Decided | None
    strangeness: Strangeness | None
    parts: UncertaintyDecomposition | None
    provenance: Provenance

    @classmethod
    def of(
        cls,
        shards: Shards,
        *,
        calibration: Batch | BaseCalibrator | None = None,
        strange: Batch | None = None,
        costs: CostMatrix | None = None,
        policy: Policy | None = None,
        command: str | None = None,
        seed: int = 0,
    ) -> Summary:
        """Audit, calibrate, doubt and decide; a policy brings its own calibrator and costs."""
        if policy is not None:
            calibration, costs = policy.calibrator, policy.costs
        rows = sample_rows(shards, MOST_MEASURED, seed)
        before = labeled_only(rows)
        if not len(before):
            raise EmptyStateError("A report")
        mend = mended(before, calibration, seed)
        others = calibration if isinstance(calibration, Batch) else None
        audit_before = _audit_of(rows, seed)
        decided = None
        if policy is not None:
            decided = _decided_by(policy, sample_rows(ArrayShards(before), MOST_ROWS, seed), seed)
        is_all = shards.sum(len) == len(rows)
        return cls(
            whole=audit_before if is_all else Audit.of(shards, seed=seed),
            before=before,
            audit_before=audit_before,
            audit_after=_audit_of(mend.batch, seed),
            mended=mend,
            sample=drawn(mend.batch, costs, seed, None if decided is None else decided.action),
            costs=costs,
            decided=decided,
            strangeness=strangeness(before, strange, seed),
            parts=_split_of(before),
            provenance=Provenance.of([rows, others, strange], seed, command),
        )

    @property
    def after(self) -> Batch:
        """The rows, calibrated out of sample."""
        return self.mended.batch

    @cached_property
    def views(self) -> tuple[View, ...]:
        """Reliability of all rows, then by predicted class, then by group."""
        found = [_view("all rows", self.before, self.after, None, None)]
        names = class_names(self.before)
        if len(names) > 1:
            before, after = self.before.rows.predicted, self.after.rows.predicted
            assert before is not None
            assert after is not None
            frequent = np.argsort(-np.bincount(before, minlength=len(names)), kind="stable")
            for k in sorted(frequent[:MOST_VIEWS].tolist()):
                places = np.flatnonzero(before == k), np.flatnonzero(after == k)
                if all(place.size for place in places):
                    found.append(
                        _view(f"where it says {names[k]}", self.before, self.after, *places)
                    )
        for name in _most_frequent(self.audit_before.groups):
            place = np.flatnonzero(self.group_names == name)
            found.append(_view(f"group {name}", self.before, self.after, place, place))
        return tuple(found)

    @cached_property
    def group_names(self) -> NDArray[np.str_]:
        """The group of each row, named as an audit names it."""
        groups = [] if self.before.groups is None else self.before.groups.tolist()
        return np.array(["(missing)" if is_absent(name) else str(name) for name in groups])

    @cached_property
    def sampled_risks(self) -> tuple[RiskCoverageCurve, RiskCoverageCurve]:
        """Risk over coverage of the sample, before and after."""
        same = sample_rows(ArrayShards(self.before), MOST_ROWS, self.provenance.seed)
        return (
            RiskCoverageCurve.of(RankingState.of(same)),
            RiskCoverageCurve.of(RankingState.of(self.sample.answers)),
        )

    @property
    def has_unseen_costs(self) -> bool:
        """Whether costs were given that the page does not let edit."""
        return self.costs is not None and not self.sample.has_given_costs

    @property
    def has_growing_costs(self) -> bool:
        """Whether costs were given that grow with per-row costs."""
        return self.costs is not None and self.costs.rate is not None

    @cached_property
    def cost_report(self) -> CostReport | None:
        """What deciding by least expected cost costs on the sample; None without row costs."""
        rows, costs = self.sample.batch, self.sample.costs
        if self.costs is not None and self.has_unseen_costs:
            rows = sample_rows(ArrayShards(self.after), MOST_ROWS, self.provenance.seed)
            costs = self.costs
        if costs.rate is not None and rows.row_costs is None:
            return None
        return cost_report(
            rows.labels,
            rows.outputs,
            costs,
            rows.row_costs if costs.rate is not None else None,
            sample_weight=rows.weight,
            seed=self.provenance.seed,
        )


def _audit_of(batch: Batch, seed: int) -> Audit:
    """Audit rows in memory, of which labels may be missing."""
    outputs: Any = batch.outputs
    result = audit(
        batch.labels, outputs, sample_weight=batch.weight, groups=batch.groups, seed=seed
    )
    assert isinstance(result, Audit)
    return result


def _split_of(batch: Batch) -> UncertaintyDecomposition | None:
    """Return noise and ignorance, where there are several passes."""
    outputs = batch.outputs
    if not isinstance(outputs, Members) or outputs.n_passes < 2:
        return None
    return decompose_uncertainty(outputs)


def _view(
    name: str, before: Batch, after: Batch, rows: IntArray | None, rows_after: IntArray | None
) -> View:
    """Return the reliability of some rows, or of all."""
    parts = [
        batch if chosen is None else batch.take(chosen)
        for batch, chosen in ((before, rows), (after, rows_after))
    ]
    curves = [ReliabilityState.of(part).value for part in parts]
    return View(name, *curves)


def _most_frequent(groups: dict[str, Audit]) -> list[str]:
    """Return the names of the largest groups, in their order."""
    largest = sorted(groups, key=lambda name: -groups[name].n_rows)[:MOST_VIEWS]
    return sorted(largest)
