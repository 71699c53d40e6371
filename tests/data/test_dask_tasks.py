"""What workers do, done here: no cluster is needed to check it."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from dubito.data import Batch, Columns, scan
from dubito.data.dask import (
    Decoded,
    Numbering,
    _added,
    _columns_of,
    _counted,
    _decoded,
    _decoded_arrays,
    _decoded_frame,
    _nth,
    _results,
    _total,
    _write_part,
)
from dubito.data.directory_sink import WriteLock
from dubito.errors import BadFileError, BadValueError

pytestmark = pytest.mark.dask

COLUMNS = Columns(probabilities="p")
P = [0.5, 0.25, 1.5, 0.75, -1.0]  # two of them are bad


def rows_of(batch: Batch) -> dict[str, Any]:
    return {"row": batch.first_row + np.arange(len(batch)), "id": batch.ids}


def frame_rows(most: int | None) -> Decoded:
    return _decoded_frame(pd.DataFrame({"p": P}), COLUMNS, 3, most)


def test_bad_rows_stop_a_task_or_come_back_with_it() -> None:
    with pytest.raises(BadValueError, match=r"partition 3: `p` .* in row 2"):
        frame_rows(None)
    rows = frame_rows(2)
    assert [(bad.file, bad.row, bad.value) for bad in rows.bad] == [
        ("partition 3", 2, "1.5"),
        ("partition 3", 4, "-1.0"),
    ]
    counts = _counted(rows)
    assert (counts.n_batches, counts.n_rows) == (1, 5)
    assert _nth(rows, 0).ids is not None
    with pytest.raises(BadValueError, match="at most 1 bad rows"):
        frame_rows(1)


def test_numbers_and_ids_made_of_them_count_through_the_whole() -> None:
    rows = frame_rows(2)
    numbered = Numbering(100, is_ids=True)
    [(first_row, ids)] = _results(lambda k, b: (k + b.first_row, b.ids), rows, numbered, 7)
    assert first_row == 107
    assert np.asarray(ids).tolist() == [100, 101, 103]
    [ids] = _results(lambda _, batch: batch.ids, rows, Numbering(100, is_ids=False), 0)
    assert np.asarray(ids).tolist() == [0, 1, 3]
    assert rows.batches[0].first_row == 0  # as it was


def test_no_rows_add_up_to_nothing() -> None:
    empty = _decoded_arrays(["p"], [np.empty(0)], COLUMNS, 0, None)
    assert empty == Decoded([], [])
    assert _added(len, empty, Numbering(0, is_ids=False)) is None
    assert _added(len, frame_rows(9), Numbering(0, is_ids=False)) == 3
    assert _total([None, 2, None, 5]) == 7
    assert _total([]) is None


def test_a_part_is_written_of_files_or_of_what_is_decoded(tmp_path: Path) -> None:
    path, out = tmp_path / "f.parquet", tmp_path / "out.parquet"
    parquet.write_table(pa.table({"p": P}), path, row_group_size=2)
    shards, lock = scan(path, COLUMNS), WriteLock.acquire(f"{tmp_path}/_lock")
    for rows in (shards, _decoded(shards, 9)):
        n_rows, bad = _write_part(
            lambda batch, file: {**rows_of(batch), "file": file}, rows, "f", str(out), lock, 9
        )
        assert n_rows == 3
        assert [one.row for one in bad] == [2, 4]
        table = parquet.read_table(out)
        assert table["id"].to_pylist() == [0, 1, 3]
        assert set(table["file"].to_pylist()) == {"f"}
        written, bad = _columns_of(rows_of, rows, Numbering(10, is_ids=True), 9)
        assert len(bad) == 2
        assert [one["id"].tolist() for one in written if one is not None] == [[10, 11, 13]]
    out.unlink()
    none = _write_part(lambda batch, file: {}, Decoded([], []), "f", str(out), lock, None)
    assert none == (None, [])
    assert not out.exists()


def test_a_part_that_comes_too_late_is_not_written(tmp_path: Path) -> None:
    path, out = tmp_path / "f.parquet", tmp_path / "out.parquet"
    parquet.write_table(pa.table({"p": [0.5, 0.25]}), path)
    lock = WriteLock.acquire(f"{tmp_path}/_lock")

    def decided(batch: Batch, file: str) -> dict[str, Any]:
        lock.release()  # meanwhile the run has failed
        return {"row": np.arange(len(batch))}

    with pytest.raises(BadFileError, match="the run that writes this part has ended"):
        _write_part(decided, scan(path, COLUMNS), "f", str(out), lock, None)
    assert [one.name for one in tmp_path.iterdir()] == ["f.parquet"]
