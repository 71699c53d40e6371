"""Every script of the gallery runs as it is, without a warning, and draws a figure."""

import runpy
from collections.abc import Iterator
from pathlib import Path

import matplotlib
import pytest
from matplotlib import pyplot

EXAMPLES = Path(__file__).parents[2] / "examples"
SCRIPTS = sorted(path.stem for path in EXAMPLES.glob("plot_*.py"))
MARKS = {"plot_trained_to_doubt": pytest.mark.torch, "plot_billion_rows": pytest.mark.dask}


@pytest.fixture(autouse=True)
def figures(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    matplotlib.use("agg")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    pyplot.close("all")
    yield
    pyplot.close("all")


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=MARKS.get(name, ())) for name in SCRIPTS]
)
def test_script_runs_and_draws(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    runpy.run_path(str(EXAMPLES / f"{name}.py"), run_name=name)
    assert pyplot.get_fignums()
    assert len(capsys.readouterr().out) > 80


def test_every_script_has_its_place_in_the_gallery() -> None:
    order = runpy.run_path(str(EXAMPLES.parent / "docs" / "_extensions" / "gallery_order.py"))
    assert sorted(order["TASKS"]) == SCRIPTS
