from typing import Any

import pytest
import torch
from torch import nn

from dubito.errors import BadTypeError
from dubito.learn.collect import Parts, _parted, _require_taken

X, Y, W = torch.zeros(2, 4), torch.tensor([0, 1]), torch.ones(2)
CASES: list[tuple[Any, Any, Parts]] = [
    (X, None, Parts((X,), {})),
    ([X], None, Parts((X,), {})),
    ((X, Y), None, Parts((X,), {}, Y)),
    ((X, W, Y), None, Parts((X, W), {}, Y)),
    ((X, Y, W), tuple, Parts((X,), {}, Y, W)),
    ((X, Y), lambda batch: ((batch[0], W), batch[1]), Parts((X, W), {}, Y)),
    ({"x": X, "y": Y}, lambda batch: ({"x": batch["x"]}, batch["y"]), Parts((), {"x": X}, Y)),
    (X, lambda batch: (batch, None), Parts((X,), {})),
]


@pytest.mark.parametrize(("batch", "unpack", "expected"), CASES)
def test_batches_are_told_apart(batch: Any, unpack: Any, expected: Parts) -> None:
    found = _parted(batch, unpack, "batch 0")
    assert [id(one) for one in found.inputs] == [id(one) for one in expected.inputs]
    assert found.named == expected.named
    assert found.labels is expected.labels
    assert found.weights is expected.weights


PLACES = "unpack=lambda batch: (batch[0], batch[1], batch[2]) for inputs, labels and weights"
BAD: list[tuple[Any, str]] = [
    (
        lambda: _parted(7, None, "batch 3"),
        "`batch 3` of collect_outputs must be inputs, or inputs and labels. Got int. "
        "Try a loader of pairs (inputs, labels).",
    ),
    (
        lambda: _parted(X, "labels", "batch 3"),  # type: ignore[arg-type]
        f"`unpack` of collect_outputs must be a function of a batch. Got str. Try {PLACES}.",
    ),
    (
        lambda: _parted(X, lambda batch: batch, "batch 3"),
        "`unpack` of collect_outputs must be a function that returns (inputs, labels) or (inputs, labels, "
        f"weights). Got Tensor for batch 3. Try {PLACES}.",
    ),
    (
        lambda: _require_taken(nn.Linear(4, 2), Parts((), {"x": X}), "batch 3"),
        "`batch 3` of collect_outputs must be inputs that Linear takes, then labels. Got missing a "
        f"required argument: 'input'. Try {PLACES}.",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_what_cannot_be_told_apart_is_told(call: Any, message: str) -> None:
    with pytest.raises(BadTypeError) as caught:
        call()
    assert str(caught.value) == message


def test_what_a_model_takes_passes() -> None:
    _require_taken(nn.Linear(4, 2), Parts((X,), {}), "batch 0")
    _require_taken(nn.Linear(4, 2), Parts((), {"input": X}), "batch 0")
