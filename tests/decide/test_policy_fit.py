"""Each part is fitted on all rows; thresholds, gates and figures come from rows held out."""

import re
from typing import Any, cast

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import softmax

from dubito import Logits
from dubito.calibrate import (
    AutoCalibrator,
    IdentityCalibrator,
    IsotonicCalibration,
    OneVsRest,
    TemperatureScaling,
)
from dubito.calibrate.calibrator import ColumnBlock
from dubito.calibrate.cross_validation import make_folds
from dubito.data import ArrayShards, Batch
from dubito.decide import CostMatrix, OODGate, Policy, RiskBound, choose_threshold
from dubito.decide.policy import fit as module
from dubito.decide.policy.fit import HeldOutRows, PolicyConfig, _train_prior, fit_parts
from dubito.doubt import ConformalOutlierDetector, MahalanobisDistance
from dubito.errors import BadValueError, DubitoWarning, SingleClassWarning

Array = NDArray[Any]

RNG = np.random.default_rng(0)
Z = 4 * RNG.normal(size=(500, 3))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
X = RNG.normal(size=(500, 2)) + 2 * Y[:, np.newaxis]
COSTS = CostMatrix.zero_one(3).with_reject(0.5)


def batch_of(**others: Any) -> Batch:
    return Batch.of(Y, Logits(Z), **others)


def config_of(**others: Any) -> PolicyConfig:
    config: dict[str, Any] = {
        "costs": COSTS,
        "calibrator": TemperatureScaling(),
        "train_prior": _train_prior(ArrayShards(batch_of())),
        "deploy_prior": None,
        "ood": None,
        "risk": None,
        "seed": 0,
    }
    return PolicyConfig(**(config | others))


def held_out_by_hand(folds: list[Any]) -> Array:
    parts = []
    for train, test in folds:
        scaling = TemperatureScaling().fit(Logits(Z[train]), Y[train])
        parts.append(softmax(Z[test] / scaling.temperature_, axis=1))
    return np.concatenate(parts)


@pytest.mark.slow
def test_held_out_rows_are_calibrated_by_the_other_folds() -> None:
    batch = batch_of(features=X)
    folds = make_folds(batch, 5, 0)
    order = np.concatenate([test for _, test in folds])
    scaling = TemperatureScaling().fit(Logits(Z), Y)
    held = HeldOutRows.of(
        ArrayShards(batch), scaling, config_of(ood=OODGate(MahalanobisDistance(), 0.05))
    )
    assert softmax(held.calibrated.array, axis=1) == pytest.approx(
        held_out_by_hand(folds), abs=1e-9
    )
    assert np.array_equal(np.asarray(held.batch.features), X[order])
    is_ood = []
    for train, test in folds:
        doubts = {
            i: d
            for t, u in folds
            if u is not test
            for i, d in zip(u, MahalanobisDistance().fit(X[t], Y[t]).score(X[u]), strict=True)
        }
        mine = MahalanobisDistance().fit(X[train], Y[train]).score(X[test])
        region = ConformalOutlierDetector(0.05).fit(list(doubts.values()))
        is_ood += region.predict(mine).tolist()
    assert held.is_ood is not None
    assert held.is_ood.tolist() == is_ood
    assert 0 < np.mean(is_ood) < 0.1


@pytest.mark.slow
def test_the_bound_is_chosen_on_rows_that_costs_leave_open() -> None:
    batch = batch_of()
    folds = make_folds(batch, 5, 0)
    order = np.concatenate([test for _, test in folds])
    p = held_out_by_hand(folds)
    parts = fit_parts(ArrayShards(batch), config_of(risk=RiskBound(0.25, 0.1)))[0]
    is_open = 1 - p.max(axis=1) < 0.5 - 1e-9
    choice = choose_threshold(Y[order][is_open], p[is_open], risk=0.25, delta=0.1)
    assert parts["risk"] is not None
    assert parts["risk"].threshold_ == choice.threshold
    assert parts["risk"].summary_ == choice.summary
    assert choice.is_met
    note = f"Risk bound on the rows that costs do not reject: {choice.summary}"
    assert parts["report"].notes == (note,)


