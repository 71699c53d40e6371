"""Several forward passes per row: Monte Carlo dropout, deep ensembles and test-time augmentation."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, ClassVar, final

import numpy as np
import torch
from torch import nn

from dubito.arrays import FloatArray, RandomState, as_list, draw_seed
from dubito.doubt.densities import as_count
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.class_likelihoods import BaseClassLikelihood, UncertaintyAware
from dubito.learn.layers import layer_named, left_as_it_was, require_module, seeded
from dubito.learn.likelihoods import Bernoulli
from dubito.outputs import Logits, Members


def _members_of(passes: Sequence[Any], likelihood: Any, caller: str) -> Members:
    """Return what several passes said of the same rows.

    Without a likelihood their outputs are logits. Classes are on axis 1: of maps, images x classes
    x height x width, each pixel is a row.
    """
    outputs = [_one_tensor(one, caller) for one in passes]
    said = [Logits(array_of(logits_of(one, likelihood, caller))) for one in outputs]
    if not isinstance(likelihood, UncertaintyAware):
        return Members.of(said)
    certainty = [array_of(likelihood.certainty(one).flatten()) for one in outputs]
    return Members.of(said, certainty=certainty)


def logits_of(outputs: torch.Tensor, likelihood: Any, caller: str) -> torch.Tensor:
    """Return the logits, rows x classes, that outputs stand for under a likelihood."""
    if isinstance(likelihood, BaseClassLikelihood):
        with seeded(0):  # some draw: passes then differ by what they say alone
            return rows_of(likelihood.logits(outputs))
    is_yes_or_no = isinstance(likelihood, Bernoulli) and likelihood.n_targets == 1
    if likelihood is not None and not is_yes_or_no:
        rule, got = "a likelihood of classes", type(likelihood).__name__
        raise BadTypeError("likelihood", caller, rule, got, "Categorical(n_classes)")
    # Of sequences some put classes last, some on axis 1: sizes do not tell which.
    is_clear = outputs.ndim < 2 or outputs.shape[1] == 1 if is_yes_or_no else outputs.ndim != 3
    if not is_clear:
        name = "1" if is_yes_or_no else "classes"
        rule = f"rows x {name}, or images x {name} x height x width"
        fix = "`.flatten(0, 1)` in the model for a sequence whose classes are last"
        raise BadValueError("outputs", caller, rule, f"shape {tuple(outputs.shape)}", fix)
    return rows_of(outputs)


def _one_tensor(outputs: Any, caller: str) -> torch.Tensor:
    """Return what a model put out, which must be one tensor."""
    if not isinstance(outputs, torch.Tensor):
        rule, fix = "one that returns one tensor", "a module that returns one head of it"
        raise BadTypeError("model", caller, rule, type(outputs).__name__, fix)
    return outputs


def rows_of(outputs: torch.Tensor) -> torch.Tensor:
    """Return rows x classes: the pixels of maps one after the other."""
    if outputs.ndim <= 2:
        return outputs
    return outputs.movedim(1, -1).reshape(-1, outputs.shape[1])


def array_of(tensor: torch.Tensor) -> FloatArray:
    """Return a tensor as an array of its own, float32 where NumPy has no such precision."""
    still = tensor.detach().cpu()
    if still.dtype in (torch.float16, torch.bfloat16):
        still = still.float()
    array: FloatArray = still.numpy().copy()
    return array


LAYERS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
DROPOUT = "MonteCarloDropout"


@final
class MonteCarloDropout:
    """Run a model several times with dropout awake, and nothing else of it.

    Batch norm stays in evaluation, and the model is left as it was. The same inputs and `random_state` give
    the same members. `likelihood` is what the model was trained with; without one its outputs are
    logits, classes on axis 1. Dropout that a module does in its own code (`functional.dropout`)
    cannot be found: name such modules in `layers`, by name or themselves. Gal and Ghahramani,
    "Dropout as a Bayesian approximation", 2016.

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
        self.model = require_module(model, DROPOUT)
        self.n_passes = as_count(n_passes, "n_passes", DROPOUT)
        self.likelihood = likelihood
        self.seed = draw_seed(random_state, DROPOUT)
        self.layers = _awake_layers(model, layers)

    def __call__(self, *inputs: Any, **named: Any) -> Members:
        """Return what each pass says of some inputs, given as to the model itself."""
        with (
            left_as_it_was(self.model, self.layers),
            seeded(self.seed),
            _plain_attention(),
        ):
            passes = [self.model(*inputs, **named) for _ in range(self.n_passes)]
        return _members_of(passes, self.likelihood, DROPOUT)


