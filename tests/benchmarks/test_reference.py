import json
from pathlib import Path

import numpy as np
import pytest

from benchmarks import reference


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two outputs of three rows each, and figures worked by hand."""
    p = np.array([[0.9, 0.1], [0.2, 0.8], [1.0, 0.0]])
    np.savez(tmp_path / "net.npz", probs=p, labels=[0, 1, 1])
    np.savez(tmp_path / "top.npz", confidence=[0.5, 0.5], pred=[1, 2], labels=[1, 1])
    figures = {
        "net:probs": {"accuracy": 2 / 3, "log_loss": None, "brier": (0.02 + 0.08 + 2) / 3},
        "top (confidence, hit)": {"accuracy": 0.5, "ece15": 0.0},
    }
    (tmp_path / "reference.json").write_text(json.dumps(figures))
    return tmp_path


def test_figures_that_agree_and_one_that_does_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert max(reference.differences(folder).values()) < 1e-12
    path = folder / "reference.json"
    path.write_text(path.read_text().replace('"accuracy": 0.5', '"accuracy": 0.6'))
    monkeypatch.setattr("sys.argv", ["reference", str(folder)])
    with pytest.raises(SystemExit) as left:
        reference.main()
    assert left.value.code == 1
    assert "1.0e-01  top (confidence, hit)" in capsys.readouterr().out
