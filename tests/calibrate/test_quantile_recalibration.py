from collections.abc import Callable, Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats

from dubito import Normal, Quantiles, Samples
from dubito.calibrate import QuantileRecalibration, cross_validate_calibrator
from dubito.calibrate.quantile_recalibration import CELL, select_regression_calibrator
from dubito.data import ArrayShards, Batch, Shards
from dubito.errors import BadValueError, UnfittedError
from dubito.measure import interval_coverage

RNG = np.random.default_rng(2)
LEVELS = np.array([0.1, 0.25, 0.5, 0.75, 0.9])


class Parts(Shards):
    """A batch cut into parts, as if it were streamed."""

    def __init__(self, batch: Batch, n_parts: int = 3) -> None:
        self.batches_of = [batch.take(rows) for rows in np.array_split(range(len(batch)), n_parts)]

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.batches_of.__getitem__, i) for i in range(len(self.batches_of)))


def made(n_rows: int, seed: int = 0) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return mean, std and true values that are skewed and biased."""
    rng = np.random.default_rng(seed)
    mean, std = rng.normal(size=n_rows), np.exp(rng.normal(size=n_rows) / 2)
    return mean, std, mean + std * (rng.gamma(2, 1.5, size=n_rows) - 1)


def quantile_rows(mean: NDArray[Any], std: NDArray[Any], levels: Any = LEVELS) -> Quantiles:
    return Quantiles(stats.norm.ppf(levels, mean[:, None], std[:, None]), levels)


def kinds(mean: NDArray[Any], std: NDArray[Any]) -> list[Any]:
    draws = mean[:, None] + std[:, None] * RNG.normal(size=(mean.size, 30))
    return [Normal(mean, std), Samples(draws), quantile_rows(mean, std)]


def by_hand(z: NDArray[Any], levels: Any) -> NDArray[Any]:
    """Return R^-1 between the outermost true values: the k-th of n is at k / (n + 1)."""
    observed = stats.norm.ppf(np.arange(1, z.size + 1) / (z.size + 1))
    return np.asarray(np.interp(stats.norm.ppf(levels), observed, np.sort(z)))


def test_the_quantiles_of_normals_are_the_stated_ones_at_the_levels_that_hold() -> None:
    mean, std, y = made(500)
    levels = [0.01, 0.2, 0.5, 0.99]
    scaling = QuantileRecalibration(levels).fit(Normal(mean, std), y)
    found = scaling.transform(Normal(mean, std))
    assert isinstance(found, Quantiles)
    expected = mean[:, None] + std[:, None] * by_hand((y - mean) / std, levels)
    assert found.array == pytest.approx(expected, abs=1e-9)
    assert found.levels.tolist() == levels


def test_quantiles_between_their_levels_are_linear() -> None:
    mean, std, _ = made(400)
    inside = stats.norm.ppf(RNG.uniform(0.15, 0.85, size=400))
    outputs, y = quantile_rows(mean, std), mean + std * inside
    scaling = QuantileRecalibration([0.2, 0.5, 0.7]).fit(outputs, y)
    rows = zip(outputs.array, y, strict=True)
    place = np.array([np.interp(truth, row, LEVELS) for row, truth in rows])
    at = stats.norm.cdf(by_hand(stats.norm.ppf(place), [0.2, 0.5, 0.7]))
    expected = [np.interp(at, LEVELS, row) for row in outputs.array]
    found = scaling.transform(outputs)
    assert isinstance(found, Quantiles)
    assert found.array == pytest.approx(np.array(expected), abs=1e-9)


def test_samples_are_the_quantiles_of_their_sorted_draws() -> None:
    mean, std, y = made(300)
    draws = mean[:, None] + std[:, None] * RNG.normal(size=(300, 9))
    same = Quantiles(np.sort(draws, axis=1), np.arange(1, 10) / 10)
    found = QuantileRecalibration().fit(Samples(draws), y).transform(Samples(draws))
    expected = QuantileRecalibration().fit(same, y).transform(same)
    assert isinstance(found, Quantiles)
    assert isinstance(expected, Quantiles)
    assert found.array == pytest.approx(expected.array, abs=1e-12)


def test_beyond_the_outermost_quantiles_rows_are_normal() -> None:
    mean, std, y = made(400)
    wide = [0.01, 0.5, 0.99]
    normal = QuantileRecalibration(wide).fit(Normal(mean, std), y).transform(Normal(mean, std))
    # So many levels that what is linear between them is as good as normal.
    rows = quantile_rows(mean, std, np.linspace(0.1, 0.9, 401))
    found = QuantileRecalibration(wide).fit(rows, y).transform(rows)
    assert isinstance(normal, Quantiles)
    assert isinstance(found, Quantiles)
    assert found.array == pytest.approx(normal.array, abs=1e-3)


def test_coverage_holds_on_new_rows_of_every_kind() -> None:
    for fitted_on, new in zip(kinds(*made(4000)[:2]), kinds(*made(4000, seed=1)[:2]), strict=True):
        scaling = QuantileRecalibration().fit(fitted_on, made(4000)[2])
        y, calibrated = made(4000, seed=1)[2], scaling.transform(new)
        for level in (0.1, 0.5, 0.8, 0.9):
            assert interval_coverage(y, calibrated, level=level) == pytest.approx(level, abs=0.03)


def test_r_is_the_share_of_truths_below_and_never_0_or_1() -> None:
    mean, std, y = made(2000)
    scaling = QuantileRecalibration().fit(Normal(mean, std), y)
    levels = np.array([1e-9, 0.05, 0.3, 0.5, 0.9, 1 - 1e-9])
    shares = scaling.observed(levels)
    exact = [(stats.norm.cdf(y, mean, std) <= level).mean() for level in levels]
    assert shares == pytest.approx(np.array(exact), abs=1e-3)
    assert ((shares > 0) & (shares < 1) & (np.diff(shares, prepend=0) > 0)).all()
    several = Normal(np.stack([mean, mean], axis=1), np.stack([std, 2 * std], axis=1))
    both = QuantileRecalibration().fit(several, np.stack([y, y], axis=1)).observed(levels)
    assert both.shape == (6, 2)
    assert both[:, 0] == pytest.approx(shares)


def test_beyond_the_outermost_truths_r_goes_on_and_is_never_narrower_than_stated() -> None:
    z = np.array([-1.0, 0.0, 1.0])
    wanted = stats.norm.cdf([-3.0, 3.0])
    for factor in (0.1, 10.0):
        scaling = QuantileRecalibration(wanted).fit(Normal([0.0] * 3, [1.0] * 3), z * factor)
        last = stats.norm.ppf(0.75)
        expected = factor + max(1.0, factor / last) * (3 - last)
        found = scaling.transform(Normal([0.0], [1.0]))
        assert isinstance(found, Quantiles)
        assert found.array[0] == pytest.approx([-expected, expected], rel=1e-9)


def test_streamed_quantiles_move_by_a_cell_at_most() -> None:
    levels = np.linspace(0.02, 0.98, 97)
    spreads = {"far": 300.0, "wide": 4.0, "narrow": 0.01}
    for n_rows in (60, 3000):
        for spread in spreads.values():
            z = spread * np.random.default_rng(n_rows).standard_t(2, size=n_rows)
            weight = RNG.integers(1, 4, n_rows)
            batch = Batch.of(z, Normal(np.zeros(n_rows), np.ones(n_rows)), sample_weight=weight)
            exact = QuantileRecalibration(levels).fit(ArrayShards(batch))
            streamed = QuantileRecalibration(levels).fit(Parts(batch))
            found, expected = (
                np.asarray(one.transform(Normal([0.0], [1.0])).array[0])  # type: ignore[union-attr]
                for one in (streamed, exact)
            )
            right = np.clip(np.searchsorted(exact.stated_[0], expected), 1, None)
            around = [exact.stated_[0][right - 1], exact.stated_[0][right]]
            farther = np.abs(around).max(axis=0)
            bound = 1.005 * CELL * np.sqrt(1 + farther**2)
            assert (np.abs(found - expected) <= bound).all()
            assert np.abs(found - expected).max() > 0
    assert CELL < 0.0036


@pytest.mark.parametrize("outputs", kinds(*made(300)[:2]), ids=lambda one: type(one).__name__)
def test_streamed_weight_2_is_a_row_that_came_twice(outputs: Any) -> None:
    y, weight = made(300)[2], RNG.integers(0, 3, 300)
    twice = np.repeat(np.arange(300), weight)
    weighted = QuantileRecalibration().fit(Parts(Batch.of(y, outputs, sample_weight=weight)))
    repeated = QuantileRecalibration().fit(Parts(Batch.of(y[twice], outputs.take(twice)), 5))
    assert weighted.stated_[0].tolist() == repeated.stated_[0].tolist()
    assert weighted.observed_[0] == pytest.approx(repeated.observed_[0], abs=1e-12)


def test_a_part_without_rows_changes_nothing() -> None:
    mean, std, y = made(20)
    batch = Batch.of(y, Normal(mean, std))
    gaps = Parts(batch, 2)
    gaps.batches_of.insert(0, batch.take(slice(0, 0)))
    found, expected = (QuantileRecalibration().fit(one) for one in (gaps, Parts(batch)))
    assert found.observed_[0].tolist() == expected.observed_[0].tolist()


grid = st.integers(-3, 3).map(float)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data(), st.sampled_from([np.float32, np.float64]), st.booleans())
def test_nothing_is_infinite_and_levels_rise(
    data: st.DataObject, kind: Any, is_streamed: bool
) -> None:
    n_rows, n_levels = data.draw(st.integers(1, 6)), data.draw(st.integers(2, 4))
    size = n_rows * n_levels
    flat = data.draw(st.lists(grid, min_size=size, max_size=size))
    values = np.sort(np.array(flat, dtype=kind).reshape(n_rows, n_levels), axis=1)
    y = np.array(data.draw(st.lists(grid, min_size=n_rows, max_size=n_rows)))
    weights = st.sampled_from([0.0, 1e-90, 0.5, 1.0, 3.0, 1e90])
    weight = np.array(data.draw(st.lists(weights, min_size=n_rows, max_size=n_rows)))
    weight[0] = 1.0
    std = np.array(data.draw(st.sampled_from([1e-30, 1.0, 1e30])), dtype=kind)
    levels = np.arange(1, n_levels + 1) / (n_levels + 1)
    outputs: Any
    for outputs in (
        Quantiles(values, levels),
        Samples(values),
        Normal(values[:, 0], np.full(n_rows, std)),
    ):
        batch = Batch.of(y, outputs, sample_weight=weight)
        shards: Shards = Parts(batch) if is_streamed else ArrayShards(batch)
        scaling = QuantileRecalibration([1e-6, 0.05, 0.5, 0.95, 1 - 1e-6]).fit(shards)
        calibrated = scaling.transform(outputs)
        assert isinstance(calibrated, Quantiles)
        assert calibrated.array.dtype == kind
        assert np.isfinite(calibrated.array).all()
        shares = scaling.observed([1e-6, 0.5, 1 - 1e-6])
        assert (np.diff(shares) >= 0).all()


def test_draws_tied_with_the_truth_count_half() -> None:
    outputs = Samples([[0.0, 1.0, 1.0, 1.0, 2.0]])
    assert QuantileRecalibration().fit(outputs, [1.0]).stated_[0] == pytest.approx([0.0])
    point = Samples([[1.0, 1.0]] * 3)
    assert QuantileRecalibration().fit(point, [0.0, 1.0, 2.0]).stated_[0].tolist() == [-1e6, 0, 1e6]


def test_a_truth_of_some_weight_is_a_step() -> None:
    outputs = Normal([0.0] * 2, [1.0] * 2)
    scaling = QuantileRecalibration().fit(outputs, [0.0, 2.0], sample_weight=[3, 1])
    assert scaling.stated_[0].tolist() == [0.0, 0.0, 2.0]
    assert stats.norm.cdf(scaling.observed_[0]) == pytest.approx([0.2, 0.6, 0.8])


def test_the_summary_says_where_the_truths_lay() -> None:
    z = stats.norm.ppf((np.arange(200) + 0.5) / 200)
    words = QuantileRecalibration().fit(Normal(np.zeros(200), np.ones(200)), 2 * z).summary()
    # k of 200 true values, of which each is at k / 201: twice the spread halves the score.
    low = (200 * stats.norm.cdf(stats.norm.ppf(0.05) / 2) + 0.5) / 201
    shares = f"{low * 100:.1f} %, 50.0 %, {100 - low * 100:.1f} %"
    assert words == f"{shares} of targets were below the stated 5 %, 50 %, 95 % quantiles"
    evidence = cross_validate_calibrator(
        QuantileRecalibration(), Normal(np.zeros(200), np.ones(200)), 2 * z
    )
    assert str(evidence).startswith("coverage of 90 % intervals from 0.59 to 0.9")


@pytest.mark.parametrize(
    ("levels", "got"),
    [
        ([0.5, 0.5], "[0.5, 0.5]"),
        ([0.0, 0.5], "[0.0, 0.5]"),
        ([0.9, 1.0], "[0.9, 1.0]"),
        ([], "[]"),
    ],
)
def test_levels_rise_between_0_and_1(levels: list[float], got: str) -> None:
    with pytest.raises(BadValueError) as caught:
        QuantileRecalibration(levels).fit(Normal([0.0], [1.0]), [1.0])
    assert str(caught.value) == (
        f"QuantileRecalibration: `levels` must increase between 0 and 1, got {got}. "
        "Pass levels such as [0.1, 0.5, 0.9]."
    )
    with pytest.raises(
        BadValueError, match=r"QuantileRecalibration\.observed: `levels` must increase"
    ):
        QuantileRecalibration().fit(Normal([0.0], [1.0]), [1.0]).observed(levels)


@pytest.mark.parametrize(
    ("crps", "coverage_of_simple", "chosen"),
    [(0.985, 0.9, 1), (0.995, 0.9, 0), (0.995, 0.85, 1), (1.0001, 0.85, 0)],
)
def test_a_flexible_calibrator_must_be_clearly_better(
    crps: float, coverage_of_simple: float, chosen: int
) -> None:
    def evidence(crps: float, covered: float) -> Any:
        columns = {"coverage": np.array([covered]), "levels": np.array([0.9])}
        after = SimpleNamespace(**columns, coverage_deviation=np.array([0.01]))
        return SimpleNamespace(
            before=SimpleNamespace(crps_title="CRPS"), after=after, relative_crps=crps
        )

    pair = {"simple": evidence(1.0, coverage_of_simple), "flexible": evidence(crps, 0.9)}
    name, reason = select_regression_calibrator(pair)
    assert name == [*pair][chosen]
    assert "flexible is selected only if its CRPS is 1 % lower" in reason


def test_a_fit_that_fails_leaves_nothing_behind() -> None:
    rng = np.random.default_rng(0)
    outputs, y = Normal(np.zeros(50), np.ones(50)), rng.normal(size=50)
    calibrator = QuantileRecalibration().fit(outputs, y).set_params(levels=[0.5, 0.1])
    with pytest.raises(BadValueError, match="levels"):
        calibrator.fit(outputs, y)
    with pytest.raises(UnfittedError):
        calibrator.transform(outputs)
