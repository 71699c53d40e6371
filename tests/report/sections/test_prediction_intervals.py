"""The sections of a regression report show what was computed."""

from typing import Any

import numpy as np
import pytest

from dubito import Normal, Quantiles
from dubito.data import ArrayShards, Batch
from dubito.formatting import decimal, percent
from dubito.report import Section
from dubito.report.content import Table, Text
from dubito.report.regression_summary import RegressionSummary
from dubito.report.sections.prediction_intervals import regression_sections, regression_verdict


def made(factor: float, n_rows: int = 400, **known: Any) -> RegressionSummary:
    rng = np.random.default_rng(0)
    mean, std = rng.normal(size=n_rows), rng.uniform(0.2, 1, n_rows)
    y = mean + factor * std * rng.normal(size=n_rows)
    return RegressionSummary.of(ArrayShards(Batch.of(y, Normal(mean, std), **known)))


def parts(summary: RegressionSummary) -> dict[str, Section]:
    return {section.anchor: section for section in regression_sections(summary)}


def table_of(section: Section) -> Table:
    return next(block for block in section.blocks if isinstance(block, Table))


def test_over_confidence_is_reported_with_what_corrects_it() -> None:
    summary = made(2.0)
    verdict = regression_verdict(summary)
    assert (verdict.headline, verdict.mood) == ("Over-confident.", "bad")
    assert verdict.sentences[0].endswith("Measured on 400 rows.")
    assert verdict.sentences[1].startswith("VarianceScaling corrects it (")


def test_calibrated_intervals_need_no_correction() -> None:
    verdict = regression_verdict(made(1.0))
    assert verdict.headline.startswith("No sign of ")
    assert verdict.headline.endswith(" on 400 rows.")
    assert (len(verdict.sentences), verdict.mood) == (1, "good")


def test_without_intervals_the_verdict_is_neutral() -> None:
    y = np.arange(20.0)
    batch = Batch.of(y, Quantiles(y[:, np.newaxis] + 0.5, [0.5]))
    summary = RegressionSummary.of(ArrayShards(batch))
    verdict = regression_verdict(summary)
    assert "(20 rows)" in verdict.headline
    assert (verdict.sentences, verdict.mood) == ((), "neutral")
    assert len(regression_sections(summary)) == 5


def test_metrics_before_and_after() -> None:
    summary = made(2.0)
    lines = {row[0]: row[1:] for row in table_of(parts(summary)["metrics"]).rows}
    score = summary.before.audit.continuous_ranked_probability_score
    assert lines["CRPS"][0].startswith(decimal(score))
    assert lines["coverage of 90 % intervals"][2] == "0.9"


def test_the_selected_calibrator_is_marked() -> None:
    summary = made(2.0)
    rows = table_of(parts(summary)["calibrators"]).rows
    assert [row[0] for row in rows] == ["uncalibrated", "VarianceScaling", "QuantileRecalibration"]
    assert [row[-1] for row in rows] == ["", "selected", ""]
    gap = np.abs(summary.before.audit.coverage - summary.before.audit.levels).max()
    assert rows[0][3] == percent(gap)


def test_the_error_of_the_narrowest_half_is_stated() -> None:
    summary = made(1.0)
    batch = summary.before.batch
    text = parts(summary)["decisions"].blocks[0]
    assert isinstance(text, Text)
    outputs, truth = batch.outputs, batch.labels
    assert isinstance(outputs, Normal)
    errors = (np.asarray(truth.values) - outputs.mean) ** 2  # type: ignore[union-attr]
    order = np.argsort(summary.after.batch.outputs.std, kind="stable")  # type: ignore[attr-defined]
    half = np.sqrt(errors[order[:200]].mean())
    assert text.text == (
        "For the half of the rows with the narrowest intervals, the root mean squared error is "
        f"{decimal(half)} instead of {decimal(np.sqrt(errors.mean()))}."
    )


def test_groups_and_missing_targets_are_reported() -> None:
    rng = np.random.default_rng(0)
    y = rng.normal(size=60)
    y[3] = np.nan
    batch = Batch.of(y, Normal(np.zeros(60), np.ones(60)), groups=["a", "b"] * 30)
    metrics = parts(RegressionSummary.of(ArrayShards(batch)))["metrics"]
    assert Text("1 row without a target left out.") in metrics.blocks
    groups = metrics.blocks[-1]
    assert isinstance(groups, Table)
    assert [row[:2] for row in groups.rows] == [("a", "30"), ("b", "29")]


@pytest.mark.slow
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
    assert widest.rows[0][3] == decimal(float(3.2897072539 * outputs.std.max()))


def test_equal_widths_have_no_widest_rows() -> None:
    rng = np.random.default_rng(0)
    mean = 1000 + rng.normal(size=60)
    outputs = Normal(mean, np.full(60, 0.7))
    batch = Batch.of(mean + rng.normal(size=60), outputs)
    tables = parts(RegressionSummary.of(ArrayShards(batch)))["rows"].blocks[0].blocks  # type: ignore[union-attr]
    assert [table.caption[:20] for table in tables] == ["The most surprising "]  # type: ignore[union-attr]


@pytest.mark.parametrize("factor", [0.4, 1.0, 2.5])
def test_a_caption_describes_the_pit_histogram(factor: float) -> None:
    row = parts(made(factor))["coverage"].blocks[-1]
    words = {
        0.4: "low at both ends: intervals are too wide",
        1.0: "about flat",
        2.5: "high at both ends: intervals are too narrow",
    }
    assert row.blocks[0].caption.endswith(f"this one is {words[factor]}.")  # type: ignore[union-attr]
