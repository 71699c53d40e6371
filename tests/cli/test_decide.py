import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet as pq

from dubito.calibrate import TemperatureScaling
from dubito.data import Batch, Sink
from dubito.data.sources import open_source
from dubito.decide import CostMatrix, Policy
from dubito.decide.policy.table import decision_columns
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
    inputs = pd.concat(frames, ignore_index=True)
    assert set(inputs) <= set(got)
    for name in inputs:
        assert got[name].tolist() == inputs[name].tolist()
    top = got.filter(like="probability_").max(axis=1)
    assert expected.pop("probability").tolist() == top.tolist()
    for name in expected:
        assert got[name].astype(expected[name].dtype).tolist() == expected[name].tolist()


def test_probabilities_of_all_classes_are_written(run: Run, made: Path) -> None:
    words = ["decide", made / "policy.json", made / "sure_new.csv"]
    assert run(*words, "-o", "all.parquet").exit_code == 0
    got = pd.read_parquet("all.parquet").filter(like="probability_")
    logits = pd.read_csv(made / "sure_new.csv").filter(like="logit_").to_numpy()
    expected = Policy.load(made / "policy.json").predict_proba(Logits(logits, ANIMALS))
    assert list(got) == [f"probability_{name}" for name in ANIMALS]
    np.testing.assert_array_equal(got.to_numpy(), expected)
    assert run(*words, "-o", "parts/").exit_code == 0
    other = run(*words, "--no-probabilities", "-o", "parts/")
    assert other.exit_code == 2
    assert "probabilities False (was None)" in other.stderr
    assert run(*words, "--no-probabilities", "-o", "few.parquet").exit_code == 0
    few = pd.read_parquet("few.parquet")
    assert few.filter(like="probability").columns.tolist() == ["probability"]
    np.testing.assert_array_equal(few["probability"], expected.max(axis=1))


def many_classes(n_classes: int) -> Policy:
    """Return a policy for many classes, which rejects rows."""
    rng = np.random.default_rng(0)
    logits = 3 * rng.normal(size=(200, n_classes))
    policy = Policy.fit(
        Logits(logits),
        (logits + rng.gumbel(size=logits.shape)).argmax(axis=1),
        costs=CostMatrix.zero_one(range(n_classes)).with_reject(0.4),
        calibrator=TemperatureScaling(),
    )
    policy.save("many.json")
    frame = pd.DataFrame(logits, columns=[f"logit_{k}" for k in range(n_classes)])
    frame.assign(site="a", embedding=list(logits[:, :2])).to_parquet("many.parquet")
    return policy


@pytest.mark.slow
def test_many_classes_are_neither_kept_nor_written_unless_asked_for(run: Run) -> None:
    policy = many_classes(21)
    words = ["decide", "many.json", "many.parquet", "--review", "review.csv"]
    done = run(*words)
    assert done.exit_code == 0, done.output
    note = "Left out of decisions.parquet: logit_0, logit_1, ..., embedding. Pass --columns"
    assert note in " ".join(done.stderr.split())
    got = pd.read_parquet("decisions.parquet")
    assert list(got)[:5] == ["id", "site", "action", "class", "probability"]
    review = pd.read_csv("review.csv")
    found = policy.decide(Logits(np.array(pd.read_parquet("many.parquet").filter(like="logit_"))))
    assert review["id"].tolist() == found.review_order.tolist()
    for row, texts in zip(review["id"], review["top_classes"], strict=True):
        p = found.probabilities[row]
        top = np.argsort(-p, kind="stable")[:3]
        pairs = [one.rsplit(" ", 2) for one in texts.split(", ")]
        assert [int(name) for name, *_ in pairs] == top.tolist()
        assert [float(x) for _, x, _ in pairs] == pytest.approx(100 * p[top], abs=0.0501)
    assert run(*words[:3], "--columns", "logit_3,embedding", "--all-probabilities").exit_code == 0
    got = pd.read_parquet("decisions.parquet")
    assert list(got)[:4] == ["id", "logit_3", "embedding", "action"]
    assert len(got.filter(like="probability_").columns) == 21
    done = run(*words[:3], "--columns", "embedding", "-o", "d.csv")
    assert done.exit_code == 2
    assert "embedding" in done.stderr


