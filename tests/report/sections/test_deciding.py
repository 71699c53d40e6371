"""What ways to decide do, before anyone moves anything."""

from dataclasses import replace
from typing import Any

import numpy as np

from dubito import Logits
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards
from dubito.decide import CostMatrix, Policy, cost_report
from dubito.report.blocks import Row, Text
from dubito.report.formatting import cost, share
from dubito.report.sample import Outcome, drawn
from dubito.report.sections.decisions import _line, _origin, _panel, _policy_worth, _worth, deciding
from dubito.report.summary import Summary


def test_the_section_says_on_which_rows(summary: Summary) -> None:
    text, _, charts, paid = deciding(summary).blocks
    assert isinstance(text, Text)
    assert "recomputed here, on all rows, with" in text.words
    assert isinstance(charts, Row)
    assert isinstance(paid, Text)
    assert paid.words == _worth(summary)


def test_a_sample_of_the_rows_is_told(summary: Summary) -> None:
    few = replace(summary, sample=drawn(summary.after.take(slice(0, 9)), None, 0))
    told = deciding(few).blocks[0]
    assert isinstance(told, Text)
    assert f"on a seeded sample of 9 of {len(summary.before)} rows, with" in told.words


def test_the_best_way_is_marked(summary: Summary) -> None:
    found = _panel(summary.sample)
    assert found.count('class="best"') == 1
    assert found.count("data-policy=") == 4
    assert f'value="{summary.sample.cheapest_threshold:g}"' in found


def test_an_outcome_is_told_as_the_script_tells_it() -> None:
    found = _line("key", "name", 0.5, Outcome(0.645, 0.01904, 1234.56), False)
    told = [found[name] for name in ("threshold", "coverage", "risk", "reviewed", "cost")]
    assert told == ["0.500", "64.5\u00a0%", "1.90\u00a0%", "355.0", "1,235"]
    assert _line("key", "name", None, Outcome(1.0, 0.0, 5.0), True)["cost"] == "5.00"


def test_where_costs_come_from_is_told(summary: Summary) -> None:
    sample = summary.sample
    assert _origin(summary) == "The costs are those the report was made with."
    partly = replace(summary, sample=replace(sample, is_given_review=False))
    assert _origin(partly).startswith("The costs are yours but for the last row")
    example = replace(sample, has_given_costs=False)
    assert _origin(replace(summary, sample=example, costs=None)).startswith("The costs are an exam")
    assert _origin(replace(summary, sample=example)).startswith("A table of all classes is too")


def test_what_decisions_are_worth_is_the_library_s(summary: Summary) -> None:
    report = summary.cost_report
    assert report is not None
    words = _worth(summary)
    assert words.startswith("Taking the action of least expected cost, row by row, 1,000 rows cost")
    assert f"cost {cost(1000 * report.realized.value)} (95\u00a0% interval" in words
    assert f"“{report.constant_action}” would cost {cost(1000 * report.constant)}" in words


def test_costs_too_large_to_edit_are_reckoned_with_all_the_same() -> None:
    rng = np.random.default_rng(0)
    logits = Logits(rng.normal(size=(60, 14)))
    costs = CostMatrix.zero_one(14).with_reject(0.5)
    found = Summary.of(ArrayShards(Batch.of(rng.integers(0, 14, 60), logits)), costs=costs)
    assert found.has_unseen_costs
    after = found.after
    expected = cost_report(after.labels, after.outputs, costs)
    assert found.cost_report == expected
    assert _worth(found).startswith("With the costs given, taking the action of least")


def growing(row_costs: Any) -> Summary:
    rng = np.random.default_rng(0)
    costs = CostMatrix([[0, 1], [1, 0]], rate=[[0, 2], [0, 0]])
    logits = Logits(rng.normal(size=(60, 2)))
    batch = Batch.of(rng.integers(0, 2, 60), logits, row_costs=row_costs)
    return Summary.of(ArrayShards(batch), costs=costs)


def test_costs_that_grow_have_no_editor_but_words() -> None:
    found = growing(np.arange(60.0))
    said, paid, chart = deciding(found).blocks
    assert isinstance(said, Text)
    assert "grow with the amount of each row" in said.words
    after = found.after
    assert found.costs is not None
    expected = cost_report(after.labels, after.outputs, found.costs, np.arange(60.0))
    assert isinstance(paid, Text)
    assert f"1,000 rows cost {cost(1000 * expected.realized.value)} (95" in paid.words
    assert isinstance(chart, Row)
    assert "data-mark" not in str(chart)


def test_costs_that_grow_are_not_reckoned_without_amounts() -> None:
    assert _worth(growing(None)).startswith("These rows came without row_costs")


def test_a_policy_is_a_way_to_decide_and_told_in_words(batch: Batch, costs: CostMatrix) -> None:
    rows = batch.take(np.flatnonzero(np.arange(240) != 7))
    policy = Policy.fit(rows.outputs, rows.labels, costs=costs, features=rows.features)
    found = Summary.of(ArrayShards(batch), policy=policy)
    assert found.decided is not None
    kept = found.decided.report
    html = _panel(found.sample)
    assert html.count("data-policy=") == 5
    assert html.index('data-policy="policy"') < html.index('data-policy="expected"')
    words = _policy_worth(found)
    assert f"cost {cost(1000 * kept.cost.value)} (95" in words
    assert f"decides {share(kept.coverage.value)} of the rows itself, " in words
    assert _origin(found).startswith("The costs are the policy's.")
    assert _policy_worth(replace(found, decided=None)) == ""
