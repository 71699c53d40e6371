"""Layers of a model that are watched while it runs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
from torch import nn

from dubito.errors import BadTypeError, BadValueError

__all__ = ["Call", "last_linear", "layer_named", "only_call", "watched"]

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
        calls.append(Call(layer, copied(inputs[0] if inputs else None), None))

    def note(layer: nn.Module, inputs: tuple[Any, ...], given: Any) -> None:
        place = max(i for i, call in enumerate(calls) if call.layer is layer)
        calls[place] = calls[place]._replace(given=copied(given))

    try:
        for layer in layers:
            handles.append(layer.register_forward_pre_hook(look))
            handles.append(layer.register_forward_hook(note))
        yield calls
    finally:
        for handle in handles:
            handle.remove()


def copied(value: Any) -> Any:
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
