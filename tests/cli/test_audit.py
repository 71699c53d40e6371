import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dubito.decide import CostMatrix, cost_report
from dubito.measure import audit
from dubito.outputs import Logits
from tests.cli.conftest import ANIMALS, Run, assert_same


def told_of(frame: pd.DataFrame) -> dict[str, Any]:
    logits = Logits(frame.filter(like="logit_").to_numpy(), ANIMALS)
    return audit(frame["label"].to_numpy(), logits).to_dict()


def test_an_audit_of_a_file_equals_the_library(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv", "--json")
    assert done.exit_code == 0
    printed = json.loads(done.stdout)
    expected = told_of(pd.read_csv(made / "sure.csv"))
    assert printed["log_loss"] == pytest.approx(expected["log_loss"])
    assert printed["verdict"] == expected["verdict"]
    assert printed["findings"] == []


def test_what_is_found_by_name_is_told_beside_the_figures(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv")
    assert done.stderr == "Found by name: label in label, logits in logit_*.\n"
    named = run("audit", made / "sure.csv", "--label", "label", "--logits", "logit_*")
    assert named.stderr == ""
    assert named.stdout.startswith(done.stdout.split("Next")[0])


def test_the_words_of_an_audit(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv", "--costs", made / "costs.csv")
    assert_same(done.stdout.replace(str(made), "."), "audit")
    done = run("audit", made / "regression.csv", "--mean", "m", "--std", "s")
    assert_same(done.stdout, "audit_regression")


def test_costs_are_those_of_the_library(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv", "--costs", made / "costs.csv", "--json")
    frame = pd.read_csv(made / "sure.csv")
    logits = Logits(frame.filter(like="logit_").to_numpy(), ANIMALS)
    costs = CostMatrix.from_csv(made / "costs.csv")
    expected = cost_report(frame["label"].to_numpy(), logits, costs)
    assert json.loads(done.stdout)["cost"]["realized"]["value"] == expected.realized.value


def test_one_column_of_the_positive_class(run: Run, made: Path) -> None:
    words = ["--probability", "chance", "--positive", "fraud"]
    printed = json.loads(run("audit", made / "fraud.csv", *words, "--json").stdout)
    frame = pd.read_csv(made / "fraud.csv")
    expected = audit((frame["y"] == "fraud").astype(int), frame["chance"].to_numpy())
    assert printed["brier_score"] == pytest.approx(expected.brier_score)
    top = run("audit", made / "fraud.csv", "--confidence", "top", "--correct", "hit", "--json")
    assert json.loads(top.stdout)["accuracy"] == pytest.approx(expected.accuracy)


def test_a_finding_ends_with_1_and_a_fine_figure_with_0(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv", "--fail-on", "ece>0.03", "--fail-on", "accuracy<0.1")
    assert done.exit_code == 1
    assert "dubito: expected_calibration_error is 0.235" in done.stderr
    assert "which is > 0.03" in done.stderr
    assert "accuracy is" not in done.stderr
    assert run("audit", made / "sure.csv", "--fail-on", "ece>0.9").exit_code == 0


@pytest.mark.filterwarnings("ignore:.*probability 0")
def test_an_infinite_log_loss_is_a_finding(run: Run) -> None:
    frame = pd.DataFrame({"p_a": [1.0, 1.0, 0.5], "p_b": [0.0, 0.0, 0.5], "y": ["a", "b", "a"]})
    frame.to_csv("impossible.csv", index=False)
    done = run("audit", "impossible.csv", "--fail-on", "log_loss>5")
    assert done.exit_code == 1
    assert "log_loss is inf, which is > 5" in done.stderr


def test_a_report_is_written_and_says_how(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv", "--costs", made / "costs.csv", "-o", "report.html")
    assert "features in feature_*" in done.stderr
    assert "The report is in report.html." in done.stdout
    page = Path("report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "sure.csv" in page


def test_bins_are_as_many_as_asked_for(run: Run, made: Path) -> None:
    assert "ECE (5 uniform bins)" in run("audit", made / "sure.csv", "--bins", "5").stdout


def test_a_file_that_is_large_is_streamed(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = json.loads(run("audit", made / "sure.csv", "--json").stdout)
    monkeypatch.setattr("dubito.cli.reading.IN_MEMORY", 0)
    streamed = json.loads(run("audit", made / "sure.csv", "--json").stdout)
    assert streamed["log_loss"] == pytest.approx(whole["log_loss"])
    assert streamed["area_under_risk_coverage"] == pytest.approx(
        whole["area_under_risk_coverage"], abs=1e-3
    )
    assert np.isfinite(streamed["calibration_p_value"])
