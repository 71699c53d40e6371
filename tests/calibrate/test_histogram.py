from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from numpy.testing import assert_allclose, assert_array_equal
from scipy.special import expit, logit

from dubito import Logits, Probabilities
from dubito.calibrate import HistogramBinning
from dubito.data import Columns, scan
from dubito.errors import BadValueError, DubitoError
from dubito.measure import reliability_curve

rng = np.random.default_rng(0)
P = rng.beta(0.5, 0.8, 400).round(3).clip(0.001, 0.999)
Y = (rng.random(400) < P**2).astype(int)
WEIGHT = rng.integers(0, 3, 400).astype(float)


def plain_values(edges: Any, weight: Any) -> tuple[list[float], list[float], float]:
    """Return the value of each bin, its weight, and the weight of bins that are all one class."""
    prior = (weight @ Y + 0.5) / (weight.sum() + 1)
    values, counts, n_certain = [], [], 0.0
    for i in range(len(edges) - 1):
        is_in = (edges[i] < P) & (edges[i + 1] >= P)
        n, s = weight[is_in].sum(), (weight * Y)[is_in].sum()
        if n == 0:
            value = (edges[i] + edges[i + 1]) / 2
        elif s in (0, n):
            value = (s + prior) / (n + 1)
            n_certain += n
        else:
            value = s / n
        values.append(value)
        counts.append(n)
    return values, counts, n_certain


@pytest.mark.parametrize("weight", [np.ones(400), WEIGHT], ids=["alike", "weighted"])
@pytest.mark.parametrize("n_bins", [1, 2, 10, 15, 97])
@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
def test_bins_agree_with_plain_binning(strategy: Any, n_bins: int, weight: Any) -> None:
    bins = HistogramBinning(n_bins, strategy).fit(Probabilities(P), Y, weight)
    if strategy == "uniform":
        assert_allclose(bins.edges_, np.linspace(0, 1, n_bins + 1))
    edges = bins.edges_ if strategy == "uniform" else bins.edges_.round(9)
    values, counts, n_certain = plain_values(edges, weight)
    assert_allclose(bins.values_, values, atol=1e-9)
    assert_array_equal(bins.counts_, counts)
    assert bins.n_certain_ == n_certain
    expected = np.array(values)[np.searchsorted(edges, P) - 1]
    assert_allclose(bins.predict_proba(Probabilities(P))[:, 1], expected, rtol=1e-9)


@pytest.mark.parametrize("closed", ["left", "right"])
@pytest.mark.parametrize("n_bins", [2, 10, 20])
def test_bins_as_printed(closed: Any, n_bins: int) -> None:
    # Probabilities at edges, at 0 and at 1, where the two kinds of bins differ.
    p = np.concatenate([P, np.arange(0, 21) / 20])
    y = np.concatenate([Y, np.arange(21) % 2])
    edges = np.arange(n_bins + 1) / n_bins
    place = []
    for one in p:
        if closed == "left":  # [a, b), and 1 in the last bin
            place.append(max(k for k in range(n_bins) if edges[k] <= one))
        else:  # (a, b], and 0 in the first bin
            place.append(min(k for k in range(n_bins) if one <= edges[k + 1]))
    means = [y[np.array(place) == k].mean() for k in range(n_bins)]
    bins = HistogramBinning(n_bins, closed=closed, smooth=False).fit(Probabilities(p), y)
    assert bins.counts_.tolist() == np.bincount(place, minlength=n_bins).tolist()
    assert_allclose(bins.values_, means, atol=1e-9)
    found = bins.predict_proba(Probabilities(p))[:, 1]
    assert_allclose(found, np.array(means)[place], atol=1e-9)
    again = HistogramBinning.from_dict(bins.to_dict())
    bins.set_params(closed="right")
    assert_array_equal(again.predict_proba(Probabilities(p))[:, 1], found)
    assert_array_equal(bins.predict_proba(Probabilities(p))[:, 1], found)


def test_bins_of_one_class_stay_0_or_1_without_smoothing() -> None:
    bins = HistogramBinning(2, smooth=False).fit([0.1, 0.2, 0.9], [0, 0, 1])
    assert bins.values_.tolist() == [0.0, 1.0]
    assert bins.n_certain_ == 3
    assert_allclose(bins.predict_proba([0.3])[:, 1], 1e-12)
    for options, name in (({"closed": "both"}, "closed"), ({"smooth": None}, "smooth")):
        with pytest.raises(DubitoError, match=f"`{name}`"):
            HistogramBinning(2, **options).fit([0.1, 0.9], [0, 1])


def test_equal_mass_bins_hold_equal_mass() -> None:
    p = rng.permutation(np.linspace(0.001, 0.4, 90))
    bins = HistogramBinning(9, "quantile").fit(Probabilities(p), p > 0.2)
    assert bins.counts_.tolist() == [10] * 9
    low, high = logit(np.sort(p)[9:89:10]), logit(np.sort(p)[10:90:10])
    assert_allclose(bins.edges_[1:-1], expit((low + high) / 2))


