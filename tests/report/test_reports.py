"""One call, one file."""

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dubito import Logits, Normal, TopLabel
from dubito.data import Batch, Columns, scan
from dubito.decide import CostMatrix, Policy
from dubito.errors import BadTypeError, BadValueError
from dubito.report import Report, make_report
from dubito.report.reports import TITLE, _classifier_report
from dubito.report.summary import Summary


@pytest.fixture(scope="module")
def page(summary: Summary) -> Report:
    return _classifier_report(summary, TITLE)


def test_all_sections_are_in_order(page: Report) -> None:
    found = re.findall(r'<section class="part([ \w]*)" id="(\w+)"', page.html)
    parts = "decisions reliability metrics groups uncertainty rows provenance calibrators"
    assert [name for _, name in found] == parts.split()
    assert [kind.strip() for kind, _ in found] == ["", "", *["detail"] * 6]
    assert page.html.index('class="verdict') < page.html.index('id="decisions"')
    assert re.search(r'id="calibrators"[^>]*>\s*<details>', page.html)
    assert str(page) == page.verdict
    assert re.match(r"Decisions cost 0\.\d+ per row\. Mean cost per row: 0", page.verdict)
    assert " Over-confident. " in page.verdict


def test_it_is_small_and_has_all_that_reproduces_it(page: Report, summary: Summary) -> None:
    assert len(page.html.encode()) < 500_000
    assert summary.provenance.fingerprint in page.html
    assert "a &lt; b" in page.html
    assert "1 without" in page.html


@pytest.mark.slow
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


def test_shards_of_a_file_make_a_report(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    lines = [f"{rng.integers(0, 2)},{p:.3f}" for p in rng.uniform(size=50)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join(["y,p", *lines]))
    found = Report.of(scan(path, Columns(label="y", probabilities="p")), title="From a file")
    assert "<title>From a file</title>" in found.html


def test_regressions_have_their_own_sections() -> None:
    rng = np.random.default_rng(0)
    mean = rng.normal(size=60)
    found = make_report(mean + rng.normal(size=60), Normal(mean, np.full(60, 0.3)))
    parts = re.findall(r'<section class="part[ \w]*" id="(\w+)"', found.html)
    assert parts == ["coverage", "metrics", "calibrators", "decisions", "rows", "provenance"]
    assert found.verdict.startswith("Over-confident. ")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"calibration": [0, 1]},
            r"`calibration` must be a pair .*, got list\. Pass calibration=\(y, Logits\(logits\)\)",
        ),
        (
            {"costs": [[0, 1], [1, 0]]},
            r"`costs`.* must be a CostMatrix.*list.*CostMatrix\(costs\)",
        ),
        (
            {"policy": "policy.json"},
            r"`policy` must be a fitted Policy, got str\. Use Policy\.fit",
        ),
    ],
)
def test_bad_arguments_raise_an_error(given: dict[str, Any], message: str) -> None:
    with pytest.raises(BadTypeError, match=message):
        make_report([0, 1], [[0.5, 0.5], [0.5, 0.5]], **given)


@pytest.mark.slow
def test_a_policy_has_its_own_calibrator_and_costs() -> None:
    costs = CostMatrix.zero_one(2).with_reject(0.2)
    outputs = [[0.8, 0.2], [0.3, 0.7]] * 20
    policy = Policy.fit(outputs, [0, 1] * 20, costs=costs)
    page = make_report([0, 1] * 20, outputs, policy=policy)
    assert page.verdict.startswith("Predict 1 at calibrated P(1) ≥ 0.8 (uncalibrated 0.")
    assert "The costs are those of the policy." in page.html
    assert "A fitted calibrator was supplied" in page.html
    for name, value in {"costs": costs, "calibration": policy.calibrator}.items():
        message = f"`{name}` must be None with a policy.*, got {type(value).__name__}"
        with pytest.raises(BadTypeError, match=message):
            make_report([0, 1] * 20, outputs, policy=policy, **{name: value})  # type: ignore[arg-type]


def test_row_costs_make_a_page_without_an_editor() -> None:
    costs = CostMatrix([[0, "1 + amount"], [1, 0]])
    outputs = [[0.8, 0.2], [0.3, 0.7]] * 20
    page = make_report([0, 1] * 20, outputs, row_costs=np.arange(40.0), costs=costs)
    assert "vary from row to row" in page.html
    assert "data-decisions>" not in page.html
    assert 'id="data"' not in page.html


def test_a_regression_has_no_costs() -> None:
    with pytest.raises(BadTypeError, match="`costs` must be None for a regression, got CostMatrix"):
        make_report([0.0], Normal([0.0], [1.0]), costs=CostMatrix.zero_one(2))


def test_labels_are_needed() -> None:
    with pytest.raises(BadTypeError, match=r"`y_true`.*labels"):
        make_report(None, [0.5])


@pytest.mark.parametrize("n_rows", [1, 9, 10])
def test_few_rows_make_a_page(n_rows: int) -> None:
    rng = np.random.default_rng(n_rows)
    logits = Logits(rng.normal(size=(n_rows, 3)))
    found = make_report(rng.integers(0, 3, n_rows), logits, ood=logits)
    assert ">nan" not in found.html


def test_top_labels_and_a_batch_of_ood_rows() -> None:
    rng = np.random.default_rng(0)
    outputs = TopLabel(rng.uniform(size=40), rng.uniform(size=40) < 0.5)
    ood = Batch.of(None, [[0.5, 0.5]] * 5)
    assert "OOD rows (5)" in make_report(None, outputs, ood=ood).html


def test_a_report_is_saved_as_html_only(page: Report, tmp_path: Path) -> None:
    with pytest.raises(BadValueError, match=r"must end in \.html, got .*report\.pdf"):
        page.save(tmp_path / "report.pdf")
    assert not list(tmp_path.iterdir())
