"""The notebooks run from top to bottom without a warning, and show their results as HTML."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[2] / "examples" / "notebooks").glob("*.ipynb"))
SHOWN = {  # what the outputs of a notebook contain, besides a plot
    "audit_and_calibrate": ("Over-confident", "No sign of miscalibration", "is better than"),
    "pytorch_network": ("Mahalanobis distance", "T = ", "out-of-distribution input (300 rows)"),
    "rare_events": ("P(fraud) is too low", "this policy saves", "rejects", "one more row saves"),
    "sets_and_intervals": ("Prediction sets at 95", "Coverage 89", "Over-confident"),
}


def test_all_notebooks_are_known() -> None:
    assert [path.stem for path in NOTEBOOKS] == sorted(SHOWN)


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, run_notebook: Callable[..., None]) -> None:
    notebook: Any = nbformat.read(path, 4)
    assert not any(cell.get("outputs") for cell in notebook.cells)  # committed without outputs
    # Names of an earlier notebook must not help this one.
    notebook.cells.insert(0, nbformat.v4.new_code_cell("%reset -f"))
    run_notebook(notebook)
    outputs = [one for cell in notebook.cells for one in cell.get("outputs", [])]
    printed = [one["text"] for one in outputs if one.get("name") == "stderr"]
    assert not [text for text in printed if not text.startswith("dubito: compiling kernels")]
    shown = [one["data"] for one in outputs if "data" in one]
    html = " ".join(one.get("text/html", "") for one in shown)
    assert all(text in html for text in SHOWN[path.stem])
    assert any("image/png" in one for one in shown)
