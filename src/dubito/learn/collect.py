"""From a trained network to the rest of dubito: outputs, features, last layer and labels."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dubito.arrays import FloatArray, as_finite, as_floats
from dubito.data.batch import Batch
from dubito.data.columns import Columns
from dubito.data.files import scan
from dubito.data.labels import Labels
from dubito.data.shards import ArrayShards, Shards, joined
from dubito.data.sink import Sink
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.learn.layers import (
    Call,
    last_linear,
    layer_named,
    left_as_it_was,
    only_call,
    require_module,
    watched,
)
from dubito.learn.passes import array_of, logits_of, rows_of
from dubito.outputs import Logits

Unpack = Callable[[Any], tuple[Any, ...]]

COLLECT = "collect_outputs"
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


def _parted(batch: Any, unpack: Unpack | None, where: str) -> Parts:
    """Return the parts of a batch: as `unpack` says, or inputs with the labels last.

    >>> _parted((torch.zeros(2, 4), torch.tensor([0, 1])), None, "batch 0").labels
    tensor([0, 1])
    """
    if unpack is not None:
        return _unpacked(batch, unpack, where)
    if isinstance(batch, torch.Tensor):
        return Parts((batch,), {})
    if not isinstance(batch, list | tuple) or not batch:
        rule, fix = "inputs, or inputs and labels", "a loader of pairs (inputs, labels)"
        fix = BY_NAME if isinstance(batch, Mapping) else fix
        raise BadTypeError(where, COLLECT, rule, type(batch).__name__, fix)
    return Parts(tuple(batch), {}) if len(batch) == 1 else Parts(tuple(batch[:-1]), {}, batch[-1])


def _unpacked(batch: Any, unpack: Unpack, where: str) -> Parts:
    """Return the parts of a batch that a function of the caller told apart."""
    if not callable(unpack):
        rule = "a function of a batch"
        raise BadTypeError("unpack", COLLECT, rule, type(unpack).__name__, BY_PLACE)
    found = unpack(batch)
    if not isinstance(found, tuple) or len(found) not in (2, 3):
        rule = "a function that returns (inputs, labels) or (inputs, labels, weights)"
        got = f"{type(found).__name__} for {where}"
        raise BadTypeError("unpack", COLLECT, rule, got, BY_PLACE)
    inputs, *others = found
    if isinstance(inputs, Mapping):
        return Parts((), dict(inputs), *others)
    return Parts(tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,), {}, *others)


def _require_taken(model: nn.Module, parts: Parts, where: str) -> None:
    """Raise unless a model takes as many inputs, of such names."""
    try:
        inspect.signature(model.forward).bind(*parts.inputs, **parts.named)
    except TypeError as error:
        rule, got = f"inputs that {type(model).__name__} takes, then labels", str(error)
        raise BadTypeError(where, COLLECT, rule, got, BY_PLACE) from error


@final
@dataclass(frozen=True, eq=False)
class CollectedOutputs:
    """What a model said of all rows of a loader.

    `shards` hold logits, features and labels, in memory or in a file, for anything that takes
    shards. `weights` (classes x features) and `bias` are those of the last layer, None where it is
    not known.
    """

    shards: Shards
    weights: FloatArray | None
    bias: FloatArray | None

    @cached_property
    def batch(self) -> Batch:
        """All rows in memory; of a file, read when first asked for."""
        return joined(list(self.shards.batches()))

    @property
    def logits(self) -> Logits:
        """The model's outputs."""
        assert isinstance(self.batch.outputs, Logits)
        return self.batch.outputs

    @property
    def features(self) -> FloatArray | None:
        """What the layer gave out, rows x features, or None."""
        return self.batch.features

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels, or rows x classes of label probabilities, NaN where missing; or None."""
        return _labels_of(self.batch)


def _in_memory(batches: Iterable[Batch]) -> Shards:
    """Return rows that are held."""
    return ArrayShards(joined(list(batches)))


def _in_file(
    batches: Iterable[Batch], path: str | os.PathLike[str], is_weighted: bool = False
) -> Shards:
    """Write rows to a file, whole or not at all, and return them as they are read from it."""
    has: dict[str, str] = {}
    with Sink(path) as sink:
        for batch in batches:
            columns, has = _columns_of(batch)
            if is_weighted:
                columns, has = {**columns, "weight": batch.weight}, {**has, "weight": "weight"}
            sink.write(columns)
    return scan(path, Columns(logits="logit_*", **has))


def _columns_of(batch: Batch) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return a batch as columns, and what those beside the logits are found by."""
    assert isinstance(batch.outputs, Logits)
    columns, has = _numbered("logit", batch.outputs.array), {}
    if batch.features is not None:
        columns, has["features"] = columns | _numbered("feature", batch.features), "feature_*"
    labels = _labels_of(batch)
    if labels is None:
        return columns, has
    if labels.ndim == 2:
        return columns | _numbered("label", labels), {**has, "label": "label_*"}
    if labels.dtype.kind == "f":  # a gap among whole numbers
        labels = np.array([None if np.isnan(one) else int(one) for one in labels], object)
    return {**columns, "label": labels}, {**has, "label": "label"}


