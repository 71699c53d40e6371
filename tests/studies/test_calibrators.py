"""The study of calibrators: every method is fitted on validation and judged on test."""

from pathlib import Path

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax

from dubito.arrays import FloatArray, IntArray
from studies import calibrators as study


def made(n_rows: int, seed: int, sharpness: float) -> tuple[FloatArray, IntArray]:
    """Logits that are `sharpness` times too large, and labels."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(n_rows, 3))
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    return sharpness * logits, labels


def test_it_prints_the_tables(
    tmp_path: Path, tiny_fashion: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = {"--folder": tiny_fashion, "--cache": tmp_path, "-o": tmp_path}
    study.main(["--quick", *(str(word) for pair in folders.items() for word in pair)])
    text = (tmp_path / "calibrators.md").read_text()
    assert capsys.readouterr().out.startswith(text.rstrip())
    tables = [part.splitlines() for part in text.split("\n\n") if part.startswith("|")]
    assert [len(table) for table in tables] == [4, 4, 4, 2 + len(study.METHODS) - 1]
    assert all(table[0].count("|") == len(study.METHODS) + 2 for table in tables[:3])
    assert all(row.count("**") == 2 for table in tables[:3] for row in table[2:])
    assert (tmp_path / "calibrators.png").stat().st_size > 10_000


def test_temperature_is_that_of_a_search_on_validation() -> None:
    known, labels = made(2_000, 0, 3.0)
    new, truth = made(2_000, 1, 3.0)
    run = {
        "validation_logits": known,
        "validation_labels": labels,
        "test_logits": new,
        "test_labels": truth,
    }

    def loss(scale: float, logits: FloatArray, y: IntArray) -> float:
        return float(-log_softmax(scale * logits, axis=1)[np.arange(len(y)), y].mean())

    scale = minimize_scalar(loss, bounds=(0.01, 2), args=(known, labels)).x
    found = dict(zip(study.METHODS, study.evaluate(run), strict=True))
    assert found["temperature"][0] == pytest.approx(loss(scale, new, truth), abs=1e-5)
    assert found["uncalibrated"][0] == pytest.approx(loss(1, new, truth), abs=1e-9)
    assert found["temperature"][1] == found["uncalibrated"][1]


def test_words_and_pairs_are_those_of_the_figures() -> None:
    figures = np.full((2, len(study.METHODS), 4), 0.5)
    names = list(study.METHODS)
    figures[:, names.index("uncalibrated"), 0] = [0.6, 0.4]
    figures[:, names.index("vector"), 0] = 0.4
    figures[:, names.index("uncalibrated"), 2] = 0.9
    results = {"one": figures}
    words = study.temperature_words(results)
    assert "lowers ECE in 2 and log loss in 1 of 2 networks" in words
    assert words.split("losses: ")[1].startswith("vector")
    row = next(line for line in study.paired_table(results).splitlines() if "| vector" in line)
    assert row == (
        "| vector | 0.0000 ± 0.0000 | -0.1000 ± 0.0000 | 0.0000 ± 0.0000 "
        "| 0 of 2 | 2 of 2 | 0 of 2 |"
    )
