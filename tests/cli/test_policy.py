import json
import shutil
from pathlib import Path

import pytest

import dubito
from dubito.decide import Policy
from tests.cli.conftest import Run, assert_same


def test_a_policy_is_shown(run: Run, made: Path) -> None:
    done = run("policy", "show", made / "policy.json")
    words, _, last = done.stdout.rstrip().rpartition("\n")
    assert_same(words, "policy")
    assert last.startswith("Fitted 20")
    assert last.endswith(f"on 400 rows by dubito {dubito.__version__}.")
    printed = json.loads(run("policy", "show", made / "policy.json", "--json").stdout)
    assert printed["provenance"]["n_rows"] == 400
    assert printed["report"]["n_rows"] == 400


@pytest.mark.slow
def test_an_edited_policy_exits_with_2_until_sealed(run: Run, made: Path) -> None:
    shutil.copy(made / "policy.json", "policy.json")
    text = Path("policy.json").read_text()
    edited = json.loads(text)
    edited["costs"]["costs"][0][1] = 7.0
    Path("policy.json").write_text(json.dumps(edited))
    rejected = run("policy", "show", "policy.json")
    assert rejected.exit_code == 2
    assert "seal" in rejected.stderr
    assert run("policy", "seal", "policy.json").stdout == "Updated the checksum of policy.json.\n"
    assert Policy.load("policy.json").costs.array[0, 1] == 7.0
    printed = json.loads(run("policy", "seal", "policy.json", "--json").stdout)
    assert printed == {"sealed": "policy.json"}


@pytest.mark.slow
def test_one_row_is_explained(run: Run, made: Path) -> None:
    run("fit", made / "sure.csv", "--reject-cost", "0.3", "--calibrator", "TemperatureScaling")
    done = run("policy", "explain", "policy.json", made / "sure.csv", "--row", "2")
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("Action: ")
    printed = json.loads(
        run("policy", "explain", "policy.json", made / "sure.csv", "--row", "2", "--json").stdout
    )
    assert " ".join(printed["explanation"].split()) == " ".join(done.stdout.split())
    for row in ("-1", "400"):
        done = run("policy", "explain", "policy.json", made / "sure.csv", "--row", row)
        assert done.exit_code == 2
        assert f"--row must be between 0 and 399, got {row}." in done.stderr