@contextmanager
def _plain_attention() -> Iterator[None]:
    """Run transformers layer by layer: in evaluation their short cut passes by dropout layers."""
    is_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_enabled)


def _awake_layers(model: nn.Module, layers: Any) -> list[nn.Module]:
    """Return the layers that drop something and those that are named, or raise where none is."""
    rule, fix = "a list of layers, or their names", "layers=['encoder']"
    if isinstance(layers, str):
        raise BadTypeError("layers", DROPOUT, rule, repr(layers), f"layers=[{layers!r}]")
    named = as_list(layers, "layers", DROPOUT, rule, fix)
    awake = [one for one in model.modules() if _drops(one)]
    awake += [layer_named(model, one, f"layers[{i}]", DROPOUT) for i, one in enumerate(named)]
    if not awake:
        rule, got = "one with a dropout layer whose p is above 0", f"{type(model).__name__} without"
        fix = "nn.Dropout(0.2) before its last layer, `layers` that drop unseen, or DeepEnsemble"
        raise BadValueError("model", DROPOUT, rule, got, fix)
    return awake


def _drops(layer: nn.Module) -> bool:
    """Return whether all that training changes in a layer is that it drops something."""
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return layer.dropout > 0
    return isinstance(layer, LAYERS) and layer.p > 0


ENSEMBLE = "DeepEnsemble"
FIX = "[make_model(), make_model(), ...]"


@final
class DeepEnsemble:
    """Ask several trained models; `DeepEnsemble.train` makes and trains them.

    Models run in evaluation and are left as they were. `likelihood` is what they were trained with;
    without one their outputs are logits, classes on axis 1. Lakshminarayanan, Pritzel and
    Blundell, "Simple and scalable predictive uncertainty estimation using deep ensembles", 2017.

    >>> import torch
    >>> ensemble = DeepEnsemble.train(lambda: nn.Linear(4, 3), lambda model: None, n_members=5)
    >>> ensemble(torch.ones(2, 4)).array.shape
    (5, 2, 3)
    """

    def __init__(self, models: Iterable[nn.Module], *, likelihood: Any = None) -> None:
        self.models = _as_models(models)
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
        """Make each member by `factory()` and train it by `train_model(model)`, a loop of your own.

        Both draw their random numbers (first weights, order of rows) from torch, seeded for each
        member.
        """
        n_models = as_count(n_members, "n_members", f"{ENSEMBLE}.train")
        models = []
        for start in (
            np.random.SeedSequence(draw_seed(random_state, ENSEMBLE))
            .generate_state(n_models)
            .tolist()
        ):
            with seeded(start):
                model = factory()
                train_model(model)
            models.append(model)
        return cls(models, likelihood=likelihood)

    def __call__(self, *inputs: Any, **named: Any) -> Members:
        """Return what each model says of some inputs, given as to the models themselves."""
        passes = []
        for model in self.models:
            with left_as_it_was(model):
                passes.append(model(*inputs, **named))
        return _members_of(passes, self.likelihood, ENSEMBLE)


def _as_models(models: Any) -> tuple[nn.Module, ...]:
    """Return models, all different, of which there must be one."""
    listed = as_list(models, "models", ENSEMBLE, "a list of trained models", FIX)
    for i, model in enumerate(listed):
        if not isinstance(model, nn.Module):
            raise BadTypeError(
                f"models[{i}]", ENSEMBLE, "a torch module", type(model).__name__, FIX
            )
    if not listed:
        raise BadValueError("models", ENSEMBLE, "1 model or more", "none", FIX)
    if len({id(model) for model in listed}) < len(listed):
        fix = "a factory that makes a new model at each call"
        raise BadValueError("models", ENSEMBLE, "all different", "one of them twice", fix)
    return tuple(listed)


