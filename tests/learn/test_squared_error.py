import numpy as np
import pytest
import torch
from scipy import optimize, special, stats

from dubito import Logits
from dubito.errors import BadValueError
from dubito.learn import SquaredError
from dubito.measure import brier_score


def test_it_is_a_normal_likelihood_up_to_a_constant() -> None:
    rng = np.random.default_rng(0)
    logits, y = rng.normal(size=(30, 4)), rng.integers(4, size=30)
    loss = SquaredError(4).loss(torch.tensor(logits), torch.tensor(y)).item()
    normal = stats.norm(special.softmax(logits, axis=1), 0.5**0.5)
    expected = -normal.logpdf(np.eye(4)[y]).sum(axis=1).mean() - 2 * np.log(np.pi)
    assert loss == pytest.approx(expected, rel=1e-12)


def test_it_is_the_brier_score() -> None:
    rng = np.random.default_rng(1)
    logits, y = rng.normal(size=(30, 4)), rng.integers(4, size=30)
    loss = SquaredError(4).loss(torch.tensor(logits), torch.tensor(y)).item()
    assert loss == pytest.approx(brier_score(y, Logits(logits)), rel=1e-9)


def test_it_predicts_classes() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    torch.testing.assert_close(SquaredError(3).predict(logits).probs, logits.softmax(1))
    with pytest.raises(
        BadValueError,
        match="SquaredError: `n_classes` must be an integer of at least 2, "
        r"got 1\. Use n_classes=2",
    ):
        SquaredError(1)


def test_raw_scores_tend_to_the_probabilities() -> None:
    rng = np.random.default_rng(2)
    scores, y = rng.normal(size=(30, 4)), rng.integers(4, size=30)
    raw = SquaredError(4, on="scores")
    expected = ((np.eye(4)[y] - scores) ** 2).sum(axis=1).mean()
    loss = raw.loss(torch.tensor(scores), torch.tensor(y)).item()
    assert loss == pytest.approx(expected, rel=1e-12)
    # The best constant scores are the class frequencies, which are predicted as they are.
    best = np.bincount(y, minlength=4) / 30
    fitted = torch.tensor(np.tile(best, (30, 1)), requires_grad=True)
    torch.autograd.backward(raw.loss(fitted, torch.tensor(y)))
    assert fitted.grad is not None
    np.testing.assert_allclose(fitted.grad.sum(0).numpy(), 0, atol=1e-12)
    np.testing.assert_allclose(raw.predict(fitted.detach()[:1]).probs.numpy()[0], best, rtol=1e-9)
    predicted = raw.predict(torch.tensor([[1.2, -0.1]], dtype=torch.float64)[:, [0, 1, 1, 1]])
    assert predicted.mode.tolist() == [0]
    logits = raw.logits(torch.tensor([[0.5, 0.25, 0.25, 0.0]], dtype=torch.float64))
    np.testing.assert_allclose(logits.softmax(1).numpy(), [[0.5, 0.25, 0.25, 0]], atol=2e-4)
    with pytest.raises(BadValueError, match="`on` must be"):
        SquaredError(3, on="raw")  # type: ignore[arg-type]


def test_raw_scores_are_projected_onto_the_simplex() -> None:
    raw = SquaredError(3, on="scores")
    scores = torch.tensor([[1.2, 1.5, -0.1], [-0.5, -0.2, -0.9]], dtype=torch.float64)
    expected = [[0.35, 0.65, 0.0], [0.35, 0.65, 0.0]]  # by hand: both nearest points
    np.testing.assert_allclose(raw.predict(scores).probs.numpy(), expected, atol=1e-4)
    rng = np.random.default_rng(3)
    many = rng.normal(0.3, 0.6, size=(20, 3))
    predicted = raw.predict(torch.tensor(many)).probs.numpy()
    for row, found in zip(many, predicted, strict=True):
        # The nearest point is the excess over a level, which a root search finds, too.
        level = optimize.brentq(lambda at, row=row: np.maximum(row - at, 0).sum() - 1, -9, 9)
        np.testing.assert_allclose(found, np.maximum(row - level, 0), atol=5e-4)


@pytest.mark.parametrize("scale", [0.1, 1.0, 100.0])
def test_predictions_keep_the_order_of_raw_scores(scale: float) -> None:
    raw = SquaredError(10, on="scores")
    scores = torch.tensor(np.random.default_rng(4).normal(0, scale, size=(500, 10)))
    logits = raw.logits(scores)
    assert torch.isfinite(logits).all()
    assert (logits.argsort(1) == scores.argsort(1)).all()
    assert (raw.predict(scores).mode == scores.argmax(1)).all()
    # No label is further from the prediction than from the scores.
    predicted = raw.predict(scores).probs
    for label in torch.eye(10, dtype=torch.float64):
        excess = (predicted - label).square().sum(1) - (scores - label).square().sum(1)
        assert excess.max() < 2e-3
    maps = raw.logits(scores.reshape(5, 10, 10, 10).movedim(3, 1))
    torch.testing.assert_close(maps.movedim(1, 3).reshape(500, 10), logits)
