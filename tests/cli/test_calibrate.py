import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    MultiLabelCalibrator,
    PlattScaling,
    TemperatureScaling,
)
from dubito.outputs import Logits, MultiLabel
from tests.cli.conftest import ANIMALS, Run


@pytest.mark.slow
def test_the_selected_calibrator_is_printed_with_intervals_and_written(
    run: Run, made: Path
) -> None:
    done = run("calibrate", made / "sure.csv")
    assert done.exit_code == 0, done.output
    first, *_ = done.stdout.splitlines()
    assert first[0].isupper()
    assert "95 % interval" in done.stdout
    assert "IdentityCalibrator()" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    kept = BaseCalibrator.from_dict(json.loads(Path("calibrator.json").read_text()))
    frame = pd.read_csv(made / "sure.csv")
    logits = Logits(frame.filter(like="logit_").to_numpy(), ANIMALS)
    learned = AutoCalibrator().fit(logits, frame["label"].to_numpy())
    assert np.allclose(kept.predict_proba(logits), learned.predict_proba(logits), atol=1e-9)
    line = next(line for line in learned.leaderboard_ if line["name"] == "IdentityCalibrator()")
    reach = 1.96 * line["standard_error"]
    low, high = line["log_loss"] - reach, line["log_loss"] + reach
    assert f"{line['log_loss']:.4f}  {low:.4f} to {high:.4f}" in done.stdout


@pytest.mark.slow
def test_figures_are_there_as_json(run: Run, made: Path) -> None:
    words = ["--probability", "chance", "--positive", "fraud", "--json", "-o", "fraud.json"]
    printed = json.loads(run("calibrate", made / "fraud.csv", *words).stdout)
    assert printed["output"] == "fraud.json"
    names = [line["name"] for line in printed["leaderboard"]]
    assert {"TemperatureScaling()", "IdentityCalibrator()"} <= set(names)
    for line in printed["leaderboard"]:
        middle = (line["low"] + line["high"]) / 2
        assert line["log_loss"] == pytest.approx(middle)
    assert all(isinstance(line["dropped"], bool) for line in printed["leaderboard"])
    assert printed["evidence"]["n_rows"] == 400


