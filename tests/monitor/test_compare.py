"""Differences are those of `dubito.measure` and `dubito.decide`, with adjusted p-values."""

import json
from typing import Any

import numpy as np
import pandas
import pytest
from sklearn.metrics import average_precision_score, roc_auc_score

from dubito import Logits, Members, Normal, Probabilities, Quantiles, Samples, TopLabel, audit
from dubito.data import ArrayShards, Batch, Columns, scan
from dubito.decide import CostMatrix, cost_report, cost_savings
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoError,
    DubitoWarning,
    EmptyStateError,
    MissingLabelsWarning,
)
from dubito.measure import (
    Interval,
    confidence_interval,
    continuous_ranked_probability_score,
    interval_score,
    paired_difference,
)
from dubito.monitor import Comparison, Difference, compare
from dubito.monitor.metrics import TITLES
from dubito.outputs import RegressionMembers
from tests.decide.growing import growing

RNG = np.random.default_rng(0)
N = 400
Z = RNG.normal(size=(N, 3)) * 2
Y = (Z + RNG.gumbel(size=Z.shape)).argmax(axis=1)
W = RNG.exponential(size=N)
GOOD, SHARP, NOISY = Logits(Z), Logits(4 * Z), Logits(Z + 3 * RNG.normal(size=Z.shape))
FAST: dict[str, Any] = {"n_resamples": 100}


def made(**models: Any) -> Comparison:
    return compare(Y, models, **FAST)


@pytest.mark.slow
@pytest.mark.parametrize("weight", [None, W])
def test_metrics_and_paired_differences_are_those_of_measure(weight: Any) -> None:
    settings: dict[str, Any] = {
        "sample_weight": weight,
        "random_state": 2,
        "level": 0.9,
        **FAST,
    }
    found = compare(Y, {"a": GOOD, "b": SHARP, "c": NOISY}, **settings)
    for name in ("accuracy", "log_loss", "expected_calibration_error", "area_under_risk_coverage"):
        for model, outputs in {"a": GOOD, "b": SHARP, "c": NOISY}.items():
            assert found.metrics[model][name] == confidence_interval(name, Y, outputs, **settings)
        one = found.difference("b", "a", name).interval
        expected = paired_difference(name, Y, SHARP, GOOD, **settings)
        assert (one.value, one.low, one.high) == pytest.approx(
            (expected.value, expected.low, expected.high)
        )


@pytest.mark.slow
@pytest.mark.parametrize("rate", [None, [[0, 0.1], [0.02, 0], [0.01, 0.01]]])
def test_costs_are_those_of_optimal_decisions(rate: Any) -> None:
    table = [[0, 10], [1, 0], [0.5, 0.5]]
    cells = table if rate is None else growing(table, rate)
    costs = CostMatrix(cells, actions=["no", "yes", "ask"])
    y, a, b = (Y > 0).astype(float), Logits(-Z[:, 0]), Logits(3 * Z[:, 0])
    y[3] = np.nan
    row_costs = None if rate is None else np.arange(float(N))
    settings: dict[str, Any] = {"row_costs": row_costs, **FAST}
    with pytest.warns(MissingLabelsWarning) as caught:
        found = compare(y, {"a": a, "b": b}, costs=costs, random_state=1, **settings)
    settings["random_state"] = 1
    assert [one.filename for one in caught] == [__file__]
    known = np.delete(np.arange(N), 3)
    if row_costs is not None:
        settings["row_costs"] = row_costs[known]
    report = cost_report(y[known], a.take(known), costs, **settings)
    saved = cost_savings(y[known], b.take(known), a.take(known), costs, **settings).saved
    assert found.metrics["a"]["cost"] == report.realized
    assert found.difference("b", "a", "cost").interval == saved
    assert (found.best_by, found.n_rows, found.n_missing) == ("cost", N - 1, 1)
    assert found.difference("b", "a", "cost").is_better is False
    assert saved.value > 0


