import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dubito.decide import CostMatrix, Policy, write_decisions
from dubito.outputs import Logits
from tests.cli.conftest import ANIMALS, Run, assert_same, fraud


def decided(policy: Policy, frame: pd.DataFrame) -> pd.DataFrame:
    logits = Logits(frame.filter(like="logit_").to_numpy(), ANIMALS)
    found = policy.decide(logits, frame.filter(like="feature_").to_numpy())
    return pd.DataFrame(found.columns())


def test_decisions_equal_the_api(run: Run, made: Path) -> None:
    files = [made / "sure_new.csv", made / "later_new.csv"]
    done = run(
        "decide", made / "policy.json", *files, "--id", "id", "--review", "review.csv",
        "--bad-rows", "errors.csv",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    assert done.stderr == "Detected columns: logits = logit_*, features = feature_*.\n"
    assert_same(done.stdout, "decide")
    got = pd.read_parquet("decisions.parquet")
    frames = [pd.read_csv(file) for file in files]
    policy = Policy.load(made / "policy.json")
    expected = pd.concat([decided(policy, frame) for frame in frames], ignore_index=True)
    assert got["file"].tolist() == [str(file) for file in files for _ in range(400)]
    assert got["id"].tolist() == [f"r{k}" for k in range(400)] * 2
    for name in expected:
        assert got[name].astype(expected[name].dtype).tolist() == expected[name].tolist()


def test_probabilities_are_written_on_request(run: Run, made: Path) -> None:
    words = ["decide", made / "policy.json", made / "sure_new.csv", "--with-probabilities"]
    assert run(*words, "-o", "all.parquet").exit_code == 0
    got = pd.read_parquet("all.parquet").filter(like="probability_")
    logits = pd.read_csv(made / "sure_new.csv").filter(like="logit_").to_numpy()
    expected = Policy.load(made / "policy.json").predict_proba(Logits(logits, ANIMALS))
    assert list(got) == [f"probability_{name}" for name in ANIMALS]
    np.testing.assert_array_equal(got.to_numpy(), expected)
    assert run(*words, "-o", "parts/").exit_code == 0
    other = run(*words[:-1], "-o", "parts/")
    assert other.exit_code == 2
    assert "with probabilities" in other.stderr


@pytest.mark.parametrize(("more", "first"), [([], "0"), (["--id", "id"], '"r0"')])
def test_a_review_list_may_be_tsv_and_quotes_text_only(
    run: Run, made: Path, more: list[str], first: str
) -> None:
    words = ["decide", made / "policy.json", made / "later_new.csv", "--review", "review.tsv"]
    assert run(*words, *more, "-o", "all.csv").exit_code == 0
    decided = dict(line.split(",", 1) for line in Path("all.csv").read_text().splitlines())
    assert first in decided
    lines = [line.split("\t") for line in Path("review.tsv").read_text().splitlines()[1:]]
    for id_, class_, probability, cost, reason, value in lines:
        assert decided[id_] == f'"reject",{class_},{probability},{cost},{reason},{value}'


def test_the_review_list_is_sorted_by_review_value(run: Run, made: Path) -> None:
    words = ["decide", made / "policy.json", made / "later_new.csv", "--review", "review.csv"]
    printed = json.loads(run(*words, "--json", "-o", "all.csv").stdout)
    everything, review = pd.read_csv("all.csv"), pd.read_csv("review.csv")
    rejected = everything[everything["action"] == "reject"]
    assert printed == {"rows": 400, "files": 1, "for_review": len(rejected), "output": "all.csv"}
    assert sorted(review["id"]) == rejected["id"].tolist()
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
    assert "new.csv" in stopped.stderr
    assert "logit_dog" in stopped.stderr
    assert "'oops'" in stopped.stderr
    assert "row 7" in stopped.stderr
    fix = "Fix the cell, or pass --bad-rows bad.csv to set such rows aside."
    assert stopped.stderr.endswith(f"\n{fix}\n")
    assert list(Path().iterdir()) == [Path("new.csv")]
    done = run(*words, "--bad-rows", "errors.csv")
    assert done.exit_code == 0
    assert "2 invalid rows were set aside in errors.csv." in done.stdout
    errors = pd.read_csv("errors.csv")
    assert errors["row"].tolist() == [7, 9]
    assert errors["value"].tolist() == ["'oops'", "inf"]
    ids = pd.read_parquet("decisions.parquet")["id"]
    assert ids.tolist() == [k for k in range(400) if k not in (7, 9)]


@pytest.mark.slow
def test_a_single_column_takes_class_names_from_the_policy(run: Run, made: Path) -> None:
    costs = CostMatrix.zero_one(["ok", "fraud"]).with_reject(0.2)
    frame = fraud(400)
    outputs = frame["chance"].to_numpy()
    Policy.fit(
        np.column_stack([1 - outputs, outputs]), (frame["y"] == "fraud").astype(int), costs=costs
    ).save("fraud.json")
    done = run("decide", "fraud.json", made / "fraud.csv", "--probability", "chance", "-o", "d.csv")
    assert done.exit_code == 0, done.output
    assert set(pd.read_csv("d.csv")["class"]) == {"ok", "fraud"}


@pytest.mark.slow
def test_costs_with_a_rate_need_a_cost_column(run: Run, made: Path) -> None:
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


@pytest.mark.slow
def test_a_policy_without_reject_action_has_no_review(run: Run, made: Path) -> None:
    costs = CostMatrix.zero_one(["ok", "fraud"])
    Policy.fit([[0.8, 0.2], [0.3, 0.7]] * 20, [0, 1] * 20, costs=costs).save("plain.json")
    words = ["--probability", "chance", "--review", "review.csv"]
    done = run("decide", "plain.json", made / "fraud.csv", *words)
    assert done.exit_code == 2
    assert "`--review` needs a policy with a reject action, got plain.json" in done.stderr


def test_columns_unknown_to_the_policy_are_refused(run: Run, made: Path) -> None:
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
def test_inputs_are_never_overwritten(run: Run, made: Path, option: str) -> None:
    Path("new.csv").write_bytes((made / "sure_new.csv").read_bytes())
    done = run("decide", made / "policy.json", "new.csv", option, "new.csv")
    assert done.exit_code == 2
    assert "must not be an input or another output" in done.stderr
    assert Path("new.csv").read_bytes() == (made / "sure_new.csv").read_bytes()


@pytest.mark.parametrize("folder", ["decisions", "decisions.v2/"])
def test_a_directory_has_a_slash_or_no_ending(run: Run, made: Path, folder: str) -> None:
    done = run("decide", made / "policy.json", made / "sure_new.csv", "-o", folder)
    assert done.exit_code == 0, done.output
    assert " ".join(done.stdout.split()).endswith(f"the decisions are in {folder}.")
    names = sorted(path.name for path in Path(folder).iterdir())
    assert names == ["_manifest.jsonl", "part-00000.parquet"]


def files_of(made: Path) -> list[Path]:
    """Return three files, each with a bad row."""
    files: list[Path] = []
    for name in ("sure", "calm", "later"):
        frame = pd.read_csv(made / f"{name}_new.csv").astype({"logit_cat": object})
        frame.loc[len(files), "logit_cat"] = f"bad, {name}"
        frame.to_csv(f"{name}.csv", index=False)
        files.append(Path(f"{name}.csv"))
    return files


@pytest.mark.slow
def test_a_directory_has_one_part_per_file_and_an_interrupted_run_resumes(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = files_of(made)
    words = ["decide", made / "policy.json", *files, "--bad-rows", "errors.csv", "--json"]
    whole = run(*words, "-o", "whole", "--review", "whole.csv")
    assert json.loads(whole.stdout)["rows"] == 3 * 399
    errors = Path("errors.csv").read_text()
    assert all(f"bad, {name}" in errors for name in ("sure", "calm", "later"))

    seen: list[str] = []

    def interrupted(*arguments: Any, source: str, **settings: Any) -> int:
        seen.append(source)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return write_decisions(*arguments, source=source, **settings)

    monkeypatch.setattr("dubito.decide.write_decisions", interrupted)
    Path("errors.csv").unlink()
    assert run(*words, "-o", "parts").exit_code != 0
    assert sorted(path.name for path in Path("parts").iterdir()) == [
        "_manifest.jsonl",
        "part-00000.parquet",
    ]
    resumed = run(*words, "-o", "parts", "--review", "parts.csv")
    assert json.loads(resumed.stdout) == {
        **json.loads(whole.stdout),
        "output": "parts",
    }
    assert seen == ["sure.csv", "calm.csv", "calm.csv", "later.csv"]
    assert Path("errors.csv").read_text() == errors
    assert Path("parts.csv").read_text() == Path("whole.csv").read_text()
    for part in Path("whole").glob("*.parquet"):
        assert pd.read_parquet(part).equals(pd.read_parquet(Path("parts") / part.name))


def test_an_interrupted_file_leaves_nothing(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr("dubito.decide.write_decisions", interrupted)
    assert run("decide", made / "policy.json", made / "sure_new.csv").exit_code != 0
    assert list(Path().iterdir()) == []


def test_other_settings_need_another_directory(run: Run, made: Path) -> None:
    shutil.copy(made / "sure_new.csv", "new.csv")
    words = ["decide", made / "policy.json", "new.csv", "-o", "parts"]
    assert run(*words).exit_code == 0
    done = run(*words, "--id", "id")
    assert done.exit_code == 2
    assert "columns {'id': 'id'} (was {})" in done.stderr
    assert done.stderr.count("\n") == 3  # what was found by name, the problem, the remedy
