"""The decision section in its initial state."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dubito import Logits
from dubito.data import ArrayShards, Batch
from dubito.decide import CostMatrix, Policy, cost_report
from dubito.formatting import cost, percent
from dubito.report.content import Figure, Row, Table, Text, fragment
from dubito.report.sample import Outcome, draw_sample
from dubito.report.sections.abstention import (
    _cost_origin,
    _cost_text,
    _panel,
    _policy_text,
    decisions_section,
)
from dubito.report.summary import Summary


def test_the_section_states_its_rows(summary: Summary) -> None:
    text, _, charts, paid, classes = decisions_section(summary).blocks
    assert isinstance(classes, Table)
    assert classes.columns[-1] == "otherwise most often predicted as"
    assert isinstance(text, Text)
    assert "recomputed here on all rows, with" in text.text
    assert isinstance(charts, Row)
    assert isinstance(paid, Text)
    assert paid.text == _cost_text(summary)


def test_a_sample_of_the_rows_is_stated(summary: Summary) -> None:
    few = replace(summary, sample=draw_sample(summary.after.take(slice(0, 9)), None, 0))
    intro = decisions_section(few).blocks[0]
    assert isinstance(intro, Text)
    assert f"on a random sample of 9 of {len(summary.before)} rows, with" in intro.text


def test_the_best_way_is_marked(summary: Summary) -> None:
    found = _panel(summary.sample)
    assert found.count('class="best"') == 1
    assert found.count("data-policy=") == 4
    assert f'value="{summary.sample.cheapest_threshold:g}"' in found


def test_an_outcome_is_formatted_as_by_the_script() -> None:
    outcomes = {
        "yours": ("Yours", 0.5, Outcome(0.645, 0.01904, 1234.56)),
        "none": ("None", None, Outcome(1.0, 0.0, 5.0)),
    }
    page = fragment(
        "decisions.html.j2",
        threshold="0.5",
        classes=("a",),
        actions=("a",),
        reject=None,
        costs=[["0"]],
        n=1200,
        outcomes=outcomes,
        best="none",
        absent="-",
    )
    shown = re.findall('data-figure="[a-z]+">(.*?)</td>', page)
    assert shown[:5] == ["0.500", "64.5\u00a0%", "1.90\u00a0%", "355.0", "1,235"]
    assert shown[5:] == ["-", "100.0\u00a0%", "0.00\u00a0%", "0.0", "5.00"]
    assert "on the 1,200 rows" in page
    assert page.count('class="best"') == 1


def test_the_origin_of_costs_is_stated(summary: Summary) -> None:
    sample = summary.sample
    assert _cost_origin(summary) == "The costs are those given for this report."
    partly = replace(summary, sample=replace(sample, is_given_review=False))
    assert _cost_origin(partly).startswith("The costs are yours, except those of a review")
    example = replace(sample, has_given_costs=False)
    assert _cost_origin(replace(summary, sample=example, costs=None)).startswith(
        "The costs are an exam"
    )
    assert _cost_origin(replace(summary, sample=example)).startswith("There are too many classes")


def test_the_cost_of_decisions_is_that_of_the_library(summary: Summary) -> None:
    report = summary.cost_report
    assert report is not None
    words = _cost_text(summary)
    assert words.startswith("Taking the action of lowest expected cost for each row costs")
    assert f"costs {cost(1000 * report.realized.value)[0]} per 1,000 rows (95 % interval" in words
    assert f"“{report.constant_action}” would cost {cost(1000 * report.constant)[0]}" in words


def test_cost_matrices_too_large_to_edit_are_used() -> None:
    rng = np.random.default_rng(0)
    logits = Logits(rng.normal(size=(60, 14)))
    costs = CostMatrix.zero_one(14).with_reject(0.5)
    found = Summary.of(ArrayShards(Batch.of(rng.integers(0, 14, 60), logits)), costs=costs)
    assert found.has_fixed_costs
    after = found.after
    expected = cost_report(after.labels, after.outputs, costs)
    assert found.cost_report == expected
    assert _cost_text(found).startswith("With the given costs, taking the action of lowest")


def with_rate(row_costs: Any) -> Summary:
    rng = np.random.default_rng(0)
    costs = CostMatrix([[0, "1 + 2 * amount"], [1, 0]])
    logits = Logits(rng.normal(size=(60, 2)))
    batch = Batch.of(rng.integers(0, 2, 60), logits, row_costs=row_costs)
    return Summary.of(ArrayShards(batch), costs=costs)


def test_row_costs_have_no_editor() -> None:
    found = with_rate(np.arange(60.0))
    said, table, paid, chart, *_ = decisions_section(found).blocks
    assert isinstance(table, Table)
    assert table.columns == ("Action", "0", "1")
    assert table.rows == (("0", "0", "1 + 2 * amount"), ("1", "1", "0"))
    assert isinstance(said, Text)
    assert "vary from row to row" in said.text
    after = found.after
    assert found.costs is not None
    expected = cost_report(after.labels, after.outputs, found.costs, np.arange(60.0))
    assert isinstance(paid, Text)
    assert f"costs {cost(1000 * expected.realized.value)[0]} per 1,000 rows (95" in paid.text
    assert isinstance(chart, Row)
    figure = chart.blocks[0]
    assert isinstance(figure, Figure)
    assert not figure.charts[0].handles


def test_rates_need_row_costs() -> None:
    assert _cost_text(with_rate(None)).startswith("The cost of decisions is unknown")


def test_a_policy_is_a_decision_rule(batch: Batch, costs: CostMatrix) -> None:
    rows = batch.take(np.flatnonzero(np.arange(240) != 7))
    policy = Policy.fit(rows.outputs, rows.labels, costs=costs, features=rows.features)
    found = Summary.of(ArrayShards(batch), policy=policy)
    kept = found.policy_report
    assert kept is not None
    html = _panel(found.sample)
    assert html.count("data-policy=") == 5
    assert html.index('data-policy="policy"') < html.index('data-policy="expected"')
    words = _policy_text(found)
    assert f"costs {cost(1000 * kept.cost.value)[0]} per 1,000 rows (95" in words
    assert f"decides {percent(kept.coverage.value)} of the rows, " in words
    assert _cost_origin(found).startswith("The costs are those of the policy.")
    assert _policy_text(replace(found, policy_report=None)) == ""
    *_, confusion, _ = decisions_section(found).blocks
    assert isinstance(confusion, Table)
    counts = {row[0]: [float(cell.replace(",", "")) for cell in row[1:]] for row in confusion.rows}
    parts = {name: list(row.values()) for name, row in kept.confusion.items()}
    assert counts == {
        name: pytest.approx([10_000 * part for part in row], abs=0.501)
        for name, row in parts.items()
    }
