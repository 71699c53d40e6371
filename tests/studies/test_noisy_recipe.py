"""The recipe is chosen by validation rows, on seeds that the studies do not use."""

from pathlib import Path

import numpy as np
import pytest

from studies.common.study import Options
from studies.noisy_pairs.study import settings as studied
from studies.noisy_recipe import main, settings, summarize


def test_quick_names_a_recipe(
    tiny_fashion: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    places = ["--folder", str(tiny_fashion), "--cache", str(tmp_path), "-o", str(tmp_path / "out")]
    main(["--quick", *places])
    printed = capsys.readouterr().out
    assert len(printed.split("\n\n")[0].splitlines()) == 2 + 6
    assert "Lowest log loss: " in printed


def test_validation_chooses_and_the_test_does_not(tmp_path: Path) -> None:
    options = Options((0, 1), is_quick=True, folder=tmp_path)
    requested = settings(options)
    assert {one.seed for one in requested}.isdisjoint(one.seed for one in studied(options))
    found = {}
    for number, setting in enumerate(requested):
        curve = np.array([1.0, 0.5 if setting.learning_rate == 1e-3 else 0.7 + number / 100])
        found[setting] = {
            "validation log loss": curve + (0.1 if setting.pace == "steady" else 0.0),
            "validation accuracy": curve,
            "test accuracy": np.array([0.0, number]),
        }
    assert summarize(found).text.endswith("Lowest log loss: 0.001, slowing.")
