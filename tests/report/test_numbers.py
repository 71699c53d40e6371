"""Numbers as a page tells them."""

import pytest

from dubito.measure import Interval
from dubito.report.formatting import ABSENT, chance, figure, points, share, spaced, with_interval


@pytest.mark.parametrize(
    ("value", "told"), [(0.08521, "0.0852"), (-0.5, "-0.5000"), (12.345, "12.35"), (1e4, "10,000")]
)
def test_figures_have_as_many_digits_as_they_need(value: float, told: str) -> None:
    assert figure(value) == told


def test_what_is_unknown_is_a_dash() -> None:
    assert figure(None) == share(None) == with_interval(None, None) == ABSENT


def test_shares_points_and_chances() -> None:
    assert (share(0.12346, 2), share(1.0)) == ("12.35\u00a0%", "100.0\u00a0%")
    assert (points(-0.0123), chance(0.00004), chance(0.5)) == ("-1.2", "< 0.0001", "0.5000")


def test_an_interval_stands_behind_its_figure() -> None:
    assert with_interval(2.0, Interval(2.0, 1.0, 3.0)) == "2.0000 (1.0000 to 3.0000)"


def test_per_cent_signs_stay_with_their_numbers() -> None:
    assert spaced("5% or 6 %, but % alone") == "5\u00a0% or 6\u00a0%, but % alone"
