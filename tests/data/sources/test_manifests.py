"""Of a folder of results, what the manifest lists is read, and nothing that was left behind."""

import json
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import parquet

from dubito.data import Columns, DirectorySink, read
from dubito.data.sources.opening import (
    MANIFEST,
    Manifest,
    _counted_files,
    line_of,
    read_manifest,
    text_of,
)

COLUMNS = Columns(probabilities="p")


def write(path: Path, n_rows: int) -> None:
    parquet.write_table(pa.table({"p": [0.5] * n_rows}), path)


def test_parts_that_no_manifest_lists_are_left_out(tmp_path: Path) -> None:
    source = tmp_path / "in.parquet"
    write(source, 1)
    folder = DirectorySink(tmp_path / "out", {})
    for _ in folder.unfinished([source]):
        with folder.part(source) as sink:
            sink.write({"p": [0.5, 0.25]})
    write(tmp_path / "out" / "part-00001.parquet", 9)
    assert len(read(tmp_path / "out", COLUMNS)) == 2
    assert len(read(f"{tmp_path}/out/*.parquet", COLUMNS)) == 11  # asked for by name


@pytest.mark.parametrize("text", ["{", "[]", "{}", json.dumps({"parts": ["a"]})])
def test_a_manifest_of_something_else_says_nothing(tmp_path: Path, text: str) -> None:
    write(tmp_path / "a.parquet", 3)
    (tmp_path / MANIFEST).write_text(text)
    assert len(read(tmp_path, COLUMNS)) == 3


def test_only_files_of_the_list_count(tmp_path: Path) -> None:
    listed = Manifest({}, {"x": {"key": "x", "file": "b.csv"}})
    (tmp_path / MANIFEST).write_text(text_of(listed))
    files = [f"{tmp_path}/{name}" for name in ("a.csv", "b.csv")]
    assert _counted_files(files, str(tmp_path)) == [f"{tmp_path}/b.csv"]
    assert _counted_files(files, str(tmp_path / "elsewhere")) == files


def test_a_line_that_was_cut_off_is_no_part_and_harms_no_other(tmp_path: Path) -> None:
    parts = {name: {"key": name, "file": f"{name}.csv"} for name in "abc"}
    place = tmp_path / MANIFEST
    lines = [line_of(part) for part in parts.values()]
    place.write_text(text_of(Manifest({"k": 1}, {})) + lines[0] + lines[1][:-5] + lines[2])
    assert read_manifest(str(place)) == Manifest({"k": 1}, {"a": parts["a"], "c": parts["c"]})
    place.write_text(place.read_text() + line_of({"key": "a", "file": "later.csv"}))
    assert read_manifest(str(place)).parts["a"]["file"] == "later.csv"
