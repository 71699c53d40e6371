import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubito import CostMatrix, Logits, Normal, Policy, audit
from dubito.calibrate import TemperatureScaling
from dubito.errors import BadTypeError, BadValueError
from dubito.export import log_audit
from dubito.report import make_report

RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=(120, 3))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)


class Kept:
    """A tracker that keeps what it gets."""

    def __call__(self, metrics: dict[str, float], files: dict[str, str]) -> str:
        self.metrics, self.files = metrics, files
        return "logged"


@pytest.fixture(scope="module")
def policy() -> Policy:
    costs = CostMatrix.zero_one(3).with_reject(0.3)
    return Policy.fit(Logits(Z), Y, costs=costs, calibrator=TemperatureScaling())


def test_metrics_are_flat_and_named_as_every_tracker_accepts() -> None:
    groups = np.array(["north 1", "north-1", "süd"])[np.arange(120) % 3]
    found = audit(Y, Logits(Z), groups=groups, n_resamples=40)
    kept = Kept()
    assert log_audit(found, kept) == "logged"
    assert kept.metrics["accuracy"] == found.accuracy
    assert kept.metrics["log_loss_low"] == found.intervals["log_loss"].low
    assert kept.metrics["group_north_1_accuracy"] == found.groups["north 1"].accuracy
    assert kept.metrics["group_north_1_accuracy_2"] == found.groups["north-1"].accuracy
    assert len(kept.metrics) == len(found.figures)
    assert all(re.fullmatch(r"[A-Za-z_]\w*", name, re.ASCII) for name in kept.metrics)
    assert all(type(value) is float for value in kept.metrics.values())
    assert json.loads(kept.files["audit.json"])["accuracy"] == found.accuracy
    assert kept.files["audit.txt"] == f"{found}\n"


def test_other_audits_are_logged_as_well() -> None:
    kept = Kept()
    log_audit(audit(Z[:, 0], Normal(Z[:, 1], np.ones(120))), kept, prefix="test")
    assert kept.metrics["test_coverage_0_9"] > 0
    assert [*kept.files] == ["test/audit.json", "test/audit.txt"]
    log_audit(audit(Z[:, 0], Normal(Z[:, 1], np.ones(120))), kept, prefix="../x y")
    assert kept.metrics["x_y_coverage_0_9"] > 0
    assert [*kept.files] == ["x_y/audit.json", "x_y/audit.txt"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")  # those of MLflow
def test_a_run_holds_the_audit_the_report_and_the_policy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, policy: Policy
) -> None:
    monkeypatch.setenv("MLFLOW_DISABLE_TELEMETRY", "true")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")  # no tables to make first
    mlflow = pytest.importorskip("mlflow")
    mlflow.set_tracking_uri(f"file:{tmp_path}/store")
    place = mlflow.create_experiment("calibration", f"file:{tmp_path}/artifacts")
    mlflow.set_experiment(experiment_id=place)
    found, report = audit(Y, Logits(Z), n_resamples=40), make_report(Y, Logits(Z))
    policy.save(tmp_path / "policy.json")
    number = log_audit(found, "mlflow", report=report, policy=tmp_path / "policy.json")
    assert mlflow.active_run() is None
    run = mlflow.get_run(number)
    assert run.info.status == "FINISHED"
    assert run.data.metrics["accuracy"] == found.accuracy

    def file(name: str) -> str:
        return str(mlflow.artifacts.load_text(f"{run.info.artifact_uri}/{name}"))

    assert file("report.html") == report.html
    assert Policy.from_json(file("policy.json")).to_json() == policy.to_json()
    # Within a run of the caller's own, that one is used, and stays open.
    with mlflow.start_run() as own:
        assert log_audit(found, policy=policy, prefix="test") == own.info.run_id
        assert mlflow.active_run() is not None
    assert mlflow.get_run(own.info.run_id).data.metrics["test_accuracy"] == found.accuracy


def test_arguments_that_are_no_audit_or_tracker_raise(policy: Policy) -> None:
    found = audit(Y, Logits(Z), n_resamples=0)
    wrong: list[tuple[Any, dict[str, Any], str]] = [
        (policy, {}, r"`audit` must be an audit, got Policy\. Pass audit"),
        (found, {"report": 3}, r"`report` must be a report, or the path.*got int"),
        (found, {"policy": found}, r"`policy` must be a policy.*got Audit"),
    ]
    for given, others, said in wrong:
        with pytest.raises(BadTypeError, match=said):
            log_audit(given, Kept(), **others)
    with pytest.raises(BadValueError, match=r"'mlflow' or a function.*got 'wandb'"):
        log_audit(found, "wandb")  # type: ignore[arg-type]