def test_regressions_are_compared_row_by_row() -> None:
    y = RNG.normal(size=N)
    models = {
        "right": Normal(np.zeros(N), np.ones(N)),
        "wide": Normal(np.zeros(N), np.full(N, 2.0)),
        "off": Normal(np.ones(N), np.ones(N)),
    }
    found = compare(y, models, sample_weight=W, **FAST)
    name = "continuous_ranked_probability_score"
    expected = paired_difference(
        continuous_ranked_probability_score,
        y,
        models["wide"],
        models["right"],
        sample_weight=W,
        **FAST,
    )
    one = found.difference("wide", "right", name)
    assert one.interval.value == pytest.approx(expected.value)
    assert (one.interval.low, one.interval.high) == pytest.approx((expected.low, expected.high))
    assert (found.best, found.best_by, one.is_better) == ("right", name, False)
    errors = ["interval_score_90", "mean_absolute_error", "mean_squared_error"]
    assert list(found.metrics["off"]) == [name, "negative_log_likelihood", *errors]
    value = found.metrics["wide"]["interval_score_90"].value
    assert value == pytest.approx(interval_score(y, models["wide"], sample_weight=W))


def test_only_common_metrics_are_compared() -> None:
    y = RNG.normal(size=N)
    draws = np.sort(RNG.normal(size=(N, 3)), axis=1)
    one, other = Quantiles(draws, [0.1, 0.5, 0.9]), Quantiles(draws, [0.2, 0.5, 0.8])
    crps, errors = "crps_from_quantiles", ["mean_absolute_error", "mean_squared_error"]
    same = compare(y, {"a": one, "b": one}, **FAST)
    assert list(same.metrics["a"]) == [crps, "pinball_loss", "interval_score_80", *errors]
    for model in (other, Samples(draws), Normal(draws[:, 1], np.ones(N))):
        with pytest.warns(DubitoWarning, match="leaves out the CRPS: one from quantiles"):
            unlike = compare(y, {"a": one, "b": model}, **FAST)
        found = [name for name in unlike.metrics["a"] if not name.startswith("interval_score")]
        assert found == errors
    tails = Quantiles(draws[:, :2], [0.1, 0.2])
    with pytest.warns(DubitoWarning), pytest.raises(BadValueError, match="a metric in common"):
        compare(y, {"a": tails, "b": other}, **FAST)


def test_members_of_regressions_are_compared_by_their_moments() -> None:
    y = RNG.normal(size=N)
    members = RegressionMembers(RNG.normal(size=(3, N)), np.full((3, N), 0.5))
    by_moments = compare(y, {"a": members, "b": members.normal}, **FAST)
    assert by_moments.metrics["a"] == by_moments.metrics["b"]


def test_top_labels_and_members_can_be_compared() -> None:
    top = compare(
        None, {"a": TopLabel([0.9] * 50, [1] * 50), "b": TopLabel([0.9] * 50, [0] * 50)}, **FAST
    )
    assert top.difference("b", "a", "accuracy").is_better is False
    assert top.best_by == "accuracy"
    members = Members.of([GOOD, SHARP])
    assert made(a=GOOD, b=members).metrics["b"] == made(a=GOOD, b=members.mean).metrics["b"]


def test_only_significant_differences_are_better_or_worse() -> None:
    found = made(a=NOISY, b=GOOD, same=NOISY)
    assert found.best == "b"
    assert found.difference("b", "a", "log_loss").is_better is True
    assert found.difference("same", "b", "log_loss").is_better is False
    for name in found.metrics["a"]:
        one = found.difference("same", "a", name)
        assert (one.interval.value, one.p_value, one.is_better) == (0.0, 1.0, None)


def test_p_values_are_adjusted_for_all_comparisons() -> None:
    two, three = made(a=NOISY, b=GOOD), made(a=NOISY, b=GOOD, c=SHARP)
    assert len(two.differences) == 6
    assert len(three.differences) == 18  # to the first, and of the third to the best
    for name in TITLES:
        if name in two.metrics["a"]:
            before = two.difference("b", "a", name).p_value
            assert three.difference("b", "a", name).p_value >= before


