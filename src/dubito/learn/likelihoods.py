"""Likelihoods whose parameters a network predicts: the base class, regression and Bernoulli outputs."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from math import inf, log, pi
from typing import Any, final

import numpy as np
import torch
from torch import Tensor, distributions
from torch.distributions import Distribution, Independent, Normal
from torch.nn import functional

from dubito.arrays import as_share
from dubito.errors import BadTypeError, BadValueError

MEND = "mending such labels, or NaN for one that is not known"


class BaseLikelihood(ABC):
    """A distribution of labels: `loss` trains a network to give it, `predict` returns it.

    Outputs are rows x n_outputs. Of maps, images x n_outputs x height x width, every pixel is a
    row. Half precision goes up to float32 first, so that autocast is safe. What is NaN in labels of
    floating point is unknown and left out.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """How many numbers a row the network has to put out."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of the rows that have a label: what to minimize."""
        losses, is_labeled = self._labeled_losses(outputs, y, "loss")
        return losses.sum() / is_labeled.sum().clamp(min=1)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row, 0 where it has no label; for weights of one's own."""
        return self._labeled_losses(outputs, y, "losses")[0]

    @abstractmethod
    def predict(self, outputs: Tensor) -> Distribution:
        """Return the distribution of each row's label; its `mode` is the single best answer."""

    def _labeled_losses(self, outputs: Tensor, y: Tensor, method: str) -> tuple[Tensor, Tensor]:
        parameters = self._parameters(outputs, method)
        caller = f"{type(self).__name__}.{method}"
        truth = self._truth(y, outputs.shape, caller)
        truth = truth.to(parameters.dtype)
        is_known = ~truth.isnan()
        losses = self._losses(parameters, truth.masked_fill(~is_known, 0), is_known)
        return losses, is_known.any(-1)

    def _parameters(self, outputs: Tensor, method: str) -> Tensor:
        """Return outputs in float32 or float64, with what belongs to one row on the last axis."""
        caller = f"{type(self).__name__}.{method}"
        require_tensor(outputs, "outputs", caller)
        if outputs.ndim < 2 or outputs.shape[1] != self.n_outputs:
            rule = f"rows x {self.n_outputs}, or images x {self.n_outputs} x height x width"
            fix = f"a last layer of {self.n_outputs} outputs"
            raise BadValueError("outputs", caller, rule, f"shape {tuple(outputs.shape)}", fix)
        if not outputs.is_floating_point():
            rule, fix = "of floating point", "`.float()`"
            raise BadTypeError("outputs", caller, rule, f"{outputs.dtype}", fix)
        return outputs.to(torch.promote_types(outputs.dtype, torch.float32)).movedim(1, -1)

    @abstractmethod
    def _truth(self, y: Tensor, shape: torch.Size, caller: str) -> Tensor:
        """Return checked labels of outputs of a shape, NaN where unknown, a row on the last axis.

        What belongs to a row are its targets, or its label probabilities.
        """

    @abstractmethod
    def _losses(self, parameters: Tensor, truth: Tensor, is_known: Tensor) -> Tensor:
        """Return the loss of each row, counting only what is known of it."""


def require_tensor(value: Any, argument: str, caller: str) -> None:
    """Raise unless `value` is a tensor."""
    if not isinstance(value, Tensor):
        got = type(value).__name__
        raise BadTypeError(argument, caller, "a tensor", got, "`torch.as_tensor(...)`")


def as_known(
    truth: Tensor, is_fine: Tensor, argument: str, caller: str, rule: str, fix: str = MEND
) -> Tensor:
    """Return labels as they came, or raise at the first entry that is neither fine nor NaN.

    A compiled step does not look: to branch on values would break its graph.
    """
    if torch.compiler.is_compiling():
        return truth
    is_wrong = ~(is_fine | truth.isnan()) if truth.is_floating_point() else ~is_fine
    if is_wrong.any():
        row, *place = (int(index) for index in is_wrong.nonzero()[0])
        got = f"{truth[(row, *place)].item():.6g}"
        column = None if not place else place[0] if len(place) == 1 else str(tuple(place))
        raise BadValueError(argument, caller, rule, got, fix, row, column)
    return truth


def as_count(value: Any, argument: str, caller: str, least: int = 1) -> int:
    """Return a whole number from `least` up."""
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < least:
        rule, fix = f"a whole number from {least} up", f"{argument}={least}"
        raise BadValueError(argument, caller, rule, repr(value), fix)
    return int(value)


