import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import optimize, stats

from dubito import Normal, Quantiles, Samples
from dubito.calibrate import VarianceScaling
from dubito.errors import BoundWarning, DubitoWarning
from dubito.measure import (
    continuous_ranked_probability_score,
    negative_log_likelihood,
    pinball_loss,
)

RNG = np.random.default_rng(1)
N = 300
MEAN, STD = RNG.normal(size=N), np.exp(RNG.normal(size=N) / 2)
Y = MEAN + 1.7 * STD * RNG.standard_t(5, size=N)
WEIGHT = RNG.random(N)
LEVELS = np.array([0.1, 0.3, 0.6, 0.9])


def stretched(outputs: Any, factor: float) -> Any:
    """Stretch outputs by hand."""
    if isinstance(outputs, Normal):
        return Normal(outputs.mean, outputs.std * factor)
    if isinstance(outputs, Samples):
        center = outputs.array.mean(axis=1, keepdims=True)
        return Samples(center + factor * (outputs.array - center))
    median = np.array([np.interp(0.5, outputs.levels, row) for row in outputs.array])[:, None]
    return Quantiles(median + factor * (outputs.array - median), outputs.levels)


def loss_of(outputs: Any, y: Any, weight: Any, factor: float) -> float:
    metrics: dict[str, Any] = {
        "Normal": negative_log_likelihood,
        "Samples": continuous_ranked_probability_score,
        "Quantiles": pinball_loss,
    }
    metric = metrics[type(outputs).__name__]
    return float(metric(y, stretched(outputs, factor), sample_weight=weight))


def quantiles(mean: NDArray[Any], std: NDArray[Any]) -> Quantiles:
    return Quantiles(stats.gamma.ppf(LEVELS, 2) * std[:, None] + mean[:, None], LEVELS)


KINDS = [
    Normal(MEAN, STD),
    Samples(MEAN[:, None] + STD[:, None] * RNG.normal(size=(N, 7))),
    quantiles(MEAN, STD),
    Quantiles(np.sort(RNG.normal(size=(N, 2)), axis=1), [0.6, 0.8]),
]


def test_the_factor_of_normals_is_the_root_mean_squared_z_score() -> None:
    factor = VarianceScaling().fit(Normal(MEAN, STD), Y, sample_weight=WEIGHT).factor_
    z = (Y - MEAN) / STD
    assert factor == pytest.approx([np.sqrt(np.average(z**2, weights=WEIGHT))], rel=1e-12)


@pytest.mark.parametrize("outputs", KINDS, ids=lambda one: type(one).__name__)
def test_the_factor_is_the_one_of_least_loss(outputs: Any) -> None:
    scaling = VarianceScaling().fit(outputs, Y, sample_weight=WEIGHT)
    found = optimize.minimize_scalar(
        lambda log_factor: loss_of(outputs, Y, WEIGHT, float(np.exp(log_factor))),
        bounds=(-3, 3),
        method="bounded",
        options={"xatol": 1e-10},
    )
    factor = float(scaling.factor_[0])
    assert loss_of(outputs, Y, WEIGHT, factor) <= found.fun + 1e-12
    assert factor == pytest.approx(np.exp(found.x), rel=1e-2)


@pytest.mark.parametrize("outputs", KINDS[:3], ids=lambda one: type(one).__name__)
@pytest.mark.parametrize("factor", [0.02, 0.5, 3.0, 400.0])
def test_transform_stretches_about_the_center(outputs: Any, factor: float) -> None:
    scaling = VarianceScaling().fit(outputs, Y)
    again = VarianceScaling().fit(stretched(outputs, factor), Y)
    assert again.factor_ * factor == pytest.approx(scaling.factor_, rel=1e-8)
    found, expected = scaling.transform(outputs), stretched(outputs, float(scaling.factor_[0]))
    for name in ("mean", "std", "array", "levels"):
        if hasattr(found, name):
            assert getattr(found, name) == pytest.approx(getattr(expected, name), abs=1e-12)


@pytest.mark.parametrize("n_draws", [2, 3, 8])
def test_few_draws_that_are_right_already_are_left_alone(n_draws: int) -> None:
    rng = np.random.default_rng(n_draws)
    draws, y = rng.normal(size=(40_000, n_draws)), rng.normal(size=40_000)
    assert VarianceScaling().fit(Samples(draws), y).factor_ == pytest.approx([1.0], abs=0.02)


