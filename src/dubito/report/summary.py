"""Everything a classification report shows, computed once, OOD detection included."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from dubito import __version__
from dubito.arrays import BoolArray, FloatArray, IntArray
from dubito.calibrate import BaseCalibrator
from dubito.calibrate.calibrator import as_class_outputs, drop_unlabeled
from dubito.data.batch import Batch, row_statistics
from dubito.data.labels import Labels, is_absent, names_of
from dubito.data.shards import ArrayShards, Shards, fingerprint, sample_rows
from dubito.decide import CostMatrix, CostReport, Policy, PolicyReport, cost_report
from dubito.decide.policy.report import Evidence
from dubito.doubt import (
    ConformalOutlierDetector,
    MahalanobisDistance,
    UncertaintyDecomposition,
    decompose_uncertainty,
)
from dubito.errors import BadValueError, DubitoWarning, EmptyStateError
from dubito.measure import Audit, ReliabilityCurve, RiskCoverageCurve, roc_auc
from dubito.measure.binary import THRESHOLD, positive_column
from dubito.measure.calibration_error import ReliabilityState
from dubito.measure.detection import RankingState
from dubito.outputs import Members
from dubito.report.recalibration import Recalibration, held_out, recalibrate
from dubito.report.sample import MAX_ROWS, Sample, Thresholds, class_names, draw_sample

ALPHA = 0.05
MIN_ROWS = 40


@final
@dataclass(frozen=True, slots=True, eq=False)
class OODScores:
    """Uncertainty scores of held-out in-distribution rows, and of OOD rows where given.

    `distance` is the Mahalanobis distance of the features, None without features; `uncertainty` is
    1 - confidence. `detected` is the fraction of OOD rows beyond the distance that 5 % of
    in-distribution rows exceed. The areas are OOD detection AUROCs.
    """

    n_fitted: int
    is_by_class: bool
    is_correct: BoolArray
    weight: FloatArray
    distance: FloatArray | None
    uncertainty: FloatArray
    ood_distance: FloatArray | None
    ood_uncertainty: FloatArray | None
    detected: float | None
    distance_roc_auc: float | None
    confidence_roc_auc: float | None


def _ood_scores(batch: Batch, ood: Batch | None, seed: int) -> OODScores | None:
    """Fit the distance on half of the rows, and score the other half and the OOD rows.

    None without both features and OOD rows, or with too few rows.
    """
    has_features = batch.features is not None and len(batch) >= MIN_ROWS
    if not has_features and ood is None:
        return None
    n_fitted, scored = 0, np.arange(len(batch))
    distance = ood_distance = detected = None
    is_by_class = False
    if batch.features is not None and has_features:
        order, n_fitted = np.random.default_rng(seed).permutation(len(batch)), len(batch) // 2
        fitted, scored = _fit_distance(batch, np.sort(order[:n_fitted])), np.sort(order[n_fitted:])
        is_by_class = fitted.classes_ is not None
        distance = fitted.score(batch.features[scored])
        if ood is not None and ood.features is not None:
            ood_distance = fitted.score(ood.features)
            # Few rows: nothing is detected.
            with warnings.catch_warnings(action="ignore", category=DubitoWarning):
                detector = ConformalOutlierDetector(ALPHA).fit(distance, batch.weight[scored])
            detected = float(detector.predict(ood_distance).mean())
    uncertainty = batch.rows.least_confidence[scored]
    ood_uncertainty = None if ood is None else row_statistics(ood.outputs, None).least_confidence
    return OODScores(
        n_fitted,
        is_by_class,
        batch.rows.correct[scored] > 0.5,
        batch.weight[scored],
        distance,
        uncertainty,
        ood_distance,
        ood_uncertainty,
        detected,
        _detection_auroc(distance, ood_distance),
        _detection_auroc(uncertainty, ood_uncertainty),
    )


def _fit_distance(batch: Batch, rows: IntArray) -> MahalanobisDistance:
    """Fit the distance to the nearest class, or to all rows where classes have too few."""
    assert batch.features is not None
    features, labels = batch.features[rows], batch.labels
    distance = MahalanobisDistance(normalize=True)
    if isinstance(labels, Labels) and labels.probabilities is None:
        try:
            return distance.fit(features, labels.codes[rows])
        except BadValueError:
            pass  # rows do not differ within their classes
    return distance.fit(features)


def _detection_auroc(known: FloatArray | None, ood: FloatArray | None) -> float | None:
    """Return how well a score separates OOD rows from in-distribution rows."""
    if known is None or ood is None or not (known.size and ood.size):
        return None
    is_ood = np.repeat([False, True], [known.size, ood.size])
    return roc_auc(is_ood, np.concatenate([known, ood]))


PACKAGES = ("numpy", "scipy", "scikit-learn", "numba")


@final
@dataclass(frozen=True, slots=True)
class Provenance:
    """The data fingerprint, random seed, command and versions behind a report."""

    fingerprint: str
    seed: int
    command: str | None
    versions: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, batches: Iterable[Batch | None], seed: int, command: str | None) -> Provenance:
        """Return the fingerprints of all rows, and the versions in use."""
        own = [("dubito", __version__), ("Python", platform.python_version())]
        others = [(name, version(name)) for name in PACKAGES]
        prints = [fingerprint(ArrayShards(batch)) for batch in batches if batch is not None]
        return cls(", ".join(prints), seed, command, (*own, *others))

    @property
    def facts(self) -> tuple[tuple[str, str], ...]:
        """What a page states about the origin of its numbers."""
        return (
            ("Data fingerprint", self.fingerprint),
            ("Random seed", f"{self.seed}"),
            ("Versions", ", ".join(f"{name} {number}" for name, number in self.versions)),
        )


REPORTED = "the rows of this report"
MAX_ROWS_MEASURED = 40_000  # rows that are held in memory
N_BINS = 15  # of audits by default
MAX_VIEWS = 12  # classes, and groups, that have a diagram of their own: the most frequent ones


@final
@dataclass(frozen=True, slots=True, eq=False)
class View:
    """Reliability before and after calibration, of all rows or of a subset."""

    name: str
    before: ReliabilityCurve
    after: ReliabilityCurve


@final
@dataclass(frozen=True, eq=False)
class Summary:
    """The results of a report on a classifier.

    `whole` audits all rows; everything else is about the rows in `before`, a sample if there are
    more than `max_rows`, and `after`, the same rows calibrated out of sample. `policy_report`
    evaluates a policy, if there is one, on the rows of `sample`, or as its fit did.
    """

    whole: Audit
    before: Batch
    audit_before: Audit
    audit_after: Audit
    recalibration: Recalibration
    sample: Sample
    costs: CostMatrix | None
    policy_report: PolicyReport | None
    ood: OODScores | None
    uncertainty: UncertaintyDecomposition | None
    provenance: Provenance
    policy: Policy | None = None

    @classmethod
    def of(
        cls,
        shards: Shards,
        *,
        calibration: Batch | BaseCalibrator | None = None,
        ood: Batch | None = None,
        costs: CostMatrix | None = None,
        policy: Policy | None = None,
        evidence: Evidence | None = None,
        command: str | None = None,
        audit: Audit | None = None,
        seed: int = 0,
        max_rows: int = MAX_ROWS_MEASURED,
    ) -> Summary:
        """Audit, calibrate and decide; a policy has its own calibrator and costs.

        `audit` is that of all rows, if there is one already. `evidence` are the rows that the fit
        of the policy held out, with its decisions: they take the place of `shards`.
        """
        if policy is not None:
            calibration, costs = policy.calibrator, policy.costs
        if evidence is not None:
            shards = ArrayShards(replace(evidence.batch, weight=evidence.weight))
        rows = sample_rows(shards, max_rows, seed)
        before = drop_unlabeled(rows) if evidence is None else rows
        if not len(before):
            raise EmptyStateError("A report")
        actions = evaluation = None
        if policy is not None and evidence is not None:
            recalibration = held_out(before, policy.calibrator, evidence)
            numbers = replace(before, ids=evidence.decisions.action)
            actions = sample_rows(ArrayShards(numbers), MAX_ROWS, seed).ids
            evaluation = policy.report
        else:
            recalibration = recalibrate(before, calibration, seed)
        if policy is not None and evidence is None:
            sampled = sample_rows(ArrayShards(before), MAX_ROWS, seed)
            found = policy.evidence_on(sampled, REPORTED)
            actions, evaluation = found.decisions.action, policy.report_on(found, seed)
        settings = _audit_settings(rows, audit, policy, costs)

        def measure(shards: Shards) -> Audit:
            return Audit.of(shards, random_state=seed, **settings)

        is_all = shards.sum(len) == len(rows)
        is_known = audit is not None and is_all and audit.n_bins == N_BINS
        audit_before = audit if audit and is_known else measure(ArrayShards(rows))
        others = calibration if isinstance(calibration, Batch) else None
        return cls(
            whole=audit or (audit_before if is_all else measure(shards)),
            before=before,
            audit_before=audit_before,
            audit_after=measure(ArrayShards(recalibration.batch)),
            recalibration=recalibration,
            sample=draw_sample(recalibration.batch, costs, seed, actions),
            costs=costs,
            policy_report=evaluation,
            ood=_ood_scores(before, ood, seed),
            uncertainty=(
                decompose_uncertainty(before.outputs)
                if isinstance(before.outputs, Members) and before.outputs.n_passes > 1
                else None
            ),
            provenance=Provenance.of([rows, others, ood], seed, command),
            policy=policy,
        )

    @property
    def after(self) -> Batch:
        """The rows, calibrated out of sample."""
        return self.recalibration.batch

    @cached_property
    def views(self) -> tuple[View, ...]:
        """Reliability of all rows, then by predicted class, then by group."""
        everything = np.ones(len(self.before), bool)
        subsets = [("all rows", everything, everything)]
        names = class_names(self.before)
        if len(names) > 1:
            before, after = self.before.rows.predicted, self.after.rows.predicted
            assert before is not None
            assert after is not None
            frequent = np.argsort(-np.bincount(before, minlength=len(names)), kind="stable")
            subsets += [
                (f"predicted as {names[k]}", before == k, after == k)
                for k in sorted(frequent[:MAX_VIEWS].tolist())
            ]
        groups = self.audit_before.groups
        for name in sorted(sorted(groups, key=lambda name: -groups[name].n_rows)[:MAX_VIEWS]):
            is_member = self.group_names == name
            subsets.append((f"group {name}", is_member, is_member))
        return tuple(
            View(name, _reliability(self.before, rows), _reliability(self.after, rows_after))
            for name, rows, rows_after in subsets
            if rows.any() and rows_after.any()
        )

    @cached_property
    def group_names(self) -> NDArray[np.str_]:
        """The group of each row, named as in an audit."""
        groups = [] if self.before.groups is None else self.before.groups.tolist()
        return np.array(["(missing)" if is_absent(name) else str(name) for name in groups])

    @cached_property
    def sampled_risks(self) -> tuple[RiskCoverageCurve, RiskCoverageCurve]:
        """Risk-coverage curves of the sample, before and after calibration."""
        same = sample_rows(ArrayShards(self.before), MAX_ROWS, self.provenance.seed)
        return (
            RiskCoverageCurve.of(RankingState.of(same)),
            RiskCoverageCurve.of(RankingState.of(self.sample.answers)),
        )

    @property
    def has_fixed_costs(self) -> bool:
        """Whether costs were given that cannot be edited on the page."""
        return self.costs is not None and not self.sample.has_given_costs

    @property
    def has_row_costs(self) -> bool:
        """Whether the given costs vary from row to row."""
        is_given = self.before.row_costs is not None and self.before.row_costs.ndim == 3
        return self.costs is not None and (is_given or bool(self.costs.columns))

    @property
    def has_table(self) -> bool:
        """Whether the given costs are a table of numbers, without anyone to ask."""
        return not self.has_row_costs and not (self.costs and self.costs.reviews)

    @cached_property
    def thresholds(self) -> Thresholds | None:
        """Thresholds of P(positive); None unless one of two classes is positive, costs constant."""
        positive = self.audit_after.positive
        if positive is None or not self.has_table:
            return None
        column = positive_column(self.after.outputs, positive.pos_label, "make_report")
        found = Thresholds.of(self.after, self.costs, column or 0, self.provenance.seed)
        return found if found.optimal else None

    @property
    def has_other_rejects(self) -> bool:
        """Whether an OOD gate or a risk bound rejects rows beside the thresholds."""
        return self.policy is not None and (self.policy.ood or self.policy.risk) is not None

    @cached_property
    def cost_report(self) -> CostReport | None:
        """The cost of optimal decisions on the sample; None without row costs."""
        rows, costs = self.sample.batch, self.sample.costs
        if self.costs is not None and (self.has_fixed_costs or self.thresholds is not None):
            rows = sample_rows(ArrayShards(self.after), MAX_ROWS, self.provenance.seed)
            costs = self.costs
        if costs.columns and rows.row_costs is None:
            return None
        return cost_report(
            rows.labels,
            rows.outputs,
            costs,
            rows.row_costs if self.has_row_costs else None,
            sample_weight=rows.weight,
            random_state=self.provenance.seed,
        )


def _audit_settings(
    rows: Batch, known: Audit | None, policy: Policy | None, costs: CostMatrix | None
) -> dict[str, Any]:
    """Return the positive class, its bins and threshold as in a known audit, and the costs."""
    positive = None if known is None else known.positive
    settings: dict[str, Any] = {"bin_strategy": "quantile"}
    if positive is not None:
        settings = {"bin_strategy": positive.bin_strategy, "pos_label": positive.pos_label}
        settings["threshold"] = positive.operating_point.threshold
    if policy is not None and policy.costs.n_classes == 2:
        names = names_of(as_class_outputs(rows.outputs, "make_report"))
        settings["pos_label"] = names[policy.pos_column]
    is_known = costs is not None and not (costs.columns and rows.row_costs is None)
    threshold = settings.get("threshold")  # None where the known audit decided by costs
    settings["threshold"] = THRESHOLD if threshold is None else threshold
    return {**settings, "costs": costs if is_known else None}


def _reliability(batch: Batch, is_chosen: BoolArray) -> ReliabilityCurve:
    """Return the reliability curve of the chosen rows."""
    return ReliabilityState.of(batch.take(np.flatnonzero(is_chosen))).value
