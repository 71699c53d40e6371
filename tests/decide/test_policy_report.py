"""Every figure of the report, recomputed row by row; words follow figures; files are checked."""

import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax

from dubito import Logits, audit
from dubito.calibrate import IdentityCalibrator, TemperatureScaling
from dubito.calibrate.cross_validation import make_folds
from dubito.data import Batch
from dubito.decide import CostMatrix, Policy, PolicyReport
from dubito.errors import BadValueError, InfiniteLossWarning
from dubito.measure import Interval

Array = NDArray[Any]

RNG = np.random.default_rng(0)
Z = 4 * RNG.normal(size=(400, 3))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
COSTS = CostMatrix(
    [[0, 4, 2], [1, 0, 5], [3, 1, 0], [0.6, 0.6, 0.9]], ["a", "b", "c", "ask"], reject="ask"
)


def error_of_bins(p: Array, y: Array, weight: Array) -> float:
    sure, right = p.max(axis=1), p.argmax(axis=1) == y
    number = np.ceil(sure * 15).astype(int)
    gaps = [abs((weight * (right - sure))[number == k].sum()) for k in range(1, 16)]
    return float(sum(gaps) / weight.sum())


@pytest.mark.slow
@pytest.mark.parametrize("prior", [None, np.array([0.5, 0.3, 0.2])])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_figures_are_those_of_cross_fitted_rows(prior: Any, is_weighted: bool) -> None:
    given = np.random.default_rng(1).random(400) if is_weighted else np.ones(400)
    policy = Policy.fit(
        Logits(Z),
        Y,
        costs=COSTS,
        calibrator=TemperatureScaling(),
        sample_weight=given if is_weighted else None,
        deploy_prior=prior,
    )
    train = policy.train_prior
    folds = make_folds(Batch.of(Y, Logits(Z)), 5, 0)
    order = np.concatenate([test for _, test in folds])
    logs = []
    for rows, test in folds:
        scaling = TemperatureScaling().fit(Logits(Z[rows]), Y[rows], given[rows])
        logs.append(log_softmax(Z[test] / scaling.temperature_, axis=1))
    log_p, z, y = np.concatenate(logs), Z[order], Y[order]
    weight = given[order]
    if prior is not None:
        log_p = log_softmax(log_p + np.log(prior / train), axis=1)
        weight = weight * (prior / train)[y]
    p, raw = np.exp(log_p), softmax(z, axis=1)

    def decided(shares: Array) -> Array:
        expected = shares @ COSTS.array.T
        is_asked = expected[:, 3] <= expected.min(axis=1) + 1e-9
        return np.where(is_asked, 3, expected.argmin(axis=1))

    def mean(values: Array) -> float:
        return float(np.average(values, weights=weight))

    action = decided(p)
    paid, before = COSTS.array[action, y], COSTS.array[decided(raw), y]
    expected = (p @ COSTS.array.T)[np.arange(400), action]
    report = policy.report
    constants = [mean(COSTS.array[a, y]) for a in range(4)]
    is_open = action != 3
    wrong = is_open & (paid > COSTS.array[:3, y].min(axis=0))
    figures = {
        "expected_cost": mean(expected),
        "uncalibrated_cost": mean(before),
        "constant_cost": min(constants),
        "oracle_cost": mean(COSTS.array.min(axis=0)[y]),
        "log_loss_before": mean(-log_softmax(z, axis=1)[np.arange(400), y]),
        "log_loss_after": mean(-log_p[np.arange(400), y]),
        "calibration_error_before": error_of_bins(raw, y, weight),
        "calibration_error_after": error_of_bins(p, y, weight),
    }
    for name, value in figures.items():
        assert getattr(report, name) == pytest.approx(value, abs=1e-9), name
    middles = {
        "cost": mean(paid),
        "gap": mean(expected - paid),
        "saved": mean(before - paid),
        "coverage": mean(is_open),
        "risk": (weight * wrong).sum() / (weight * is_open).sum(),
    }
    for name, value in middles.items():
        interval = getattr(report, name)
        assert interval.value == pytest.approx(value, abs=1e-9), name
        assert interval.low <= interval.value <= interval.high
        assert interval.low < interval.high
    assert report.constant_action == COSTS.actions[int(np.argmin(constants))]
    for a, name in enumerate(COSTS.actions):
        assert report.actions[name] == pytest.approx(mean(action == a))
    assert report.reasons["reject_costs_less"] == pytest.approx(mean(action == 3))
    assert report.reasons["lowest_expected_cost"] == pytest.approx(mean(is_open))
    assert report.current == "the action for the most probable class (argmax)"
    today = COSTS.array[COSTS.array[:3].argmin(axis=0)[raw.argmax(axis=1)], y]
    assert report.current_cost == pytest.approx(mean(today), abs=1e-9)
    assert report.current_saved.value == pytest.approx(mean(today - paid), abs=1e-9)
    for a, name in enumerate(COSTS.actions):
        for k in range(3):
            share = mean((action == a) & (y == k))
            assert report.confusion[name][str(k)] == pytest.approx(share, abs=1e-12)
    assert report.n_rows == 400
    assert report.evaluation == "cross-fitted in 5 folds"
    assert report.bound_cost is None
    assert report.notes == ()


