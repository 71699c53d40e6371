import json
from typing import Any

import numpy as np
import pytest

from dubito import Normal, Probabilities, Quantiles
from dubito.arrays import FloatArray
from dubito.doubt import OnlineConformal, PredictionIntervals, PredictionSets
from dubito.errors import BadTypeError, BadValueError, UnfittedError
from dubito.serialization.documents import decode_document, encode_document

METHODS: list[Any] = ["aci", "tracking", "pi", "auto"]


def drifting(n: int = 1200, seed: int = 0) -> tuple[FloatArray, FloatArray]:
    """Return forecasts of 20 and truths whose spread and bias change."""
    rng = np.random.default_rng(seed)
    scale = np.where(np.arange(n) < n // 2, 1.0, 4.0)
    return np.full(n, 20.0), 20 + scale * rng.normal(size=n) + np.linspace(0, 3, n)


def panel(n_weeks: int = 40, n_series: int = 6) -> dict[str, Any]:
    """Return forecasts of several series and two horizons, in order of time."""
    rng = np.random.default_rng(1)
    time, series, horizon = (
        one.ravel() for one in np.meshgrid(range(n_weeks), range(n_series), range(2), indexing="ij")
    )
    center = 100.0 * (1 + series)
    y = center * np.exp(rng.normal(0, 0.3, center.size))
    bounds = Quantiles(np.stack([center * 0.8, center * 1.25], axis=1), [0.05, 0.95])
    known = time + horizon + 1
    rows = {"outputs": bounds, "y": y, "time": time, "series": series, "horizon": horizon}
    return {**rows, "known": known}


def part(rows: dict[str, Any], chosen: slice) -> dict[str, Any]:
    """Return some rows of a panel."""
    return {
        name: one.take(chosen) if name == "outputs" else one[chosen] for name, one in rows.items()
    }


def intervals(found: Any) -> PredictionIntervals:
    assert isinstance(found, PredictionIntervals)
    return found


def same(a: Any, b: Any) -> bool:
    return bool((a.low == b.low).all() and (a.high == b.high).all())


def reference_aci(scores: FloatArray, alpha: float, rate: float, n_start: int) -> FloatArray:
    """Return the errors of ACI by the exact quantiles of past scores."""
    level, errors = alpha, []
    for t in range(n_start, len(scores)):
        limit = np.inf if level <= 0 else -np.inf
        if 0 < level < 1:
            limit = float(np.quantile(scores[:t], 1 - level, method="inverted_cdf"))
        errors.append(scores[t] > limit)
        level += rate * (alpha - errors[-1])
    return np.array(errors)


def test_aci_is_close_to_one_with_exact_quantiles() -> None:
    # Widths of 1 make the interval's own width the unit, so that scores are known outside.
    y = np.random.default_rng(2).normal(size=600)
    wide = Quantiles(np.tile([-0.5, 0.5], (600, 1)), [0.05, 0.95])
    online = OnlineConformal(method="aci", rate=0.02)
    found = intervals(online.replay(wide, y))
    ours = (y < found.low) | (y > found.high)
    exact = reference_aci(np.abs(y) - 0.5, 0.1, 0.02, 10)
    assert np.mean(ours[10:] != exact) < 0.01  # thresholds are read from bins 5 % wide


def test_tracking_is_the_published_recursion() -> None:
    y = np.random.default_rng(3).normal(size=300)
    wide = Quantiles(np.tile([-0.5, 0.5], (300, 1)), [0.05, 0.95])
    found = intervals(OnlineConformal(method="tracking", rate=0.1).replay(wide, y))
    thresholds, scores = found.high - 0.5, np.abs(y) - 0.5
    sizes = np.abs(y) + 0.5  # the larger distance to a bound
    for t in range(10, 249):
        step = 0.1 * sizes[: t + 1].mean() * (float(scores[t] > thresholds[t]) - 0.1)
        assert thresholds[t + 1] - thresholds[t] == pytest.approx(step, abs=1e-9)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["adversarial", "drifting", "shift", "constant"])
