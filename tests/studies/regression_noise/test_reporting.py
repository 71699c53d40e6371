"""Tables show what they are given."""

import numpy as np

from studies.regression_noise.minkowski import POWERS
from studies.regression_noise.reporting import METHODS, power_table, task_table


def test_tables_show_means_over_seeds() -> None:
    figures = np.zeros((2, len(METHODS), 2, 5))
    figures[:, 1, 1, 2] = [0.8, 0.9]
    row = task_table("diabetes", figures).splitlines()[2 + 3]
    assert row.startswith("| NLL, scaled | 0.00 ± 0.00 | 0.000 ± 0.000 | 0.850 ± 0.071 |")
    found = np.full((2, len(POWERS)), 0.2)
    row = power_table(found, found, found).splitlines()[2 + 2]
    assert row.startswith("| 2 | 0.200 | 0.200 ± 0.000 |")
