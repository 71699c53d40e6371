import numpy as np
import pytest
from scipy import integrate, stats

from dubito import Normal, Probabilities, Quantiles, Samples
from dubito.errors import BadTypeError, BadValueError
from dubito.measure import (
    continuous_ranked_probability_score,
    interval_coverage,
    interval_score,
    negative_log_likelihood,
    pinball_loss,
    probability_integral_transform,
    sharpness,
)

RNG = np.random.default_rng(0)
MEAN, STD = RNG.normal(size=60), np.exp(RNG.normal(size=60) / 2)
Y = MEAN + STD * RNG.normal(size=60)
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
QUANTILES = Quantiles(stats.norm.ppf(LEVELS, MEAN[:, np.newaxis], STD[:, np.newaxis]), LEVELS)


def test_normal_likelihood_equals_scipy() -> None:
    expected = -stats.norm.logpdf(Y, MEAN, STD).mean()
    assert negative_log_likelihood(Y, Normal(MEAN, STD)) == pytest.approx(expected)


def test_normal_crps_equals_its_integral() -> None:
    def squared_distance(x: float, mean: float, std: float, y: float) -> float:
        return float((stats.norm.cdf(x, mean, std) - (x >= y)) ** 2)

    pieces = []
    for mean, std, y in zip(MEAN[:8], STD[:8], Y[:8], strict=True):
        ends = (min(y, mean - 12 * std), y, max(y, mean + 12 * std))
        low = integrate.quad(squared_distance, ends[0], y, args=(mean, std, y))[0]
        high = integrate.quad(squared_distance, y, ends[2], args=(mean, std, y))[0]
        pieces.append(low + high)
    value = continuous_ranked_probability_score(Y[:8], Normal(MEAN[:8], STD[:8]))
    assert value == pytest.approx(np.mean(pieces), abs=1e-6)


def test_sample_crps_equals_all_pairs_of_draws() -> None:
    draws = RNG.normal(size=(60, 7))
    errors = np.abs(draws - Y[:, np.newaxis]).mean(axis=1)
    pairs = np.abs(draws[:, :, np.newaxis] - draws[:, np.newaxis]).mean(axis=(1, 2))
    value = continuous_ranked_probability_score(Y, Samples(draws))
    assert value == pytest.approx((errors - pairs / 2).mean())


def test_quantile_crps_comes_close_to_the_normal_one_with_many_levels() -> None:
    levels = (np.arange(400) + 0.5) / 400
    array = stats.norm.ppf(levels, MEAN[:, np.newaxis], STD[:, np.newaxis])
    fine = continuous_ranked_probability_score(Y, Quantiles(array, levels))
    exact = continuous_ranked_probability_score(Y, Normal(MEAN, STD))
    assert fine == pytest.approx(exact, rel=2e-3)


def test_pinball_loss_equals_scikit_learn() -> None:
    from sklearn.metrics import mean_pinball_loss

    columns = zip(QUANTILES.array.T, LEVELS, strict=True)
    expected = np.mean([mean_pinball_loss(Y, column, alpha=a) for column, a in columns])
    assert pinball_loss(Y, QUANTILES) == pytest.approx(expected)


def test_coverage_and_width_agree_over_all_kinds() -> None:
    inside = np.abs(Y - MEAN) <= stats.norm.ppf(0.95) * STD
    assert interval_coverage(Y, Normal(MEAN, STD)) == pytest.approx(inside.mean())
    assert interval_coverage(Y, QUANTILES) == pytest.approx(inside.mean())
    draws = stats.norm.ppf((np.arange(4000) + 0.5) / 4000, MEAN[:, np.newaxis], STD[:, np.newaxis])
    assert interval_coverage(Y, Samples(draws)) == pytest.approx(inside.mean(), abs=0.02)
    widths = [sharpness(one) for one in (Normal(MEAN, STD), QUANTILES, Samples(draws))]
    assert widths[0] == pytest.approx(2 * stats.norm.ppf(0.95) * STD.mean())
    assert widths[1] == pytest.approx(widths[0])
    assert widths[2] == pytest.approx(widths[0], rel=1e-3)


