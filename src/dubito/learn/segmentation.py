"""Segmentation: noisy logits per pixel, and maps of aleatoric and epistemic uncertainty."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import log
from typing import Literal, final

import numpy as np
import torch
from torch import Tensor, distributions

from dubito.arrays import ArrayResult, FloatArray, IntArray, as_count
from dubito.doubt.ensembles import decompose_uncertainty
from dubito.errors import BadValueError
from dubito.learn.class_likelihoods import BaseClassLikelihood, cross_entropy
from dubito.learn.likelihoods import as_floor, bounded_exp, floored, require_tensor, require_type
from dubito.learn.passes import seeded

CALLER = "uncertainty_maps"


@final
@dataclass(frozen=True, slots=True)
class LogitNoise(BaseClassLikelihood):
    """One of several classes, from logits with normal noise of a predicted variance.

    Use it for segmentation, where the noise differs from pixel to pixel. The outputs are K
    logits, then K log variances. Loss and prediction average the softmax over random draws: seed
    PyTorch to repeat them.

    Parameters
    ----------
    n_classes : int
        The number of classes K.
    n_samples : int, default=20
        The number of draws.
    floor : float, default=-20.0
        A lower bound of the log variance.

    References
    ----------
    Kendall and Gal, "What uncertainties do we need in Bayesian deep learning for computer
    vision?", 2017.

    Examples
    --------
    >>> import torch
    >>> from dubito.learn import LogitNoise
    >>> LogitNoise(2).predict(torch.tensor([[30.0, 0.0, -10.0, -10.0]])).mode
    tensor([0])
    """

    n_classes: int
    n_samples: int = 20
    floor: float = -20.0

    def __post_init__(self) -> None:
        BaseClassLikelihood.__post_init__(self)
        as_count(self.n_samples, "n_samples", "LogitNoise")
        as_floor(self.floor, "LogitNoise")

    @property
    def n_outputs(self) -> int:
        return 2 * self.n_classes

    def predict(self, outputs: Tensor) -> distributions.Categorical:
        parameters = self._parameters(outputs, "predict")
        return distributions.Categorical(logits=self._log_probabilities(parameters))

    def logits(self, outputs: Tensor) -> Tensor:
        """Return the log probabilities of the classes, averaged over draws.

        Parameters
        ----------
        outputs : Tensor of shape (n_rows, 2 * n_classes)
            The outputs of the network.

        Returns
        -------
        Tensor of shape (n_rows, n_classes)
            Log probabilities, with classes on axis 1.
        """
        return self._log_probabilities(self._parameters(outputs, "logits")).movedim(-1, 1)

    def _class_losses(self, parameters: Tensor, labels: Tensor) -> Tensor:
        return cross_entropy(self._log_probabilities(parameters), labels)

    def _log_probabilities(self, parameters: Tensor) -> Tensor:
        """Return the log of the mean softmax over draws, by logsumexp to avoid log 0."""
        logits, raw = parameters.chunk(2, -1)
        std = bounded_exp(0.5 * floored(raw, self.floor))
        noise = torch.randn((self.n_samples, *logits.shape), dtype=std.dtype, device=std.device)
        return (logits + std * noise).log_softmax(-1).logsumexp(0) - log(self.n_samples)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UncertaintyMaps(ArrayResult):
    """Predictions and uncertainties per pixel, each of shape (n_images, height, width).

    Attributes
    ----------
    prediction : ndarray of int
        The most probable class of the mean over passes.
    confidence : ndarray
        Its mean probability.
    total : ndarray
        Total uncertainty, the sum of the following two.
    aleatoric : ndarray
        Noise in the data.
    epistemic : ndarray
        Disagreement of the passes.
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
    """Return prediction, confidence, aleatoric and epistemic uncertainty of each pixel.

    Parameters
    ----------
    likelihood : BaseClassLikelihood
        What the network was trained with.
    passes : sequence of Tensor
        At least 2 outputs for the same images, each of shape (n_images, n_outputs, height,
        width): passes with dropout, or members of an ensemble.
    by : {"entropy", "variance"}, default="entropy"
        How uncertainty is decomposed, as in `decompose_uncertainty`.

    Returns
    -------
    UncertaintyMaps
        Maps of shape (n_images, height, width).

    References
    ----------
    Kendall and Gal, "What uncertainties do we need in Bayesian deep learning for computer
    vision?", 2017.

    Examples
    --------
    >>> import torch
    >>> from dubito.learn import LogitNoise, uncertainty_maps
    >>> first, second = torch.zeros(1, 4, 8, 8), torch.ones(1, 4, 8, 8)
    >>> uncertainty_maps(LogitNoise(2), [first, second]).epistemic.shape
    (1, 8, 8)
    """
    rule, fix = "must be a likelihood of classes", "Use LogitNoise(n_classes)"
    require_type(likelihood, BaseClassLikelihood, "likelihood", CALLER, rule, fix)
    _require_same_images(passes)
    members = []
    for one in passes:
        with torch.no_grad(), seeded(0):  # passes should not differ by their draws
            members.append(likelihood.predict(one).probs.cpu().numpy())
    parts = decompose_uncertainty(np.stack(members), by=by)
    mean = np.mean(members, axis=0)
    return UncertaintyMaps(
        mean.argmax(axis=-1), mean.max(axis=-1), parts.total, parts.aleatoric, parts.epistemic
    )


def _require_same_images(passes: Sequence[Tensor]) -> None:
    """Raise unless there are at least two passes of the same shape."""
    if len(passes) < 2:
        rule = "must hold at least 2 passes"
        fix = "Use an ensemble, dropout passes or augmented views"
        raise BadValueError("passes", CALLER, rule, f"{len(passes)}", fix)
    for i, one in enumerate(passes):
        require_tensor(one, f"passes[{i}]", CALLER)
        if one.shape != passes[0].shape:
            rule = f"must have the shape of the first, {tuple(passes[0].shape)}"
            got, fix = f"shape {tuple(one.shape)}", "Pass the same images in each"
            raise BadValueError(f"passes[{i}]", CALLER, rule, got, fix)
