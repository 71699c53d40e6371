from typing import Any

import pytest
import torch
from torch import nn

from dubito.errors import BadTypeError, BadValueError
from dubito.learn.layers import last_linear, layer_named, only_call, watched


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
    with watched([layer, model[0]]) as calls:
        model(inputs.clone())
    assert [call.layer for call in calls] == [model[0], layer]
    assert calls[0].taken.equal(inputs)
    assert calls[1].taken.tolist() == [[0, 3]]
    assert calls[1].given.equal(expected)


def test_hooks_are_gone_afterwards_even_after_an_error() -> None:
    layer = nn.Linear(2, 2)
    with pytest.raises(RuntimeError), watched([layer]) as calls:
        layer(torch.ones(1, 3))
    layer(torch.ones(1, 2))
    assert len(calls) == 1
    assert not layer._forward_hooks
    assert not layer._forward_pre_hooks


def test_the_last_linear_layer_is_the_one_whose_outputs_come_out() -> None:
    model = Shared()
    linear = [model.body, model.head]
    with watched(linear) as calls:
        outputs = model(torch.randn(3, 2))
    assert last_linear(calls, outputs) is model.head
    assert last_linear(calls, outputs.reshape(-1)) is model.head
    assert last_linear(calls, outputs + 1) is None
    assert last_linear(calls, calls[1].given) is None  # one of two calls
    assert only_call(calls, model.head, "layer").given.equal(outputs)
    with pytest.raises(BadValueError) as told:
        only_call(calls, model.body, "layer")
    assert str(told.value) == (
        "`layer` of collect_outputs must be a layer that runs once a batch. Got Linear, which ran 2 times. "
        "Try a layer before or after it."
    )


def test_layers_are_found_by_name() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.Sequential(nn.ReLU()))
    assert layer_named(model, "1.0", "layer") is model.get_submodule("1.0")
    assert layer_named(model, model[0], "layer") is model[0]
    with pytest.raises(BadValueError) as told:
        layer_named(model, "fc", "layer")
    assert str(told.value) == (
        "`layer` of collect_outputs must be the name of a layer. Got 'fc'. Try one of 0, 1, 1.0."
    )
    with pytest.raises(BadValueError) as told:
        layer_named(model, nn.ReLU(), "last_layer")
    assert str(told.value) == (
        "`last_layer` of collect_outputs must be a layer of the model. Got another ReLU. "
        "Try one of 0, 1, 1.0."
    )
    number: Any = 3
    with pytest.raises(BadTypeError, match=r"must be the name of a layer, or the layer\. Got int"):
        layer_named(model, number, "layer")
    many = nn.Sequential(*(nn.ReLU() for _ in range(20)))
    with pytest.raises(BadValueError, match=r"Try one of 0, 1, .*, 10, 11, \.\.\.\.$"):
        layer_named(many, "20", "layer")
