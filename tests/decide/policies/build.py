"""Build the stored policy file and its decisions: `python tests/decide/policies/build.py`.

Run it only when the format of the policy file changes before the first release; afterwards the
files stay, and newer versions must decide the same rows in the same way.
"""

import json
from pathlib import Path

import numpy as np

from dubito import Logits
from dubito.calibrate import TemperatureScaling
from dubito.decide import CostMatrix, OODGate, Policy, RiskBound
from dubito.doubt import MahalanobisDistance

FOLDER = Path(__file__).parent
COLUMNS = ("action", "predicted_class", "probability", "expected_cost", "reason", "review_value")


def build(folder: Path = FOLDER) -> None:
    """Write `format-1.json` and `format-1-decisions.json`."""
    rng = np.random.default_rng(0)
    logits = 4 * rng.normal(size=(824, 3))
    y = (logits / 2 + rng.gumbel(size=logits.shape)).argmax(axis=1)
    features = rng.normal(size=(824, 2)) + y[:, np.newaxis]
    known, new = slice(0, 800), slice(800, None)
    policy = Policy.fit(
        Logits(logits[known]),
        y[known],
        costs=CostMatrix.zero_one(["ant", "bee", "cat"]).with_reject(0.5, name="ask"),
        calibrator=TemperatureScaling(),
        deploy_prior=[0.2, 0.3, 0.5],
        features=features[known],
        feature_names=["length", "width"],
        ood=OODGate(MahalanobisDistance(), alpha=0.05),
        risk=RiskBound(0.15, delta=0.1),
    )
    policy.save(folder / "format-1.json")
    rows, inputs = logits[new].round(3), features[new].round(3)
    inputs[:3] += 10  # out-of-distribution
    rows[5:7] = [[1.0, 0.9, 0.8], [0.0, 0.1, -0.2]]  # so uncertain that rejecting costs less
    decisions = policy.decide(Logits(rows), inputs)
    stored = {"logits": rows, "features": inputs}
    stored |= {name: getattr(decisions, name) for name in COLUMNS}
    lines = [f"  {json.dumps(name)}: {json.dumps(v.tolist())}" for name, v in stored.items()]
    text = "{\n" + ",\n".join(lines) + "\n}\n"
    (folder / "format-1-decisions.json").write_text(text)


if __name__ == "__main__":
    build()