def test_a_review_list_has_what_a_reviewer_needs(run: Run, made: Path) -> None:
    words = ["decide", made / "policy.json", made / "later_new.csv", "--review", "review.tsv"]
    printed = json.loads(run(*words, "--json", "-o", "all.csv").stdout)
    everything, review = pd.read_csv("all.csv"), pd.read_csv("review.tsv", sep="\t")
    rejected = everything[everything["action"] == "reject"]
    assert printed == {
        "rows": 400,
        "actions": everything["action"].value_counts()[[*ANIMALS, "reject"]].to_dict(),
        "files": 1,
        "for_review": len(rejected),
        "output": "all.csv",
    }
    inputs = pd.read_csv(made / "later_new.csv")
    ours = ["reason", "class", *(f"probability_{name}" for name in ANIMALS)]
    ours += ["fallback_action", "fallback_cost", "review_value"]
    assert list(review) == ["id", *inputs.drop(columns="id"), *ours, "label", "comment"]
    assert (np.diff(review["review_value"]) <= 0).all()
    assert review[["label", "comment"]].isna().all(axis=None)
    rows = inputs.set_index("id").loc[review["id"]]
    pd.testing.assert_frame_equal(review.set_index("id")[list(rows)], rows)
    policy = Policy.load(made / "policy.json")
    p = policy.predict_proba(Logits(rows.filter(like="logit_").to_numpy(), ANIMALS))
    assert review["fallback_action"].tolist() == np.array(ANIMALS)[p.argmax(axis=1)].tolist()
    np.testing.assert_allclose(review["fallback_cost"], 1 - p.max(axis=1), rtol=1e-8)
    assert set(review["reason"]) == {
        "rejecting costs less than any other action",
        "the input is out-of-distribution",
    }


def test_names_of_results_are_never_taken_by_inputs(run: Run, made: Path) -> None:
    frame = pd.read_csv(made / "sure_new.csv").assign(action="old", label="?", input_action=1)
    frame.to_csv("new.csv", index=False)
    words = ["decide", made / "policy.json", "new.csv", "--review", "review.csv"]
    done = run(*words, "-o", "decisions.csv")
    assert "Input columns named like results become input_NAME: action." in done.stderr
    got, review = pd.read_csv("decisions.csv"), pd.read_csv("review.csv")
    assert set(got["input_input_action"]) == {"old"}
    assert set(got["input_action"]) == {1}
    assert set(got["action"]) == {*ANIMALS, "reject"}
    assert set(review["input_label"]) == {"?"}
    assert review["label"].isna().all()


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--columns", ""], ["id"]),
        (["--columns", "amount, id"], ["id", "amount"]),
        (["--id", "amount", "--columns", "site"], ["id", "site"]),
    ],
)
def test_columns_to_keep_can_be_chosen(
    run: Run, made: Path, words: list[str], names: list[str]
) -> None:
    frame = pd.read_csv(made / "sure_new.csv").assign(amount=range(400), site="a")
    frame.to_csv("new.csv", index=False)
    assert run("decide", made / "policy.json", "new.csv", *words).exit_code == 0
    got = pd.read_parquet("decisions.parquet")
    assert list(got)[: list(got).index("action")] == names
    expected = frame["amount"] if "--id" in words else frame["id"]
    assert got["id"].tolist() == expected.tolist()


def test_a_column_to_keep_must_exist(run: Run, made: Path) -> None:
    done = run("decide", made / "policy.json", made / "sure_new.csv", "--columns", "ids")
    assert done.exit_code == 2
    assert "has no column 'ids' (--columns).\nPass --columns id, or another" in done.stderr
    done = run("decide", made / "policy.json", made / "sure_new.csv", "--id", "logit")
    assert "has no column 'logit' (--id)" in done.stderr


