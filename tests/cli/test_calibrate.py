import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito.calibrate import AutoCalibrator, BaseCalibrator
from dubito.outputs import Logits
from tests.cli.conftest import ANIMALS, Run


@pytest.mark.slow
def test_the_winner_is_told_with_intervals_and_written(run: Run, made: Path) -> None:
    done = run("calibrate", made / "sure.csv")
    assert done.exit_code == 0, done.output
    first, *_ = done.stdout.splitlines()
    assert first[0].isupper()
    assert "95 % interval" in done.stdout
    assert "IdentityCalibrator()" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    kept = BaseCalibrator.from_dict(json.loads(Path("calibrator.json").read_text()))
    frame = pd.read_csv(made / "sure.csv")
    logits = Logits(frame.filter(like="logit_").to_numpy(), ANIMALS)
    learned = AutoCalibrator().fit(logits, frame["label"].to_numpy())
    assert np.allclose(kept.predict_proba(logits), learned.predict_proba(logits), atol=1e-9)
    line = next(line for line in learned.leaderboard_ if line["name"] == "IdentityCalibrator()")
    reach = 1.96 * line["standard_error"]
    low, high = line["log_loss"] - reach, line["log_loss"] + reach
    assert f"{line['log_loss']:.4f}  {low:.4f} to {high:.4f}" in done.stdout


@pytest.mark.slow
def test_figures_are_there_as_json(run: Run, made: Path) -> None:
    words = ["--probability", "chance", "--positive", "fraud", "--json", "-o", "fraud.json"]
    printed = json.loads(run("calibrate", made / "fraud.csv", *words).stdout)
    assert printed["output"] == "fraud.json"
    names = [line["name"] for line in printed["leaderboard"]]
    assert {"TemperatureScaling()", "IdentityCalibrator()"} <= set(names)
    for line in printed["leaderboard"]:
        middle = (line["low"] + line["high"]) / 2
        assert line["log_loss"] == pytest.approx(middle)
