"""`dubito review plan`: who reviews which rejected row."""

import csv
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from dubito.calibrate import ConfidenceCalibrator, IdentityCalibrator
from dubito.decide import CostMatrix, Policy, ReviewTeam
from dubito.outputs import Scores
from tests.cli.conftest import Run

TEAM = "name,capacity_per_hour,hours_per_day,error_rate,cost\nann,2,1,0,0.1\nbob,2,2,0.2,0.01*fee\n"


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A policy, decisions of ten rows of which eight are rejected, and a team."""
    monkeypatch.chdir(tmp_path)
    costs = CostMatrix([[0, "fee"], [1, 0]], ["pass", "block"], ["ok", "bad"]).with_reject(0.1)
    p = np.array([[0.9, 0.1], [0.5, 0.5], [0.5, 0.5], [0.1, 0.9]])
    fees = {"fee": [2.0] * 4}
    policy = Policy.fit(
        p, [0, 0, 1, 1], costs=costs, calibrator=IdentityCalibrator(), row_costs=fees
    )
    policy.save("policy.json")
    lines = ["id,fee,action,reason,probability_ok,probability_bad"]
    for k in range(10):
        action, ok = ("reject", 0.5 + 0.03 * k) if k < 8 else ("pass", 0.99)
        lines.append(f"r{k},2,{action},reject_costs_less,{ok},{1 - ok}")
    Path("decisions.csv").write_text("\n".join(lines) + "\n")
    Path("team.csv").write_text(TEAM)
    return tmp_path


@pytest.mark.slow
def test_a_plan_is_made_within_capacity(run: Run, files: Path) -> None:
    command = ("review", "plan", "policy.json", "decisions.csv", "--team", "team.csv")
    done = run(*command, "-o", "plan.csv", "--save-team", "team.json")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("8 rows, 6 reviews: expected cost ")
    assert "one more hour" in done.stdout
    with open("plan.csv") as file:
        plan = list(csv.DictReader(file))
    assert Counter(row["reviewer"] for row in plan) == {"ann": 2, "bob": 4, "": 2}
    assert [row["reviewer"] for row in plan[:3]] == ["ann", "ann", "bob"]
    assert {row["id"] for row in plan} == {f"r{k}" for k in range(8)}
    printed = json.loads(run(*command, "--exact", "--json").stdout)
    prices = ReviewTeam.load("team.json").shadow_prices
    assert [one["row_saves"] for one in printed["reviewers"]] == pytest.approx(prices.tolist())
    assert prices[0] < printed["reviewers"][0]["hour_saves"] < 2 * prices[0]  # ever less
    assert printed["saving"] == pytest.approx(sum(float(row["review_value"]) for row in plan))


def test_answers_are_planned_by_their_scores(run: Run, files: Path) -> None:
    score = np.linspace(0.02, 0.98, 60)
    is_correct = (np.arange(60) * 7 % 60 < 60 * score).astype(int)
    costs = CostMatrix([[1, 0]], ["answer"], ["wrong", "correct"]).with_reject(0.2)
    policy = Policy.fit(Scores(score), is_correct, costs=costs, calibrator=ConfidenceCalibrator())
    policy.save("scores.json")
    lines = ["id,action,p_correct,reason"]
    lines += [f"q{k},reject,{p},reject_costs_less" for k, p in enumerate((0.5, 0.7, 0.9))]
    Path("answers.csv").write_text("\n".join(lines) + "\n")
    Path("one.csv").write_text("name,capacity_per_day,error_rate\nann,2,0.01\n")
    done = run(
        "review", "plan", "scores.json", "answers.csv", "--team", "one.csv", "-o", "plan.csv"
    )
    assert done.exit_code == 0, done.output
    with open("plan.csv") as file:
        plan = list(csv.DictReader(file))
    assert [row["id"] for row in plan if row["reviewer"]] == ["q0", "q1"]
    assert float(plan[1]["review_value"]) == pytest.approx(0.3 - 0.01)
    assert {row["action_without_review"] for row in plan} == {"answer"}


def test_what_cannot_be_planned_is_said(run: Run, files: Path) -> None:
    for old, new, message in [
        ("probability_bad", "p", "Run dubito decide with --all-probabilities"),
        ("reject,", "pass,", "has no row with the action reject"),
    ]:
        text = Path("decisions.csv").read_text()
        Path("other.csv").write_text(text.replace(old, new))
        done = run("review", "plan", "policy.json", "other.csv", "--team", "team.csv")
        assert done.exit_code == 2
        assert message in " ".join(done.stderr.split())


def test_undecided_rows_exit_with_2_and_name_the_command(run: Run, files: Path) -> None:
    Path("new.csv").write_text("id,probability_ok,probability_bad\nr1,0.5,0.5\n")
    done = run("review", "plan", "policy.json", "new.csv", "--team", "team.csv")
    assert done.exit_code == 2
    text = " ".join(done.stderr.split())
    assert "no column 'action'" in text
    assert "Run dubito decide POLICY new.csv" in text
