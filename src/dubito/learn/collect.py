"""From a trained network to the rest of dubito: outputs, features, last layer and labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, final

import numpy as np
import torch
from torch import nn

from dubito.arrays import FloatArray, as_finite, as_floats
from dubito.data.batch import Batch
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.collected import Collected, in_file, in_memory
from dubito.learn.layers import Call, last_linear, layer_named, only_call, watched
from dubito.learn.modes import left_as_it_was
from dubito.learn.passes import array_of, logits_of
from dubito.outputs import Logits

__all__ = ["collect"]

CALLER = "collect"


def collect(
    model: nn.Module,
    loader: Iterable[Any],
    *,
    layer: str | nn.Module | None = None,
    last_layer: str | nn.Linear | None = None,
    head: str | int | None = None,
    likelihood: Any = None,
    path: str | os.PathLike[str] | None = None,
    on_progress: Callable[[int], None] | None = None,
) -> Collected:
    """Return what a trained model says of every row of a loader, run once and left as it was.

    A batch is inputs, or inputs and labels, the labels last. Features are what `layer` gives out,
    by default what the last layer takes in: `last_layer`, or else the linear layer whose outputs
    are the model's. `head` is the number or name of one output of several; `likelihood` what the
    model was trained with, by default its outputs are logits. With `path` rows go to a Parquet file
    and not to memory. `on_progress` is told after each batch how many rows there are.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> found = collect(model, [(torch.ones(2, 4), torch.tensor([0, 1]))])
    >>> found.logits.array.shape, found.features.shape, found.weights.shape, found.labels.tolist()
    ((2, 3), (2, 8), (3, 8), [0, 1])
    """
    run = Run(model, layer, last_layer, head, likelihood)
    with left_as_it_was(model):
        batches = told(run.batches(loader), on_progress)
        shards = in_memory(batches) if path is None else in_file(batches, path)
    return Collected(shards, *run.last_weights())


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
    ) -> None:
        self.model, self.head, self.likelihood = model, head, likelihood
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
            inputs, labels = parted(batch, f"batch {number} of the loader")
            with watched(self.of_use(is_searching)) as calls:
                raw = self.model(*(self.moved(one) for one in inputs))
            outputs = head_of(raw, self.head)
            if not outputs.numel():
                continue
            if is_searching:
                self.last, is_searching = last_linear(calls, outputs), False
            yield self.batch(outputs, labels, calls, f"{CALLER} (batch {number})")
        if not self.n_classes:
            rule, fix = "of 1 batch or more", "a loader over at least one row"
            raise BadValueError("loader", CALLER, rule, "none", fix)

    def of_use(self, is_searching: bool) -> set[nn.Module]:
        """Return the layers to watch: any linear one may turn out to be the last."""
        linear = {one for one in self.model.modules() if isinstance(one, nn.Linear)}
        wanted = linear if is_searching else {self.last}
        return {one for one in (*wanted, self.layer) if one is not None}

    def batch(self, outputs: torch.Tensor, labels: Any, calls: list[Call], caller: str) -> Batch:
        """Return checked rows."""
        array = as_floats(array_of(logits_of(outputs, self.likelihood, caller)), "outputs", caller)
        logits = Logits(as_finite(array, "outputs", caller))
        self.n_classes = logits.n_classes
        known = array_of(labels) if isinstance(labels, torch.Tensor) else labels
        return Batch.of(known, logits, features=self.features(calls, caller), caller=caller)

    def features(self, calls: list[Call], caller: str) -> FloatArray | None:
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
        return array_of(found.flatten(1) if found.ndim > 1 else found[:, None])

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


def parted(batch: Any, where: str) -> tuple[list[Any], Any]:
    """Return the inputs of a batch and its labels, None where it has only inputs."""
    if isinstance(batch, torch.Tensor):
        return [batch], None
    if not isinstance(batch, list | tuple) or not batch:
        rule, fix = "inputs, or inputs and labels", "a loader of pairs (inputs, labels)"
        raise BadTypeError(where, CALLER, rule, type(batch).__name__, fix)
    return (list(batch), None) if len(batch) == 1 else (list(batch[:-1]), batch[-1])


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
    elif isinstance(outputs, list | tuple):
        heads = dict(enumerate(outputs))
    names = ", ".join(repr(name) for name, one in heads.items() if isinstance(one, torch.Tensor))
    if not names:
        rule, fix = "one that returns tensors", "a module that returns its logits"
        raise BadTypeError("model", CALLER, rule, type(outputs).__name__, fix)
    if not isinstance(heads.get(head), torch.Tensor):
        rule = f"one of {names}, as the model has several"
        raise BadValueError("head", CALLER, rule, repr(head), f"head={names.split(', ')[0]}")
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
