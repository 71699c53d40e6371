"""Regression policies: what is decided and reviewed, the report, and the file."""

from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from scipy.stats import norm

from dubito import ErrorCosts, Normal, Quantiles, RegressionMembers, RegressionPolicy, Samples
from dubito.calibrate import QuantileRecalibration, VarianceScaling
from dubito.data import ArrayShards, Batch
from dubito.data.shards import CountedShards
from dubito.decide import (
    OODGate,
    Policy,
    RegressionDecisions,
    RegressionPolicyReport,
    load_policy,
    minkowski_estimate,
    policy_from_json,
)
from dubito.decide.policy.loading import seal_policy
from dubito.decide.policy.table import decision_columns, decision_names
from dubito.decide.regression.value_decisions import REASONS, ValueEvidence, ValueRule
from dubito.doubt import ConformalRegressor
from dubito.errors import (
    BadFileError,
    BadTypeError,
    BadValueError,
    DubitoError,
    DubitoWarning,
    MissingLabelsWarning,
)

RNG = np.random.default_rng(0)
N = 300
X = RNG.normal(size=(N, 3))
STDS = np.exp(0.5 * X[:, 0])
Y = 50 + 5 * X[:, 1] + 3 * STDS * RNG.normal(size=N)
OUTPUTS = Normal(50 + 5 * X[:, 1] + 1, 1.5 * STDS)  # biased, and too narrow
COSTS = ErrorCosts.linear(under=9, over=1)
PLAIN = ConformalRegressor(method="normalized")  # all rows calibrate
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
QUANTILES = Quantiles(
    OUTPUTS.mean[:, None] + OUTPUTS.std[:, None] * [-1.64, -0.67, 0, 0.67, 1.64], LEVELS
)
DRAWS = Samples(OUTPUTS.mean[:, None] + OUTPUTS.std[:, None] * RNG.normal(size=(N, 40)))


def fitted(outputs: Any = OUTPUTS, y: Any = Y, **settings: Any) -> RegressionPolicy:
    given: dict[str, Any] = {"costs": COSTS, "calibrator": VarianceScaling(), "interval": PLAIN}
    given |= settings
    return RegressionPolicy.fit(outputs, y, **given)


@pytest.fixture(scope="module")
def policy() -> RegressionPolicy:
    return fitted(review_cost=12, max_width=18, features=X, ood=OODGate(alpha=0.05))


def test_the_value_is_the_calibrated_quantile_and_the_interval_is_conformal(
    policy: RegressionPolicy,
) -> None:
    found = policy.decide(OUTPUTS, X)
    scaled, own = VarianceScaling().fit(OUTPUTS, Y).transform(OUTPUTS), policy.calibrated(OUTPUTS)
    close(found.value, COSTS.best(scaled).value, rtol=1e-12)
    assert isinstance(scaled, Normal)
    assert isinstance(own, Normal)
    close(own.std, scaled.std, rtol=1e-12)
    interval = ConformalRegressor(0.9, "normalized").fit(OUTPUTS, Y).predict(OUTPUTS)
    close(found.low, interval.low, rtol=0)
    close(found.high, interval.high, rtol=0)


def test_rows_are_reviewed_by_cost_then_width_then_as_outliers(policy: RegressionPolicy) -> None:
    found = policy.decide(OUTPUTS, X)
    best = COSTS.best(found.calibrated)
    assert policy.ood is not None
    is_ood = policy.ood.predict(None, X)
    by_hand = []
    for row in range(N):
        reason = "lowest_expected_cost"
        if best.cost[row] >= 12:
            reason = "review_costs_less"
        elif found.high[row] - found.low[row] > 18:
            reason = "interval_too_wide"
        by_hand.append("out_of_distribution" if is_ood[row] else reason)
    assert {*by_hand} == {*REASONS}  # all of them occur
    assert [REASONS[k] for k in found.reason] == by_hand
    assert found.is_reviewed.tolist() == [one != "lowest_expected_cost" for one in by_hand]
    close(found.expected_cost, np.where(found.is_reviewed, 12, best.cost), rtol=0)
    saved = np.where(is_ood, policy.report.constant_cost, best.cost)
    close(found.review_value, np.where(found.is_reviewed, saved, 0.0), rtol=0)
    order = found.review_order
    assert (np.diff(found.review_value[order]) <= 0).all()
    assert {*order.tolist()} == {*np.flatnonzero(found.is_reviewed).tolist()}


