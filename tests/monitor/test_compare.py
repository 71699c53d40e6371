"""Differences are the paired ones of `dubito.measure` and `dubito.decide`; claims are held."""

import json
from typing import Any

import numpy as np
import pandas
import pytest

from dubito import Logits, Members, Normal, Quantiles, Samples, TopLabel
from dubito.data import ArrayShards, Batch, Columns, scan
from dubito.decide import CostMatrix, cost_report, cost_savings
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoError,
    EmptyStateError,
    MissingLabelsWarning,
)
from dubito.measure import (
    confidence_interval,
    continuous_ranked_probability_score,
    paired_difference,
)
from dubito.monitor import Comparison, compare
from dubito.monitor.metrics import TITLES

RNG = np.random.default_rng(0)
N = 400
Z = RNG.normal(size=(N, 3)) * 2
Y = (Z + RNG.gumbel(size=Z.shape)).argmax(axis=1)
W = RNG.exponential(size=N)
GOOD, SHARP, NOISY = Logits(Z), Logits(4 * Z), Logits(Z + 3 * RNG.normal(size=Z.shape))
FAST: dict[str, Any] = {"n_resamples": 100}


def made(**models: Any) -> Comparison:
    return compare(Y, models, **FAST)


@pytest.mark.parametrize("weight", [None, W])
def test_figures_and_differences_are_the_paired_ones_of_the_metrics(weight: Any) -> None:
    settings: dict[str, Any] = {"sample_weight": weight, "seed": 2, "level": 0.9, **FAST}
    found = compare(Y, {"a": GOOD, "b": SHARP, "c": NOISY}, **settings)
    for name in ("accuracy", "log_loss", "expected_calibration_error", "area_under_risk_coverage"):
        for model, outputs in {"a": GOOD, "b": SHARP, "c": NOISY}.items():
            assert found.figures[model][name] == confidence_interval(name, Y, outputs, **settings)
        one = found.difference("b", "a", name).interval
        expected = paired_difference(name, Y, SHARP, GOOD, **settings)
        assert (one.value, one.low, one.high) == pytest.approx(
            (expected.value, expected.low, expected.high)
        )


@pytest.mark.parametrize("rate", [None, [[0, 0.1], [0.02, 0], [0.01, 0.01]]])
def test_costs_are_those_of_deciding_by_each(rate: Any) -> None:
    table = [[0, 10], [1, 0], [0.5, 0.5]]
    costs = CostMatrix(table, actions=["no", "yes", "ask"], rate=rate)
    y, a, b = (Y > 0).astype(float), Logits(-Z[:, 0]), Logits(3 * Z[:, 0])
    y[3] = np.nan
    row_costs = None if rate is None else np.arange(float(N))
    settings: dict[str, Any] = {"row_costs": row_costs, "seed": 1, **FAST}
    with pytest.warns(MissingLabelsWarning) as caught:
        found = compare(y, {"a": a, "b": b}, costs=costs, **settings)
    assert [one.filename for one in caught] == [__file__]
    known = np.delete(np.arange(N), 3)
    if row_costs is not None:
        settings["row_costs"] = row_costs[known]
    report = cost_report(y[known], a.take(known), costs, **settings)
    saved = cost_savings(y[known], b.take(known), a.take(known), costs, **settings).saved
    assert found.figures["a"]["cost"] == report.realized
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
    assert list(found.figures["off"]) == [name, "negative_log_likelihood", "mean_squared_error"]


def test_only_what_all_models_tell_is_compared() -> None:
    y = RNG.normal(size=N)
    draws = np.sort(RNG.normal(size=(N, 3)), axis=1)
    one, other = Quantiles(draws, [0.1, 0.5, 0.9]), Quantiles(draws, [0.2, 0.5, 0.8])
    crps, error = "continuous_ranked_probability_score", "mean_squared_error"
    same = compare(y, {"a": one, "b": one}, **FAST)
    assert list(same.figures["a"]) == [crps, "pinball_loss", error]
    unlike = compare(y, {"a": one, "b": other}, **FAST)
    assert list(unlike.figures["a"]) == [crps, error]
    mixed = compare(y, {"a": one, "b": Samples(draws)}, **FAST)
    assert list(mixed.figures["b"]) == [crps, error]


def test_top_labels_and_members_can_be_compared() -> None:
    top = compare(
        None, {"a": TopLabel([0.9] * 50, [1] * 50), "b": TopLabel([0.9] * 50, [0] * 50)}, **FAST
    )
    assert top.difference("b", "a", "accuracy").is_better is False
    assert top.best_by == "accuracy"
    members = Members.of([GOOD, SHARP])
    assert made(a=GOOD, b=members).figures["b"] == made(a=GOOD, b=members.mean).figures["b"]


def test_what_is_sure_is_said_and_nothing_else() -> None:
    found = made(a=NOISY, b=GOOD, same=NOISY)
    assert found.best == "b"
    assert found.difference("b", "a", "log_loss").is_better is True
    assert found.difference("same", "b", "log_loss").is_better is False
    for name in found.figures["a"]:
        one = found.difference("same", "a", name)
        assert (one.interval.value, one.p_value, one.is_better) == (0.0, 1.0, None)


