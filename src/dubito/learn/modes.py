"""Running a model and leaving it as it was: modes, buffers and random numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from dubito.errors import BadTypeError

__all__ = ["left_as_it_was", "require_module", "seeded"]


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
            bind_buffers(module, known)
        with torch.no_grad():
            for buffer, value in values:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


def bind_buffers(module: nn.Module, known: dict[str, torch.Tensor]) -> None:
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