def some(**others: Any) -> PolicyReport:
    figures: dict[str, Any] = {
        "evaluation": "an evaluation set",
        "n_rows": 1234,
        "cost": Interval(0.25, 0.2, 0.3),
        "expected_cost": 0.24,
        "gap": Interval(-0.01, -0.05, 0.03),
        "uncalibrated_cost": 0.5,
        "saved": Interval(0.25, 0.2, 0.3),
        "constant_action": "ask",
        "constant_cost": 0.6,
        "oracle_cost": 0.0,
        "current": "a threshold of 0.5 on the uncalibrated P(ill)",
        "current_cost": 0.375,
        "current_saved": Interval(0.125, 0.1, 0.15),
        "coverage": Interval(0.9, 0.85, 0.95),
        "risk": Interval(0.05, 0.04, 0.06),
        "bound_cost": None,
        "actions": {"a": 0.9, "ask": 0.1},
        "reasons": {"lowest_expected_cost": 1.0},
        "confusion": {"a": {"ill": 0.05, "well": 0.85}, "ask": {"ill": 0.04, "well": 0.06}},
        "uncalibrated_thresholds": (Interval(0.3, 0.2, 0.4), None),
        "log_loss_before": 1.5,
        "log_loss_after": 0.5,
        "calibration_error_before": 0.125,
        "calibration_error_after": 0.01,
        "notes": ("A note.",),
    }
    return PolicyReport(**(figures | others))


def test_words() -> None:
    assert str(some()).splitlines() == [
        "Mean cost per row: 0.2500 (0.2000 to 0.3000), 0.2500 (0.2000 to 0.3000) less than "
        "optimal decisions on uncalibrated outputs.",
        "Expected cost according to the model: 0.2400. Baselines: always 'ask' 0.6000, perfect "
        "information 0.0000.",
        "A threshold of 0.5 on the uncalibrated P(ill) costs 0.3750 per row; the policy saves "
        "0.1250 (0.1000 to 0.1500).",
        "90.0 % of rows are decided automatically (85.0 % to 95.0 %); 5.00 % of the decisions are "
        "wrong (4.00 % to 6.00 %).",
        "Of 10,000 rows:",
        "  action  true ill  true well",
        "  a            500      8,500",
        "  ask          400        600",
        "Calibration: log loss from 1.5000 to 0.5000, ECE (15 uniform bins) from 0.1250 to 0.0100.",
        "1,234 rows, an evaluation set; 95 % intervals in parentheses.",
        "A note.",
    ]


@pytest.mark.parametrize(
    ("others", "line"),
    [
        (
            {"saved": Interval(-0.25, -0.3, -0.2)},
            "Mean cost per row: 0.2500 (0.2000 to 0.3000), 0.2500 (0.2000 to 0.3000) more than "
            "optimal decisions on uncalibrated outputs.",
        ),
        (
            {"saved": Interval(0.1, -0.1, 0.3)},
            "Mean cost per row: 0.2500 (0.2000 to 0.3000), no significant difference from optimal "
            "decisions on uncalibrated outputs, savings +0.1000 (-0.1000 to +0.3000).",
        ),
        (
            {"current_saved": Interval(-0.01, -0.05, 0.03)},
            "A threshold of 0.5 on the uncalibrated P(ill) costs 0.3750 per row; the policy costs "
            "0.0100 (-0.0300 to 0.0500) more, which is not significant.",
        ),
        ({"risk": None}, "90.0 % of rows are decided automatically (85.0 % to 95.0 %)."),
        (
            {"log_loss_before": None},
            "Calibration: log loss from infinite to 0.5000, ECE (15 uniform bins) from 0.1250 to "
            "0.0100.",
        ),
        (
            {"log_loss_before": 0.5, "calibration_error_before": 0.01},
            "Calibration left log loss (0.5000) and ECE (15 uniform bins: 0.0100) unchanged.",
        ),
        (
            {"current_saved": Interval(-0.02, -0.0416, -0.0047)},
            "A threshold of 0.5 on the uncalibrated P(ill) costs 0.3750 per row; the policy costs "
            "0.0200 (0.0047 to 0.0416) more.",
        ),
        ({"bound_cost": Interval(0.0, 0.0, 0.0)}, "The risk bound does not change the cost."),
        (
            {"bound_cost": Interval(0.02, 0.01, 0.03)},
            "Effect of the risk bound on the mean cost: +0.0200 (+0.0100 to +0.0300).",
        ),
    ],
)
def test_words_follow_figures(others: dict[str, Any], line: str) -> None:
    assert line in str(some(**others)).splitlines()