def test_p_values_are_adjusted_for_all_comparisons() -> None:
    two, three = made(a=NOISY, b=GOOD), made(a=NOISY, b=GOOD, c=SHARP)
    assert len(two.differences) == 6
    assert len(three.differences) == 18  # to the first, and of the third to the best
    for name in TITLES:
        if name in two.figures["a"]:
            before = two.difference("b", "a", name).p_value
            assert three.difference("b", "a", name).p_value >= before


def test_equal_models_are_seldom_told_apart() -> None:
    n_false = 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        z = rng.normal(size=(150, 3))
        y = (z + rng.gumbel(size=z.shape)).argmax(axis=1)
        a, b = (Logits(z + 0.7 * rng.normal(size=z.shape)) for _ in range(2))
        found = compare(y, {"a": a, "b": b}, seed=seed, n_resamples=60)
        n_false += any(one.is_better is not None for one in found.differences)
    assert n_false <= 5  # 5 % of 40, and less than three standard deviations more


def test_few_rows_prove_nothing() -> None:
    found = compare([0] * 19, {"a": [[0.9, 0.1]] * 19, "b": [[0.1, 0.9]] * 19}, **FAST)
    assert all(one.is_better is None for one in found.differences)
    more = compare([0] * 20, {"a": [[0.9, 0.1]] * 20, "b": [[0.1, 0.9]] * 20}, **FAST)
    assert more.difference("b", "a", "accuracy").is_better is False


def test_an_infinite_log_loss_is_told_and_not_compared() -> None:
    sure = np.array([[1.0, 0.0]] * 30)
    found = compare([1] + [0] * 29, {"a": sure, "b": sure * 0.9 + 0.05}, **FAST)
    assert "log_loss" in found.figures["a"]
    assert all(one.metric != "log_loss" for one in found.differences)
    assert found.best == "b"
    values = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert values["figures"]["a"]["log_loss"]["value"] is None


def test_shards_of_the_same_rows_are_compared() -> None:
    expected = made(a=GOOD, b=NOISY)
    a, b = (ArrayShards(Batch.of(Y, outputs)) for outputs in (GOOD, NOISY))
    assert compare(None, {"a": a, "b": b}, **FAST).to_dict() == expected.to_dict()
    frame = pandas.DataFrame({"y": Y, **{f"a_{k}": Z[:, k] for k in range(3)}})
    frame[[f"b_{k}" for k in range(3)]] = NOISY.array
    streams = {m: scan(frame, Columns(label="y", logits=f"{m}_*")) for m in ("a", "b")}
    assert compare(None, streams, **FAST).to_dict() == expected.to_dict()


def test_it_goes_through_json() -> None:
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
        "`models` of compare must be outputs of two models or more, by name. Got 1 of them. "
        "Try {'old': outputs, 'new': outputs}.",
    ),
    (
        lambda: compare(Y, [GOOD, NOISY]),  # type: ignore[arg-type]
        BadTypeError,
        "`models` of compare must be outputs of two models or more, by name. Got list. "
        "Try {'old': outputs, 'new': outputs}.",
    ),
    (
        lambda: compare(Y, {"a": GOOD, "b": Normal(np.zeros(N), np.ones(N))}),
        BadTypeError,
        "`models['b']` of compare must be of classes, like the first, or of numbers, like it. "
        "Got Normal. Try one kind of models.",
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
        "`models['b']` of compare must be of the 400 rows of the first. Got 9 rows. "
        "Try outputs of the same rows, in order.",
    ),
    (
        lambda: compare(
            None,
            {"a": ArrayShards(Batch.of(Y, GOOD)), "b": ArrayShards(Batch.of(Y[::-1], GOOD))},
        ),
        BadValueError,
        "`models['b']` of compare must be of the 400 rows of the first. Got other labels. "
        "Try outputs of the same rows, in order.",
    ),
    (
        lambda: compare(
            [0.0],
            {"a": Normal([0.0], [1.0]), "b": Normal([0.0], [1.0])},
            costs=CostMatrix.zero_one(2),
        ),
        BadValueError,
        "`costs` of compare must be None for a regression. Got CostMatrix. "
        "Try outputs over classes.",
    ),
    (
        lambda: compare(Y, {"a": GOOD, "b": NOISY}, row_costs=W),
        BadValueError,
        "`row_costs` of compare must be None, as no cost grows with it. Got ndarray. "
        "Try `costs=CostMatrix(..., rate=...)` with it.",
    ),
    (
        lambda: compare(None, {"a": GOOD, "b": NOISY}),
        BadTypeError,
        "compare: `y_true` must be the labels, got None. Pass the labels, or "
        "TopLabel(confidence, correct) as outputs.",
    ),
    (
        lambda: compare([], {"a": np.zeros((0, 2)), "b": np.zeros((0, 2))}),
        EmptyStateError,
        "A comparison needs at least 1 labeled row of positive weight, got 0. Check that not all "
        "labels are missing and not all weights are 0.",
    ),
    (
        lambda: compare(Y, {"a": GOOD, "b": NOISY}, level=95),
        BadValueError,
        "compare: `level` must be a number strictly between 0 and 1, got 95. Divide percentages "
        "by 100.",
    ),
    (
        lambda: made(a=GOOD, b=NOISY).difference("a", "b", "accuracy"),
        BadValueError,
        "`model` of difference must be one of b less a, in a metric of both. "
        "Got a less b in accuracy. Try one of `differences`.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_told(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message
