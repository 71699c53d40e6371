"""Conformal predictive systems: distribution functions by ranks, exactly uniform at the targets."""

import json
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from sklearn.base import clone

from dubito import Normal, Quantiles, Samples
from dubito.data import Batch, Shards
from dubito.doubt import ConformalPredictiveSystem
from dubito.errors import BadTypeError, BadValueError, DubitoWarning, MissingLabelsWarning
from dubito.measure import continuous_ranked_probability_score

RNG = np.random.default_rng(0)
N = 300
MEAN, STD = RNG.normal(size=N), np.exp(RNG.normal(size=N) / 2)
Y = MEAN + 0.3 + 2 * STD * RNG.normal(size=N)
OUTPUTS = Normal(MEAN, STD)
KNOWN, NEW = slice(0, 200), slice(200, N)


def fitted(method: Any = "normalized") -> ConformalPredictiveSystem:
    return ConformalPredictiveSystem(method=method).fit(OUTPUTS.take(KNOWN), Y[KNOWN])


def test_the_distribution_is_that_of_calibration_errors() -> None:
    found = fitted().predict(OUTPUTS.take(NEW))
    scores = np.sort((Y[KNOWN] - MEAN[KNOWN]) / STD[KNOWN])
    for tau in (0.0, 0.5, 1.0):
        own = (Y[NEW] - MEAN[NEW]) / STD[NEW]
        expected = ((scores < own[:, None]).sum(axis=1) + tau) / 201
        close(found.cdf(Y[NEW], tau), expected, atol=1e-12)
    levels = [0.05, 0.35, 0.5, 0.9]
    at = np.quantile(scores, levels, method="weibull")
    close(found.quantile(levels).array, MEAN[NEW, None] + STD[NEW, None] * at, atol=1e-12)
    interval = found.interval(0.8)
    close(interval.low, MEAN[NEW] + STD[NEW] * scores[19], atol=1e-12)  # floor(0.1 x 201) = 20th
    close(interval.high, MEAN[NEW] + STD[NEW] * scores[180], atol=1e-12)  # ceil(0.9 x 201) = 181st


def test_the_distribution_function_is_exactly_uniform() -> None:
    # Exchangeable rows are any of n + 1 in turn: each rank occurs once.
    rows = np.arange(30)
    found = []
    for i in rows:
        others = np.delete(rows, i)
        system = ConformalPredictiveSystem(method="normalized")
        system.fit(OUTPUTS.take(others), Y[others])
        found.append(system.predict(OUTPUTS.take(rows[i : i + 1])).cdf(Y[i : i + 1], 0.3)[0])
    close(np.sort(found), (rows + 0.3) / 30, atol=1e-12)


@pytest.mark.slow
@settings(max_examples=50, deadline=None)
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(2, 12), st.just(2)),
        elements=st.sampled_from([0.0, 1.0, -1.0, 0.1, 1e300, -1e300, 1e-300]),
    ),
    st.sampled_from([0.5, 0.75, 0.8]),
)
def test_intervals_of_any_rows_cover(table: Any, level: float) -> None:
    y, mean = table.T
    n_covered = 0
    for i in range(len(y)):
        others = np.delete(np.arange(len(y)), i)
        system = ConformalPredictiveSystem(level=0.1).fit(mean[others], y[others])
        found = system.predict(mean[i : i + 1])
        low, high = found.interval(level).low, found.interval(level).high
        # Rounding of center + score x unit may move a bound by some units in the last place.
        slack = 1e-12 * (np.abs(y[i]) + np.abs(mean[i]))
        n_covered += bool(low[0] - slack <= y[i] <= high[0] + slack)
        assert np.isfinite(found.quantile([0.1, 0.9]).array).all()
    assert n_covered >= level * len(y) - 1e-9


def test_errors_beyond_the_largest_number_are_covered() -> None:
    most = np.finfo(np.float64).max
    y = np.array([most, most, most, -most, 0.0])
    system = ConformalPredictiveSystem(level=0.5).fit(np.full(5, -most), y)
    assert system.predict([-most]).interval(0.5).high[0] == np.inf
    tiny = Normal(np.zeros(4), np.full(4, 1e-307))
    system = ConformalPredictiveSystem(0.5, "normalized").fit(tiny, np.full(4, 10.0))
    assert system.predict(tiny).interval(0.5).high[0] == np.inf


@pytest.mark.parametrize("method", ["absolute", "normalized", "adaptive"])
@pytest.mark.parametrize(
    "outputs",
    [
        OUTPUTS,
        Samples(MEAN[:, None] + STD[:, None] * RNG.normal(size=(N, 20))),
        Quantiles(np.stack([MEAN - STD, MEAN, MEAN + STD], axis=1), [0.2, 0.5, 0.8]),
    ],
    ids=["Normal", "Samples", "Quantiles"],
)
def test_every_kind_of_outputs_is_calibrated_and_kept(outputs: Any, method: Any) -> None:
    system = ConformalPredictiveSystem(method=method).fit(outputs.take(KNOWN), Y[KNOWN])
    found = system.predict(outputs.take(NEW))
    pit = found.cdf(Y[NEW], np.random.default_rng(1).random(100))
    assert abs(pit.mean() - 0.5) < 0.09  # 3 standard errors of uniform values
    assert abs(found.interval(0.8).coverage(Y[NEW]) - 0.8) < 0.15
    kept = ConformalPredictiveSystem.from_dict(json.loads(json.dumps(system.to_dict())))
    for restored in (kept, pickle.loads(pickle.dumps(system))):
        assert (restored.predict(outputs.take(NEW)).cdf(Y[NEW]) == found.cdf(Y[NEW])).all()
    assert clone(system).get_params() == system.get_params()
    assert repr(found).startswith("PredictiveDistributions(shape (100,)")


