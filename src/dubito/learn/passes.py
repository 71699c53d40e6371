"""Several passes per row: Monte Carlo dropout, ensembles, augmentation; evaluation mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import nn

from dubito.arrays import (
    FloatArray,
    RandomState,
    as_count,
    as_finite,
    as_floats,
    as_list,
    draw_seed,
    freeze,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.class_likelihoods import BaseClassLikelihood, UncertaintyAware
from dubito.learn.likelihoods import SEQUENCE, BaseRegressionLikelihood, Bernoulli, require_type
from dubito.outputs import Logits, Members, MultiLabel, MultiLabelMembers, RegressionMembers

MAX_NAMES = 12  # of layers in a message


def require_module(model: Any, caller: str) -> None:
    """Raise unless a model is a torch module."""
    fix = "Wrap the model in an nn.Module"
    require_type(model, nn.Module, "model", caller, "must be a torch module", fix)


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
            now = dict(module.named_buffers(recurse=False))
            for name in {*now, *before}:
                if now.get(name) is not before.get(name):
                    setattr(module, name, before.get(name))  # the tensor that it was, or None
        with torch.no_grad():
            for buffer, value in values:
                if not torch.equal(buffer, value):
                    buffer.copy_(value)


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


View = Callable[[torch.Tensor], torch.Tensor]

LIKELIHOODS = (
    "Use likelihood=Bernoulli() for binary log odds, Gaussian() or another regression likelihood "
    "for targets"
)

DROPOUT_LAYERS = (
    nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
)  # fmt: skip
DROPOUT, ENSEMBLE, AUGMENTATION = "MonteCarloDropout", "DeepEnsemble", "TestTimeAugmentation"
FIX_MODELS = "Pass [make_model(), make_model(), ...]"
FIX_VIEWS = "Pass [identity_view, *flip_views(), *shift_views(1)]"


@final
class MonteCarloDropout:
    """Several passes of a model with its dropout layers in training mode.

    All other layers, such as batch norm, are in evaluation mode, and the model is restored
    afterwards. The same inputs and `random_state` give the same members.

    Parameters
    ----------
    model : nn.Module
        The trained model.
    n_passes : int, default=10
        The number of passes.
    layers : iterable of str or nn.Module, optional
        Further modules to put into training mode, by name or themselves: those that call
        `functional.dropout`, which cannot be detected.
    likelihood : BaseLikelihood, optional
        What the model was trained with: classes, binary labels or a regression. By default its
        outputs are logits, with classes on axis 1; a single output needs a likelihood.
    random_state : int, RandomState or None, default=0
        The seed of the dropout masks.

    References
    ----------
    Gal and Ghahramani, "Dropout as a Bayesian approximation: representing model uncertainty in
    deep learning", 2016.

    Examples
    --------
    >>> from torch import nn
    >>> import torch
    >>> from dubito.learn import MonteCarloDropout
    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    >>> MonteCarloDropout(model, n_passes=5)(torch.ones(2, 4)).array.shape
    (5, 2, 3)
    """

    def __init__(
        self,
        model: nn.Module,
        n_passes: int = 10,
        *,
        layers: Iterable[str | nn.Module] = (),
        likelihood: Any = None,
        random_state: RandomState = 0,
    ) -> None:
        require_module(model, DROPOUT)
        self.model = model
        self.n_passes = as_count(n_passes, "n_passes", DROPOUT, example=10)
        self.likelihood = likelihood
        self.seed = draw_seed(random_state, DROPOUT)
        self.layers = _stochastic_layers(model, layers)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Return the outputs of each pass.

        Parameters
        ----------
        *inputs, **named
            The inputs of the model.

        Returns
        -------
        Members, MultiLabelMembers or RegressionMembers
            Probabilities of shape (n_passes, n_rows, n_classes) or, for several binary labels,
            (n_passes, n_rows, n_labels); means and standard deviations for a regression.
        """
        with evaluation_mode(self.model, self.layers), seeded(self.seed), _slow_attention():
            passes = [self.model(*inputs, **named) for _ in range(self.n_passes)]
        return _as_members(passes, self.likelihood, DROPOUT)


@contextmanager
def _slow_attention() -> Iterator[None]:
    """Run transformers layer by layer: their fast path in evaluation mode skips dropout."""
    is_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_enabled)


