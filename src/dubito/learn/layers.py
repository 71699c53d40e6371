"""Running a model without changing it, and recording the calls of its layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from dubito.errors import BadTypeError, BadValueError

MAX_NAMES = 12  # of layers in a message


def require_module(model: Any, caller: str) -> nn.Module:
    """Return a model, which must be a torch module."""
    if not isinstance(model, nn.Module):
        rule, fix = "must be a torch module", "Wrap the model in an nn.Module"
        raise BadTypeError("model", caller, rule, type(model).__name__, fix)
    return model


@contextmanager
def evaluation_mode(model: nn.Module, training: Iterable[nn.Module] = ()) -> Iterator[None]:
    """Put a model into evaluation mode without gradients, then restore its modes and buffers.

    The modules in `training` stay in training mode. Modes are set one by one, since `train()` and
    `eval()` may be overridden.

    >>> model = nn.BatchNorm1d(2)
    >>> with evaluation_mode(model):
    ...     print(model.training)
    False
    >>> model.training
    True
    """
    modules = list(model.modules())
    modes = [module.training for module in modules]
    buffers = [dict(module.named_buffers(recurse=False)) for module in modules]
    values = [(buffer, buffer.clone()) for buffer in model.buffers()]
    try:
        with torch.no_grad():
            for module in modules:
                module.training = False
            for module in training:
                module.training = True
            yield
    finally:
        for module, mode, before in zip(modules, modes, buffers, strict=True):
            module.training = mode
            _restore_buffers(module, before)
        with torch.no_grad():
            for buffer, value in values:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


def _restore_buffers(module: nn.Module, before: dict[str, torch.Tensor]) -> None:
    """Bind a module's buffers to the tensors they were, None included."""
    now = dict(module.named_buffers(recurse=False))
    for name in {*now, *before}:
        if now.get(name) is not before.get(name):
            setattr(module, name, before.get(name))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch on every device in use, then restore its random state.

    >>> with seeded(0):
    ...     first = torch.rand(1)
    >>> with seeded(0):
    ...     print(bool(first == torch.rand(1)))
    True
    """
    is_used = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    n_devices = torch.cuda.device_count() if is_used else 0
    with torch.random.fork_rng(range(n_devices)):
        torch.manual_seed(seed)
        yield


class Call(NamedTuple):
    """The input and the output of one call of a layer."""

    layer: nn.Module
    input: Any
    output: Any


@contextmanager
def recorded_calls(layers: Iterable[nn.Module]) -> Iterator[list[Call]]:
    """Record the calls of layers, with copies of tensors: later layers may work in place.

    >>> layer = nn.ReLU()
    >>> with recorded_calls([layer]) as calls:
    ...     _ = layer(torch.tensor([-1.0, 2.0]))
    >>> calls[0].output.tolist()
    [0.0, 2.0]
    """
    calls: list[Call] = []
    handles: list[Any] = []

    def before(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        calls.append(Call(layer, _copied(inputs[0] if inputs else None), None))

    def after(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        place = max(i for i, call in enumerate(calls) if call.layer is layer)
        calls[place] = calls[place]._replace(output=_copied(output))

    try:
        for layer in layers:
            handles.append(layer.register_forward_pre_hook(before))
            handles.append(layer.register_forward_hook(after))
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _copied(value: Any) -> Any:
    """Return a copy of a tensor, and anything else unchanged."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def only_call(calls: Sequence[Call], layer: nn.Module, argument: str, caller: str) -> Call:
    """Return the only call of a layer in a batch, or raise."""
    found = [call for call in calls if call.layer is layer]
    if len(found) != 1:
        got = f"{type(layer).__name__}, which ran {len(found)} times"
        rule, fix = "must be a layer that runs once per batch", "Use a layer before or after it"
        raise BadValueError(argument, caller, rule, got, fix)
    return found[0]


def last_linear(calls: Sequence[Call], outputs: torch.Tensor) -> nn.Linear | None:
    """Return the linear layer, called once, whose output is that of the model; or None."""
    layers = [call.layer for call in calls]
    for layer, _, output in reversed(calls):
        if isinstance(layer, nn.Linear) and output.flatten().equal(outputs.flatten()):
            return layer if layers.count(layer) == 1 else None
    return None


def find_layer(model: nn.Module, layer: str | nn.Module, argument: str, caller: str) -> nn.Module:
    """Return a layer of a model, given by its name or itself."""
    layers: dict[str, nn.Module] = {name: one for name, one in model.named_modules() if name}
    fix = f"Use one of {', '.join(list(layers)[:MAX_NAMES])}"
    fix += ", ..." if len(layers) > MAX_NAMES else ""
    if isinstance(layer, nn.Module):
        if all(one is not layer for one in model.modules()):
            rule, got = "must be a layer of the model", f"another {type(layer).__name__}"
            raise BadValueError(argument, caller, rule, got, fix)
        return layer
    if not isinstance(layer, str):
        rule = "must be a layer or its name"
        raise BadTypeError(argument, caller, rule, type(layer).__name__, fix)
    if layer not in layers:
        raise BadValueError(argument, caller, "must be the name of a layer", repr(layer), fix)
    return layers[layer]
