from pathlib import Path

import pandas as pd
import pytest

from dubito.cli.reading import Engine, Reader, as_typed
from dubito.data import ArrayShards, BadRows, Columns, FileShards
from dubito.errors import BadValueError

COLUMNS = Columns(probabilities="p")


def test_few_rows_are_read_and_many_streamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for k in range(3):
        frame = pd.DataFrame({"p": [0.5, 0.25]})
        frame.to_parquet(tmp_path / f"{k}.parquet")
    size = 2 * 8  # of the numbers of one file
    reader = Reader()
    first, pattern = str(tmp_path / "0.parquet"), f"{tmp_path}/*.parquet"
    places = [first, str(tmp_path), pattern, f"file://{tmp_path}"]
    monkeypatch.setattr("dubito.cli.reading.IN_MEMORY", 3 * size)
    assert all(isinstance(reader.rows(place, COLUMNS), ArrayShards) for place in places)
    monkeypatch.setattr("dubito.cli.reading.IN_MEMORY", 3 * size - 1)
    kinds = [type(reader.rows(place, COLUMNS)) for place in places]
    assert kinds == [ArrayShards, FileShards, FileShards, FileShards]
    assert isinstance(reader.streamed(places[0], COLUMNS, BadRows()), FileShards)


def test_files_that_do_not_say_how_many_rows_they_have_are_taken_for_packed_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "rows.csv.gz"
    pd.DataFrame({"p": [0.5] * 500}).to_csv(path, index=False)
    for limit, kind in ((4, ArrayShards), (3, FileShards)):
        monkeypatch.setattr("dubito.cli.reading.IN_MEMORY", limit * path.stat().st_size)
        assert isinstance(Reader().rows(str(path), COLUMNS), kind)


def test_what_counts_is_the_memory_that_numbers_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "alike.parquet"
    pd.DataFrame({"p": [[0.5, 0.25, 0.25]] * 9_000, "text": "unused"}).to_parquet(path)
    assert path.stat().st_size < 9_000
    monkeypatch.setattr("dubito.cli.reading.IN_MEMORY", 8 * 3 * 9_000)
    assert isinstance(Reader().rows(str(path), COLUMNS), ArrayShards)
    monkeypatch.setattr("dubito.cli.reading.IN_MEMORY", 8 * 3 * 9_000 - 1)
    assert isinstance(Reader().rows(str(path), COLUMNS), FileShards)


def test_a_scheduler_needs_its_engine() -> None:
    with pytest.raises(BadValueError) as caught:
        Reader(scheduler="tcp://here:1")
    assert str(caught.value) == (
        "`--scheduler` of dubito must be given together with --engine dask. "
        "Got tcp://here:1 alone. Try --engine dask --scheduler tcp://here:1."
    )
    with Reader(Engine.DASK) as reader:
        assert "client" not in vars(reader)  # nothing is started before it is needed


def test_files_are_named_as_they_were_typed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = str(tmp_path / "rows" / "f.csv")
    assert as_typed("rows/")(file) == "rows/f.csv"
    assert as_typed(str(tmp_path / "rows"))(file) == file
    assert as_typed("*/*.csv")(file) == "rows/f.csv"
    assert (
        as_typed("rows", "more")(f"no {file}, unlike {file}") == "no rows/f.csv, unlike rows/f.csv"
    )
    (tmp_path / "below").mkdir()
    monkeypatch.chdir(tmp_path / "below")
    assert as_typed("../rows")(file) == "../rows/f.csv"
    assert as_typed("s3://bucket/rows")("s3://bucket/rows/f.csv") == "s3://bucket/rows/f.csv"
