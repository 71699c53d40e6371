import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dubito.cli.audit import _crossed_limits
from dubito.data.sources import BaseSource, opening
from dubito.decide import CostMatrix, cost_report
from dubito.errors import BadValueError
from dubito.measure import Audit, RegressionAudit, audit
from dubito.outputs import Logits, Normal, Probabilities, TopLabel
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
    done = run("audit", *words, "--json")
    assert done.exit_code == 0, done.output
    printed = json.loads(done.stdout)
    assert (printed.pop("findings"), printed.pop("streamed")) == ([], False)
    assert printed == json.loads(json.dumps(expected.to_dict()))


def test_a_file_is_opened_once(run: Run, made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    open_one = opening._open_one

    def counted(name: str) -> BaseSource:
        opened.append(name)
        return open_one(name)

    monkeypatch.setattr(opening, "_open_one", counted)
    words = ["--probability", "chance", "--positive", "fraud"]
    assert run("audit", made / "fraud.csv", *words).exit_code == 0
    assert opened == [str(made / "fraud.csv")]


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
    assert_same(done.stdout, "audit_regression")


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


METRICS = {"expected_calibration_error": 0.05, "accuracy": 0.9, "brier_score/high": 0.25}


@pytest.mark.parametrize(
    ("limit", "is_crossed"),
    [
        ("ece>0.03", True),
        ("ece > 0.05", False),
        ("ece>=0.05", True),
        ("ece<5e-2", False),
        ("ece<=5e-2", True),
        ("accuracy<0.95", True),
        ("accuracy<0.9", False),
        ("brier_score/high>0.2", True),
    ],
)
def test_a_limit_is_crossed_or_not(limit: str, is_crossed: bool) -> None:
    assert bool(_crossed_limits([limit], METRICS)) == is_crossed


def test_crossed_limits_are_told_in_order() -> None:
    assert _crossed_limits(["accuracy<1", "ece>0.5", "ece>0"], METRICS) == [
        "--fail-on 'accuracy<1': accuracy is 0.9",
        "--fail-on 'ece>0': expected_calibration_error is 0.05",
    ]


def test_a_signed_gap_needs_its_size_to_fail_in_both_directions(run: Run, made: Path) -> None:
    too_low = {"gap": -0.18}
    assert _crossed_limits(["gap>0.01"], too_low) == []
    assert _crossed_limits(["abs(gap)>0.01", "abs( gap ) >= 0.2"], too_low) == [
        "--fail-on 'abs(gap)>0.01': abs(gap) is 0.18"
    ]
    frame = pd.DataFrame({"confidence": [0.6] * 50, "correct": [1] * 50})
    frame.to_csv("timid.csv", index=False)
    columns = ["--confidence", "confidence", "--correct", "correct"]
    done = run("audit", "timid.csv", *columns, "--fail-on", "gap>0.01")
    assert done.exit_code == 0
    assert done.stderr.endswith(
        "dubito: --fail-on 'gap>0.01': gap is signed (confidence - accuracy), so that the other "
        "direction passes. Use abs(gap) for both.\n"
    )
    both = ["--fail-on", "gap>0.01", "--fail-on", "gap<-0.5"]
    assert "is signed" not in run("audit", "timid.csv", *columns, *both).stderr
    sized = run("audit", "timid.csv", *columns, "--fail-on", "abs(gap)>0.01")
    assert sized.exit_code == 1
    assert sized.stderr.endswith("dubito: --fail-on 'abs(gap)>0.01': abs(gap) is 0.4\n")


@pytest.mark.parametrize(
    "limit",
    ["ece", "ece>", "ece=0.1", "ece>much", ">0.1", "ece>-", "", "abs(ece>0.1", "ece)>0.1"],
)
def test_a_malformed_limit_is_refused(limit: str) -> None:
    with pytest.raises(BadValueError) as caught:
        _crossed_limits([limit], METRICS)
    assert str(caught.value) == (
        "--fail-on must be a metric or abs(metric), one of < <= > >=, and a number, "
        f"got {limit!r}. Pass e.g. 'ece>0.03'."
    )


def test_an_unknown_metric_lists_those_that_exist() -> None:
    with pytest.raises(BadValueError) as caught:
        _crossed_limits(["acuracy<0.8"], METRICS)
    assert str(caught.value) == (
        "--fail-on must name a metric, got 'acuracy'. Use one of accuracy, ece."
    )
