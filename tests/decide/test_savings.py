"""What calibration saved: paired, signed, and none where nothing changed."""

import re
from dataclasses import astuple

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy.special import softmax

from dubito import Logits
from dubito.decide import CostMatrix, cost_savings
from dubito.decide.value import MeanInterval
from dubito.errors import BadValueError

COSTS = CostMatrix.zero_one(3).with_reject(0.2)


def made(n_rows: int = 3000) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return labels drawn from logits, and these logits."""
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 2, (n_rows, 3))
    y = (softmax(logits, axis=1).cumsum(axis=1) < rng.random((n_rows, 1))).sum(axis=1)
    return np.minimum(y, 2), logits


def paid_and_expected(
    y: NDArray[np.int64], logits: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    expected = softmax(logits, axis=1) @ COSTS.array.T
    return COSTS.array[expected.argmin(axis=1), y], expected.min(axis=1)


@pytest.mark.slow
def test_every_figure_agrees_with_plain_numpy() -> None:
    y, logits = made()
    found = cost_savings(y, Logits(4 * logits), Logits(logits), COSTS)
    before, said_before = paid_and_expected(y, 4 * logits)
    after, said_after = paid_and_expected(y, logits)
    close([found.before, found.after], [before.mean(), after.mean()])
    close(found.saved.value, (before - after).mean())
    close(found.gap_before.value, (said_before - before).mean())
    close(found.gap_after.value, (said_after - after).mean(), atol=1e-12)
    assert found.ratio is not None
    assert found.gap_ratio is not None
    close(found.ratio.value, after.mean() / before.mean())
    close(found.gap_ratio.value, abs(found.gap_after.value / found.gap_before.value))
    error = (before - after).std() / np.sqrt(y.size)
    close(found.saved.low, found.saved.value - 1.96 * error, atol=0.3 * error)
    close(found.saved.high, found.saved.value + 1.96 * error, atol=0.3 * error)
    assert found.ratio.low < found.ratio.value < found.ratio.high
    assert (found.n_rows, found.level) == (3000, 0.95)


@pytest.mark.slow
def test_it_says_whether_it_saved_lost_or_neither() -> None:
    y, logits = made()
    sharp, calibrated = Logits(4 * logits), Logits(logits)
    assert str(cost_savings(y, sharp, calibrated, COSTS)).startswith("Saves 0.0")
    assert str(cost_savings(y, calibrated, sharp, COSTS)).startswith("Costs 0.0")
    same = cost_savings(y, sharp, sharp, COSTS)
    assert (same.saved.value, same.saved.low, same.saved.high) == (0.0, 0.0, 0.0)
    assert str(same).startswith("No significant difference in cost, savings +0.0000 (+0.0000 to ")
    assert same.ratio is not None
    assert same.ratio.value == 1.0


@pytest.mark.slow
def test_weights_count_as_repeated_rows() -> None:
    y, logits = made(50)
    weight = np.arange(50) % 3 + 1.0
    rows = np.repeat(np.arange(50), weight.astype(int))
    weighted = cost_savings(y, Logits(4 * logits), Logits(logits), COSTS, sample_weight=weight)
    repeated = cost_savings(y[rows], Logits(4 * logits[rows]), Logits(logits[rows]), COSTS)
    close(weighted.saved.value, repeated.saved.value)


@pytest.mark.slow
def test_no_ratio_where_there_was_nothing_to_save() -> None:
    found = cost_savings([0, 1], [[1.0, 0.0], [0.0, 1.0]], [[0.5, 0.5]] * 2, CostMatrix.zero_one(2))
    assert found.ratio is None
    assert found.gap_ratio is None
    gains = CostMatrix([[-1.0, 0.0], [0.0, -1.0]])
    assert cost_savings([0, 1], [[0.9, 0.1]] * 2, [[0.6, 0.4]] * 2, gains).ratio is None


def test_errors_say_what_to_do() -> None:
    with pytest.raises(BadValueError) as raised:
        cost_savings([0], [[0.5, 0.5]], [[0.5, 0.5]] * 2, CostMatrix.zero_one(2))
    assert re.search(r"`after` .*got 2\. Pass outputs of the", str(raised.value))
    message = "cost_savings: `after` has rows of different lengths: row 0 has 2, row 1 has 1"
    with pytest.raises(BadValueError, match=message):
        cost_savings([0], [[0.5, 0.5]], [[0.5, 0.5], [1.0]], CostMatrix.zero_one(2))


def test_intervals_of_several_columns_are_those_of_each() -> None:
    rng = np.random.default_rng(0)
    columns, weight = rng.normal(size=(3, 60)), rng.integers(0, 3, 60).astype(float)
    importance = rng.uniform(0.5, 2, 60)
    bootstrap = MeanInterval.of(0.95, 0, 200, "test")
    together = bootstrap.of_columns(list(columns), weight, importance)
    for column, found in zip(columns, together, strict=True):
        alone = bootstrap(column, weight, importance)
        close(astuple(found), astuple(alone), rtol=1e-12)
