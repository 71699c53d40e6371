"""Rows as pools learn from them."""

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from sklearn.metrics import log_loss

from dubito import Probabilities
from dubito.data import Batch
from dubito.decide.combine import PoolData

P = Probabilities([[0.9, 0.1], [0.4, 0.6]])
Q = Probabilities([[0.5, 0.5], [0.2, 0.8]])


def test_likelihoods_are_those_of_the_labels() -> None:
    data = PoolData.of(Batch.of([0, 1], P, sample_weight=[1, 3]), [P, Q])
    likelihoods, weights = data.likelihoods()
    close(likelihoods, [[0.9, 0.5], [0.6, 0.8]])
    assert weights.tolist() == [1, 3]


def test_label_probabilities_are_a_row_for_each_class() -> None:
    data = PoolData.of(Batch.of([[1, 0], [0.25, 0.75]], P), [P, Q])
    likelihoods, weights = data.likelihoods()
    close(likelihoods, [[0.9, 0.5], [0.4, 0.2], [0.6, 0.8]])
    assert weights.tolist() == [1, 0.25, 0.75]


def test_the_loss_is_the_log_loss_of_what_is_taken() -> None:
    data = PoolData.of(Batch.of([0, 1], P, sample_weight=[1, 3]), [P, Q])
    expected = log_loss([0, 1], P.array, sample_weight=[1, 3])
    assert data.loss_of(data.logs[0] + 5) == pytest.approx(expected)
    one = data.take(np.array([False, True]))
    assert one.loss_of(one.logs[1]) == pytest.approx(-np.log(0.8))
