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
    """Return forecasts of 20 and outcomes whose spread and bias change."""
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


def part(rows: dict[str, Any], chosen: Any) -> dict[str, Any]:
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
    if kind == "adversarial":  # the true value leaves every finite interval
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
    with pytest.raises(BadTypeError, match="list of outcomes"):
        online.update(1.0)


def test_truths_inside_their_intervals_are_counted() -> None:
    forecasts, y = drifting(200)
    online = OnlineConformal()
    found = intervals(online.replay(forecasts, y))
    judged = np.flatnonzero(np.isfinite(found.low))[:-1]  # the last true value is not known yet
    assert online.n_truths_ == judged.size
    assert online.n_covered_ == int(((found.low <= y) & (y <= found.high))[judged].sum())


def test_late_forecasts_are_issued_at_the_last_time_and_found_once() -> None:
    rows = panel(30)
    is_late = (rows["series"] == 2) & np.isin(rows["time"], [9, 29])
    is_late |= (rows["series"] == 3) & (rows["time"] < 4)
    names = np.arange(is_late.size).astype(str)
    online = OnlineConformal()
    some = {**part(rows, ~is_late), "ids": names[~is_late]}
    online.replay(**some)
    where = {name: rows[name] for name in ("time", "series", "horizon")}
    can_be_issued, is_too_late = online.find_late(**where)
    assert not can_be_issued.any()  # those of the last time are not late
    assert is_too_late.tolist() == (is_late & (rows["time"] < 29)).tolist()
    before = encode_document(online.to_dict(), "test")
    with pytest.raises(
        BadValueError, match=r"must be at least 29, .* where the outcome is known by"
    ):
        online.replay(**{**part(rows, is_too_late), "ids": names[is_too_late]})
    assert encode_document(online.to_dict(), "test") == before
    later = {**where, "known": rows["known"] + 25}
    can_be_issued, _ = online.find_late(**later)
    is_expected = is_late & (rows["time"] < 29) & (later["known"] > 29)
    assert can_be_issued.tolist() == is_expected.tolist()
    assert set(rows["time"][is_expected]) == {3, 9}  # before the start of its series, and in a gap
    late = {**part(rows, can_be_issued), "ids": names[can_be_issued]}
    online = OnlineConformal.from_dict(decode_document(before, "test")[0])
    found = intervals(online.replay(**{**late, "known": late["known"] + 25}))
    other = OnlineConformal.from_dict(decode_document(before, "test")[0])
    last = np.full(is_expected.sum(), 29)  # as if they had been made then
    assert same(found, other.replay(**{**late, "known": late["known"] + 25, "time": last}))
    assert not online.find_late(**later)[0].any()


@pytest.mark.parametrize("noises", [(1.0, 2.0, 3.0, 4.0, 5.0), (0.5, 1.0, 8.0), (2.0, 2.0)])
def test_series_of_unlike_noise_are_all_covered(noises: tuple[float, ...]) -> None:
    n_steps, n_series = 150, 20
    coverage, scores = [], []
    for seed in range(3):
        rng = np.random.default_rng(seed)
        time = np.repeat(np.arange(n_steps), n_series)
        series = np.tile(np.arange(n_series), n_steps)
        noise = np.resize(noises, n_series)[series]
        y = noise * rng.normal(size=time.size)
        stated = Normal(np.zeros(time.size), np.full(time.size, 2.0))
        found = intervals(OnlineConformal().replay(stated, y, time=time, series=series))
        inside = (found.low <= y) & (y <= found.high)
        late = time >= 50
        coverage.append([inside[late & (noise == one)].mean() for one in noises])
        ideal = PredictionIntervals(-1.645 * noise, 1.645 * noise)
        ratio = [
            np.log(interval_score(y[rows], found, rows) / interval_score(y[rows], ideal, rows))
            for rows in (late & (series == one) for one in range(n_series))
        ]
        scores.append(np.exp(np.mean(ratio)))
    assert np.mean(coverage, axis=0) == pytest.approx(np.full(len(noises), 0.9), abs=0.025)
    assert np.mean(scores) < 1.03  # of intervals by the true noise


def interval_score(y: FloatArray, found: PredictionIntervals, rows: Any) -> float:
    low, high = found.low[rows], found.high[rows]
    return float((high - low + 20 * (np.maximum(low - y, 0) + np.maximum(y - high, 0))).mean())


