"""Intervals: those of a slow reference, and covered as promised."""

import json
import pickle
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import clone

from dubito import Normal, Probabilities, Quantiles, Samples
from dubito.data import ArrayShards, Batch, Shards
from dubito.doubt import ConformalRegressor, PredictionIntervals
from dubito.doubt.conformal.regressor import METHODS
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoWarning,
    EmptyStateError,
    MissingLabelsWarning,
    UnfittedError,
)

Floats = NDArray[np.floating[Any]]

RNG = np.random.default_rng(0)
N = 300
MEAN, STD = RNG.normal(size=N), np.exp(RNG.normal(size=N) / 2)
Y = MEAN + 0.3 + 2 * STD * RNG.normal(size=N)
LEVELS = np.array([0.1, 0.5, 0.9])
KINDS: dict[str, Any] = {
    "array": MEAN,
    "Normal": Normal(MEAN, STD),
    "Samples": Samples(MEAN[:, None] + STD[:, None] * RNG.normal(size=(N, 20))),
    "Quantiles": Quantiles(stats.norm.ppf(LEVELS, MEAN[:, None], STD[:, None]), LEVELS),
}
CASES = [
    ("array", "absolute"),
    ("Normal", "absolute"),
    ("Normal", "normalized"),
    ("Normal", "quantiles"),
    ("Samples", "absolute"),
    ("Samples", "normalized"),
    ("Samples", "quantiles"),
    ("Quantiles", "absolute"),
    ("Quantiles", "normalized"),
    ("Quantiles", "quantiles"),
]
each_case = pytest.mark.parametrize(("kind", "method"), CASES)
quiet = pytest.mark.filterwarnings("ignore::dubito.errors.DubitoWarning")


class Parts(Shards):
    """A batch cut into parts, as if it were streamed."""

    def __init__(self, batch: Batch, n_parts: int = 3) -> None:
        self.batches_of = [batch.take(rows) for rows in np.array_split(range(len(batch)), n_parts)]

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.batches_of.__getitem__, i) for i in range(len(self.batches_of)))


def taken(outputs: Any, rows: slice) -> Any:
    return outputs[rows] if isinstance(outputs, np.ndarray) else outputs.take(rows)


def bands(kind: str, method: str) -> tuple[Floats, Floats, Floats]:
    """Return what is widened and its unit, for a level of 0.8, by plain NumPy."""
    outputs, one = KINDS[kind], np.ones(N)
    if method == "quantiles":
        if kind == "Normal":
            reach = stats.norm.ppf(0.9) * STD
            return MEAN - reach, MEAN + reach, one
        if kind == "Samples":
            draws = np.sort(outputs.array, axis=1)  # the 2.1st and the 18.9th of 20
            low = 0.9 * draws[:, 1] + 0.1 * draws[:, 2]
            return low, 0.1 * draws[:, 17] + 0.9 * draws[:, 18], one
        return outputs.array[:, 0], outputs.array[:, 2], one
    middle = outputs.array.mean(axis=1) if kind == "Samples" else MEAN
    if method == "absolute":
        return middle, middle, one
    scale = outputs.array.std(axis=1, ddof=1) if kind == "Samples" else STD
    scale = outputs.array[:, 2] - outputs.array[:, 0] if kind == "Quantiles" else scale
    return middle, middle, scale


@each_case
def test_intervals_are_those_of_the_reference(kind: str, method: Any) -> None:
    low, high, scale = bands(kind, method)
    scores = np.maximum(low - Y, Y - high) / scale
    threshold = np.sort(scores[:200])[int(np.ceil(201 * 0.8)) - 1]
    fitted = ConformalRegressor(0.8, method).fit(taken(KINDS[kind], slice(0, 200)), Y[:200])
    assert fitted.thresholds_["all"] == pytest.approx(threshold, rel=1e-12)
    found = fitted.predict(taken(KINDS[kind], slice(200, N)))
    close(found.low, (low - threshold * scale)[200:], rtol=1e-12, atol=1e-12)
    close(found.high, (high + threshold * scale)[200:], rtol=1e-12, atol=1e-12)
    close(found.width, found.high - found.low)
    held = (scores[200:] <= threshold).mean()
    assert found.coverage(Y[200:]) == pytest.approx(held)


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("array", "absolute"),
        ("Normal", "normalized"),
        ("Samples", "quantiles"),
        ("Quantiles", "quantiles"),
    ],
)
def test_the_method_for_few_rows_follows_from_the_declared_kind(kind: str, method: Any) -> None:
    few, y = taken(KINDS[kind], slice(0, 99)), Y[:99]
    fitted = ConformalRegressor(0.8).fit(few, y)
    assert (fitted.kind_, fitted.method_) == (kind, method)
    assert fitted.thresholds_ == ConformalRegressor(0.8, method).fit(few, y).thresholds_


