"""Running a model without changing it, and observing its layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from dubito.errors import BadTypeError, BadValueError


def require_module(model: Any, caller: str) -> nn.Module:
    """Return a model that must be a module."""
    if not isinstance(model, nn.Module):
        fix = "a model made of nn.Module"
        raise BadTypeError("model", caller, "a torch module", type(model).__name__, fix)
    return model


@contextmanager
def left_as_it_was(model: nn.Module, awake: Iterable[nn.Module] = ()) -> Iterator[None]:
    """Hold a model in evaluation without gradients, then restore its modes and buffers.

    Modules that are `awake` train meanwhile. Modes are set one by one: `train()` and `eval()` may
    be overridden, and do more than that.

    >>> model = nn.BatchNorm1d(2)
    >>> with left_as_it_was(model):
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
            for module in awake:
                module.training = True
            yield
    finally:
        for module, mode, known in zip(modules, modes, buffers, strict=True):
            module.training = mode
            _bind_buffers(module, known)
        with torch.no_grad():
            for buffer, value in values:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


def _bind_buffers(module: nn.Module, known: dict[str, torch.Tensor]) -> None:
    """Bind the tensors that a module's buffers were; what was none is none again."""
    now = dict(module.named_buffers(recurse=False))
    for name in {*now, *known}:
        if now.get(name) is not known.get(name):
            setattr(module, name, known.get(name))


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from a seed, on any device in use, then go on with what was drawn from before.

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


MOST_NAMES = 12  # of layers, in a message
CALLER = "collect_outputs"


class Call(NamedTuple):
    """What a layer took in, and what it gave out."""

    layer: nn.Module
    taken: Any
    given: Any


@contextmanager
def watched(layers: Iterable[nn.Module]) -> Iterator[list[Call]]:
    """Note the calls of some layers, as they were: later layers may write where they read.

    >>> layer = nn.ReLU()
    >>> with watched([layer]) as calls:
    ...     _ = layer(torch.tensor([-1.0, 2.0]))
    >>> calls[0].given.tolist()
    [0.0, 2.0]
    """
    calls: list[Call] = []
    handles: list[Any] = []

    def look(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        calls.append(Call(layer, _copied(inputs[0] if inputs else None), None))

    def note(layer: nn.Module, inputs: tuple[Any, ...], given: Any) -> None:
        place = max(i for i, call in enumerate(calls) if call.layer is layer)
        calls[place] = calls[place]._replace(given=_copied(given))

    try:
        for layer in layers:
            handles.append(layer.register_forward_pre_hook(look))
            handles.append(layer.register_forward_hook(note))
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def _copied(value: Any) -> Any:
    """Return a copy of a tensor, and anything else as it is."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def only_call(calls: Sequence[Call], layer: nn.Module, argument: str) -> Call:
    """Return the only call of a layer in a batch, or raise."""
    found = [call for call in calls if call.layer is layer]
    if len(found) != 1:
        got = f"{type(layer).__name__}, which ran {len(found)} times"
        rule, fix = "a layer that runs once a batch", "a layer before or after it"
        raise BadValueError(argument, CALLER, rule, got, fix)
    return found[0]


def last_linear(calls: Sequence[Call], outputs: torch.Tensor) -> nn.Linear | None:
    """Return the linear layer, run once, whose outputs are those of the model; or None."""
    layers = [call.layer for call in calls]
    for layer, _, given in reversed(calls):
        if isinstance(layer, nn.Linear) and given.flatten().equal(outputs.flatten()):
            return layer if layers.count(layer) == 1 else None
    return None


def layer_named(
    model: nn.Module, layer: str | nn.Module, argument: str, caller: str = CALLER
) -> nn.Module:
    """Return a layer of a model by its name, or as it is."""
    layers: dict[str, nn.Module] = {name: one for name, one in model.named_modules() if name}
    fix = f"one of {', '.join(list(layers)[:MOST_NAMES])}"
    fix += ", ..." if len(layers) > MOST_NAMES else ""
    if isinstance(layer, nn.Module):
        if all(one is not layer for one in model.modules()):
            rule, got = "a layer of the model", f"another {type(layer).__name__}"
            raise BadValueError(argument, caller, rule, got, fix)
        return layer
    if not isinstance(layer, str):
        rule, got = "the name of a layer, or the layer", type(layer).__name__
        raise BadTypeError(argument, caller, rule, got, fix)
    if layer not in layers:
        raise BadValueError(argument, caller, "the name of a layer", repr(layer), fix)
    return layers[layer]
