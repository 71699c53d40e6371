"""Metrics of a regression before and after calibration, against plain references."""

import numpy as np
import pytest
from scipy import integrate, stats

from dubito import Normal, Quantiles, Samples
from dubito.calibrate import cross_validate_calibrator
from dubito.calibrate.quantile_recalibration import (
    regression_candidates,
    select_regression_calibrator,
)
from dubito.data import ArrayShards, Batch
from dubito.errors import EmptyStateError
from dubito.report.regression_summary import RegressionSummary, widths_of


def made(n_rows: int = 120) -> tuple[np.ndarray, Normal]:
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=n_rows), rng.uniform(0.2, 1, n_rows)
    return mean + 2 * std * rng.normal(size=n_rows), Normal(mean, std)


def test_the_factor_of_a_fold_comes_from_the_others() -> None:
    y, outputs = made()
    found = RegressionSummary.of(ArrayShards(Batch.of(y, outputs)), seed=4)
    after = found.after.batch.outputs
    assert found.after.name == "VarianceScaling"
    assert isinstance(after, Normal)
    order = np.random.default_rng(4).permutation(120)
    for fold in np.array_split(order, 5):
        others = np.setdiff1d(order, fold)
        z = (y[others] - outputs.mean[others]) / outputs.std[others]
        np.testing.assert_allclose(after.std[fold], outputs.std[fold] * np.sqrt((z**2).mean()))
        np.testing.assert_array_equal(after.mean[fold], outputs.mean[fold])


def test_metrics_match_plain_references() -> None:
    y, outputs = made()
    metrics = {
        name: was
        for name, was, _ in RegressionSummary.of(ArrayShards(Batch.of(y, outputs))).metrics
    }
    law = stats.norm(outputs.mean, outputs.std)
    assert metrics["negative log-likelihood"].value == pytest.approx(-law.logpdf(y).mean())  # type: ignore[union-attr]
    squares = ((y - outputs.mean) ** 2).mean()
    assert metrics["root mean squared error"].value == pytest.approx(np.sqrt(squares))  # type: ignore[union-attr]
    low, high = law.interval(0.9)
    inside = ((low <= y) & (y <= high)).mean()
    assert metrics["coverage of 90 % intervals"].value == pytest.approx(inside)  # type: ignore[union-attr]
    width = metrics["mean width of 90 % intervals"]
    assert width is not None
    assert width.value == pytest.approx((high - low).mean())
    assert width.low <= width.value <= width.high

    def crps(k: int) -> float:
        one = stats.norm(outputs.mean[k], outputs.std[k])
        below, _ = integrate.quad(lambda t: one.cdf(t) ** 2, -20, y[k])
        above, _ = integrate.quad(lambda t: one.sf(t) ** 2, y[k], 20)
        return float(below + above)

    few = Batch.of(y[:12], outputs.take(slice(0, 12)))
    found = RegressionSummary.of(ArrayShards(few)).metrics[0]
    assert found[0] == "CRPS"
    assert found[1] is not None
    assert found[1].value == pytest.approx(np.mean([crps(k) for k in range(12)]), abs=1e-6)


@pytest.mark.parametrize("power", [1.0, 3.0])
@pytest.mark.parametrize("has_groups", [False, True])
def test_a_report_selects_what_calibrate_selects(power: float, has_groups: bool) -> None:
    rng = np.random.default_rng(1)
    levels, z = np.arange(1, 20) / 20, rng.normal(size=400)
    y = np.sign(z) * np.abs(z) ** power
    outputs = Quantiles(np.tile(stats.norm.ppf(levels), (400, 1)), levels)
    rows = ArrayShards(Batch.of(y, outputs, groups=np.arange(400) % 40 if has_groups else None))
    summary = RegressionSummary.of(rows)
    evidence = {
        type(one).__name__: cross_validate_calibrator(one, rows)
        for one in regression_candidates(outputs)
    }
    chosen, reason = select_regression_calibrator(evidence)
    assert chosen == ("VarianceScaling" if power == 1 else "QuantileRecalibration")
    assert summary.after.name == chosen
    assert summary.selection.lower() == f"{reason}.".lower()
    score = summary.after.audit.continuous_ranked_probability_score
    expected = evidence[chosen].after.continuous_ranked_probability_score
    assert score == pytest.approx(expected, rel=1e-12)


def test_calibrators_may_be_fitted_on_other_rows() -> None:
    y, outputs = made()
    rows, other = (
        Batch.of(y, outputs),
        Batch.of(np.array([3.0, -3.0] * 10), Normal(np.zeros(20), np.ones(20))),
    )
    found = RegressionSummary.of(ArrayShards(rows), calibration=other)
    after = found.after.batch.outputs
    assert isinstance(after, Normal)
    np.testing.assert_allclose(after.std, 3 * outputs.std)
    assert found.method == "The calibrators were fitted on 20 other rows."


def test_few_rows_and_single_quantiles_stay_uncalibrated() -> None:
    y, outputs = made(9)
    found = RegressionSummary.of(ArrayShards(Batch.of(y, outputs)))
    assert (found.chosen, found.after.name) == (0, "uncalibrated")
    single = Quantiles(made()[1].mean[:, np.newaxis], [0.5])
    found = RegressionSummary.of(ArrayShards(Batch.of(made()[0], single)))
    assert len(found.candidates) == 1
    assert found.method.startswith("Nothing was recalibrated")
    assert not widths_of(found.before.batch).any()


def test_samples_and_vector_targets_are_summarized() -> None:
    y, outputs = made()
    rng = np.random.default_rng(1)
    draws = Samples(
        outputs.mean[:, np.newaxis] + outputs.std[:, np.newaxis] * rng.normal(size=(120, 19))
    )
    found = RegressionSummary.of(ArrayShards(Batch.of(y, draws)))
    assert found.after.audit.coverage[-1] > found.before.audit.coverage[-1]
    assert found.after.name == "QuantileRecalibration"  # draws become quantiles, as in `calibrate`
    assert isinstance(found.before.batch.outputs, Quantiles)
    assert all(now is not None for _, _, now in found.metrics)
    twice = Normal(np.stack([outputs.mean] * 2, axis=1), np.stack([outputs.std] * 2, axis=1))
    both = RegressionSummary.of(ArrayShards(Batch.of(np.stack([y, y], axis=1), twice)))
    alone = RegressionSummary.of(ArrayShards(Batch.of(y, outputs)))
    for (name, was, _), (_, expected, _) in zip(both.metrics, alone.metrics, strict=True):
        assert was is not None, name
        assert expected is not None, name
        assert was.value == pytest.approx(expected.value), name


def test_only_missing_targets_raise_an_error() -> None:
    with pytest.raises(EmptyStateError):
        RegressionSummary.of(ArrayShards(Batch.of([np.nan], Normal([0.0], [1.0]))))
