"""Numbers as text."""

import pytest

from dubito.measure import Interval
from dubito.report.formatting import (
    ABSENT,
    decimal,
    keep_percent_signs,
    p_value,
    percentage,
    points,
    with_interval,
)


@pytest.mark.parametrize(
    ("value", "text"), [(0.08521, "0.0852"), (-0.5, "-0.5000"), (12.345, "12.35"), (1e4, "10,000")]
)
def test_numbers_have_as_many_digits_as_they_need(value: float, text: str) -> None:
    assert decimal(value) == text


def test_unknown_values_are_a_dash() -> None:
    assert decimal(None) == percentage(None) == with_interval(None, None) == ABSENT


def test_percentages_points_and_p_values() -> None:
    assert (percentage(0.12346, 2), percentage(1.0)) == ("12.35\u00a0%", "100.0\u00a0%")
    assert (points(-0.0123), p_value(0.00004), p_value(0.5)) == ("-1.2", "< 0.0001", "0.5000")


def test_an_interval_follows_its_value() -> None:
    assert with_interval(2.0, Interval(2.0, 1.0, 3.0)) == "2.0000 (1.0000 to 3.0000)"


def test_percent_signs_stay_with_their_numbers() -> None:
    assert keep_percent_signs("5% or 6 %, but % alone") == "5\u00a0% or 6\u00a0%, but % alone"
