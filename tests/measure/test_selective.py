import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import roc_auc_score

from dubito import Logits, TopLabel
from dubito.data import ArrayShards, Batch
from dubito.errors import BadValueError
from dubito.measure import (
    Audit,
    RankingState,
    RiskCoverageCurve,
    area_under_generalized_risk_coverage,
    area_under_risk_coverage,
    coverage_at_risk,
    excess_area_under_risk_coverage,
    risk_coverage_curve,
)
from dubito.measure.selective import area_bounds

RNG = np.random.default_rng(0)


def audit_of(batch: Batch) -> Audit:
    return Audit.of(ArrayShards(batch), n_resamples=0)


def sample(n: int, step: float = 0.0) -> tuple[np.ndarray, np.ndarray]:
    """Return uncertainty scores, rounded to make ties, and whether each row was wrong."""
    uncertainty = RNG.random(n)
    uncertainty = np.round(uncertainty / step) * step if step else uncertainty
    return uncertainty, RNG.random(n) < uncertainty


def plain_area(uncertainty: np.ndarray, wrong: np.ndarray) -> float:
    """Return the mean over rows of the risk among all rows of no higher uncertainty."""
    return float(np.mean([wrong[uncertainty <= one].mean() for one in uncertainty]))


@pytest.mark.parametrize("step", [0.0, 0.1, 1.0])
def test_areas_equal_their_definitions(step: float) -> None:
    uncertainty, wrong = sample(300, step)
    top = TopLabel(1 - uncertainty, ~wrong)
    assert area_under_risk_coverage(None, top) == pytest.approx(plain_area(uncertainty, wrong))
    error = wrong.mean()
    auroc = roc_auc_score(wrong, uncertainty)
    expected = (1 - auroc) * (1 - error) * error + error**2 / 2
    assert area_under_generalized_risk_coverage(None, top) == pytest.approx(expected)


def test_a_perfect_ranking_has_almost_no_excess_and_a_reversed_one_much() -> None:
    wrong = np.arange(2000) >= 1700
    uncertainty = np.linspace(0.1, 0.9, 2000)
    top = TopLabel(1 - uncertainty, ~wrong)
    assert 0 <= excess_area_under_risk_coverage(None, top) < 1e-3
    assert excess_area_under_risk_coverage(None, top, uncertainty=-uncertainty) > 0.2


def test_all_wrong_and_all_right_are_numbers() -> None:
    for correct, area in (([0, 0], 1.0), ([1, 1], 0.0)):
        top = TopLabel([0.9, 0.6], correct)
        assert area_under_risk_coverage(None, top) == area
        assert excess_area_under_risk_coverage(None, top) == pytest.approx(0)


def test_coverage_at_a_risk_is_the_largest_that_keeps_it() -> None:
    top = TopLabel([0.9, 0.8, 0.7, 0.6], [1, 0, 1, 1])
    assert coverage_at_risk(None, top, risk=0.0) == 0.25
    assert coverage_at_risk(None, top, risk=0.25) == 1.0
    assert coverage_at_risk(None, TopLabel([0.9], [0]), risk=0.5) == 0.0


@settings(max_examples=40)
@given(seed=st.integers(0, 2**32 - 1), step=st.sampled_from([0.05, 0.5, 1.0]))
def test_the_order_of_rows_does_not_matter_and_weights_count_rows(seed: int, step: float) -> None:
    rng = np.random.default_rng(seed)
    uncertainty = np.round(rng.random(40) / step) * step
    correct, weight, order = rng.random(40) < 0.6, rng.integers(0, 3, 40), rng.permutation(40)
    weight[0] = 1
    value = area_under_risk_coverage(None, TopLabel(1 - uncertainty, correct), sample_weight=weight)
    moved = TopLabel(1 - uncertainty[order], correct[order])
    assert area_under_risk_coverage(None, moved, sample_weight=weight[order]) == pytest.approx(
        value
    )
    repeated = TopLabel(np.repeat(1 - uncertainty, weight), np.repeat(correct, weight))
    assert area_under_risk_coverage(None, repeated) == pytest.approx(value)


def test_another_score_takes_the_place_of_least_confidence() -> None:
    curve = risk_coverage_curve([0, 0], [[0.9, 0.1], [0.4, 0.6]], uncertainty=[5.0, -1.0])
    assert curve.uncertainty.tolist() == [-1.0, 5.0]
    assert curve.risk.tolist() == [1.0, 0.5]
    with pytest.raises(BadValueError, match="length 2, like the outputs"):
        risk_coverage_curve([0, 0], [[0.9, 0.1], [0.4, 0.6]], uncertainty=[1.0])


def test_streamed_areas_stay_inside_their_stated_bounds() -> None:
    rng = np.random.default_rng(5)
    logits = rng.normal(0, 4, (20_000, 6))
    batch = Batch.of(logits.argmax(axis=1) * (rng.random(20_000) < 0.8), Logits(logits))
    exact = RiskCoverageCurve.of(RankingState.of(batch))
    gridded = RankingState.of(batch, is_gridded=True)
    low, high = area_bounds(gridded)
    assert low <= exact.area <= high
    assert low <= RiskCoverageCurve.of(gridded).area <= high
    assert high - low < 2e-3 * exact.area
    streamed = Audit.of(ArrayShards(batch).map(lambda rows: rows), n_resamples=0)
    assert streamed.risk_coverage_bounds == (low, high)
    assert low <= streamed.area_under_risk_coverage <= high
    in_memory = audit_of(batch)
    assert streamed.error_separation_bounds is not None
    assert in_memory.error_detection_auroc is not None
    assert (
        streamed.error_separation_bounds[0]
        <= in_memory.error_detection_auroc
        <= streamed.error_separation_bounds[1]
    )


def test_the_grid_is_fine_for_many_classes_too() -> None:
    rng = np.random.default_rng(6)
    batch = Batch.of(rng.integers(0, 500, 3000), Logits(rng.normal(size=(3000, 500))))
    rows = ArrayShards(batch).map(lambda batch: batch)
    streamed, exact = Audit.of(rows, n_resamples=0), audit_of(batch)
    for name in ("area_under_risk_coverage", "error_detection_auroc"):
        assert getattr(streamed, name) == pytest.approx(getattr(exact, name), rel=2e-3)
