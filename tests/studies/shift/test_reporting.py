"""Tables are means of what they are given, and wins are counted right."""

import numpy as np

from dubito.learn import CORRUPTIONS
from studies.shift.reporting import (
    METHODS,
    corruption_table,
    needed_table,
    severity_table,
    under_confident,
    wins,
)

ACCURACY, ECE, LOG_LOSS = range(3)


def test_tables_are_means_over_corruptions_or_severities() -> None:
    figures = np.zeros((2, len(METHODS), len(CORRUPTIONS), 6, 3))
    figures[:, 4, :, 3, ECE] = [[0.1, 0.1, 0.1, 0.1, 0.6], [0.4, 0.4, 0.4, 0.4, 0.4]]
    row = severity_table(figures[..., ECE]).splitlines()[2 + 4]
    assert row.split(" | ")[4] == "0.300 ± 0.141"
    row = corruption_table(figures).splitlines()[2 + 4]
    assert row.split(" | ")[5] == "0.100 ± 0.028 |"


def test_wins_are_counted_over_seeds_and_shifts() -> None:
    figures = np.ones((3, len(METHODS), 5, 5))
    figures[:, 4] = 0.5
    figures[0, 1, :, 0] = 0.1
    assert wins(figures) == "ensemble 70, temperature 5"


def test_needed_temperatures_are_listed_by_corruption_and_those_below_one_counted() -> None:
    needed = np.full((2, len(CORRUPTIONS), 6), 2.0)
    needed[:, 1, 2] = [0.5, 0.7]
    needed[0, 4, 5] = 0.9
    row = needed_table(needed).splitlines()[2 + 1]
    assert row.split(" | ")[:4] == ["| contrast", "2.00 ± 0.00", "2.00 ± 0.00", "0.60 ± 0.14"]
    text = "under-confident in 3 of 50: blur 0, contrast 2, noise 0, occlusion 0, shift 1."
    assert under_confident(needed[:, :, 1:]) == f"Plain networks are {text}"
