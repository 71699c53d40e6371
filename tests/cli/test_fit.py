import json
from pathlib import Path

import pytest

from dubito.calibrate import TemperatureScaling
from dubito.decide import Policy
from tests.cli.conftest import Run, assert_same


def test_a_policy_is_fitted_told_and_written(run: Run, made: Path) -> None:
    done = run(
        "fit", made / "sure.csv", "--costs", made / "costs.csv", "--reject-cost", "0.3",
        "--deploy-prior", made / "prior.csv", "--ood-alpha", "0.05",
    )  # fmt: skip
    assert done.exit_code == 0, done.output
    told = "Found by name: label in label, logits in logit_*, features in feature_*.\n"
    assert done.stderr == told
    assert done.stdout.startswith("Calibrator: a mixture of")
    assert_same(done.stdout[done.stdout.index("A row costs") :], "fit")
    policy = Policy.load("policy.json")
    assert policy.costs.array[0].tolist() == [0, 5, 1]
    assert policy.costs.actions == ("cat", "dog", "fox", "reject")
    assert policy.deploy_prior is not None
    assert policy.deploy_prior.tolist() == pytest.approx([0.6, 0.2, 0.2])
    assert policy.ood is not None
    assert policy.ood.needs_features


def test_without_anyone_to_ask_there_is_no_gate(run: Run, made: Path) -> None:
    words = ["--probability", "chance", "--positive", "fraud", "-o", "fraud.json", "--json"]
    done = run("fit", made / "fraud.csv", *words)
    printed = json.loads(done.stdout)
    assert printed["output"] == "fraud.json"
    assert printed["provenance"]["n_rows"] == 400
    policy = Policy.load("fraud.json")
    assert policy.ood is None
    assert policy.classes == ("ok", "fraud")


@pytest.mark.parametrize(
    ("words", "got"),
    [
        (["--max-risk", "0.1"], "`--max-risk` of dubito fit"),
        (["--features", "feature_*"], "`--features` of dubito fit"),
    ],
)
def test_what_hands_rows_over_needs_someone_to_take_them(
    run: Run, made: Path, words: list[str], got: str
) -> None:
    done = run("fit", made / "sure.csv", *words)
    assert done.exit_code == 2
    assert got in done.stderr
    assert done.stderr.endswith("\nTry --reject-cost 0.3.\n")
    assert not Path("policy.json").exists()


def test_a_regression_has_no_policy(run: Run, made: Path) -> None:
    done = run("fit", made / "regression.csv", "--mean", "m")
    assert done.exit_code == 2
    assert "No such option" in done.stderr


def test_an_action_of_the_costs_may_hand_rows_over(run: Run, made: Path, tmp_path: Path) -> None:
    table = "action,cat,dog,fox\ncat,0,1,1\ndog,1,0,1\nfox,1,1,0\nask,0.3,0.3,0.3\n"
    (tmp_path / "costs.csv").write_text(table)
    options = ("--costs", tmp_path / "costs.csv", "--calibrator", "TemperatureScaling")
    done = run("fit", made / "sure.csv", *options, "--reject-action", "ask", "--max-risk", "0.3")
    assert done.exit_code == 0, done.output
    policy = Policy.load("policy.json")
    assert policy.costs.actions[policy.costs.reject or 0] == "ask"
    assert isinstance(policy.calibrator, TemperatureScaling)
    assert policy.risk is not None


def test_other_rows_may_be_reported_on(run: Run, made: Path) -> None:
    options = ("--calibrator", "VectorScaling", "--evaluate-on", made / "calm.csv", "--seed", "3")
    done = run("fit", made / "sure.csv", *options)
    assert done.exit_code == 0, done.output
    policy = Policy.load("policy.json")
    assert policy.report.how == "an evaluation set"
    assert policy.provenance["random_state"] == 3


@pytest.mark.parametrize("name", ["OneVsRest", "BaseCalibrator", "audit", "decompose_loss"])
def test_a_calibrator_is_one_by_its_name(run: Run, made: Path, name: str) -> None:
    done = run("fit", made / "sure.csv", "--calibrator", name)
    assert done.exit_code == 2
    assert f"must be auto, or a calibrator by its name. Got '{name}'." in done.stderr
