"""One call, one file."""

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubito import Logits, Normal, TopLabel
from dubito.data import Columns, scan
from dubito.data.batch import Batch
from dubito.decide import CostMatrix, Policy
from dubito.errors import BadTypeError
from dubito.report import Report, make_report
from dubito.report.reports import TITLE, _classifier_report
from dubito.report.summary import Summary


@pytest.fixture(scope="module")
def page(summary: Summary) -> Report:
    return _classifier_report(summary, TITLE)


def test_all_parts_are_there_in_order(page: Report) -> None:
    found = re.findall(r'<section class="part" id="(\w+)"', page.html)
    parts = "reliability figures calibrators deciding doubt rows computing"
    assert found == parts.split()
    assert page.html.index('class="verdict') < page.html.index('id="reliability"')
    assert str(page) == page.verdict
    assert page.verdict.startswith("Over-confident. It says")


def test_it_is_small_and_has_all_that_repeats_it(page: Report, summary: Summary) -> None:
    assert len(page.html.encode()) < 500_000
    assert summary.provenance.fingerprint in page.html
    assert "a &lt; b" in page.html
    assert "1 without" in page.html


def test_the_same_rows_give_the_same_file() -> None:
    pages = [make_report([0, 1] * 20, [[0.8, 0.2], [0.3, 0.7]] * 20).html for _ in range(2)]
    assert pages[0] == pages[1]


def test_it_is_saved_whole_or_not_at_all(page: Report, tmp_path: Path) -> None:
    target = tmp_path / "report.html"
    target.write_text("old")
    assert page.save(target) == target
    assert target.read_text(encoding="utf-8") == page.html
    broken = Report("title", "verdict", "\ud800")
    with pytest.raises(UnicodeEncodeError):
        broken.save(target)
    assert target.read_text(encoding="utf-8") == page.html
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"]


def test_a_notebook_shows_the_page_in_a_frame(page: Report) -> None:
    frame = page._repr_html_()
    assert frame.startswith('<iframe title="')
    assert frame.count("<") == 2
    assert html.unescape(frame.split('srcdoc="')[1].split('"')[0]) == page.html


def test_files_are_reported_on_where_they_are(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{rng.integers(0, 2)},{p:.3f}" for p in rng.uniform(size=50)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["y,p", *lines]))
    found = Report.of(scan(path, Columns(label="y", probabilities="p")), title="From a file")
    assert "<title>From a file</title>" in found.html


def test_regressions_have_their_own_shape() -> None:
    rng = np.random.default_rng(0)
    mean = rng.normal(size=60)
    found = make_report(mean + rng.normal(size=60), Normal(mean, np.full(60, 0.3)))
    parts = re.findall(r'<section class="part" id="(\w+)"', found.html)
    assert parts == ["coverage", "figures", "calibrators", "deciding", "rows", "computing"]
    assert found.verdict.startswith("Over-confident. Intervals that should hold")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"calibration": [0, 1]},
            "`calibration` of report must be a pair of labels and outputs, or a fitted calibrator. "
            "Got list. Try calibration=(y, Logits(logits)).",
        ),
        (
            {"costs": [[0, 1], [1, 0]]},
            "`costs` of report must be a CostMatrix. Got list. "
            "Try CostMatrix(costs), or CostMatrix.from_loss(loss, rows='truth').",
        ),
        (
            {"policy": "policy.json"},
            "`policy` of report must be a fitted Policy. Got str. "
            "Try Policy.fit(...) or Policy.load(path).",
        ),
    ],
)
def test_what_is_wrong_is_told(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadTypeError) as caught:
        make_report([0, 1], [[0.5, 0.5], [0.5, 0.5]], **given)
    assert str(caught.value) == message


def test_a_policy_has_its_own_calibrator_and_costs() -> None:
    costs = CostMatrix.zero_one(2).with_reject(0.2)
    outputs = [[0.8, 0.2], [0.3, 0.7]] * 20
    policy = Policy.fit(outputs, [0, 1] * 20, costs=costs)
    page = make_report([0, 1] * 20, outputs, policy=policy)
    assert 'data-policy="policy"' in page.html
    assert "The calibrator was fitted before" in page.html
    for name, value in {"costs": costs, "calibration": policy.calibrator}.items():
        with pytest.raises(BadTypeError) as caught:
            make_report([0, 1] * 20, outputs, policy=policy, **{name: value})  # type: ignore[arg-type]
        assert str(caught.value) == (
            f"`{name}` of report must be None beside a policy, which has its own. "
            f"Got {type(value).__name__}. Try leaving it out."
        )


def test_costs_that_grow_with_amounts_make_a_page_without_an_editor() -> None:
    costs = CostMatrix([[0, 1], [1, 0]], rate=[[0, 1], [0, 0]])
    outputs = [[0.8, 0.2], [0.3, 0.7]] * 20
    page = make_report([0, 1] * 20, outputs, row_costs=np.arange(40.0), costs=costs)
    assert "grow with the amount of each row" in page.html
    assert "data-deciding>" not in page.html
    assert 'id="data"' not in page.html


def test_a_regression_has_no_costs_and_no_strangers() -> None:
    with pytest.raises(BadTypeError) as caught:
        make_report([0.0], Normal([0.0], [1.0]), costs=CostMatrix.zero_one(2))
    assert str(caught.value) == (
        "`costs` of report must be None for a regression. Got CostMatrix. Try leaving it out."
    )


def test_truth_is_needed() -> None:
    with pytest.raises(BadTypeError, match="`y_true` of report must be the labels"):
        make_report(None, [0.5])


@pytest.mark.parametrize("n_rows", [1, 9, 10])
def test_few_rows_make_a_page_too(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    logits = Logits(rng.normal(size=(n_rows, 3)))
    found = make_report(rng.integers(0, 3, n_rows), logits, strange=logits)
    assert ">nan" not in found.html


def test_top_labels_and_a_batch_of_strangers() -> None:
    rng = np.random.default_rng(0)
    outputs = TopLabel(rng.uniform(size=40), rng.uniform(size=40) < 0.5)
    strange = Batch.of(None, [[0.5, 0.5]] * 5)
    assert "strange rows (5)" in make_report(None, outputs, strange=strange).html