def test_interval_score_is_a_sum_of_pinball_losses_of_scikit_learn() -> None:
    from sklearn.metrics import mean_pinball_loss

    tails = 0.05, 0.95
    ends = [stats.norm.ppf(level, MEAN, STD) for level in tails]
    losses = [mean_pinball_loss(Y, end, alpha=a) for end, a in zip(ends, tails, strict=True)]
    for outputs in (Normal(MEAN, STD), QUANTILES):
        assert interval_score(Y, outputs) == pytest.approx(2 / 0.1 * sum(losses))


def test_pit_of_each_kind() -> None:
    exact = stats.norm.cdf(Y, MEAN, STD)
    assert probability_integral_transform(Y, Normal(MEAN, STD)) == pytest.approx(exact)
    assert probability_integral_transform([2.0], Samples([[1.0, 2.0, 2.0, 3.0]])).tolist() == [0.5]
    between = Quantiles([[0.0, 1.0, 3.0]] * 6, levels=[0.2, 0.5, 0.8])
    places = probability_integral_transform([-1.0, 0.0, 0.5, 1.0, 2.0, 9.0], between)
    assert places == pytest.approx([0.1, 0.2, 0.35, 0.5, 0.65, 0.9])


def test_tied_quantiles_have_a_place() -> None:
    flat = Quantiles([[1.0, 1.0, 1.0]] * 3, levels=[0.2, 0.5, 0.8])
    assert np.isfinite(probability_integral_transform([0.0, 1.0, 2.0], flat)).all()


@pytest.mark.parametrize(
    "metric", [negative_log_likelihood, continuous_ranked_probability_score, interval_coverage]
)
def test_vector_targets_are_means_over_coordinates_and_weights_count_rows(metric: object) -> None:
    assert callable(metric)
    mean, std, y = MEAN.reshape(30, 2), STD.reshape(30, 2), Y.reshape(30, 2)
    each = [metric(y[:, j], Normal(mean[:, j], std[:, j])) for j in range(2)]
    assert metric(y, Normal(mean, std)) == pytest.approx(np.mean(each))
    weight = RNG.integers(0, 3, 30)
    repeated = metric(
        np.repeat(y, weight, axis=0),
        Normal(np.repeat(mean, weight, axis=0), np.repeat(std, weight, axis=0)),
    )
    assert metric(y, Normal(mean, std), sample_weight=weight) == pytest.approx(repeated)


def test_missing_targets_are_left_out_and_counted() -> None:
    y = np.where(np.arange(60) < 5, np.nan, Y)
    with pytest.warns(UserWarning, match="5 of 60 rows"):
        value = negative_log_likelihood(y, Normal(MEAN, STD))
    assert value == pytest.approx(negative_log_likelihood(Y[5:], Normal(MEAN[5:], STD[5:])))


def test_arguments_that_do_not_fit_raise() -> None:
    with pytest.raises(BadTypeError, match="one of Normal, Samples, Quantiles"):
        interval_coverage([0.5], Probabilities([0.5]))
    with pytest.raises(BadTypeError, match="one of Quantiles"):
        pinball_loss(Y, Normal(MEAN, STD))
    with pytest.raises(BadTypeError, match="`y_true` must be given"):
        interval_coverage(None, Normal(MEAN, STD))
    with pytest.raises(BadValueError, match="must have the shape"):
        interval_coverage(Y[:, np.newaxis], Normal(MEAN, STD))
    with pytest.raises(
        BadValueError,
        match=r"`level` 0\.8 needs the quantiles 0\.1 and 0\.9, got .*\. Pass level=0\.9",
    ):
        interval_coverage(Y, QUANTILES, level=0.8)