VALUES = st.sampled_from([0.0, 0.1, 0.2, 0.3, 1 / 3, -0.7, 1e10, 1e16, -1e300, 1e308])


@pytest.mark.slow
@quiet
@settings(max_examples=100)
@given(
    hnp.arrays(np.float64, st.tuples(st.integers(2, 10), st.just(4)), elements=VALUES),
    st.sampled_from([np.float16, np.float32, np.float64]),
    st.sampled_from([0.3, 0.5, 0.75, 0.8]),
    st.sampled_from(["array", "Normal", "Samples", "Samples normalized", "Quantiles"]),
    st.booleans(),
)
def test_of_any_rows_at_least_the_level_is_covered_by_the_others(
    table: Floats, dtype: Any, level: float, kind: str, is_streamed: bool
) -> None:
    # Exchangeable rows are any of n + 1 in turn: this is the guarantee, without chance.
    most = float(np.finfo(dtype).max) / 4
    y, a, b = table[:, 0], *np.clip(table[:, 1:3], -most, most).astype(dtype).T
    tails = [(1 - level) / 2, 1 - (1 - level) / 2]
    ends = np.sort(np.stack([a, b], axis=1), axis=1)
    draws = np.concatenate([ends] * 5, axis=1)
    outputs: Any = {
        "array": a,
        "Normal": Normal(a, np.abs(b) + dtype(1e-3)),
        "Samples": Samples(draws),
        "Samples normalized": Samples(draws),
        "Quantiles": Quantiles(ends, tails),
    }[kind]
    method: Any = "normalized" if kind == "Samples normalized" else None
    n_covered = 0
    for i in range(len(y)):
        others = np.delete(np.arange(len(y)), i)
        known = outputs[others] if kind == "array" else outputs.take(others)
        wrapped = Samples(known[:, None]) if kind == "array" else known
        batch = Batch.of(y[others], wrapped)
        fitted = ConformalRegressor(level, method)
        fitted.fit(Parts(batch, 1) if is_streamed else ArrayShards(batch))
        found = fitted.predict(taken(outputs, slice(i, i + 1)))
        assert (found.low <= found.high).all()
        n_covered += found.coverage(y[i : i + 1]) == 1
    assert n_covered >= level * len(y) - 1e-9


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_truth_at_the_threshold_is_in_whatever_rounding_does(dtype: Any) -> None:
    # True values are one of two: half of the rows lie exactly at the threshold.
    rng = np.random.default_rng(0)
    mean = (1000 * rng.random(4000)).astype(dtype)
    y = mean.astype(np.float64) + np.where(np.arange(4000) % 2, 0.3, -0.1)
    fitted = ConformalRegressor(0.8, "normalized").fit(Normal(mean, np.full(4000, 0.1, dtype)), y)
    found = fitted.predict(Normal(mean, np.full(4000, 0.1, dtype)))
    assert found.coverage(y) >= 0.8
    assert found.low.dtype == np.float64


def test_intervals_shrink_where_quantiles_were_too_wide_and_never_cross() -> None:
    wide = Quantiles(np.tile([-10.0, 10.0], (99, 1)), [0.1, 0.9])
    y = np.linspace(-1, 1, 99)
    fitted = ConformalRegressor(0.8).fit(wide, y)
    found = fitted.predict(wide)
    close(found.high, np.sort(np.abs(y))[79], rtol=1e-12)
    assert found.coverage(y) == pytest.approx(0.8, abs=0.02)
    narrow = fitted.predict(Quantiles([[3.0, 5.0]], [0.1, 0.9]))
    assert (narrow.low.tolist(), narrow.high.tolist()) == ([4.0], [4.0])


