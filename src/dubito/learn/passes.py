"""From the tensors of several passes to `Members`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dubito.arrays import FloatArray
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.bernoulli import Bernoulli
from dubito.learn.class_likelihood import BaseClassLikelihood
from dubito.learn.modes import seeded
from dubito.learn.uncertainty_aware import UncertaintyAware
from dubito.outputs import Logits, Members

__all__ = ["array_of", "logits_of", "members_of", "one_tensor", "rows_of"]


def members_of(passes: Sequence[Any], likelihood: Any, caller: str) -> Members:
    """Return what several passes said of the same rows.

    Without a likelihood their outputs are logits. Classes are on axis 1: of maps, images x classes
    x height x width, each pixel is a row.
    """
    outputs = [one_tensor(one, caller) for one in passes]
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


def one_tensor(outputs: Any, caller: str) -> torch.Tensor:
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
