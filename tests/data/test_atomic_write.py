"""A text is there whole, or what was there before is."""

import os
from pathlib import Path

import pytest

from dubito.data import sink as module
from dubito.data.sink import write_atomic


def test_a_text_is_written_and_replaces_another(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    for text in ("{}", "naïve ☃\r\n", ""):
        write_atomic(path, text)
        assert path.read_bytes() == text.encode()
        write_atomic(str(path), text)
    assert [entry.name for entry in tmp_path.iterdir()] == ["policy.json"]


def test_nothing_is_left_of_what_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "policy.json"
    path.write_text("before")

    def failing(*arguments: object) -> None:
        raise OSError("the disk is full")

    monkeypatch.setattr(module, "_rename_synced", failing)
    with pytest.raises(OSError, match="the disk is full"):
        write_atomic(path, "after")
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["policy.json"]


def test_a_text_that_is_none_leaves_all_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "policy.json"
    path.write_text("before")
    with pytest.raises(UnicodeEncodeError):
        write_atomic(path, "\ud800")
    assert path.read_text() == "before"
    assert [entry.name for entry in tmp_path.iterdir()] == ["policy.json"]


def test_a_link_stays_a_link(tmp_path: Path) -> None:
    target, link = tmp_path / "real.json", tmp_path / "link.json"
    target.write_text("before")
    os.symlink(target, link)
    write_atomic(link, "after")
    assert link.is_symlink()
    assert target.read_text() == "after"


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_atomic(tmp_path / "nowhere" / "policy.json", "{}")