def test_each_group_has_the_threshold_its_own_rows() -> None:
    groups = np.arange(N) % 2
    y = np.where(groups, MEAN + 5 * (Y - MEAN), Y)
    fitted = ConformalRegressor(0.8, "normalized").fit(KINDS["Normal"], y, groups)
    found = fitted.predict(KINDS["Normal"], groups)
    for name in (0, 1):
        rows = np.flatnonzero(groups == name)
        alone = ConformalRegressor(0.8, "normalized").fit(KINDS["Normal"].take(rows), y[rows])
        assert fitted.thresholds_[str(name)] == alone.thresholds_["all"]
        assert found.low[rows].tolist() == alone.predict(KINDS["Normal"].take(rows)).low.tolist()


@pytest.mark.parametrize("kind", ["Normal", "Samples", "Quantiles"])
def test_a_stream_gives_intervals_that_are_little_wider_never_narrower(kind: str) -> None:
    batch = Batch.of(Y, KINDS[kind])
    streamed = ConformalRegressor(0.8).fit(Parts(batch)).thresholds_["all"]
    exact = ConformalRegressor(0.8, METHODS[kind][0]).fit(KINDS[kind], Y).thresholds_["all"]
    assert streamed is not None
    assert exact is not None
    assert 0 <= streamed - exact <= abs(exact) / 4096


@each_case
def test_too_few_rows_give_infinite_intervals_and_a_warning(kind: str, method: Any) -> None:
    with pytest.warns(DubitoWarning) as caught:
        fitted = ConformalRegressor(0.8, method).fit(taken(KINDS[kind], slice(0, 3)), Y[:3])
    assert re.search(
        r"ConformalRegressor: too few rows for level=0\.8 \(3\), so intervals are infinite\. Use "
        r"at least 4 rows\.",
        str(caught[0].message),
    )
    assert caught[0].filename == __file__
    found = fitted.predict(KINDS[kind])
    assert (found.low == -np.inf).all()
    assert (found.high == np.inf).all()
    assert found.coverage(Y) == 1


def test_draws_that_all_agree_have_no_unit() -> None:
    same = Samples(np.zeros((10, 3)))
    with pytest.warns(DubitoWarning) as caught:
        fitted = ConformalRegressor(0.8, "normalized").fit(same, [0.0] * 5 + [1.0] * 5)
    assert re.search(
        r"ConformalRegressor: too many infinite scores \(10\), so intervals are infinite\. Use "
        r"method='absolute'\.",
        str(caught[0].message),
    )
    assert fitted.predict(same).high.tolist() == [np.inf] * 10
    right = ConformalRegressor(0.8, "normalized").fit(same, [0.0] * 9 + [1.0])
    assert right.predict(same).high.tolist() == [0.0] * 10
    assert right.predict(same).low.tolist() == [0.0] * 10


def test_missing_truths_are_left_out_and_counted() -> None:
    y = np.where(np.arange(N) % 3, Y, np.nan)
    with pytest.warns(MissingLabelsWarning, match="100 of 300 rows have no label"):
        fitted = ConformalRegressor(0.8).fit(MEAN, y)
    is_known = np.arange(N) % 3 > 0
    expected = ConformalRegressor(0.8).fit(MEAN[is_known], Y[is_known])
    assert fitted.thresholds_ == expected.thresholds_
    with pytest.warns(MissingLabelsWarning, match="100 of 300"):
        coverage = fitted.predict(MEAN).coverage(y)
    assert coverage == expected.predict(MEAN[is_known]).coverage(Y[is_known])


@each_case
def test_it_is_kept_pickled_and_cloned(kind: str, method: Any) -> None:
    fitted = ConformalRegressor(0.8, method).fit(KINDS[kind], Y)
    expected = fitted.predict(KINDS[kind]).low.tolist()
    kept = json.loads(json.dumps(fitted.to_dict(), allow_nan=False))
    for restored in (ConformalRegressor.from_dict(kept), pickle.loads(pickle.dumps(fitted))):
        assert restored.predict(KINDS[kind]).low.tolist() == expected
    assert clone(fitted).get_params() == fitted.get_params()


