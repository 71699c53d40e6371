"""From a trained network to the rest of dubito: outputs, features, last layer and labels."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any, final

import numpy as np
import torch
from torch import nn

from dubito.arrays import FloatArray, as_finite, as_floats
from dubito.data.batch import Batch
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.learn.collected import CollectedOutputs, in_file, in_memory
from dubito.learn.layers import Call, last_linear, layer_named, only_call, watched
from dubito.learn.modes import left_as_it_was, require_module
from dubito.learn.parts import Parts, Unpack, parted, require_taken
from dubito.learn.passes import array_of, logits_of, rows_of
from dubito.outputs import Logits

__all__ = ["collect_outputs"]

CALLER = "collect_outputs"
NO_LAST_LAYER = (
    "collect found no linear layer whose outputs are the model's, so that features and weights are "
    "None. Try last_layer=, or layer= for features alone."
)


def collect_outputs(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    layer: str | nn.Module | None = None,
    last_layer: str | nn.Linear | None = None,
    head: str | int | None = None,
    likelihood: Any = None,
    unpack: Unpack | None = None,
    path: str | os.PathLike[str] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> CollectedOutputs:
    """Return what a trained model says of every row of a loader, run once and left as it was.

    A batch is inputs, or inputs and labels, the labels last; of any other `unpack(batch)` returns
    inputs (a tuple for several, a dict by name), labels and, if it likes, weights. Features are
    what `layer` gives out, by default what the last layer takes in: `last_layer`, or else the
    linear layer whose outputs are the model's. `head` is the number or name of one output of
    several; `likelihood` what the model was trained with, by default its outputs are logits.
    Classes are on axis 1: of maps, images x classes x height x width, each pixel is a row. With
    `path` rows go to a Parquet file and not to memory. `on_progress` is told after each batch how
    many rows there are.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> found = collect_outputs(model, [(torch.ones(2, 4), torch.tensor([0, 1]))])
    >>> found.logits.array.shape, found.features.shape, found.weights.shape, found.labels.tolist()
    ((2, 3), (2, 8), (3, 8), [0, 1])
    """
    run = Run(require_module(model, CALLER), layer, last_layer, head, likelihood, unpack)
    with left_as_it_was(model):
        batches = told(run.batches(loader), on_progress)
        is_weighted = unpack is not None
        shards = in_memory(batches) if path is None else in_file(batches, path, is_weighted)
    if run.has_lost_features:
        warnings.warn(NO_LAST_LAYER, DubitoWarning, stacklevel=2)
    return CollectedOutputs(shards, *run.last_weights())


@final
class Run:
    """One run of a model over a loader, and the last layer that it found."""

    def __init__(
        self,
        model: nn.Module,
        layer: str | nn.Module | None,
        last_layer: str | nn.Module | None,
        head: str | int | None,
        likelihood: Any,
        unpack: Unpack | None,
    ) -> None:
        self.model, self.head, self.likelihood, self.unpack = model, head, likelihood, unpack
        self.layer = None if layer is None else layer_named(model, layer, "layer")
        self.last: nn.Module | None = None
        if last_layer is not None:
            self.last = as_linear(layer_named(model, last_layer, "last_layer"))
        parameter = next(model.parameters(), None)
        self.device = None if parameter is None else parameter.device
        self.n_classes = 0

    def batches(self, loader: Iterable[Any]) -> Iterator[Batch]:
        """Yield what the model says, batch by batch; raise where there are no rows."""
        is_searching = self.last is None
        for number, batch in enumerate(loader):
            where = f"batch {number} of the loader"
            parts = parted(batch, self.unpack, where)
            require_taken(self.model, parts, where)
            named = {name: self.moved(one) for name, one in parts.named.items()}
            with watched(self.of_use(is_searching)) as calls:
                raw = self.model(*(self.moved(one) for one in parts.inputs), **named)
            outputs = head_of(raw, self.head)
            if not outputs.numel():
                continue
            if is_searching and outputs.ndim <= 2:
                self.last, is_searching = last_linear(calls, outputs), False
            yield self.batch(outputs, parts, calls, f"{CALLER} (batch {number})")
        if not self.n_classes:
            rule, fix = "of 1 batch or more", "a loader over at least one row"
            raise BadValueError("loader", CALLER, rule, "none", fix)

    def of_use(self, is_searching: bool) -> set[nn.Module]:
        """Return the layers to watch: any linear one may turn out to be the last."""
        linear = {one for one in self.model.modules() if isinstance(one, nn.Linear)}
        wanted = linear if is_searching else {self.last}
        return {one for one in (*wanted, self.layer) if one is not None}

    def batch(self, outputs: torch.Tensor, parts: Parts, calls: list[Call], caller: str) -> Batch:
        """Return checked rows."""
        array = as_floats(array_of(logits_of(outputs, self.likelihood, caller)), "outputs", caller)
        logits = Logits(as_finite(array, "outputs", caller))
        self.n_classes = logits.n_classes
        labels, weights = (
            array_of(rows_like(outputs, one, name, caller)) if torch.is_tensor(one) else one
            for one, name in ((parts.labels, "labels"), (parts.weights, "weights"))
        )
        features = self.features(outputs, calls, caller)
        return Batch.of(labels, logits, sample_weight=weights, features=features, caller=caller)

    def features(self, outputs: torch.Tensor, calls: list[Call], caller: str) -> FloatArray | None:
        """Return what the layer gave out, or what the last one took in."""
        if self.layer is not None:
            found = only_call(calls, self.layer, "layer").given
        elif self.last is not None:
            found = only_call(calls, self.last, "last_layer").taken
        else:
            return None
        if not isinstance(found, torch.Tensor):
            rule, got = "a layer whose outputs are a tensor", type(found).__name__
            raise BadTypeError("layer", caller, rule, got, "a layer after it")
        if outputs.ndim > 2:
            return array_of(rows_like(outputs, found, "layer", caller))
        return array_of(found.flatten(1) if found.ndim > 1 else found[:, None])

    @property
    def has_lost_features(self) -> bool:
        """Whether there are linear layers, but none was known to be the last."""
        is_lost = self.last is None and self.layer is None
        return is_lost and any(isinstance(one, nn.Linear) for one in self.model.modules())

    def moved(self, value: Any) -> Any:
        """Return a tensor where the model is."""
        is_tensor = isinstance(value, torch.Tensor) and self.device is not None
        return value.to(self.device) if is_tensor else value

    def last_weights(self) -> tuple[FloatArray | None, FloatArray | None]:
        """Return weights and bias of the last layer, a row a class."""
        if not isinstance(self.last, nn.Linear):
            return None, None
        weights = array_of(self.last.weight)
        bias = np.zeros_like(weights[:, 0]) if self.last.bias is None else array_of(self.last.bias)
        if len(weights) == 1:  # one logit is that of the second of two classes
            weights, bias = (np.concatenate([np.zeros_like(one), one]) for one in (weights, bias))
        return weights[: self.n_classes], bias[: self.n_classes]


def rows_like(
    outputs: torch.Tensor, found: torch.Tensor, argument: str, caller: str
) -> torch.Tensor:
    """Return what is known of the rows of outputs: of maps, pixel by pixel as they are."""
    if outputs.ndim <= 2:
        return found
    size = outputs.shape[2:]
    if found.shape[0] != len(outputs) or found.shape[-len(size) :] != size:
        rule = f"maps of the outputs' size {tuple(size)}"
        got = f"shape {tuple(found.shape)}"
        raise BadValueError(argument, caller, rule, got, "one entry a pixel")
    return found.flatten() if found.ndim < outputs.ndim else rows_of(found)


def head_of(outputs: Any, head: str | int | None) -> torch.Tensor:
    """Return one of the tensors that a model put out, or its only one."""
    if isinstance(outputs, torch.Tensor):
        if head is not None:
            rule, fix = "None, as the model has one head", "leaving it out"
            raise BadValueError("head", CALLER, rule, repr(head), fix)
        return outputs
    heads: dict[Any, Any] = {}
    if isinstance(outputs, Mapping):
        heads = dict(outputs)
    elif is_dataclass(outputs):
        heads = {field.name: getattr(outputs, field.name) for field in fields(outputs)}
    elif isinstance(outputs, list | tuple):
        heads = dict(enumerate(outputs))
    names = [repr(name) for name, one in heads.items() if isinstance(one, torch.Tensor)]
    if not names:
        rule, fix = "one that returns tensors", "a module that returns its logits"
        raise BadTypeError("model", CALLER, rule, type(outputs).__name__, fix)
    if not isinstance(heads.get(head), torch.Tensor):
        rule = f"one of {', '.join(names)}, as the model has several"
        rule = rule if len(names) > 1 else f"{names[0]}, the only one of the model"
        raise BadValueError("head", CALLER, rule, repr(head), f"head={names[0]}")
    found: torch.Tensor = heads[head]
    return found


def as_linear(layer: nn.Module) -> nn.Linear:
    """Return a layer that must be linear."""
    if not isinstance(layer, nn.Linear):
        rule, fix = "a linear layer", "`layer` for the features of any other"
        raise BadTypeError("last_layer", CALLER, rule, type(layer).__name__, fix)
    return layer


def told(batches: Iterator[Batch], on_progress: Callable[[int], None] | None) -> Iterator[Batch]:
    """Yield batches, and tell how many rows there were so far."""
    n_rows = 0
    for batch in batches:
        yield batch
        n_rows += len(batch)
        if on_progress is not None:
            on_progress(n_rows)
