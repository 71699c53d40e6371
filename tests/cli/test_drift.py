import json
from pathlib import Path

import pandas as pd
import pytest

from dubito.monitor import detect_drift
from dubito.outputs import Logits
from tests.cli.conftest import ANIMALS, Run, assert_same


def test_the_text_of_drift_without_labels(run: Run, made: Path) -> None:
    done = run("drift", made / "sure_new.csv", made / "later_new.csv", "-o", "drift.html")
    assert_same(done.stdout, "drift")
    assert Path("drift.html").read_text().count("<svg") == 2


@pytest.mark.slow
def test_drift_of_files_equals_the_library(run: Run, made: Path) -> None:
    printed = json.loads(run("drift", made / "sure.csv", made / "later.csv", "--json").stdout)
    frames = [pd.read_csv(made / f"{name}.csv") for name in ("sure", "later")]
    a, b = (Logits(frame.filter(like="logit_").to_numpy(), ANIMALS) for frame in frames)
    before, after = ({"y": f["label"], "f": f.filter(like="feature_")} for f in frames)
    found = detect_drift(
        a, b, y_reference=before["y"], y_current=after["y"],
        reference_features=before["f"], current_features=after["f"],
    )  # fmt: skip
    assert printed["verdict"] == found.verdict
    assert printed["shifted"] == list(found.shifted)
    assert printed["shifts"]["accuracy"]["current"] == pytest.approx(
        found.shifts["accuracy"].current
    )


def test_labels_of_one_period_alone_are_used(run: Run, made: Path) -> None:
    done = run("drift", made / "sure.csv", made / "later_new.csv", "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert printed["thresholded_accuracy"] is not None
    assert "labels" not in printed["shifts"]


def test_a_label_that_is_named_may_be_missing_from_the_new_period(run: Run, made: Path) -> None:
    new = made / "later_new.csv"
    done = run("drift", made / "sure.csv", new, "--label", "label")
    assert done.exit_code == 0, done.output
    assert f"{new} has no column label: no labels there.\n" in done.stderr
    assert run("drift", new, made / "sure.csv", "--label", "label").exit_code == 2


def write_periods() -> None:
    """Write two periods of a fraud model, the second with and without labels."""
    frame = pd.DataFrame(
        {"p": [0.02, 0.1, 0.3, 0.9] * 25, "label": ["legit"] * 75 + ["fraud"] * 25}
    )
    frame.to_csv("old.csv", index=False)
    frame[["p"]].to_csv("unlabeled.csv", index=False)
    frame.assign(label=None).to_csv("blank.csv", index=False)
    frame[frame["label"] == "fraud"].to_csv("frauds.csv", index=False)


def test_classes_are_those_of_the_labeled_period(run: Run) -> None:
    write_periods()
    pairs: list[tuple[str, str]] = [
        ("old.csv", "unlabeled.csv"),
        ("unlabeled.csv", "old.csv"),
        ("old.csv", "blank.csv"),
        ("old.csv", "frauds.csv"),
    ]
    for names in pairs:
        done = run("drift", *names, "--positive", "fraud", "--json")
        assert done.exit_code == 0, done.output
        printed = json.loads(done.stdout)
        assert printed["classes"] == ["legit", "fraud"]
        assert printed["prior"]["method"] == ("em" if names[0] == "unlabeled.csv" else "bbse")
    done = run("drift", "unlabeled.csv", "blank.csv", "--positive", "fraud", "--json")
    assert json.loads(done.stdout)["classes"] == ["not fraud", "fraud"]


def test_a_confidence_without_labels_is_a_probability(run: Run) -> None:
    write_periods()
    done = run("drift", "old.csv", "unlabeled.csv", "--confidence", "p")
    assert done.exit_code == 2
    assert "--confidence needs --correct in a test of drift, got p alone." in done.stderr
    assert "Pass --correct NAME, or --probability p to compare without labels." in done.stderr
    assert run("drift", "old.csv", "unlabeled.csv", "--probability", "p", "--positive", "fraud")


@pytest.mark.slow
def test_periods_of_other_outputs_are_named_by_their_files(run: Run, made: Path) -> None:
    Path("new.csv").write_text("p,label\n0.2,0\n0.7,1\n")
    done = run("drift", made / "sure.csv", "new.csv")
    assert done.exit_code == 2
    assert (
        f"new.csv must hold logits of 3 classes, like {made / 'sure.csv'}, got prob" in done.stderr
    )
    assert "Pass predictions of one model, with the same columns." in done.stderr


@pytest.mark.slow
def test_drift_fails_a_check_only_where_asked_to(run: Run, made: Path) -> None:
    files = made / "sure.csv", made / "later.csv"
    assert run("drift", *files).exit_code == 0
    assert run("drift", *files, "--fail-on-drift").exit_code == 1
    same = run("drift", made / "sure.csv", made / "calm.csv", "--probability", "logit_cat")
    assert same.exit_code == 2
