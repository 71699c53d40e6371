import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dubito.calibrate.held_out_answers import HeldOutAnswers
from dubito.data import ArrayShards, Batch
from dubito.decide import CostMatrix, cost_report
from dubito.measure import Audit, MultiLabelAudit, RegressionAudit, audit
from dubito.outputs import (
    Logits,
    MultiLabel,
    Normal,
    Probabilities,
    Quantiles,
    Samples,
    Scores,
    TopLabel,
)
from tests.cli.conftest import ANIMALS, Run, assert_same


def animal_logits(frame: pd.DataFrame) -> Logits:
    return Logits(frame.filter(like="logit_").to_numpy(), ANIMALS)


def weighted(folder: Path) -> Path:
    """Write predictions with weights, groups and missing labels."""
    frame = pd.read_csv(folder / "sure.csv")
    rng = np.random.default_rng(3)
    frame["weight"] = rng.gamma(2.0, size=len(frame))
    frame["site"] = np.array(["north", "south", "east"])[rng.integers(0, 3, len(frame))]
    frame.loc[::50, "label"] = None
    frame.to_csv("weighted.csv", index=False)
    return Path("weighted.csv")


def test_remedies_are_of_the_command_line(run: Run, made: Path) -> None:
    frame = pd.read_csv(made / "sure.csv")
    frame["label"] = frame["label"].map({"cat": 0, "dog": 1, "fox": 2})
    frame.to_csv("numbers.csv", index=False)
    done = run("audit", "numbers.csv")
    assert "row 0: '2' is not one of the classes cat, dog, fox.\n" in done.stderr
    assert "Name the columns by the labels, such as p_0 and p_1" in done.stderr
    done = run("audit", made / "sure.csv", "--classes", "0,1,2")
    assert "--classes 0,1,2 applies to a single list column; the names of logit_cat" in done.stderr
    Path("bad.csv").write_text("p_a,p_b,label\n0.5,0.5,a\n1.1,-0.1,b\n")
    done = run("audit", "bad.csv")
    assert "column `p_b`, row 1: must be non-negative, got -0.1." in done.stderr
    assert "Pass --logits if these are logits, or write 0" in done.stderr
    Path("other.csv").write_text("p_a,p_b,label\n0.5,0.5,a\n0.9,0.1,c\n")
    assert "or pass --bad-rows bad.csv to set" in run("audit", "other.csv").stderr


@pytest.mark.parametrize("case", ["classes", "binary", "top label", "regression", "weights"])
@pytest.mark.filterwarnings("ignore:.*no label")
def test_the_json_of_a_file_equals_the_api(run: Run, made: Path, case: str) -> None:
    expected: Audit | RegressionAudit
    words: list[Any]
    if case == "classes":
        words = [made / "sure.csv"]
        frame = pd.read_csv(words[0])
        expected = audit(frame["label"].to_numpy(), animal_logits(frame))
    elif case == "binary":
        words = [made / "fraud.csv", "--probability", "chance", "--positive", "fraud"]
        frame = pd.read_csv(words[0])
        outputs = Probabilities(frame["chance"].to_numpy(), ["ok", "fraud"])
        expected = audit(frame["y"].to_numpy(), outputs, pos_label="fraud")
    elif case == "top label":
        words = [made / "fraud.csv", "--confidence", "top", "--correct", "hit"]
        frame = pd.read_csv(words[0])
        expected = audit(None, TopLabel(frame["top"].to_numpy(), frame["hit"].to_numpy()))
    elif case == "regression":
        words = [made / "regression.csv", "--mean", "m", "--std", "s"]
        frame = pd.read_csv(words[0])
        expected = audit(frame["target"], Normal(frame["m"].to_numpy(), frame["s"].to_numpy()))
    else:
        words = [weighted(made), "--weight", "weight", "--group", "site"]
        frame = pd.read_csv(words[0])
        expected = audit(
            frame["label"].to_numpy(),
            animal_logits(frame),
            sample_weight=frame["weight"].to_numpy(),
            groups=frame["site"].to_numpy(),
        )
    assert printed_audit(run, *words) == as_json(expected)


def printed_audit(run: Run, *words: Any) -> dict[str, Any]:
    """Return the JSON of an audit in memory, without what only the command line has."""
    done = run("audit", *words, "--json")
    assert done.exit_code == 0, done.output
    printed: dict[str, Any] = json.loads(done.stdout)
    assert (printed.pop("findings"), printed.pop("streamed")) == ([], False)
    return printed


