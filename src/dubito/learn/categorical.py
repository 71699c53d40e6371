"""The categorical likelihood: one class out of several."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, final

from torch import Tensor, distributions

from dubito.arrays import as_share
from dubito.learn.class_likelihood import BaseClassLikelihood, cross_entropy
from dubito.learn.likelihood import as_count
from dubito.learn.soft_labels import as_form, smoothed

__all__ = ["Categorical"]


@final
@dataclass(frozen=True, slots=True)
class Categorical(BaseClassLikelihood):
    """One class out of several, from logits: cross-entropy.

    `smoothing` is the share of doubt in every label, in the `form` that `smooth_labels` names.
    `uncertain_labels` makes label probabilities of rows marked as uncertain.

    >>> import torch
    >>> Categorical(3).predict(torch.tensor([[0.0, 2.0, 1.0]])).mode
    tensor([1])
    """

    n_classes: int
    smoothing: float = 0.0
    form: Literal["all", "others"] = "all"

    def __post_init__(self) -> None:
        as_count(self.n_classes, "n_classes", "Categorical", least=2)
        as_share(self.smoothing, "smoothing", "Categorical")
        as_form(self.form, "Categorical")

    @property
    def n_outputs(self) -> int:
        return self.n_classes

    def predict(self, outputs: Tensor) -> distributions.Categorical:
        return distributions.Categorical(logits=self._parameters(outputs, "predict"))

    def _class_losses(self, parameters: Tensor, shares: Tensor) -> Tensor:
        shares = smoothed(shares, self.smoothing, self.form)
        return cross_entropy(parameters.log_softmax(-1), shares)
