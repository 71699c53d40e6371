"""`dubito fit --multilabel`, and what decides and shows such policies."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito import MultiLabel, MultiLabelPolicy
from dubito.decide import load_policy
from tests.cli.conftest import Run, assert_same

NAMES = ["cough", "fever", "tumor"]
FIT = ("--multilabel", "p_*", "--uncertain", "ignore", "--calibrator", "platt")
COSTS = ("--false-negative", "2", "--review-label", "0.45", "--review-row", "1")


def simulated(n_rows: int, seed: int) -> pd.DataFrame:
    rng = np.random.default_rng(seed)
    odds = rng.normal([-1, -0.5, -2], 1.5, (n_rows, 3))
    y = (rng.random(odds.shape) < 1 / (1 + np.exp(-odds))).astype(int).astype(object)
    y[rng.random(odds.shape) < 0.05] = "u"
    y[rng.random(odds.shape) < 0.05] = ""
    p = (1 / (1 + np.exp(-2 * odds))).round(6)
    columns = {f"p_{name}": p[:, k] for k, name in enumerate(NAMES)}
    labels = {f"y_{name}": y[:, k] for k, name in enumerate(NAMES)}
    return pd.DataFrame({"id": [f"r{k}" for k in range(n_rows)], **columns, **labels})


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("labels")
    simulated(300, 0).to_csv(folder / "valid.csv", index=False)
    new = simulated(60, 1)
    new.drop(columns=[f"y_{name}" for name in NAMES]).to_csv(folder / "new.csv", index=False)
    return folder


@pytest.fixture
def policy(run: Run, files: Path) -> Path:
    done = run("fit", files / "valid.csv", *FIT, *COSTS)
    assert done.exit_code == 0, done.output
    assert done.stderr == "Detected columns: label = y_*.\n"
    assert_same(done.stdout, "fit_labels")
    return Path("policy.json").resolve()


def test_decisions_equal_the_api(run: Run, files: Path, policy: Path) -> None:
    done = run("decide", policy, files / "new.csv", "-o", "all.parquet", "--review", "review.csv")
    assert done.exit_code == 0, done.output
    assert done.stderr == "Detected columns: multilabel = p_*.\n"
    assert_same(done.stdout.replace(str(files), ""), "decide_labels")
    loaded, new = MultiLabelPolicy.load(policy), pd.read_csv(files / "new.csv")
    found = loaded.decide(MultiLabel(new.filter(like="p_").to_numpy(), NAMES))
    expected = pd.DataFrame(found.columns())
    got = pd.read_parquet("all.parquet")
    assert list(got) == [*new, *expected]
    for name in expected:
        assert got[name].astype(expected[name].dtype).tolist() == expected[name].tolist()
    review = pd.read_csv("review.csv")
    assert review["id"].tolist() == new["id"].iloc[found.review_order].tolist()
    assert review["label_tumor"].isna().all()
    for row, names in zip(found.review_order, review["to_review"], strict=True):
        asked = [name for k, name in enumerate(NAMES) if found.action[row, k] == 2]
        assert names == ", ".join(asked)
    run("decide", policy, files / "new.csv", "-o", "few.csv", "--no-probabilities")
    assert not list(pd.read_csv("few.csv").filter(like="probability_"))


def test_a_policy_is_shown_and_explained(run: Run, files: Path, policy: Path) -> None:
    shown = run("policy", "show", policy)
    assert "Costs: false positive 1, false negative 2, review of a label 0.45, " in shown.stdout
    values = json.loads(run("policy", "show", policy, "--json").stdout)
    assert values["report"]["cost"][0] == MultiLabelPolicy.load(policy).report.cost.value
    lines = run("policy", "explain", policy, files / "new.csv", "--row", "2").stdout
    found = load_policy(policy).decide(
        MultiLabel(pd.read_csv(files / "new.csv").filter(like="p_").to_numpy(), NAMES)
    )
    assert f"fever: {found.actions[found.action[2, 1]]}. The model predicts" in lines
    assert (
        "must be between 0 and 59"
        in run("policy", "explain", policy, files / "new.csv", "--row", "60").stderr
    )
    text = policy.read_text().replace('"review_row": 1.0', '"review_row": 0.8')
    Path("edited.json").write_text(text)
    assert "dubito policy seal edited.json" in run("policy", "show", "edited.json").stderr
    assert run("policy", "seal", "edited.json").exit_code == 0
    assert "Edited by hand" in run("policy", "show", "edited.json").stdout


@pytest.mark.slow
def test_a_report_starts_with_the_decision(run: Run, files: Path) -> None:
    done = run("fit", files / "valid.csv", *FIT, *COSTS, "--report", "report.html", "--json")
    assert done.exit_code == 0, done.output
    page = Path("report.html").read_text()
    titles = ["What is decided?", "Which labels are calibrated?", "Reliability of each label"]
    places = [page.index(f">{title}</h2>") for title in titles]
    assert places == sorted(places)
    cost = json.loads(done.stdout)["report"]["cost"][0]
    assert f"Decisions cost {cost:.4f} per row." in page


def test_costs_of_labels_come_from_a_file(run: Run, files: Path) -> None:
    Path("costs.csv").write_text("label,false_negative,review\ntumor,30,\n*,5,0.3\n")
    done = run("fit", files / "valid.csv", *FIT, "--costs", "costs.csv", "--json")
    assert done.exit_code == 0, done.output
    costs = load_policy("policy.json").costs
    assert costs.false_negative == (5.0, 5.0, 30.0)  # type: ignore[union-attr]
    assert costs.review == (0.3, 0.3, None)  # type: ignore[union-attr]
    Path("costs.csv").write_text("label;false_negative\ntumor;30,5\n*;5\n")
    run("fit", files / "valid.csv", *FIT, "--costs", "costs.csv")
    assert load_policy("policy.json").costs.false_negative[2] == 30.5  # type: ignore[union-attr]


def test_the_score_is_an_aim(run: Run, files: Path) -> None:
    done = run("fit", files / "valid.csv", *FIT, "--f-beta", "2", "--average", "micro")
    assert done.exit_code == 0, done.output
    assert "Thresholds of highest expected micro F2" in done.stdout
    done = run("decide", "policy.json", files / "new.csv", "--review", "review.csv")
    assert "needs a policy with reviews" in done.stderr


@pytest.mark.parametrize(
    ("words", "messages"),
    [
        (("--reject-cost", "0.3"), ("--reject-cost cannot be used with --multilabel",)),
        (("--rows-per-day", "9"), ("--rows-per-day cannot be used with --multilabel",)),
        (
            ("--review-label", "0"),
            ("--review-label must be above 0, got 0", "Pass --review-label 0.5"),
        ),
        (("--average", "micro"), ("--average requires --f-beta", "Pass --f-beta 1")),
        (
            ("--f-beta", "1", "--false-negative", "2"),
            ("cannot be combined with costs", "Leave out --false-negative"),
        ),
        (("--f-beta", "1", "--average", "mean"), ("macro", "mean")),
        (("--calibrator", "isotonic"), ("--calibrator must be auto, temperature",)),
    ],
)
def test_options_that_do_not_fit_exit_with_2(
    run: Run, files: Path, words: tuple[str, ...], messages: tuple[str, ...]
) -> None:
    done = run("fit", files / "valid.csv", *FIT, *words)
    assert done.exit_code == 2
    for message in messages:
        assert message in done.stderr.replace("\n", " ")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("action,a\nx,1\n", "its header must be label,false_positive"),
        ("label,false_negative\ntumor,cheap\n", "'cheap' in row 'tumor', column `false_negative`"),
        ("label,false_negative\ntumor,-1\n*,1\n", "must be a finite number above 0"),
        (
            "label,false_negative\nnose,2\n*,1\n",
            "--costs costs.csv must name labels only (cough, fever and tumor), got 'nose'. Correct",
        ),
        ("label,false_negative\ntumor,2\n", "none for 'cough'"),
        ("label,false_negative\ntumor,2\ntumor,3\n", "a label occurs twice"),
        ("label,false_negative\ntumor,2,3\n", "has 3 cells instead of 2"),
    ],
)
def test_bad_files_of_costs_are_named(run: Run, files: Path, text: str, message: str) -> None:
    Path("costs.csv").write_text(text)
    done = run("fit", files / "valid.csv", *FIT, "--costs", "costs.csv")
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")


def test_labels_of_a_policy_are_selected_by_name(run: Run, files: Path, policy: Path) -> None:
    new = pd.read_csv(files / "new.csv")
    run("decide", policy, files / "new.csv", "-o", "expected.csv", "--columns", "")
    new[["p_tumor", *new]].T.drop_duplicates().T.assign(p_zoster=0.5).to_csv("more.csv")
    done = run("decide", policy, "more.csv", "-o", "found.csv", "--columns", "")
    assert "left out: zoster" in " ".join(done.stderr.split())
    pd.testing.assert_frame_equal(pd.read_csv("found.csv"), pd.read_csv("expected.csv"))


def test_a_policy_is_evaluated_on_another_file(run: Run, files: Path) -> None:
    rows = simulated(100, 3)
    rows.to_csv("others.csv", index=False)
    rows[[*rows][::-1]].to_csv("moved.csv", index=False)
    found = []
    for name in ("others.csv", "moved.csv"):
        done = run("fit", files / "valid.csv", *FIT, *COSTS, "--evaluate-on", name)
        assert done.exit_code == 0, done.output
        assert "100 rows, an evaluation set" in done.stdout
        found.append(MultiLabelPolicy.load("policy.json").report.to_dict())
    assert found[0] == found[1]


def test_groups_and_scores_are_named(run: Run) -> None:
    rows = simulated(200, 2).assign(site=["north", "south", "north", "east", "north"] * 40)
    labels = [f"y_{name}" for name in NAMES]
    rows[labels] = rows[labels].replace({"u": 0, "": 0})
    rows.to_csv("whole.csv", index=False)
    words = (*FIT, "--group", "site")
    done = run("fit", "whole.csv", *words, "--review-label", "0.4", "--false-negative", "2")
    report = MultiLabelPolicy.load("policy.json").report
    shown = done.stdout.split("Held-out decisions by group, cost per row:\n")[1].splitlines()
    found = {line.split()[0]: line.split()[1:] for line in shown[1:4]}
    assert list(found) == ["east", "north", "south"]
    mean = sum(int(one[0]) * float(one[1]) for one in found.values()) / 200
    assert mean == pytest.approx(report.cost.value, abs=1e-4)
    assert f"Reviewed: {report.label_review_rate:.1%}".replace("%", " %") in done.stdout
    assert "as a whole" not in done.stdout
    assert "review row" not in done.stdout + run("decide", "policy.json", "whole.csv").stdout
    done = run("fit", "whole.csv", *words, "--f-beta", "1", "--average", "micro")
    assert "Micro F1: 0." in done.stdout
    assert "by group, errors per row" in done.stdout
    done = run("fit", "whole.csv", *words, "--f-beta", "1", "--average", "weighted")
    assert "--average must be macro, micro or samples, got weighted" in done.stderr
    assert "Pass --average macro." in done.stderr


@pytest.mark.parametrize(
    ("option", "value"),
    [("--ood-score", "nonsense"), ("--ood-alpha", "0.2"), ("--risk-delta", "0.2")],
)
def test_options_of_class_policies_exit_with_2(
    run: Run, files: Path, option: str, value: str
) -> None:
    done = run("fit", files / "valid.csv", *FIT, option, value)
    assert f"{option} cannot be used with --multilabel, got {value}" in done.stderr
    assert done.exit_code == 2


def test_kinds_of_policies_and_columns_are_not_mixed(
    run: Run, made: Path, files: Path, policy: Path
) -> None:
    done = run("decide", policy, files / "new.csv", "--probabilities", "p_*")
    assert "decides on several labels per row" in done.stderr
    assert "Pass --multilabel 'p_*'" in done.stderr
    done = run("decide", made / "policy.json", files / "new.csv", "--multilabel", "p_*")
    assert "decides on classes, got columns of multilabel." in done.stderr
    new = pd.read_csv(files / "new.csv")
    new.drop(columns="p_tumor").to_csv("other.csv", index=False)
    assert (
        "other.csv has no column of outputs for tumor" in run("decide", policy, "other.csv").stderr
    )
    done = run("fit", made / "sure.csv", "--review-row", "2")
    assert "--review-row requires --multilabel" in done.stderr
    both = ("--costs", "costs.csv", "--false-negative", "2")
    Path("costs.csv").write_text("label,false_negative\n*,1\n")
    done = run("fit", files / "valid.csv", *FIT, *both)
    assert "must not be given twice" in done.stderr
