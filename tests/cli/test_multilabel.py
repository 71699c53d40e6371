"""`dubito audit --multilabel`: files of several labels per row."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dubito import MultiLabel, audit
from dubito.data import Columns, LabelMatrix, read
from dubito.errors import BadValueError
from tests.cli.conftest import Run

NAMES = ["cough", "fever", "rash"]


@pytest.fixture
def frame() -> pd.DataFrame:
    """Return columns of labels in another order than those of probabilities."""
    rng = np.random.default_rng(0)
    odds = rng.normal(-1, 1.5, (200, 3))
    y = (rng.random((200, 3)) < 1 / (1 + np.exp(-0.4 * odds))).astype(int).astype(object)
    y[rng.random((200, 3)) < 0.05] = "u"
    y[rng.random((200, 3)) < 0.05] = ""
    y[3, 0] = -1
    p = (1 / (1 + np.exp(-odds))).round(6)
    columns = {f"p_{name}": p[:, k] for k, name in enumerate(NAMES)}
    columns |= {f"y_{name}": y[:, k] for k, name in [*enumerate(NAMES)][::-1]}
    return pd.DataFrame({**columns, "site": ["north", "south"] * 100})


WORDS = ("--multilabel", "p_*", "--label", "y_*", "--uncertain", "ignore")


@pytest.mark.slow
def test_a_file_in_memory_or_streamed_has_the_figures_of_arrays(
    run: Run, frame: pd.DataFrame, tmp_path: Path
) -> None:
    path = tmp_path / "findings.csv"
    frame.to_csv(path, index=False)
    outputs = MultiLabel(frame[[f"p_{name}" for name in NAMES]].to_numpy(), NAMES)
    marks = frame[[f"y_{name}" for name in NAMES]].replace({"u": -1, "": None})
    policies: tuple[Any, ...] = ("ignore", "multi-class", "zeros", "ones", 0.3)
    for policy in policies:
        y = LabelMatrix.of(marks.to_numpy(), outputs, uncertain=policy)
        expected = audit(y, outputs).to_dict()
        done = run("audit", path, *WORDS[:-1], str(policy), "--json")
        found = json.loads(done.stdout)
        assert {name: found[name] for name in expected} == json.loads(json.dumps(expected))
    streamed = json.loads(
        run("audit", path, *WORDS[:-1], "0.3", "--json", "--max-memory", "1KB").stdout
    )
    assert streamed["streamed"]
    for name in ("n_known", "hamming_loss", "subset_accuracy", "ranking_loss"):
        assert streamed[name] == pytest.approx(found[name], abs=1e-9)
    assert streamed["means"]["macro"] == pytest.approx(found["means"]["macro"], abs=2e-3)


@pytest.mark.slow
def test_limits_of_labels(run: Run, frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "findings.csv"
    frame.to_csv(path, index=False)
    limits = ("label.*.ece>0.05", "label.rash.base_rate.low>2", "group.*.label.cough.f1<2")
    words = [word for limit in limits for word in ("--fail-on", limit)]
    done = run("audit", path, *WORDS, "--group", "site", *words)
    assert done.exit_code == 1
    crossed = [line for line in done.stderr.splitlines() if "--fail-on" in line]
    assert sum("label.*.ece" in line for line in crossed) == 3
    assert sum("group.north.label.cough.f1" in line for line in crossed) == 1
    assert len(crossed) == 5
    words = ["--fail-on", "disparity.label.*.base_rate>-1", "--bins", "4", "--json"]
    done = run("audit", path, *WORDS, "--group", "site", *words)
    assert sum("disparity.label." in line for line in done.stderr.splitlines()) == 3
    assert len(json.loads(done.stdout)["labels"]["rash"]["curve"]["count"]) == 4
    assert (
        "label.*.ece, or one of the labels cough, fever, rash"
        in run("audit", path, *WORDS, "--fail-on", "label.nose.ece>1").stderr
    )
    done = run("audit", path, *WORDS, "--fail-on", "ece>0.03")
    assert "must say of which labels, got 'ece'" in done.stderr
    assert "Use macro.ece or label.*.ece." in done.stderr
    frame.assign(y_rash=0).to_csv("constant.csv", index=False)
    done = run("audit", "constant.csv", *WORDS, "--fail-on", "label.rash.roc_auc<0.1")
    assert "rash has no roc_auc" in done.stderr
    done = run("audit", "constant.csv", *WORDS, "--fail-on", "label.*.roc_auc<0.1")
    assert "leaves out 1 label without roc_auc: rash." in done.stderr
    assert done.exit_code == 0
    for limit in ("label.rash.log_loss>0", "macro.log_loss>0", "micro.brier>0"):
        assert run("audit", path, *WORDS, "--fail-on", limit).exit_code == 1


def test_logits_and_lists_are_several_labels_too(frame: pd.DataFrame) -> None:
    p = frame[[f"p_{name}" for name in NAMES]].to_numpy()
    odds = {f"z_{name}": np.log(p[:, k] / (1 - p[:, k])) for k, name in enumerate(NAMES)}
    found = read(pd.DataFrame(odds), Columns(multilabel_logits="z_*")).outputs
    assert isinstance(found, MultiLabel)
    assert found.label_names == tuple(NAMES)
    np.testing.assert_allclose(found.array, p)
    lists = pd.DataFrame({"p": list(p), "y": list(np.where(p > 0.5, 1.0, np.nan))})
    batch = read(lists, Columns(multilabel="p", label="y", classes=NAMES))
    assert isinstance(batch.labels, LabelMatrix)
    assert np.isnan(batch.labels.values).sum() == (p <= 0.5).sum()


@pytest.mark.parametrize(
    ("change", "columns", "message"),
    [
        (
            {"y_cough": "u"},
            {},
            r"`y_\w+` must be between 0 and 1, got 'u'.*uncertain='ignore'.*blank",
        ),
        (
            {"y_rash": "maybe"},
            {"uncertain": "ones"},
            "`y_rash` must be 0.*got 'maybe' in row 0",
        ),
        (
            {},
            {"uncertain": "soft"},
            r"or a probability, got 'soft'\. Give the probability itself, e\.g\. uncertain=0\.5",
        ),
        ({"y_nose": 1}, {"uncertain": "zeros"}, "one column per label, got y_nose as well"),
        ({"y_rash": 2}, {"uncertain": "ones"}, "`y_rash`.*got 2 in row 0. Write 0, 1 or a prob"),
        ({}, {"label": "y_rash"}, r"each of 3 labels, got 'y_rash' alone. Pass label='y_\*'"),
        ({}, {"only_labels": ["nose"]}, "no column of outputs for nose, got columns p_cough"),
    ],
)
def test_bad_labels_are_named(
    frame: pd.DataFrame, change: dict[str, Any], columns: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadValueError, match=message):
        read(frame.assign(**change), Columns(**{"multilabel": "p_*", "label": "y_*", **columns}))


def test_labels_are_selected_by_name(run: Run, frame: pd.DataFrame) -> None:
    only = ["rash", "cough"]
    columns = Columns(multilabel="p_*", label="y_*", uncertain="ignore", only_labels=only)
    batch = read(frame.assign(y_nose=1), columns)
    assert isinstance(batch.outputs, MultiLabel)
    assert batch.outputs.label_names == ("rash", "cough")
    np.testing.assert_array_equal(batch.outputs.array, frame[["p_rash", "p_cough"]])
    frame.assign(y_nose=1).to_csv("more.csv", index=False)
    done = run("audit", "more.csv", *WORDS, "--json")
    assert "have no outputs are left out: nose" in " ".join(done.stderr.split())
    assert {*json.loads(done.stdout)["labels"]} == {*NAMES}
    for label in ("y_*", "y_cough,y_rash"):
        words = ("--multilabel", "p_cough,p_rash", "--label", label, "--uncertain", "ignore")
        done = run("audit", "more.csv", *words, "--json")
        assert {*json.loads(done.stdout)["labels"]} == {"cough", "rash"}
        assert not done.stderr
    done = run("audit", "more.csv", "--multilabel", "p_cough,y_rash")
    assert "columns of one prefix, got p_cough,y_rash" in done.stderr
    one = run(
        "audit", "more.csv", "--multilabel", "p_cough,p_rash", "--label", "y_rash", *WORDS[4:]
    )
    assert "each of 2 labels, got 'y_rash' alone" in one.stderr
    assert "Pass --label 'y_*'" in one.stderr


def test_one_pair_of_columns_is_one_label(frame: pd.DataFrame) -> None:
    columns = Columns(multilabel="p_*", label="y_*", uncertain="ignore")
    batch = read(frame[["p_rash", "y_rash"]], columns)
    assert isinstance(batch.outputs, MultiLabel)
    assert batch.outputs.label_names == ("rash",)


@pytest.mark.parametrize("command", ["drift", "compare"])
def test_commands_for_one_label_say_so(run: Run, frame: pd.DataFrame, command: str) -> None:
    frame.to_csv("a.csv", index=False)
    done = run(command, "a.csv", "a.csv", "--multilabel", "p_*")
    assert f"dubito {command} supports one label per row, got --multilabel p_*" in done.stderr
    assert "--probability p_NAME --label y_NAME" in done.stderr
    assert "--multilabel" not in run(command, "--help").stdout


def test_a_file_of_several_labels_is_recognized(run: Run, frame: pd.DataFrame) -> None:
    frame.to_csv("a.csv", index=False)
    done = run("audit", "a.csv")
    assert "Pass --multilabel 'p_*' --label 'y_*' for several labels per row" in done.stderr


def test_marks_of_several_labels_lead_to_multilabel(run: Run, frame: pd.DataFrame) -> None:
    p = frame.filter(like="p_")
    frame.assign(**p.div(p.sum(axis=1), axis=0)).to_csv("a.csv", index=False)
    done = run("audit", "a.csv", "--label", "y_*", "--probabilities", "p_*")
    assert "'u' is not a number" in done.stderr
    assert "Pass --multilabel 'p_*' if several labels may apply to a row" in done.stderr
    done = run("audit", "a.csv", "--label", "y_rash", "--probability", "p_rash")
    assert "Pass --multilabel p_rash --uncertain ignore" in " ".join(done.stderr.split())


def test_a_single_label_is_called_by_its_name(run: Run, frame: pd.DataFrame) -> None:
    frame.to_csv("a.csv", index=False)
    words = ("--label", "y_rash", "--uncertain", "ignore")
    done = run("audit", "a.csv", "--multilabel", "p_rash", *words, "--json")
    assert list(json.loads(done.stdout)["labels"]) == ["rash"]


def test_labels_that_are_missing_unknown_or_constant_are_stated(
    run: Run, frame: pd.DataFrame, tmp_path: Path
) -> None:
    words = ("--multilabel", "p_*", "--uncertain", "ignore")
    frame.drop(columns=["y_rash"]).to_csv("fewer.csv", index=False)
    done = run("audit", "fewer.csv", *words)
    assert "fewer.csv has no column of labels for rash, got columns y_cough, y_fever" in done.stderr
    assert "list those that have some, e.g. --multilabel p_a,p_b." in done.stderr
    frame.filter(like="p_").to_csv("none.csv", index=False)
    assert "needs one set of label columns" in run("audit", "none.csv", *words).stderr
    frame.assign(y_cough="", y_fever=0).to_csv("constant.csv", index=False)
    done = run("audit", "constant.csv", *words)
    assert "Labels without a known row, left out: cough" in done.stdout
    assert done.exit_code == 0
    done = run("audit", "constant.csv", *words, "--json")
    assert "NaN" not in done.stdout
    found = json.loads(done.stdout)
    assert found["n_known"]["cough"] == 0
    assert found["labels"]["fever"]["roc_auc"] is None
    done = run("calibrate", "constant.csv", *words, "-o", "map.json")
    assert "only the common map for cough, unknown in every row" in " ".join(done.stdout.split())
    frame.assign(y_cough="", y_fever="", y_rash="").to_csv("unknown.csv", index=False)
    for command in (("audit", "unknown.csv"), ("calibrate", "unknown.csv", "-o", "map.json")):
        done = run(*command, *words)
        assert "needs at least 1 labeled row" in done.stderr
        assert done.exit_code == 2


def test_sigmoids_are_not_taken_for_classes(run: Run, frame: pd.DataFrame, tmp_path: Path) -> None:
    path = tmp_path / "findings.csv"
    frame.to_csv(path, index=False)
    done = run("audit", path, "--probabilities", "p_*", "--label", "y_rash")
    assert "--multilabel if several labels may apply to a row" in done.stderr
    p = frame.filter(like="p_")
    swapped = p.rename(columns=lambda name: f"y{name[1:]}").join((p > 0.5).astype(int))
    swapped.to_csv("swapped.csv", index=False)
    done = run("audit", "swapped.csv", "--multilabel", "p_*")
    assert "Exchange --label and --multilabel" in done.stderr
    done = run("calibrate", "swapped.csv", "--multilabel", "p_*", "-o", "map.json")
    assert "Exchange --label and --multilabel" in done.stderr
    same = p.join(p.rename(columns=lambda name: f"y{name[1:]}"))
    same.to_csv("same.csv", index=False)
    done = run("audit", "same.csv", "--multilabel", "p_*")
    assert "the same numbers in every row" in done.stderr
    assert "Check --label and --multilabel" in done.stderr
    (6 * frame.filter(like="p_") - 3).join(frame.filter(like="y_")).to_csv("z.csv", index=False)
    done = run("audit", "z.csv", "--multilabel", "p_*", "--uncertain", "ignore")
    assert "Pass --multilabel-logits instead of --multilabel" in done.stderr
    done = run("audit", path, "--multilabel", "p_*", "--positive", "rash")
    assert "without --costs, --cost and --positive" in done.stderr