@pytest.fixture(scope="module")
def calibrators(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder of saved calibrators: of three classes, and of one column."""
    folder = tmp_path_factory.mktemp("calibrators")
    frame, single = pd.read_csv(made / "sure.csv"), pd.read_csv(made / "fraud.csv")
    logits = Logits(frame.filter(like="logit_").to_numpy(), ANIMALS)
    fitted = {
        "animals": TemperatureScaling().fit(logits, frame["label"].to_numpy()),
        "fraud": PlattScaling().fit(single["chance"].to_numpy(), single["y"] == "fraud"),
    }
    for name, one in fitted.items():
        (folder / f"{name}.json").write_text(json.dumps(one.to_dict()))
    return folder


def saved(folder: Path, name: str) -> BaseCalibrator:
    return BaseCalibrator.from_dict(json.loads((folder / f"{name}.json").read_text()))


@pytest.mark.parametrize("output", ["c.parquet", "c.csv", "c.arrow", "parts/"])
def test_a_saved_calibrator_is_applied(
    run: Run, made: Path, calibrators: Path, output: str
) -> None:
    words = ["calibrate", "--apply", calibrators / "animals.json", made / "sure_new.csv"]
    done = run(*words, "-o", output)
    assert done.exit_code == 0, done.output
    assert " ".join(done.stdout.split()).endswith(f"are calibrated in {output}.")
    inputs = pd.read_csv(made / "sure_new.csv")
    got = read_frame(output)
    logits = Logits(inputs.filter(like="logit_").to_numpy(), ANIMALS)
    expected = saved(calibrators, "animals").predict_proba(logits)
    assert list(got.filter(like="calibrated_")) == [f"calibrated_{name}" for name in ANIMALS]
    np.testing.assert_allclose(got.filter(like="calibrated_"), expected, rtol=1e-8)
    assert got["id"].tolist() == inputs["id"].tolist()
    np.testing.assert_array_equal(got[list(inputs.filter(like="_"))], inputs.filter(like="_"))


def read_frame(output: str) -> pd.DataFrame:
    """Return a written table."""
    if output.endswith(".csv"):
        return pd.read_csv(output)
    return pd.read_feather(output) if output.endswith(".arrow") else pd.read_parquet(output)


def test_one_column_of_probabilities_stays_one(run: Run, made: Path, calibrators: Path) -> None:
    words = ["calibrate", made / "fraud.csv", "--apply", calibrators / "fraud.json"]
    words += ["--probability", "chance", "--columns", "amount"]
    printed = json.loads(run(*words, "--json").stdout)
    assert printed == {"rows": 400, "output": "calibrated.parquet"}
    got, inputs = pd.read_parquet("calibrated.parquet"), pd.read_csv(made / "fraud.csv")
    assert list(got) == ["id", "amount", "calibrated_chance"]
    expected = saved(calibrators, "fraud").predict_proba(inputs["chance"].to_numpy())[:, 1]
    np.testing.assert_array_equal(got["calibrated_chance"], expected)


def test_a_calibrator_of_other_classes_exits_with_2(
    run: Run, made: Path, calibrators: Path
) -> None:
    apply = ["calibrate", "--apply", calibrators / "animals.json"]
    frame = pd.read_csv(made / "sure_new.csv").rename(columns={"logit_fox": "logit_wolf"})
    frame.to_csv("wolf.csv", index=False)
    done = run(*apply, "wolf.csv")
    assert done.exit_code == 2
    assert "('cat', 'dog', 'fox')" in done.stderr
    done = run(*apply, made / "fraud.csv", "--probability", "chance")
    assert done.exit_code == 2
    assert list(Path().iterdir()) == [Path("wolf.csv")]
    done = run("calibrate", "--apply", made / "policy.json", "wolf.csv")
    assert "policy.json cannot be read: it is a policy (Policy), not a calibrator" in done.stderr
    assert f"Use `dubito decide {made / 'policy.json'}`" in " ".join(done.stderr.split())
    done = run("calibrate", made / "sure.csv", "--columns", "id")
    assert "--columns requires --apply" in done.stderr


@pytest.mark.parametrize("name", ["TemperatureScaling", "Nothing", "plattscalin"])
def test_a_calibrator_may_be_named(run: Run, made: Path, name: str) -> None:
    done = run("calibrate", made / "sure.csv", "--calibrator", name)
    if name != "TemperatureScaling":
        assert "must be auto, simple or the name of a calibrator" in done.stderr
        remedy = done.stderr[done.stderr.index("Pass ") :]
        assert remedy.startswith("Pass --calibrator PlattScaling, ") == (name == "plattscalin")
        assert {"BetaCalibration", "MatrixScaling"} <= set(re.findall(r"\w+", remedy))
        assert "OneVsRest" not in remedy
        return
    assert done.stdout.startswith("TemperatureScaling (T = ")
    words = "dubito calibrate --apply calibrator.json NEW.csv -o calibrated.parquet"
    assert done.stdout.endswith(f"{words}\n")
    assert isinstance(saved(Path(), "calibrator"), TemperatureScaling)


@pytest.mark.parametrize("words", [["audit"], ["calibrate", "--calibrator", "TemperatureScaling"]])
@pytest.mark.filterwarnings("ignore::dubito.errors.DubitoWarning")
def test_labels_of_one_class_are_noted(run: Run, made: Path, words: list[str]) -> None:
    frame = pd.read_csv(made / "sure.csv").assign(label="dog")
    frame.to_csv("dogs.csv", index=False)
    note = "All labels in dogs.csv are 'dog', so nothing is known about cat, fox"
    assert note in " ".join(run(*words, "dogs.csv").stderr.split())
    assert "All labels" not in run(*words, made / "sure.csv").stderr


@pytest.mark.slow
def test_several_labels_are_calibrated_and_applied(run: Run, tmp_path: Path) -> None:
    rng, names = np.random.default_rng(0), ["edema", "mass"]
    odds = rng.normal(size=(300, 2))
    findings = (rng.random((300, 2)) < 1 / (1 + np.exp(-odds))).astype(float)
    findings[::9, 1] = np.nan
    p = 1 / (1 + np.exp(-3 * odds))
    columns = {f"p_{one}": p[:, k] for k, one in enumerate(names)}
    columns |= {f"y_{one}": findings[:, k] for k, one in enumerate(names)}
    pd.DataFrame(columns).to_csv("xrays.csv", index=False)
    words = ["--multilabel", "p_*", "--label", "y_*"]
    done = run("calibrate", "xrays.csv", *words, "-o", "labels.json")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("One temperature for all labels, because its held-out log")
    [selected] = [line for line in done.stdout.splitlines() if line.rstrip().endswith("selected")]
    assert selected.startswith("one temperature for all labels ")
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "--multilabel 'p_*'" in done.stdout
    fitted = MultiLabelCalibrator.from_dict(json.loads(Path("labels.json").read_text()))
    assert fitted.label_names_ == ("edema", "mass")
    applied = ["calibrate", "--apply", "labels.json", "xrays.csv"]
    done = run(*applied, *words[:2], "-o", "new.csv")
    assert done.exit_code == 0, done.output
    written = pd.read_csv("new.csv")[["calibrated_edema", "calibrated_mass"]].to_numpy()
    assert np.allclose(written, fitted.predict_proba(MultiLabel(p)), atol=1e-8)
    done = run(*applied, "-o", "again.csv")  # with the columns of the fit
    assert Path("again.csv").read_text() == Path("new.csv").read_text()
    done = run(*applied, "--probabilities", "p_*")
    assert "Pass --multilabel 'p_*'" in " ".join(done.output.split())
    done = run("calibrate", "xrays.csv", *words, "--calibrator", "isotonic")
    assert "must be auto, temperature, platt or beta" in " ".join(done.output.split())
    done = run("calibrate", "xrays.csv", *words, "--positive", "1")
    assert "--positive cannot be used with --multilabel" in " ".join(done.output.split())
