from typing import Any

import pytest
import torch
from torch import nn

from dubito.errors import BadTypeError, BadValueError
from dubito.learn.collect import _last_linear, _only_call, _recorded_calls
from dubito.learn.passes import find_layer


class Shared(nn.Module):
    """Runs one layer twice, in two ways."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Linear(2, 2)
        self.head = nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = self.head(self.body(self.body(x)))
        return out


def test_calls_hold_what_layers_read_and_wrote_then() -> None:
    layer = nn.Linear(2, 2)
    model = nn.Sequential(nn.ReLU(inplace=True), layer, nn.ReLU(inplace=True))
    inputs = torch.tensor([[-1.0, 3.0]])
    expected = layer(torch.tensor([[0.0, 3.0]]))
    with _recorded_calls([layer, model[0]]) as calls:
        model(inputs.clone())
    assert [call.layer for call in calls] == [model[0], layer]
    assert calls[0].input.equal(inputs)
    assert calls[1].input.tolist() == [[0, 3]]
    assert calls[1].output.equal(expected)


def test_hooks_are_gone_afterwards_even_after_an_error() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(RuntimeError), _recorded_calls([layer]) as calls:
        layer(torch.ones(1, 3))
    layer(torch.ones(1, 2))
    assert len(calls) == 1
    assert not layer._forward_hooks
    assert not layer._forward_pre_hooks


def test_the_last_linear_layer_is_the_one_whose_outputs_come_out() -> None:
    model = Shared()
    linear = [model.body, model.head]
    with _recorded_calls(linear) as calls:
        outputs = model(torch.randn(3, 2))
    assert _last_linear(calls, outputs) is model.head
    assert _last_linear(calls, outputs.reshape(-1)) is model.head
    assert _last_linear(calls, outputs + 1) is None
    assert _last_linear(calls, calls[1].output) is None  # one of two calls
    assert _only_call(calls, model.head, "layer").output.equal(outputs)
    with pytest.raises(
        BadValueError,
        match=r"`layer` .*, got Linear, which ran 2 times\. Use a layer before or after it",
    ):
        _only_call(calls, model.body, "layer")


def test_layers_are_found_by_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    assert find_layer(model, "1.0", "layer", "caller") is model.get_submodule("1.0")
    assert find_layer(model, model[0], "layer", "caller") is model[0]
    with pytest.raises(BadValueError, match=r"`layer` .*, got 'fc'\. Use one of 0, 1, 1\.0"):
        find_layer(model, "fc", "layer", "caller")
    with pytest.raises(
        BadValueError, match=r"`last_layer` .*, got another ReLU\. Use one of 0, 1, 1\.0"
    ):
        find_layer(model, nn.ReLU(), "last_layer", "caller")
    number: Any = 3
    with pytest.raises(
        BadTypeError,
        match=r"`layer` must be a layer or its name, got int\. "
        r"Use one of 0, 1, 1\.0",
    ):
        find_layer(model, number, "layer", "caller")
    many = nn.Sequential(*(nn.ReLU() for _ in range(20)))
    with pytest.raises(BadValueError, match=r"Use one of 0, 1, .*, 10, 11, \.\.\.\.$"):
        find_layer(many, "20", "layer", "caller")
