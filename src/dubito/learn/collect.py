"""From a trained network to the rest of dubito: outputs, features, last layer and labels."""

from __future__ import annotations

import inspect
import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, fields, is_dataclass
from functools import cached_property
from typing import Any, NamedTuple, final

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from dubito.arrays import FloatArray, as_array
from dubito.data.batch import Batch, make_batch
from dubito.data.columns import Columns
from dubito.data.files import scan
from dubito.data.labels import Labels, make_label_matrix
from dubito.data.shards import ArrayShards, Shards, joined
from dubito.data.sink import Sink
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.learn.likelihoods import BaseRegressionLikelihood, Bernoulli, require_type
from dubito.learn.passes import (
    evaluation_mode,
    find_layer,
    flatten_maps,
    require_module,
    to_array,
    wrap_outputs,
)
from dubito.outputs import BaseOutputs, Logits, MultiLabel, Normal, RegressionMembers

Unpack = Callable[[Any], tuple[Any, ...]]

CALLER = "collect_outputs"
LEVELS = (0.025, 0.05, 0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.975)  # of quantiles of other families
UNPACK_TUPLE = "Use unpack=lambda batch: (batch[0], batch[1], batch[2]) for inputs, labels, weights"
UNPACK_DICT = (
    "Use unpack=lambda batch: ({'input_ids': batch['input_ids']}, batch['labels']) with the names "
    "in your batches"
)
NO_LAST_LAYER = (
    f"{CALLER} found no linear layer whose outputs are those of the model, so features and weights "
    "are None. Pass last_layer=..., or layer=... for features only."
)


@final
@dataclass(frozen=True, eq=False, repr=False)
class CollectedOutputs:
    """The outputs of a model for all rows of a loader.

    Attributes
    ----------
    shards : Shards
        Outputs, features, labels and weights, in memory or in a file, for every function that
        takes shards.
    weights : ndarray of shape (n_classes, n_features) or None
        The weights of the last layer, None if it is unknown; for a regression or several binary
        labels one row per output.
    bias : ndarray of shape (n_classes,) or None
        Its bias.
    batch : Batch
        All rows in memory; rows of a file are read on first use.
    outputs : Logits, Normal, Quantiles or MultiLabel
        The outputs: logits of classes, `Normal` for a regression (for `Laplace` its exact
        quantiles), `MultiLabel` for several binary labels.
    logits : Logits
        The logits of classes.
    features : ndarray of shape (n_rows, n_features) or None
        The features.
    labels : ndarray or None
        Labels, label probabilities or targets; NaN where missing.
    """

    shards: Shards
    weights: FloatArray | None
    bias: FloatArray | None

    def __repr__(self) -> str:
        shape = None if self.weights is None else self.weights.shape
        return f"CollectedOutputs({type(self.shards).__name__}, weights of shape {shape})"

    @cached_property
    def batch(self) -> Batch:
        """All rows in memory; rows of a file are read on first use."""
        return joined(list(self.shards.batches()))

    @property
    def outputs(self) -> BaseOutputs:
        """The outputs, as the likelihood declares them."""
        return self.batch.outputs

    @property
    def logits(self) -> Logits:
        """The logits of classes."""
        if not isinstance(self.outputs, Logits):
            rule, got = "has logits of classes only", type(self.outputs).__name__
            raise BadTypeError("", "CollectedOutputs.logits", rule, got, "Use .outputs")
        return self.outputs

    @property
    def features(self) -> FloatArray | None:
        """The features, or None."""
        return self.batch.features

    @property
    def labels(self) -> NDArray[Any] | None:
        """The labels, label probabilities or targets, NaN where missing; or None."""
        return _label_array(self.batch)


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
    """Run a trained model once over a loader, and return its outputs, features and labels.

    The model runs in evaluation mode without gradients, and is restored afterwards.

    Parameters
    ----------
    model : nn.Module
        The trained model.
    loader : iterable
        Batches of inputs, or of inputs and labels, with the labels last.
    layer : str or nn.Module, optional
        The layer whose outputs are the features. By default the features are the inputs of the
        last layer.
    last_layer : str or nn.Linear, optional
        The last linear layer. By default it is the one whose outputs are those of the model.
    head : str or int, optional
        The name or index of the output to use, if the model has several.
    likelihood : BaseLikelihood, optional
        What the model was trained with: classes, binary labels or a regression. By default its
        outputs are logits; a single output needs a likelihood. Classes are on axis 1; each pixel
        of a map is a row.
    unpack : callable, optional
        For other batches: returns (inputs, labels) or (inputs, labels, weights) of a batch, where
        inputs may be a tuple, or a dict of keyword arguments.
    path : path-like, optional
        Stream the rows to this Parquet file instead of memory: logits of classes, log odds of
        several binary labels, or the mean and standard deviation of one normal target.
    on_progress : callable, optional
        Called after each batch with the number of rows so far.

    Returns
    -------
    CollectedOutputs
        Outputs, features, labels, and the last layer.

    Examples
    --------
    >>> from torch import nn
    >>> import torch
    >>> from dubito.learn import collect_outputs
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> found = collect_outputs(model, [(torch.ones(2, 4), torch.tensor([0, 1]))])
    >>> found.logits.array.shape, found.features.shape, found.weights.shape, found.labels.tolist()
    ((2, 3), (2, 8), (3, 8), [0, 1])
    """
    require_module(model, CALLER)
    run = _Run(model, layer, last_layer, head, likelihood, unpack)
    if path is not None:
        _require_columns(likelihood, path)
    with evaluation_mode(model):
        batches = run.batches(loader, on_progress)
        if path is None:
            shards: Shards = ArrayShards(joined(list(batches)))
        else:
            shards = _write_shards(batches, path, is_weighted=unpack is not None)
    if run.has_lost_features:
        warnings.warn(NO_LAST_LAYER, DubitoWarning, stacklevel=2)
    return CollectedOutputs(shards, *run.last_weights())