def test_coverage_returns_within_about_50_rows_after_the_noise_doubles() -> None:
    coverage = []
    for seed in range(8):
        rng = np.random.default_rng(seed)
        time = np.repeat(np.arange(260), 5)
        y = np.where(time < 150, 1.0, 2.0) * rng.normal(size=time.size)
        stated = Normal(np.zeros(time.size), np.ones(time.size))
        series = np.tile(np.arange(5), 260)
        found = intervals(OnlineConformal().replay(stated, y, time=time, series=series))
        coverage.append(((found.low <= y) & (y <= found.high))[time >= 200].mean())
    assert np.mean(coverage) == pytest.approx(0.9, abs=0.03)


@pytest.mark.parametrize("kind", ["points", "spread"])
@pytest.mark.parametrize("factor", [1000.0, 1e6])
def test_a_series_in_other_units_changes_only_its_own_intervals(kind: str, factor: float) -> None:
    rng = np.random.default_rng(0)
    forecast = 50 + rng.normal(size=(60, 2)).cumsum(axis=0)
    y = forecast + 4 * rng.normal(size=forecast.shape)
    times, names = np.repeat(np.arange(60), 2), np.tile(["a", "b"], 60)

    def widths(units: Any) -> Any:
        center = (forecast * units).ravel()
        half = np.tile(3 * units, 60)
        outputs: Any = center
        if kind == "spread":
            outputs = Quantiles(
                np.stack([center - half, center, center + half], axis=1), [0.05, 0.5, 0.95]
            )
        found = OnlineConformal().replay(outputs, (y * units).ravel(), time=times, series=names)
        assert isinstance(found, PredictionIntervals)
        return (found.high - found.low).reshape(60, 2) / units

    plain, other = widths(np.ones(2)), widths(np.array([1.0, factor]))
    is_finite = np.isfinite(plain)
    np.testing.assert_array_equal(is_finite, np.isfinite(other))
    np.testing.assert_allclose(other[is_finite], plain[is_finite], rtol=0.3)


def test_the_first_forecasts_may_be_of_one_time() -> None:
    forecasts, y = drifting(30)
    days = np.datetime64("2025-01-31") + np.arange(30)
    ids = [f"{day}" for day in days]
    whole, step = OnlineConformal(), OnlineConformal()
    expected = intervals(whole.replay(forecasts, y, time=days, ids=ids))
    found = []
    for k in range(30):  # outcomes come after their forecast
        rows = slice(k, k + 1)
        known = {"time": days[rows], "ids": ids[rows]}
        found.append(intervals(step.replay(forecasts[rows], [None], **known)).low[0])
        step.schedule(y[rows], ids=ids[rows])
    assert found == expected.low.tolist()
    assert step.to_dict() == whole.to_dict()
    with pytest.raises(BadValueError, match="`known` must be given if forecasts share a time"):
        OnlineConformal().replay([1.0], [None], time=days[:1])
    with pytest.raises(BadTypeError, match="`time` must be dates, as before, got numbers"):
        step.replay([1.0], [None], time=[5.0])
    assert step.to_dict() == whole.to_dict()


def test_forecasts_that_wait_are_compared() -> None:
    online = OnlineConformal()
    outputs = Normal([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    online.replay(outputs, [None, 2.0, None], time=[1, 1, 1], ids=["a", "b", "c"])
    again = Normal([1.0, 2.0, 3.5], [1.0, 1.0, 1.0])
    changed, other = online.find_changed(again, [5.0, 2.5, None], ids=["a", "b", "c"])
    assert (changed.tolist(), other.tolist()) == ([False, False, True], [False, True, False])
    p = [[0.5, 0.3, 0.2], [0.2, 0.3, 0.5]]
    sets = OnlineConformal()
    sets.replay(Probabilities(p), [0, None], time=[1, 1], ids=["a", "b"])
    changed, other = sets.find_changed(Probabilities(p[::-1]), [1, 1], ids=["a", "b"])
    assert (changed.tolist(), other.tolist()) == ([True, True], [True, False])


def test_months_are_steps() -> None:
    ends = np.array(["2025-01-31", "2025-02-28", "2025-03-31", "2025-04-30"], "datetime64[D]")
    online = OnlineConformal()
    ids = [f"{k}" for k in range(4)]
    online.replay(np.ones(4), [None] * 4, time=ends, horizon=1, ids=ids)
    known = online.waiting_known_.astype("datetime64[D]")
    last = np.array(["2025-03-31", "2025-04-30", "2025-05-31", "2025-06-30"], "datetime64[D]")
    assert known.tolist() == last.tolist()


def test_mistakes_with_ids_and_order_are_named() -> None:
    online = OnlineConformal()
    with pytest.raises(UnfittedError, match=r"Call `predict` before `update`"):
        online.update([1.0])
    with pytest.raises(
        BadValueError, match=r"must not repeat: row 0 has the same id.*'x' in row 1"
    ):
        online.predict([1.0, 2.0], series=["a", "b"], ids=["x", "x"])
