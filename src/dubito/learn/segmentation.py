"""Doubt for every pixel: noise in the logits, and maps of what several passes disagree about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor, distributions

from dubito.arrays import FloatArray, IntArray
from dubito.doubt.ensembles import decompose_uncertainty
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.class_likelihoods import BaseClassLikelihood, cross_entropy
from dubito.learn.layers import seeded
from dubito.learn.likelihoods import as_count, as_floor, floored, positive, require_tensor


@final
@dataclass(frozen=True, slots=True)
class LogitNoise(BaseClassLikelihood):
    """One class out of several, from logits with normal noise of a variance the network gives.

    Outputs are K logits, then K log variances, which count from `floor` up. Loss and prediction
    take the mean of the softmax over `n_samples` draws, anew at each call: seed PyTorch to repeat
    them. Kendall and Gal, "What uncertainties do we need in Bayesian deep learning for computer
    vision?", 2017.

    >>> LogitNoise(2).predict(torch.tensor([[30.0, 0.0, -10.0, -10.0]])).mode
    tensor([0])
    """

    n_classes: int
    n_samples: int = 20
    floor: float = -20.0

    def __post_init__(self) -> None:
        as_count(self.n_classes, "n_classes", "LogitNoise", least=2)
        as_count(self.n_samples, "n_samples", "LogitNoise")
        as_floor(self.floor, "LogitNoise")

    @property
    def n_outputs(self) -> int:
        return 2 * self.n_classes

    def predict(self, outputs: Tensor) -> distributions.Categorical:
        parameters = self._parameters(outputs, "predict")
        return distributions.Categorical(logits=self._log_probabilities(parameters))

    def logits(self, outputs: Tensor) -> Tensor:
        """Return log probabilities of the classes, on axis 1: the softmax is a mean over draws."""
        return self._log_probabilities(self._parameters(outputs, "logits")).movedim(-1, 1)

    def _class_losses(self, parameters: Tensor, shares: Tensor) -> Tensor:
        return cross_entropy(self._log_probabilities(parameters), shares)

    def _log_probabilities(self, parameters: Tensor) -> Tensor:
        """Return the log of the mean softmax over draws, by log-sum-exp: none becomes log 0."""
        logits, raw = parameters.chunk(2, -1)
        std = positive(0.5 * floored(raw, self.floor))
        draws = torch.randn((self.n_samples, *logits.shape), dtype=std.dtype, device=std.device)
        return (logits + std * draws).log_softmax(-1).logsumexp(0) - log(self.n_samples)


@final
@dataclass(frozen=True, slots=True, eq=False)
class UncertaintyMaps:
    """What several passes say of each pixel, images x height x width.

    `prediction` and `confidence` are of the mean probability. `total` doubt is `aleatoric`, noise in
    the data, plus `epistemic`, what the passes disagree about.
    """

    prediction: IntArray
    confidence: FloatArray
    total: FloatArray
    aleatoric: FloatArray
    epistemic: FloatArray


def uncertainty_maps(
    likelihood: BaseClassLikelihood,
    passes: Sequence[Tensor],
    by: Literal["entropy", "variance"] = "entropy",
) -> UncertaintyMaps:
    """Return class, confidence and split doubt of each pixel, from the outputs of several passes.

    `passes` are what a network trained by `likelihood` put out for the same images, with dropout
    on or one member of an ensemble after the other: images x n_outputs x height x width each.
    Kendall and Gal, 2017; split as `decompose_uncertainty` does it.

    >>> first, second = torch.zeros(1, 4, 8, 8), torch.ones(1, 4, 8, 8)
    >>> uncertainty_maps(LogitNoise(2), [first, second]).epistemic.shape
    (1, 8, 8)
    """
    if not isinstance(likelihood, BaseClassLikelihood):
        rule, fix = "a likelihood of classes", "LogitNoise(n_classes)"
        raise BadTypeError("likelihood", "uncertainty_maps", rule, type(likelihood).__name__, fix)
    _require_alike(passes)
    members = np.stack([_probabilities_of(likelihood, one) for one in passes])
    doubt = decompose_uncertainty(members, by=by)
    mean = members.mean(axis=0)
    return UncertaintyMaps(
        mean.argmax(axis=-1), mean.max(axis=-1), doubt.total, doubt.aleatoric, doubt.epistemic
    )


def _probabilities_of(likelihood: BaseClassLikelihood, outputs: Tensor) -> FloatArray:
    """Return the class probabilities of one pass, classes on the last axis."""
    # The same draws for each, where a likelihood draws: passes then differ by what they say alone.
    with torch.no_grad(), seeded(0):
        array: FloatArray = likelihood.predict(outputs).probs.cpu().numpy()
    return array


def _require_alike(passes: Sequence[Tensor]) -> None:
    """Raise unless these are two or more passes over the same images."""
    if len(passes) < 2:
        fix = "several passes: an ensemble, dropout, or augmented views"
        raise BadValueError("passes", "uncertainty_maps", "2 or more", f"{len(passes)}", fix)
    for i, one in enumerate(passes):
        require_tensor(one, f"passes[{i}]", "uncertainty_maps")
        if one.shape != passes[0].shape:
            rule = f"of the first one's shape {tuple(passes[0].shape)}"
            got, fix = f"shape {tuple(one.shape)}", "the same images in each"
            raise BadValueError(f"passes[{i}]", "uncertainty_maps", rule, got, fix)