def _stochastic_layers(model: nn.Module, layers: Any) -> list[nn.Module]:
    """Return the dropout layers and the given ones, or raise if there are none."""
    rule, fix = "must be a list of layers or their names", "Use layers=['encoder']"
    if isinstance(layers, str):
        raise BadTypeError("layers", DROPOUT, rule, repr(layers), f"Use layers=[{layers!r}]")
    given = as_list(layers, "layers", DROPOUT, rule, fix)
    found = [one for one in model.modules() if _is_dropout(one)]
    found += [find_layer(model, one, f"layers[{i}]", DROPOUT) for i, one in enumerate(given)]
    if not found:
        rule, got = "must have a dropout layer with p above 0", f"{type(model).__name__} without"
        fix = "Add nn.Dropout(0.2) before the last layer, name `layers`, or use DeepEnsemble"
        raise BadValueError("model", DROPOUT, rule, got, fix)
    return found


def _is_dropout(layer: nn.Module) -> bool:
    """Whether dropout is all that training mode changes in a layer."""
    has_dropout = isinstance(layer, nn.RNNBase | nn.MultiheadAttention) and layer.dropout > 0
    return has_dropout or (isinstance(layer, DROPOUT_LAYERS) and layer.p > 0)


@final
class DeepEnsemble:
    """Several trained models; `DeepEnsemble.train` makes and trains them.

    Models run in evaluation mode and are restored afterwards.

    Parameters
    ----------
    models : iterable of nn.Module
        The trained models, all different.
    likelihood : BaseLikelihood, optional
        What they were trained with: classes, binary labels or a regression. By default their
        outputs are logits, with classes on axis 1; a single output needs a likelihood.

    References
    ----------
    Lakshminarayanan, Pritzel and Blundell, "Simple and scalable predictive uncertainty estimation
    using deep ensembles", 2017.

    Examples
    --------
    >>> from torch import nn
    >>> from dubito.learn import DeepEnsemble
    >>> import torch
    >>> ensemble = DeepEnsemble.train(lambda: nn.Linear(4, 3), lambda model: None, n_members=5)
    >>> ensemble(torch.ones(2, 4)).array.shape
    (5, 2, 3)
    """

    def __init__(self, models: Iterable[nn.Module], *, likelihood: Any = None) -> None:
        rules = "must be a list of trained models", "must be a torch module", "model"
        self.models = _as_items(models, nn.Module, "models", ENSEMBLE, rules, FIX_MODELS)
        if len({id(model) for model in self.models}) < len(self.models):
            rule, fix = "must all be different", "Use a factory that makes a new model in each call"
            raise BadValueError("models", ENSEMBLE, rule, "one of them twice", fix)
        self.likelihood = likelihood

    @classmethod
    def train(
        cls,
        factory: Callable[[], nn.Module],
        train_model: Callable[[nn.Module], Any],
        n_members: int = 5,
        *,
        likelihood: Any = None,
        random_state: RandomState = 0,
    ) -> DeepEnsemble:
        """Make and train the members.

        Parameters
        ----------
        factory : callable
            Returns a new, untrained model.
        train_model : callable
            Trains the model that it is given. Both draw random numbers from torch, which is
            seeded for each member.
        n_members : int, default=5
            The number of members.
        likelihood : BaseLikelihood, optional
            What the models are trained with.
        random_state : int, RandomState or None, default=0
            The seed of the members' seeds.

        Returns
        -------
        DeepEnsemble
            The trained ensemble.
        """
        caller = f"{ENSEMBLE}.train"
        n_models = as_count(n_members, "n_members", caller, example=5)
        sequence = np.random.SeedSequence(draw_seed(random_state, caller))
        models = []
        for seed in sequence.generate_state(n_models).tolist():
            with seeded(seed):
                model = factory()
                train_model(model)
            models.append(model)
        return cls(models, likelihood=likelihood)

    def __call__(self, *inputs: Any, **named: Any) -> Any:
        """Return the outputs of each model.

        Parameters
        ----------
        *inputs, **named
            The inputs of the models.

        Returns
        -------
        Members, MultiLabelMembers or RegressionMembers
            Probabilities of shape (n_members, n_rows, n_classes) or, for several binary labels,
            (n_members, n_rows, n_labels); means and standard deviations for a regression.
        """
        passes = []
        for model in self.models:
            with evaluation_mode(model):
                passes.append(model(*inputs, **named))
        return _as_members(passes, self.likelihood, ENSEMBLE)


def _as_items(
    values: Any, kind: Any, argument: str, caller: str, rules: tuple[str, str, str], fix: str
) -> tuple[Any, ...]:
    """Return at least one item of a kind; `rules` are those of the list and of one, and a noun."""
    listed = as_list(values, argument, caller, rules[0], fix)
    for i, one in enumerate(listed):
        require_type(one, kind, f"{argument}[{i}]", caller, rules[1], fix)
    if not listed:
        raise BadValueError(argument, caller, f"must hold at least 1 {rules[2]}", "none", fix)
    return tuple(listed)


