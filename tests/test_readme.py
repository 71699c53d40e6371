"""Whatever the README shows in Python runs, in order, in one interpreter."""

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"


def test_the_python_in_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    assert "It says" in printed
    assert "500 rows, 3 classes" in printed
    assert len(blocks) >= 3


def test_the_demo_prints_what_the_readme_says(capsys: pytest.CaptureFixture[str]) -> None:
    from dubito.cli.demo import demo

    demo()
    told = capsys.readouterr().out
    shown = re.findall(r"```\n( +(?:value|before) .*?)```", README.read_text(), flags=re.DOTALL)
    assert len(shown) == 2
    assert all(table in told for table in shown)


def test_no_placeholder_is_left() -> None:
    assert not re.search(r"\b[A-Z]+_[A-Z_]+\b", README.read_text().replace("DUBITO_THREADS", ""))
