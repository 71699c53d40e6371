"""The most likely prior: no other is more likely, and its uncertainty is that of the curvature."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from scipy.special import logsumexp

from dubito import Logits, Probabilities
from dubito.decide.priors import PriorLikelihood


def log_likelihood(logits: Any, train: Any, prior: Any) -> float:
    logs = logits - logsumexp(logits, axis=1, keepdims=True) - np.log(train)
    return float(logsumexp(logs, b=prior, axis=1).sum())


@pytest.mark.slow
@given(st.data())
def test_no_other_prior_is_more_likely(data: Any) -> None:
    shape = data.draw(st.tuples(st.integers(1, 8), st.integers(2, 4)))
    logits = data.draw(hnp.arrays(np.float64, shape, elements=st.floats(-30, 30)))
    train = np.arange(1, shape[1] + 1) / np.arange(1, shape[1] + 1).sum()
    found = PriorLikelihood.of(Logits(logits), train, None, "f").estimate()
    assert (found >= 0).all()
    assert found.sum() == pytest.approx(1)
    best = log_likelihood(logits, train, found)
    for other in np.random.default_rng(0).dirichlet(np.ones(shape[1]), 50):
        assert log_likelihood(logits, train, other) <= best + 1e-4


def test_standard_errors_of_sure_rows_are_binomial() -> None:
    sure = Probabilities(np.repeat(np.eye(3), [20, 30, 50], axis=0))
    likelihood = PriorLikelihood.of(sure, np.full(3, 1 / 3), None, "f")
    prior = likelihood.estimate()
    close(prior, [0.2, 0.3, 0.5], atol=1e-9)
    close(likelihood.standard_errors(prior), np.sqrt(prior * (1 - prior) / 100), rtol=1e-6)


@pytest.mark.slow
def test_resamples_of_very_many_rows_spread_as_those_of_all() -> None:
    sure = Probabilities(np.repeat(np.eye(2), [50_000, 150_000], axis=0))
    likelihood = PriorLikelihood.of(sure, np.full(2, 0.5), None, "f")
    prior = likelihood.estimate()
    drawn = np.stack([likelihood.resampled(prior, seed) for seed in range(100)])
    assert drawn[:, 0].std() == pytest.approx(np.sqrt(0.25 * 0.75 / 200_000), rel=0.3)
    close(drawn.sum(axis=1), 1)
