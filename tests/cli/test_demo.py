import json
import re
from dataclasses import fields, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dubito.data import FashionMNISTSample, load_fashion_mnist
from dubito.decide import Policy
from dubito.measure import audit
from dubito.outputs import Logits
from tests.cli.conftest import Run

N_ROWS = 500


@pytest.fixture
def sample(monkeypatch: pytest.MonkeyPatch) -> FashionMNISTSample:
    """Some rows of the sample, so that the demo takes a moment; the README's test takes all."""
    whole = load_fashion_mnist()
    parts = {
        field.name: getattr(whole, field.name)[:N_ROWS]
        for field in fields(whole)
        if field.name.endswith(("_logits", "_labels", "_features"))
    }
    some = replace(whole, **parts)
    monkeypatch.setattr("dubito.data.load_fashion_mnist", lambda: some)
    return some


@pytest.mark.slow
def test_the_demo_prints_and_writes_every_step(run: Run, sample: FashionMNISTSample) -> None:
    done = run("demo")
    assert done.exit_code == 0, done.output
    output = done.stdout
    assert "Over-confident: mean confidence" in output
    assert re.search(r"^ +value +95 % interval$", output, flags=re.MULTILINE)
    before, after = map(
        float, re.findall(r"log loss +([\d.]+) +([\d.]+)$", output, re.MULTILINE)[-1]
    )
    assert after < 0.8 * before
    costs = [float(cost) for cost in re.findall(r"([\d.]+) per image", output)]
    assert costs == sorted(costs, reverse=True)
    assert "unseen classes" in output
    for command in ("audit FILE", "fit FILE", "decide policy.json"):
        assert f"  dubito {command}" in output
    assert max(map(len, output.splitlines())) <= 80
    folder = Path("dubito-demo")
    names = sorted(path.name for path in folder.iterdir())
    assert names == ["decisions.parquet", "policy.json", "report.html"]
    decisions = pd.read_parquet(folder / "decisions.parquet")
    parts = ["test", "unseen_classes", "digits", "corrupted"]
    assert decisions["file"].drop_duplicates().tolist() == parts
    assert len(decisions) == 4 * N_ROWS
    assert (folder / "policy.json").stat().st_size < 200_000
    policy = Policy.load(folder / "policy.json")
    found = policy.decide(Logits(sample.digits_logits, sample.classes), sample.digits_features)
    digits = decisions[decisions["file"] == "digits"]
    assert digits["action"].tolist() == found.columns()["action"].tolist()


@pytest.mark.slow
def test_figures_are_there_as_json(run: Run, sample: FashionMNISTSample) -> None:
    printed = json.loads(run("demo", "--json", "--folder", "made/here").stdout)
    logits = Logits(sample.test_logits, sample.classes)
    names = [sample.classes[label] for label in sample.test_labels]
    assert printed["audit"]["log_loss"] == pytest.approx(audit(names, logits).log_loss)
    assert printed["folder"] == "made/here"
    policy = Policy.load("made/here/policy.json")
    found = policy.decide(logits, sample.test_features)
    is_wrong = found.predicted_class != sample.test_labels
    cost = np.where(found.is_rejected, 0.2, is_wrong).mean()
    assert printed["decisions"]["the policy"] == pytest.approx(cost)
    assert printed["decisions"]["fraction rejected"] == pytest.approx(found.is_rejected.mean())
    raw = np.exp(sample.unseen_classes_logits - sample.unseen_classes_logits.max(1, keepdims=True))
    says = (raw.max(1) / raw.sum(1)).mean()
    row = printed["out-of-distribution"]["bags and boots (unseen classes)"]
    assert row["confidence"] == pytest.approx(says, rel=1e-5)


@pytest.mark.slow
def test_the_binary_demo_leads_from_a_file_of_probabilities_to_decisions(run: Run) -> None:
    done = run("demo", "--binary", "--folder", "fraud")
    assert done.exit_code == 0, done.output
    output = " ".join(done.stdout.split())
    for command in ("audit fraud/payments.csv", "fit fraud/payments.csv", "decide fraud/policy"):
        assert f"$ dubito {command}" in output
    assert "P(fraud) is too low and too extreme" in output
    assert "By calibrated P(fraud): pass below 0.02 (uncalibrated " in output
    assert "A threshold of 0.5 on the uncalibrated P(fraud) costs" in output
    names = {path.name for path in Path("fraud").iterdir()}
    written = {"policy.json", "report.html", "decisions.csv", "review.csv"}
    assert names == {"payments.csv", "new.csv", "costs.csv", *written}
    new, decided = (pd.read_csv(Path("fraud", name)) for name in ("new.csv", "decisions.csv"))
    policy = Policy.load("fraud/policy.json")
    found = policy.decide(np.column_stack([1 - new["p"], new["p"]]))
    assert decided["action"].tolist() == found.columns()["action"].tolist()
    assert decided["id"].tolist() == new["id"].tolist()
    review = pd.read_csv("fraud/review.csv")
    assert len(review) == found.is_rejected.sum() > 0


@pytest.mark.slow
def test_the_binary_demo_as_json(run: Run) -> None:
    done = run("demo", "--binary", "--json")
    printed = json.loads(done.stdout)
    assert set(printed) == {"audit", "fit", "decide", "folder"}
    assert printed["audit"]["n_rows"] == 15_000
    assert printed["fit"]["report"]["current_saved"][0] > 0
    assert printed["folder"] == "dubito-demo"


@pytest.mark.slow
def test_several_findings_are_audited_and_calibrated(run: Run) -> None:
    done = run("demo", "--multilabel", "--folder", "findings")
    assert done.exit_code == 0, done.output
    assert "'effusion' the most: calibration slope 0.4" in " ".join(done.stdout.split())
    assert "edema, calibration gap" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "cannot be combined" in run("demo", "--multilabel", "--binary").stderr
    made = pd.read_csv("findings/findings.csv")
    marks = made.filter(like="y_").stack().value_counts(normalize=True)
    assert set(map(str, marks.index)) == {"0", "1", "u"}
    assert 0.05 < marks["u"] < 0.15
    assert Path("findings/findings.csv").stat().st_size < 400_000
    assert len(pd.read_csv("findings/decisions.csv")) == 1000
