import json

import pytest

import dubito
from tests.cli.conftest import Run


def test_all_checks_pass(run: Run) -> None:
    done = run("doctor")
    assert done.exit_code == 0
    assert done.stdout.endswith("\nAll checks passed.\n")
    assert dubito.__version__ in done.stdout
    assert done.stdout.count(" ok") == 6


def test_a_wrong_result_is_reported(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("dubito.cli.doctor").cli.doctor.STORED, "log loss", 0.7)
    done = run("doctor", "--json")
    assert done.exit_code == 1
    printed = json.loads(done.stdout)
    assert printed["wrong"] == ["log loss"]
    assert printed["checks"]["log loss"][1] == 0.7
