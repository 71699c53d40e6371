import numpy as np
import pytest
import torch
from scipy import stats

from dubito.errors import BadValueError
from dubito.learn import Laplace


def test_it_is_the_likelihood_of_scipy() -> None:
    rng = np.random.default_rng(0)
    location, log_scale, y = rng.normal(size=(3, 30, 2))
    outputs = torch.tensor(np.hstack([location, log_scale]))
    expected = -stats.laplace(location, np.exp(log_scale)).logpdf(y).sum(axis=1)
    likelihood = Laplace(2)
    np.testing.assert_allclose(likelihood.losses(outputs, torch.tensor(y)), expected, rtol=1e-12)
    log_likelihood = likelihood.predict(outputs).log_prob(torch.tensor(y))
    np.testing.assert_allclose(-log_likelihood, expected, rtol=1e-12)
    assert torch.equal(likelihood.predict(outputs).mode, torch.tensor(location))


def test_its_constant_prediction_is_the_median() -> None:
    y = torch.tensor([0.0, 1.0, 100.0])
    at = [Laplace().loss(torch.tensor([[m, 0.0]] * 3), y).item() for m in (0.5, 1.0, 1.5, 33.0)]
    assert int(np.argmin(at)) == 1


def test_scales_count_from_the_floor_up() -> None:
    deviation = Laplace(floor=-1.0).predict(torch.tensor([[0.0, -5.0]])).stddev
    assert deviation.item() == pytest.approx(2**0.5 * np.exp(-1))
    with pytest.raises(
        BadValueError,
        match="Laplace: `floor` must be a number of at most 60 in "
        r"absolute value, got 'x'\. Use floor=-4\.0",
    ):
        Laplace(floor="x")  # type: ignore[arg-type]
    with pytest.raises(
        BadValueError,
        match="Laplace: `n_targets` must be an integer of at "
        r"least 1, got 0\. Use n_targets=1",
    ):
        Laplace(n_targets=0)
