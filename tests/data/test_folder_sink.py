"""A run over many files goes on where it was stopped, and never mixes settings."""

import json
import os
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from dubito.data import BadRows, Columns, FolderSink, read, scan
from dubito.errors import BadFileError, BadTypeError, BadValueError

SETTINGS = {"policy": "v1", "threshold": 0.5}


@pytest.fixture
def inputs(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"day_{k}.parquet" for k in range(3)]
    for k, path in enumerate(paths):
        parquet.write_table(pa.table({"p": [0.1 * (k + 1)] * (k + 1)}), path)
    return paths


def run(folder: Path, inputs: list[Path], settings: Any = SETTINGS, stop_at: int = 99) -> list[str]:
    """Write the confidence of each row; return which inputs were read."""
    sink, read = FolderSink(folder, settings), []
    for path in sink.unfinished(inputs):
        read.append(path.name)
        with sink.part(path) as part:
            shards = scan(path, Columns(probabilities="p"))
            shards.write(lambda batch: {"confidence": batch.rows.confidence}, part)
            if len(read) == stop_at:
                raise KeyboardInterrupt
    return read


def contents(folder: Path) -> dict[str, list[float]]:
    return {
        path.name: parquet.read_table(path)["confidence"].to_pylist()
        for path in sorted(folder.glob("part-*"))
    }


WHOLE = {
    "part-00000.parquet": [0.9],
    "part-00001.parquet": [0.8] * 2,
    "part-00002.parquet": [0.7] * 3,
}


def same(found: dict[str, list[float]], wanted: dict[str, list[float]]) -> bool:
    return list(found) == list(wanted) and all(
        found[name] == pytest.approx(wanted[name]) for name in wanted
    )


def test_a_part_an_input(tmp_path: Path, inputs: list[Path]) -> None:
    assert run(tmp_path / "out", inputs) == ["day_0.parquet", "day_1.parquet", "day_2.parquet"]
    assert same(contents(tmp_path / "out"), WHOLE)
    assert FolderSink(tmp_path / "out", SETTINGS).n_rows == 6
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {*WHOLE, "manifest.json"}


def test_finished_parts_are_skipped_and_a_stopped_one_is_not(
    tmp_path: Path, inputs: list[Path]
) -> None:
    folder = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        run(folder, inputs, stop_at=2)
    assert list(contents(folder)) == ["part-00000.parquet"]
    assert not list(folder.glob("*.partial"))
    assert run(folder, inputs) == ["day_1.parquet", "day_2.parquet"]
    assert same(contents(folder), WHOLE)
    assert run(folder, inputs) == []


def test_an_input_that_changed_is_read_again_into_its_own_part(
    tmp_path: Path, inputs: list[Path]
) -> None:
    folder = tmp_path / "out"
    run(folder, inputs)
    parquet.write_table(pa.table({"p": [0.4] * 5}), inputs[1])
    assert run(folder, inputs) == ["day_1.parquet"]
    assert same(contents(folder), {**WHOLE, "part-00001.parquet": [0.6] * 5})
    os.utime(inputs[0], ns=(1, 1))
    assert run(folder, inputs) == ["day_0.parquet"]


def test_a_part_that_was_deleted_is_written_again(tmp_path: Path, inputs: list[Path]) -> None:
    folder = tmp_path / "out"
    run(folder, inputs)
    (folder / "part-00002.parquet").unlink()
    assert run(folder, inputs) == ["day_2.parquet"]
    assert same(contents(folder), WHOLE)


def test_parts_of_one_input_are_told_apart_and_named_before_they_are_written(
    tmp_path: Path, inputs: list[Path]
) -> None:
    folder = FolderSink(tmp_path / "out", SETTINGS)
    labels = ["from row 0", "from row 5"]
    slots = [folder.slot(path, label) for path in inputs for label in labels]
    assert [slot.file for slot in slots] == [f"part-0000{k}.parquet" for k in range(6)]
    assert folder.slot(inputs[1], labels[1]) == slots[3]
    parquet.write_table(pa.table({"x": [1]}), folder.place(slots[3].file))
    folder.finish(slots[3], 1)
    again = FolderSink(tmp_path / "out", SETTINGS)
    assert again.is_finished(inputs[1], labels[1])
    assert not again.is_finished(inputs[1], labels[0])
    assert not again.is_finished(inputs[1])
    assert again.slot(inputs[1], labels[1]).file == slots[3].file
    assert again.n_rows == 1


def test_a_new_part_never_takes_the_name_of_another(tmp_path: Path, inputs: list[Path]) -> None:
    folder = FolderSink(tmp_path / "out", SETTINGS)
    slots = [folder.slot(path) for path in inputs]
    folder.finish(slots[2], 0)  # the others were stopped
    again = FolderSink(tmp_path / "out", SETTINGS)
    files = [again.slot(path).file for path in inputs]
    assert len(set(files)) == 3
    assert files[2] == slots[2].file


def test_what_dead_writers_left_is_swept(tmp_path: Path) -> None:
    folder = FolderSink(tmp_path, SETTINGS)
    (tmp_path / "part-00000.parquet").touch()
    (tmp_path / "part-00000.parquet.0123abcd.partial").touch()
    (tmp_path / "mine.partial").touch()
    folder.sweep()
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"part-00000.parquet", "mine.partial"}


