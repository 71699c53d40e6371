import csv
from pathlib import Path

import pytest

from benchmarks.startup import print_line, seconds_of, write_rows


def test_the_file_holds_logits_and_labels_by_name(tmp_path: Path) -> None:
    write_rows(tmp_path / "rows.csv", 3)
    with (tmp_path / "rows.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3
    assert len(rows[0]) == 9
    assert f"logit_{rows[0]['label']}" in rows[0]


def test_seconds_of_a_process_include_its_children(tmp_path: Path) -> None:
    work = (
        "t = os.times(); [0 for _ in iter(lambda: sum(os.times()[:2]) < sum(t[:2]) + 0.2, False)]"
    )
    script = f"import os\nif not os.fork():\n    {work}\n    os._exit(0)\nos.wait()"
    cpu, wall = seconds_of(["-c", script], tmp_path)
    assert cpu >= 0.2
    assert wall >= 0.2


def test_a_command_that_fails_stops_the_benchmark(tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match="no such thing"):
        seconds_of(["-c", "raise SystemExit('no such thing')"], tmp_path)


def test_a_line_holds_the_minimum_of_each_time(capsys: pytest.CaptureFixture[str]) -> None:
    print_line("audit", [(1.5, 3.0), (2.0, 2.0)], 0.5)
    assert capsys.readouterr().out.split() == ["audit", "1.50", "2.00", "3.0"]
