"""A file that is kept open gives the rows of one that is opened for each pass."""

import pickle
import sys
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv, ipc, parquet

from dubito.data.sources import BaseSource, open_source
from dubito.errors import BadFileError

NAMES = ("rows.csv", "rows.csv.gz", "rows.parquet", "rows.arrow", "stream.arrow")


def write(file: Path, numbers: list[float]) -> None:
    """Write a column of numbers, in the format of the file's name."""
    table = pa.table({"p": numbers})
    if file.suffix == ".parquet":
        parquet.write_table(table, file, row_group_size=2)
    elif file.suffix == ".arrow":
        new = ipc.new_stream if file.stem == "stream" else ipc.new_file
        with pa.OSFile(str(file), "wb") as opened, new(opened, table.schema) as writer:
            writer.write_table(table, max_chunksize=2)
    else:
        with pa.output_stream(str(file)) as stream:
            csv.write_csv(table, stream)


def numbers_of(source: BaseSource) -> list[float]:
    """Return the numbers of a source."""
    return [x for batch in source.batches(["p"], [], 2) for x in batch.column("p").to_pylist()]


@pytest.mark.parametrize("name", NAMES)
def test_passes_do_not_interfere(tmp_path: Path, name: str) -> None:
    numbers = [k / 16 for k in range(9)]
    write(tmp_path / name, numbers)
    with closing(open_source(tmp_path / name, is_kept=True)) as source:
        assert source.kept is not None
        first, second = (source.batches(["p"], [], 2) for _ in range(2))
        both = [x for pair in zip(first, second, strict=True) for x in pair]
        assert pa.Table.from_batches(both[::2]).equals(pa.Table.from_batches(both[1::2]))
        assert numbers_of(source) == numbers


@pytest.mark.parametrize("name", NAMES)
def test_a_closed_source_and_a_copy_elsewhere_open_the_file_again(
    tmp_path: Path, name: str
) -> None:
    write(tmp_path / name, [0.25, 0.5, 0.75])
    source = open_source(tmp_path / name, is_kept=True)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.kept.current() is None
    assert source.kept is not None
    opened = source.kept.current()
    source.close()
    source.close()
    assert opened is not None
    assert opened.closed
    assert source.kept.current() is None
    assert numbers_of(source) == numbers_of(copy) == [0.25, 0.5, 0.75]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("is_replaced", [False, True])
def test_a_file_that_was_changed_is_read_as_it_is_now(
    tmp_path: Path, name: str, is_replaced: bool
) -> None:
    if is_replaced and sys.platform == "win32":
        pytest.skip("an open file cannot be replaced")
    write(tmp_path / name, [0.25, 0.5])
    with closing(open_source(tmp_path / name, is_kept=True)) as source:
        assert numbers_of(source) == [0.25, 0.5]
        (tmp_path / "new").mkdir()
        write(tmp_path / "new" / name, [0.125, 0.375, 0.625, 0.875, 0.0625])
        if is_replaced:
            (tmp_path / "new" / name).replace(tmp_path / name)
        else:
            (tmp_path / name).write_bytes((tmp_path / "new" / name).read_bytes())
        assert numbers_of(source) == [0.125, 0.375, 0.625, 0.875, 0.0625]


@pytest.mark.skipif(sys.platform == "win32", reason="an open file cannot be deleted")
def test_a_file_that_was_deleted_is_missing(tmp_path: Path) -> None:
    write(tmp_path / "rows.csv", [0.25, 0.5])
    with closing(open_source(tmp_path / "rows.csv", is_kept=True)) as source:
        (tmp_path / "rows.csv").unlink()
        with pytest.raises(FileNotFoundError):
            numbers_of(source)


@pytest.mark.skipif(sys.platform != "linux", reason="open files are listed in /proc")
def test_a_file_with_a_bad_header_is_not_kept(tmp_path: Path) -> None:
    (tmp_path / "rows.parquet").write_text("no table")
    with pytest.raises(BadFileError) as error:
        open_source(tmp_path / "rows.parquet", is_kept=True)
    held = [one.resolve() for one in Path("/proc/self/fd").iterdir()]
    assert tmp_path / "rows.parquet" not in held, error


def test_directories_are_opened_in_each_pass(tmp_path: Path) -> None:
    for name in ("a.csv", "b.csv"):
        write(tmp_path / name, [0.25, 0.5])
    source = open_source(tmp_path, is_kept=True)
    assert source.kept is None
    source.close()
    assert numbers_of(source) == [0.25, 0.5] * 2
