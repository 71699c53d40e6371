import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito.decide import CostMatrix, Policy
from dubito.outputs import Logits
from tests.cli.conftest import ANIMALS, Run, assert_same, fraud


def decided(policy: Policy, frame: pd.DataFrame) -> pd.DataFrame:
    logits = Logits(frame.filter(like="logit_").to_numpy(), ANIMALS)
    found = policy.decide(logits, frame.filter(like="feature_").to_numpy())
    return pd.DataFrame(found.columns())


def test_decisions_of_files_are_those_of_the_policy(run: Run, made: Path) -> None:
    files = [made / "sure_new.csv", made / "later_new.csv"]
    done = run(
        "decide", made / "policy.json", *files, "--id", "id", "--review", "review.csv",
        "--bad-rows", "errors.csv",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert done.stderr == "Found by name: logits in logit_*, features in feature_*.\n"
    assert_same(done.stdout, "decide")
    got = pd.read_parquet("decisions.parquet")
    frames = [pd.read_csv(file) for file in files]
    policy = Policy.load(made / "policy.json")
    expected = pd.concat([decided(policy, frame) for frame in frames], ignore_index=True)
    assert got["file"].tolist() == [str(file) for file in files for _ in range(400)]
    assert got["id"].tolist() == [f"r{k}" for k in range(400)] * 2
    for name in expected:
        assert got[name].astype(expected[name].dtype).tolist() == expected[name].tolist()


def test_the_review_list_is_sorted_by_what_a_look_is_worth(run: Run, made: Path) -> None:
    words = ["decide", made / "policy.json", made / "later_new.csv", "--review", "review.csv"]
    printed = json.loads(run(*words, "--json", "-o", "all.csv").stdout)
    everything, review = pd.read_csv("all.csv"), pd.read_csv("review.csv")
    handed = everything[everything["action"] == "reject"]
    assert printed == {"rows": 400, "files": 1, "for_review": len(handed), "output": "all.csv"}
    assert sorted(review["id"]) == handed["id"].tolist()
    assert (np.diff(review["review_value"]) <= 0).all()
    assert list(review) == ["id", "class", "probability", "expected_cost", "reason", "review_value"]


def test_bad_rows_stop_the_run_or_are_set_aside(run: Run, made: Path) -> None:
    frame = pd.read_csv(made / "sure_new.csv").astype({"logit_dog": object})
    frame.loc[7, "logit_dog"] = "oops"
    frame.loc[9, "logit_dog"] = np.inf
    frame.to_csv("new.csv", index=False)
    words = ["decide", made / "policy.json", "new.csv"]
    stopped = run(*words)
    assert stopped.exit_code == 2
    assert "`logit_dog` of new.csv must be numbers. Got 'oops' in row 7." in stopped.stderr
    assert list(Path().iterdir()) == [Path("new.csv")]
    done = run(*words, "--bad-rows", "errors.csv")
    assert done.exit_code == 0
    assert "2 bad rows: errors.csv." in done.stdout
    errors = pd.read_csv("errors.csv")
    assert errors["row"].tolist() == [7, 9]
    assert errors["value"].tolist() == ["'oops'", "inf"]
    ids = pd.read_parquet("decisions.parquet")["id"]
    assert ids.tolist() == [k for k in range(400) if k not in (7, 9)]


def test_one_column_of_the_positive_class_takes_names_from_the_policy(run: Run, made: Path) -> None:
    costs = CostMatrix.zero_one(["ok", "fraud"]).with_reject(0.2)
    frame = fraud(400)
    outputs = frame["chance"].to_numpy()
    Policy.fit(
        np.column_stack([1 - outputs, outputs]), (frame["y"] == "fraud").astype(int), costs=costs
    ).save("fraud.json")
    done = run("decide", "fraud.json", made / "fraud.csv", "--probability", "chance", "-o", "d.csv")
    assert done.exit_code == 0, done.output
    assert set(pd.read_csv("d.csv")["class"]) == {"ok", "fraud"}


def test_costs_that_grow_need_amounts(run: Run, made: Path) -> None:
    frame = fraud(400)
    costs = CostMatrix([[0, 0], [5, 0]], ["pay", "stop"], ["ok", "fraud"], rate=[[0, 1], [0, 0]])
    chance = frame["chance"].to_numpy()
    policy = Policy.fit(
        np.column_stack([1 - chance, chance]),
        (frame["y"] == "fraud").astype(int),
        costs=costs,
        row_costs=frame["amount"].to_numpy(),
    )
    policy.save("fraud.json")
    words = [
        "decide",
        "fraud.json",
        made / "fraud.csv",
        "--probability",
        "chance",
        "-o",
        "d.parquet",
    ]
    done = run(*words)
    assert done.exit_code == 2
    assert "row_costs" in done.stderr
    assert run(*words, "--cost", "amount").exit_code == 0
    kept = pd.read_csv(made / "fraud.csv")
    chance = kept["chance"].to_numpy()
    expected = policy.decide(
        np.column_stack([1 - chance, chance]), row_costs=kept["amount"].to_numpy()
    )
    got = pd.read_parquet("d.parquet")
    assert got["action"].tolist() == expected.columns()["action"].tolist()


def test_a_policy_that_hands_nothing_over_has_no_review(run: Run, made: Path) -> None:
    costs = CostMatrix.zero_one(["ok", "fraud"])
    Policy.fit([[0.8, 0.2], [0.3, 0.7]] * 20, [0, 1] * 20, costs=costs).save("plain.json")
    words = ["--probability", "chance", "--review", "review.csv"]
    done = run("decide", "plain.json", made / "fraud.csv", *words)
    assert done.exit_code == 2
    assert "`--review` of plain.json must be left out" in done.stderr


def test_columns_that_the_policy_does_not_know_are_refused(run: Run, made: Path) -> None:
    frame = pd.read_csv(made / "sure_new.csv")
    frame.rename(columns={"logit_fox": "logit_wolf"}).to_csv("wolf.csv", index=False)
    done = run("decide", made / "policy.json", "wolf.csv")
    assert done.exit_code == 2
    assert "must have the classes ('cat', 'dog', 'fox')" in done.stderr
    frame.drop(columns=["feature_0", "feature_1"]).to_csv("bare.csv", index=False)
    done = run("decide", made / "policy.json", "bare.csv")
    assert done.exit_code == 2
    assert "features" in done.stderr


@pytest.mark.parametrize("option", ["--output", "--review", "--bad-rows"])
def test_nothing_is_written_over_what_is_read(run: Run, made: Path, option: str) -> None:
    Path("new.csv").write_bytes((made / "sure_new.csv").read_bytes())
    done = run("decide", made / "policy.json", "new.csv", option, "new.csv")
    assert done.exit_code == 2
    assert "another file than those that are read" in done.stderr
    assert Path("new.csv").read_bytes() == (made / "sure_new.csv").read_bytes()


@pytest.mark.parametrize("folder", ["decisions", "decisions.v2/"])
def test_a_folder_is_told_by_a_slash_or_by_having_no_ending(
    run: Run, made: Path, folder: str
) -> None:
    done = run("decide", made / "policy.json", made / "sure_new.csv", "-o", folder)
    assert done.exit_code == 0, done.output
    assert " ".join(done.stdout.split()).endswith(f"decided, in {folder}.")
    names = sorted(path.name for path in Path(folder).iterdir())
    assert names == ["_manifest.jsonl", "part-00000.parquet"]
