import subprocess
import sys
from pathlib import Path

import pytest

import dubito


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(Path(sys.executable).with_name("dubito")), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_help_names_the_commands() -> None:
    done = run("--help")
    assert done.returncode == 0
    assert "demo" in done.stdout
    assert "audit" in done.stdout


def test_no_arguments_show_help() -> None:
    assert "Usage" in run().stdout + run().stderr


def test_version() -> None:
    assert run("--version").stdout == f"dubito {dubito.__version__}\n"


@pytest.mark.parametrize("command", ["demo", "audit"])
def test_every_help_text_has_an_example(command: str) -> None:
    assert f"Example: dubito {command}" in " ".join(run(command, "--help").stdout.split())


def test_bad_input_is_told_in_a_line_and_ends_with_2(tmp_path: Path) -> None:
    done = run("audit", str(tmp_path / "none.csv"), "--label", "y", "--logits", "z*")
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert "there is no such file" in done.stderr