@pytest.mark.slow
def test_the_bound_in_the_report_is_chosen_without_the_rows_it_decides() -> None:
    batch = batch_of()
    folds = make_folds(batch, 5, 0)
    fold_of = np.repeat(np.arange(5), [test.size for _, test in folds])
    y, p = Y[np.concatenate([test for _, test in folds])], held_out_by_hand(folds)
    parts = fit_parts(ArrayShards(batch), config_of(risk=RiskBound(0.25, 0.1)))[0]
    paid, unbound = np.empty(500), np.empty(500)
    sure = p.max(axis=1)
    is_open = 1 - sure < 0.5 - 1e-9
    for fold in range(5):
        others, here = is_open & (fold_of != fold), fold_of == fold
        threshold = choose_threshold(y[others], p[others], risk=0.25, delta=0.1).threshold
        is_wrong = p.argmax(axis=1) != y
        unbound[here] = np.where(is_open, is_wrong, 0.5)[here]
        paid[here] = np.where(is_open & (sure > threshold + 1e-9), is_wrong, 0.5)[here]
    assert parts["report"].cost.value == pytest.approx(paid.mean())
    assert parts["report"].bound_cost is not None
    assert parts["report"].bound_cost.value == pytest.approx((paid - unbound).mean())
    assert parts["report"].bound_cost.value != 0


@pytest.mark.slow
def test_where_costs_reject_every_row_there_is_nothing_to_bound() -> None:
    costs = CostMatrix.zero_one(3).with_reject(0)
    policy = Policy.fit(
        Logits(Z), Y, costs=costs, calibrator=TemperatureScaling(), risk=RiskBound(0.1)
    )
    assert policy.risk is not None
    assert policy.risk.threshold_ == 1.0
    assert policy.report.notes == (
        "Risk bound on the rows that costs do not reject: every row is rejected because of its "
        "costs.",
    )
    assert policy.report.risk is None
    assert policy.report.coverage.value == 0


def test_rows_that_weigh_nothing_where_the_policy_works_choose_no_bound() -> None:
    """A bound for rows of two classes alone is the same as one fitted without the third."""
    priors = {"train_prior": np.full(3, 1 / 3), "deploy_prior": np.array([0.5, 0.5, 0.0])}
    batch = batch_of()
    held = HeldOutRows.of(
        ArrayShards(batch),
        TemperatureScaling().fit(Logits(Z), Y),
        config_of(**priors, risk=RiskBound(0.3)),
    )
    labels = np.asarray(getattr(held.batch.labels, "codes"))  # noqa: B009
    assert held.weight == pytest.approx(np.where(labels == 2, 0.0, 1.5))
    every = held.choose_threshold(held.all_rows)
    two = held.choose_threshold(np.flatnonzero(labels < 2))
    assert every.n == two.n
    assert every.threshold == two.threshold


def test_the_prior_of_labels() -> None:
    weight = np.arange(500.0)
    counts = np.array([weight[np.equal(Y, k)].sum() for k in range(3)])
    found = _train_prior(ArrayShards(batch_of(sample_weight=weight)))
    assert found == pytest.approx((counts + 1 / 3) / (counts.sum() + 1))
    assert not found.flags.writeable
    absent = _train_prior(ArrayShards(Batch.of([0, 0], [[0.5, 0.5]] * 2)))
    assert absent == pytest.approx([2.5 / 3, 0.5 / 3])


def test_rows_weigh_as_much_as_their_classes_where_the_policy_works() -> None:
    train, deploy = np.array([0.5, 0.25, 0.25]), np.array([0.1, 0.2, 0.7])
    priors = {"train_prior": train, "deploy_prior": deploy}
    ratio = np.array([0.2, 0.8, 2.8])
    weight = np.arange(1.0, 501.0)
    assert config_of().deployed_weight(batch_of(sample_weight=weight)).tolist() == weight.tolist()
    found = config_of(**priors).deployed_weight(batch_of(sample_weight=weight))
    assert found == pytest.approx(weight * ratio[Y])
    soft = 0.7 * np.eye(3)[Y] + 0.1
    votes = config_of(**priors).deployed_weight(Batch.of(soft, Logits(Z)))
    assert votes == pytest.approx(soft @ ratio)


