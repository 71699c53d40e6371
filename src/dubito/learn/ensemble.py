"""Deep ensembles: the same network learned anew from other starts."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, final

import numpy as np
from torch import nn

from dubito.arrays import as_list, as_seed
from dubito.doubt.densities import as_count
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.modes import left_as_it_was, seeded
from dubito.learn.passes import members_of
from dubito.outputs import Members

__all__ = ["DeepEnsemble"]

NAME = "DeepEnsemble"
FIX = "[make_model(), make_model(), ...]"


@final
class DeepEnsemble:
    """Ask several trained models; `DeepEnsemble.trained` makes and trains them.

    Models run in evaluation and are left as they were. `likelihood` is what they were trained with;
    without one their outputs are logits, classes on axis 1. Lakshminarayanan, Pritzel and
    Blundell, "Simple and scalable predictive uncertainty estimation using deep ensembles", 2017.

    >>> import torch
    >>> ensemble = DeepEnsemble.trained(lambda: nn.Linear(4, 3), lambda model: None, n_members=5)
    >>> ensemble(torch.ones(2, 4)).array.shape
    (5, 2, 3)
    """

    def __init__(self, models: Iterable[nn.Module], *, likelihood: Any = None) -> None:
        self.models = as_models(models)
        self.likelihood = likelihood

    @classmethod
    def trained(
        cls,
        factory: Callable[[], nn.Module],
        train: Callable[[nn.Module], Any],
        n_members: int = 5,
        *,
        likelihood: Any = None,
        seed: int = 0,
    ) -> DeepEnsemble:
        """Make each member by `factory()` and train it by `train(model)`, a loop of your own.

        Both draw their random numbers (first weights, order of rows) from torch, seeded for each
        member.
        """
        n_models = as_count(n_members, "n_members", f"{NAME}.trained")
        models = []
        for start in np.random.SeedSequence(as_seed(seed, NAME)).generate_state(n_models).tolist():
            with seeded(start):
                model = factory()
                train(model)
            models.append(model)
        return cls(models, likelihood=likelihood)

    def __call__(self, *inputs: Any, **named: Any) -> Members:
        """Return what each model says of some inputs, given as to the models themselves."""
        passes = []
        for model in self.models:
            with left_as_it_was(model):
                passes.append(model(*inputs, **named))
        return members_of(passes, self.likelihood, NAME)


def as_models(models: Any) -> tuple[nn.Module, ...]:
    """Return models, all different, of which there must be one."""
    listed = as_list(models, "models", NAME, "a list of trained models", FIX)
    for i, model in enumerate(listed):
        if not isinstance(model, nn.Module):
            raise BadTypeError(f"models[{i}]", NAME, "a torch module", type(model).__name__, FIX)
    if not listed:
        raise BadValueError("models", NAME, "1 model or more", "none", FIX)
    if len({id(model) for model in listed}) < len(listed):
        fix = "a factory that makes a new model at each call"
        raise BadValueError("models", NAME, "all different", "one of them twice", fix)
    return tuple(listed)
