import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dubito import Logits, Probabilities, TopLabel
from dubito.data import Batch
from dubito.errors import BadValueError, StateMismatchError
from dubito.measure import (
    ReliabilityState,
    expected_calibration_error,
    maximum_calibration_error,
    reliability_curve,
)
from dubito.measure.calibration_error import uniform_edges

RNG = np.random.default_rng(0)


def errors_of_plain_numpy(
    confidence: np.ndarray, correct: np.ndarray, weight: np.ndarray, edges: np.ndarray
) -> tuple[float, float, float]:
    """Return L1, L2 and largest gap by one mask a bin."""
    gaps, shares = [], []
    for low, high in itertools.pairwise(edges):
        inside = (confidence > low) & (confidence <= high) | (confidence == 0) & (low == 0)
        if weight[inside].sum() > 0:
            says = np.average(confidence[inside], weights=weight[inside])
            right = np.average(correct[inside], weights=weight[inside])
            gaps.append(abs(says - right))
            shares.append(weight[inside].sum() / weight.sum())
    gap, share = np.array(gaps), np.array(shares)
    return float(share @ gap), float(np.sqrt(share @ gap**2)), float(gap.max())


@pytest.mark.parametrize("n_bins", [1, 10, 15, 100])
@pytest.mark.parametrize("is_weighted", [False, True])
def test_errors_equal_plain_numpy(n_bins: int, is_weighted: bool) -> None:
    p, y = RNG.dirichlet(np.full(7, 0.3), 800), RNG.integers(0, 7, 800)
    weight = RNG.random(800) if is_weighted else np.ones(800)
    correct = (p.argmax(axis=1) == y).astype(float)
    edges = np.linspace(0, 1, n_bins + 1)
    l1, l2, largest = errors_of_plain_numpy(p.max(axis=1), correct, weight, edges)
    given_bins: dict[str, Any] = {"n_bins": n_bins, "sample_weight": weight}
    assert expected_calibration_error(y, p, **given_bins) == pytest.approx(l1)
    assert expected_calibration_error(y, p, norm="l2", **given_bins) == pytest.approx(l2)
    assert maximum_calibration_error(y, p, **given_bins) == pytest.approx(largest)


def test_equal_mass_bins_equal_splitting_the_sorted_rows() -> None:
    p, y = RNG.dirichlet(np.full(5, 0.5), 600), RNG.integers(0, 5, 600)
    order = p.max(axis=1).argsort()
    correct = (p.argmax(axis=1) == y)[order]
    pairs = zip(np.split(p.max(axis=1)[order], 15), np.split(correct, 15), strict=True)
    expected = np.mean([abs(says.mean() - right.mean()) for says, right in pairs])
    assert expected_calibration_error(y, p, strategy="quantile") == pytest.approx(expected)


def test_confidence_of_exactly_1_is_not_lost() -> None:
    assert expected_calibration_error([1, 1], [[1.0, 0.0], [1.0, 0.0]]) == 1.0


def test_rounded_confidences_stay_in_the_bin_they_close() -> None:
    p = np.array([0.6, 0.4])
    curve = reliability_curve([0, 0, 0], np.tile(p, (3, 1)), n_bins=5)
    state = ReliabilityState.of(Batch.of([0, 0, 0], np.tile(p, (3, 1))), uniform_edges(5))
    assert curve.count.tolist() == [3]
    assert state.count.tolist() == [0, 0, 3, 0, 0]


@pytest.mark.parametrize("is_weighted", [False, True])
def test_a_curve_is_that_of_one_mask_per_bin(is_weighted: bool) -> None:
    p, y = RNG.dirichlet(np.full(4, 0.5), 500), RNG.integers(0, 4, 500)
    weight = RNG.random(500) if is_weighted else np.ones(500)
    confidence, correct = p.max(axis=1), p.argmax(axis=1) == y
    curve = reliability_curve(y, p, n_bins=12, sample_weight=weight)
    expected = []
    for low, high in itertools.pairwise(np.linspace(0, 1, 13)):
        inside = (confidence > low) & (confidence <= high)
        if inside.any():
            sums = [(weight * one)[inside].sum() for one in (np.ones(500), confidence, correct)]
            expected.append([sums[0], sums[1] / sums[0], sums[2] / sums[0]])
    found = np.stack([curve.count, curve.confidence, curve.accuracy], axis=1)
    np.testing.assert_allclose(found, expected, rtol=1e-9)


