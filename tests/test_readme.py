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

from benchmarks.readme_table import table_lines
from dubito.cli.commands import app

ROOT = Path(__file__).parents[1]
README, GUIDE = ROOT / "README.md", ROOT / "docs" / "guide.md"
SPEED = ROOT / "docs" / "benchmarks" / "README.md"
FRAUD = ROOT / "docs" / "fraud.md"
FINDINGS = ROOT / "docs" / "multilabel.md"
INTERVALS = ROOT / "docs" / "intervals.md"
FORECASTS = ROOT / "docs" / "forecasts.md"
CASCADE = ROOT / "docs" / "cascade.md"
SETS = ROOT / "docs" / "sets.md"
ANSWERS = ROOT / "docs" / "answers.md"
TEAM = ROOT / "docs" / "team.md"
START = ROOT / "docs" / "start.md"
WRITTEN = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))
EXPORT = ROOT / "docs" / "export.md"
FORMAT = ROOT / "docs" / "file_format.md"


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


SECTIONS = {
    "measure": 6,
    "calibrate": 5,
    "doubt": 4,
    "decide": 6,
    "policy": 3,
    "regression": 10,
    "report": 2,
    "monitor": 2,
}
PAGES = [
    (README, 3),
    (START, 6),
    *((ROOT / "docs" / "guide" / f"{name}.md", least) for name, least in SECTIONS.items()),
    (FRAUD, 17),
    (FINDINGS, 13),
    (INTERVALS, 14),
    (FORECASTS, 5),
    (CASCADE, 12),
    (SETS, 9),
    (ANSWERS, 16),
    (TEAM, 14),
    pytest.param(EXPORT, 17, marks=pytest.mark.torch),
    (FORMAT, 4),
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
    assert len(shown) == 1
    assert all(table in done.stdout for table in shown)
    assert "Over-confident: mean confidence 95.4 %, accuracy 87.1 %" in done.stdout
    written = {path.name for path in (tmp_path / "dubito-demo").iterdir()}
    assert written == {"decisions.parquet", "policy.json", "report.html"}


def test_speeds_in_the_readme_are_those_of_the_benchmark() -> None:
    assert "\n".join(table_lines()) in README.read_text()


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= 120


def test_speed_tables_of_the_guide_are_those_of_the_benchmarks() -> None:
    printed = [path.read_text() for path in (ROOT / "docs" / "benchmarks").glob("*.txt")]
    lines = {line for text in printed for line in text.splitlines()}
    blocks = re.findall(r"^```(.*?)\n(.*?)^```", SPEED.read_text(), flags=re.DOTALL | re.MULTILINE)
    tables = [text for kind, text in blocks if not kind]
    assert len(tables) == 3
    assert {line for table in tables for line in table.splitlines()} <= lines


def test_tables_of_exports_are_those_of_the_benchmark() -> None:
    printed = (ROOT / "docs" / "benchmarks" / "export.txt").read_text().splitlines()
    tables = re.findall(r"```\n(\S.*?|  .*?)```", EXPORT.read_text(), flags=re.DOTALL)
    shown = [line for table in tables for line in table.splitlines() if "  " in line.strip()]
    assert len(shown) > 20
    assert {*shown} <= {*printed}


@pytest.mark.parametrize("page", ["README.md", "SECURITY.md", *WRITTEN])
def test_links_of_a_page_exist(page: str) -> None:
    path = ROOT / page
    links = re.findall(r"\]\(((?!http)[^)#]+)\)", path.read_text())
    links = [link for link in links if not link.startswith(("gallery/", "api/"))]  # built
    assert [link for link in links if not (path.parent / link).exists()] == []


def test_no_placeholder_is_left() -> None:
    for page in (README, GUIDE):
        text = page.read_text().replace("DUBITO_THREADS", "")
        assert not re.search(r"\b[A-Z]+_[A-Z_]+\b", text)
