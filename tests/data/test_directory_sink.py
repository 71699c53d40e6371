"""A run over many files goes on where it was stopped, and never mixes settings."""

import json
import os
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]
import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from dubito.data import BadRows, Columns, DirectorySink, read, scan
from dubito.data.sources.opening import MANIFEST
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
    sink, read = DirectorySink(folder, settings), []
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
    assert DirectorySink(tmp_path / "out", SETTINGS).n_rows == 6
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert names == {*WHOLE, MANIFEST}


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


def test_parts_of_one_input_are_distinguished_and_named_before_they_are_written(
    tmp_path: Path, inputs: list[Path]
) -> None:
    folder = DirectorySink(tmp_path / "out", SETTINGS)
    labels = ["from row 0", "from row 5"]
    slots = [folder.slot(path, label) for path in inputs for label in labels]
    assert [slot.file for slot in slots] == [f"part-0000{k}.parquet" for k in range(6)]
    assert folder.slot(inputs[1], labels[1]) == slots[3]
    parquet.write_table(pa.table({"x": [1]}), folder.place(slots[3].file))
    folder.finish(slots[3], 1)
    again = DirectorySink(tmp_path / "out", SETTINGS)
    assert again.is_finished(inputs[1], labels[1])
    assert not again.is_finished(inputs[1], labels[0])
    assert not again.is_finished(inputs[1])
    assert again.slot(inputs[1], labels[1]).file == slots[3].file
    assert again.n_rows == 1


def test_a_new_part_never_takes_the_name_of_another(tmp_path: Path, inputs: list[Path]) -> None:
    folder = DirectorySink(tmp_path / "out", SETTINGS)
    slots = [folder.slot(path) for path in inputs]
    folder.finish(slots[2], 0)  # the others were stopped
    again = DirectorySink(tmp_path / "out", SETTINGS)
    files = [again.slot(path).file for path in inputs]
    assert len(set(files)) == 3
    assert files[2] == slots[2].file


def test_what_dead_writers_left_is_swept(tmp_path: Path) -> None:
    folder = DirectorySink(tmp_path, SETTINGS)
    source = tmp_path / "mine.parquet"
    source.touch()
    slot = folder.slot(source)
    assert slot.file == "part-00000.parquet"
    (tmp_path / slot.file).touch()
    folder.finish(slot, 0)
    left = ["part-00000.parquet.0123abcd.partial", "part-00001.parquet", "part-7.csv"]
    for name in (*left, "mine.partial"):
        (tmp_path / name).touch()
    with DirectorySink(tmp_path, SETTINGS).exclusive():
        names = {path.name for path in tmp_path.iterdir()}
    kept = {"_manifest.jsonl", "part-00000.parquet", "part-7.csv", "mine.partial", "mine.parquet"}
    assert names == {*kept, "_lock"}
    assert {path.name for path in tmp_path.iterdir()} == kept


def test_at_a_url_the_run_that_began_last_goes_on(inputs: list[Path]) -> None:
    url = "memory://decided/turns"
    first, second = DirectorySink(url, SETTINGS), DirectorySink(url, SETTINGS)

    def write(folder: DirectorySink, path: Path) -> None:
        with folder.part(path) as part:
            part.write({"x": np.zeros(1)})

    with first.exclusive():
        write(first, inputs[0])
        with second.exclusive():
            write(second, inputs[1])
            with pytest.raises(BadFileError, match="or another run has started"):
                write(first, inputs[2])
    system = fsspec.filesystem("memory")
    assert sorted(system.find("/decided/turns")) == [
        "/decided/turns/_manifest.jsonl",
        "/decided/turns/part-00000.parquet",
    ]
    assert DirectorySink(url, SETTINGS).unfinished(inputs) == [inputs[0], inputs[2]]
    system.rm("/decided", recursive=True)


def test_inputs_elsewhere_are_known_by_what_changes_with_them(tmp_path: Path) -> None:
    system = fsspec.filesystem("memory")
    system.pipe("/elsewhere/f.parquet", b"one")
    folder = DirectorySink(tmp_path, SETTINGS)
    slot = folder.slot("memory://elsewhere/f.parquet")
    (tmp_path / slot.file).touch()
    folder.finish(slot, 0)
    assert folder.is_finished("memory://elsewhere/f.parquet")
    system.pipe("/elsewhere/f.parquet", b"two")
    assert not folder.is_finished("memory://elsewhere/f.parquet")


