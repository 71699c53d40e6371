from pathlib import Path

import numpy as np
import pytest

from dubito.data import Columns, LabelMatrix, read
from examples.uncertain_findings import LIKELIHOOD, make_images, run


@pytest.mark.slow
def test_the_example_calibrates_and_controls_the_recall(tmp_path: Path) -> None:
    message: list[str] = []
    calibrator = run(tmp_path, message.append, n_epochs=15)
    story = "\n".join(message)
    before, after = (float(one) for one in message[3].split())
    assert after < before
    assert "A recall of 0.9 is promised with" in story
    assert "epistemic uncertainty" in story
    assert (tmp_path / "report.html").stat().st_size > 10_000
    written = read(tmp_path / "test.parquet", Columns(multilabel_logits="logit_*", label="label_*"))
    assert isinstance(written.labels, LabelMatrix)
    findings = make_images(1000, 3).findings.numpy()
    assert (np.isnan(written.labels.values) == ~(findings >= 0)).all()
    assert calibrator.n_labels_ == LIKELIHOOD.n_targets == 5