def test_on_a_tie_a_row_is_reviewed() -> None:
    outputs = Normal([0.0], [1.0])
    cost = float(COSTS.best(outputs).cost[0])
    ends = np.array([-1.0]), np.array([1.0])
    for excess, is_reviewed in ((-1e-6, True), (0.0, True), (5e-10, True), (1e-6, False)):
        rule = ValueRule(COSTS, review_cost=cost * (1 + excess))
        assert rule.decide(outputs, *ends).is_reviewed.tolist() == [is_reviewed]


def test_relative_widths_are_of_the_prediction() -> None:
    rule = ValueRule(COSTS, review_cost=1e6, max_relative_width=0.5)
    outputs = Normal([10.0, -10.0, 2.0, 0.0], np.ones(4))
    found = rule.decide(outputs, np.full(4, -2.0), np.full(4, 2.0))
    assert found.is_reviewed.tolist() == [False, False, True, True]


@pytest.mark.parametrize("outputs", [OUTPUTS, QUANTILES, DRAWS], ids=lambda one: type(one).__name__)
def test_weights_are_repeated_rows(outputs: Any) -> None:
    weight = RNG.integers(0, 4, N).astype(float)
    rows = np.repeat(np.arange(N), weight.astype(int))
    for calibrator in (VarianceScaling(), QuantileRecalibration()):
        one = fitted(outputs, sample_weight=weight, calibrator=calibrator)
        other = fitted(outputs.take(rows), Y[rows], calibrator=calibrator)
        a, b = one.decide(outputs), other.decide(outputs)
        close(a.value, b.value, rtol=1e-6)
        close(a.low, b.low, rtol=1e-9)
        close(a.high, b.high, rtol=1e-9)


def test_auto_takes_quantile_recalibration_where_the_model_is_biased() -> None:
    rng = np.random.default_rng(1)
    mean = rng.normal(size=400)
    y = mean + rng.normal(size=400)
    assert isinstance(
        fitted(Normal(mean + 3, np.ones(400)), y, calibrator="auto").calibrator,
        QuantileRecalibration,
    )
    few = fitted(Normal(mean[:100], np.ones(100)), y[:100], calibrator="auto")
    assert isinstance(few.calibrator, VarianceScaling)
    assert fitted(calibrator=None).calibrator is None


def test_folds_may_choose_different_calibrators() -> None:
    both = [fitted(calibrator=one) for one in (VarianceScaling(), QuantileRecalibration())]
    parts = [one.decide(OUTPUTS) for one in both]
    found = RegressionDecisions.joined(parts, sum(map(len, parts)))
    assert isinstance(found.calibrated, Normal)
    close(found.value, np.concatenate([one.value for one in parts]), rtol=0)
    means = [minkowski_estimate(one.calibrated, 2) for one in parts]
    close(found.calibrated.mean, np.concatenate(means), rtol=1e-12)


def test_a_fractile_beyond_the_levels_needs_recalibration() -> None:
    costs = ErrorCosts.linear(99, 1)
    with pytest.raises(BadValueError, match=r"quantile at 0\.99, between the levels 0.05 and 0.95"):
        fitted(QUANTILES, costs=costs)
    chosen = fitted(QUANTILES, costs=costs, calibrator="auto")
    assert isinstance(chosen.calibrator, QuantileRecalibration)
    assert 0.97 < np.mean(chosen.decide(QUANTILES).value >= Y) <= 1