@pytest.mark.parametrize("risk", [None, Interval(0.05, 0.04, 0.06)])
def test_a_report_survives_json(risk: Any) -> None:
    report = some(risk=risk)
    assert PolicyReport.from_dict(json.loads(json.dumps(report.to_dict()))) == report


WRONG: list[tuple[str, Any, str]] = [
    ("evaluation", 5, "a string"),
    ("n_rows", 1.5, "an integer"),
    ("n_rows", True, "an integer"),
    ("n_rows", 2**70, "an integer"),
    ("cost", [1.0, 2.0], "a list of 3"),
    ("cost", None, "a list"),
    ("cost", [1.0, 2.0, "x"], "a number"),
    ("expected_cost", "0.5", "a number"),
    ("expected_cost", 10**400, "a number"),
    ("expected_cost", None, "a number"),
    ("oracle_cost", float("nan"), "a number"),
    ("actions", [0.5], "a dict"),
    ("actions", {"a": None}, "a number"),
    ("confusion", {"a": {"ill": 1.5}}, "a number"),
    ("confusion", {"a": 0.5}, "a dict"),
    ("uncalibrated_thresholds", [[0.1, 0.2]], "a list of 3"),
    ("notes", "A note.", "a list"),
    ("notes", [5], "a string"),
    ("log_loss_after", [], "a number"),
]


@pytest.mark.parametrize(("name", "value", "kind"), WRONG)
def test_an_invalid_value_raises(name: str, value: Any, kind: str) -> None:
    with pytest.raises(BadValueError, match=rf"`{name}[^`]*` must be {kind}.*Restore the values"):
        PolicyReport.from_dict({**some().to_dict(), name: value})


@pytest.mark.parametrize("values", [None, [], {}, {**some().to_dict(), "more": 1}])
def test_only_a_whole_report_is_read(values: Any) -> None:
    with pytest.raises(BadValueError, match=r"PolicyReport\.from_dict: `values` must .* Restore"):
        PolicyReport.from_dict(values)


@pytest.mark.slow
@pytest.mark.parametrize("pos_label", ["legit", "fraud"])
def test_the_ece_of_two_classes_is_that_of_the_positive_one(pos_label: str) -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(-3, 1.5, 600)
    y = np.where(rng.random(600) < 1 / (1 + np.exp(-odds)), "fraud", "legit")
    outputs = Logits(2 * odds, ["legit", "fraud"])
    costs = CostMatrix.zero_one(["legit", "fraud"])
    scaling = TemperatureScaling()
    policy = Policy.fit(outputs, y, costs=costs, calibrator=scaling, pos_label=pos_label)
    positive = audit(y, outputs, pos_label=pos_label).positive
    assert positive is not None
    found = policy.report.calibration_error_before
    assert found == pytest.approx(positive.expected_calibration_error)
    assert f"ECE of P({pos_label}) (10 quantile bins) from {found:.4f} to " in str(policy.report)


def test_a_report_without_the_name_of_its_ece_is_that_of_the_top_label() -> None:
    values = some().to_dict()
    del values["calibration_error_name"]
    assert PolicyReport.from_dict(values) == some()


@pytest.mark.slow
def test_an_infinite_loss_warns_and_is_printed() -> None:
    with pytest.warns(InfiniteLossWarning) as found:
        report = Policy.fit(
            [[1.0, 0.0], [0.2, 0.8]] * 20,
            [0, 1] * 17 + [1, 0] * 3,
            costs=CostMatrix.zero_one(2),
            calibrator=TemperatureScaling(),
        ).report
    assert {one.filename for one in found} == {__file__}
    assert report.log_loss_before is None
    assert report.log_loss_after is not None
    assert "log loss from infinite to " in str(report)
    assert replace(report, notes=("x",)).to_dict()["log_loss_before"] is None
    assert set(report.to_dict()) == {field.name for field in fields(report)}


def test_what_makes_no_difference_is_said_to_be_the_same() -> None:
    rows, labels = [[0.9, 0.1], [0.1, 0.9]] * 30, [0, 1] * 30
    costs = CostMatrix.zero_one(2)
    text = str(Policy.fit(rows, labels, costs=costs, calibrator=IdentityCalibrator()).report)
    assert "the same as optimal decisions on uncalibrated outputs" in text
    assert "per row; the policy costs the same." in text
    assert "All rows are decided automatically; 0.00 % of the decisions are wrong" in text
