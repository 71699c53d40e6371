"""Everything a report says, computed once and by the library."""

from dataclasses import replace

import numpy as np
import pytest

from dubito import Logits, Members, audit
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards
from dubito.decide import cost_report
from dubito.doubt import decompose_uncertainty
from dubito.errors import EmptyStateError
from dubito.measure import reliability_curve, risk_coverage_curve
from dubito.report import summary as module
from dubito.report.summary import Summary


def test_figures_are_those_of_an_audit(summary: Summary, batch: Batch) -> None:
    expected = audit(batch.labels, batch.outputs, sample_weight=batch.weight, seed=3)  # type: ignore[call-overload]
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
    report = cost_report(one.labels, one.outputs, sample.costs, sample_weight=one.weight, seed=3)
    assert summary.cost_report == report
    assert 1000 * report.realized.value == pytest.approx(sample.least_expected.cost)


def test_members_are_split(batch: Batch) -> None:
    logits = np.random.default_rng(0).normal(size=(2, 12, 3))
    members = Members.of([Logits(one) for one in logits])
    found = Summary.of(ArrayShards(Batch.of([0, 1, 2] * 4, members)))
    assert found.parts is not None
    np.testing.assert_array_equal(found.parts.epistemic, decompose_uncertainty(members).epistemic)
    assert found.strangeness is None


def test_of_many_rows_a_stated_sample_is_measured(
    batch: Batch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_MEASURED", 60)
    bare = replace(batch, groups=None, features=None)
    found = Summary.of(ArrayShards(bare))
    assert found.whole.n_rows > 60 >= found.audit_before.n_rows
    assert found.whole.accuracy == pytest.approx(
        np.average(batch.rows.correct, weights=batch.labeled_weight)
    )


def test_rows_without_labels_are_no_report() -> None:
    with pytest.raises(EmptyStateError, match="A report needs at least 1 labeled row"):
        Summary.of(ArrayShards(Batch.of([None, None], [0.5, 0.5])))
