import subprocess
import sys
from pathlib import Path

from benchmarks.source_size import module_size

ROOT = Path(__file__).parents[2]

MODULE = '''"""A module
of two lines."""

import os  # code


# a comment
def name() -> str:
    """One line."""
    text = """
    a string

    of four lines"""
    return text + os.sep
'''


def test_docstrings_comments_and_blank_lines_are_no_code() -> None:
    size = module_size(MODULE)
    assert (size.lines, size.docstrings, size.code) == (14, 3, 7)


def test_the_command_prints_packages_a_total_and_repeated_names(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(MODULE)
    command = [sys.executable, "-m", "benchmarks.source_size", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
    lines = done.stdout.splitlines()
    assert lines[-2].split() == ["all", "2", "28", "14", "21.4%"]
    assert lines[-1] == "repeated file names: 1 (same.py)"