@pytest.mark.slow
def test_curves_lose_knots_but_hardly_move() -> None:
    curves = OneVsRest(IsotonicCalibration())
    policy = Policy.fit(Logits(Z), Y, costs=COSTS, calibrator=curves)
    whole = OneVsRest(IsotonicCalibration()).fit(Logits(Z), Y)
    thin = policy.calibrator
    assert isinstance(thin, OneVsRest)
    kept = [curve.knots_.size for curve in thin.calibrators_]
    assert all(few <= one.knots_.size for few, one in zip(kept, whole.calibrators_, strict=True))
    rows = ColumnBlock(Logits(Z))
    gap = np.abs(thin._separate_probabilities(rows) - whole._separate_probabilities(rows)).max()
    assert gap <= module.KNOT_BOUND + 1e-12


@pytest.mark.slow
def test_a_contest_is_held_once(monkeypatch: pytest.MonkeyPatch) -> None:
    fits = []
    learn = AutoCalibrator._learn

    def counted(self: AutoCalibrator, shards: Any) -> None:
        fits.append(1)
        learn(self, shards)

    monkeypatch.setattr(AutoCalibrator, "_learn", counted)
    Policy.fit(Logits(Z), Y, costs=COSTS)
    assert len(fits) == 1


@pytest.mark.slow
def test_many_rows_are_judged_by_a_seeded_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_SAMPLES", 120)
    scaling = TemperatureScaling()
    one, same, other = (
        Policy.fit(Logits(Z), Y, costs=COSTS, calibrator=scaling, random_state=seed)
        for seed in (0, 0, 1)
    )
    assert (one.report.n_rows, one.report.evaluation) == (240, "cross-fitted in 2 folds")
    assert one.provenance["n_rows"] == 500
    assert one.report == same.report
    assert one.report != other.report
    everything = TemperatureScaling().fit(Logits(Z), Y)
    assert one.calibrator.to_dict() == other.calibrator.to_dict()
    assert getattr(one.calibrator, "temperature_") == everything.temperature_  # noqa: B009
    monkeypatch.setattr(module, "MAX_SAMPLES", 300)  # too few for two halves of that size
    report = Policy.fit(Logits(Z), Y, costs=COSTS, calibrator=scaling).report
    assert (report.n_rows, report.evaluation) == (300, "cross-fitted in 5 folds")


def test_groups_are_never_parted() -> None:
    groups = np.arange(500) // 50
    policy = Policy.fit(Logits(Z), Y, costs=COSTS, calibrator=TemperatureScaling(), groups=groups)
    p, y = [], []
    for train, test in make_folds(batch_of(groups=groups), 5, 0):
        assert not set(groups[train]) & set(groups[test])
        scaling = TemperatureScaling().fit(Logits(Z[train]), Y[train])
        p.append(softmax(Z[test] / scaling.temperature_, axis=1))
        y.append(Y[test])
    shares, truth = np.concatenate(p), np.concatenate(y)
    asked = 1 - shares.max(axis=1) >= 0.5 - 1e-9
    paid = np.where(asked, 0.5, shares.argmax(axis=1) != truth)
    assert policy.report.cost.value == pytest.approx(paid.mean())


def test_one_row_is_too_few() -> None:
    with pytest.raises(BadValueError) as caught:
        Policy.fit([[0.5, 0.5]], [0], costs=CostMatrix.zero_one(2), calibrator=TemperatureScaling())
    assert str(caught.value) == (
        "Policy.fit: `outputs` must have at least 2 labeled rows, got 1. "
        "Pass more rows with labels."
    )


def test_labels_of_a_single_class_say_nothing_about_the_others() -> None:
    p = [[0.9, 0.1], [0.8, 0.2], [0.7, 0.3]]
    with pytest.warns(SingleClassWarning, match="all 3"), pytest.raises(BadValueError) as caught:
        Policy.fit(p, [0, 0, 0], costs=CostMatrix.zero_one(2), calibrator=TemperatureScaling())
    assert str(caught.value) == (
        "Policy.fit: `y` must hold labels of two classes or more, got 0 in every row. "
        "Add rows of other classes."
    )


@pytest.mark.slow
def test_too_few_rows_for_a_gate_warn_once() -> None:
    with pytest.warns(DubitoWarning) as caught:
        Policy.fit(
            Logits(Z[:60]),
            Y[:60],
            costs=COSTS,
            calibrator=TemperatureScaling(),
            features=X[:60],
            ood=OODGate(alpha=0.01),
        )
    assert len(caught) == 1
    assert re.search("60 .*alpha ?= ?0.01.*100 rows", str(caught[0].message))


