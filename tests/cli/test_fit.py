import json
from pathlib import Path

import pytest

from dubito.decide import Policy
from tests.cli.conftest import Run, assert_same


def test_a_policy_is_fitted_told_and_written(run: Run, made: Path) -> None:
    done = run(
        "fit", made / "sure.csv", "--costs", made / "costs.csv", "--reject-cost", "0.3",
        "--deploy-prior", made / "prior.csv", "--epsilon", "0.05",
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
    assert policy.gate is not None
    assert policy.gate.needs_features


def test_without_anyone_to_ask_there_is_no_gate(run: Run, made: Path) -> None:
    words = ["--column", "chance", "--positive", "fraud", "-o", "fraud.json", "--json"]
    done = run("fit", made / "fraud.csv", *words)
    printed = json.loads(done.stdout)
    assert printed["output"] == "fraud.json"
    assert printed["provenance"]["n_rows"] == 400
    policy = Policy.load("fraud.json")
    assert policy.gate is None
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
