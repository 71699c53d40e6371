from importlib import import_module

import numpy as np
import pytest

from dubito import Logits, TopLabel
from dubito.data import ArrayShards, Batch
from dubito.measure import Audit, AuditState, BootstrapState, audit
from dubito.measure.audit_state import BootstrapMoments

RNG = np.random.default_rng(0)
LOGITS, Y = RNG.normal(0, 2, (3000, 4)), RNG.integers(0, 4, 3000)


def test_resamples_show_the_figures_of_an_audit() -> None:
    batch = Batch.of(Y, Logits(LOGITS))
    values = BootstrapState.of(batch, n_resamples=50).value
    result = audit(Y, Logits(LOGITS), n_resamples=0)
    for name, drawn in values.items():
        assert len(drawn) == 50
        assert min(drawn) - 0.02 <= getattr(result, name) <= max(drawn) + 0.02


def test_streamed_intervals_are_those_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = audit(Y, Logits(LOGITS), n_resamples=60, random_state=5).intervals
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "2000")
    rows = ArrayShards(Batch.of(Y, Logits(LOGITS))).map(lambda batch: batch)  # streamed
    streamed = Audit.of(rows, n_resamples=60, random_state=5).intervals
    assert set(streamed) == set(whole)
    for name, interval in whole.items():
        assert streamed[name].low == pytest.approx(interval.low, abs=1e-9)
        assert streamed[name].high == pytest.approx(interval.high, abs=1e-9)


def test_a_grid_leaves_all_but_the_ranking_exact() -> None:
    batch = Batch.of(Y, Logits(LOGITS))
    exact, gridded = AuditState.of(batch), AuditState.of(batch, is_gridded=True)
    assert gridded.scores == exact.scores
    assert gridded.reliability.to_dict() == exact.reliability.to_dict()
    assert gridded.ranked.score.size < exact.ranked.score.size


def assert_same_spread(batch: Batch) -> None:
    by_rows = BootstrapState.of(batch, n_resamples=1000, random_state=1).value
    by_moments = BootstrapMoments.of(batch).resampled(1000, seed=2)
    assert set(by_moments) == set(by_rows)
    for name, values in by_rows.items():
        spread = float(np.std(values))  # known to 2.2 % from so many resamples
        assert np.std(by_moments[name]) == pytest.approx(spread, rel=0.1), name
        assert np.mean(by_moments[name]) == pytest.approx(np.mean(values), abs=0.15 * spread), name


def test_sums_drawn_from_moments_vary_like_those_of_resampled_rows() -> None:
    assert_same_spread(Batch.of(Y, Logits(LOGITS)))


@pytest.mark.slow
def test_moments_know_frequency_weights_soft_labels_and_top_labels() -> None:
    weight = RNG.choice([0.0, 1.0, 3.0, 40.0], 3000)
    assert_same_spread(Batch.of(Y, Logits(LOGITS), sample_weight=weight))
    soft = RNG.dirichlet(np.ones(4), 3000)
    assert_same_spread(Batch.of(soft, Logits(LOGITS)))
    top = TopLabel(RNG.uniform(0.5, 1, 3000), RNG.integers(0, 2, 3000))
    assert_same_spread(Batch.of(None, top))


def test_weights_of_any_size_have_moments() -> None:
    batch = Batch.of(Y, Logits(LOGITS), sample_weight=np.full(3000, 1e90))
    values = BootstrapMoments.of(batch).resampled(50)["accuracy"]
    assert np.std(values) < 1e-12


@pytest.mark.slow
def test_many_rows_in_memory_are_summed_in_blocks_and_ranked_exactly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ties = np.round(LOGITS, 1)  # some confidences occur in several blocks
    batch = Batch.of(Y, Logits(ties), sample_weight=RNG.integers(0, 3, 3000), groups=Y % 2)
    whole = audit(Y, Logits(ties), sample_weight=batch.weight, n_resamples=0).to_dict()
    monkeypatch.setattr(import_module("dubito.measure.audit"), "MAX_RESAMPLED_ROWS", 1000)
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "2000")
    found = Audit.of(ArrayShards(batch), n_resamples=40)
    for name in set(whole) - {"intervals", "groups", "group_comparison", "verdict"}:
        got = found.to_dict()[name]
        np.testing.assert_equal(_rounded(got), _rounded(whole[name]), err_msg=name)
    assert set(found.groups) == {"0", "1"}
    streamed = Audit.of(ArrayShards(batch).map(lambda block: block), n_resamples=40)
    for one, other in ((found, streamed), (found.groups["1"], streamed.groups["1"])):
        for name, interval in one.intervals.items():
            assert interval.low < interval.value < interval.high
            assert other.intervals[name].low == pytest.approx(interval.low, abs=1e-9)


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list):
        return [_rounded(one) for one in value]
    return float(f"{value:.9g}") if isinstance(value, float) else value
