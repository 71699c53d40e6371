"""The report on several labels per row."""

import numpy as np
import pytest

from dubito import MultiLabel, audit
from dubito.errors import BadTypeError
from dubito.report import make_report
from dubito.report.content import Table
from dubito.report.sections.labels import labels_sections, labels_verdict


def test_a_report_ranks_labels_and_draws_them() -> None:
    rng = np.random.default_rng(0)
    odds = rng.normal(-1, 1.5, (500, 3))
    y = (rng.random((500, 3)) < 1 / (1 + np.exp(-odds * [1.0, 0.2, 1.0]))) * 1.0
    p = 1 / (1 + np.exp(-odds))
    names = ["cough", "<b>fever", "rash"]
    y[:, 2] = np.nan
    found = audit(y, MultiLabel(p, names), groups=["a", "b"] * 250, n_resamples=40)
    assert labels_verdict(found).headline == "1 of 2 labels is miscalibrated."
    labels, *_, groups = labels_sections(found)
    heat_map = labels.blocks[1]
    assert isinstance(heat_map, Table)
    assert [row[0] for row in heat_map.rows] == ["<b>fever *", "cough"]
    assert heat_map.heat[0][4] == 5 > heat_map.heat[1][4]  # ECE
    assert isinstance(groups.blocks[0], Table)
    assert [row[:2] for row in groups.blocks[0].rows] == [("a", "<b>fever"), ("b", "<b>fever")]
    page = make_report(y, MultiLabel(p, names)).html
    assert "&lt;b&gt;fever *" in page
    assert "<b>fever" not in page
    assert "Labels without a known row: rash" in page
    assert page.count("<svg") == 2
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    with pytest.raises(BadTypeError, match="several labels"):
        make_report(y, MultiLabel(p), ood=MultiLabel(p))
