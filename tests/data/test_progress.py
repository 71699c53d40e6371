from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest
from nbclient import NotebookClient

from dubito.data import ArrayShards, Columns, read, report_progress_to, scan, show_progress
from dubito.data.cache import cached
from dubito.data.progress import NotebookProgress, ignore, started

COLUMNS = Columns(probabilities="p")


class Noting:
    """A listener that records what is reported."""

    def __init__(self) -> None:
        self.reported: list[list[object]] = []

    def start(self, name: str, unit: str, total: int | None) -> Callable[[int], None]:
        message: list[object] = [Path(name).name, unit, total]
        self.reported.append(message)
        return message.append


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "f.csv"
    path.write_text("p\n" + "0.5\n" * 30)
    return path


def test_each_pass_over_files_is_reported_also_with_a_cache(path: Path) -> None:
    noting = Noting()
    with report_progress_to(noting), cached(scan(path, COLUMNS)) as shards:
        for _ in range(2):
            shards.sum(len)
        scan(path, COLUMNS).sum(len)
    assert noting.reported == [["f.csv", "rows", None, 30]] * 3


def test_rows_in_memory_are_over_in_a_moment(path: Path) -> None:
    noting = Noting()
    with report_progress_to(noting):
        ArrayShards(read(path, COLUMNS)).sum(len)
        scan(path.parent.joinpath("f.csv"), COLUMNS).batches()
    assert noting.reported == []


def test_nothing_is_reported_without_a_listener(path: Path) -> None:
    assert started("f.csv") is ignore
    noting = Noting()
    with report_progress_to(noting):
        assert started(None) is ignore
    assert started("f.csv") is ignore
    scan(path, COLUMNS).sum(len)
    assert noting.reported == []


def test_without_a_terminal_or_a_notebook_nothing_is_shown(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with show_progress():
        scan(path, COLUMNS).sum(len)
    assert capsys.readouterr() == ("", "")


class Recording(NotebookClient):
    """A client that keeps the HTML of every display, also of those that are replaced later."""

    def process_message(self, msg: Any, cell: Any, cell_index: int) -> Any:
        if msg["msg_type"] in ("display_data", "update_display_data"):
            RECORDED.append(msg["content"]["data"]["text/html"])
        return super().process_message(msg, cell, cell_index)


RECORDED: list[str] = []


def test_a_notebook_shows_one_line_and_empties_it(
    path: Path, run_notebook: Callable[..., None]
) -> None:
    RECORDED.clear()
    cell = nbformat.v4.new_code_cell(
        f"""
from dubito.data import Columns, scan, show_progress
with show_progress():
    rows = scan({str(path)!r}, Columns(probabilities="p"))
    n_rows = [rows.sum(len) for _ in range(2)]
print(n_rows)
"""
    )
    run_notebook(nbformat.v4.new_notebook(cells=[cell]), Recording)
    assert [one.output_type for one in cell.outputs] == ["display_data", "stream"]
    assert cell.outputs[0].data == {"text/html": "", "text/plain": ""}
    assert cell.outputs[1].text == "[30, 30]\n"
    assert "pass 1 over f.csv: 30 of 30 rows" in " ".join(RECORDED)
    assert 'value="30" max="30"' in RECORDED[-2]
    assert "pass 2 over f.csv: 30 of 30 rows" in RECORDED[-2]


def test_a_file_name_is_escaped() -> None:
    shown: list[dict[str, str]] = []

    class Line:
        def update(self, bundle: dict[str, str], raw: bool) -> None:
            shown.append(bundle)

    def display(bundle: dict[str, str], **settings: bool) -> Line:
        shown.append(bundle)
        return Line()

    step = NotebookProgress(display).start("<b>", "tasks", 4)
    step(4)
    assert shown[-1]["text/html"].endswith("pass 1 over &lt;b&gt;: 4 of 4 tasks</div>")
    assert shown[-1]["text/plain"] == "pass 1 over <b>: 4 of 4 tasks"