def test_inputs_elsewhere_are_known_by_what_changes_with_them(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/elsewhere/f.parquet", b"one")
    folder = FolderSink(tmp_path, SETTINGS)
    slot = folder.slot("memory://elsewhere/f.parquet")
    (tmp_path / slot.file).touch()
    folder.finish(slot, 0)
    assert folder.is_finished("memory://elsewhere/f.parquet")
    system.pipe("/elsewhere/f.parquet", b"two")
    assert not folder.is_finished("memory://elsewhere/f.parquet")


def test_a_folder_may_be_elsewhere(inputs: list[Path]) -> None:
    url = "memory://decided/today"

    def write(stop_at: int = 99) -> list[str]:
        folder, done = FolderSink(url, SETTINGS), []
        for path in folder.unfinished(inputs):
            with folder.part(path) as part:
                scan(path, Columns(probabilities="p")).write(
                    lambda batch: {"confidence": batch.rows.confidence}, part
                )
                done.append(path.name)
                if len(done) == stop_at:
                    raise KeyboardInterrupt
        return done

    with pytest.raises(KeyboardInterrupt):
        write(stop_at=2)
    system = fsspec.filesystem("memory")
    assert sorted(system.find("/decided/today")) == [
        "/decided/today/manifest.json",
        "/decided/today/part-00000.parquet",
    ]
    assert write() == ["day_1.parquet", "day_2.parquet"]
    assert write() == []
    found = read(url, Columns(probabilities="confidence"))
    assert np.sort(found.rows.confidence) == pytest.approx([0.7] * 3 + [0.8] * 2 + [0.9])
    FolderSink(url, SETTINGS).sweep()
    system.rm("/decided/today/manifest.json")
    with pytest.raises(BadFileError, match=r"memory://decided/today cannot be read: it has parts"):
        FolderSink(url, SETTINGS)
    system.rm("/decided", recursive=True)


def test_other_settings_are_refused(tmp_path: Path, inputs: list[Path]) -> None:
    folder = tmp_path / "out"
    run(folder, inputs)
    with pytest.raises(BadValueError) as caught:
        run(folder, inputs, {"policy": "v2", "threshold": 0.5})
    assert str(caught.value) == (
        f"`settings` of {folder} must be those that the folder's parts were made by. "
        "Got policy 'v2' (was 'v1'). Try another folder."
    )
    with pytest.raises(BadValueError, match=r"ending '\.csv'"):
        FolderSink(folder, SETTINGS, ending=".csv")
    assert same(contents(folder), WHOLE)


def test_a_folder_that_is_not_ours_is_refused(tmp_path: Path) -> None:
    (tmp_path / "part-00000.parquet").write_bytes(b"?")
    with pytest.raises(BadFileError, match=r"it has parts but no manifest\.json. Try an empty"):
        FolderSink(tmp_path, SETTINGS)
    for text in ("{", "[]", "{}"):
        (tmp_path / "manifest.json").write_text(text)
        with pytest.raises(BadFileError, match=r"it is no manifest\. Try an empty folder"):
            FolderSink(tmp_path, SETTINGS)
    other = {"format": 2, "settings": {**SETTINGS, "ending": ".parquet"}, "parts": {}}
    (tmp_path / "manifest.json").write_text(json.dumps(other))
    with pytest.raises(BadValueError, match="Got none"):
        FolderSink(tmp_path, SETTINGS)


def test_bad_arguments_are_told(tmp_path: Path) -> None:
    with pytest.raises(BadTypeError) as caught:
        FolderSink(tmp_path, {"policy": object})
    assert "`settings` of FolderSink must be what JSON holds." in str(caught.value)
    with pytest.raises(BadFileError) as missing:
        FolderSink(tmp_path, SETTINGS).unfinished([tmp_path / "nothing.csv"])
    path = tmp_path / "nothing.csv"
    assert str(missing.value) == (
        f"{path} cannot be read: there is no such file. Try checking the path."
    )


def test_bad_rows_are_kept_with_the_part_that_lacks_them(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{k}.parquet") for k in range(2)]
    for path in paths:
        parquet.write_table(pa.table({"p": [0.1, 2.0, 0.3]}), path)
    folder, bad_rows = FolderSink(tmp_path / "out", SETTINGS), BadRows()
    for path in folder.unfinished(paths):
        with folder.part(path, bad_rows) as part:
            shards = scan(path, Columns(probabilities="p"), bad_rows=bad_rows)
            shards.write(lambda batch: {"confidence": batch.rows.confidence}, part)
    again = FolderSink(tmp_path / "out", SETTINGS)
    assert again.unfinished(paths) == []
    for path in paths:
        [bad] = again.bad_rows(path)
        assert (bad.file, bad.row, bad.column, bad.value) == (path, 1, "p", "2.0")
    assert again.n_rows == 4
    with again.part(paths[0]) as part:
        part.write({"confidence": [0.5]})
    assert FolderSink(tmp_path / "out", SETTINGS).bad_rows(paths[0]) == []
