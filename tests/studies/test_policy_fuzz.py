"""The study of broken files breaks them in every way, and reports what must not happen."""

import json
from pathlib import Path

import numpy as np
import pytest

from dubito import Logits
from dubito.calibrate import IdentityCalibrator
from dubito.decide import CostMatrix, Policy
from studies import policy_fuzz as study


@pytest.fixture(scope="module")
def one() -> dict[str, Policy]:
    logits = 3 * np.random.default_rng(0).normal(size=(200, 3))
    y = np.arange(200) % 3
    costs = CostMatrix.zero_one(3).with_reject(0.3)
    return {"identity": Policy.fit(Logits(logits), y, costs=costs, calibrator=IdentityCalibrator())}


@pytest.mark.parametrize("name", study.CORRUPTIONS)
def test_every_way_to_break_a_file_does(name: str, one: dict[str, Policy], tmp_path: Path) -> None:
    one["identity"].save(tmp_path / "policy.json")
    text = (tmp_path / "policy.json").read_bytes()
    corruptor = study.Corruptor(0)
    broken = [study.CORRUPTIONS[name](corruptor, text) for _ in range(5)]
    assert len(set(broken)) == 5
    assert text not in broken
    again = study.Corruptor(0)
    assert [study.CORRUPTIONS[name](again, text) for _ in range(5)] == broken


def test_a_seal_lasts_and_what_is_no_policy_gets_none(
    one: dict[str, Policy], tmp_path: Path
) -> None:
    path = tmp_path / "policy.json"
    one["identity"].save(path)
    Policy.load(path)  # imports what every load needs
    document = json.loads(path.read_text())
    document["provenance"]["created"] = "long ago"
    path.write_text(json.dumps(document))
    assert study.tried(path) == "BadFileError"
    assert study.update_checksum(path)
    assert study.tried(path) == study.DECIDED
    path.write_text("{")
    assert not study.update_checksum(path)


def test_unexpected_errors_and_hangs_are_reported(
    one: dict[str, Policy], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(path: Path) -> str:
        if path.name == "corrupted.json":
            raise KeyError("oh")
        return study.DECIDED

    monkeypatch.setattr(study, "tried", failing)
    outcomes = study.fuzz(one, 4, tmp_path)
    assert outcomes.faults[0] == "file 0, bits flipped: KeyError: 'oh'"
    assert outcomes.lines()[-1] == "file 3, truncated: KeyError: 'oh'"
    assert study.Outcomes(slowest=7).lines()[-2] == "SOME FILES HANG."


def test_it_prints_and_writes_a_table(
    one: dict[str, Policy],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(study, "sound_policies", lambda: one)
    study.main(["--files", "32", "-o", str(tmp_path / "table.txt")])
    printed = capsys.readouterr().out
    assert printed == (tmp_path / "table.txt").read_text()
    first, second, *_ = printed.split("\n")
    assert first == "32 corrupted policy files, 16 of them with a new checksum."
    assert second.startswith("32 corrupted states: ")
    assert printed.endswith(
        "No file took 5 seconds.\nNo other error, no warning, nothing executed.\n"
    )