@final
class TestTimeAugmentation:
    """A model applied to several views of the same inputs.

    The model runs in evaluation mode and is restored afterwards. Each view gets a copy of the
    inputs.

    Parameters
    ----------
    model : nn.Module
        The trained model.
    views : iterable of callable
        Functions from tensor to tensor, such as `flip_views`.
    likelihood : BaseLikelihood, optional
        What the model was trained with: classes, binary labels or a regression. By default its
        outputs are logits, with classes on axis 1; a single output needs a likelihood.
    random_state : int, RandomState or None, default=0
        The seed of what views draw from torch.

    References
    ----------
    Ayhan and Berens, "Test-time data augmentation for estimation of heteroscedastic aleatoric
    uncertainty in deep neural networks", 2018.

    Examples
    --------
    >>> from torch import nn
    >>> import torch
    >>> from dubito.learn import TestTimeAugmentation, identity_view, shift_views
    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    >>> views = TestTimeAugmentation(model, [identity_view, *shift_views(1)])
    >>> views(torch.ones(2, 1, 8, 8)).array.shape
    (5, 2, 3)
    """

    __test__: ClassVar[bool] = False  # by its name, pytest would collect it

    def __init__(
        self,
        model: nn.Module,
        views: Iterable[View],
        *,
        likelihood: Any = None,
        random_state: RandomState = 0,
    ) -> None:
        require_module(model, AUGMENTATION)
        self.model = model
        rule = "must be {} from tensor to tensor"
        rules = rule.format("a list of functions"), rule.format("a function"), "view"
        self.views = _as_items(views, Callable, "views", AUGMENTATION, rules, FIX_VIEWS)
        self.likelihood = likelihood
        self.seed = draw_seed(random_state, AUGMENTATION)

    def __call__(self, inputs: torch.Tensor) -> Any:
        """Return the outputs for each view.

        Parameters
        ----------
        inputs : Tensor
            The inputs of the model.

        Returns
        -------
        Members, MultiLabelMembers or RegressionMembers
            Probabilities of shape (n_views, n_rows, n_classes) or, for several binary labels,
            (n_views, n_rows, n_labels); means and standard deviations for a regression.
        """
        fix = "Use a model that takes one tensor"
        require_type(inputs, torch.Tensor, "inputs", AUGMENTATION, "must be a tensor", fix)
        with evaluation_mode(self.model), seeded(self.seed):
            passes = [self.model(view(inputs.clone())) for view in self.views]
        return _as_members(passes, self.likelihood, AUGMENTATION)


def identity_view(inputs: torch.Tensor) -> torch.Tensor:
    """Return the inputs unchanged.

    Parameters
    ----------
    inputs : Tensor
        Any inputs.

    Returns
    -------
    Tensor
        The same tensor.

    Examples
    --------
    >>> import torch
    >>> from dubito.learn import identity_view
    >>> identity_view(torch.tensor([1, 2])).tolist()
    [1, 2]
    """
    return inputs


def flip_views(dimensions: Iterable[int] = (-1,)) -> list[View]:
    """Return a view that flips the inputs, for each dimension.

    Parameters
    ----------
    dimensions : iterable of int, default=(-1,)
        -1 flips left and right, -2 up and down.

    Returns
    -------
    list of callable
        The views.

    Examples
    --------
    >>> import torch
    >>> from dubito.learn import flip_views
    >>> [view(torch.tensor([[1, 2], [3, 4]])).tolist() for view in flip_views((-1, -2))]
    [[[2, 1], [4, 3]], [[3, 4], [1, 2]]]
    """
    return [partial(torch.flip, dims=(dimension,)) for dimension in dimensions]


def shift_views(n_pixels: int = 1) -> list[View]:
    """Return views that shift images right, left, down and up, repeating the border.

    Parameters
    ----------
    n_pixels : int, default=1
        The length of the shift.

    Returns
    -------
    list of callable
        The four views.

    Examples
    --------
    >>> import torch
    >>> from dubito.learn import shift_views
    >>> [view(torch.tensor([[1, 2], [3, 4]])).tolist() for view in shift_views(1)[:2]]
    [[[1, 1], [3, 3]], [[2, 2], [4, 4]]]
    """
    n = as_count(n_pixels, "n_pixels", "shift_views")
    steps = [(step, dimension) for dimension in (-1, -2) for step in (n, -n)]
    return [partial(_shifted, n_pixels=step, dimension=dimension) for step, dimension in steps]


