"""Monte Carlo dropout: one model that answers several times, each time without some of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import nn

from dubito.arrays import as_list, as_seed
from dubito.doubt.densities import as_count
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.layers import layer_named
from dubito.learn.modes import left_as_it_was, require_module, seeded
from dubito.learn.passes import members_of
from dubito.outputs import Members

__all__ = ["MonteCarloDropout"]

LAYERS = (
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
NAME = "MonteCarloDropout"


@final
class MonteCarloDropout:
    """Run a model several times with dropout awake, and nothing else of it.

    Batch norm stays in evaluation, and the model is left as it was. The same inputs and `seed` give
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
        seed: int = 0,
    ) -> None:
        self.model = require_module(model, NAME)
        self.n_passes = as_count(n_passes, "n_passes", NAME)
        self.likelihood = likelihood
        self.seed = as_seed(seed, NAME)
        self.layers = awake_layers(model, layers)

    def __call__(self, *inputs: Any, **named: Any) -> Members:
        """Return what each pass says of some inputs, given as to the model itself."""
        with (
            left_as_it_was(self.model, self.layers),
            seeded(self.seed),
            plain_attention(),
        ):
            passes = [self.model(*inputs, **named) for _ in range(self.n_passes)]
        return members_of(passes, self.likelihood, NAME)


@contextmanager
def plain_attention() -> Iterator[None]:
    """Run transformers layer by layer: in evaluation their short cut passes by dropout layers."""
    is_enabled = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(is_enabled)


def awake_layers(model: nn.Module, layers: Any) -> list[nn.Module]:
    """Return the layers that drop something and those that are named, or raise where none is."""
    rule, fix = "a list of layers, or their names", "layers=['encoder']"
    if isinstance(layers, str):
        raise BadTypeError("layers", NAME, rule, repr(layers), f"layers=[{layers!r}]")
    named = as_list(layers, "layers", NAME, rule, fix)
    awake = [one for one in model.modules() if drops(one)]
    awake += [layer_named(model, one, f"layers[{i}]", NAME) for i, one in enumerate(named)]
    if not awake:
        rule, got = "one with a dropout layer whose p is above 0", f"{type(model).__name__} without"
        fix = "nn.Dropout(0.2) before its last layer, `layers` that drop unseen, or DeepEnsemble"
        raise BadValueError("model", NAME, rule, got, fix)
    return awake


def drops(layer: nn.Module) -> bool:
    """Return whether all that training changes in a layer is that it drops something."""
    if isinstance(layer, nn.RNNBase | nn.MultiheadAttention):
        return layer.dropout > 0
    return isinstance(layer, LAYERS) and layer.p > 0
