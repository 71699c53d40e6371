import sys
from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet

from benchmarks import scale
from dubito.data import read


def test_both_layouts_hold_the_same_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scale, "GROUP_ROWS", 300)
    rows = []
    for layout, columns in scale.LAYOUTS.items():
        scale.write_rows(tmp_path / "f.parquet", 1000, layout)
        rows.append(read(tmp_path / "f.parquet", columns))
        assert scale.read_by_pyarrow(tmp_path / "f.parquet") == 1000
        assert parquet.read_metadata(tmp_path / "f.parquet").num_row_groups == 4
    np.testing.assert_array_equal(rows[0].rows.confidence, rows[1].rows.confidence)
    assert 0.3 < rows[0].rows.correct.mean() < rows[0].rows.confidence.mean()


def test_time_that_grows_with_rows_has_a_power_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    scale.print_growth({n: {"even": 1e-6 * n, "steep": 1e-9 * n**1.5} for n in (10, 20, 40, 80)})
    lines = capsys.readouterr().out.splitlines()
    assert lines[-2].split()[-1] == "1.00"
    assert lines[-1].split()[-1] == "1.50"


def test_the_benchmark_prints_all_tables_and_leaves_no_file(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "argv", ["scale", "--quick"])
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    scale.main()
    printed = capsys.readouterr().out
    for words in ("x pyarrow", "one round of a fit", "power", "peak of memory held", "speed-up"):
        assert words in printed
    assert list(tmp_path.glob("dubito-scale-*")) == []
