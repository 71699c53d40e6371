"""Tables are means of what they are given, and wins are counted right."""

import numpy as np

from dubito.learn import CORRUPTIONS
from studies.shift.telling import METHODS, corruption_table, severity_table, wins

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