TABLE = {
    "whole": pa.array([1, None, 3] * 100),
    "real": pa.array([0.1, None, 1e300] * 100),
    "short": pa.array([1, 2, 3] * 100, pa.int16()),
    "is_new": pa.array([True, None, False] * 100),
    "name": pa.array(["=x", None, "b, c"] * 100),
    "long": pa.array(["x", "", None] * 100, pa.large_string()),
    "kind": pa.array(["red", None, "blue"] * 100).dictionary_encode(),
    "when": pa.array([0, None, 1] * 100, pa.timestamp("ms", "UTC")),
    "day": pa.array([0, None, 1] * 100, pa.date32()),
    "price": pa.array([None, "1.50", "2.25"] * 100).cast(pa.decimal128(9, 2)),
    "nothing": pa.nulls(300),
}


@pytest.mark.parametrize("ending", ["parquet", "arrow"])
@pytest.mark.parametrize("output", ["decisions.parquet", "decisions.arrow", "parts/"])
def test_kept_columns_have_their_types(run: Run, made: Path, ending: str, output: str) -> None:
    inputs = pa.table({**logit_columns(made), **TABLE})
    with Sink(f"new.{ending}") as sink:
        sink.write(dict(zip(inputs.column_names, inputs, strict=True)))
    words = ["--columns", ",".join(TABLE)]
    done = run("decide", made / "policy.json", f"new.{ending}", *words, "-o", output)
    assert done.exit_code == 0, done.output
    got = open_source(output)
    for name, expected in TABLE.items():
        kind = pa.string() if name == "kind" else expected.type
        assert got.schema.field(name).type == kind
        parts = [part.column(name) for part in got.batches([name], [], 100)]
        assert pa.chunked_array(parts).to_pylist() == expected.to_pylist()


def logit_columns(made: Path) -> dict[str, Any]:
    """Return the columns that the policy needs, of 300 rows."""
    frame = pd.read_csv(made / "sure_new.csv").iloc[:300].drop(columns="id")
    return {str(name): pa.array(frame[name]) for name in frame}


def test_text_files_keep_cells_verbatim_and_give_numbers_to_parquet(run: Run, made: Path) -> None:
    frame = pd.read_csv(made / "sure_new.csv", dtype=str).iloc[:300]
    cells = {
        "amount": ["1.50", "", "-2e3"],
        "count": ["7", "NA", "12"],
        "zip": ["01234", "99999", "0"],
        "card": ["1234567890123456", "1", "2"],
        "text": ["=x", 'say "no", please', "NA"],
        "blank": ["", "", ""],
    }
    for name, values in cells.items():
        frame[name] = values * 100
    frame.to_csv("new.csv", index=False)
    words = ["decide", made / "policy.json", "new.csv", "--columns", ",".join(cells)]
    assert run(*words, "-o", "d.csv").exit_code == 0
    got = pd.read_csv("d.csv", dtype=str, keep_default_na=False)
    expected = {**cells, "text": ["'=x", *cells["text"][1:]]}
    for name, values in expected.items():
        assert got[name].tolist() == values * 100
    assert run(*words, "-o", "d.parquet").exit_code == 0
    typed = pq.read_table("d.parquet")
    numbers: dict[str, list[Any]] = {"amount": [1.5, None, -2000.0], "count": [7, None, 12]}
    for name, some in {**cells, **numbers}.items():
        assert typed[name].to_pylist() == some * 100
    assert typed.schema.field("amount").type == pa.float64()
    assert typed.schema.field("count").type == pa.int64()
    assert run(*words, "-o", "bad.parquet", "--bad-rows", "bad.csv").exit_code == 0
    assert pq.read_table("bad.parquet").equals(typed)


