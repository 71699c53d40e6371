"""The report on a regression policy: decisions first, with the figures of the policy."""

import numpy as np
import pytest

from dubito import ErrorCosts, Normal, RegressionPolicy
from dubito.calibrate import VarianceScaling
from dubito.data import ArrayShards, Batch
from dubito.errors import BadTypeError
from dubito.formatting import decimal, percent
from dubito.report import Report, make_report
from dubito.report.content import Cards, Table, Text
from dubito.report.sections.prediction_intervals import (
    value_decisions_section,
    value_policy_verdict,
)
from studies.common.serving import fitted_label_policy

RNG = np.random.default_rng(0)
MEAN, STD = RNG.normal(100, 20, 200), np.exp(RNG.normal(1, 0.6, 200))
Y = MEAN + 2 * STD * RNG.normal(size=200)
ROWS = ArrayShards(Batch.of(Y, Normal(MEAN, STD)))


@pytest.mark.slow
def test_decisions_come_first_with_the_figures_of_the_policy() -> None:
    policy, evidence = RegressionPolicy.fit_shards(
        ROWS, costs=ErrorCosts.linear(4, 1), calibrator=VarianceScaling(), review_cost=12
    )
    figures = policy.report
    section = value_decisions_section(policy, figures)
    text, cards, rules, reasons, notes = section.blocks
    assert isinstance(text, Text)
    assert "the calibrated 80 % quantile" in text.text
    assert isinstance(cards, Cards)
    assert [one.value for one in cards.cards] == [
        decimal(figures.cost.value),
        f"{figures.mean_saved.value:+.4g}",
        percent(figures.coverage.value),
        percent(figures.review_rate.value),
    ]
    assert isinstance(rules, Table)
    costs = (
        figures.cost.value,
        figures.uncalibrated_cost,
        figures.mean_cost,
        figures.constant_cost,
    )
    assert [row[1] for row in rules.rows] == [decimal(one) for one in costs]
    assert isinstance(reasons, Table)
    assert reasons.rows[0] == ("lower cost", percent(figures.review_rate.value))
    assert isinstance(notes, Text)
    verdict = value_policy_verdict(figures)
    assert verdict.headline == f"Decisions cost {decimal(figures.cost.value)} per row."
    assert verdict.mood == "good"
    page = Report.of(ROWS, policy=policy, evidence=evidence).html
    assert page.index("What is decided?") < page.index("Are the prediction intervals calibrated?")
    on_rows = make_report(Y, Normal(MEAN, STD), policy=policy)
    assert "the rows of this report" in on_rows.html


def test_a_policy_of_another_kind_is_rejected() -> None:
    with pytest.raises(
        BadTypeError, match=r"must be a fitted RegressionPolicy.*RegressionPolicy\."
    ):
        make_report(Y, Normal(MEAN, STD), policy=fitted_label_policy())