def test_an_evaluation_set_must_suit_the_policy() -> None:
    with pytest.raises(BadValueError, match="must have 3 columns, as during fit, got 2"):
        Policy.fit(
            Logits(Z),
            Y,
            costs=COSTS,
            calibrator=TemperatureScaling(),
            evaluate_on=Batch.of([0, 1], [[0.5, 0.5]] * 2),
        )


@pytest.mark.slow
def test_a_bound_on_the_mean_cost_is_kept_on_new_rows() -> None:
    costs = CostMatrix([[0, 1, 4], [2, 0, 1], [5, 3, 0]]).with_reject(1.5)
    policy = Policy.fit(
        Logits(Z), Y, costs=costs, calibrator=TemperatureScaling(), risk=RiskBound(max_cost=0.5)
    )
    assert policy.risk is not None
    assert "at most 0.5 with 95 % confidence" in policy.risk.summary_
    rng = np.random.default_rng(1)
    new = 4 * rng.normal(size=(20_000, 3))
    y = (new / 2 + rng.gumbel(size=new.shape)).argmax(axis=1)
    found = policy.decide(Logits(new))
    is_open = ~found.is_rejected
    paid = costs.array[found.action[is_open], y[is_open]]
    assert 0.2 < is_open.mean() < 1
    assert 0.2 < paid.mean() <= 0.5
    bound = found.reason == 2
    assert (found.probabilities[is_open] @ costs.array.T).min(axis=1).max() < (
        found.probabilities[bound] @ costs.array[:3].T
    ).min(axis=1).min()
    again = Policy.from_json(policy.to_json())
    assert (again.decide(Logits(new)).action == found.action).all()
    lines = policy.explain(Logits(new), row=int(np.flatnonzero(bound)[0]))
    assert "Expected cost of the best non-reject action: " in lines
    assert " set by the risk bound (a mean cost of at most 0.5 among decided rows)." in lines
    soft = 0.9 * np.eye(3)[Y] + 0.1 / 3
    kept = Policy.fit(
        Logits(Z), soft, costs=costs, calibrator=TemperatureScaling(), risk=RiskBound(max_cost=1.0)
    )
    assert kept.risk is not None
    assert "at most 1 with" in kept.risk.summary_


def test_frequency_weights_count_as_rows_of_a_risk_bound() -> None:
    settings: dict[str, Any] = {"costs": COSTS, "calibrator": IdentityCalibrator()}
    risk = RiskBound(0.25)
    once = Policy.fit(Logits(Z / 2), Y, risk=risk, **settings)
    twice = Policy.fit(Logits(Z / 2), Y, risk=risk, sample_weight=np.full(500, 2.0), **settings)
    assert once.risk is not None
    assert twice.risk is not None
    n_once, n_twice = (
        int(re.findall(r"of ([\d,]+) rows", one.summary_)[0].replace(",", ""))
        for one in (once.risk, twice.risk)
    )
    assert n_twice == 2 * n_once
    assert twice.report.coverage.value >= once.report.coverage.value


@pytest.mark.parametrize(
    ("risk", "costs", "message"),
    [
        (RiskBound(), COSTS, "`max_risk` must be given, or else `max_cost`, got neither. Use"),
        (RiskBound(0.1, max_cost=1), COSTS, "`max_risk` must be given, .* got both. Use"),
        (RiskBound(max_cost=-1), COSTS, "`max_cost` must be at least 0, the lowest cost, got -1."),
        (RiskBound(max_cost=cast("Any", "x")), COSTS, "`max_cost` must be a number .* got 'x'"),
        (
            RiskBound(max_cost=1),
            CostMatrix([[0, "1 + amount"], [1, 0]]).with_reject(0.3),
            r"`risk` with max_cost needs costs that are the same for all rows, got 1 \+ amount.",
        ),
    ],
)
def test_risk_bounds_that_cannot_hold_raise(risk: Any, costs: Any, message: str) -> None:
    outputs = Logits(Z[:, : costs.n_classes])
    row_costs = np.ones(500) if costs.columns else None
    y = np.minimum(Y, costs.n_classes - 1)
    with pytest.raises(BadValueError, match=message):
        Policy.fit(outputs, y, costs=costs, risk=risk, row_costs=row_costs)