def _labels_of(batch: Batch) -> NDArray[Any] | None:
    """Return the labels of a batch, NaN where missing, or None where it has none."""
    if not isinstance(batch.labels, Labels):
        return None
    soft, is_missing = batch.labels.probabilities, batch.labels.is_missing
    if soft is not None:
        return np.where(is_missing[:, np.newaxis], np.nan, soft)
    return (
        np.where(is_missing, np.nan, batch.labels.codes) if is_missing.any() else batch.labels.codes
    )


def _numbered(name: str, matrix: FloatArray) -> dict[str, NDArray[Any]]:
    """Return the columns of a matrix by name and number."""
    return {f"{name}_{k}": column for k, column in enumerate(matrix.T)}


CALLER = "collect_outputs"
NO_LAST_LAYER = (
    "collect_outputs found no linear layer whose outputs are the model's, so that features and weights "
    "are None. Try last_layer=, or layer= for features alone."
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
        batches = _told(run.batches(loader), on_progress)
        is_weighted = unpack is not None
        shards = _in_memory(batches) if path is None else _in_file(batches, path, is_weighted)
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
            self.last = _as_linear(layer_named(model, last_layer, "last_layer"))
        parameter = next(model.parameters(), None)
        self.device = None if parameter is None else parameter.device
        self.n_classes = 0

    def batches(self, loader: Iterable[Any]) -> Iterator[Batch]:
        """Yield what the model says, batch by batch; raise where there are no rows."""
        is_searching = self.last is None
        for number, batch in enumerate(loader):
            where = f"batch {number} of the loader"
            parts = _parted(batch, self.unpack, where)
            _require_taken(self.model, parts, where)
            named = {name: self.moved(one) for name, one in parts.named.items()}
            with watched(self.of_use(is_searching)) as calls:
                raw = self.model(*(self.moved(one) for one in parts.inputs), **named)
            outputs = _head_of(raw, self.head)
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
            array_of(_rows_like(outputs, one, name, caller)) if torch.is_tensor(one) else one
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
            return array_of(_rows_like(outputs, found, "layer", caller))
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


def _rows_like(
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


def _head_of(outputs: Any, head: str | int | None) -> torch.Tensor:
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


def _as_linear(layer: nn.Module) -> nn.Linear:
    """Return a layer that must be linear."""
    if not isinstance(layer, nn.Linear):
        rule, fix = "a linear layer", "`layer` for the features of any other"
        raise BadTypeError("last_layer", CALLER, rule, type(layer).__name__, fix)
    return layer


def _told(batches: Iterator[Batch], on_progress: Callable[[int], None] | None) -> Iterator[Batch]:
    """Yield batches, and tell how many rows there were so far."""
    n_rows = 0
    for batch in batches:
        yield batch
        n_rows += len(batch)
        if on_progress is not None:
            on_progress(n_rows)
