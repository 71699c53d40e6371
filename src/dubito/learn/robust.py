"""Losses that withstand wrong labels, for comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from torch import Tensor, distributions

from dubito.arrays import as_share
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.categorical import Categorical
from dubito.learn.class_likelihood import BaseClassLikelihood
from dubito.learn.likelihood import as_count, as_number, require_tensor

__all__ = ["EarlyLearningRegularization", "GeneralizedCrossEntropy"]

LEAST = 1e-4  # probabilities count from here up to 1 minus it, so that no logarithm is infinite


@final
@dataclass(frozen=True, slots=True)
class GeneralizedCrossEntropy(BaseClassLikelihood):
    """One class out of several by (1 - p ** q) / q (GCE): from cross-entropy to absolute error.

    `q` near 0 is cross-entropy, 1 is one minus the label's probability, which hardly follows a
    label that looks wrong. Zhang and Sabuncu, "Generalized cross entropy loss for training deep
    neural networks with noisy labels", 2018.

    >>> GeneralizedCrossEntropy(2, q=1.0).loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor(0.5000)
    """

    n_classes: int
    q: float = 0.7

    def __post_init__(self) -> None:
        as_count(self.n_classes, "n_classes", "GeneralizedCrossEntropy", least=2)
        if as_share(self.q, "q", "GeneralizedCrossEntropy") == 0:
            rule, fix = "above 0", "Categorical, which is its limit at 0"
            raise BadValueError("q", "GeneralizedCrossEntropy", rule, repr(self.q), fix)

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    def predict(self, outputs: Tensor) -> distributions.Categorical:
        return distributions.Categorical(logits=self._parameters(outputs, "predict"))

    def _class_losses(self, parameters: Tensor, shares: Tensor) -> Tensor:
        # Through the logarithm: p ** q by itself has an infinite slope at p = 0.
        losses = -torch.expm1(self.q * parameters.log_softmax(-1)) / self.q
        return (shares * losses).sum(-1)


@final
class EarlyLearningRegularization(torch.nn.Module):
    """Cross-entropy that holds on to what was learned early, before wrong labels are memorized.

    It keeps a moving average of each training row's probabilities, hence `n_rows`, and `rows`, the
    numbers of a batch's rows in the training set, at each loss. Move it to the network's device.
    Liu et al., "Early-learning regularization prevents memorization of noisy labels", 2020.

    >>> regularization = EarlyLearningRegularization(n_rows=2, n_classes=2)
    >>> outputs, y, rows = torch.zeros(1, 2), torch.tensor([0]), torch.tensor([1])
    >>> round(regularization.loss(outputs, y, rows).item(), 3)
    0.206
    """

    averages: Tensor

    def __init__(
        self, n_rows: int, n_classes: int, strength: float = 3.0, momentum: float = 0.7
    ) -> None:
        super().__init__()
        caller = "EarlyLearningRegularization"
        as_count(n_rows, "n_rows", caller)
        as_count(n_classes, "n_classes", caller, least=2)
        self.strength = as_number(strength, "strength", caller, "strength=3.0", above=0)
        self.momentum = as_share(momentum, "momentum", caller)
        self.classes = Categorical(n_classes)
        self.register_buffer("averages", torch.zeros(n_rows, n_classes))

    @property
    def n_outputs(self) -> int:
        """How many numbers a row the network has to put out."""
        return self.classes.n_outputs

    def loss(self, outputs: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """Return the mean loss of a batch, and remember what the network says of its rows."""
        fit = self.classes.loss(outputs, y)
        self._require_rows(rows, outputs)
        probabilities = self.classes.predict(outputs).probs.clamp(LEAST, 1 - LEAST)
        says = probabilities.detach()
        says = says / says.sum(-1, keepdim=True)
        averages = self.momentum * self.averages[rows] + (1 - self.momentum) * says
        self.averages[rows] = averages.to(self.averages.dtype)
        agreement = (averages * probabilities).sum(-1)
        return fit + self.strength * torch.log1p(-agreement).mean()

    def predict(self, outputs: Tensor) -> distributions.Categorical:
        """Return the distribution of each row's class."""
        return self.classes.predict(outputs)

    def _require_rows(self, rows: Tensor, outputs: Tensor) -> None:
        caller = "EarlyLearningRegularization.loss"
        require_tensor(rows, "rows", caller)
        if rows.is_floating_point() or rows.dtype == torch.bool:
            rule, fix = "row numbers", "the indices that the sampler drew"
            raise BadTypeError("rows", caller, rule, f"{rows.dtype}", fix)
        wanted = (outputs.shape[0], *outputs.shape[2:])
        if rows.shape != wanted:
            fix = "the number of each row of the batch in the training set"
            got = f"shape {tuple(rows.shape)}"
            raise BadValueError("rows", caller, f"of shape {wanted}", got, fix)
        if torch.compiler.is_compiling():
            return
        is_row = (rows >= 0) & (rows < len(self.averages))
        if not is_row.all():
            rule = f"row numbers from 0 to {len(self.averages) - 1}"
            got = f"{rows[~is_row][0].item()}"
            raise BadValueError("rows", caller, rule, got, "n_rows of the whole training set")