def test_the_callers_array_stays_and_no_rows_have_no_intervals() -> None:
    before = MEAN.copy()
    fitted = ConformalRegressor().fit(MEAN, Y)
    assert fitted.predict(np.empty(0)).low.shape == (0,)
    assert (before == MEAN).all()
    assert MEAN.flags.writeable


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (
            lambda: ConformalRegressor(method="cqr").fit(MEAN, Y),  # type: ignore[arg-type]
            BadValueError,
            r"`method` .*, got 'cqr'\. Use method=None",
        ),
        (
            lambda: ConformalRegressor(method="normalized").fit(MEAN, Y),
            BadValueError,
            r"`method` .*, got 'normalized'\. Use method=None",
        ),
        (
            lambda: ConformalRegressor(1.0).fit(MEAN, Y),
            BadValueError,
            r"`level` .*, got 1\.0\. Divide percentages by 100",
        ),
        (
            lambda: ConformalRegressor(0.95, "quantiles").fit(KINDS["Samples"], Y),
            BadValueError,
            r"`level` .*, got 0\.95\. Use more draws or a lower level",
        ),
        (
            lambda: ConformalRegressor(0.9, "quantiles").fit(KINDS["Quantiles"], Y),
            BadValueError,
            r"`level` 0\.9 needs .*0\.05 and 0\.95, got 0\.1, 0\.5, 0\.9\. Pass level=0\.8",
        ),
        (
            lambda: ConformalRegressor().fit(Probabilities([0.5]), [0]),
            BadTypeError,
            r"`outputs` .*, got Probabilities\. Use ConformalClassifier for classes",
        ),
        (
            lambda: ConformalRegressor().fit(Normal([[0.0, 1.0]], [[1.0, 1.0]]), [[0.0, 1.0]]),
            BadValueError,
            r"`outputs` .*, got 2 targets\. Fit one predictor per target",
        ),
        (
            lambda: ConformalRegressor().fit([[0.0, 1.0]], [0.0]),
            BadValueError,
            r"`outputs` .*, got shape \(1, 2\)\. Use `\.ravel\(\)` for a single column",
        ),
        (
            lambda: ConformalRegressor().fit([0.0, np.nan], [0.0, 1.0]),
            BadValueError,
            r"`outputs` .*, got nan in row 1\. Drop invalid rows, or fix what produced them",
        ),
        (
            lambda: ConformalRegressor().fit(MEAN),
            BadTypeError,
            r"`y` .*, got None\. Pass y",
        ),
        (
            lambda: ConformalRegressor().fit(KINDS["Normal"], Y[:, None]),
            BadValueError,
            r"`y` .*, got shape \(300, 1\)\. Use y\.ravel\(\)",
        ),
        (
            lambda: ConformalRegressor(0.8).fit(KINDS["Normal"], Y).predict(MEAN),
            BadTypeError,
            r"`outputs` .*, got array\. Fit on outputs of this kind",
        ),
        (
            lambda: ConformalRegressor().predict(MEAN),
            UnfittedError,
            "ConformalRegressor.*fit",
        ),
        (
            lambda: PredictionIntervals(MEAN, MEAN).coverage(np.stack([Y, Y], axis=1)),
            BadValueError,
            r"`y` .*, got shape \(300, 2\)\. Use `\.ravel\(\)` for a single column",
        ),
    ],
)
def test_what_cannot_be_is_reported(ask: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ask()


@pytest.mark.filterwarnings("ignore::dubito.errors.MissingLabelsWarning")
def test_coverage_of_no_truths_is_none() -> None:
    with pytest.raises(
        EmptyStateError,
        match="Coverage needs at least 1 labeled row of "
        r"positive weight, got 0\. Pass at least one labeled row "
        "with a positive weight",
    ):
        PredictionIntervals(np.zeros(1), np.ones(1)).coverage([np.nan])


@pytest.mark.parametrize(("kind", "method"), CASES)
def test_settings_count_at_the_next_fit_only(kind: str, method: Any) -> None:
    fitted = ConformalRegressor(0.8, method).fit(KINDS[kind], Y)
    expected = fitted.predict(KINDS[kind])
    found = fitted.set_params(level=0.5, method="absolute").predict(KINDS[kind])
    assert found.low.tolist() == expected.low.tolist()
    assert found.high.tolist() == expected.high.tolist()


def test_intervals_are_shown_by_their_size_and_means() -> None:
    fitted = ConformalRegressor(level=0.8).fit(np.zeros(9), np.arange(1.0, 10))
    expected = "PredictionIntervals(shape (999,), mean low -7, mean high 9)"
    assert repr(fitted.predict(np.ones(999))) == expected
    assert repr(fitted.predict(np.empty(0))) == "PredictionIntervals(shape (0,))"


def rank(scores: Floats, level: float) -> float:
    return float(np.sort(scores)[int(np.ceil((len(scores) + 1) * level - 1e-9)) - 1])


@pytest.mark.parametrize("kind", ["Normal", "Quantiles"])
def test_each_end_may_have_its_own_threshold(kind: str) -> None:
    y = np.exp(Y)  # skewed
    low, high, _ = bands(kind, "quantiles")
    known, new = slice(0, 200), slice(200, N)
    regressor = ConformalRegressor(0.8, "quantiles", symmetric=False)
    fitted = regressor.fit(taken(KINDS[kind], known), y[known])
    thresholds = {
        "lower": rank((low - y)[known], 0.9),
        "upper": rank((y - high)[known], 0.9),
    }
    assert fitted.thresholds_ == pytest.approx(thresholds)
    assert (fitted.level_, fitted.n_rows_) == (0.9, {"lower": 200, "upper": 200})
    found = fitted.predict(taken(KINDS[kind], new))
    close(found.high, high[new] + thresholds["upper"], atol=1e-12)
    is_open = low[new] - thresholds["lower"] <= found.high
    close(found.low[is_open], (low[new] - thresholds["lower"])[is_open], atol=1e-12)
    kept = ConformalRegressor.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert (kept.predict(taken(KINDS[kind], new)).low == found.low).all()


def test_ends_and_groups_and_density_ratios_combine() -> None:
    groups = np.where(np.arange(N) % 2, "b", "a")
    ratio = np.exp(MEAN / 2)
    regressor = ConformalRegressor(0.8, "normalized", symmetric=False)
    fitted = regressor.fit(KINDS["Normal"], Y, groups, ratio)
    assert list(fitted.thresholds_) == ["a, lower", "a, upper", "b, lower", "b, upper"]
    found = fitted.predict(KINDS["Normal"], groups, ratio)
    for name in "ab":
        rows = np.flatnonzero(groups == name)
        part = KINDS["Normal"].take(rows)
        alone = clone(regressor).fit(part, Y[rows], density_ratio=ratio[rows])
        assert (alone.predict(part, density_ratio=ratio[rows]).low == found.low[rows]).all()
    with pytest.raises(BadTypeError, match="was fitted with groups, got none"):
        fitted.predict(KINDS["Normal"], density_ratio=ratio)


@pytest.mark.parametrize("bin_by", ["width", "mean"])
def test_bins_have_thresholds_of_their_own_rows(bin_by: Any) -> None:
    regressor = ConformalRegressor(0.8, "normalized", n_bins=3, bin_by=bin_by)
    fitted = regressor.fit(KINDS["Normal"], Y)
    value = 2 * STD if bin_by == "width" else MEAN
    edges = np.sort(value)[[100, 200]]
    assert fitted.bin_edges_ is not None
    close(fitted.bin_edges_, edges)
    bins = np.searchsorted(edges, value)
    scores = np.abs(Y - MEAN) / STD
    is_edge = np.isin(value, edges)  # these rows define the bins and do not calibrate
    for k in range(3):
        threshold = rank(scores[(bins == k) & ~is_edge], 0.8)
        assert fitted.thresholds_[str(k)] == pytest.approx(threshold)
        reach = fitted.predict(KINDS["Normal"]).high - MEAN
        close(reach[bins == k], (threshold * STD)[bins == k], rtol=1e-9)
    assert sum(fitted.n_rows_.values()) == N - 2
    kept = ConformalRegressor.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert (kept.predict(KINDS["Normal"]).low == fitted.predict(KINDS["Normal"]).low).all()


def test_automatic_bins_grow_with_the_rows() -> None:
    mean = np.random.default_rng(0).normal(size=5000)
    regressor = ConformalRegressor(0.9, "absolute", n_bins="auto", bin_by="mean")
    sizes = [len(regressor.fit(mean[:n], mean[:n] * 2).thresholds_) for n in (150, 1000, 5000)]
    assert sizes == [1, 5, 10]
    tied = ConformalRegressor(0.5, "absolute", n_bins=4, bin_by="mean")
    fitted = tied.fit(np.repeat([0.0, 1.0], 20), np.arange(40.0))
    assert fitted.bin_edges_ is not None
    assert fitted.bin_edges_.tolist() == [0.0]


def heteroscedastic(n: int, seed: int = 0) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(seed)
    mean = rng.normal(size=n)
    return mean, mean + np.exp(mean) * rng.normal(size=n)


def test_a_scale_is_learned_where_outputs_state_none() -> None:
    mean, y = heteroscedastic(2000)
    fitted = ConformalRegressor(0.9).fit(mean, y)
    assert (fitted.method_, fitted.n_rows_) == ("adaptive", {"all": 1000.0})
    new, new_y = heteroscedastic(4000, 1)
    found, fixed = (
        ConformalRegressor(0.9, method).fit(mean, y).predict(new) for method in (None, "absolute")
    )
    ideal = PredictionIntervals(new - 1.645 * np.exp(new), new + 1.645 * np.exp(new))
    best = ideal.interval_score(new_y)
    assert found.interval_score(new_y) < 1.08 * best < fixed.interval_score(new_y)
    assert abs(found.coverage(new_y) - 0.9) < 0.03
    for part in (new < -1, new > 1):
        some = PredictionIntervals(found.low[part], found.high[part])
        assert abs(some.coverage(new_y[part]) - 0.9) < 0.05


def test_the_default_takes_stated_scales_that_are_right() -> None:
    rng = np.random.default_rng(0)
    std = np.exp(rng.normal(size=2000))
    fitted = ConformalRegressor(0.9).fit(Normal(np.zeros(2000), std), std * rng.normal(size=2000))
    assert fitted.method_ in ("normalized", "quantiles")
    assert fitted.n_rows_ == {"all": 1000.0}


@pytest.mark.slow
def test_coverage_of_the_default_follows_the_law_of_its_calibration_rows() -> None:
    n, m, covered = 120, 100, []
    for seed in range(150):
        mean, y = heteroscedastic(n + m, seed)
        fitted = ConformalRegressor(0.8, random_state=seed).fit(mean[:n], y[:n])
        covered.append(round(m * fitted.predict(mean[n:]).coverage(y[n:])))
    law = stats.betabinom(m, 49, 12)  # ceil(0.8 x 61) of 60 rows
    spread = np.sqrt(law.var() / 150)
    assert abs(np.mean(covered) - law.mean()) < 3 * spread
    # Var of a sample variance of nearly normal counts.
    assert abs(np.var(covered) / law.var() - 1) < 4 * np.sqrt(2 / 150)


@quiet
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    ("y", "mean"),
    [
        (np.zeros(120), np.zeros(120)),
        (np.ones(120), np.arange(120.0)),
        (np.arange(120.0) % 2, np.zeros(120)),
        (1e300 * np.arange(120.0), np.zeros(120)),
        (1e-300 * np.arange(120.0), np.zeros(120)),
        (np.where(np.arange(120) % 30, 0.0, 1e308), np.zeros(120)),
    ],
    ids=["zero", "constant", "binary", "huge", "tiny", "outliers"],
)
def test_odd_rows_have_intervals_without_nan(y: Floats, mean: Floats, dtype: Any) -> None:
    flat = np.sort(np.stack([mean, mean, mean + 1], axis=1), axis=1)
    for outputs in (
        mean.astype(dtype),
        Normal(mean.astype(dtype), np.full(120, 1e-30, dtype)),
        Samples(np.stack([mean] * 3, axis=1).astype(dtype)),
        Quantiles(flat.astype(dtype), [0.3, 0.5, 0.6]),
        Quantiles(mean.astype(dtype)[:, None], [0.5]),
    ):
        for regressor in (
            ConformalRegressor(0.8, "adaptive"),
            ConformalRegressor(0.8),
            ConformalRegressor(0.8, "adaptive", symmetric=False, n_bins=2),
        ):
            found = regressor.fit(outputs, y).predict(outputs)
            assert not np.isnan(found.low).any()
            assert (found.low <= found.high).all()
            assert found.coverage(y) >= 0.6
            json.dumps(regressor.to_dict(), allow_nan=False)


