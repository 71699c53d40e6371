import numpy as np
import pytest

from dubito import Logits
from dubito.data import ArrayShards, Batch
from dubito.measure import Audit, AuditState, BootstrapState, audit

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
    monkeypatch.setattr("dubito.kernels.blocks.BLOCK_ENTRIES", 2000)
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
    assert gridded.ranked.doubt.size < exact.ranked.doubt.size
