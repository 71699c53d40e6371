"""Test-time augmentation: one model that sees each row in several ways."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, ClassVar, final

import torch
from torch import nn

from dubito.arrays import as_list, as_seed
from dubito.doubt.densities import as_count
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.modes import left_as_it_was, require_module, seeded
from dubito.learn.passes import members_of
from dubito.outputs import Members

__all__ = [
    "TestTimeAugmentation",
    "View",
    "flip_views",
    "identity_view",
    "shift_views",
]

View = Callable[[torch.Tensor], torch.Tensor]

NAME = "TestTimeAugmentation"
FIX = "[unchanged, *flips(), *shifts(1)]"


@final
class TestTimeAugmentation:
    """Run a model on several views of the same inputs: any functions from tensor to tensor.

    The model runs in evaluation and is left as it was. A view gets a copy, and what it draws from
    torch comes from `seed`. `likelihood` is what the model was trained with; without one its
    outputs are logits, classes on axis 1. Ayhan and Berens, "Test-time data augmentation for
    estimation of heteroscedastic aleatoric uncertainty in deep neural networks", 2018.

    >>> model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))
    >>> views = TestTimeAugmentation(model, [unchanged, *shift_views(1)])
    >>> views(torch.ones(2, 1, 8, 8)).array.shape
    (5, 2, 3)
    """

    __test__: ClassVar[bool] = False  # pytest takes its name for that of tests

    def __init__(
        self, model: nn.Module, views: Iterable[View], *, likelihood: Any = None, seed: int = 0
    ) -> None:
        self.model = require_module(model, NAME)
        self.views = as_views(views)
        self.likelihood = likelihood
        self.seed = as_seed(seed, NAME)

    def __call__(self, inputs: torch.Tensor) -> Members:
        """Return what the model says of each view of some inputs."""
        if not isinstance(inputs, torch.Tensor):
            rule, fix = "a tensor, which views are made of", "a model that takes one tensor"
            raise BadTypeError("inputs", NAME, rule, type(inputs).__name__, fix)
        with left_as_it_was(self.model), seeded(self.seed):
            passes = [self.model(view(inputs.clone())) for view in self.views]
        return members_of(passes, self.likelihood, NAME)


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
    n_steps = as_count(n_pixels, "n_pixels", "shifts")
    return [
        partial(shifted, n_pixels=n, dimension=dimension)
        for dimension in (-1, -2)
        for n in (n_steps, -n_steps)
    ]


def shifted(inputs: torch.Tensor, n_pixels: int, dimension: int) -> torch.Tensor:
    """Return inputs moved along a dimension."""
    size = inputs.shape[dimension]
    places = torch.arange(size, device=inputs.device) - n_pixels
    return inputs.index_select(dimension, places.clamp(0, size - 1))


def as_views(views: Any) -> tuple[View, ...]:
    """Return views, of which there must be one."""
    listed = as_list(views, "views", NAME, "a list of functions from tensor to tensor", FIX)
    for i, view in enumerate(listed):
        if not callable(view):
            rule = "a function from tensor to tensor"
            raise BadTypeError(f"views[{i}]", NAME, rule, type(view).__name__, FIX)
    if not listed:
        raise BadValueError("views", NAME, "1 view or more", "none", FIX)
    return tuple(listed)
