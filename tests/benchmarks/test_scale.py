import sys
from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from benchmarks import scale, scale_cluster, scale_peers, scale_rows, scale_work
from benchmarks.scale_rows import LISTS, PLAIN, WIDE, Shape
from dubito.data import read


def test_both_layouts_hold_the_same_rows(tmp_path: Path) -> None:
    rows = []
    for layout in (LISTS, PLAIN):
        shape = replace(layout, group_entries=3000)
        scale_rows.write_rows(tmp_path / "f.parquet", 1000, shape)
        rows.append(read(tmp_path / "f.parquet", shape.columns))
        assert scale_rows.read_by_batches(tmp_path / "f.parquet") == 1000
        assert scale_rows.read_by_scanner(tmp_path / "f.parquet") == 1000
        assert parquet.read_metadata(tmp_path / "f.parquet").num_row_groups == 4
    np.testing.assert_array_equal(rows[0].rows.confidence, rows[1].rows.confidence)
    assert 0.3 < rows[0].rows.correct.mean() < rows[0].rows.confidence.mean()


def test_groups_of_rows_are_turned_copies(tmp_path: Path) -> None:
    scale_rows.write_rows(tmp_path / "f.parquet", 600, replace(LISTS, group_entries=3000))
    rows = read(tmp_path / "f.parquet", LISTS.columns).rows
    first, second = rows.confidence[:300], rows.confidence[300:]
    assert (first != second).mean() > 0.9
    np.testing.assert_allclose(np.sort(first), np.sort(second), rtol=1e-6)
    assert rows.correct[:300].sum() == rows.correct[300:].sum()


def test_time_that_grows_with_rows_has_a_power_of_one() -> None:
    sizes = (10, 20, 40, 80)
    calls: dict[str, Callable[[int], float]] = {
        "even": lambda n: 1e-6 * n,
        "steep": lambda n: 1e-9 * n**1.5,
        "late": lambda n: 0.25 + 2e-3 * n,
    }
    times = {n: {name: call(n) for name, call in calls.items()} for n in sizes}
    even, steep, late = scale.growth_table(times).splitlines()[1:]
    assert even.split()[-3:] == ["0.00", "1000", "1.00"]
    assert steep.split()[-1] == "1.50"
    assert late.split()[-3:-1] == ["0.25", "2000000"]


def test_pandas_finds_what_an_audit_finds(tmp_path: Path) -> None:
    scale_rows.write_rows(tmp_path / "f.parquet", 3000, PLAIN)
    ours, theirs = (call(tmp_path / "f.parquet") for call in
                    (scale_peers.by_audit, scale_peers.by_pandas))  # fmt: skip
    assert theirs == pytest.approx(ours, rel=1e-6)


def test_what_is_not_installed_is_reported(tmp_path: Path) -> None:
    scale_rows.write_rows(tmp_path / "f.parquet", 100, PLAIN)
    audit = scale_peers.by_audit
    peers: scale_peers.Peers = {"audit": ((), audit), "x": (("no_such_package",), audit)}
    table = scale_peers.peers_table(tmp_path / "f.parquet", 100, peers)
    assert "no_such_package not installed" in table


@pytest.mark.parametrize("shape", [LISTS, WIDE], ids=["few", "many"])
def test_all_steps_run_and_print_their_memory(
    shape: Shape,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    scale_rows.write_rows(tmp_path / "f.parquet", 400, shape)
    monkeypatch.setattr(sys, "argv", ["scale_work", str(tmp_path / "f.parquet"), shape.title])
    scale_work.main()
    assert 50 < float(capsys.readouterr().out) < 100_000


def test_the_benchmark_prints_all_tables_and_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["scale", "--quick", "-o", str(tmp_path / "deep" / "t.txt")])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    # A process of its own loads all that this one has loaded yet, so that there is one, a worker.
    monkeypatch.setattr(scale, "memory_line", lambda path, shape: f"held by {path.name}")
    alone = cache(partial(scale_cluster.on_cluster, n_workers=1, n_times=1))
    monkeypatch.setattr(scale_cluster, "on_cluster", lambda path, shape, *_: {**alone(path, shape)})
    scale.main()
    printed = capsys.readouterr().out
    titles = ("x scanner", "one round of a fit", "power", "x audit", "speed-up", "held by rows")
    for words in (*titles, "write parts", "fixed-size lists of 1,000, 400 rows"):
        assert words in printed
        assert words in (tmp_path / "deep" / "t.txt").read_text()
    assert list(tmp_path.glob("dubito-scale-*")) == []