def as_json(found: Audit | RegressionAudit | MultiLabelAudit) -> Any:
    return json.loads(json.dumps(found.to_dict()))


def test_several_labels_equal_the_api_in_any_order_of_their_columns(run: Run) -> None:
    rng, names = np.random.default_rng(4), ["rash", "cough", "fever", "ache", "burn"]
    odds = rng.normal(-1, 1.5, (300, 5))
    y = (rng.random(odds.shape) < 1 / (1 + np.exp(-0.4 * odds))).astype(float)
    y[rng.random(odds.shape) < 0.05] = np.nan
    p, site = (1 / (1 + np.exp(-odds))).round(6), np.array(["north", "south"] * 150)
    columns = {f"p_{name}": p[:, k] for k, name in enumerate(names)}
    columns |= {f"y_{name}": y[:, k] for k, name in enumerate(names)}
    pd.DataFrame({**columns, "site": site}).to_csv("findings.csv", index=False)
    words = ["--multilabel", "p_*", "--label", "y_*", "--group", "site"]
    printed = printed_audit(run, "findings.csv", *words)
    for order in ([0, 1, 2, 3, 4], [3, 4, 1, 2, 0], [4, 2, 0, 3, 1]):
        outputs = MultiLabel(p[:, order], [names[k] for k in order])
        assert printed == as_json(audit(y[:, order], outputs, groups=site))


def test_scores_of_answers_equal_the_api(run: Run) -> None:
    rng = np.random.default_rng(5)
    scores = rng.normal(size=(200, 2)).round(4)
    correct = (rng.random(200) < 1 / (1 + np.exp(-2 * scores[:, 0]))).astype(float)
    frame = pd.DataFrame({"judge": scores[:, 0], "logprob": scores[:, 1]})
    frame.assign(ok=correct.astype(int)).to_csv("answers.csv", index=False)
    printed = printed_audit(run, "answers.csv", "--scores", "judge,logprob", "--correct", "ok")
    rows = ArrayShards(Batch.of(correct, Scores(frame)))
    held_out = HeldOutAnswers.cross_fit(rows, 0, "dubito audit")
    expected = as_json(Audit.of(ArrayShards(held_out.calibrated)))
    assert {name: printed[name] for name in expected} == expected


@pytest.mark.parametrize("kind", ["quantiles", "samples"])
def test_quantiles_and_samples_equal_the_api(run: Run, kind: str) -> None:
    rng = np.random.default_rng(6)
    mean, levels = rng.normal(size=(200, 1)), [0.05, 0.25, 0.5, 0.75, 0.95]
    outputs: Quantiles | Samples
    if kind == "quantiles":
        columns = mean + np.array([-1.6, -0.7, 0.0, 0.7, 1.6])
        names, outputs = [f"q_{level}" for level in levels], Quantiles(columns, levels)
    else:
        columns = mean + rng.normal(size=(200, 30))
        names, outputs = [f"s_{k:02}" for k in range(30)], Samples(columns)
    y = mean[:, 0] + rng.normal(size=200)
    pd.DataFrame(columns, columns=names).assign(y=y).to_csv("values.csv", index=False)
    printed = printed_audit(run, "values.csv", f"--{kind}", f"{names[0][:2]}*", "--label", "y")
    assert printed == as_json(audit(y, outputs))


def test_a_file_of_several_blocks_equals_the_api(
    run: Run, made: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "90")  # of 1,200
    frame = pd.read_csv(made / "sure.csv")
    expected = audit(frame["label"].to_numpy(), animal_logits(frame))
    assert printed_audit(run, made / "sure.csv") == as_json(expected)


