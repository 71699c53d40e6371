import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from tests.cli.conftest import Run, assert_same


@pytest.mark.slow
def test_the_text_of_a_comparison(run: Run, made: Path) -> None:
    done = run("compare", made / "sure.csv", made / "calm.csv", "-o", "compare.html")
    assert_same(done.stdout, "compare")
    assert Path("compare.html").read_text().count("<svg") == 1


@pytest.mark.slow
def test_rows_are_matched_by_id(run: Run, made: Path) -> None:
    frame = pd.read_csv(made / "calm.csv")
    frame.sample(frac=1.0, random_state=0).to_csv("shuffled.csv", index=False)
    straight = json.loads(run("compare", made / "sure.csv", made / "calm.csv", "--json").stdout)
    done = run("compare", made / "sure.csv", "shuffled.csv", "--id", "id", "--json")
    for name, one in json.loads(done.stdout)["metrics"]["shuffled"].items():
        assert one == pytest.approx(straight["metrics"]["calm"][name])
    message = run("compare", made / "sure.csv", "shuffled.csv").stderr
    assert f"shuffled.csv must have the labels of {made / 'sure.csv'}, row by row, got" in message
    assert "match them with --id NAME" in message
    frame.iloc[1:].to_csv("short.csv", index=False)
    message = run("compare", made / "sure.csv", "short.csv", "--id", "id").stderr
    assert f"short.csv: --id must hold the ids of {made / 'sure.csv'}" in message
    assert "got r0 in only one of them" in message
    message = run("compare", made / "sure.csv", "short.csv", "--id", "label").stderr
    assert f"{made / 'sure.csv'}: --id must be unique per row, got cat twice." in message


@pytest.mark.slow
def test_model_names_are_as_short_as_possible(run: Run, made: Path) -> None:
    Path("calm").mkdir()
    Path("calm/sure.csv").write_bytes((made / "calm.csv").read_bytes())
    printed = json.loads(run("compare", made / "sure.csv", "calm/sure.csv", "--json").stdout)
    assert printed["models"] == [str(made / "sure.csv"), "calm/sure.csv"]


@pytest.mark.slow
def test_costs_decide_which_is_best(run: Run, made: Path) -> None:
    words = ["compare", made / "sure.csv", made / "calm.csv", "--json"]
    printed = json.loads(run(*words, "--costs", made / "costs.csv").stdout)
    assert printed["best_by"] == "cost"


@pytest.mark.parametrize("files", [["sure.csv"], ["sure.csv", "sure.csv"]])
def test_a_single_model_exits_with_2(run: Run, made: Path, files: list[str]) -> None:
    done = run("compare", *(made / file for file in files))
    assert done.exit_code == 2
    assert "dubito compare needs two or more different files, got " in done.stderr
    assert done.stderr.endswith("\nRun dubito compare old.csv new.csv.\n")


@pytest.mark.slow
def test_limits_of_a_new_model(run: Run, made: Path) -> None:
    words = ["compare", made / "calm.csv", made / "sure.csv", "--json"]
    done = run(*words, "--fail-on", "change.log_loss>0.01", "--fail-on", "worse.*>0")
    assert done.exit_code == 1
    printed = json.loads(done.stdout)
    change = printed["differences"][0]["interval"]["value"]
    assert (
        f"--fail-on 'change.log_loss>0.01': sure: change.log_loss is {change:.6g}"
        in (printed["findings"])
    )
    worse = {one["metric"] for one in printed["differences"] if one["is_better"] is False}
    said = [one for one in printed["findings"] if "'worse.*>0'" in one]
    assert {one.split("worse.")[2].split(" is ")[0] for one in said} == worse
    assert "dubito: --fail-on 'worse.*>0': sure: worse.log_loss is " in done.stderr
    # The other way round, nothing is worse, and the limit on the metric itself holds.
    back = run("compare", made / "sure.csv", made / "calm.csv", "--fail-on", "worse.*>0")
    assert back.exit_code == 0
    wrong = run(*words, "--fail-on", "change.loss>0")
    assert wrong.exit_code == 2
    assert "must name a metric, got 'change.loss'." in wrong.stderr
    assert "change.log_loss" in wrong.stderr


@pytest.mark.slow
def test_limits_of_two_classes_are_on_the_positive_one(run: Run) -> None:
    rng = np.random.default_rng(0)
    p = rng.beta(0.5, 5, 300)
    y = (rng.random(300) < p) * 1
    pd.DataFrame({"p": p, "label": y}).to_csv("old.csv", index=False)
    pd.DataFrame({"p": np.sqrt(p), "label": y}).to_csv("new.csv", index=False)
    limits = ["--fail-on", "ece>0.1", "--fail-on", "roc_auc<0", "--fail-on", "top_label_ece<0"]
    done = run("compare", "old.csv", "new.csv", "--json", *limits, "--fail-on", "change.ece>0.05")
    printed = json.loads(done.stdout)
    ece = printed["metrics"]["new"]["positive_expected_calibration_error"]["value"]
    first, second = printed["findings"]
    assert first == f"--fail-on 'ece>0.1': new: expected_calibration_error is {ece:.6g}"
    assert "change.expected_calibration_error" in second
