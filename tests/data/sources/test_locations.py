"""Files are found in natural order, hidden ones left out, and opened wherever they are."""

import sys
from pathlib import Path

import fsspec  # type: ignore[import-untyped]
import pytest

from dubito.data.sources.locations import (
    base_of,
    files_under,
    folder_of,
    is_there,
    is_url,
    mark_of,
    open_file,
    open_stream,
    remove,
    size_of,
)
from dubito.errors import BadFileError, MissingExtraError

NAMES = ["b_10.csv", "b_9.csv", "a/c.csv", "_SUCCESS", ".hidden/c.csv", "_tmp/d.csv", "_k=1/e.csv"]


def names_of(found: list[str] | None, base: str) -> list[str]:
    assert found is not None
    return [file.removeprefix(base).lstrip("/") for file in found]


@pytest.fixture
def folder(tmp_path: Path) -> str:
    for name in NAMES:
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(name.encode())
    return str(tmp_path)


@pytest.fixture
def url() -> str:
    base = "memory://found"
    system = fsspec.filesystem("memory")
    if system.exists("found"):
        system.rm("found", recursive=True)
    for name in NAMES:
        system.pipe(f"/found/{name}", name.encode())
    return base


SHOWN = ["_k=1/e.csv", "a/c.csv", "b_9.csv", "b_10.csv"]


def test_a_folder_is_all_of_its_files_in_natural_order(folder: str, url: str) -> None:
    assert names_of(files_under(folder), folder) == SHOWN
    assert names_of(files_under(url), "memory:///found") == SHOWN


@pytest.mark.parametrize(
    ("pattern", "wanted"),
    [
        ("b_*.csv", ["b_9.csv", "b_10.csv"]),
        ("b_[9]*.csv", ["b_9.csv"]),
        ("?/*.csv", ["a/c.csv"]),
        ("nothing*", []),
    ],
)
def test_a_pattern_is_the_files_that_match(
    folder: str, url: str, pattern: str, wanted: list[str]
) -> None:
    assert names_of(files_under(f"{folder}/{pattern}"), folder) == wanted
    assert names_of(files_under(f"{url}/{pattern}"), "memory:///found") == wanted


def test_links_to_folders_are_followed_and_each_folder_is_read_once(
    folder: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    far = tmp_path_factory.mktemp("far")
    (far / "f.csv").touch()
    (far / "back").symlink_to(folder)  # a loop
    (Path(folder) / "a" / "link").symlink_to(far)
    (Path(folder) / "0_latest").symlink_to(Path(folder) / "a")
    found = names_of(files_under(folder), folder)
    assert found == ["_k=1/e.csv", "a/c.csv", "a/link/f.csv", "b_9.csv", "b_10.csv"]


def test_a_pattern_of_folders_elsewhere_is_what_they_hold(folder: str, url: str) -> None:
    assert names_of(files_under(f"{url}/_k=*"), "memory:///found") == ["_k=1/e.csv"]
    assert names_of(files_under(f"{url}/?"), "memory:///found") == ["a/c.csv"]
    assert names_of(files_under(f"file://{folder}/?"), f"file://{folder}") == ["a/c.csv"]


def test_a_file_is_removed_wherever_it_is(folder: str, url: str) -> None:
    for base in (folder, url):
        for _ in range(2):
            remove(f"{base}/b_9.csv")
        assert not is_there(f"{base}/b_9.csv")
        assert is_there(f"{base}/b_10.csv")


def test_a_pattern_of_folders_is_what_they_hold(folder: str) -> None:
    assert names_of(files_under(f"{folder}/_k=*"), folder) == ["_k=1/e.csv"]
    assert names_of(files_under(f"{folder}/**"), folder) == SHOWN


def test_one_file_is_no_folder(folder: str, url: str) -> None:
    assert files_under(f"{folder}/b_9.csv") is None
    assert files_under(f"{url}/b_9.csv") is None
    odd = Path(folder) / "a[1].csv"  # a name that looks like a pattern is a name
    odd.write_text("x")
    assert files_under(str(odd)) is None


def test_what_a_pattern_is_below() -> None:
    assert folder_of("s3://bucket/data/day=*/part.parquet") == "s3://bucket/data"
    assert folder_of("data") == "data"
    assert base_of("data/k=1/*.csv") == "data/k=1"
    assert base_of("memory://found/k=*/a.csv") == "memory:///found"
    assert is_url("s3://bucket")
    assert not is_url("data/s3")


def test_files_are_read_wherever_they_are(folder: str, url: str) -> None:
    for base in (folder, url):
        with open_file(f"{base}/b_9.csv") as file:
            assert file.read() == b"b_9.csv"
        with open_stream(f"{base}/a/c.csv", None) as stream:
            assert stream.read() == b"a/c.csv"
        assert size_of(f"{base}/b_10.csv") == 8
        with pytest.raises(BadFileError, match="there is no such file"):
            size_of(f"{base}/nothing.csv")


def test_a_file_elsewhere_that_changes_is_noticed(url: str) -> None:
    before = mark_of(f"{url}/b_9.csv")
    assert mark_of(f"{url}/b_9.csv") == before
    fsspec.filesystem("memory").pipe("/found/b_9.csv", b"other text")
    assert mark_of(f"{url}/b_9.csv") != before


def test_urls_need_fsspec(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtraError) as caught:
        open_file("s3://bucket/f.parquet")
    assert str(caught.value) == (
        "Reaching s3://bucket/f.parquet needs fsspec, which is not installed. Run `pip install "
        "'dubito[dask]'`."
    )
