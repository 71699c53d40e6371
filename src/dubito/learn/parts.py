"""What the batches of a loader are made of: inputs, and perhaps labels and weights."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import nn

from dubito.errors import BadTypeError

__all__ = ["Parts", "Unpack", "parted", "require_taken"]

Unpack = Callable[[Any], tuple[Any, ...]]

CALLER = "collect_outputs"
BY_PLACE = "unpack=lambda batch: (batch[0], batch[1], batch[2]) for inputs, labels and weights"
BY_NAME = (
    "unpack=lambda batch: ({'input_ids': batch['input_ids']}, batch['labels']), with the names of "
    "its own"
)


class Parts(NamedTuple):
    """Inputs by place and by name; labels and weights, None where there are none."""

    inputs: tuple[Any, ...]
    named: dict[str, Any]
    labels: Any = None
    weights: Any = None


def parted(batch: Any, unpack: Unpack | None, where: str) -> Parts:
    """Return the parts of a batch: as `unpack` says, or inputs with the labels last.

    >>> parted((torch.zeros(2, 4), torch.tensor([0, 1])), None, "batch 0").labels
    tensor([0, 1])
    """
    if unpack is not None:
        return unpacked(batch, unpack, where)
    if isinstance(batch, torch.Tensor):
        return Parts((batch,), {})
    if not isinstance(batch, list | tuple) or not batch:
        rule, fix = "inputs, or inputs and labels", "a loader of pairs (inputs, labels)"
        fix = BY_NAME if isinstance(batch, Mapping) else fix
        raise BadTypeError(where, CALLER, rule, type(batch).__name__, fix)
    return Parts(tuple(batch), {}) if len(batch) == 1 else Parts(tuple(batch[:-1]), {}, batch[-1])


def unpacked(batch: Any, unpack: Unpack, where: str) -> Parts:
    """Return the parts of a batch that a function of the caller told apart."""
    if not callable(unpack):
        rule = "a function of a batch"
        raise BadTypeError("unpack", CALLER, rule, type(unpack).__name__, BY_PLACE)
    found = unpack(batch)
    if not isinstance(found, tuple) or len(found) not in (2, 3):
        rule = "a function that returns (inputs, labels) or (inputs, labels, weights)"
        got = f"{type(found).__name__} for {where}"
        raise BadTypeError("unpack", CALLER, rule, got, BY_PLACE)
    inputs, *others = found
    if isinstance(inputs, Mapping):
        return Parts((), dict(inputs), *others)
    return Parts(tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,), {}, *others)


def require_taken(model: nn.Module, parts: Parts, where: str) -> None:
    """Raise unless a model takes as many inputs, of such names."""
    try:
        inspect.signature(model.forward).bind(*parts.inputs, **parts.named)
    except TypeError as error:
        rule, got = f"inputs that {type(model).__name__} takes, then labels", str(error)
        raise BadTypeError(where, CALLER, rule, got, BY_PLACE) from error
