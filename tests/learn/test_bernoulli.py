import numpy as np
import pytest
import torch
from scipy import special, stats

from dubito.errors import BadValueError
from dubito.learn import Bernoulli


def test_it_is_the_likelihood_of_scipy() -> None:
    rng = np.random.default_rng(0)
    log_odds, y = rng.normal(size=(30, 4)), rng.integers(2, size=(30, 4))
    expected = -stats.bernoulli(special.expit(log_odds)).logpmf(y).sum(axis=1)
    losses = Bernoulli(4).losses(torch.tensor(log_odds), torch.tensor(y))
    np.testing.assert_allclose(losses, expected, rtol=1e-12)
    log_likelihood = Bernoulli(4).predict(torch.tensor(log_odds)).log_prob(torch.tensor(y).double())
    np.testing.assert_allclose(-log_likelihood, expected, rtol=1e-12)


def test_shares_are_the_mean_of_both_answers() -> None:
    outputs = torch.tensor([[1.5]])
    no, yes, share = (Bernoulli().loss(outputs, torch.tensor([p])).item() for p in (0.0, 1.0, 0.25))
    assert share == pytest.approx(0.75 * no + 0.25 * yes)


def test_booleans_are_answers() -> None:
    outputs = torch.tensor([[1.5], [-0.5]])
    wanted = Bernoulli().loss(outputs, torch.tensor([1, 0]))
    assert torch.equal(Bernoulli().loss(outputs, torch.tensor([True, False])), wanted)


def test_answers_are_between_0_and_1() -> None:
    with pytest.raises(
        BadValueError,
        match=r"`y` .*, got -1 in row 1, column 0\. Fix the labels, or use NaN for an unknown one",
    ):
        Bernoulli().loss(torch.zeros(2, 1), torch.tensor([1, -1]))
    with pytest.raises(
        BadValueError,
        match="Bernoulli: `n_targets` must be an integer of at "
        r"least 1, got 0\. Use n_targets=1",
    ):
        Bernoulli(n_targets=0)