def least_loss(center: Any, values: Any, levels: Any, y: Any, weight: Any) -> float:
    """Return the least loss over all factors at which the loss bends."""
    e, d = y - center, values - center[:, None]
    with np.errstate(all="ignore"):
        bends = (e[:, None] / d).ravel()
    tries = np.unique(np.clip(np.append(bends[bends > 0], [1.0, 1e-12, 1e12]), 1e-12, 1e12))

    def loss(factor: float) -> float:
        r = e[:, None] - factor * d
        return float(weight @ np.maximum(levels * r, (levels - 1) * r).sum(axis=1))

    return min(map(loss, tries))


grid = st.integers(-4, 4).map(lambda k: k / 2)


@pytest.mark.slow
@settings(max_examples=60)
@given(st.data(), st.sampled_from([np.float32, np.float64]))
def test_no_factor_does_better_whatever_the_rows(data: st.DataObject, kind: Any) -> None:
    n_rows, n_levels = data.draw(st.integers(1, 5)), data.draw(st.integers(2, 4))
    size = n_rows * n_levels
    flat = data.draw(st.lists(grid, min_size=size, max_size=size))
    values = np.sort(np.array(flat, dtype=kind).reshape(n_rows, n_levels), axis=1)
    y = np.array(data.draw(st.lists(grid, min_size=n_rows, max_size=n_rows)))
    counts = data.draw(st.lists(st.integers(0, 3), min_size=n_rows, max_size=n_rows))
    weight = np.array(counts, dtype=float)
    weight[0] += 1
    levels = np.arange(1, n_levels + 1) / (n_levels + 1)
    middles = np.array([np.interp(0.5, levels, row) for row in values])
    draw_levels = (np.arange(n_levels) + 0.5) / n_levels
    cases: list[tuple[Any, Any, Any]] = [
        (Quantiles(values, levels), middles, levels),
        (Samples(values), values.mean(axis=1, dtype=np.float64), draw_levels),
    ]
    for outputs, center, at in cases:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", BoundWarning)
            factor = float(VarianceScaling().fit(outputs, y, sample_weight=weight).factor_[0])
        wide = values.astype(np.float64)
        best = least_loss(center, wide, at, y, weight)
        r = y[:, None] - center[:, None] - factor * (wide - center[:, None])
        loss = float(weight @ np.maximum(at * r, (at - 1) * r).sum(axis=1))
        assert loss <= best + 1e-6 * (1 + abs(best))


@pytest.mark.slow
@settings(max_examples=40)
@given(
    st.lists(st.tuples(grid, st.floats(1e-3, 1e3), grid, st.integers(0, 3)), min_size=1),
    st.booleans(),
)
def test_normals_of_any_kind(rows: list[tuple[float, float, float, int]], is_flat: bool) -> None:
    mean, std, y, weight = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    std, weight[0] = (np.ones_like(std) if is_flat else std), 1
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)  # of bounds, or of a single row
        scaling = VarianceScaling().fit(Normal(mean, std), y, sample_weight=weight)
    expected = np.sqrt(np.average(((y - mean) / std) ** 2, weights=weight))
    assert scaling.factor_ == pytest.approx([np.clip(expected, 1e-12, 1e12)], rel=1e-9)
    assert (scaling.transform(Normal(mean, std)).std > 0).all()  # type: ignore[union-attr]


def test_of_several_factors_as_good_the_one_nearest_to_1_is_taken() -> None:
    flat = Samples([[1.0, 1.0], [2.0, 2.0]])
    assert VarianceScaling().fit(flat, [0.0, 5.0]).factor_.tolist() == [1.0]
    # Of the upper quantile 0.75 and true values at 1, 2, 3, 4 the loss is flat from 3 to 4.
    outputs, y = Quantiles([[0.0, 1.0]] * 4, [0.5, 0.75]), np.arange(1.0, 5.0)
    assert VarianceScaling().fit(outputs, y).factor_ == pytest.approx([3.0], rel=1e-9)
    assert VarianceScaling().fit(outputs, y / 5).factor_ == pytest.approx([0.8], rel=1e-9)
    assert VarianceScaling().fit(outputs, y / 3.5).factor_.tolist() == [1.0]


