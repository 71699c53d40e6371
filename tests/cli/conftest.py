"""Small files of predictions, the policies made of them, and a way to run commands."""

import os
import re
from collections.abc import Callable, Iterator
from contextlib import chdir
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from typer.main import get_command
from typer.testing import CliRunner

from dubito import Logits, Probabilities
from dubito.calibrate import TemperatureScaling
from dubito.cli.commands import app
from dubito.data import ArrayShards, Columns, read
from dubito.decide import CostMatrix, Policy

Run = Callable[..., Any]
SNAPSHOTS = Path(__file__).parent / "snapshots"
ANIMALS = ["cat", "dog", "fox"]
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.?\d*(?:e[-+]\d+)?")


def animals(n_rows: int, scale: float, lean: float, seed: int) -> pd.DataFrame:
    """Return predictions of a model that is too sure by a scale, or of one that is not."""
    rng = np.random.default_rng(seed)
    logits = 1.5 * rng.normal(size=(n_rows, 3)) + lean * np.array([1, 0, 0])
    labels = (logits + rng.gumbel(size=logits.shape)).argmax(axis=1)
    features = rng.normal(size=(n_rows, 2)) + np.eye(3, 2)[labels] * 2
    frame = pd.DataFrame(scale * logits, columns=[f"logit_{name}" for name in ANIMALS])
    frame[["feature_0", "feature_1"]] = features
    return frame.assign(id=[f"r{k}" for k in range(n_rows)], label=np.array(ANIMALS)[labels])


def fraud(n_rows: int) -> pd.DataFrame:
    """Return one column of probabilities, row_costs, and whether it was right."""
    rng = np.random.default_rng(5)
    logits = 3 * rng.normal(size=n_rows)
    is_fraud = rng.random(n_rows) < 1 / (1 + np.exp(-logits / 2))
    chance = 1 / (1 + np.exp(-logits))
    return pd.DataFrame(
        {
            "chance": chance,
            "y": np.where(is_fraud, "fraud", "ok"),
            "amount": rng.gamma(2, 50, n_rows),
            "top": np.maximum(chance, 1 - chance),
            "hit": ((chance > 0.5) == is_fraud).astype(int),
        }
    )


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of small files, and policies that were fitted on them."""
    folder = tmp_path_factory.mktemp("made")
    for name, (scale, lean, seed) in {
        "sure": (3.0, 0.0, 0),
        "calm": (1.0, 0.0, 0),
        "later": (3.0, 1.0, 1),
    }.items():
        frame = animals(400, scale, lean, seed)
        frame.to_csv(folder / f"{name}.csv", index=False)
        frame.drop(columns="label").to_csv(folder / f"{name}_new.csv", index=False)
    fraud(400).to_csv(folder / "fraud.csv", index=False)
    rng = np.random.default_rng(2)
    mean = rng.normal(size=300)
    regression = {"m": mean, "s": np.full(300, 0.5), "target": mean + rng.normal(size=300)}
    pd.DataFrame(regression).to_csv(folder / "regression.csv", index=False)
    (folder / "costs.csv").write_text("action,cat,dog,fox\ncat,0,5,1\ndog,1,0,1\nfox,1,1,0\n")
    (folder / "prior.csv").write_text("class,share\ncat,0.6\ndog,0.2\nfox,0.2\n")
    given = Columns(label="label", logits="logit_*", features="feature_*")
    policy = Policy.fit(
        ArrayShards(read(folder / "sure.csv", given)),
        costs=CostMatrix.zero_one(ANIMALS).with_reject(0.3),
        calibrator=TemperatureScaling(),
    )
    policy.save(folder / "policy.json")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _compiled() -> None:
    """Compile what checks inputs, so that its notice is in no command's stderr."""
    Logits(np.zeros((2, 3)))
    Probabilities(np.full((2, 3), 1 / 3))


@pytest.fixture(scope="session", autouse=True)
def _commands() -> Iterator[None]:
    """Build all commands once, as a process does, rather than for each one that runs."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    """Run a command in an empty folder, as one that pipes its output does, 80 columns wide."""
    with chdir(tmp_path):
        yield lambda *words: CliRunner().invoke(
            app, [str(word) for word in words], env={"COLUMNS": "80"}
        )


def assert_same(message: str, name: str) -> None:
    """Compare a text with its snapshot; numbers may differ in their last digit."""
    path = SNAPSHOTS / f"{name}.txt"
    if not path.exists():
        path.write_text(message)
        pytest.fail(f"{path} is new: look at it, and run again")
    kept = path.read_text()
    assert NUMBER.sub("#", message).split() == NUMBER.sub("#", kept).split()
    numbers = [
        [float(one.replace(",", "")) for one in NUMBER.findall(text)] for text in (message, kept)
    ]
    assert numbers[0] == pytest.approx(numbers[1], rel=0.02, abs=2e-3)


def control_characters(text: str) -> set[str]:
    """Return what is no text at all, such as colors."""
    return {character for character in text if not character.isprintable()} - {os.linesep, "\n"}
