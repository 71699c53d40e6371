from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito.calibrate import TemperatureScaling
from dubito.data import ArrayShards, Batch, Columns, Sink, scan
from dubito.decide import CostMatrix, Policy, write_decisions
from dubito.outputs import Logits


@pytest.fixture(scope="module")
def policy() -> Policy:
    rng = np.random.default_rng(0)
    logits = 4 * rng.normal(size=(300, 3))
    labels = (logits / 4 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return Policy.fit(
        Logits(logits),
        labels,
        costs=CostMatrix.zero_one(3).with_reject(0.3),
        features=rng.normal(size=(300, 2)) + labels[:, np.newaxis],
        calibrator=TemperatureScaling(),
    )


@pytest.fixture(scope="module")
def batch() -> Batch:
    rng = np.random.default_rng(1)
    ids = [f"row {k}" for k in range(200)]
    features = 3 * rng.normal(size=(200, 2))
    return Batch.of(None, Logits(5 * rng.normal(size=(200, 3))), features=features, ids=ids)


@pytest.mark.slow
def test_what_is_written_is_what_the_policy_decides(
    policy: Policy, batch: Batch, tmp_path: Path
) -> None:
    message: list[int] = []
    with Sink(tmp_path / "d.parquet") as sink:
        shards = ArrayShards(batch, block_entries=100)
        n_rows = write_decisions(policy, shards, sink, on_progress=message.append)
    assert n_rows == message[-1] == 200
    assert message == sorted(message)
    assert len(message) > 3
    got = pd.read_parquet(tmp_path / "d.parquet")
    found = policy.decide(batch.outputs, batch.features)
    assert got["id"].tolist() == list(batch.ids if batch.ids is not None else [])
    by_class = got.filter(like="probability_").to_numpy()
    assert np.array_equal(by_class, found.probabilities)
    for name, values in {**found.columns(), "probability": by_class.max(axis=1)}.items():
        got = got if name in got else got.assign(probability=found.probability)
        assert got[name].astype(str).tolist() == pd.Series(values).astype(str).tolist()
    assert set(found.reason.tolist()) >= {0, 1, 3}


def test_files_are_streamed_and_rows_numbered_through(
    policy: Policy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "64")
    rng = np.random.default_rng(2)
    columns = {f"logit_{k}": rng.normal(size=90) for k in range(3)}
    columns |= {f"feature_{k}": rng.normal(size=90) for k in range(2)}
    pd.DataFrame(columns).to_csv(tmp_path / "f.csv", index=False)
    shards = scan(tmp_path / "f.csv", Columns(logits="logit_*", features="feature_*"))
    with Sink(tmp_path / "d.csv") as sink:
        write_decisions(policy, shards, sink, source="one")
        write_decisions(policy, shards, sink, source="another")
    got = pd.read_csv(tmp_path / "d.csv")
    assert got["file"].tolist() == ["one"] * 90 + ["another"] * 90
    assert got["id"].tolist() == [*range(90), *range(90)]