@pytest.mark.filterwarnings("ignore::dubito.errors.SingleClassWarning")
@pytest.mark.slow
@given(
    scores=arrays(np.float64, st.integers(1, 60), elements=st.integers(-40, 40).map(float)),
    n_bins=st.integers(1, 20),
    seed=st.integers(0, 99),
)
def test_the_mirror_image_of_scores_has_that_of_the_bins(
    scores: Any, n_bins: int, seed: int
) -> None:
    draw = np.random.default_rng(seed)
    weight, jitter = draw.integers(1, 4, scores.size), draw.normal(size=scores.size) * (seed % 2)
    logits, y = (scores + jitter) / 3, draw.integers(0, 2, scores.size)
    one = HistogramBinning(n_bins, "quantile").fit(Logits(logits), y, weight)
    other = HistogramBinning(n_bins, "quantile").fit(Logits(-logits), 1 - y, weight)
    assert_allclose(other.edges_, 1 - one.edges_[::-1], atol=1e-12)
    assert_allclose(other.counts_, one.counts_[::-1])
    mirrored = other.predict_proba(Logits(-logits))[:, ::-1]
    assert_allclose(mirrored, one.predict_proba(Logits(logits)), atol=1e-12)


@pytest.mark.filterwarnings("ignore::dubito.errors.SingleClassWarning")
@pytest.mark.slow
@given(n_rows=st.integers(2, 300), n_bins=st.integers(1, 40), seed=st.integers(0, 99))
def test_no_bin_is_off_equal_mass_by_more_than_a_row(n_rows: int, n_bins: int, seed: int) -> None:
    draw = np.random.default_rng(seed)
    bins = HistogramBinning(n_bins, "quantile")
    counts = bins.fit(Logits(draw.normal(size=n_rows)), draw.integers(0, 2, n_rows)).counts_
    assert np.abs(counts - n_rows / min(n_bins, n_rows)).max() <= 1 or n_bins > n_rows
    assert counts.min() >= 1


@pytest.mark.parametrize("n_bins", [5, 10, 15, 100])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_probability_at_an_edge_is_in_the_bin_that_measures_put_it_in(
    n_bins: int, dtype: Any
) -> None:
    top = np.arange(n_bins // 2 + 1, n_bins + 1) / n_bins
    p = np.concatenate([top, top]).astype(dtype)
    y = np.repeat([0, 1], top.size)
    rows = np.stack([1 - p, p], axis=1)
    counts = HistogramBinning(n_bins).fit(rows, y).counts_
    assert_array_equal(counts[counts > 0], reliability_curve(y, rows, n_bins=n_bins).count)


def test_bins_are_closed_on_the_right() -> None:
    p = np.array([0.0, 0.25, 0.2500001, 0.5, 0.75, 0.7500001, 1.0])
    assert HistogramBinning(4).fit(p, [0, 1, 0, 1, 1, 0, 1]).counts_.tolist() == [2, 2, 1, 2]


def test_an_empty_bin_says_its_middle() -> None:
    bins = HistogramBinning(4).fit([0.1, 0.2, 0.9, 0.95], [0, 1, 0, 1])
    assert bins.counts_.tolist() == [2, 0, 0, 2]
    assert bins.values_.tolist() == [0.5, 0.375, 0.625, 0.5]
    assert bins._describe() == (
        "4 bins (2 empty) from 0.375 to 0.625; 0 rows in bins of one class, smoothed"
    )


def test_bins_of_one_class_are_smoothed_and_counted() -> None:
    bins = HistogramBinning(2).fit([0.1, 0.2, 0.3, 0.8, 0.9], [0, 0, 0, 1, 1])
    prior = 2.5 / 6
    assert_allclose(bins.values_, [prior / 4, (2 + prior) / 3])
    assert bins.n_certain_ == 5
    assert bins._describe().endswith("5 rows in bins of one class, smoothed")


def test_bins_need_not_rise() -> None:
    bins = HistogramBinning(2).fit([0.1, 0.2, 0.3, 0.7, 0.8, 0.9], [1, 1, 0, 0, 0, 1])
    assert bins.values_[0] > bins.values_[1]


def test_streamed_quantiles_are_within_a_cell(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    scores = rng.normal(size=3000) * 3
    y = (rng.random(3000) < expit(scores)).astype(int)
    pd.DataFrame({"logit": scores, "y": y}).to_parquet(path)
    held = HistogramBinning(12, "quantile").fit(Logits(scores), y)
    found = HistogramBinning(12, "quantile").fit(scan(path, Columns(label="y", logits="logit")))
    inner = [logit(bins.edges_[1:-1]) for bins in (held, found)]
    assert np.abs(inner[0] - inner[1]).max() <= 56 / 4096
    assert np.abs(found.counts_ - held.counts_).max() < 20
    assert found.counts_.sum() == 3000


def test_a_saturated_score_is_in_the_last_bin() -> None:
    bins = HistogramBinning(15).fit(Logits([-1e4, 1e4, 0.0]), [0, 1, 1])
    assert bins.counts_[[0, 7, 14]].tolist() == [1, 1, 1]


@pytest.mark.parametrize("strategy", ["uniform", "quantile"])
@pytest.mark.parametrize("n_bins", [0, -3, 2.5, True, "15", None])
def test_a_number_of_bins_is_a_whole_number_from_1_up(n_bins: Any, strategy: Any) -> None:
    with pytest.raises(BadValueError) as caught:
        HistogramBinning(n_bins, strategy).fit([0.1, 0.9], [0, 1])
    assert str(caught.value) == (
        "HistogramBinning: `n_bins` must be an integer from 1 to 100,000, "
        f"got {n_bins!r}. Use n_bins=15."
    )


@pytest.mark.parametrize("strategy", ["equal", None, 3])
def test_a_strategy_is_one_of_two(strategy: Any) -> None:
    with pytest.raises(BadValueError) as caught:
        HistogramBinning(strategy=strategy).fit([0.1, 0.9], [0, 1])
    assert str(caught.value) == (
        "HistogramBinning: `strategy` must be 'uniform' or 'quantile', "
        f"got {strategy!r}. Use strategy='uniform'."
    )
