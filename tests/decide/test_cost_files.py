"""A hand-written file is read, or the error names what is wrong with it."""

from pathlib import Path

import pytest

from dubito.decide import CostMatrix
from dubito.decide.costs import _read_cost_table
from dubito.errors import BadFileError
from dubito.serialization.documents import MAX_BYTES


def test_a_table_by_action_and_by_truth(tmp_path: Path) -> None:
    path = tmp_path / "costs.csv"
    path.write_bytes('\ufeffaction,"a, b",c\r\ngo,1,2e3\r\n'.encode())
    assert _read_cost_table(path) == ([[1.0, 2000.0]], ["go"], ["a, b", "c"])
    path.write_text("truth,go,stay\na,1,2\n")
    assert _read_cost_table(str(path)) == ([[1.0], [2.0]], ["go", "stay"], ["a"])


CORNER = (
    "its first header cell must be `action` or `truth` (what the rows are), got {}. "
    "Use a header such as action,healthy,ill."
)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", CORNER.format("''")),
        (b",a,b\nx,1,2\n", CORNER.format("''")),
        (b"Class,a,b\nx,1,2\n", CORNER.format("'class'")),
        (b"action,a,b\n", "it holds no costs. Add one row of numbers per action below the names."),
        (b"action\nx\n", "it holds no costs. Add one row of numbers per action below the names."),
        (b"action,a,b\nx,1\n", "row 'x' has 2 cells instead of 3. Give one cell per column."),
        (
            b"action,a,b\nx,1,\n",
            "in row 'x', a cost must be a number or an expression, got an empty text. Use "
            "numbers, column names (in backticks if needed), + - * / ( ), min and max.",
        ),
        (
            b"action,\xff\n",
            "it is not UTF-8 ('utf-8' codec can't decode byte 0xff in position 7: invalid start "
            "byte). Save it as UTF-8 if it is text, or pass another file.",
        ),
    ],
)
def test_bad_tables(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "costs.csv"
    path.write_bytes(content)
    with pytest.raises(BadFileError) as caught:
        _read_cost_table(path)
    assert str(caught.value) == f"{path} cannot be read: {message}"


def test_a_field_beyond_all_bounds(tmp_path: Path) -> None:
    path = tmp_path / "costs.csv"
    path.write_text("action," + "a" * 200_000)
    with pytest.raises(BadFileError, match="it is not CSV"):
        _read_cost_table(path)


@pytest.mark.slow
def test_files_that_are_not_there_or_too_large(tmp_path: Path) -> None:
    path = tmp_path / "none.csv"
    with pytest.raises(BadFileError) as caught:
        _read_cost_table(path)
    assert str(caught.value) == (f"{path} cannot be read: there is no such file. Check the path.")
    with path.open("wb") as file:
        file.truncate(MAX_BYTES + 1)
    with pytest.raises(BadFileError, match=r"larger than 64 MB\. Check that"):
        CostMatrix.from_json(path)


@pytest.mark.parametrize("content", ["", "{", "[" * 200_000])
def test_bad_json(tmp_path: Path, content: str) -> None:
    path = tmp_path / "costs.json"
    path.write_text(content)
    with pytest.raises(BadFileError, match="it is not JSON"):
        CostMatrix.from_json(path)


def test_the_json_form_of_the_guide_asks_a_reviewer(tmp_path: Path) -> None:
    page = Path(__file__).parents[2] / "docs" / "guide" / "decide.md"
    block = page.read_text().split("```json\n")[1].split("```")[0]
    path = tmp_path / "asking.json"
    path.write_text(block)
    costs = CostMatrix.from_json(path)
    same = CostMatrix([[0, 100], [5, 0]], ["pass", "block"], ["legit", "fraud"])
    same = same.with_review("ann", cost=2, error_rate=[0.01, 0.05])
    assert costs.to_dict() == same.to_dict()
