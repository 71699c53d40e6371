"""A text is there whole, or what was there before is."""

import os
from pathlib import Path
from typing import BinaryIO

import pytest

from dubito.data import Sink
from dubito.data import sink as module
from dubito.data.sink import write_atomic
from dubito.errors import BadValueError


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


def test_a_missing_directory_raises(tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "policy.json"
    with pytest.raises(BadValueError) as caught:
        write_atomic(path, "{}")
    assert str(caught.value) == (
        f"{path} must be in a directory that exists, got {path.parent}. Create the directory first."
    )


def mode_of(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_a_new_file_follows_the_umask_and_one_that_exists_keeps_its_mode(tmp_path: Path) -> None:
    new, private, open_to_all = (tmp_path / name for name in ("new", "private", "open"))
    for path, mode in ((private, 0o600), (open_to_all, 0o666)):
        path.touch()
        path.chmod(mode)
    before = os.umask(0o027)
    try:
        for path in (new, private, open_to_all):
            write_atomic(path, "{}")
    finally:
        os.umask(before)
    assert [mode_of(path) for path in (new, private, open_to_all)] == [0o640, 0o600, 0o666]


def test_a_private_file_is_never_readable_by_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, seen = tmp_path / "decisions.csv", []
    path.touch(0o600)
    rename = module._rename_synced

    def renamed(file: BinaryIO, partial: Path, target: Path) -> None:
        seen.append(mode_of(partial))
        rename(file, partial, target)

    monkeypatch.setattr(module, "_rename_synced", renamed)
    with Sink(path) as sink:
        sink.write({"id": ["a"]})
        [partial] = set(tmp_path.iterdir()) - {path}
        seen.append(mode_of(partial))
    assert seen == [0o600, 0o600]


def test_what_is_sent_to_a_url_waits_where_nobody_else_can_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen = []
    monkeypatch.setattr(module, "send", lambda path, _: seen.append(mode_of(path)))
    write_atomic("https://host/policy.json", "{}")
    assert seen == [0o600]
