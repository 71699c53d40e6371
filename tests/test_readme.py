"""Code blocks of the README and the guide run in order, and their numbers are those printed."""

import re
import shlex
import subprocess
import sys
import warnings
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dubito.cli.app import app

ROOT = Path(__file__).parents[1]
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide.md"
FRAUD = ROOT / "docs" / "fraud.md"
FINDINGS = ROOT / "docs" / "multilabel.md"
INTERVALS = ROOT / "docs" / "intervals.md"
FORECASTS = ROOT / "docs" / "forecasts.md"
SETS = ROOT / "docs" / "sets.md"


def run_blocks(page: Path) -> int:
    """Run the Python and shell blocks in order; return their number.

    What a `text` block shows is what was printed before it.
    """
    names: dict[str, object] = {}
    blocks = re.findall(r"```(python|sh|text)\n(.*?)```", page.read_text(), flags=re.DOTALL)
    printed = shown = ""
    for kind, block in blocks:
        if kind == "python":
            with redirect_stdout(StringIO()) as output:
                exec(compile(block, page.name, "exec"), names)
            shown = output.getvalue() or shown
        elif kind == "text":
            assert " ".join(block.split()) in " ".join(f"{printed}\n{shown}".split()), block
        for line in block.splitlines() if kind == "sh" else []:
            with warnings.catch_warnings():  # a command prints them
                warnings.simplefilter("default")
                done = CliRunner().invoke(app, shlex.split(line)[1:], env={"COLUMNS": "80"})
            assert done.exit_code == 0, f"{line}\n{done.output}"
            printed = done.stdout
    return len(blocks)


PAGES = [
    (README, 4),
    (GUIDE, 10),
    (FRAUD, 17),
    (FINDINGS, 13),
    (INTERVALS, 14),
    (FORECASTS, 5),
    (SETS, 9),
]


@pytest.mark.slow
@pytest.mark.parametrize(("page", "least"), PAGES)
def test_code_blocks_of_a_page_run(
    page: Path, least: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run_blocks(page) >= least


@pytest.mark.slow
def test_the_readme_shows_the_output_of_the_demo(tmp_path: Path) -> None:
    page = README.read_text()
    assert "make demo" in page
    (steps,) = re.findall(r"^demo:.*\n\t(.*)", (ROOT / "Makefile").read_text(), flags=re.MULTILINE)
    command = steps.replace("$(BIN)", str(Path(sys.executable).parent))
    done = subprocess.run(
        shlex.split(command), cwd=tmp_path, capture_output=True, text=True, check=True
    )
    shown = re.findall(r"```\n( +(?:value|uncalibrated) .*?)```", page, flags=re.DOTALL)
    assert len(shown) == 2
    assert all(table in done.stdout for table in shown)
    assert "Over-confident: mean confidence 95.4 %, accuracy 87.1 %" in done.stdout
    written = {path.name for path in (tmp_path / "dubito-demo").iterdir()}
    assert written == {"decisions.parquet", "policy.json", "report.html"}


def test_speeds_in_the_readme_are_those_of_the_benchmark() -> None:
    printed = (ROOT / "docs" / "benchmarks" / "calibration_speed.txt").read_text()
    text = " ".join(README.read_text().split())
    for peer, unit in (("dubito TemperatureScaling", ".2f"), ("scikit-learn temperature", ".1f")):
        seconds = float(re.findall(rf"{peer} +([\d.]+)", printed)[0])
        assert f"{seconds:{unit}} s" in text


def test_speed_tables_of_the_guide_are_those_of_the_benchmarks() -> None:
    printed = [path.read_text() for path in (ROOT / "docs" / "benchmarks").glob("*.txt")]
    lines = {line for text in printed for line in text.splitlines()}
    section = GUIDE.read_text().split("## Speed")[1]
    tables = re.findall(r"```\n(.*?)```", section, flags=re.DOTALL)
    assert len(tables) == 2
    assert {line for table in tables for line in table.splitlines()} <= lines


@pytest.mark.parametrize("page", [README, GUIDE, FRAUD, FINDINGS, INTERVALS, FORECASTS])
def test_links_of_a_page_exist(page: Path) -> None:
    links = re.findall(r"\]\(((?!http)[^)#]+)\)", page.read_text())
    assert links
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_no_placeholder_is_left() -> None:
    for page in (README, GUIDE):
        text = page.read_text().replace("DUBITO_THREADS", "")
        assert not re.search(r"\b[A-Z]+_[A-Z_]+\b", text)
