from typing import Any

import pytest
import torch

from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.learn import Gaussian
from dubito.learn.likelihoods import _row_distribution


def test_several_targets_are_one_event_and_a_single_one_is_a_number() -> None:
    normal = torch.distributions.Normal
    assert _row_distribution(normal, torch.zeros(5, 3), torch.ones(5, 3)).event_shape == (3,)
    single = _row_distribution(normal, torch.zeros(5, 1), torch.ones(5, 1))
    assert (single.batch_shape, single.event_shape) == ((5,), ())


def test_whole_numbers_are_targets_too() -> None:
    loss = Gaussian().loss(torch.zeros(2, 1), torch.tensor([1, 1]))
    assert torch.equal(loss, Gaussian().loss(torch.zeros(2, 1), torch.ones(2)))


ZEROS = torch.zeros(2, 3)
BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: Gaussian(3).loss(ZEROS, torch.zeros(2)),
        BadValueError,
        r"`y` .*, got shape \(2,\)\. Order the targets like the outputs",
    ),
    (
        lambda: Gaussian().loss(torch.zeros(2, 1), torch.zeros(1, 2)),
        BadValueError,
        r"`y` .*, got shape \(1, 2\)\. Order the targets like the outputs",
    ),
    (
        lambda: Gaussian(3).loss(ZEROS, torch.tensor([[0.0, 0.0, 0.0], [0.0, torch.inf, 0.0]])),
        BadValueError,
        r"`y` .*, got inf in row 1, column 1\. Fix the labels, or use NaN for an unknown one",
    ),
    (
        lambda: Gaussian().loss(torch.zeros(2, 1), None),  # type: ignore[arg-type]
        BadTypeError,
        r"`y` .*, got NoneType\. Use torch\.as_tensor\(\.\.\.\)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_reported(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
