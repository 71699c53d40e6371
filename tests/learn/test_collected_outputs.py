from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.data import ArrayShards, Batch, Columns, Shards, read
from dubito.data.shards import joined
from dubito.errors import BadValueError
from dubito.learn import CollectedOutputs
from dubito.learn.collect import _write_shards

RNG = np.random.default_rng(0)


def batches(labels: Any, has_features: bool = True) -> list[Batch]:
    """Return 23 rows in three batches."""
    logits = RNG.normal(size=(23, 12)).astype(np.float32)
    features = RNG.normal(size=(23, 11)) if has_features else None
    whole = Batch.of(labels, Logits(logits), features=features)
    return [whole.take(slice(low, low + 10)) for low in (0, 10, 20)]


def both(parts: list[Batch], folder: Path) -> list[CollectedOutputs]:
    shards: list[Shards] = [
        ArrayShards(joined(parts)),
        _write_shards(parts, folder / "rows.parquet"),
    ]
    return [CollectedOutputs(one, None, None) for one in shards]


def test_rows_come_back_in_order(tmp_path: Path) -> None:
    parts: list[Any] = batches(np.arange(23) % 12)
    logits = np.concatenate([part.outputs.array for part in parts])
    features = np.concatenate([part.features for part in parts])
    for found in both(parts, tmp_path):
        assert (found.logits.array == logits).all()
        assert found.features is not None
        assert (found.features == features).all()
        assert found.labels is not None
        assert found.labels.dtype.kind == "i"
        assert (found.labels == np.arange(23) % 12).all()
        assert found.batch is found.batch


def test_columns_are_numbered(tmp_path: Path) -> None:
    _write_shards(batches(np.arange(23) % 12), tmp_path / "rows.parquet")
    columns = Columns(label="label", logits="logit_*", features="feature_*")
    batch = read(tmp_path / "rows.parquet", columns)
    assert batch.outputs.n_rows == 23


def test_there_may_be_neither_labels_nor_features(tmp_path: Path) -> None:
    for found in both(batches(None, has_features=False), tmp_path):
        assert (found.labels, found.features) == (None, None)


def test_no_rows_make_no_file(tmp_path: Path) -> None:
    with pytest.raises(
        BadValueError,
        match=r"`columns` .*, got none\. Write columns of "
        "length 0 if there are no rows",
    ):
        _write_shards([], tmp_path / "rows.parquet")
    assert not list(tmp_path.iterdir())


def test_collected_outputs_are_shown_by_their_shape() -> None:
    shards = ArrayShards(joined(batches(None)))
    found = repr(CollectedOutputs(shards, np.ones((12, 11)), np.ones(12)))
    assert found == "CollectedOutputs(ArrayShards, weights of shape (12, 11))"
