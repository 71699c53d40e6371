import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito.cli.audit import audit as command
from dubito.errors import BadValueError
from dubito.measure import audit


@pytest.fixture
def predictions(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    p = rng.dirichlet([1, 1, 1], 200)
    frame = pd.DataFrame(p, columns=["p_cat", "p_dog", "p_fox"])
    frame["y"] = rng.choice(["cat", "dog", "fox"], 200)
    frame.to_csv(tmp_path / "predictions.csv", index=False)
    return tmp_path / "predictions.csv"


def test_an_audit_of_a_file_equals_the_library(
    predictions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(predictions, label="y", probabilities="p_*", as_json=True)
    printed = json.loads(capsys.readouterr().out)
    frame = pd.read_csv(predictions)
    codes = frame.y.map({"cat": 0, "dog": 1, "fox": 2})
    expected = audit(codes, frame[["p_cat", "p_dog", "p_fox"]].to_numpy()).to_dict()
    assert printed["log_loss"] == pytest.approx(expected["log_loss"])
    assert printed["verdict"] == expected["verdict"]


def test_the_audit_speaks_words_first(
    predictions: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command(predictions, label="y", probabilities="p_*", bins=5)
    told = capsys.readouterr().out
    assert "It says" in told.splitlines()[0]
    assert "ECE (5 uniform bins)" in told


def test_what_the_numbers_mean_is_never_guessed(predictions: Path) -> None:
    with pytest.raises(BadValueError, match="exactly one of logits, probabilities"):
        command(predictions, label="y")