def test_a_folder_may_be_elsewhere(inputs: list[Path]) -> None:
    url = "memory://decided/today"

    def write(stop_at: int = 99) -> list[str]:
        folder, done = DirectorySink(url, SETTINGS), []
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
        "/decided/today/_manifest.jsonl",
        "/decided/today/part-00000.parquet",
    ]
    assert write() == ["day_1.parquet", "day_2.parquet"]
    assert write() == []
    found = read(url, Columns(probabilities="confidence"))
    assert np.sort(found.rows.confidence) == pytest.approx([0.7] * 3 + [0.8] * 2 + [0.9])
    DirectorySink(url, SETTINGS).sweep()
    system.rm("/decided/today/_manifest.jsonl")
    with pytest.raises(BadFileError, match=r"memory://decided/today cannot be read: it has parts"):
        DirectorySink(url, SETTINGS)
    system.rm("/decided", recursive=True)


def test_other_settings_raise(tmp_path: Path, inputs: list[Path]) -> None:
    folder = tmp_path / "out"
    run(folder, inputs)
    with pytest.raises(BadValueError) as caught:
        run(folder, inputs, {"policy": "v2", "threshold": 0.5})
    assert str(caught.value) == (
        f"{folder}: `settings` must be those of the existing parts, got policy 'v2' (was 'v1'). "
        f"Use another directory."
    )
    with pytest.raises(BadValueError, match=r"ending '\.csv'"):
        DirectorySink(folder, SETTINGS, ending=".csv")
    assert same(contents(folder), WHOLE)


def test_a_directory_without_a_valid_manifest_raises(tmp_path: Path) -> None:
    (tmp_path / "part-00000.parquet").write_bytes(b"?")
    with pytest.raises(BadFileError, match=r"it has parts but no _manifest\.jsonl\. Use an empty"):
        DirectorySink(tmp_path, SETTINGS)
    for text in ("{", "[]", "{}"):
        (tmp_path / MANIFEST).write_text(text)
        with pytest.raises(BadFileError, match=r"it is not a manifest\. Use an empty directory"):
            DirectorySink(tmp_path, SETTINGS)
    other = {"format": 1, "settings": {**SETTINGS, "ending": ".parquet"}}
    (tmp_path / MANIFEST).write_text(json.dumps(other))
    with pytest.raises(BadFileError, match="it is not a manifest"):
        DirectorySink(tmp_path, SETTINGS)


def test_invalid_arguments_raise(tmp_path: Path) -> None:
    with pytest.raises(BadTypeError) as caught:
        DirectorySink(tmp_path, {"policy": object})
    assert "DirectorySink: `settings` must be JSON values," in str(caught.value)
    with pytest.raises(BadFileError) as missing:
        DirectorySink(tmp_path, SETTINGS).unfinished([tmp_path / "nothing.csv"])
    path = tmp_path / "nothing.csv"
    assert str(missing.value) == (f"{path} cannot be read: there is no such file. Check the path.")


def test_bad_rows_are_kept_with_the_part_that_lacks_them(tmp_path: Path) -> None:
    paths = [str(tmp_path / f"{k}.parquet") for k in range(2)]
    for path in paths:
        parquet.write_table(pa.table({"p": [0.1, 2.0, 0.3]}), path)
    folder, bad_rows = DirectorySink(tmp_path / "out", SETTINGS), BadRows()
    for path in folder.unfinished(paths):
        with folder.part(path, bad_rows) as part:
            shards = scan(path, Columns(probabilities="p"), bad_rows=bad_rows)
            shards.write(lambda batch: {"confidence": batch.rows.confidence}, part)
    again = DirectorySink(tmp_path / "out", SETTINGS)
    assert again.unfinished(paths) == []
    for path in paths:
        [bad] = again.bad_rows(path)
        assert (bad.file, bad.row, bad.column, bad.value) == (path, 1, "p", "2.0")
    assert again.n_rows == 4
    with again.part(paths[0]) as part:
        part.write({"confidence": [0.5]})
    assert DirectorySink(tmp_path / "out", SETTINGS).bad_rows(paths[0]) == []


