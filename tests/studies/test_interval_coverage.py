import sys

import pytest

from studies import interval_coverage


def test_the_study_prints_what_was_held_and_rejected(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["interval_coverage", "--quick", "--metrics", "log_loss", "accuracy"]
    monkeypatch.setattr(sys, "argv", command)
    interval_coverage.main()
    printed = capsys.readouterr().out
    assert "log_loss" in printed
    assert "calibrated: rejects" in printed
    assert "accuracy of these models: 0.7" in printed