def test_a_directory_that_continues_keeps_its_types(run: Run, made: Path) -> None:
    frame = pd.read_csv(made / "sure_new.csv")
    Path("new").mkdir()
    frame.assign(amount=range(400), note="7").to_csv("new/a.csv", index=False)
    words = ["decide", made / "policy.json", "new", "-o", "parts"]
    assert run(*words).exit_code == 0
    frame.assign(amount=range(400), note="eight").to_csv("new/b.csv", index=False)
    done = run(*words)
    assert done.exit_code == 2
    assert "column `note`, row 0: 'eight' is not a number" in done.stderr
    frame.assign(amount=5, note=8).to_csv("new/b.csv", index=False)
    assert run(*words).exit_code == 0
    assert run(*words[:-1], "whole.parquet").exit_code == 0
    got = pd.read_parquet("parts").drop(columns="file")
    pd.testing.assert_frame_equal(got, pd.read_parquet("whole.parquet"))
    assert got["amount"].tolist() == [*range(400), *[5] * 400]


def test_arrays_are_kept_if_they_have_a_value_per_row(run: Run, made: Path) -> None:
    frame = pd.read_csv(made / "sure_new.csv")
    days = np.datetime64("2026-01-01", "s") + np.arange(400)
    arrays: dict[str, Any] = {
        "logits": frame.filter(like="logit_"),
        "features": frame.filter(like="feature_"),
    }
    arrays |= {"names": np.array(ANIMALS), "version": np.array(1), "day": days}
    np.savez("new.npz", **arrays, site=frame["id"].to_numpy(str))
    words = ["decide", made / "policy.json", "new.npz", "--logits", "logits"]
    done = run(*words, "--features", "features", "--classes", ",".join(ANIMALS))
    assert done.exit_code == 0, done.output
    got = pd.read_parquet("decisions.parquet")
    assert list(got)[:4] == ["id", "day", "site", "action"]
    assert got["site"].tolist() == frame["id"].tolist()
    assert got["day"].tolist() == pd.Series(days).tolist()


def test_files_need_not_agree_in_columns_that_the_policy_does_not_need(
    run: Run, made: Path
) -> None:
    inputs = pa.table(logit_columns(made))
    some = {"a": pa.array([1] * 300), "b": pa.array([1.5] * 300), "c": pa.array(["x"] * 300)}
    others = {"c": pa.array([2] * 300), "a": pa.array([0.5] * 300)}
    Path("new").mkdir()
    for name, more in {"one": some, "two": others}.items():
        table = pa.table({**dict(zip(inputs.column_names, inputs, strict=True)), **more})
        pq.write_table(table, f"new/{name}.parquet")
    assert run("decide", made / "policy.json", "new", "-o", "d.parquet").exit_code == 0
    files = ["new/one.parquet", "new/two.parquet"]
    assert run("decide", made / "policy.json", *files, "-o", "e.parquet").exit_code == 0
    assert run("decide", made / "policy.json", "new", "-o", "parts/").exit_code == 0
    for name in ("d.parquet", "e.parquet", "parts"):
        got = pd.read_parquet(name)
        assert "b" not in got
        assert got["a"].tolist() == [1.0] * 300 + [0.5] * 300
        assert got["c"].tolist() == ["x"] * 300 + ["2"] * 300


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
    fix = "Fix the cell, or pass --bad-rows bad.csv to set invalid rows aside."
    assert stopped.stderr.endswith(f"\n{fix}\n")
    assert list(Path().iterdir()) == [Path("new.csv")]
    done = run(*words, "--bad-rows", "errors.csv")
    assert done.exit_code == 0
    assert "2 invalid rows were set aside in errors.csv." in done.stdout
    errors = pd.read_csv("errors.csv")
    assert errors["row"].tolist() == [7, 9]
    assert errors["value"].tolist() == ["'oops'", "inf"]
    ids = pd.read_parquet("decisions.parquet")["id"]
    assert ids.tolist() == [f"r{k}" for k in range(400) if k not in (7, 9)]
    frame.drop(columns="id").to_csv("new.csv", index=False)
    assert run(*words, "--bad-rows", "errors.csv").exit_code == 0
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
def test_the_columns_of_costs_are_found_and_needed(run: Run, made: Path) -> None:
    frame = fraud(400)
    costs = CostMatrix([[0, "amount"], [5, 0]], ["pay", "stop"], ["ok", "fraud"])
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
    assert run(*words).exit_code == 0
    kept = pd.read_csv(made / "fraud.csv")
    kept.drop(columns="amount").to_csv("without.csv")
    done = run("decide", "fraud.json", "without.csv", "--probability", "chance", "-o", "e.csv")
    assert done.exit_code == 2
    assert "without.csv has no column 'amount' (used by the costs)" in done.stderr
    assert "Add the column 'amount'" in done.stderr
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
    assert "--review needs a policy with a reject action, got plain.json" in done.stderr


