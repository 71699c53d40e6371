"""What is nearly a Dask collection raises; what its rows are is tested with the cluster."""

from importlib import import_module
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dubito.data import Columns
from dubito.data.dask import _is_collection, _partitions_of
from dubito.errors import BadTypeError, BadValueError, DubitoError

pytestmark = pytest.mark.dask

COLUMNS = Columns(label="y", logits="z", weight="w")
DELAYED: Any = import_module("dask.delayed").delayed


def test_collections_are_cut_as_they_are() -> None:
    da: Any = import_module("dask.array")
    dd: Any = import_module("dask.dataframe")
    arrays = {"z": da.ones((8, 4), chunks=(3, 2)), "y": da.ones(8), "w": da.ones(8, chunks=1)}
    assert _is_collection(arrays)
    assert len(_partitions_of(arrays, COLUMNS, None, DELAYED)) == 3
    frame = dd.from_pandas(pd.DataFrame({"z": [1.0] * 6, "y": 0, "w": 1.0}), npartitions=2)
    assert _is_collection(frame)
    assert len(_partitions_of(frame, COLUMNS, None, DELAYED)) == 2
    others: list[Any] = ["rows.parquet", frame.compute(), {}]
    assert not any(map(_is_collection, others))


def test_unsupported_collections_raise() -> None:
    da: Any = import_module("dask.array")
    z, y = da.ones((8, 4), chunks=4), da.ones(8, chunks=4)
    odd: list[tuple[Any, type[DubitoError], str]] = [
        (
            z,
            BadTypeError,
            "DaskShards: `source` must be a dict of Dask arrays, got a bare Array. Pass "
            "{'logits': array, 'y': labels}.",
        ),
        (
            {"z": z, "y": np.ones(8), "w": y},
            BadTypeError,
            "DaskShards: `source` must hold Dask arrays only, got ndarray as 'y'. Use "
            "dask.array.from_array(array).",
        ),
        (
            {"z": z, "y": y, "w": da.ones(7, chunks=4)},
            BadValueError,
            "the Dask arrays: `w` must be as long as `z` (8 rows), got 7 rows. Provide one value "
            "per row.",
        ),
        (
            {"z": da.ones((8, 2, 2)), "y": y, "w": y},
            BadValueError,
            "the Dask arrays: `z` must have 1 or 2 dimensions, got shape (8, 2, 2). Use "
            "z.reshape(len(z), -1).",
        ),
        (
            {"z": z, "y": y[y > 0], "w": y},
            BadValueError,
            "the Dask arrays: `y` must have a known length, got shape (nan,). Call "
            "y.compute_chunk_sizes().",
        ),
    ]
    for source, kind, said in odd:
        with pytest.raises(kind) as caught:
            _is_collection(source) and _partitions_of(source, COLUMNS, None, DELAYED)
        assert str(caught.value) == said
