"""A regression's whole distribution from a mixture over inputs and target."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.testing import assert_array_equal as same
from scipy import special, stats
from sklearn.linear_model import LinearRegression

from dubito import Normal, Probabilities, Samples
from dubito.data import ArrayShards, Batch
from dubito.doubt import JointDensity
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoWarning,
    EmptyStateError,
    MissingLabelsWarning,
    UnfittedError,
)
from tests.doubt.test_feature_shards import streamed

RNG = np.random.default_rng(9)
X = RNG.uniform(-2, 2, (600, 2))
Y = np.where(RNG.random(600) < 0.5, 1, -1) * (2 + X[:, 0]) + 0.1 * RNG.normal(size=600)
NEW = RNG.uniform(-2, 2, (40, 2))
FITTED = JointDensity(n_components=4).fit(X, Y)


def scipys(columns: slice) -> Any:
    return [
        stats.multivariate_normal(mean[columns], covariance[columns, columns])
        for mean, covariance in zip(FITTED.means_, FITTED.covariances_, strict=True)
    ]


def mixed(parts: Any, rows: Any) -> Any:
    logs = [np.log(w) + one.logpdf(rows) for w, one in zip(FITTED.weights_, parts, strict=True)]
    return special.logsumexp(logs, axis=0)


def test_densities_are_ratios_of_scipys() -> None:
    y = RNG.normal(0, 3, 40)
    joint = mixed(scipys(slice(0, 3)), np.column_stack([NEW, y]))
    marginal = mixed(scipys(slice(0, 2)), NEW)
    close(FITTED.log_density(NEW, y), joint - marginal, rtol=1e-7)
    close(FITTED.density(NEW, y), np.exp(joint - marginal), rtol=1e-7, atol=1e-300)
    close(FITTED.score(NEW), -marginal, rtol=1e-9)


def test_inputs_far_from_all_are_outliers() -> None:
    assert FITTED.score([[50.0, 0.0]])[0] > FITTED.score(X).max()


def test_one_component_is_linear_regression() -> None:
    y = X @ [3.0, -1.0] + 5 + RNG.normal(0, 0.5, 600)
    found = JointDensity(n_components=1).fit(X, y).predict(NEW)
    peer = LinearRegression().fit(X, y)
    assert isinstance(found, Normal)
    close(found.mean, peer.predict(NEW), rtol=1e-4)
    close(found.std, np.std(y - peer.predict(X)), rtol=1e-4)


def test_two_branches_are_found_where_a_mean_finds_none() -> None:
    x = [[1.0, 0.0]]
    on, between = FITTED.density(x, [3.0]), FITTED.density(x, [0.0])
    assert on[0] > 100 * between[0]
    spread = FITTED.predict(x)
    assert abs(spread.mean[0]) < 1
    assert spread.std[0] == pytest.approx(3, rel=0.15)


def test_the_mixture_itself_keeps_both_branches() -> None:
    x = np.array([[1.0, 0.0]])
    found = FITTED.predict_mixture(x)
    quarters = found.quantiles([0.25, 0.75]).array[0]
    assert quarters == pytest.approx([-3, 3], abs=0.3)
    spread = FITTED.predict(x)
    between = stats.norm(spread.mean[0], spread.std[0]).cdf([-1, 1])
    assert found.cdf([1.0])[0] - found.cdf([-1.0])[0] < 0.01 < 0.2 < between[1] - between[0]


def test_density_quantiles_and_draws_of_the_mixture_are_those_of_the_model() -> None:
    y = RNG.normal(0, 3, 40)
    mixture = FITTED.predict_mixture(NEW)
    close(mixture.log_density(y), FITTED.log_density(NEW, y), rtol=1e-9)
    close(mixture.normal.mean, FITTED.predict(NEW).mean)
    close(mixture.normal.std, FITTED.predict(NEW).std)
    draws = np.sort(FITTED.sample(NEW, 4000).array, axis=1)
    ranks = mixture.quantiles([0.1, 0.5, 0.9])
    for level, column in zip(ranks.levels, ranks.array.T, strict=True):
        below = (draws < column[:, np.newaxis]).mean(axis=1)
        assert np.abs(below - level).max() < 5 * np.sqrt(level * (1 - level) / 4000)


def test_the_mixture_of_several_targets_is_of_each_by_itself() -> None:
    both = np.column_stack([Y, X[:, 1] + 0.1 * RNG.normal(size=600)])
    fitted = JointDensity(n_components=2).fit(X, both)
    mixture = fitted.predict_mixture(NEW)
    assert mixture.means.shape == mixture.stds.shape == (2, 40, 2)
    draws = fitted.sample(NEW, 4000).array
    below = (draws < mixture.quantiles([0.8]).array).mean(axis=1)
    assert np.abs(below - 0.8).max() < 5 * np.sqrt(0.8 * 0.2 / 4000)


def test_draws_are_seeded_and_spread_as_predicted() -> None:
    draws = FITTED.sample(NEW, 4000, random_state=3)
    assert isinstance(draws, Samples)
    assert draws.array.shape == (40, 4000)
    found = FITTED.predict(NEW)
    assert (np.abs(draws.array.mean(axis=1) - found.mean) < 0.1 * found.std).all()
    assert (np.abs(draws.array.std(axis=1) / found.std - 1) < 0.1).all()
    same(draws.array, FITTED.sample(NEW, 4000, random_state=3).array)
    assert not np.array_equal(draws.array, FITTED.sample(NEW, 4000, random_state=4).array)


def test_several_targets_come_as_columns() -> None:
    both = np.column_stack([Y, X[:, 1] + 0.1 * RNG.normal(size=600)])
    fitted = JointDensity(n_components=2).fit(X, both)
    assert fitted.n_targets_ == 2
    assert fitted.predict(NEW).mean.shape == (40, 2)
    assert fitted.sample(NEW, 5).array.shape == (40, 5, 2)
    assert fitted.log_density(NEW, np.zeros((40, 2))).shape == (40,)


@pytest.mark.slow
def test_units_change_nothing_but_the_units() -> None:
    scale, move = np.array([1e6, 1e-6]), np.array([1e7, 0.0])
    found = JointDensity(n_components=4).fit(X * scale + move, 1e3 * Y)
    close(found.predict(NEW * scale + move).mean, 1e3 * FITTED.predict(NEW).mean, rtol=1e-3, atol=1)
    close(found.score(NEW * scale + move), FITTED.score(NEW), rtol=1e-3, atol=1e-2)


@pytest.mark.slow
def test_constant_columns_and_equal_rows_are_no_obstacle() -> None:
    x = np.column_stack([X, np.full(600, 0.1)])
    found = JointDensity(n_components=2).fit(x, Y)
    assert np.isfinite(found.score(x)).all()
    same_rows = JointDensity(n_components=2).fit(np.ones((5, 1)), np.ones(5))
    assert same_rows.predict([[1.0]]).mean.tolist() == pytest.approx([1.0])


@pytest.mark.slow
@pytest.mark.parametrize("kind", [np.float16, np.float32])
def test_narrow_floats_are_read_as_what_they_are(kind: Any) -> None:
    x, y = X.astype(kind), Y.astype(kind)
    wide = JointDensity(2).fit(x.astype(np.float64), y.astype(np.float64))
    close(JointDensity(2).fit(x, y).score(x), wide.score(x.astype(np.float64)), rtol=1e-9)


@pytest.mark.slow
def test_shards_hold_inputs_and_targets() -> None:
    batch = Batch.of(Y, Normal(np.zeros(600), np.ones(600)), features=X)
    for source in (ArrayShards(batch), streamed(batch)):
        same(JointDensity(n_components=4).fit(source).score(NEW), FITTED.score(NEW))


def test_no_rows_have_no_predictions() -> None:
    nothing = np.empty((0, 2))
    assert FITTED.predict(nothing).n_rows == 0
    assert FITTED.sample(nothing, 3).array.shape == (0, 3)
    assert FITTED.log_density(nothing, []).shape == (0,)
    assert FITTED.score(nothing).shape == (0,)


def test_missing_targets_are_left_out_with_a_warning() -> None:
    y = np.where(np.arange(600) % 2 == 0, np.nan, Y)
    with pytest.warns(MissingLabelsWarning, match="JointDensity: 300 of 600 rows have no label"):
        found = JointDensity(2).fit(X, y)
    same(found.score(NEW), JointDensity(2).fit(X[1::2], Y[1::2]).score(NEW))


def test_a_mixture_that_still_moves_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dubito.doubt.densities.MAX_ITERATIONS", 1)
    with pytest.warns(
        DubitoWarning, match="the mixture did not converge in 1 iterations"
    ) as caught:
        JointDensity(4).fit(X, Y)
    assert caught[0].filename == __file__


CLASSES = Batch.of([0, 1], Probabilities([[0.5, 0.5]] * 2), features=[[1.0], [2.0]])
WEIGHED = Batch.of(
    [0.0, 1.0], Normal([1.0, 2.0], [1.0, 1.0]), features=[[1.0], [2.0]], sample_weight=[1, 2]
)
BARE = Batch.of([0.0, 1.0], Normal([1.0, 2.0], [1.0, 1.0]))


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (
            lambda: JointDensity().fit(X),
            BadTypeError,
            r"`y` .*, got None\. Pass y",
        ),
        (
            lambda: JointDensity(n_components=0).fit(X, Y),
            BadValueError,
            r"`n_components` .*, got 0\. Use n_components=5",
        ),
        (
            lambda: JointDensity().fit(X[:3], Y[:3]),
            BadValueError,
            r"`features` .*, got 3\. Lower n_components",
        ),
        (
            lambda: JointDensity(1).fit(np.empty((0, 2)), []),
            EmptyStateError,
            r"JointDensity needs at least 1 labeled row of positive weight, got 0\. Pass at least "
            "one labeled row with a positive weight",
        ),
        (
            lambda: JointDensity(1).fit([[1e200], [-1e200]], [0.0, 1.0]),
            BadValueError,
            r"`features` .*, got an overflow\. Divide the features by a constant first",
        ),
        (
            lambda: JointDensity().fit(ArrayShards(BARE), [0, 1]),
            BadTypeError,
            r"`y` .*, got list\. Hold it in the shards instead: Columns\(label=\.\.\.\)",
        ),
        (
            lambda: JointDensity().fit(ArrayShards(BARE)),
            BadTypeError,
            r"`features` .*, got no features\. Use Columns\(features=\.\.\., label=\.\.\.\)",
        ),
        (
            lambda: JointDensity().fit(ArrayShards(CLASSES)),
            BadTypeError,
            r"`features` .*, got no targets\. Use Columns\(features=\.\.\., label=\.\.\.\)",
        ),
        (
            lambda: JointDensity().fit(ArrayShards(WEIGHED)),
            BadValueError,
            r"`features` .*, got weights that differ\. Fit without weights",
        ),
        (
            lambda: FITTED.log_density(NEW, np.zeros((40, 2))),
            BadValueError,
            r"`y` .*, got shape \(40, 2\) with 0 rows missing\. Pass targets as during fit, with.*"
            "missing ones",
        ),
        (
            lambda: FITTED.sample(NEW, 0),
            BadValueError,
            r"`n_samples` .*, got 0\. Use n_samples=100",
        ),
        (
            lambda: JointDensity().predict(NEW),
            UnfittedError,
            "JointDensity.*fit",
        ),
    ],
)
def test_invalid_arguments_raise(call: Callable[[], Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        call()


def test_an_invalid_random_state_raises() -> None:
    with pytest.raises(
        BadValueError,
        match=r"JointDensity: `random_state` .*, got 'a'\. Pass "
        "random_state=0",
    ):
        JointDensity(random_state="a").fit(X, Y)  # type: ignore[arg-type]
    with pytest.raises(
        BadValueError,
        match=r"JointDensity\.sample: `random_state` .*, got "
        r"'a'\. Pass random_state=0",
    ):
        FITTED.sample(NEW, random_state="a")  # type: ignore[arg-type]