def test_parts_of_an_input_that_changed_and_of_other_rows_are_dropped(
    tmp_path: Path, inputs: list[Path]
) -> None:
    folder = DirectorySink(tmp_path / "out", SETTINGS)
    names = [str(path) for path in inputs]
    for name in names:
        for label in ("from row 0", "from row 5"):
            slot = folder.slot(name, label)
            parquet.write_table(pa.table({"x": [1]}), folder.place(slot.file))
            folder.finish(slot, 1)
    os.utime(inputs[0], ns=(1, 1))
    both, first = ["from row 0", "from row 5"], ["from row 0"]
    folder.drop_stale({names[0]: both, names[1]: first})  # the third is of another run
    for one in (folder, DirectorySink(tmp_path / "out", SETTINGS)):
        assert one.n_rows == 3
        assert [one.is_finished(names[1], label) for label in both] == [True, False]
        assert [one.is_finished(names[2], label) for label in both] == [True, True]
    files = sorted(path.name for path in (tmp_path / "out").glob("part-*"))
    assert files == ["part-00002.parquet", "part-00004.parquet", "part-00005.parquet"]
    assert folder.slot(names[0], "from row 0").file == "part-00000.parquet"
    assert folder.slot(names[1], "from row 5").file == "part-00001.parquet"


def test_a_folder_elsewhere_drops_parts_too(inputs: list[Path]) -> None:
    system, url = fsspec.filesystem("memory"), "memory://dropped"
    folder, name = DirectorySink(url, SETTINGS), str(inputs[0])
    with folder.part(name) as part:
        part.write({"x": [1]})
    os.utime(inputs[0], ns=(1, 1))
    folder.drop_stale({name: [""]})
    assert system.find("/dropped") == ["/dropped/_manifest.jsonl"]
    system.rm("/dropped", recursive=True)


def test_a_run_that_was_killed_early_goes_on(tmp_path: Path, inputs: list[Path]) -> None:
    folder = DirectorySink(tmp_path / "out", SETTINGS)
    slot = folder.slot(inputs[0])
    parquet.write_table(pa.table({"confidence": [0.1]}), folder.place(slot.file))
    assert run(tmp_path / "out", inputs) == ["day_0.parquet", "day_1.parquet", "day_2.parquet"]
    assert same(contents(tmp_path / "out"), WHOLE)


def test_without_a_finished_part_settings_are_free(tmp_path: Path, inputs: list[Path]) -> None:
    DirectorySink(tmp_path / "out", {"policy": "other"}).slot(inputs[0])
    run(tmp_path / "out", inputs)
    assert same(contents(tmp_path / "out"), WHOLE)
    with pytest.raises(BadValueError, match="got policy 'v2'"):
        DirectorySink(tmp_path / "out", {**SETTINGS, "policy": "v2"})


def test_a_folder_is_read_by_others(tmp_path: Path, inputs: list[Path]) -> None:
    run(tmp_path / "out", inputs)
    assert len(pd.read_parquet(tmp_path / "out")) == 6


def test_a_finished_part_adds_a_line_and_nothing_is_written_again(
    tmp_path: Path, inputs: list[Path]
) -> None:
    folder = DirectorySink(tmp_path / "out", SETTINGS)
    slots = [folder.slot(path) for path in inputs]
    manifest = tmp_path / "out" / MANIFEST
    number, before = manifest.stat().st_ino, manifest.read_text()
    for n_lines, slot in enumerate(slots, 2):
        folder.finish(slot, 1)
        text = manifest.read_text()
        assert text.startswith(before)
        assert len(text.split("\n")) == n_lines
        before = text
    assert manifest.stat().st_ino == number


def test_a_manifest_elsewhere_is_sent_seldom_and_at_the_end(inputs: list[Path]) -> None:
    system, url = fsspec.filesystem("memory"), "memory://seldom"
    with DirectorySink(url, SETTINGS).exclusive() as folder:
        for path in inputs:
            with folder.part(path) as part:
                part.write({"x": [1]})
        assert DirectorySink(url, SETTINGS).n_rows < 3
    assert DirectorySink(url, SETTINGS).n_rows == 3
    system.rm("/seldom", recursive=True)


def test_one_run_at_a_time(tmp_path: Path, inputs: list[Path]) -> None:
    first, second = (DirectorySink(tmp_path / "out", SETTINGS) for _ in range(2))
    with first.exclusive(), first.exclusive():
        with pytest.raises(BadValueError) as caught, second.exclusive():
            pass
        with first.part(inputs[0]) as part:
            part.write({"x": [1]})
    assert str(caught.value) == (
        f"DirectorySink: `path` must be written by one run at a time, got {tmp_path / 'out'}, "
        f"which another run is writing. Use another directory, or wait until it ends."
    )
    with second.exclusive():
        assert second.is_finished(inputs[0])  # what the first did meanwhile
