"""Histograms of doubt count every row, and parts of doubt are points."""

import xml.etree.ElementTree as ElementTree

import numpy as np
import pytest

from dubito.report.figures.charts import Population, _shares_in, doubt_histogram, doubt_parts


def test_shares_are_weighted_and_none_is_lost() -> None:
    population = Population(
        "name", "right", np.array([-5.0, 0.1, 0.6, 99.0]), np.array([1.0, 1, 2, 4])
    )
    found = _shares_in(np.array([0.0, 0.5, 1.0]), population)
    assert found.tolist() == [2 / 8, 6 / 8]


@pytest.mark.parametrize("doubt", [[0.5, 0.5], [0.0, 1e-12], [0.0, 1.0], [3.0, 1e6]])
def test_any_doubts_make_a_chart(doubt: list[float]) -> None:
    kinds = [Population(kind, kind, np.array(doubt), np.ones(2)) for kind in ("right", "wrong")]
    chart = ElementTree.fromstring(doubt_histogram("name", "doubt", kinds))
    shares = [float(bar.find("title").text.split()[1][:-2]) for bar in chart.findall("rect")]  # type: ignore[union-attr]
    assert sum(shares) == pytest.approx(200)


def test_each_row_is_a_point() -> None:
    parts = [
        ("right", np.array([0.1, 0.2]), np.array([0.0, 0.3])),
        ("wrong", np.zeros(0), np.zeros(0)),
    ]
    chart = ElementTree.fromstring(doubt_parts("name", parts))
    assert [one.attrib["class"] for one in chart.findall("circle")] == ["speck right"] * 2
