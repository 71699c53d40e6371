"""The parts of a regression's report say what was computed."""

from typing import Any

import numpy as np
import pytest

from dubito import Normal, Quantiles
from dubito.data.batch import Batch
from dubito.data.shards import ArrayShards
from dubito.report.blocks import Section, Table, Text
from dubito.report.formatting import figure, share
from dubito.report.regression_summary import RegressionSummary
from dubito.report.sections.regression import regression_sections, regression_verdict


def made(factor: float, n_rows: int = 400, **known: Any) -> RegressionSummary:
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=n_rows), rng.uniform(0.2, 1, n_rows)
    y = mean + factor * std * rng.normal(size=n_rows)
    return RegressionSummary.of(ArrayShards(Batch.of(y, Normal(mean, std), **known)))


def parts(summary: RegressionSummary) -> dict[str, Section]:
    return {section.anchor: section for section in regression_sections(summary)}


def table_of(section: Section) -> Table:
    return next(block for block in section.blocks if isinstance(block, Table))


def test_false_certainty_is_told_with_what_mends_it() -> None:
    summary = made(2.0)
    verdict = regression_verdict(summary)
    assert (verdict.headline, verdict.mood) == ("Over-confident.", "bad")
    assert verdict.sentences[0].endswith("Measured on 400 rows.")
    assert verdict.sentences[1].startswith("VarianceScaling mends it (stated spread was too small")


def test_true_certainty_needs_no_mending() -> None:
    verdict = regression_verdict(made(1.0))
    assert verdict.headline == "No sign of false certainty on 400 rows."
    assert (len(verdict.sentences), verdict.mood) == (1, "good")


def test_without_intervals_there_is_no_verdict() -> None:
    y = np.arange(20.0)
    batch = Batch.of(y, Quantiles(y[:, np.newaxis] + 0.5, [0.5]))
    summary = RegressionSummary.of(ArrayShards(batch))
    verdict = regression_verdict(summary)
    assert verdict.headline == "No two quantiles that make a central interval (20 rows)."
    assert (verdict.sentences, verdict.mood) == ((), "neutral")
    assert len(regression_sections(summary)) == 5


def test_figures_stand_before_and_after() -> None:
    summary = made(2.0)
    lines = {row[0]: row[1:] for row in table_of(parts(summary)["figures"]).rows}
    score = summary.before.audit.continuous_ranked_probability_score
    assert lines["CRPS"][0].startswith(figure(score))
    assert lines["share inside intervals of 0.9"][2] == "0.9"


def test_the_leaderboard_marks_what_is_used() -> None:
    summary = made(2.0)
    rows = table_of(parts(summary)["calibrators"]).rows
    assert [row[0] for row in rows] == ["as it came", "VarianceScaling", "QuantileRecalibration"]
    assert [row[-1] for row in rows] == ["", "used", ""]
    gap = np.abs(summary.before.audit.coverage - summary.before.audit.levels).max()
    assert rows[0][3] == share(gap)


def test_keeping_the_surest_half_is_told() -> None:
    summary = made(1.0)
    batch = summary.before.batch
    text = parts(summary)["deciding"].blocks[0]
    assert isinstance(text, Text)
    outputs, truth = batch.outputs, batch.labels
    assert isinstance(outputs, Normal)
    errors = (np.asarray(truth.values) - outputs.mean) ** 2  # type: ignore[union-attr]
    order = np.argsort(summary.after.batch.outputs.std, kind="stable")  # type: ignore[attr-defined]
    half = np.sqrt(errors[order[:200]].mean())
    assert text.words == (
        f"Keeping the half of the rows that it is surest of, the root mean squared error is "
        f"{figure(half)} instead of {figure(np.sqrt(errors.mean()))}."
    )


def test_groups_and_missing_targets_are_told() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=60)
    y[3] = np.nan
    batch = Batch.of(y, Normal(np.zeros(60), np.ones(60)), groups=["a", "b"] * 30)
    figures = parts(RegressionSummary.of(ArrayShards(batch)))["figures"]
    assert Text("1 row without a target left out.") in figures.blocks
    groups = figures.blocks[-1]
    assert isinstance(groups, Table)
    assert [row[:2] for row in groups.rows] == [("a", "30"), ("b", "29")]


def test_the_widest_and_the_most_surprising_rows_come_first() -> None:
    summary = made(1.0, ids=[f"id-{k}" for k in range(400)])
    widest, surprising = parts(summary)["rows"].blocks[0].blocks  # type: ignore[union-attr]
    outputs: Any = summary.after.batch.outputs
    assert isinstance(widest, Table)
    assert isinstance(surprising, Table)
    assert widest.rows[0][0] == f"id-{np.argmax(outputs.std)}"
    truth: Any = summary.before.batch.labels
    z = np.abs(truth.values - outputs.mean) / outputs.std
    assert surprising.rows[0][0] == f"id-{np.argmax(z)}"
    assert widest.rows[0][3] == figure(float(3.2897072539 * outputs.std.max()))


def test_no_row_is_the_widest_where_all_are_as_wide() -> None:
    rng = np.random.default_rng(0)
    mean = 1000 + rng.normal(size=60)
    outputs = Normal(mean, np.full(60, 0.7))
    batch = Batch.of(mean + rng.normal(size=60), outputs)
    tables = parts(RegressionSummary.of(ArrayShards(batch)))["rows"].blocks[0].blocks  # type: ignore[union-attr]
    assert [table.caption[:20] for table in tables] == ["The most surprising "]  # type: ignore[union-attr]


@pytest.mark.parametrize("factor", [0.4, 1.0, 2.5])
def test_a_caption_says_what_the_places_of_truths_look_like(factor: float) -> None:
    row = parts(made(factor))["coverage"].blocks[-1]
    words = {
        0.4: "low at both ends: too wide",
        1.0: "about flat",
        2.5: "high at both ends: too narrow",
    }
    assert row.blocks[0].caption.endswith(f"this one is {words[factor]}.")  # type: ignore[union-attr]
