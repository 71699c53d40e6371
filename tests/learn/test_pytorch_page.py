"""The code blocks of the PyTorch page run in order."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubito.data import Columns, scan
from dubito.decide import Policy
from dubito.measure import Audit

PAGE = Path(__file__).parents[2] / "docs" / "pytorch.md"


def test_the_page_on_pytorch_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(), flags=re.DOTALL)
    monkeypatch.chdir(tmp_path)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "pytorch.md", "exec"), names)
    assert len(blocks) == 12
    check_results(names, tmp_path)
    printed = capsys.readouterr().out
    assert "last epoch: log loss" in printed
    uncertainties = [float(one) for one in re.findall(r"noise \d: mean 1 - MSP (\S+)", printed)]
    assert len(uncertainties) == 3
    assert uncertainties == sorted(uncertainties)


def check_results(names: dict[str, Any], folder: Path) -> None:
    columns = Columns(label="label", logits="logit_*", features="feature_*")
    kept = Audit.of(scan(folder / "test.parquet", columns))
    assert kept.accuracy > 0.9
    assert kept.n_rows == 497
    expected = names["calibrator"].predict_proba(names["new"].logits)
    assert np.abs(names["probabilities"] - expected).max() < 1e-6
    assert names["passes"].array.shape == (20, 497, 10)
    assert names["maps"].epistemic.shape == (8, 8, 8)
    members, far = names["members"], names["far"]
    assert np.abs(members.mean - np.sin(4 * names["x"][600:, 0].numpy())).mean() < 0.1
    assert far.epistemic_variance[0] > 10 * members.epistemic_variance.mean()
    assert names["tagged"].array.shape == (10, 50, 3)
    new, ood = names["new"], names["ood"]
    policy = Policy.load(folder / "policy.json")
    rejected = policy.decide(ood.logits, ood.features).is_rejected.mean()
    assert rejected > 0.5 > policy.decide(new.logits, new.features).is_rejected.mean()