def test_the_report_by_hand() -> None:
    policy, evidence = RegressionPolicy.fit_shards(
        ArrayShards(Batch.of(Y, OUTPUTS, features=X)),
        costs=COSTS,
        calibrator=VarianceScaling(),
        review_cost=12,
    )
    report, found, y, raw_outputs = (
        policy.report,
        evidence.decisions,
        evidence.y,
        evidence.uncalibrated,
    )
    assert isinstance(raw_outputs, Normal)
    paid = np.where(found.is_reviewed, 12.0, np.maximum(9 * (y - found.value), found.value - y))
    assert report.n_rows == N
    assert report.cost.value == pytest.approx(paid.mean())
    assert report.cost.low < report.cost.value < report.cost.high
    assert report.expected_cost == pytest.approx(found.expected_cost.mean())
    assert report.gap.value == pytest.approx(found.expected_cost.mean() - paid.mean())
    mean = raw_outputs.mean
    by_mean = np.maximum(9 * (y - mean), mean - y).mean()
    assert report.mean_cost == pytest.approx(by_mean)
    assert report.mean_saved.value == pytest.approx(by_mean - paid.mean())
    best = COSTS.best(evidence.uncalibrated)
    raw = np.maximum(9 * (y - best.value), best.value - y)
    assert report.uncalibrated_cost == pytest.approx(np.where(best.cost >= 12, 12.0, raw).mean())
    inside = (found.low <= y) & (y <= found.high)
    assert report.coverage.value == pytest.approx(inside.mean())
    width = found.high - found.low
    outside = np.maximum(found.low - y, 0) + np.maximum(y - found.high, 0)
    assert report.mean_width == pytest.approx(width.mean())
    assert report.interval_score == pytest.approx((width + 20 * outside).mean())
    assert report.uncalibrated_coverage == pytest.approx(
        (np.abs(y - mean) <= 1.6448536 * raw_outputs.std).mean()
    )
    assert report.bias.value == pytest.approx((mean - y).mean())
    assert report.constant_value == pytest.approx(np.sort(y)[int(0.9 * N) - 1])
    assert report.review_rate.value == pytest.approx(found.is_reviewed.mean())
    assert sum(report.reasons.values()) == pytest.approx(1)
    # Each row was decided by what other rows taught.
    everyone = policy.decide(evidence.uncalibrated, evidence.batch.features)
    assert not np.allclose(everyone.value, found.value, rtol=1e-6)


def test_figures_by_group() -> None:
    groups = np.array(["a", "b"])[RNG.integers(0, 2, N)]
    policy, evidence = RegressionPolicy.fit_shards(
        ArrayShards(Batch.of(Y, OUTPUTS, groups=[f"{k % 30}" for k in range(N)])),
        costs=COSTS,
        calibrator=VarianceScaling(),
        interval=PLAIN,
    )
    assert len(evidence.by_group()) == 30
    plain = ValueEvidence(Batch.of(Y, OUTPUTS, groups=groups), policy.decide(OUTPUTS), 0.9, "here")
    parts = plain.by_group()
    sizes = {name: RegressionPolicyReport.of(one, policy.rule) for name, one in parts.items()}
    assert {name: one.n_rows for name, one in sizes.items()} == {
        name: int((groups == name).sum()) for name in ("a", "b")
    }


def test_members_are_decided_by_their_moments() -> None:
    members = RegressionMembers(
        np.stack([OUTPUTS.mean - 1, OUTPUTS.mean + 1]), np.stack([OUTPUTS.std] * 2)
    )
    policy = fitted(members)
    assert policy.kind == "Normal"
    close(policy.decide(members).value, policy.decide(members.normal).value, rtol=0)


def test_shards_and_missing_targets() -> None:
    y = Y.copy()
    y[:5] = np.nan
    with pytest.warns(MissingLabelsWarning, match="5 of 300"):
        with_gaps = fitted(y=y)
    without = fitted(OUTPUTS.take(slice(5, None)), Y[5:])
    close(with_gaps.decide(OUTPUTS).value, without.decide(OUTPUTS).value, rtol=1e-12)
    rows = CountedShards(ArrayShards(Batch.of(Y, OUTPUTS)))
    streamed, _ = RegressionPolicy.fit_shards(rows, costs=COSTS, calibrator=VarianceScaling())
    close(streamed.decide(OUTPUTS).value, fitted().decide(OUTPUTS).value, rtol=1e-12)


