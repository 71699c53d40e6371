"""The study of pools runs, and its figures are those of the rows that are held out."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.measure import accuracy, log_loss
from studies.combine import FILE, figures, main


def made() -> tuple[list[Any], Any]:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 3, 600)
    return list(2 * np.eye(3)[y] + rng.normal(0, 1, (2, 600, 3))), y


def test_figures_of_a_network_alone_are_those_of_the_held_out_half() -> None:
    logits, y = made()
    found = figures([Logits(one) for one in logits], y)
    for seed in range(5):
        rest = np.random.default_rng(seed).permutation(600)[300:]
        outputs = Logits(logits[1][rest])
        expected = log_loss(y[rest], outputs), accuracy(y[rest], outputs)
        assert found["multi-spectral"][seed] == pytest.approx(expected)
    both = found["product rule"][:, 0]
    assert (both < np.minimum(found["RGB"][:, 0], found["multi-spectral"][:, 0])).all()


def test_it_prints_a_table_and_a_verdict(tmp_path: Path, capsys: Any) -> None:
    logits, y = made()
    halves = {"logits_rgb": logits[0].astype(np.float16), "logits_ms": logits[1]}
    np.savez(tmp_path / FILE, labels=y.astype(np.uint8), **halves)
    main([str(tmp_path)])
    printed = capsys.readouterr().out
    assert printed.startswith(
        "600 rows, 5 random halves, fitted on one and evaluated on the other\n"
    )
    assert "| log-linear pool | " in printed
    assert "The data do not contradict conditional independence" in printed
