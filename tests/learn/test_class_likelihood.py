from typing import Any

import numpy as np
import pytest
import torch

from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.learn import Categorical
from dubito.learn.class_likelihoods import _label_shares, cross_entropy

ZEROS = torch.zeros(2, 3)


def test_classes_and_shares_are_put_on_the_last_axis() -> None:
    y = torch.tensor([[0, 2], [1, 1]])
    shares = _label_shares(y, (2, 2), 3, "test")
    assert torch.equal(shares.argmax(-1), y)
    soft = torch.rand(2, 3, 4, 5)
    soft = soft / soft.sum(1, keepdim=True)
    torch.testing.assert_close(_label_shares(soft, (2, 4, 5), 3, "test"), soft.movedim(1, -1))


def test_shares_close_to_1_are_renormalized() -> None:
    shares = _label_shares(torch.tensor([[0.5, 0.5005]]), (1,), 2, "test")
    assert shares.sum().item() == pytest.approx(1)


def test_an_impossible_class_counts_only_where_it_has_a_share() -> None:
    logits = torch.tensor([[0.0, 0.0, -torch.inf]], requires_grad=True)
    loss = cross_entropy(logits.log_softmax(-1), torch.tensor([[1.0, 0.0, 0.0]])).sum()
    assert loss.item() == pytest.approx(np.log(2))
    loss.backward()  # type: ignore[no-untyped-call]
    assert logits.grad is not None
    assert logits.grad.isfinite().all()
    shares = torch.tensor([[0.5, 0.0, 0.5]])
    assert cross_entropy(logits.log_softmax(-1), shares).item() == torch.inf


BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([0, 3])),
        BadValueError,
        "`y` of Categorical.loss must be class numbers from 0 to 2. Got 3 in row 1. "
        "Try `uncertain_labels` where others mark rows.",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([-1, 0])),
        BadValueError,
        "`y` of Categorical.loss must be class numbers from 0 to 2. Got -1 in row 0. "
        "Try `uncertain_labels` where others mark rows.",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([[0], [1]])),
        BadValueError,
        "`y` of Categorical.loss must be of shape (2,). Got shape (2, 1). "
        "Try one class number a row, or label probabilities of floating point.",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([0.0, 1.0])),
        BadValueError,
        "`y` of Categorical.loss must be label probabilities of shape (2, 3). Got shape (2,). "
        "Try `.long()` for class numbers.",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([True, False])),
        BadTypeError,
        "`y` of Categorical.loss must be class numbers or label probabilities. Got booleans. "
        "Try `.long()` for class numbers.",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([[0.5, 0.6, -0.1], [1.0, 0.0, 0.0]])),
        BadValueError,
        "`y` of Categorical.loss must be probabilities, 0 or above. Got -0.1 in row 0, column 2. "
        "Try mending such labels, or NaN for one that is not known.",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])),
        BadValueError,
        "`y` of Categorical.loss must be rows that sum to 1. Got a sum of 2 in row 1. "
        "Try dividing each row by its sum, or NaN in all of a row to leave it out.",
    ),
    (
        lambda: Categorical(3).loss(ZEROS[:1], torch.tensor([[1.0, torch.nan, 0.0]])),
        BadValueError,
        "`y` of Categorical.loss must be rows that sum to 1. Got a sum of nan in row 0. "
        "Try dividing each row by its sum, or NaN in all of a row to leave it out.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_told(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert str(caught.value) == message