def test_the_bound_of_aci_holds_for_any_sequence(kind: str) -> None:
    n, rate, alpha = 1500, 0.02, 0.1
    online = OnlineConformal(method="aci", rate=rate)
    rng = np.random.default_rng(4)
    if kind == "adversarial":  # the truth leaves every finite interval
        first = rng.normal(size=20)
        online.replay(np.zeros(20), first)
        errors = []
        for _ in range(n):
            high = float(intervals(online.predict([0.0])).high[0])
            truth = high + 1 if np.isfinite(high) else 0.0
            errors.append(truth > high)
            online.update([truth])
    else:
        y = {
            "drifting": rng.normal(size=n) * np.linspace(1, 20, n),
            "shift": rng.normal(size=n) + np.where(np.arange(n) > 700, 50, 0),
            "constant": np.ones(n),
        }[kind]
        found = intervals(online.replay(np.zeros(n), y))
        errors = list(((y < found.low) | (y > found.high))[15:])
    bound = (max(alpha, 1 - alpha) + rate) / (rate * len(errors))
    assert abs(np.mean(errors) - alpha) <= bound


@pytest.mark.parametrize("method", METHODS)
def test_coverage_is_kept_where_the_truth_drifts(method: Any) -> None:
    forecasts, y = drifting()
    found = intervals(OnlineConformal(method=method).replay(forecasts, y))
    inside = (found.low <= y) & (y <= found.high)
    assert inside[100:].mean() == pytest.approx(0.9, abs=0.025)
    assert not np.isnan(found.low).any()
    assert np.isinf(found.high[:14]).all()


@pytest.mark.parametrize("method", METHODS)
def test_results_do_not_depend_on_batches_or_on_saving(method: Any) -> None:
    rows = panel()
    whole = OnlineConformal(method=method).replay(**rows)
    online, parts = OnlineConformal(method=method), []
    n = len(rows["y"])
    for start, stop in ((0, 7), (7, 101), (101, 102), (102, 300), (300, n)):
        parts.append(intervals(online.replay(**part(rows, slice(start, stop)))))
        text = encode_document(online.to_dict(), "test")
        online = OnlineConformal.from_dict(decode_document(text, "state")[0])
        online = OnlineConformal.from_dict(json.loads(json.dumps(online.to_dict())))
    joined = PredictionIntervals(
        np.concatenate([one.low for one in parts]), np.concatenate([one.high for one in parts])
    )
    assert same(joined, whole)


def test_step_by_step_equals_a_replay() -> None:
    forecasts, y = drifting(200)
    whole = intervals(OnlineConformal().replay(forecasts, y))
    online, low = OnlineConformal(), []
    for forecast, truth in zip(forecasts, y, strict=True):
        low.append(float(intervals(online.predict([forecast])).low[0]))
        online.update([truth])
    assert low == whole.low.tolist()


def test_a_forecast_uses_only_truths_known_at_its_time() -> None:
    rows = panel()
    before = intervals(OnlineConformal().replay(**rows))
    later = {**rows, "y": rows["y"].copy()}
    is_late = rows["time"] + rows["horizon"] + 1 > 30
    later["y"][is_late] *= 50
    after = intervals(OnlineConformal().replay(**later))
    unchanged = rows["time"] <= 30
    assert (before.low[unchanged] == after.low[unchanged]).all()
    assert (before.high[~unchanged] != after.high[~unchanged]).any()


def test_a_new_series_starts_at_its_pool_and_moves_to_its_own_errors() -> None:
    rng = np.random.default_rng(5)
    n = 300
    time = np.repeat(np.arange(n), 5)
    series = np.tile(list("abcde"), n)
    y = rng.normal(size=time.size)
    online = OnlineConformal(method="tracking", transform="log1p")
    center = np.exp(4 + y * 0)
    outputs = Quantiles(np.stack([center * 0.9, center * 1.1], axis=1), [0.05, 0.95])
    wild = np.where(series == "e", 0.5, 0.05)
    online.replay(outputs, center * np.exp(wild * y), time=time, series=series)
    one = Quantiles([[90.0, 110.0]], [0.05, 0.95])
    widths = {
        name: float(intervals(online.predict(one, series=[name])).width[0])
        for name in ("a", "e", "new")
    }
    assert widths["a"] < widths["new"] < widths["e"]