def test_new_settings_are_checked() -> None:
    stream = Parts(Batch.of(Y, KINDS["Normal"]))
    for setting, message in (
        ({"method": "adaptive"}, "in memory with method='adaptive', got a stream"),
        ({"symmetric": False}, "in memory with symmetric=False"),
        ({"n_bins": 3}, "in memory with n_bins"),
    ):
        with pytest.raises(BadTypeError, match=message):
            ConformalRegressor(0.8, **setting).fit(stream)
    assert ConformalRegressor(0.8).fit(stream).method_ == "normalized"
    bad: list[tuple[dict[str, Any], str]] = [
        ({"symmetric": 1}, "`symmetric`.*True or False"),
        ({"n_bins": 0}, "`n_bins`.*at least 1"),
        ({"n_bins": "some"}, "`n_bins`"),
        ({"bin_by": "std"}, "`bin_by`.*'width' or 'mean'"),
        ({"random_state": -1}, "`random_state`"),
    ]
    for setting, message in bad:
        with pytest.raises((BadValueError, BadTypeError), match=message):
            ConformalRegressor(0.8, **setting).fit(KINDS["Normal"], Y)
    with pytest.raises(BadTypeError, match="`groups` must be None with n_bins"):
        ConformalRegressor(0.8, n_bins=2).fit(KINDS["Normal"], Y, np.arange(N) % 2)
    binned = ConformalRegressor(0.8, n_bins=2).fit(KINDS["Normal"], Y)
    with pytest.raises(BadTypeError, match="was fitted without groups, got groups"):
        binned.predict(KINDS["Normal"], np.arange(N) % 2)