def test_blocks_of_rows_give_the_same_decisions() -> None:
    many = DRAWS.take(np.tile(np.arange(N), 50))
    policy = fitted(DRAWS, review_cost=12)
    found, once = policy.decide(many), policy.decide(DRAWS)
    close(found.value, np.tile(once.value, 50), rtol=0)
    assert found.calibrated.n_rows == len(found) == 50 * N
    assert len(policy.decide(DRAWS.take(slice(0, 0)))) == 0


def test_the_file_holds_everything(policy: RegressionPolicy, tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    policy.save(path)
    loaded = load_policy(path)
    assert isinstance(loaded, RegressionPolicy)
    assert loaded.to_json() == policy.to_json()
    assert str(loaded) == str(policy)
    one, other = policy.decide(OUTPUTS, X), loaded.decide(OUTPUTS, X)
    for name, column in one.columns().items():
        assert column.tolist() == other.columns()[name].tolist()
    with pytest.raises(BadFileError, match=r"holds a RegressionPolicy.*RegressionPolicy\.load"):
        Policy.load(path)
    path.write_text(path.read_text().replace('"review_cost": 12', '"review_cost": 15'))
    with pytest.raises(BadFileError, match="checksum"):
        load_policy(path)
    seal_policy(path)
    edited = load_policy(path)
    assert isinstance(edited, RegressionPolicy)
    assert edited.review_cost == 15
    assert "Edited by hand" in str(edited)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("review_cost", None, "`review_cost` must be given with max_width"),
        ("review_cost", 0, "above 0"),
        ("max_width", -1, "`max_width` must be a number from 0"),
        ("interval.fitted.levels_", [0.1, 0.9], "given for Quantiles only"),
        ("costs.errors", [0, 1], "at least 3 increasing"),
        ("costs.costs", [0.0, 1.0, 0.0], "fall and then rise"),
        ("costs.square", 1.0, "None beside breakpoints"),
        ("report.reasons", {"x": 1.0}, "must have the keys"),
        ("report.level", 2.0, "between 0 and 1"),
        ("feature_names", ["a"], "must have 3 names"),
        ("calibrator.fitted.kind_", "Samples", "of Normal of one target"),
        ("interval.fitted.kind_", "Quantiles", "must be"),
        ("interval.fitted.is_grouped_", True, "must need nothing but outputs"),
    ],
)
def test_contradictions_in_a_file_are_found(
    policy: RegressionPolicy, path: str, value: Any, problem: str
) -> None:
    document: dict[str, Any] = deepcopy(policy.to_dict())
    *parents, last = path.split(".")
    holder = document
    for name in parents:
        holder = holder[name]
    holder[last] = value
    with pytest.raises(DubitoError, match=problem):
        RegressionPolicy.from_dict(document)


@pytest.mark.parametrize(
    "interval",
    [0.8, ConformalRegressor(0.8, "adaptive"), ConformalRegressor(0.8, symmetric=False, n_bins=2)],
)
def test_any_interval_is_kept_in_the_file(interval: Any) -> None:
    policy = fitted(interval=interval)
    assert policy.report.level == 0.8
    assert 0.7 < policy.report.coverage.value < 0.9
    again = policy_from_json(policy.to_json())
    assert isinstance(again, RegressionPolicy)
    assert again.decide(OUTPUTS).low.tolist() == policy.decide(OUTPUTS).low.tolist()
    assert "80 % prediction intervals cover" in str(policy)


def test_quantiles_keep_their_levels() -> None:
    policy = policy_from_json(fitted(QUANTILES, costs=ErrorCosts.absolute()).to_json())
    assert isinstance(policy, RegressionPolicy)
    assert policy.levels == tuple(LEVELS)
    with pytest.raises(BadValueError, match=r"must have the levels 0.05, 0.25.*as during fit"):
        policy.decide(Quantiles([[1.0, 2.0]], [0.05, 0.95]))
    with pytest.raises(BadTypeError, match="must be Quantiles, as during fit"):
        policy.decide(OUTPUTS)