def test_a_curve_says_which_bins_it_shows() -> None:
    curve = reliability_curve(None, TopLabel([0.55, 0.95, 0.97], [1, 1, 0]), n_bins=10)
    assert curve.bins.tolist() == [5, 9]
    left, right = curve.edges[curve.bins], curve.edges[curve.bins + 1]
    assert ((left < curve.confidence) & (curve.confidence <= right)).all()


@pytest.mark.slow
def test_rare_errors_are_expected_as_rarely_as_they_are() -> None:
    rng = np.random.default_rng(6)
    confidence = np.full(1000, 0.9999)
    shown, expected = [], 0.0
    for _ in range(2000):
        batch = Batch.of(None, TopLabel(confidence, rng.random(1000) < confidence))
        state = ReliabilityState.of(batch)
        shown.append(state.expected())
        expected = state.expected_if_calibrated
    assert expected == pytest.approx(np.mean(shown), rel=0.15)


def test_top_labels_suffice() -> None:
    p, y = RNG.dirichlet([1, 1, 1], 300), RNG.integers(0, 3, 300)
    top = TopLabel(p.max(axis=1), p.argmax(axis=1) == y)
    assert expected_calibration_error(None, top) == pytest.approx(expected_calibration_error(y, p))


def test_a_calibrated_model_of_200_rows_shows_what_is_expected_of_it() -> None:
    rng = np.random.default_rng(3)
    shown, expected = [], []
    for _ in range(300):
        confidence = rng.uniform(0.1, 1.0, 200)
        batch = Batch.of(None, TopLabel(confidence, rng.random(200) < confidence))
        state = ReliabilityState.of(batch)
        shown.append(state.expected())
        expected.append(state.expected_if_calibrated)
    assert np.mean(expected) == pytest.approx(np.mean(shown), rel=0.1)
    assert 0.05 < np.mean(shown) < 0.12


def test_the_band_holds_a_calibrated_model_19_times_in_20() -> None:
    rng = np.random.default_rng(4)
    confidence = rng.uniform(0.5, 1.0, 60_000)
    inside = []
    for _ in range(40):
        top = TopLabel(confidence, rng.random(60_000) < confidence)
        curve = reliability_curve(None, top)
        inside.append((curve.low <= curve.accuracy) & (curve.accuracy <= curve.high))
    assert 0.92 < np.mean(inside) < 0.98


def test_states_of_other_bins_do_not_add() -> None:
    batch = Batch.of([0, 1], [0.2, 0.7])
    with pytest.raises(StateMismatchError, match="edges"):
        _ = ReliabilityState.of(batch) + ReliabilityState.of(batch, uniform_edges(10))


@pytest.mark.parametrize(
    ("setting", "message"),
    [({"strategy": "equal"}, "'uniform' or 'quantile'"), ({"norm": "l3"}, "'l1', 'l2' or 'max'")],
)
def test_unknown_settings_raise(setting: dict[str, str], message: str) -> None:
    with pytest.raises(BadValueError, match=message):
        expected_calibration_error([0, 1], [0.2, 0.7], **setting)  # type: ignore[arg-type]


@pytest.mark.slow
@settings(max_examples=50)
@given(
    seed=st.integers(0, 2**32 - 1),
    n=st.integers(1, 60),
    step=st.sampled_from([1.0, 0.5, 0.1, 0.01]),
    strategy=st.sampled_from(["uniform", "quantile"]),
)
def test_errors_lie_between_0_and_1_and_do_not_depend_on_the_order_of_rows(
    seed: int, n: int, step: float, strategy: str
) -> None:
    rng = np.random.default_rng(seed)
    p = np.round(rng.random(n) / step) * step
    y, weight, order = rng.integers(0, 2, n), rng.integers(0, 3, n), rng.permutation(n)
    weight[0] = 1
    kwargs: dict[str, Any] = {"strategy": strategy}
    value = expected_calibration_error(y, p, sample_weight=weight, **kwargs)
    moved = expected_calibration_error(
        y[order],
        p[order],
        sample_weight=weight[order],
        **kwargs,
    )
    assert 0 <= value <= 1
    assert moved == pytest.approx(value, abs=1e-12)
    repeated = expected_calibration_error(
        np.repeat(y, weight),
        np.repeat(p, weight),
        **kwargs,
    )
    assert repeated == pytest.approx(value, abs=1e-12)


def test_saturated_logits_have_an_error() -> None:
    logits = np.array([[1e4, -1e4], [-1e4, 1e4]], dtype=np.float32)
    assert expected_calibration_error([0, 0], Logits(logits)) == 0.5
    assert expected_calibration_error([0, 0], Probabilities([[1, 0], [0, 1]])) == 0.5