@final
class _Run:
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
        self.layer = None if layer is None else find_layer(model, layer, "layer", CALLER)
        self.last: nn.Module | None = None
        if last_layer is not None:
            self.last = find_layer(model, last_layer, "last_layer", CALLER)
            rule, fix = "must be a linear layer", "Use `layer` for the features of any other"
            require_type(self.last, nn.Linear, "last_layer", CALLER, rule, fix)
        parameter = next(model.parameters(), None)
        self.device = None if parameter is None else parameter.device
        self.n_classes: int | None = None  # of logits

    def batches(
        self, loader: Iterable[Any], on_progress: Callable[[int], None] | None
    ) -> Iterator[Batch]:
        """Yield the outputs batch by batch, and report the rows so far; raise if there are none."""
        is_searching, n_rows = self.last is None, 0
        for number, batch in enumerate(loader):
            where = f"batch {number} of the loader"
            parts = _unpack_batch(batch, self.unpack, where)
            _require_accepted(self.model, parts, where)
            named = {name: self.moved(one) for name, one in parts.named.items()}
            with _recorded_calls(self.recorded_layers(is_searching)) as calls:
                raw = self.model(*(self.moved(one) for one in parts.inputs), **named)
            outputs = _select_head(raw, self.head)
            if not outputs.numel():
                continue
            if is_searching and outputs.ndim <= 2:
                self.last, is_searching = _last_linear(calls, outputs), False
            found = self.batch(outputs, parts, calls, f"{CALLER} (batch {number})")
            yield found
            n_rows += len(found)
            if on_progress is not None:
                on_progress(n_rows)
        if not n_rows:
            rule, fix = "must have at least 1 batch", "Pass a loader with at least one row"
            raise BadValueError("loader", CALLER, rule, "none", fix)

    def recorded_layers(self, is_searching: bool) -> set[nn.Module]:
        """Return the layers to record: while searching, any linear layer may be the last."""
        linear = {one for one in self.model.modules() if isinstance(one, nn.Linear)}
        candidates = linear if is_searching else {self.last}
        return {one for one in (*candidates, self.layer) if one is not None}

    def batch(self, outputs: torch.Tensor, parts: _Parts, calls: list[_Call], caller: str) -> Batch:
        """Return checked rows."""
        wrapped: BaseOutputs = wrap_outputs(outputs, self.likelihood, caller)
        if isinstance(wrapped, RegressionMembers):  # of one member
            is_normal = wrapped.family == "normal"
            normal = Normal(wrapped.means[0], wrapped.stds[0])
            wrapped = normal if is_normal else wrapped.quantiles(LEVELS)

        self.n_classes = wrapped.n_classes if isinstance(wrapped, Logits) else None
        labels, weights = (
            to_array(_rows_like(outputs, one, name, caller)) if torch.is_tensor(one) else one
            for one, name in ((parts.labels, "labels"), (parts.weights, "weights"))
        )
        if labels is not None and isinstance(self.likelihood, BaseRegressionLikelihood):
            labels = _as_targets(labels, self.likelihood, caller)
            if isinstance(self.likelihood, Bernoulli):
                labels = _without_marks(labels, self.likelihood, caller)
        features = self.features(outputs, calls, caller)
        return make_batch(labels, wrapped, sample_weight=weights, features=features, caller=caller)

    def features(self, outputs: torch.Tensor, calls: list[_Call], caller: str) -> FloatArray | None:
        """Return the output of `layer`, or the input of the last layer."""
        if self.layer is not None:
            found = _only_call(calls, self.layer, "layer").output
        elif self.last is not None:
            found = _only_call(calls, self.last, "last_layer").input
        else:
            return None
        rule, fix = "must be a layer that returns a tensor", "Use a layer after it"
        require_type(found, torch.Tensor, "layer", caller, rule, fix)
        if outputs.ndim > 2:
            return to_array(_rows_like(outputs, found, "layer", caller))
        return to_array(found.flatten(1) if found.ndim > 1 else found[:, None])

    @property
    def has_lost_features(self) -> bool:
        """Whether there are linear layers, but none is known to be the last."""
        is_lost = self.last is None and self.layer is None
        return is_lost and any(isinstance(one, nn.Linear) for one in self.model.modules())

    def moved(self, value: Any) -> Any:
        """Return a tensor on the device of the model."""
        is_tensor = isinstance(value, torch.Tensor) and self.device is not None
        return value.to(self.device) if is_tensor else value

    def last_weights(self) -> tuple[FloatArray | None, FloatArray | None]:
        """Return weights and bias of the last layer, one row per class or output."""
        if not isinstance(self.last, nn.Linear):
            return None, None
        weights = to_array(self.last.weight)
        bias = np.zeros_like(weights[:, 0]) if self.last.bias is None else to_array(self.last.bias)
        if len(weights) == 1 and self.n_classes:  # a single logit is that of the second class
            weights, bias = (np.concatenate([np.zeros_like(one), one]) for one in (weights, bias))
        return weights[: self.n_classes], bias[: self.n_classes]