def test_truths_may_arrive_late_out_of_order_or_never() -> None:
    forecasts, y = drifting(60)
    online = OnlineConformal()
    online.replay(forecasts, y)
    online.predict([20.0, 20.0, 20.0], ids=["mon", "tue", "wed"])
    online.update([21.0], ids=["wed"])
    online.update([19.0, np.nan], ids=["mon", "tue"])
    assert (online.n_waiting, online.n_dropped_) == (0, 1)
    small = OnlineConformal(max_waiting=2)
    small.predict([1.0, 2.0, 3.0])
    assert (small.n_waiting, small.n_dropped_) == (2, 1)


def test_extreme_truths_leave_finite_states() -> None:
    forecasts, y = drifting(100)
    y[40], y[41] = 1e300, -1e300
    for method in METHODS:
        online = OnlineConformal(method=method)
        found = intervals(online.replay(forecasts, y))
        assert not (np.isnan(found.low) | np.isnan(found.high)).any()
        online.replay(forecasts, drifting(100)[1])
        json.dumps(online.to_dict(), allow_nan=False)


def test_perfect_forecasts_have_intervals_without_width() -> None:
    values = np.arange(50.0)
    found = intervals(OnlineConformal().replay(values, values))
    assert found.coverage(values) == 1.0
    assert found.width[-1] < 1e-9


def test_normal_forecasts_that_are_too_narrow_are_widened() -> None:
    rng = np.random.default_rng(6)
    outputs = Normal(np.zeros(500), np.full(500, 0.3))
    found = intervals(OnlineConformal().replay(outputs, rng.normal(size=500)))
    assert found.width[5] == pytest.approx(2 * 1.645 * 0.3, rel=1e-3)  # unchanged at first
    assert found.width[-100:].mean() == pytest.approx(2 * 1.645, rel=0.15)


@pytest.mark.parametrize("method", METHODS)
def test_sets_of_classes_keep_their_coverage(method: Any) -> None:
    rng = np.random.default_rng(7)
    logits = rng.normal(size=(900, 4)) * 2
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    labels = np.array([rng.choice(4, p=row) for row in p])
    labels[450:] = rng.integers(0, 4, 450)  # from here on the model knows nothing
    online = OnlineConformal(method=method)
    found = online.replay(Probabilities(p), labels)
    assert isinstance(found, PredictionSets)
    assert found.level == online.level
    inside = found.contains[np.arange(900), labels]
    assert inside[100:].mean() == pytest.approx(0.9, abs=0.03)
    assert found.sizes[700:].mean() > found.sizes[100:450].mean()
    online.predict(Probabilities(p[:1]))
    assert online.update(labels[:1]).n_waiting == 0


def test_a_wrong_use_is_explained() -> None:
    online = OnlineConformal()
    with pytest.raises(UnfittedError, match="OnlineConformal is not"):
        online.update([1.0])
    online.predict([1.0], ids=["a"])
    with pytest.raises(BadValueError, match=r"'a'.*update\(\) first"):
        online.predict([1.0], ids=["a"])
    with pytest.raises(BadValueError, match=r"'b'.*predict\(\)"):
        online.update([1.0], ids=["b"])
    with pytest.raises(BadTypeError, match="point forecasts"):
        online.predict(Normal([0.0], [1.0]))
    with pytest.raises(BadValueError, match="horizon"):
        online.predict([1.0], horizon=-1)
    with pytest.raises(BadValueError, match="single method"):
        OnlineConformal(rate=0.1).predict([1.0])
    with pytest.raises(BadValueError, match="log1p"):
        OnlineConformal(method="aci", transform="log").predict([-1.0])
    with pytest.raises(BadValueError, match="known"):
        OnlineConformal().replay([1.0], [1.0], time=[3.0])
    replayed = OnlineConformal()
    replayed.replay([1.0, 1.0], [1.0, 1.0], time=[3.0, 4.0])
    with pytest.raises(BadValueError, match="order of time"):
        replayed.replay([1.0], [1.0], time=[2.0])


