from typing import Any

import pytest
import torch
from torch import nn

from dubito.errors import BadTypeError
from dubito.learn.collect import _Parts, _require_accepted, _unpack_batch

X, Y, W = torch.zeros(2, 4), torch.tensor([0, 1]), torch.ones(2)
CASES: list[tuple[Any, Any, _Parts]] = [
    (X, None, _Parts((X,), {})),
    ([X], None, _Parts((X,), {})),
    ((X, Y), None, _Parts((X,), {}, Y)),
    ((X, W, Y), None, _Parts((X, W), {}, Y)),
    ((X, Y, W), tuple, _Parts((X,), {}, Y, W)),
    ((X, Y), lambda batch: ((batch[0], W), batch[1]), _Parts((X, W), {}, Y)),
    ({"x": X, "y": Y}, lambda batch: ({"x": batch["x"]}, batch["y"]), _Parts((), {"x": X}, Y)),
    (X, lambda batch: (batch, None), _Parts((X,), {})),
]


@pytest.mark.parametrize(("batch", "unpack", "expected"), CASES)
def test_batches_are_reported_apart(batch: Any, unpack: Any, expected: _Parts) -> None:
    found = _unpack_batch(batch, unpack, "batch 0")
    assert [id(one) for one in found.inputs] == [id(one) for one in expected.inputs]
    assert found.named == expected.named
    assert found.labels is expected.labels
    assert found.weights is expected.weights


BAD: list[tuple[Any, str]] = [
    (
        lambda: _unpack_batch(7, None, "batch 3"),
        r"`batch 3` .*, got int\. Use a loader of \(inputs, labels\)",
    ),
    (
        lambda: _unpack_batch(X, "labels", "batch 3"),  # type: ignore[arg-type]
        r"`unpack` must be a function of a batch, got str\. Use unpack=lambda batch: "
        r"\(batch\[0\], batch\[1\], batch\[2\]\) for inputs, labels, weights",
    ),
    (
        lambda: _unpack_batch(X, lambda batch: batch, "batch 3"),
        r"`unpack` must return \(inputs, labels\) or \(inputs, labels, weights\), got Tensor "
        r"for batch 3\. Use unpack=lambda batch: \(batch\[0\], batch\[1\], batch\[2\]\) for "
        "inputs, labels, weights",
    ),
    (
        lambda: _require_accepted(nn.Linear(4, 2), _Parts((), {"x": X}), "batch 3"),
        "`batch 3` must be inputs that Linear accepts, then labels, got missing a required "
        r"argument: 'input'\. Use unpack=lambda batch: \(batch\[0\], batch\[1\], batch\[2\]\) "
        "for inputs, labels, weights",
    ),
]


@pytest.mark.parametrize(("call", "message"), BAD)
def test_ambiguous_batches_raise(call: Any, message: str) -> None:
    with pytest.raises(BadTypeError, match=message):
        call()


def test_inputs_that_the_model_accepts_pass_and_others_raise() -> None:
    _require_accepted(nn.Linear(4, 2), _Parts((X,), {}), "batch 0")
    _require_accepted(nn.Linear(4, 2), _Parts((), {"input": X}), "batch 0")
    with pytest.raises(BadTypeError, match="too many positional arguments"):
        _require_accepted(nn.Linear(4, 2), _Parts((X, W), {}), "batch 0")