def test_columns_found_by_name_are_printed_to_stderr(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv")
    assert done.stderr == "Detected columns: label = label, logits = logit_*.\n"
    named = run("audit", made / "sure.csv", "--label", "label", "--logits", "logit_*")
    assert named.stderr == ""
    assert named.stdout.startswith(done.stdout.split("Next")[0])


def test_the_text_of_an_audit(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv", "--costs", made / "costs.csv")
    assert_same(done.stdout.replace(str(made), "."), "audit")
    done = run("audit", made / "regression.csv", "--mean", "m", "--std", "s")
    assert_same(done.stdout.replace(str(made), "."), "audit_regression")


def test_costs_equal_the_api(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv", "--costs", made / "costs.csv", "--json")
    frame = pd.read_csv(made / "sure.csv")
    logits = animal_logits(frame)
    costs = CostMatrix.from_csv(made / "costs.csv")
    expected = cost_report(frame["label"].to_numpy(), logits, costs)
    assert json.loads(done.stdout)["cost"]["realized"]["value"] == expected.realized.value


def test_a_crossed_limit_exits_with_1(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv", "--fail-on", "ece>0.03", "--fail-on", "accuracy<0.1")
    assert done.exit_code == 1
    assert "dubito: --fail-on 'ece>0.03': expected_calibration_error is 0.235" in done.stderr
    assert "accuracy is" not in done.stderr
    assert run("audit", made / "sure.csv", "--fail-on", "ece>0.9").exit_code == 0


@pytest.mark.filterwarnings("ignore:.*probability 0")
def test_an_infinite_log_loss_crosses_any_limit(run: Run) -> None:
    frame = pd.DataFrame({"p_a": [1.0, 1.0, 0.5], "p_b": [0.0, 0.0, 0.5], "y": ["a", "b", "a"]})
    frame.to_csv("impossible.csv", index=False)
    done = run("audit", "impossible.csv", "--fail-on", "log_loss>5")
    assert done.exit_code == 1
    assert "--fail-on 'log_loss>5': log_loss is inf" in done.stderr
    many = pd.concat([frame] * 10).assign(site="north")
    many.to_csv("impossible.csv", index=False)
    done = run("audit", "impossible.csv", "--group", "site", "--fail-on", "group.*.log_loss>5")
    assert "group.north.log_loss is inf" in done.stderr


def test_a_report_is_written(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv", "--costs", made / "costs.csv", "-o", "report.html")
    assert "features = feature_*" in done.stderr
    assert "The report is in report.html." in done.stdout
    page = Path("report.html").read_text()
    assert page.startswith("<!doctype html>")
    assert "sure.csv" in page


def test_a_report_must_be_html(run: Run, made: Path) -> None:
    done = run("audit", made / "sure.csv", "-o", "report.txt")
    assert done.exit_code == 2
    assert "--output must end in .html, got report.txt.\nPass --output report.html." in done.stderr


def test_the_next_command_has_only_options_of_fit(run: Run) -> None:
    frame = pd.DataFrame({"p_a": [0.9, 0.2], "p_b": [0.1, 0.8], "y": ["a", "b"], "site": [1, 2]})
    frame.to_csv("small.csv", index=False)
    done = run("audit", "small.csv", "--label", "y", "--group", "site", "--id", "site")
    assert "dubito fit small.csv --label y --reject-cost 0.3" in done.stdout


def test_the_number_of_bins(run: Run, made: Path) -> None:
    assert "ECE (5 uniform bins)" in run("audit", made / "sure.csv", "--bins", "5").stdout


def test_a_file_above_the_memory_limit_is_streamed_and_says_so(run: Run, made: Path) -> None:
    whole = json.loads(run("audit", made / "sure.csv", "--json").stdout)
    done = run("audit", made / "sure.csv", "--json", "--max-memory", "1KB")
    assert "exceeds --max-memory 1KB and is streamed" in " ".join(done.stderr.split())
    streamed = json.loads(done.stdout)
    assert (whole["streamed"], streamed["streamed"]) == (False, True)
    assert streamed["log_loss"] == pytest.approx(whole["log_loss"])
    assert streamed["area_under_risk_coverage"] == pytest.approx(
        whole["area_under_risk_coverage"], abs=1e-3
    )
    assert np.isfinite(streamed["calibration_p_value"])
    text = run("audit", made / "sure.csv", "--max-memory", "0").stdout
    assert "The rows were streamed" in text
    assert "The rows were streamed" not in run("audit", made / "sure.csv").stdout


def grouped(n_rows: int = 400) -> pd.DataFrame:
    """Write probabilities, labels and groups with names of all kinds."""
    rng = np.random.default_rng(0)
    p = rng.beta(1, 3, n_rows).round(3)
    y = (rng.random(n_rows) < p**1.2).astype(int)
    site = np.array(["north", "a.b", "c / d"])[rng.integers(0, 3, n_rows)]
    frame = pd.DataFrame({"p": p, "y": y, "site": site})
    frame.loc[:4, "site"] = "tiny"
    frame.to_csv("grouped.csv", index=False)
    return frame


@pytest.mark.slow
def test_groups_on_the_command_line_equal_the_api(run: Run) -> None:
    frame = grouped()
    columns = ("y", "p", "site")
    y, p, site = (frame[name].to_numpy() for name in columns)
    words = ["audit", "grouped.csv", "--group", "site", "--threshold", "0.3"]
    printed = json.loads(run(*words, "--json").stdout)
    expected = audit(y, p, groups=site, threshold=0.3).to_dict()
    assert printed["group_comparison"] == expected["group_comparison"]
    assert printed["positive"]["operating_point"] == expected["positive"]["operating_point"]
    text = run(*words).stdout
    title = (
        "Groups; class 1 predicted where P(1) >= 0.3; 95 % intervals that hold for 3 groups at once"
    )
    assert title in " ".join(text.split())
    assert "Groups with fewer than 20 rows, not compared: tiny." in text
    assert "Confusion matrix, class 1 predicted where P(1) >= 0.3:" in text


@pytest.mark.slow
def test_limits_of_groups_and_of_differences(run: Run) -> None:
    grouped()
    words = ["audit", "grouped.csv", "--group", "site", "--json"]
    found = run(*words, "--fail-on", "group.*.fpr>=0", "--fail-on", "group.c / d.ece<1")
    assert found.exit_code == 1
    findings = json.loads(found.stdout)["findings"]
    assert [one.split(" is ")[0] for one in findings] == [
        "--fail-on 'group.*.fpr>=0': group.a.b.false_positive_rate",
        "--fail-on 'group.*.fpr>=0': group.c / d.false_positive_rate",
        "--fail-on 'group.*.fpr>=0': group.north.false_positive_rate",
        "--fail-on 'group.c / d.ece<1': group.c / d.expected_calibration_error",
    ]
    assert "'group.*' leaves out 1 group of too few rows: tiny." in found.stderr
    assert run(*words, "--fail-on", "disparity.fpr>0.9").exit_code == 0
    crossed = run(*words, "--fail-on", "disparity.fpr.high>0")
    assert "disparity.false_positive_rate.high is 0." in crossed.stderr
    wrong = run(*words, "--fail-on", "group.south.fpr>0.1")
    assert wrong.exit_code == 2
    assert "must name a group, or all by group.*, got 'south'." in wrong.stderr
    assert "Use one of a.b, c / d, north, tiny." in wrong.stderr


@pytest.mark.slow
def test_a_threshold_requires_a_positive_class(run: Run, made: Path) -> None:
    three = run("audit", made / "sure.csv", "--threshold", "0.3")
    assert "--threshold 0.3 applies to two classes; " in three.stderr
    assert "Leave it out." in three.stderr
    Path("two.csv").write_text("p_ok,p_fraud,label\n0.9,0.1,ok\n0.3,0.7,fraud\n0.6,0.4,ok\n")
    two = run("audit", "two.csv", "--threshold", "0.3")
    told = "--threshold 0.3 needs to know the positive class of two.csv."
    assert f"{told}\nAdd --positive fraud or --positive ok." in two.stderr
    assert run("audit", "two.csv", "--threshold", "0.3", "--positive", "fraud").exit_code == 0


def test_costs_of_groups_and_a_threshold_exclude_each_other(run: Run) -> None:
    grouped()
    Path("costs.csv").write_text("action,0,1\npass,0,5\nblock,1,0\n")
    words = ["audit", "grouped.csv", "--group", "site", "--costs", "costs.csv"]
    done = run(*words, "--json", "--fail-on", "cost>0.01")
    assert done.exit_code == 1
    printed = json.loads(done.stdout)
    assert printed["mean_cost"] == pytest.approx(printed["cost"]["realized"]["value"])
    assert "mean_cost" in printed["group_comparison"]["metrics"]["north"]
    assert "lowest expected cost" in run(*words).stdout
    rejected = run(*words, "--threshold", "0.2")
    assert rejected.exit_code == 2
    assert "--threshold cannot be used with --costs" in rejected.stderr