class _Call(NamedTuple):
    """The input and the output of one call of a layer."""

    layer: nn.Module
    input: Any
    output: Any


@contextmanager
def _recorded_calls(layers: Iterable[nn.Module]) -> Iterator[list[_Call]]:
    """Record the calls of layers, with copies of tensors: later layers may work in place.

    >>> layer = nn.ReLU()
    >>> with _recorded_calls([layer]) as calls:
    ...     _ = layer(torch.tensor([-1.0, 2.0]))
    >>> calls[0].output.tolist()
    [0.0, 2.0]
    """
    calls: list[_Call] = []

    def before(layer: nn.Module, inputs: tuple[Any, ...]) -> None:
        calls.append(_Call(layer, _copied(inputs[0] if inputs else None), None))

    def after(layer: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
        place = max(i for i, call in enumerate(calls) if call.layer is layer)
        calls[place] = calls[place]._replace(output=_copied(output))

    with ExitStack() as hooks:
        for layer in layers:
            hooks.callback(layer.register_forward_pre_hook(before).remove)
            hooks.callback(layer.register_forward_hook(after).remove)
        yield calls


def _copied(value: Any) -> Any:
    """Return a copy of a tensor, and anything else unchanged."""
    return value.clone() if isinstance(value, torch.Tensor) else value


def _only_call(calls: Iterable[_Call], layer: nn.Module, argument: str) -> _Call:
    """Return the only call of a layer in a batch, or raise."""
    found = [call for call in calls if call.layer is layer]
    if len(found) != 1:
        got = f"{type(layer).__name__}, which ran {len(found)} times"
        rule, fix = "must be a layer that runs once per batch", "Use a layer before or after it"
        raise BadValueError(argument, CALLER, rule, got, fix)
    return found[0]


def _last_linear(calls: list[_Call], outputs: torch.Tensor) -> nn.Linear | None:
    """Return the linear layer, called once, whose output is that of the model; or None."""
    layers = [call.layer for call in calls]
    for layer, _, output in reversed(calls):
        if isinstance(layer, nn.Linear) and output.flatten().equal(outputs.flatten()):
            return layer if layers.count(layer) == 1 else None
    return None


class _Parts(NamedTuple):
    """Positional and keyword inputs of the model; labels and weights, None if there are none."""

    inputs: tuple[Any, ...]
    named: dict[str, Any]
    labels: Any = None
    weights: Any = None


def _unpack_batch(batch: Any, unpack: Unpack | None, where: str) -> _Parts:
    """Return the parts of a batch: as `unpack` returns them, or inputs with the labels last.

    >>> _unpack_batch((torch.zeros(2, 4), torch.tensor([0, 1])), None, "batch 0").labels
    tensor([0, 1])
    """
    if unpack is not None:
        return _custom_parts(batch, unpack, where)
    if isinstance(batch, torch.Tensor):
        return _Parts((batch,), {})
    if not isinstance(batch, list | tuple) or not batch:
        rule, fix = "must be inputs, or inputs and labels", "Use a loader of (inputs, labels)"
        fix = UNPACK_DICT if isinstance(batch, Mapping) else fix
        raise BadTypeError(where, CALLER, rule, type(batch).__name__, fix)
    return _Parts(tuple(batch), {}) if len(batch) == 1 else _Parts(tuple(batch[:-1]), {}, batch[-1])


def _custom_parts(batch: Any, unpack: Unpack, where: str) -> _Parts:
    """Return the parts of a batch that the caller's function returns."""
    rule = "must be a function of a batch"
    require_type(unpack, Callable, "unpack", CALLER, rule, UNPACK_TUPLE)
    found = unpack(batch)
    if not isinstance(found, tuple) or len(found) not in (2, 3):
        rule = "must return (inputs, labels) or (inputs, labels, weights)"
        got = f"{type(found).__name__} for {where}"
        raise BadTypeError("unpack", CALLER, rule, got, UNPACK_TUPLE)
    inputs, *others = found
    if isinstance(inputs, Mapping):
        return _Parts((), dict(inputs), *others)
    return _Parts(tuple(inputs) if isinstance(inputs, list | tuple) else (inputs,), {}, *others)


def _require_accepted(model: nn.Module, parts: _Parts, where: str) -> None:
    """Raise unless the model accepts these inputs."""
    try:
        inspect.signature(model.forward).bind(*parts.inputs, **parts.named)
    except TypeError as error:
        rule, got = f"must be inputs that {type(model).__name__} accepts, then labels", str(error)
        raise BadTypeError(where, CALLER, rule, got, UNPACK_TUPLE) from error


def _rows_like(
    outputs: torch.Tensor, values: torch.Tensor, argument: str, caller: str
) -> torch.Tensor:
    """Return values in the order of the rows of outputs: pixel by pixel for maps."""
    if outputs.ndim <= 2:
        return values
    size = outputs.shape[2:]
    if values.shape[0] != len(outputs) or values.shape[-len(size) :] != size:
        rule = f"must be maps of the size {tuple(size)} of the outputs"
        got = f"shape {tuple(values.shape)}"
        raise BadValueError(argument, caller, rule, got, "Pass one entry per pixel")
    return values.flatten() if values.ndim < outputs.ndim else flatten_maps(values)


def _select_head(outputs: Any, head: str | int | None) -> torch.Tensor:
    """Return one of the tensors that a model returned, or its only one."""
    if isinstance(outputs, torch.Tensor):
        if head is not None:
            rule, fix = "must be None for a model with one output", "Leave it out"
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
        rule, fix = "must return tensors", "Wrap it in a module that returns its logits"
        raise BadTypeError("model", CALLER, rule, type(outputs).__name__, fix)
    if not isinstance(heads.get(head), torch.Tensor):
        rule = f"must be one of the model's outputs {', '.join(names)}"
        raise BadValueError("head", CALLER, rule, repr(head), f"Use head={names[0]}")
    return heads[head]  # type: ignore[no-any-return]


def _write_shards(
    batches: Iterable[Batch], path: str | os.PathLike[str], is_weighted: bool = False
) -> Shards:
    """Write rows to a file, atomically, and return them as shards of the file."""
    roles: dict[str, Any] = {}
    with Sink(path) as sink:
        for batch in batches:
            columns, roles = _file_columns(batch)
            if is_weighted:
                columns, roles = {**columns, "weight": batch.weight}, {**roles, "weight": "weight"}
            sink.write(columns)
    return scan(path, Columns(**roles))


def _require_columns(likelihood: Any, path: Any) -> None:
    """Raise if a file cannot hold the outputs of a likelihood."""
    if not isinstance(likelihood, BaseRegressionLikelihood) or isinstance(likelihood, Bernoulli):
        return
    if likelihood.n_targets > 1 or likelihood.family != "normal":
        rule, fix = f"must be None for {likelihood}", "Leave it out, and keep the rows in memory"
        raise BadValueError("path", CALLER, rule, repr(os.fspath(path)), fix)


def _as_targets(labels: Any, likelihood: BaseRegressionLikelihood, caller: str) -> NDArray[Any]:
    """Return targets of the rows, or rows x targets; a single one may have an axis of its own."""
    n_targets, targets = likelihood.n_targets, as_array(labels, "labels", caller)
    if n_targets == 1:
        targets = targets[:, 0] if targets.shape[1:] == (1,) else targets
        is_valid = targets.ndim == 1 or isinstance(likelihood, Bernoulli)  # label probabilities
    else:
        targets = targets.astype(np.float64) if targets.dtype.kind == "b" else targets
        is_valid = targets.shape[1:] == (n_targets,)
    if not is_valid:
        rule, got = f"must have shape (rows, {n_targets})", f"shape {targets.shape}"
        raise BadValueError("labels", caller, rule, got, "Order the targets like the outputs")
    return targets


def _without_marks(targets: NDArray[Any], likelihood: Bernoulli, caller: str) -> Any:
    """Return binary labels, those marked as uncertain by the policy of a likelihood."""
    policy, n_targets = likelihood.uncertain, likelihood.n_targets
    if n_targets == 1 and (policy is None or targets.ndim == 2):
        return targets
    marked = targets.reshape(-1, n_targets)
    outputs = MultiLabel(np.zeros(marked.shape))
    labels = make_label_matrix(marked, outputs, "labels", caller, uncertain=policy)
    if n_targets > 1:
        return labels
    [values] = labels.values.T
    return values if isinstance(policy, str) else np.stack([1 - values, values], axis=1)


def _file_columns(batch: Batch) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return a batch as columns, and their roles."""
    columns, roles = {}, {}
    if isinstance(batch.outputs, Logits):
        columns, roles = _numbered("logit", batch.outputs.array), {"logits": "logit_*"}
    elif isinstance(batch.outputs, MultiLabel):
        columns = _numbered("logit", batch.outputs.log_odds)
        roles = {"multilabel_logits": "logit_*"}
    elif isinstance(batch.outputs, Normal):
        columns = {"mean": batch.outputs.mean, "std": batch.outputs.std}
        roles = {"mean": "mean", "std": "std"}
    if batch.features is not None:
        columns, roles["features"] = columns | _numbered("feature", batch.features), "feature_*"
    labels = _label_array(batch)
    if labels is None:
        return columns, roles
    if labels.ndim == 2:
        return columns | _numbered("label", labels), {**roles, "label": "label_*"}
    # Integers with missing ones among them.
    if labels.dtype.kind == "f" and isinstance(batch.labels, Labels):
        labels = np.array([None if np.isnan(one) else int(one) for one in labels], object)
    return {**columns, "label": labels}, {**roles, "label": "label"}


def _label_array(batch: Batch) -> NDArray[Any] | None:
    """Return the labels of a batch, NaN where missing, or None if it has none."""
    labels = batch.labels
    if not isinstance(labels, Labels):
        return None if labels is None else labels.values
    if labels.probabilities is not None:
        return np.where(labels.is_missing[:, np.newaxis], np.nan, labels.probabilities)
    return np.where(labels.is_missing, np.nan, labels.codes) if labels.n_missing else labels.codes


def _numbered(name: str, matrix: FloatArray) -> dict[str, NDArray[Any]]:
    """Return the columns of a matrix by name and number."""
    return {f"{name}_{k}": column for k, column in enumerate(matrix.T)}
