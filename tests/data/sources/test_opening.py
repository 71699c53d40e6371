"""Files are opened by their endings, in any case, packed or not."""

import gzip
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dubito.data.sources import open_source
from dubito.data.sources.formats import ArraySource, ParquetSource, TableSource, TextSource
from dubito.errors import BadFileError


@pytest.mark.parametrize("name", ["f.csv", "F.CSV", "model.v2.csv", "f.csv.gz", "F.CSV.GZ"])
def test_text_is_opened_by_its_ending(tmp_path: Path, name: str) -> None:
    text = b"a,b\n1,2\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.lower().endswith("gz") else text)
    source = open_source(tmp_path / name)
    assert isinstance(source, TextSource)
    assert source.schema.names == ["a", "b"]
    assert sum(batch.num_rows for batch in source.batches(["a"], [], 10)) == 1


def test_a_link_to_itself_is_an_error(tmp_path: Path) -> None:
    link = tmp_path / "loop.csv"
    link.symlink_to(link)
    with pytest.raises(BadFileError, match=r"loop\.csv cannot be read: its symbolic links form"):
        open_source(link)


def test_each_source_is_of_its_kind(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros(1))
    np.savez(tmp_path / "f.npz", a=np.zeros(1))
    parquet.write_table(pa.table({"a": [1]}), tmp_path / "f.pq")
    assert isinstance(open_source(tmp_path), ArraySource)
    assert isinstance(open_source(str(tmp_path / "f.npz")), ArraySource)
    assert isinstance(open_source(tmp_path / "f.pq"), ParquetSource)
    assert isinstance(open_source(pa.table({"a": [1]})), TableSource)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("f.json", "its extension is none of .arrow, .csv, .feather"),
        ("f", "its extension is none of"),
        ("f.gz", "its extension is none of"),
        (".csv", "its extension is none of"),
        ("f.npz.gz", "only .csv and .tsv can be compressed as .gz"),
        ("f.csv", "there is no such file"),
    ],
)
def test_what_cannot_be_opened_says_why(tmp_path: Path, name: str, words: str) -> None:
    with pytest.raises(BadFileError) as caught:
        open_source(tmp_path / name)
    assert f"{tmp_path / name} cannot be read: {words}" in str(caught.value)


def test_a_missing_directory_raises(tmp_path: Path) -> None:
    with pytest.raises(BadFileError) as caught:
        open_source(tmp_path / "days")
    message = "and there is no such directory. Check the path."
    assert " ".join(str(caught.value).split()).endswith(message)
    (tmp_path / "days").touch()
    with pytest.raises(BadFileError, match="Convert it to Parquet or CSV"):
        open_source(tmp_path / "days")
