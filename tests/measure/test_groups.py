from functools import partial

import numpy as np
import pytest

from dubito import Logits, audit
from dubito.data import ArrayShards, Batch
from dubito.measure import Audit, AuditState, GroupedState, ProperScoresState

RNG = np.random.default_rng(0)
LOGITS, Y = RNG.normal(0, 2, (600, 3)), RNG.integers(0, 3, 600)
GROUPS = RNG.choice(["north", "south", "west"], 600)


@pytest.mark.slow
def test_each_group_is_audited_as_if_alone() -> None:
    result = audit(Y, Logits(LOGITS), groups=GROUPS)
    assert sorted(result.groups) == ["north", "south", "west"]
    for name, one in result.groups.items():
        alone = audit(Y[name == GROUPS], Logits(LOGITS[name == GROUPS]), n_resamples=0)
        for figure, value in alone.figures.items():
            assert one.figures[figure] == pytest.approx(value)
        assert one.intervals["accuracy"].low < one.accuracy < one.intervals["accuracy"].high


def test_groups_pool_over_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = Batch.of(Y, Logits(LOGITS), groups=GROUPS)
    whole = GroupedState.of(batch, of=AuditState.of).value
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "300")
    pooled = ArrayShards(batch).sum(partial(GroupedState.of, of=AuditState.of)).value
    assert list(pooled) == list(whole)
    for name, state in whole.items():
        assert pooled[name].scores.to_dict() == pytest.approx(state.scores.to_dict())


@pytest.mark.slow
def test_streamed_groups_and_groups_without_labels() -> None:
    y = [None if group == "west" else label for group, label in zip(GROUPS, Y, strict=True)]
    batch = Batch.of(y, Logits(LOGITS), groups=GROUPS)
    assert sorted(Audit.of(ArrayShards(batch)).groups) == ["north", "south"]


def test_any_names_are_groups() -> None:
    result = audit([0, 1, 1], [0.2, 0.7, 0.6], groups=[1, None, 1], n_resamples=0)
    assert list(result.groups) == ["(missing)", "1"]
    assert audit([0, 1], [0.2, 0.7], n_resamples=0).groups == {}


def test_any_state_can_be_grouped() -> None:
    batch = Batch.of(Y, Logits(LOGITS), groups=GROUPS)
    scores = GroupedState.of(batch, of=ProperScoresState.of).value
    assert sum(state.n_rows for state in scores.values()) == 600
