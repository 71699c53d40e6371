"""Monte Carlo dropout: one model that answers several times, each time without some of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, final

import torch
from torch import nn

from dubito.doubt.densities import as_count, as_seed
from dubito.errors import BadValueError
from dubito.learn.modes import left_as_it_was, seeded
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
    logits. Gal and Ghahramani, "Dropout as a Bayesian approximation", 2016.

    >>> model = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5), nn.Linear(8, 3))
    >>> MonteCarloDropout(model, n_passes=5)(torch.ones(2, 4)).array.shape
    (5, 2, 3)
    """

    def __init__(
        self, model: nn.Module, n_passes: int = 10, *, likelihood: Any = None, seed: int = 0
    ) -> None:
        self.model = model
        self.n_passes = as_count(n_passes, "n_passes", NAME)
        self.likelihood = likelihood
        self.seed = as_seed(seed, NAME)
        self.layers = dropout_layers(model)

    def __call__(self, *inputs: Any, **named: Any) -> Members:
        """Return what each pass says of some inputs, given as to the model itself."""
        with (
            left_as_it_was(self.model, self.layers),
            seeded(self.seed, self.model.parameters()),
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


def dropout_layers(model: nn.Module) -> list[nn.Module]:
    """Return the layers that drop something, or raise where there is none."""
    layers: list[nn.Module] = [
        one for one in model.modules() if isinstance(one, LAYERS) and one.p > 0
    ]
    if not layers:
        rule, got = "one with a dropout layer whose p is above 0", f"{type(model).__name__} without"
        fix = "nn.Dropout(0.2) before its last layer, or DeepEnsemble"
        raise BadValueError("model", NAME, rule, got, fix)
    return layers