@pytest.mark.slow
def test_equal_models_rarely_differ_significantly() -> None:
    n_false = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(150, 3))
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        a, b = (Logits(z + 0.7 * rng.normal(size=z.shape)) for _ in range(2))
        found = compare(y, {"a": a, "b": b}, random_state=seed, n_resamples=60)
        n_false += any(one.is_better is not None for one in found.differences)
    assert n_false <= 5  # 5 % of 40, and less than three standard deviations more


def test_few_rows_are_never_significant() -> None:
    found = compare([0] * 19, {"a": [[0.9, 0.1]] * 19, "b": [[0.1, 0.9]] * 19}, **FAST)
    assert all(one.is_better is None for one in found.differences)
    more = compare([0] * 20, {"a": [[0.9, 0.1]] * 20, "b": [[0.1, 0.9]] * 20}, **FAST)
    assert more.difference("b", "a", "accuracy").is_better is False


def test_an_infinite_log_loss_is_not_compared() -> None:
    sure = np.array([[1.0, 0.0]] * 30)
    found = compare([1] + [0] * 29, {"a": sure, "b": sure * 0.9 + 0.05}, **FAST)
    assert "log_loss" in found.metrics["a"]
    assert all(one.metric != "log_loss" for one in found.differences)
    assert found.best == "b"
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["metrics"]["a"]["log_loss"]["value"] is None


def test_shards_of_the_same_rows_are_compared() -> None:
    expected = made(a=GOOD, b=NOISY)
    a, b = (ArrayShards(Batch.of(Y, outputs)) for outputs in (GOOD, NOISY))
    assert compare(None, {"a": a, "b": b}, **FAST).to_dict() == expected.to_dict()
    frame = pandas.DataFrame({"y": Y, **{f"a_{k}": Z[:, k] for k in range(3)}})
    frame[[f"b_{k}" for k in range(3)]] = NOISY.array
    streams = {m: scan(frame, Columns(label="y", logits=f"{m}_*")) for m in ("a", "b")}
    assert compare(None, streams, **FAST).to_dict() == expected.to_dict()


def test_json_round_trip() -> None:
    found = made(a=GOOD, b=NOISY)
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["verdict"] == found.verdict
    assert values["models"] == ["a", "b"]
    first = values["differences"][0]
    assert first["interval"]["value"] == found.differences[0].interval.value


BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: compare(Y, {"a": GOOD}),
        BadTypeError,
        r"`models` must be outputs of two or more models, by name, got 1\. Pass {'old': outputs",
    ),
    (
        lambda: compare(Y, [GOOD, NOISY]),  # type: ignore[arg-type]
        BadTypeError,
        r"`models` must be outputs of two or more models, by name, got list\. Pass {'old'",
    ),
    (
        lambda: compare(Y, {"a": GOOD, "b": Normal(np.zeros(N), np.ones(N))}),
        BadTypeError,
        r"`models\['b'\]` must hold outputs of a classifier, like .*a.*, got normal distributions",
    ),
    (
        lambda: compare(
            None,
            {
                "a": ArrayShards(Batch.of(Y, GOOD)),
                "b": ArrayShards(Batch.of(Y[:9], GOOD.take(slice(0, 9)))),
            },
        ),
        BadValueError,
        r"`models\['b'\]` must have the 400 rows of `models\['a'\]`, got 9 rows\. Pass",
    ),
    (
        lambda: compare(
            None,
            {"a": ArrayShards(Batch.of(Y, GOOD)), "b": ArrayShards(Batch.of(Y[::-1], GOOD))},
        ),
        BadValueError,
        r"`models\['b'\]` must have the labels of `models\['a'\]`, row by row, got different .*",
    ),
    (
        lambda: compare(
            [0.0],
            {"a": Normal([0.0], [1.0]), "b": Normal([0.0], [1.0])},
            costs=CostMatrix.zero_one(2),
        ),
        BadValueError,
        r"`costs` must be None for a regression, got CostMatrix\. Pass outputs over classes",
    ),
    (
        lambda: compare(Y, {"a": GOOD, "b": NOISY}, row_costs=W),
        BadValueError,
        r"`row_costs` must be None without costs, got ndarray\. Pass costs=CostMatrix",
    ),
    (lambda: compare(None, {"a": GOOD, "b": NOISY}), BadTypeError, r"`y_true`.*None.*TopLabel"),
    (
        lambda: compare([], {"a": np.zeros((0, 2)), "b": np.zeros((0, 2))}),
        EmptyStateError,
        r"A comparison needs at least 1 labeled row",
    ),
    (lambda: compare(Y, {"a": GOOD, "b": NOISY}, level=95), BadValueError, r"`level`.*95.*100"),
    (
        lambda: compare(Y, {"a": GOOD, "b": NOISY}, random_state=-1),
        BadValueError,
        r"`random_state` must be .*, got -1",
    ),
    (
        lambda: made(a=GOOD, b=NOISY).difference("a", "b", "accuracy"),
        BadValueError,
        r"`model` must be one of b - a .*, got a - b in accuracy\. See `differences`",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_bad_arguments_raise_an_error(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


FAR, NEAR = Interval(-0.031, -0.035, -0.027), Interval(0.001, -0.002, 0.004)


def difference(
    model: str, baseline: str, metric: str, interval: Interval, is_better: bool | None
) -> Difference:
    return Difference(model, baseline, metric, interval, 0.5, is_better)


def text_of(differences: list[Difference], models: tuple[str, ...] = ("A", "B")) -> Comparison:
    names = dict.fromkeys(d.metric for d in differences)
    metrics = {m: dict.fromkeys(names, Interval(0.25, 0.2, 0.3)) for m in models}
    return Comparison(models, "B", "log_loss", metrics, tuple(differences), 0.95, 1200, 3)


def test_significant_differences_come_with_their_size() -> None:
    found = text_of(
        [difference("B", "A", "log_loss", FAR, True), difference("B", "A", "accuracy", NEAR, None)]
    )
    assert found.verdict == (
        "B is better than A in log loss by 0.0310 (0.0270 to 0.0350); no significant difference in "
        "accuracy."
    )
    mixed = text_of(
        [
            difference("B", "A", "log_loss", FAR, True),
            difference("B", "A", "brier_score", NEAR, False),
            difference("B", "A", "accuracy", FAR, False),
        ]
    )
    assert mixed.verdict == (
        "B is better than A in log loss by 0.0310 (0.0270 to 0.0350) but worse in Brier score by "
        "0.0010 (-0.0020 to 0.0040) and accuracy by 0.0310 (0.0270 to 0.0350)."
    )


def test_worse_and_similar_models_are_reported() -> None:
    worse = text_of([difference("B", "A", "log_loss", FAR, False)])
    assert worse.verdict == "B is worse than A in log loss by 0.0310 (0.0270 to 0.0350)."
    unsure = text_of(
        [difference("B", "A", m, NEAR, None) for m in ("log_loss", "accuracy", "brier_score")]
    )
    assert unsure.verdict == (
        "No significant difference between B and A in log loss, accuracy and Brier score."
    )


def test_of_several_the_best_is_named() -> None:
    models = ("A", "B", "C", "D")
    found = text_of(
        [
            difference("B", "A", "log_loss", FAR, True),
            difference("C", "A", "log_loss", NEAR, None),
            difference("D", "A", "log_loss", NEAR, None),
            difference("C", "B", "log_loss", NEAR, None),
            difference("D", "B", "log_loss", NEAR, False),
        ],
        models,
    )
    assert found.verdict.endswith(
        "Best by log loss on these rows: B, significantly better than A and D, but not than C."
    )
    alone = text_of([difference(m, "A", "log_loss", NEAR, None) for m in "BC"], ("A", "B", "C"))
    assert alone.verdict.endswith("Best by log loss on these rows: B, but not significantly.")


def test_few_rows_and_infinite_losses_are_reported() -> None:
    few = compare([0] * 5, {"A": [[0.9, 0.1]] * 5, "B": [[0.1, 0.9]] * 5}, n_resamples=40)
    assert few.verdict == "Too few rows to compare models (5)."
    sure = np.array([[1.0, 0.0]] * 30)
    endless = compare([1] + [0] * 29, {"A": sure, "B": sure * 0.9 + 0.05}, n_resamples=40)
    assert endless.verdict.endswith(
        "The log loss of A is infinite: a class with probability 0 occurred."
    )


def test_the_text_fits_into_80_columns() -> None:
    found = text_of(
        [difference("B", "A", "log_loss", FAR, True), difference("B", "A", "accuracy", NEAR, None)]
    )
    assert str(found).splitlines() == [
        "B is better than A in log loss by 0.0310 (0.0270 to 0.0350); no significant",
        "difference in accuracy.",
        "",
        "1,200 rows; 3 more without a label left out. 95 % intervals in parentheses;",
        "better and worse are significant after correction for 2 comparisons (Holm).",
        "",
        "  A",
        "    log loss                       0.2500 (0.2000 to 0.3000)",
        "    accuracy                       0.2500 (0.2000 to 0.3000)",
        "",
        "  B",
        "    log loss                       0.2500 (0.2000 to 0.3000)",
        "    accuracy                       0.2500 (0.2000 to 0.3000)",
        "",
        "  B - A",
        "    log loss                       -0.0310 (-0.0350 to -0.0270)  better",
        "    accuracy                       +0.0010 (-0.0020 to +0.0040)",
    ]


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_long_names_and_large_numbers_fit(scale: float) -> None:
    rng = np.random.default_rng(0)
    y = scale * rng.normal(size=50)
    models: dict[str, Any] = {
        "x" * 200: Normal(y, np.full(50, scale)),
        "y" * 200: Normal(-y, np.full(50, scale)),
    }
    lines = str(compare(y, models, n_resamples=40)).splitlines()
    indented = [line for line in lines if line.startswith("  ")]
    assert max(map(len, indented)) <= 80
    z = Logits(rng.normal(size=(50, 3)))
    found = compare([0] * 50, {"old": z, "new": Logits(2 * z.array)}, n_resamples=40)
    assert max(map(len, str(found).splitlines())) <= 80


def test_the_positive_class_of_two_is_compared() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(-2, 1.5, 600)
    y = (rng.random(600) < 1 / (1 + np.exp(-odds))) * 1
    a, b = (1 / (1 + np.exp(-(odds + rng.normal(0, noise, 600)))) for noise in (2.0, 0.3))
    weight = rng.integers(0, 3, 600).astype(float)
    found = compare(y, {"a": a, "b": b}, sample_weight=weight, n_resamples=100)
    for name, p in (("a", a), ("b", b)):
        values = {key: one.value for key, one in found.metrics[name].items()}
        inner = audit(y, p, sample_weight=weight, n_resamples=0).positive
        assert inner is not None
        assert values["roc_auc"] == pytest.approx(roc_auc_score(y, p, sample_weight=weight))
        wanted = average_precision_score(y, p, sample_weight=weight)
        assert values["average_precision"] == pytest.approx(wanted)
        assert values["brier_skill_score"] == pytest.approx(inner.brier_skill_score)
        wanted = inner.expected_calibration_error
        assert values["positive_expected_calibration_error"] == pytest.approx(wanted)
    change = found.difference("b", "a", "roc_auc")
    assert change.is_better
    assert 0 < change.interval.low < change.interval.value < change.interval.high
    named = compare(
        np.where(y, "bad", "good"),
        {"a": Probabilities(a, ["good", "bad"]), "b": Probabilities(b, ["good", "bad"])},
        sample_weight=weight,
        n_resamples=100,
        pos_label="bad",
    )
    assert named.metrics["b"]["roc_auc"] == found.metrics["b"]["roc_auc"]