def test_interval_scores_are_those_of_the_definition() -> None:
    found = PredictionIntervals(np.array([0.0, 1.0, 2.0]), np.array([1.0, 3.0, 2.0]))
    assert found.interval_score([0.5, 4.0, 1.0], level=0.8) == pytest.approx((1 + 12 + 10) / 3)
    assert found.contains([0.5, 4.0, 2.0]).tolist() == [True, False, True]


@pytest.mark.parametrize("method", ["adaptive", "normalized", "quantiles", None])
def test_quantiles_of_other_levels_raise(method: Any) -> None:
    levels = [0.05, 0.1, 0.25, 0.4, 0.5, 0.6, 0.75, 0.9, 0.95]
    y = np.random.default_rng(0).normal(size=400)
    outputs = Quantiles(np.tile(stats.norm.ppf(levels), (400, 1)), levels)
    regressor = ConformalRegressor(0.9, method).fit(outputs, y)
    other = Quantiles(np.tile(stats.norm.ppf(levels[2::2]), (2, 1)), levels[2::2])
    restored = ConformalRegressor.from_dict(regressor.to_dict())
    for one in (regressor, restored):
        with pytest.raises(BadValueError, match=r"must have the levels 0\.05, 0\.1.*got 0\.25, "):
            one.predict(other)
        assert one.predict(outputs.take(slice(0, 2))).low.shape == (2,)


def test_bins_without_rows_raise_during_fit() -> None:
    rng = np.random.default_rng(0)
    mean, y = rng.normal(size=1000), rng.normal(size=1000)
    outputs = Normal(mean, rng.uniform(1, 2, 1000))
    with pytest.raises(
        BadValueError, match=r"`n_bins` must leave rows.*got 500.*n_bins=50"
    ) as info:
        ConformalRegressor(0.9, n_bins=500).fit(outputs, y)
    assert info.value.argument == "n_bins"
    few = ConformalRegressor(0.9, n_bins=50).fit(outputs, y)
    assert np.isfinite(few.predict(outputs).high).all()
