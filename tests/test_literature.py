"""docs/literature.md names what exists: public names, scripts and checks; no cell is empty."""

import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "literature.md").read_text()
ROWS = [
    [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    for line in PAGE.splitlines()
    if line.startswith("|") and not line.startswith(("|---", "| Concept", "| Claim"))
]
CONCEPTS = [row for row in ROWS if len(row) == 3]


def test_no_cell_is_empty() -> None:
    assert len(CONCEPTS) >= 50
    assert len(ROWS) - len(CONCEPTS) >= 30  # claims, with a verdict each
    assert all(all(row) for row in ROWS)


@pytest.mark.parametrize("row", CONCEPTS, ids=lambda row: str(row[0])[:40])
def test_names_scripts_and_checks_exist(row: list[str]) -> None:
    _, covered, check = row
    for name in re.findall(r"`(dubito\.[\w.]+)`", covered):
        package, _, attribute = name.rpartition(".")
        assert attribute in importlib.import_module(package).__all__, name
    for module in re.findall(r"`python -m studies\.(\w+)`", covered):
        assert any(
            (ROOT / "studies" / one).is_file() for one in (f"{module}.py", f"{module}/study.py")
        )
    for script in re.findall(r"`python (examples/\w+\.py)`", covered):
        assert (ROOT / script).is_file()
    assert "`" in covered
    text = ""
    for one in check.split(", "):
        path, name = one.strip("`").split("::")
        source = (ROOT / "tests" / path).read_text()
        assert f"def {name}(" in source
        text += source
    for name in re.findall(r"`dubito\.\w+\.(\w+)`", covered):
        assert re.search(rf"\b{name}\b", text), f"no check of {name}"