def test_what_is_decided_comes_first(policy: RegressionPolicy) -> None:
    first, second, *others = str(policy).splitlines()
    assert first.startswith("Decision: the calibrated 90 % quantile (costs: 9 per unit below")
    assert "expected cost is at least 12" in second
    assert "rows whose expected cost is at least 12, or whose 90 % prediction interval" in second
    assert "is wider than 18, or that are outliers by" in second
    assert "MahalanobisDistance" in second
    assert others[0].startswith("Mean cost per row: ")
    assert others[-1].startswith("Calibrator: VarianceScaling (")
    found = policy.decide(OUTPUTS, X)
    for code, start in (
        (0, "Action: "),
        (1, "Action: review, because a review costs less than any value"),
    ):
        row = int(np.flatnonzero(found.reason == code)[0])
        lines = policy.explain(OUTPUTS, X, row=row).splitlines()
        assert lines[0].startswith(start)
        assert "90 % prediction interval" in "".join(lines)
        assert "p-value" in lines[-1]
    assert "reviewed" in str(found)
    assert repr(policy).startswith("RegressionPolicy(Normal, 9 per unit")


def test_columns_for_a_table(policy: RegressionPolicy) -> None:
    batch = Batch.of(Y, OUTPUTS, features=X)
    columns = decision_columns(policy, batch)
    assert [*columns] == ["id", *decision_names(policy)]
    close(columns["value"], policy.decide(OUTPUTS, X).value, rtol=0)


@pytest.mark.parametrize(
    ("settings", "error", "problem"),
    [
        ({"costs": 3}, BadTypeError, "`costs` must be ErrorCosts"),
        ({"max_width": 3}, BadValueError, "`review_cost` must be given with max_width"),
        ({"features": X}, BadValueError, "`review_cost` must be given with an OOD gate"),
        ({"review_cost": 0}, BadValueError, "`review_cost` must be a finite number above 0"),
        ({"interval": 90}, BadValueError, "`interval` must be a number strictly between"),
        ({"calibrator": "best"}, BadTypeError, "`calibrator` must be 'auto', None or"),
        ({"ood": OODGate("energy"), "review_cost": 1}, BadValueError, "`ood` must score features"),
        ({"y": None}, BadTypeError, "`y` must be given"),
        ({"outputs": [0.5] * N}, BadTypeError, "`outputs` must be Normal, Samples or Quantiles"),
        ({"outputs": Normal(np.ones((N, 2)), np.ones((N, 2)))}, BadValueError, "one target"),
    ],
)
def test_settings_that_contradict_each_other(
    settings: dict[str, Any], error: type[DubitoError], problem: str
) -> None:
    with pytest.raises(error, match=problem):
        fitted(**settings)


def test_reviews_that_never_or_always_pay_are_reported() -> None:
    with pytest.warns(DubitoWarning, match="Review is optimal for none of the 300 rows"):
        policy = fitted(review_cost=1e6)
    assert policy.report.notes
    with pytest.warns(DubitoWarning, match="All rows are reviewed"):
        fitted(review_cost=0.01)


def test_features_are_required_and_named(policy: RegressionPolicy) -> None:
    with pytest.raises(BadTypeError, match="`features` must be given for the OOD gate"):
        policy.decide(OUTPUTS)
    with pytest.raises(BadValueError, match="must have 3 columns"):
        policy.decide(OUTPUTS, X[:, :2])


@pytest.mark.slow
def test_one_calibrator_is_chosen_for_all_folds() -> None:
    # Both calibrators are about as good, so that single folds would choose differently.
    rng = np.random.default_rng(0)
    center, spread = rng.uniform(20, 80, 2000), rng.uniform(2, 8, 2000)
    y = center + 1.5 * spread * rng.normal(size=2000)
    levels = [0.05, 0.25, 0.5, 0.75, 0.95]
    outputs = Quantiles(center[:, None] + spread[:, None] * norm.ppf(levels), levels)
    policy = RegressionPolicy.fit(outputs, y, costs=ErrorCosts.linear(under=4, over=1))
    assert policy.report.n_rows == 2000


