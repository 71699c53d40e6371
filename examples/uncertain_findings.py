"""Train a network on several findings per row, some of them uncertain or unknown.

Usage: python examples/uncertain_findings.py [FOLDER]

Needs PyTorch. Generates rows with five findings, trains a network with dropout, and writes its
outputs, a calibrator and a report to FOLDER.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from dubito import MultiLabel, audit
from dubito.calibrate import MultiLabelCalibrator
from dubito.doubt import MultiLabelRiskControl, decompose_uncertainty
from dubito.learn import Bernoulli, CollectedOutputs, MonteCarloDropout, collect_outputs
from dubito.learn.passes import seeded
from dubito.report import make_report

NAMES = ["atelectasis", "cardiomegaly", "edema", "effusion", "nodule"]
N_FEATURES, N_EPOCHS = 10, 40
LIKELIHOOD = Bernoulli(len(NAMES), uncertain="ignore")  # -1: a reviewer was uncertain

Say = Callable[[str], object]


class Images(NamedTuple):
    """Features of images, and their findings: 0, 1, -1 where uncertain, NaN where unknown."""

    features: Tensor
    findings: Tensor


def make_images(n_rows: int, seed: int) -> Images:
    """Return images whose findings follow from their features."""
    fixed, rng = np.random.default_rng(0), np.random.default_rng(seed)
    weights = fixed.normal(size=(N_FEATURES, len(NAMES))) / 2
    features = rng.normal(size=(n_rows, N_FEATURES))
    odds = features @ weights + np.sin(2 * features @ weights[:, ::-1]) - [0.5, 1, 1.5, 0, 2.5]
    p = 1 / (1 + np.exp(-odds))
    findings = (rng.random(p.shape) < p) * 1.0
    findings[rng.random(p.shape) < 0.5 * p * (1 - p)] = -1
    findings[rng.random(p.shape) < 0.1] = np.nan
    return Images(torch.tensor(features).float(), torch.tensor(findings).float())


def train(images: Images, n_epochs: int = N_EPOCHS) -> nn.Module:
    """Return a network trained on the findings that are known."""
    model = nn.Sequential(
        nn.Linear(N_FEATURES, 128),
        nn.ReLU(),
        nn.Dropout(0.2),
        nn.Linear(128, LIKELIHOOD.n_outputs),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(n_epochs):
        for features, findings in DataLoader(TensorDataset(*images), batch_size=64, shuffle=True):
            optimizer.zero_grad()
            torch.autograd.backward(LIKELIHOOD.loss(model(features), findings))
            optimizer.step()
    return model.eval()


def named(found: CollectedOutputs) -> MultiLabel:
    """Return collected outputs with the names of the findings."""
    assert isinstance(found.outputs, MultiLabel)
    return MultiLabel.from_logits(found.outputs.log_odds, NAMES)


def run(folder: Path, say: Say = print, n_epochs: int = N_EPOCHS) -> MultiLabelCalibrator:
    """Train, audit, calibrate, and control the recall, with comments."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {
        name: make_images(1000, k) for k, name in enumerate(("train", "fit", "control", "test"))
    }
    with seeded(0):
        model = train(parts["train"], n_epochs)
        fit, control, test = (
            collect_outputs(
                model, [parts[name]], likelihood=LIKELIHOOD, path=folder / f"{name}.parquet"
            )
            for name in ("fit", "control", "test")
        )
        passes = MonteCarloDropout(model, n_passes=20, likelihood=LIKELIHOOD)
        members = passes(parts["test"].features)
    before = audit(test.labels, named(test))
    say(f"{before}\n")
    calibrator = MultiLabelCalibrator().fit(named(fit), fit.labels)
    (folder / "calibrator.json").write_text(json.dumps(calibrator.to_dict()))
    calibrated = calibrator.transform(named(test))
    after = audit(test.labels, calibrated)
    say(f"{calibrator.summary()}\nAfter calibration: {after.verdict}\n")
    say(f"{'ECE, mean over findings':<32} {'before':>8} {'after':>8}")
    errors = [one.means["macro"]["expected_calibration_error"] for one in (before, after)]
    say(f"{'':<32} {errors[0]:8.4f} {errors[1]:8.4f}\n")
    sets = MultiLabelRiskControl("recall", 0.9).fit(
        calibrator.transform(named(control)), control.labels
    )
    sizes = sets.predict(calibrated).sizes
    say(f"A recall of 0.9 is promised with {sizes.mean():.2f} findings per image on average.")
    uncertainty = decompose_uncertainty(members)
    say("\nMean epistemic uncertainty in nats, from 20 dropout passes:\n")
    for name, value in zip(NAMES, uncertainty.epistemic.mean(axis=0), strict=True):
        say(f"  {name:<16} {value:.4f}")
    make_report(test.labels, named(test), title="Findings").save(folder / "report.html")
    say(f"\nWritten to {folder}: outputs, calibrator.json and report.html.")
    return calibrator


def main() -> None:
    """Run the example."""
    run(Path(sys.argv[1] if len(sys.argv) > 1 else "uncertain-findings"))


if __name__ == "__main__":
    main()
