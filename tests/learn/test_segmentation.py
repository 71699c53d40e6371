from typing import Any

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.learn import Categorical, Gaussian, LogitNoise, uncertainty_maps


def test_the_loss_is_the_log_of_the_mean_softmax_over_draws() -> None:
    torch.manual_seed(0)
    outputs, y = torch.randn(6, 8, dtype=torch.float64), torch.randint(4, (6,))
    torch.manual_seed(1)
    losses = LogitNoise(4, n_samples=5).losses(outputs, y)
    torch.manual_seed(1)
    draws = torch.randn(5, 6, 4, dtype=torch.float64).numpy()
    means, deviations = outputs[:, :4].numpy(), np.exp(outputs[:, 4:].numpy() / 2)
    total = np.zeros((6, 4))
    for draw in draws:
        total += special.softmax(means + deviations * draw, axis=1)
    expected = -np.log(total / 5)[np.arange(6), y]
    np.testing.assert_allclose(losses, expected, rtol=1e-10)


def test_many_draws_approach_the_integral() -> None:
    # Of two logits only the difference counts: normal, of both variances together.
    outputs = torch.tensor([[1.0, 0.0, 0.5, -0.5]])
    std = np.sqrt(np.exp(0.5) + np.exp(-0.5))
    expected, _ = integrate.quad(
        lambda x: special.expit(x) * stats.norm(1, std).pdf(x), 1 - 9 * std, 1 + 9 * std
    )
    torch.manual_seed(0)
    found = LogitNoise(2, n_samples=200_000).predict(outputs).probs[0, 0].item()
    assert found == pytest.approx(expected, abs=3e-3)


def test_without_noise_it_is_cross_entropy() -> None:
    torch.manual_seed(0)
    logits, y = torch.randn(6, 3, 2, 2), torch.randint(3, (6, 2, 2))
    outputs = torch.cat([logits, torch.full_like(logits, -60.0)], dim=1)
    loss = LogitNoise(3, floor=-60.0).loss(outputs, y)
    torch.testing.assert_close(loss, Categorical(3).loss(logits, y))


def test_noise_softens_a_sure_and_wrong_pixel() -> None:
    torch.manual_seed(0)
    y = torch.tensor([1])
    sure, noisy = torch.tensor([[8.0, 0.0, -9.0, -9.0]]), torch.tensor([[8.0, 0.0, 4.0, 4.0]])
    assert LogitNoise(2).loss(noisy, y) < LogitNoise(2).loss(sure, y)


def test_maps_decompose_the_uncertainty_of_each_pixel() -> None:
    torch.manual_seed(0)
    passes = [torch.randn(2, 3, 4, 5) for _ in range(6)]
    maps = uncertainty_maps(Categorical(3), passes)
    p = special.softmax(np.stack([one.numpy() for one in passes]).astype(float), axis=2)
    mean = p.mean(axis=0)
    total = stats.entropy(mean, axis=1)
    aleatoric = stats.entropy(p, axis=2).mean(axis=0)
    np.testing.assert_allclose(maps.total, total, rtol=1e-5)
    np.testing.assert_allclose(maps.aleatoric, aleatoric, rtol=1e-5)
    np.testing.assert_allclose(maps.epistemic, total - aleatoric, atol=1e-6)
    np.testing.assert_allclose(maps.confidence, mean.max(axis=1), rtol=1e-5)
    assert (maps.prediction == mean.argmax(axis=1)).all()
    by_variance = uncertainty_maps(Categorical(3), passes, by="variance")
    np.testing.assert_allclose(by_variance.epistemic, p.var(axis=0).sum(axis=1), rtol=1e-4)


def test_passes_that_say_the_same_disagree_about_nothing_however_few_draws_there_are() -> None:
    outputs = torch.randn(2, 6, 3, 3, generator=torch.Generator().manual_seed(0))
    torch.manual_seed(5)
    maps = uncertainty_maps(LogitNoise(3, n_samples=2), [outputs, outputs.clone()])
    assert (maps.epistemic == 0).all()
    assert (maps.aleatoric > 0).all()
    after = torch.rand(1)
    torch.manual_seed(5)
    assert after == torch.rand(1)  # and draw nothing from the caller's random numbers


def test_noise_is_aleatoric_and_disagreement_epistemic() -> None:
    torch.manual_seed(0)
    noisy = torch.zeros(1, 4, 2, 2)
    noisy[:, 2:] = 3.0
    likelihood = LogitNoise(2, n_samples=4000)
    same = uncertainty_maps(likelihood, [noisy, noisy])
    assert (same.aleatoric > 50 * same.epistemic).all()
    one = torch.full((1, 4, 2, 2), -9.0)
    one[:, 0], one[:, 1] = 9.0, -9.0
    other = one[:, [1, 0, 2, 3]]
    torn = uncertainty_maps(likelihood, [one, other])
    assert (torn.epistemic > 50 * torn.aleatoric).all()


ZEROS = torch.zeros(1, 2, 4, 4)
BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: LogitNoise(2, n_samples=0),
        BadValueError,
        r"`n_samples` .*, got 0\. Use n_samples=1",
    ),
    (
        lambda: uncertainty_maps(Gaussian(), [ZEROS, ZEROS]),  # type: ignore[arg-type]
        BadTypeError,
        r"`likelihood` .*, got Gaussian\. Use LogitNoise\(n_classes\)",
    ),
    (
        lambda: uncertainty_maps(Categorical(2), [ZEROS]),
        BadValueError,
        r"`passes` .*, got 1\. Use an ensemble, dropout passes or augmented views",
    ),
    (
        lambda: uncertainty_maps(Categorical(2), [ZEROS, ZEROS[..., :2]]),
        BadValueError,
        r"`passes\[1\]` .*, got shape \(1, 2, 4, 2\)\. Pass the same images in each",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_reported(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