@pytest.mark.parametrize(
    ("outputs", "bound", "why"),
    [
        (Normal([1.0], [1.0]), 1e-12, "no spread at all fits best"),
        (Quantiles([[0.5, 1.0, 1.5]], [0.1, 0.5, 0.9]), 1e-12, "no spread at all fits best"),
        (Normal([0.0], [1e-300]), 1e12, "no spread is wide enough"),
        (Quantiles([[0.0, 1e-300]], [0.5, 0.9]), 1e12, "no spread is wide enough"),
    ],
)
def test_a_factor_at_its_bound_warns(outputs: Any, bound: float, why: str) -> None:
    with pytest.warns(BoundWarning) as caught:
        scaling = VarianceScaling().fit(outputs, [1.0])
    assert str(caught[0].message) == (
        f"The factor ended at its bound of {bound:.3g}: {why}. Check the targets."
    )
    assert caught[0].filename == __file__
    assert scaling.factor_.tolist() == [bound]


def test_a_spread_beyond_all_numbers_is_the_largest_one() -> None:
    for outputs in (Normal([0.0], [1e300]), Samples([[-1e300, 1e300]])):
        kind: Any = type(outputs)
        small = Normal([0.0], [1e-9]) if kind is Normal else Samples([[-1e-9, 1e-9]])
        calibrated: Any = VarianceScaling().fit(small, [1.0]).transform(outputs)
        widest = calibrated.std if kind is Normal else calibrated.array[:, 1]
        assert widest.tolist() == [np.finfo(np.float64).max]


def test_a_spread_that_would_vanish_stays_a_spread() -> None:
    with pytest.warns(BoundWarning):
        scaling = VarianceScaling().fit(Normal([1.0], [1.0]), [1.0])
    tiny = Normal(np.zeros(1, np.float32), np.full(1, 1e-36, np.float32))
    calibrated = scaling.transform(tiny)
    assert isinstance(calibrated, Normal)
    assert calibrated.std.tolist() == [np.finfo(np.float32).tiny]


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ([1.42], "predicted standard deviations were too small: multiplied by 1.42"),
        ([0.5], "predicted standard deviations were too large: multiplied by 0.5"),
        ([1.001], "predicted standard deviations were right already: multiplied by 1"),
        (
            [1.5, 2.5],
            "predicted standard deviations were too small: multiplied by 1.5 to 2.5 over 2 targets",
        ),
        (
            [0.5, 2.0],
            "predicted standard deviations were too small or too large: multiplied by "
            "0.5 to 2 over 2 targets",
        ),
    ],
)
def test_the_summary_begins_with_what_was_wrong(factors: list[float], words: str) -> None:
    mean = np.zeros((200, len(factors)))
    y = np.where(np.arange(200) % 2, 1.0, -1.0)[:, None] * np.array(factors)
    outputs, y = (
        (Normal(mean, mean + 1), y)
        if len(factors) > 1
        else (
            Normal(mean[:, 0], mean[:, 0] + 1),
            y[:, 0],
        )
    )
    assert VarianceScaling().fit(outputs, y).summary() == words


def test_a_single_row_that_determines_the_factor_is_named() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=50)
    y[17] = 1e9
    outputs = Normal(np.zeros(50), np.ones(50))
    with pytest.warns(DubitoWarning, match=r"target of row 17 is 1e\+09 .* standard deviations"):
        VarianceScaling().fit(outputs, y)


@pytest.mark.parametrize(
    ("outputs", "expected"),
    [
        (Quantiles([[-1.0, 0.0, 1.0]] * 4, [0.25, 0.5, 0.75]), "widths of predicted intervals"),
        (Samples([[-1.0, 0.0, 1.0]] * 4), "the spread of draws"),
    ],
    ids=["quantiles", "samples"],
)
def test_only_normals_have_standard_deviations(outputs: Any, expected: str) -> None:
    found = VarianceScaling().fit(outputs, [-2.0, 0.5, 1.5, 3.0]).summary()
    assert found.startswith(expected)