def test_a_baseline_that_costs_less_is_warned_about() -> None:
    rng = np.random.default_rng(0)
    far = Normal(50 + rng.normal(size=100), np.ones(100))
    with pytest.warns(DubitoWarning, match=r"the predicted mean costs .* always deciding 5 costs"):
        RegressionPolicy.fit(far, np.full(100, 5.0), costs=ErrorCosts.linear(over=1, under=4))


def test_a_policy_is_evaluated_on_other_rows() -> None:
    train, test = np.arange(200), np.arange(200, N)
    others = Batch.of(Y[test], OUTPUTS.take(test), features=X[test])
    settings: dict[str, Any] = {"features": X[train], "ood": OODGate(alpha=0.05)}
    settings |= {"review_cost": 12, "max_width": 18}
    found = fitted(OUTPUTS.take(train), Y[train], evaluate_on=others, **settings)
    report, decisions = found.report, found.decide(OUTPUTS.take(test), X[test])
    assert (report.evaluation, report.n_rows) == ("an evaluation set", test.size)
    paid = np.where(decisions.is_reviewed, 12, COSTS.of_errors(decisions.value - Y[test]))
    close(report.cost.value, paid.mean(), rtol=1e-12)
    close(report.expected_cost, decisions.expected_cost.mean(), rtol=1e-12)
    is_inside = (decisions.low <= Y[test]) & (Y[test] <= decisions.high)
    close(report.coverage.value, is_inside.mean(), rtol=1e-12)
    assert "100 rows, an evaluation set" in str(found)
    # What is decided is learned from the same rows as without it.
    plain = fitted(OUTPUTS.take(train), Y[train], **settings)
    assert plain.report.evaluation == "cross-fitted in 5 folds"
    close(plain.decide(OUTPUTS, X).value, found.decide(OUTPUTS, X).value, rtol=0)
    shards = CountedShards(ArrayShards(others))
    same = fitted(OUTPUTS.take(train), Y[train], evaluate_on=shards, **settings)
    close(same.report.cost.value, report.cost.value, rtol=1e-12)


@pytest.mark.parametrize(
    ("others", "message"),
    [
        ("holdout", "must be 'cross-fit', a Batch or Shards, got 'holdout'"),
        (Batch.of(Y, QUANTILES), "`evaluate_on` must be Normal, as during fit, got Quantiles"),
        (Batch.of(np.full(N, np.nan), OUTPUTS), "must have at least 1 labeled row, got 0"),
        (Batch.of(None, OUTPUTS), "`evaluate_on` must have labels, got none"),
        (Batch.of(Y, OUTPUTS), "`evaluate_on` must have features for the OOD gate, got none"),
    ],
)
def test_evaluation_rows_are_checked(others: Any, message: str) -> None:
    with pytest.raises(DubitoError) as error:
        fitted(evaluate_on=others, features=X, review_cost=12)
    assert message in str(error.value)


def test_evaluation_rows_have_the_levels_of_the_fit() -> None:
    others = Batch.of(Y, Quantiles(QUANTILES.array[:, 1:4], LEVELS[1:4]))
    with pytest.raises(BadValueError, match=r"must have the levels .*, got 0\.25, 0\.5, 0\.75"):
        fitted(QUANTILES, evaluate_on=others, interval=0.9)


def test_auto_compares_costs_with_reviews_and_prefers_a_calibrator() -> None:
    rng = np.random.default_rng(0)
    spread = rng.uniform(2, 10, 600)
    mean = rng.normal(50, 20, 600)
    y = mean + 1.4 * spread * rng.normal(size=600)
    costs = ErrorCosts([-10, -5, 0, 5, 10], [40, 10, 0, 5, 30])
    policy = fitted(Normal(mean, spread), y, costs=costs, calibrator="auto", review_cost=12)
    assert policy.calibrator is not None
    assert policy.report.gap.low <= 0 <= policy.report.gap.high
    exact = fitted(Normal(mean, 1.4 * spread), y, costs=ErrorCosts.linear(3, 1), calibrator="auto")
    assert exact.calibrator is not None