def test_columns_that_do_not_match_the_policy_exit_with_2(run: Run, made: Path) -> None:
    frame = pd.read_csv(made / "sure_new.csv")
    frame.rename(columns={"logit_fox": "logit_wolf"}).to_csv("wolf.csv", index=False)
    done = run("decide", made / "policy.json", "wolf.csv")
    assert done.exit_code == 2
    assert "must have the classes ('cat', 'dog', 'fox')" in done.stderr
    frame.drop(columns="logit_fox").to_csv("two.csv", index=False)
    done = run("decide", made / "policy.json", "two.csv", "--logits", "logit_*")
    assert done.exit_code == 2
    assert "two.csv has logits of 2 classes (logit_cat, logit_dog); " in done.stderr
    assert "policy.json needs logits of 3 classes (cat, dog, fox)." in done.stderr
    frame.drop(columns=["feature_0", "feature_1"]).to_csv("bare.csv", index=False)
    done = run("decide", made / "policy.json", "bare.csv")
    assert done.exit_code == 2
    assert "features" in done.stderr


def test_a_policy_of_logits_that_is_given_probabilities_is_warned_about(
    run: Run, made: Path
) -> None:
    frame = pd.read_csv(made / "sure_new.csv")
    odds = np.exp(frame.filter(like="logit_").to_numpy())
    p = odds / odds.sum(axis=1, keepdims=True)
    frame[[f"p_{name}" for name in ANIMALS]] = p
    frame.to_csv("new.csv", index=False)
    done = run("decide", made / "policy.json", "new.csv", "--probabilities", "p_*")
    assert done.exit_code == 0, done.output
    note = " ".join(done.stderr.split())
    assert "policy.json was fitted on logits, and new.csv is read as probabilities" in note
    assert "(--probabilities p_*)" in note
    done = run("decide", made / "policy.json", "new.csv", "--logits", "logit_*", "-o", "b.csv")
    assert "was fitted on" not in done.stderr


def test_a_policy_comes_before_its_rows(run: Run, made: Path) -> None:
    done = run("decide", made / "sure_new.csv", made / "policy.json")
    assert done.exit_code == 2
    assert "sure_new.csv cannot be read: it is not valid JSON (line 1, column 1)" in done.stderr
    order = f"dubito decide {made / 'policy.json'} {made / 'sure_new.csv'}."
    assert order in " ".join(done.stderr.split())
    done = run("decide", made / "sure_new.csv", "new.csv")
    assert "The policy comes first: dubito decide policy.json new.csv." in done.stderr


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
    assert done.stdout.endswith(f"The decisions are in {folder}.\n")
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

    def interrupted(policy: Policy, batch: Batch, source: str, more: Any) -> dict[str, Any]:
        seen.append(source)
        if len(seen) == 2:
            raise KeyboardInterrupt
        return decision_columns(policy, batch, source, more)

    monkeypatch.setattr("dubito.decide.policy.table.decision_columns", interrupted)
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
    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("dubito.decide.policy.table.decision_columns", interrupted)
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
