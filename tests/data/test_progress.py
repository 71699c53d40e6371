from collections.abc import Callable
from pathlib import Path

import pytest

from dubito.data import Columns, read, scan
from dubito.data.cache import cached
from dubito.data.progress import ignore, report_progress_to, started
from dubito.data.shards import ArrayShards

COLUMNS = Columns(probabilities="p")


class Noting:
    """A watcher that notes what it is told."""

    def __init__(self) -> None:
        self.told: list[list[object]] = []

    def start(self, name: str, unit: str, total: int | None) -> Callable[[int], None]:
        told: list[object] = [Path(name).name, unit, total]
        self.told.append(told)
        return told.append


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "f.csv"
    path.write_text("p\n" + "0.5\n" * 30)
    return path


def test_each_pass_over_files_is_told_also_of_a_cache(path: Path) -> None:
    noting = Noting()
    with report_progress_to(noting), cached(scan(path, COLUMNS)) as shards:
        for _ in range(2):
            shards.sum(len)
        scan(path, COLUMNS).sum(len)
    assert noting.told == [["f.csv", "rows", None, 30]] * 3


def test_rows_in_memory_are_over_in_a_moment(path: Path) -> None:
    noting = Noting()
    with report_progress_to(noting):
        ArrayShards(read(path, COLUMNS)).sum(len)
        scan(path.parent.joinpath("f.csv"), COLUMNS).batches()
    assert noting.told == []


def test_nothing_is_told_where_nobody_watches(path: Path) -> None:
    assert started("f.csv") is ignore
    noting = Noting()
    with report_progress_to(noting):
        assert started(None) is ignore
    assert started("f.csv") is ignore
    scan(path, COLUMNS).sum(len)
    assert noting.told == []
