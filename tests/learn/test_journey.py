"""Whatever the page on PyTorch shows runs, in order, in one interpreter."""

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
    assert len(blocks) == 10
    check_what_was_made(names, tmp_path)
    told = capsys.readouterr().out
    assert "the last epoch: log loss" in told
    doubts = [float(one) for one in re.findall(r"noise \d: mean doubt (\S+)", told)]
    assert len(doubts) == 3
    assert doubts == sorted(doubts)


def check_what_was_made(names: dict[str, Any], folder: Path) -> None:
    columns = Columns(label="label", logits="logit_*", features="feature_*")
    kept = Audit.of(scan(folder / "test.parquet", columns))
    assert kept.accuracy > 0.9
    assert kept.n_rows == 497
    said = names["calibrator"].predict_proba(names["new"].logits)
    assert np.abs(names["said"] - said).max() < 1e-6
    assert names["passes"].array.shape == (20, 497, 10)
    assert names["maps"].epistemic.shape == (8, 8, 8)
    new, strange = names["new"], names["strange"]
    policy = Policy.load(folder / "policy.json")
    asked = policy.decide(strange.logits, strange.features).is_rejected.mean()
    assert asked > 0.5 > policy.decide(new.logits, new.features).is_rejected.mean()