def test_corrupted_states_are_rejected() -> None:
    forecasts, y = drifting(40)
    online = OnlineConformal()
    online.replay(forecasts, y)
    values = json.loads(json.dumps(online.to_dict()))
    for name, wrong in (("cells_", [[1.0]]), ("choice_", [1.0]), ("cell_pools_", [7])):
        broken = {**values, "fitted": {**values["fitted"], name: wrong}}
        with pytest.raises(BadValueError, match=name):
            OnlineConformal.from_dict(broken)


def staggered(shift: float) -> dict[str, Any]:
    """Return weekly forecasts of two series, five weeks ahead, the second some days later."""
    rng = np.random.default_rng(11)
    weeks = np.repeat(np.arange(60), 2)
    is_second = np.tile([False, True], 60)
    y = rng.normal(size=120)
    time = 7.0 * weeks + shift * is_second
    series = np.where(is_second, "b", "a")
    return {"outputs": Normal(np.zeros(120), np.ones(120)), "y": y, "time": time, "series": series}


def test_series_on_different_days_do_not_look_ahead() -> None:
    rows = staggered(1.0)
    online = OnlineConformal()
    before = intervals(online.replay(**rows, horizon=4))
    assert online.steps_ == [7.0, 7.0]
    changed = {**rows, "y": np.where(rows["time"] + 35 > 210, 50.0, rows["y"])}
    after = intervals(OnlineConformal().replay(**changed, horizon=4))
    is_early = rows["time"] < 210
    assert (before.low[is_early] == after.low[is_early]).all()
    assert (before.low[~is_early] != after.low[~is_early]).any()


def test_steps_are_those_of_each_series_and_uneven_ones_are_rejected() -> None:
    weekly, monthly = np.arange(0, 700, 7.0), np.cumsum([30.0, 28, 31, 30, 31, 30] * 3)
    time = np.concatenate([weekly, weekly[:1] + 1, monthly])
    names = ["w"] * (weekly.size + 1) + ["m"] * monthly.size
    online = OnlineConformal()
    online.replay(np.zeros(time.size), np.zeros(time.size), time=time, series=names, horizon=1)
    assert dict(zip(online.series_, online.steps_, strict=True)) == {"w": 7.0, "m": 31.0}
    weekdays = np.array([day for day in range(60) if day % 7 < 5], dtype=float)
    zeros = np.zeros(weekdays.size)
    OnlineConformal().replay(zeros, zeros, time=weekdays)
    with pytest.raises(BadValueError, match="steps of 1 and 3 in series 'all'"):
        OnlineConformal().replay(zeros, zeros, time=weekdays, horizon=4)
    OnlineConformal().replay(zeros, zeros, time=weekdays, horizon=4, known=weekdays + 7)


def test_an_invalid_call_changes_nothing() -> None:
    online = OnlineConformal()
    with pytest.raises(BadValueError, match="y"):
        online.replay([1.0, 2.0, 3.0], [1.0, 2.0])
    online.predict(Normal([0.0], [1.0]), ids=["a"])
    before = json.dumps(online.to_dict())
    with pytest.raises(BadValueError, match="'a'"):
        online.predict(Normal([0.0], [1.0]), series=["new"], horizon=7, ids=["a"])
    assert json.dumps(online.to_dict()) == before
    with pytest.raises(BadTypeError, match=r"`time`.*datetime64, in UTC"):
        online.replay(Normal([0.0], [1.0]), [1.0], time=["2021-01-04"])
    with pytest.raises(BadTypeError, match="list of truths"):
        online.update(1.0)


def test_truths_inside_their_intervals_are_counted() -> None:
    forecasts, y = drifting(200)
    online = OnlineConformal()
    found = intervals(online.replay(forecasts, y))
    judged = np.flatnonzero(np.isfinite(found.low))[:-1]  # the last truth is not known yet
    assert online.n_truths_ == judged.size
    assert online.n_covered_ == int(((found.low <= y) & (y <= found.high))[judged].sum())
