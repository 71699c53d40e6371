from typing import Any

import numpy as np
import pytest
import torch

from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.learn import Categorical
from dubito.learn.class_likelihoods import _label_probabilities, cross_entropy

ZEROS = torch.zeros(2, 3)


def test_classes_and_shares_are_put_on_the_last_axis() -> None:
    y = torch.tensor([[0, 2], [1, 1]])
    shares = _label_probabilities(y, (2, 2), 3, "test")
    assert torch.equal(shares.argmax(-1), y)
    soft = torch.rand(2, 3, 4, 5)
    soft = soft / soft.sum(1, keepdim=True)
    torch.testing.assert_close(
        _label_probabilities(soft, (2, 4, 5), 3, "test"), soft.movedim(1, -1)
    )


def test_shares_close_to_1_are_renormalized() -> None:
    shares = _label_probabilities(torch.tensor([[0.5, 0.5005]]), (1,), 2, "test")
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
        r"`y` .*, got 3 in row 1\. Use uncertain_labels if others mark rows",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([-1, 0])),
        BadValueError,
        r"`y` .*, got -1 in row 0\. Use uncertain_labels if others mark rows",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([[0], [1]])),
        BadValueError,
        r"`y` .*, got shape \(2, 1\)\. Pass one class index per row, or floating-point label "
        "probabilities",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([0.0, 1.0])),
        BadValueError,
        r"`y` .*, got shape \(2,\)\. Call \.long\(\) for indices",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([True, False])),
        BadTypeError,
        r"`y` .*, got booleans\. Call \.long\(\)",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([[0.5, 0.6, -0.1], [1.0, 0.0, 0.0]])),
        BadValueError,
        r"`y` .*, got -0\.1 in row 0, column 2\. Fix the labels, or use NaN for an unknown one",
    ),
    (
        lambda: Categorical(3).loss(ZEROS, torch.tensor([[1.0, 0.0, 0.0], [1.0, 1.0, 0.0]])),
        BadValueError,
        r"`y` .*, got a sum of 2 in row 1\. Divide each row by its sum, or set a whole row to NaN "
        "to ignore it",
    ),
    (
        lambda: Categorical(3).loss(ZEROS[:1], torch.tensor([[1.0, torch.nan, 0.0]])),
        BadValueError,
        r"`y` .*, got a sum of nan in row 0\. Divide each row by its sum, or set a whole row to "
        "NaN to ignore it",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_reported(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