def as_number(value: Any, argument: str, caller: str, fix: str, above: float = -inf) -> float:
    """Return a finite number, where asked above a bound."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not (is_number and above < value < inf):
        rule = "a finite number" + (f" above {above:g}" if above > -inf else "")
        raise BadValueError(argument, caller, rule, repr(value), fix)
    return float(value)


HIGHEST = 60.0  # sums of losses times exp of it are still float32


def as_floor(floor: Any, caller: str) -> float:
    """Return a floor, a number whose exponential any float holds."""
    is_number = isinstance(floor, int | float) and not isinstance(floor, bool)
    if not (is_number and -HIGHEST <= floor <= HIGHEST):
        rule = f"a number from {-HIGHEST:g} to {HIGHEST:g}"
        raise BadValueError("floor", caller, rule, repr(floor), "floor=-4.0")
    return float(floor)


def floored(log_variance: Tensor, floor: float | None) -> Tensor:
    """Return log variances from the floor up: of an error of 0 the likelihood has no maximum.

    What is below the floor still learns to rise, and is not pushed down further.
    """
    if floor is None:
        return log_variance
    found: Tensor = Floored.apply(log_variance, floor)  # type: ignore[no-untyped-call]
    return found


@final
class Floored(torch.autograd.Function):
    """The larger of a tensor and a floor; slopes pass below it where a step along them is up."""

    generate_vmap_rule = True

    @staticmethod
    def forward(values: Tensor, floor: float) -> Tensor:
        return values.clamp(min=floor)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, float], output: Tensor) -> None:
        values, floor = inputs
        ctx.save_for_backward(values >= floor)

    @staticmethod
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor, None]:
        (is_above,) = ctx.saved_tensors
        return torch.where(is_above | (slope < 0), slope, 0.0), None


def beta_weighted(losses: Tensor, log_variance: Tensor, beta: float) -> Tensor:
    """Return losses times variance ** beta, which is held fixed while gradients are taken.

    At 0 rows of large variance hardly train the mean any more, at 1 all train it alike.
    """
    return losses * positive(beta * log_variance.detach()) if beta else losses


def positive(logarithm: Tensor) -> Tensor:
    """Return the exponential, held far below the largest float32."""
    return logarithm.clamp(max=HIGHEST).exp()


class BaseRegressionLikelihood(BaseLikelihood):
    """A likelihood of targets that are independent given the outputs: their losses add up.

    `y` is rows x targets, or one number a row where there is one target; it is never broadcast.
    """

    __slots__ = ()

    n_targets: int

    def _truth(self, y: Tensor, shape: torch.Size, caller: str) -> Tensor:
        require_tensor(y, "y", caller)
        wanted = (shape[0], self.n_targets, *shape[2:])
        if y.shape == wanted:
            truth = y.movedim(1, -1)
        elif self.n_targets == 1 and y.shape == (shape[0], *shape[2:]):
            truth = y.unsqueeze(-1)
        else:
            rule, fix = f"of shape {wanted}", "targets in the order of the outputs"
            raise BadValueError("y", caller, rule, f"shape {tuple(y.shape)}", fix)
        return as_known(truth, truth.isfinite(), "y", caller, "finite")

    def _losses(self, parameters: Tensor, truth: Tensor, is_known: Tensor) -> Tensor:
        return self._target_losses(parameters, truth).masked_fill(~is_known, 0).sum(-1)

    @abstractmethod
    def _target_losses(self, parameters: Tensor, truth: Tensor) -> Tensor:
        """Return the negative log-likelihood of each target."""


def _of_rows(kind: Callable[..., Distribution], *parameters: Tensor) -> Distribution:
    """Return a distribution of whole rows: of one number where there is a single target."""
    if parameters[0].shape[-1] == 1:
        return kind(*(parameter.squeeze(-1) for parameter in parameters))
    return Independent(kind(*parameters), 1)


@final
@dataclass(frozen=True, slots=True)
class Gaussian(BaseRegressionLikelihood):
    """A normal distribution of fixed variance: squared error, up to constants.

    Outputs are the means, one a target. Use it where noise is the same everywhere.

    >>> import torch
    >>> Gaussian(variance=0.5).predict(torch.tensor([[3.0]])).mode
    tensor([3.])
    """

    n_targets: int = 1
    variance: float = 1.0

    def __post_init__(self) -> None:
        as_count(self.n_targets, "n_targets", "Gaussian")
        as_number(self.variance, "variance", "Gaussian", "variance=1.0", above=0)

    @property
    def n_outputs(self) -> int:
        return self.n_targets

    def predict(self, outputs: Tensor) -> Distribution:
        mean = self._parameters(outputs, "predict")
        return _of_rows(Normal, mean, mean.new_full((), self.variance**0.5).expand_as(mean))

    def _target_losses(self, parameters: Tensor, truth: Tensor) -> Tensor:
        squares = (truth - parameters).square() / self.variance
        return 0.5 * (squares + log(2 * pi * self.variance))


@final
@dataclass(frozen=True, slots=True)
class HeteroscedasticGaussian(BaseRegressionLikelihood):
    """A normal distribution whose mean and variance both depend on the input.

    Outputs are the means, then the logarithms of the variances, which count from `floor` up. With
    `beta` above 0 (0.5 is usual) losses are weighted by variance ** beta, so that the mean also
    learns where noise seems large. Seitzer et al., "On the pitfalls of heteroscedastic
    uncertainty estimation with probabilistic neural networks", 2022.

    >>> import torch
    >>> HeteroscedasticGaussian().predict(torch.tensor([[3.0, 0.0]])).stddev
    tensor([1.])
    """

    n_targets: int = 1
    beta: float = 0.0
    floor: float = -20.0

    def __post_init__(self) -> None:
        as_count(self.n_targets, "n_targets", "HeteroscedasticGaussian")
        as_share(self.beta, "beta", "HeteroscedasticGaussian")
        as_floor(self.floor, "HeteroscedasticGaussian")

    @property
    def n_outputs(self) -> int:
        return 2 * self.n_targets

    def predict(self, outputs: Tensor) -> Distribution:
        mean, raw = self._parameters(outputs, "predict").chunk(2, -1)
        return _of_rows(Normal, mean, positive(0.5 * floored(raw, self.floor)))

    def _target_losses(self, parameters: Tensor, truth: Tensor) -> Tensor:
        mean, raw = parameters.chunk(2, -1)
        log_variance = floored(raw, self.floor)
        squares = (truth - mean).square() * (-log_variance).exp()
        losses = 0.5 * (squares + log_variance + log(2 * pi))
        return beta_weighted(losses, log_variance, self.beta)


@final
@dataclass(frozen=True, slots=True)
class Laplace(BaseRegressionLikelihood):
    """A Laplace distribution whose location and scale both depend on the input.

    Outputs are the locations, then the logarithms of the scales, which count from `floor` up. Its
    location is the median: use it where some targets are far off.

    >>> import torch
    >>> Laplace().predict(torch.tensor([[3.0, 0.0]])).mode
    tensor([3.])
    """

    n_targets: int = 1
    floor: float = -10.0

    def __post_init__(self) -> None:
        as_count(self.n_targets, "n_targets", "Laplace")
        as_floor(self.floor, "Laplace")

    @property
    def n_outputs(self) -> int:
        return 2 * self.n_targets

    def predict(self, outputs: Tensor) -> Distribution:
        location, raw = self._parameters(outputs, "predict").chunk(2, -1)
        return _of_rows(distributions.Laplace, location, positive(floored(raw, self.floor)))

    def _target_losses(self, parameters: Tensor, truth: Tensor) -> Tensor:
        location, raw = parameters.chunk(2, -1)
        log_scale = floored(raw, self.floor)
        return (truth - location).abs() * (-log_scale).exp() + log_scale + log(2)


@final
@dataclass(frozen=True, slots=True)
class Bernoulli(BaseRegressionLikelihood):
    """Yes or no, from log odds: binary cross-entropy, summed over the questions of a row.

    `y` holds 0 and 1, booleans, or shares between them where it is uncertain; NaN is left out.

    >>> import torch
    >>> round(Bernoulli().loss(torch.tensor([[0.0]]), torch.tensor([1])).item(), 3)
    0.693
    """

    n_targets: int = 1

    def __post_init__(self) -> None:
        as_count(self.n_targets, "n_targets", "Bernoulli")

    @property
    def n_outputs(self) -> int:
        return self.n_targets

    def predict(self, outputs: Tensor) -> Distribution:
        log_odds = self._parameters(outputs, "predict")
        return _of_rows(lambda x: distributions.Bernoulli(logits=x), log_odds)

    def _truth(self, y: Tensor, shape: torch.Size, caller: str) -> Tensor:
        truth = BaseRegressionLikelihood._truth(self, y, shape, caller)
        return as_known(truth, (truth >= 0) & (truth <= 1), "y", caller, "between 0 and 1")

    def _target_losses(self, parameters: Tensor, truth: Tensor) -> Tensor:
        return functional.binary_cross_entropy_with_logits(parameters, truth, reduction="none")
