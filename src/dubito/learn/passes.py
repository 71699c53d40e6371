"""From the tensors of several passes to `Members`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from dubito.arrays import FloatArray
from dubito.errors import BadTypeError
from dubito.learn.bernoulli import Bernoulli
from dubito.learn.class_likelihood import AbstractClassLikelihood
from dubito.learn.modes import seeded
from dubito.learn.uncertainty_aware import UncertaintyAware
from dubito.outputs import Logits, Members

__all__ = ["array_of", "logits_of", "members_of", "one_tensor", "rows_of"]


def members_of(passes: Sequence[Any], likelihood: Any, caller: str) -> Members:
    """Return what several passes said of the same rows.

    Without a likelihood their outputs are logits. Of maps, images x classes x height x width, each
    pixel is a row.
    """
    rows = [rows_of(one_tensor(one, caller)) for one in passes]
    said = [Logits(array_of(logits_of(one, likelihood, caller))) for one in rows]
    if not isinstance(likelihood, UncertaintyAware):
        return Members.of(said)
    return Members.of(said, certainty=[array_of(likelihood.certainty(one)) for one in rows])


def logits_of(rows: torch.Tensor, likelihood: Any, caller: str) -> torch.Tensor:
    """Return the logits that outputs, rows x numbers, stand for under a likelihood."""
    is_yes_or_no = isinstance(likelihood, Bernoulli) and likelihood.n_targets == 1
    if likelihood is None or is_yes_or_no:
        return rows
    if not isinstance(likelihood, AbstractClassLikelihood):
        rule, got = "a likelihood of classes", type(likelihood).__name__
        raise BadTypeError("likelihood", caller, rule, got, "Categorical(n_classes)")
    with seeded(0, [rows]):  # some draw: passes then differ by what they say alone
        said: Any = likelihood.predict(rows)
    log_probabilities: torch.Tensor = said.logits
    first = rows[:, : likelihood.n_classes]
    # Energy reads the level of logits, which log probabilities have lost.
    is_same = first.log_softmax(1).to(log_probabilities.dtype).allclose(log_probabilities)
    return first if is_same else log_probabilities


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