def _shifted(inputs: torch.Tensor, n_pixels: int, dimension: int) -> torch.Tensor:
    """Return inputs shifted along a dimension."""
    size = inputs.shape[dimension]
    places = torch.arange(size, device=inputs.device) - n_pixels
    return inputs.index_select(dimension, places.clamp(0, size - 1))


def _as_members(passes: Sequence[Any], likelihood: Any, caller: str) -> Any:
    """Return the outputs of several passes over the same rows."""
    for one in passes:
        rule, fix = "must return one tensor", "Wrap it in a module that returns one head"
        require_type(one, torch.Tensor, "model", caller, rule, fix)
    each: list[Any] = [wrap_outputs(one, likelihood, caller) for one in passes]
    if isinstance(likelihood, UncertaintyAware):
        certainty = [to_array(likelihood.certainty(one).flatten()) for one in passes]
        return Members.of(each, certainty=certainty)
    if isinstance(each[0], Logits):
        return Members.of(each)
    if isinstance(each[0], MultiLabel):
        return MultiLabelMembers(np.stack([one.array for one in each]))
    means, stds = (
        np.concatenate([getattr(one, name) for one in each]) for name in ("means", "stds")
    )
    return RegressionMembers(means, stds, each[0].family)


def wrap_outputs(
    outputs: torch.Tensor, likelihood: Any, caller: str
) -> Logits | MultiLabel | RegressionMembers:
    """Return the outputs of one pass as a likelihood declares them, each pixel of a map a row.

    Regressions are those of one member. Without a likelihood, several outputs per row are logits.
    """
    columns = outputs[:, None] if outputs.ndim == 1 else outputs
    if isinstance(likelihood, BaseClassLikelihood):
        with seeded(0):  # if it draws, passes should not differ by their draws
            return Logits(_finite_rows(likelihood.logits(columns), caller))
    if isinstance(likelihood, Bernoulli):
        log_odds = _finite_rows(likelihood.log_odds(columns), caller)
        if likelihood.n_targets == 1:
            return Logits(log_odds)
        return MultiLabel.from_logits(log_odds.astype(np.float64))
    if isinstance(likelihood, BaseRegressionLikelihood):
        if likelihood.family is None:
            rule = "must predict normal or Laplace distributions"
            fix = "Call likelihood.predict(outputs), or train with Gaussian()"
            raise BadValueError("likelihood", caller, rule, type(likelihood).__name__, fix)
        _finite_rows(columns, caller)  # torch would not say where
        found = likelihood.predict(columns)
        shape = (1, -1) if likelihood.n_targets == 1 else (1, -1, likelihood.n_targets)
        mean, std = (freeze(to_array(one.reshape(shape))) for one in (found.mean, found.stddev))
        return RegressionMembers(mean, std, likelihood.family)
    if likelihood is not None:
        rule, got = "must be a likelihood of dubito.learn", type(likelihood).__name__
        fix = f"{LIKELIHOODS}, Categorical(n_classes) for classes"
        raise BadTypeError("likelihood", caller, rule, got, fix)
    if columns.shape[1] == 1:
        rule = "must be given for a network with one output per row"
        raise BadValueError("likelihood", caller, rule, "None", LIKELIHOODS)
    if columns.ndim == 3:  # the classes of a sequence may be on axis 1 or last
        rule = "must have shape (rows, classes) or (images, classes, height, width)"
        got, fix = f"shape {tuple(outputs.shape)}", SEQUENCE
        raise BadValueError("outputs", caller, rule, got, fix)
    return Logits(_finite_rows(columns, caller))


def _finite_rows(outputs: torch.Tensor, caller: str) -> FloatArray:
    """Return outputs as an array with one row per row or pixel, which must be finite."""
    array = as_floats(to_array(flatten_maps(outputs)), "outputs", caller)
    return freeze(as_finite(array, "outputs", caller))


def flatten_maps(outputs: torch.Tensor) -> torch.Tensor:
    """Return outputs of shape (n_rows, n_classes), pixel by pixel for maps."""
    if outputs.ndim <= 2:
        return outputs
    return outputs.movedim(1, -1).reshape(-1, outputs.shape[1])


def to_array(tensor: torch.Tensor) -> FloatArray:
    """Return a copy of a tensor as an array, half precision as float32."""
    detached = tensor.detach().cpu()
    if detached.dtype in (torch.float16, torch.bfloat16):
        detached = detached.float()
    array: FloatArray = detached.numpy().copy()
    return array