View = Callable[[torch.Tensor], torch.Tensor]

AUGMENTATION = "TestTimeAugmentation"
AUGMENTATION_FIX = "[identity_view, *flip_views(), *shift_views(1)]"


@final
class TestTimeAugmentation:
    """Run a model on several views of the same inputs: any functions from tensor to tensor.

    The model runs in evaluation and is left as it was. A view gets a copy, and what it draws from
    torch comes from `random_state`. `likelihood` is what the model was trained with; without one its
    outputs are logits, classes on axis 1. Ayhan and Berens, "Test-time data augmentation for
    estimation of heteroscedastic aleatoric uncertainty in deep neural networks", 2018.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    >>> views = TestTimeAugmentation(model, [identity_view, *shift_views(1)])
    >>> views(torch.ones(2, 1, 8, 8)).array.shape
    (5, 2, 3)
    """

    __test__: ClassVar[bool] = False  # pytest takes its name for that of tests

    def __init__(
        self,
        model: nn.Module,
        views: Iterable[View],
        *,
        likelihood: Any = None,
        random_state: RandomState = 0,
    ) -> None:
        self.model = require_module(model, AUGMENTATION)
        self.views = _as_views(views)
        self.likelihood = likelihood
        self.seed = draw_seed(random_state, AUGMENTATION)

    def __call__(self, inputs: torch.Tensor) -> Members:
        """Return what the model says of each view of some inputs."""
        if not isinstance(inputs, torch.Tensor):
            rule, fix = "a tensor, which views are made of", "a model that takes one tensor"
            raise BadTypeError("inputs", AUGMENTATION, rule, type(inputs).__name__, fix)
        with left_as_it_was(self.model), seeded(self.seed):
            passes = [self.model(view(inputs.clone())) for view in self.views]
        return _members_of(passes, self.likelihood, AUGMENTATION)


def identity_view(inputs: torch.Tensor) -> torch.Tensor:
    """Return the inputs as they are: a view like any other.

    >>> identity_view(torch.tensor([1, 2])).tolist()
    [1, 2]
    """
    return inputs


def flip_views(dimensions: Iterable[int] = (-1,)) -> list[View]:
    """Return a view flipped along each of some dimensions: -1 is left and right, -2 up and down.

    >>> [view(torch.tensor([[1, 2], [3, 4]])).tolist() for view in flip_views((-1, -2))]
    [[[2, 1], [4, 3]], [[3, 4], [1, 2]]]
    """
    return [partial(torch.flip, dims=(dimension,)) for dimension in dimensions]


def shift_views(n_pixels: int = 1) -> list[View]:
    """Return views shifted right, left, down and up; what enters repeats the border.

    >>> [view(torch.tensor([[1, 2], [3, 4]])).tolist() for view in shift_views(1)[:2]]
    [[[1, 1], [3, 3]], [[2, 2], [4, 4]]]
    """
    n_steps = as_count(n_pixels, "n_pixels", "shift_views")
    return [
        partial(_shifted, n_pixels=n, dimension=dimension)
        for dimension in (-1, -2)
        for n in (n_steps, -n_steps)
    ]


def _shifted(inputs: torch.Tensor, n_pixels: int, dimension: int) -> torch.Tensor:
    """Return inputs moved along a dimension."""
    size = inputs.shape[dimension]
    places = torch.arange(size, device=inputs.device) - n_pixels
    return inputs.index_select(dimension, places.clamp(0, size - 1))


def _as_views(views: Any) -> tuple[View, ...]:
    """Return views, of which there must be one."""
    listed = as_list(
        views, "views", AUGMENTATION, "a list of functions from tensor to tensor", AUGMENTATION_FIX
    )
    for i, view in enumerate(listed):
        if not callable(view):
            rule = "a function from tensor to tensor"
            raise BadTypeError(
                f"views[{i}]", AUGMENTATION, rule, type(view).__name__, AUGMENTATION_FIX
            )
    if not listed:
        raise BadValueError("views", AUGMENTATION, "1 view or more", "none", AUGMENTATION_FIX)
    return tuple(listed)
