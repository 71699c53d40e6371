from itertools import islice

import numpy as np

from benchmarks.calibration_rules import Rule, first_rows, make_table, quick_sets
from benchmarks.datasets import generate_logits


def test_the_table_compares_numbers_of_parts() -> None:
    logits, y = generate_logits(160, 2)
    y[::5] = 1 - y[::5]
    rules = {"one": Rule(1), "unchanged": Rule(without="Scaling")}
    lines = make_table([first_rows("small", logits, y, 80)], rules)
    assert len(lines) == 4
    cells = lines[1].split()
    assert cells[:3] == ["small", "80", "2"]
    assert float(cells[-3]) > 1  # a temperature is better than nothing
    assert lines[2].split()[-2:] == lines[3].split()[-2:]  # one dataset: mean and largest agree


def test_development_sets_are_the_same_in_every_run() -> None:
    for first, again in zip(islice(quick_sets(), 3), islice(quick_sets(), 3), strict=True):
        ((fit, test),) = first.splits
        assert fit.size + test.size == first.y.size
        assert np.array_equal(first.logits, again.logits)
        assert np.allclose(np.exp(first.logits).sum(axis=1), 1)
