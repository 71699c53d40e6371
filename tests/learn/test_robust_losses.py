from typing import Any

import numpy as np
import pytest
import torch
from scipy import special

from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.learn import Categorical, EarlyLearningRegularization, GeneralizedCrossEntropy


@pytest.mark.parametrize("q", [0.1, 0.7, 1.0])
def test_generalized_cross_entropy_is_its_formula(q: float) -> None:
    rng = np.random.default_rng(0)
    logits, y = rng.normal(size=(30, 4)), rng.integers(4, size=30)
    label = special.softmax(logits, axis=1)[np.arange(30), y]
    losses = GeneralizedCrossEntropy(4, q).losses(torch.tensor(logits), torch.tensor(y))
    np.testing.assert_allclose(losses, (1 - label**q) / q, rtol=1e-12)


def test_near_0_it_is_cross_entropy() -> None:
    torch.manual_seed(0)
    logits, y = torch.randn(20, 3, dtype=torch.float64), torch.randint(3, (20,))
    almost = GeneralizedCrossEntropy(3, q=1e-7).loss(logits, y)
    torch.testing.assert_close(almost, Categorical(3).loss(logits, y), rtol=1e-5, atol=0)


def test_it_predicts_classes() -> None:
    logits = torch.tensor([[0.0, 2.0, 1.0]])
    torch.testing.assert_close(GeneralizedCrossEntropy(3).predict(logits).probs, logits.softmax(1))
    keeper = EarlyLearningRegularization(1, 3)
    torch.testing.assert_close(keeper.predict(logits).probs, logits.softmax(1))
    assert keeper.n_outputs == 3


def test_early_learning_is_its_formula_over_two_rounds() -> None:
    rng = np.random.default_rng(0)
    keeper = EarlyLearningRegularization(10, 3, regularization=2.0, momentum=0.6).double()
    averages = np.zeros((10, 3))
    for rows in ([1, 4, 5], [4, 1, 9]):
        logits, y = rng.normal(size=(3, 3)), rng.integers(3, size=3)
        p = special.softmax(logits, axis=1)
        averages[rows] = 0.6 * averages[rows] + 0.4 * p
        fit = -np.log(p[np.arange(3), y]).mean()
        expected = fit + 2 * np.log(1 - (averages[rows] * p).sum(axis=1)).mean()
        loss = keeper.loss(torch.tensor(logits), torch.tensor(y), torch.tensor(rows))
        assert loss.item() == pytest.approx(expected, rel=1e-12)
    np.testing.assert_allclose(keeper.averages, averages, rtol=1e-12)


def test_its_slopes_take_averages_as_given() -> None:
    torch.manual_seed(0)
    logits, y = torch.randn(4, 3, requires_grad=True), torch.randint(3, (4,))
    keeper = EarlyLearningRegularization(4, 3)
    loss = keeper.loss(logits, y, torch.arange(4))
    averages = keeper.averages.clone()
    agreement = (averages * logits.softmax(1)).sum(1)
    expected = Categorical(3).loss(logits, y) + 3 * torch.log(1 - agreement).mean()
    slopes = [torch.autograd.grad(one, logits)[0] for one in (loss, expected)]
    torch.testing.assert_close(*slopes)


def test_sure_rows_stay_finite_and_averages_are_kept_with_the_network() -> None:
    keeper = EarlyLearningRegularization(2, 2, momentum=0.0)
    logits = torch.tensor([[1e4, -1e4]], requires_grad=True)
    for _ in range(3):
        loss = keeper.loss(logits, torch.tensor([1]), torch.tensor([0]))
    loss.backward()  # type: ignore[no-untyped-call]
    assert loss.isfinite()
    again = EarlyLearningRegularization(2, 2)
    again.load_state_dict(keeper.state_dict())
    assert torch.equal(again.averages, keeper.averages)


LOGITS, LABELS = torch.zeros(2, 3), torch.tensor([0, 1])
BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: GeneralizedCrossEntropy(3, q=0),
        BadValueError,
        r"`q` .*, got 0\. Use Categorical, its limit at 0",
    ),
    (
        lambda: EarlyLearningRegularization(0, 3),
        BadValueError,
        r"`n_rows` .*, got 0\. Use n_rows=1",
    ),
    (
        lambda: EarlyLearningRegularization(5, 3, regularization=-1.0),
        BadValueError,
        r"`regularization` .*, got -1\.0\. Use regularization=3\.0",
    ),
    (
        lambda: EarlyLearningRegularization(5, 3).loss(LOGITS, LABELS, torch.tensor([0, 5])),
        BadValueError,
        r"`rows` must hold row indices from 0 to 4, got 5 in row 1\. Set n_rows to "
        "the size of the training set",
    ),
    (
        lambda: EarlyLearningRegularization(5, 3).loss(LOGITS, LABELS, torch.tensor([0])),
        BadValueError,
        r"`rows` .*, got shape \(1,\)\. Pass one training-set index per row",
    ),
    (
        lambda: EarlyLearningRegularization(5, 3).loss(LOGITS, LABELS, torch.ones(2)),
        BadTypeError,
        r"`rows` .*, got torch\.float32\. Pass the indices that the sampler drew",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_reported(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()


def test_early_learning_compiles_as_a_whole() -> None:
    torch.manual_seed(0)
    outputs, y, rows = torch.randn(4, 3), torch.randint(3, (4,)), torch.arange(4)
    expected = EarlyLearningRegularization(4, 3).loss(outputs, y, rows)
    keeper = EarlyLearningRegularization(4, 3)
    compiled = torch.compile(keeper.loss, backend="eager", fullgraph=True)
    torch.testing.assert_close(compiled(outputs, y, rows), expected)
