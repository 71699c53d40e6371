"""The results of a report are those of the library."""

from dataclasses import replace

import numpy as np
import pytest

from dubito import Logits, Members, __version__, audit
from dubito.data import ArrayShards, Batch
from dubito.data.shards import fingerprint
from dubito.decide import CostMatrix, OODGate, Policy, cost_report, realized_cost
from dubito.doubt import MahalanobisDistance, decompose_uncertainty
from dubito.errors import EmptyStateError
from dubito.measure import reliability_curve, risk_coverage_curve
from dubito.report.summary import Provenance, Summary

ROWS = Batch.of([0, 1], Logits([[0.0, 1.0], [2.0, 0.0]]))
OTHERS = Batch.of([1, 1], Logits([[0.0, 1.0], [2.0, 0.0]]))


def test_metrics_are_those_of_an_audit(summary: Summary, batch: Batch) -> None:
    expected = audit(batch.labels, batch.outputs, sample_weight=batch.weight, random_state=3)  # type: ignore[call-overload]
    assert summary.whole.figures | expected.figures == summary.whole.figures
    assert summary.audit_after.n_rows == expected.n_rows == len(summary.before)
    assert summary.audit_after.log_loss < summary.audit_before.log_loss  # type: ignore[operator]


def test_views_are_of_all_rows_of_predicted_classes_and_of_groups(summary: Summary) -> None:
    names = [view.name for view in summary.views]
    assert names[0] == "all rows"
    assert names[-2:] == ["group east", "group north & south"]
    before = summary.before
    is_cat = before.rows.predicted == 0
    is_east = np.asarray(before.groups) == "east"
    for k, chosen in ((0, np.ones(len(before), bool)), (1, is_cat), (-2, is_east)):
        part = before.take(np.flatnonzero(chosen))
        curve = reliability_curve(part.labels, part.outputs, sample_weight=part.weight)
        np.testing.assert_allclose(summary.views[k].before.accuracy, curve.accuracy)
        np.testing.assert_allclose(summary.views[k].before.count, curve.count)


def test_risks_and_costs_are_of_the_sample(summary: Summary) -> None:
    sample = summary.sample
    rows = (summary.before, sample.answers)
    for found, one in zip(summary.sampled_risks, rows, strict=True):
        curve = risk_coverage_curve(one.labels, one.outputs, sample_weight=one.weight)
        np.testing.assert_allclose(found.risk, curve.risk)
    one = sample.batch
    report = cost_report(
        one.labels, one.outputs, sample.costs, sample_weight=one.weight, random_state=3
    )
    assert summary.cost_report == report
    assert 1000 * report.realized.value == pytest.approx(sample.optimal.cost)


def test_members_are_decomposed(batch: Batch) -> None:
    logits = np.random.default_rng(0).normal(size=(2, 12, 3))
    members = Members.of([Logits(one) for one in logits])
    found = Summary.of(ArrayShards(Batch.of([0, 1, 2] * 4, members)))
    assert found.uncertainty is not None
    np.testing.assert_array_equal(
        found.uncertainty.epistemic, decompose_uncertainty(members).epistemic
    )
    assert found.ood is None


def test_a_sample_of_many_rows_is_measured(batch: Batch) -> None:
    bare = replace(batch, groups=None, features=None)
    found = Summary.of(ArrayShards(bare), max_rows=60)
    assert found.whole.n_rows > 60 >= found.audit_before.n_rows
    assert found.whole.accuracy == pytest.approx(
        np.average(batch.rows.correct, weights=batch.labeled_weight)
    )


def test_rows_without_labels_raise_an_error() -> None:
    with pytest.raises(EmptyStateError, match="A report needs at least 1 labeled row"):
        Summary.of(ArrayShards(Batch.of([None, None], [0.5, 0.5])))


def test_a_policy_is_evaluated_by_its_own_decisions() -> None:
    rng = np.random.default_rng(0)
    logits, y = 2 * rng.normal(size=(400, 3)), rng.integers(0, 3, 400)
    logits[np.arange(400), y] += 2
    features = rng.normal(size=(400, 2)) + y[:, np.newaxis]
    costs = CostMatrix([[0, 5, 1], [1, 0, 1], [1, 2, 0]]).with_reject(0.4)
    half, rest = slice(0, 200), slice(200, 400)
    policy = Policy.fit(
        Logits(logits[half]),
        y[half],
        costs=costs,
        features=features[half],
        ood=OODGate(MahalanobisDistance(), alpha=0.1),
    )
    weight = rng.integers(1, 4, 200).astype(float)
    batch = Batch.of(y[rest], Logits(logits[rest]), sample_weight=weight, features=features[rest])
    evidence = policy.evidence_on(batch, "others")
    report = policy.report_on(evidence)
    expected = policy.decide(Logits(logits[rest]), features[rest])
    assert evidence.decisions.action.tolist() == expected.action.tolist()
    paid = realized_cost(y[rest], expected.action, costs, sample_weight=weight)
    assert report.cost.value == pytest.approx(paid)
    is_open = expected.action != 3
    assert report.coverage.value == pytest.approx(weight @ is_open / weight.sum())
    wrong = np.array([costs.array[a, k] > 0 for a, k in zip(expected.action, y[rest], strict=True)])
    assert report.risk is not None
    risk = weight @ (wrong & is_open) / (weight @ is_open)
    assert report.risk.value == pytest.approx(risk)


def test_all_rows_have_their_fingerprint() -> None:
    prints = [fingerprint(ArrayShards(batch)) for batch in (ROWS, OTHERS)]
    assert Provenance.of([ROWS, None, OTHERS], 0, None).fingerprint == ", ".join(prints)


def test_versions_seed_and_command_are_recorded() -> None:
    found = Provenance.of([ROWS], 5, "make it")
    assert (found.seed, found.command) == (5, "make it")
    assert dict(found.versions)["dubito"] == __version__
    assert dict(found.versions)["numpy"] == np.__version__
