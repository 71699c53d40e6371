import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks import many_rows
from benchmarks.many_rows import Usage
from dubito.data import Columns, read


def test_rows_are_float32_columns_of_an_over_confident_model(tmp_path: Path) -> None:
    many_rows.write_rows(tmp_path / "rows.parquet", 2_000)
    batch = read(tmp_path / "rows.parquet", Columns(label="label", logits="logit_*"))
    assert batch.outputs.array.dtype == np.float32  # type: ignore[attr-defined]
    assert batch.outputs.array.shape == (2_000, 10)  # type: ignore[attr-defined]
    assert 0.5 < batch.rows.correct.mean() < batch.rows.confidence.mean() - 0.02


@pytest.mark.slow
def test_the_table_has_a_line_per_command(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = []

    def run(*words: str) -> Usage:
        ran.append(words[0])
        return Usage(8.0, 12.5, 1100.0)

    monkeypatch.setattr(many_rows, "run", run)
    monkeypatch.setattr(many_rows, "seconds_to_read", lambda path: 0.5)
    monkeypatch.setattr(sys, "argv", ["many_rows", "--rows", "300"])
    many_rows.main()
    title, read_line, _, *lines = capsys.readouterr().out.splitlines()
    assert title.startswith("300 x 10 float32 columns")
    assert read_line == "pyarrow.parquet.read_table: 0.50 s"
    assert ran == ["audit", "audit", "fit", "decide", "decide"]
    assert [line.split()[-4:] for line in lines] == [["8.0", "12.5", "1,100", "16.0"]] * 5


@pytest.mark.slow
def test_a_process_is_measured_and_its_failure_raised() -> None:
    used = many_rows.run("--version")
    assert used.wall > 0.05
    assert used.cpu > 0.05
    assert 10 < used.peak < 10_000
    with pytest.raises(subprocess.CalledProcessError):
        many_rows.run("audit", "no_such_file.csv")