@pytest.mark.slow
def test_the_crps_of_quantiles_is_that_of_the_distribution_function() -> None:
    first = OUTPUTS.take(slice(200, 201))
    found, y = fitted().predict(first), Y[200:201]
    crps = continuous_ranked_probability_score(y, found.quantile(np.arange(1, 201) / 201))
    grid = np.linspace(-30, 30, 6001)
    cdf = np.concatenate([found.cdf([value]) for value in grid])
    outer = (cdf > 1 / 201) & (cdf < 200 / 201)  # beyond, quantiles end at the outermost score
    integral = (((cdf - (grid >= y)) ** 2) * outer).sum() * 0.01
    assert crps == pytest.approx(integral, rel=0.02)


def test_groups_have_distributions_of_their_own() -> None:
    groups = np.where(np.arange(N) % 2, "b", "a")
    y = np.where(groups == "b", MEAN + 5 * (Y - MEAN), Y)
    system = ConformalPredictiveSystem(method="normalized").fit(OUTPUTS, y, groups)
    found = system.predict(OUTPUTS, groups).cdf(y)
    for name in "ab":
        rows = np.flatnonzero(groups == name)
        alone = ConformalPredictiveSystem(method="normalized").fit(OUTPUTS.take(rows), y[rows])
        assert (alone.predict(OUTPUTS.take(rows)).cdf(y[rows]) == found[rows]).all()
    with pytest.raises(BadValueError, match=r"groups of the fit \(a, b\), got c"):
        system.predict(OUTPUTS.take(slice(0, 1)), ["c"])
    with pytest.raises(BadTypeError, match="was fitted with groups, got none"):
        system.predict(OUTPUTS)


def test_a_weight_of_two_is_two_rows() -> None:
    twice = np.repeat(np.arange(50), 2)
    batch = Batch.of(Y[:50], OUTPUTS.take(slice(0, 50)), sample_weight=np.full(50, 2.0))
    weighted = ConformalPredictiveSystem(method="normalized").fit(batch).predict(OUTPUTS)
    repeated = ConformalPredictiveSystem(method="normalized").fit(OUTPUTS.take(twice), Y[twice])
    levels = np.arange(1, 20) / 20
    expected = repeated.predict(OUTPUTS)
    close(weighted.cdf(Y), expected.cdf(Y), atol=1e-12)
    close(weighted.quantile(levels).array, expected.quantile(levels).array, atol=1e-9)
    close(weighted.interval(0.8).low, expected.interval(0.8).low, atol=1e-12)


def test_few_rows_and_missing_targets() -> None:
    with pytest.warns(DubitoWarning, match="too few rows for level=0.9"):
        system = ConformalPredictiveSystem().fit(MEAN[:5], Y[:5])
    found = system.predict(MEAN[:1])
    assert (found.interval(0.9).low[0], found.interval(0.9).high[0]) == (-np.inf, np.inf)
    assert np.isfinite(found.interval(0.5).width).all()
    y = np.where(np.arange(N) % 3, Y, np.nan)
    with pytest.warns(MissingLabelsWarning, match="100 of 300 rows") as caught:
        system = ConformalPredictiveSystem().fit(OUTPUTS, y)
    assert (len(caught), caught[0].filename) == (1, __file__)
    assert (system.method_, system.n_rows_) == ("adaptive", {"all": 100.0})


class Streamed(Shards):
    def parts(self) -> Any:
        return iter([lambda: Batch.of(Y, OUTPUTS)])


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: fitted("cqr"), BadValueError, "got 'cqr'. Use method=None"),
        (
            lambda: ConformalPredictiveSystem(method="normalized").fit(MEAN, Y),
            BadValueError,
            "for predictions without a spread, got 'normalized'",
        ),
        (lambda: fitted().predict(MEAN), BadTypeError, "must be Normal, as during fit"),
        (lambda: fitted().predict(OUTPUTS).cdf(Y, 2.0), BadValueError, "`tau`.*from 0 to 1"),
        (lambda: fitted().predict(OUTPUTS).cdf(Y[:3]), BadValueError, "`y` must have length 300"),
        (
            lambda: ConformalPredictiveSystem().fit(OUTPUTS, Y, density_ratio=STD),
            BadTypeError,
            "Use ConformalRegressor",
        ),
        (
            lambda: ConformalPredictiveSystem().fit(Streamed()),
            BadTypeError,
            r"must be in memory, got a stream. Use arrays, or read\(source, columns\)",
        ),
    ],
)
def test_what_cannot_be_is_reported(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_quantiles_of_other_levels_raise() -> None:
    rng = np.random.default_rng(0)
    outputs = Quantiles(np.tile([-1.0, 0.0, 1.0], (200, 1)), [0.1, 0.5, 0.9])
    system = ConformalPredictiveSystem().fit(outputs, rng.normal(size=200))
    other = Quantiles([[-0.5, 0.0, 0.5]], [0.25, 0.5, 0.75])
    for one in (system, ConformalPredictiveSystem.from_dict(system.to_dict())):
        with pytest.raises(BadValueError, match=r"must have the levels 0\.1, 0\.5, 0\.9"):
            one.predict(other)
