"""Likelihoods whose parameters a network predicts: the base class, regression and Bernoulli."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import exp, lgamma, log, pi
from typing import Any, ClassVar, Literal, final

import torch
from torch import Tensor, distributions
from torch.distributions import Distribution, Independent, Normal
from torch.nn import functional

from dubito.arrays import as_count, as_fraction, as_number
from dubito.data.labels import UNCERTAIN, UncertainPolicy, require_policy
from dubito.errors import BadTypeError, BadValueError

MAX_LOG = 60.0  # of a variance; sums of losses times its exponential still fit into float32
SEQUENCE = "Call .flatten(0, 1) in the model for a sequence with the outputs last"
FIX_LABELS = "Fix the labels, or use NaN for an unknown one"


class BaseLikelihood(ABC):
    """A distribution of the labels, whose parameters are the outputs of a network.

    `loss` trains the network, `predict` returns the distribution. Outputs have shape (n_rows,
    n_outputs); for maps of shape (n_images, n_outputs, height, width) each pixel is a row. Half
    precision is promoted to float32, so that autocast is safe. Floating-point labels that are NaN
    are unknown and ignored.
    """

    __slots__ = ()

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """The number of outputs per row that the network must have."""

    def loss(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the mean loss of the labeled rows, to be minimized.

        Parameters
        ----------
        outputs : Tensor of shape (n_rows, n_outputs)
            The outputs of the network.
        y : Tensor
            The labels.

        Returns
        -------
        Tensor
            A scalar; 0 if no row has a label.
        """
        losses, is_labeled = self._labeled_losses(outputs, y, "loss")
        return losses.sum() / is_labeled.sum().clamp(min=1)

    def losses(self, outputs: Tensor, y: Tensor) -> Tensor:
        """Return the loss of each row, for weights of your own.

        Parameters
        ----------
        outputs : Tensor of shape (n_rows, n_outputs)
            The outputs of the network.
        y : Tensor
            The labels.

        Returns
        -------
        Tensor of shape (n_rows,)
            Losses, 0 for rows without a label.
        """
        return self._labeled_losses(outputs, y, "losses")[0]

    @abstractmethod
    def predict(self, outputs: Tensor) -> Distribution:
        """Return the predicted distribution of each row's label.

        Parameters
        ----------
        outputs : Tensor of shape (n_rows, n_outputs)
            The outputs of the network.

        Returns
        -------
        torch.distributions.Distribution
            The distribution; its `mode` is the point prediction.
        """

    def _labeled_losses(self, outputs: Tensor, y: Tensor, method: str) -> tuple[Tensor, Tensor]:
        parameters = self._parameters(outputs, method)
        targets = self._targets(y, outputs.shape, f"{type(self).__name__}.{method}")
        targets = targets.to(parameters.dtype)
        is_known = ~targets.isnan()
        losses = self._losses(parameters, targets.masked_fill(~is_known, 0), is_known)
        return losses, is_known.any(-1)

    def _parameters(self, outputs: Tensor, method: str) -> Tensor:
        """Return outputs in float32 or float64, with the outputs of a row on the last axis."""
        caller = f"{type(self).__name__}.{method}"
        require_tensor(outputs, "outputs", caller)
        n = self.n_outputs
        if outputs.ndim < 2 or outputs.shape[1] != n:
            rule = f"must have shape (rows, {n}) or (images, {n}, height, width)"
            is_last = outputs.ndim == 3 and outputs.shape[2] == n
            fix = SEQUENCE if is_last else f"Use a last layer with {n} outputs"
            raise BadValueError("outputs", caller, rule, f"shape {tuple(outputs.shape)}", fix)
        if not outputs.is_floating_point():
            rule, fix = "must be floating point", "Call .float()"
            raise BadTypeError("outputs", caller, rule, f"{outputs.dtype}", fix)
        return outputs.to(torch.promote_types(outputs.dtype, torch.float32)).movedim(1, -1)

    @abstractmethod
    def _targets(self, y: Tensor, shape: torch.Size, caller: str) -> Tensor:
        """Return checked targets or label probabilities on the last axis, NaN where unknown."""

    @abstractmethod
    def _losses(self, parameters: Tensor, targets: Tensor, is_known: Tensor) -> Tensor:
        """Return the loss of each row, ignoring what is unknown."""


class BaseRegressionLikelihood(BaseLikelihood):
    """A likelihood of targets that are independent given the outputs: their losses add up.

    `y` has shape (n_rows, n_targets), or (n_rows,) for one target; it is never broadcast.
    """

    __slots__ = ()

    n_targets: int
    n_parameters: ClassVar[int] = 1  # outputs per target
    family: ClassVar[Literal["normal", "laplace"] | None] = "normal"

    def __post_init__(self) -> None:
        as_count(self.n_targets, "n_targets", type(self).__name__)

    @property
    def n_outputs(self) -> int:
        return self.n_parameters * self.n_targets

    def _targets(self, y: Tensor, shape: torch.Size, caller: str) -> Tensor:
        require_tensor(y, "y", caller)
        expected = (shape[0], self.n_targets, *shape[2:])
        if y.shape == expected:
            targets = y.movedim(1, -1)
        elif self.n_targets == 1 and y.shape == (shape[0], *shape[2:]):
            targets = y.unsqueeze(-1)
        else:
            rule, fix = f"must have shape {expected}", "Order the targets like the outputs"
            raise BadValueError("y", caller, rule, f"shape {tuple(y.shape)}", fix)
        require_valid(targets, targets.isfinite(), "y", caller, "must be finite")
        return targets

    def _losses(self, parameters: Tensor, targets: Tensor, is_known: Tensor) -> Tensor:
        return self._target_losses(parameters, targets).masked_fill(~is_known, 0).sum(-1)

    @abstractmethod
    def _target_losses(self, parameters: Tensor, targets: Tensor) -> Tensor:
        """Return the negative log-likelihood of each target."""


@final
@dataclass(frozen=True, slots=True)
class Gaussian(BaseRegressionLikelihood):
    """Normal distribution with a fixed variance: squared error, up to constants.

    Use it where the noise is the same everywhere. The outputs are the means.

    Parameters
    ----------
    n_targets : int, default=1
        The number of targets.
    variance : float, default=1.0
        The variance.

    Examples
    --------
    >>> from dubito.learn import Gaussian
    >>> import torch
    >>> Gaussian(variance=0.5).predict(torch.tensor([[3.0]])).mode
    tensor([3.])
    """

    n_targets: int = 1
    variance: float = 1.0

    def __post_init__(self) -> None:
        BaseRegressionLikelihood.__post_init__(self)
        _require_positive(self, "variance", 1.0)

    def predict(self, outputs: Tensor) -> Distribution:
        mean = self._parameters(outputs, "predict")
        return _row_distribution(Normal, mean, torch.full_like(mean, self.variance**0.5))

    def _target_losses(self, parameters: Tensor, targets: Tensor) -> Tensor:
        squares = (targets - parameters).square() / self.variance
        return 0.5 * (squares + log(2 * pi * self.variance))


@final
@dataclass(frozen=True, slots=True)
class HeteroscedasticGaussian(BaseRegressionLikelihood):
    """Normal distribution whose mean and variance both depend on the input.

    Use it where the noise differs between inputs. The outputs are the means, then the log
    variances.

    Parameters
    ----------
    n_targets : int, default=1
        The number of targets.
    beta : float, default=0.0
        Weights losses by variance ** beta (0.5 is usual), so that the mean is also trained where
        the noise seems large.
    floor : float, default=-20.0
        A lower bound of the log variance.

    References
    ----------
    Seitzer et al., "On the pitfalls of heteroscedastic uncertainty estimation with probabilistic
    neural networks", 2022.

    Examples
    --------
    >>> from dubito.learn import HeteroscedasticGaussian
    >>> import torch
    >>> HeteroscedasticGaussian().predict(torch.tensor([[3.0, 0.0]])).stddev
    tensor([1.])
    """

    n_targets: int = 1
    beta: float = 0.0
    floor: float = -20.0
    n_parameters: ClassVar[int] = 2

    def __post_init__(self) -> None:
        BaseRegressionLikelihood.__post_init__(self)
        as_fraction(self.beta, "beta", "HeteroscedasticGaussian")
        as_floor(self.floor, "HeteroscedasticGaussian")

    def predict(self, outputs: Tensor) -> Distribution:
        mean, raw = self._parameters(outputs, "predict").chunk(2, -1)
        return _row_distribution(Normal, mean, bounded_exp(0.5 * floored(raw, self.floor)))

    def _target_losses(self, parameters: Tensor, targets: Tensor) -> Tensor:
        mean, raw = parameters.chunk(2, -1)
        log_variance = floored(raw, self.floor)
        squares = (targets - mean).square() * (-log_variance).exp()
        losses = 0.5 * (squares + log_variance + log(2 * pi))
        return beta_weighted(losses, log_variance, self.beta)


@final
@dataclass(frozen=True, slots=True)
class Laplace(BaseRegressionLikelihood):
    """Laplace distribution whose location and scale both depend on the input.

    The location is the median: use it where some targets are far off. The outputs are the
    locations, then the log scales.

    Parameters
    ----------
    n_targets : int, default=1
        The number of targets.
    floor : float, default=-10.0
        A lower bound of the log scale.

    Examples
    --------
    >>> from dubito.learn import Laplace
    >>> import torch
    >>> Laplace().predict(torch.tensor([[3.0, 0.0]])).mode
    tensor([3.])
    """

    n_targets: int = 1
    floor: float = -10.0
    n_parameters: ClassVar[int] = 2
    family: ClassVar[Literal["normal", "laplace"] | None] = "laplace"

    def __post_init__(self) -> None:
        BaseRegressionLikelihood.__post_init__(self)
        as_floor(self.floor, "Laplace")

    def predict(self, outputs: Tensor) -> Distribution:
        location, raw = self._parameters(outputs, "predict").chunk(2, -1)
        scale = bounded_exp(floored(raw, self.floor))
        return _row_distribution(distributions.Laplace, location, scale)

    def _target_losses(self, parameters: Tensor, targets: Tensor) -> Tensor:
        location, raw = parameters.chunk(2, -1)
        log_scale = floored(raw, self.floor)
        return (targets - location).abs() * (-log_scale).exp() + log_scale + log(2)


@final
@dataclass(frozen=True, slots=True)
class GeneralizedNormal(BaseRegressionLikelihood):
    """Generalized normal (exponential power) distribution of a fixed scale: the loss |r|^power.

    The trained outputs tend to the minimizer of the expected |y - t|^power: the median at 1, the
    mean at 2, the middle of the range for large powers, and near a mode below 1, where the loss is
    not convex. The outputs are the locations.

    Parameters
    ----------
    power : float, default=2.0
        The power q, above 0.
    n_targets : int, default=1
        The number of targets.
    scale : float, default=1.0
        The scale: the density is proportional to exp(-(|r| / scale)^power).

    References
    ----------
    Bishop, "Neural networks for pattern recognition", 1995, section 6.2 (Minkowski error).

    Examples
    --------
    >>> from dubito.learn import GeneralizedNormal
    >>> import torch
    >>> likelihood = GeneralizedNormal(power=4.0)
    >>> losses = likelihood.losses(torch.zeros(2, 1), torch.tensor([0.0, 2.0]))
    >>> (losses[1] - losses[0]).item()
    16.0
    """

    power: float = 2.0
    n_targets: int = 1
    scale: float = 1.0
    family: ClassVar[Literal["normal", "laplace"] | None] = None

    def __post_init__(self) -> None:
        BaseRegressionLikelihood.__post_init__(self)
        _require_positive(self, "power", 2.0)
        _require_positive(self, "scale", 1.0)

    def predict(self, outputs: Tensor) -> Distribution:
        kind = partial(_ExponentialPower, scale=self.scale, power=self.power)
        return _row_distribution(kind, self._parameters(outputs, "predict"))

    def _target_losses(self, parameters: Tensor, targets: Tensor) -> Tensor:
        return -_ExponentialPower(parameters, self.scale, self.power).log_prob(targets)


class _ExponentialPower(Distribution):
    """The density proportional to exp(-(|y - location| / scale)^power)."""

    arg_constraints: ClassVar[dict[str, Any]] = {}

    def __init__(self, location: Tensor, scale: float, power: float) -> None:
        self.location, self.scale, self.power = location, scale, power
        super().__init__(location.shape, validate_args=False)

    @property
    def mean(self) -> Tensor:
        return self.location

    @property
    def mode(self) -> Tensor:
        return self.location

    @property
    def variance(self) -> Tensor:
        ratio = exp(lgamma(3 / self.power) - lgamma(1 / self.power))
        return torch.full_like(self.location, self.scale**2 * ratio)

    def log_prob(self, value: Tensor) -> Tensor:
        distance = (value - self.location).abs() / self.scale
        # The slope of a power below 1 at 0 is infinite: there it is 0.
        is_zero = distance == 0
        powers = (distance.masked_fill(is_zero, 1.0) ** self.power).masked_fill(is_zero, 0.0)
        return -powers - log(2 * self.scale / self.power) - lgamma(1 / self.power)

    def rsample(self, sample_shape: Any = ()) -> Tensor:
        shape = self._extended_shape(torch.Size(sample_shape))
        gammas = torch.distributions.Gamma(1 / self.power, 1.0).sample(shape)
        signs = 2.0 * torch.randint(2, shape) - 1
        return self.location + signs * self.scale * gammas.to(self.location) ** (1 / self.power)


@final
@dataclass(frozen=True, slots=True)
class Bernoulli(BaseRegressionLikelihood):
    """Binary labels from log odds: binary cross-entropy, summed over the targets of a row.

    Use it with several targets for multi-label models. `y` holds 0 and 1, booleans, or
    probabilities (soft labels); NaN is unknown and ignored, and -1 may mark uncertain labels.

    Parameters
    ----------
    n_targets : int, default=1
        The number of binary targets.
    uncertain : {"ignore", "zeros", "ones", "multi-class"} or float, optional
        How the mark -1 is treated: unknown, 0, 1, or a probability (soft). With "multi-class"
        there are three outputs per target: the logits of 0 for all targets, then those of 1, then
        those of uncertain, trained by cross-entropy; the log odds compare 1 with 0 only. None
        raises an error.

    References
    ----------
    Irvin et al., "CheXpert: a large chest radiograph dataset with uncertainty labels and expert
    comparison", 2019.

    Examples
    --------
    >>> from dubito.learn import Bernoulli
    >>> import torch
    >>> round(Bernoulli().loss(torch.tensor([[0.0]]), torch.tensor([1])).item(), 3)
    0.693
    >>> outputs, y = torch.tensor([[0.0, 3.0]]), torch.tensor([[1, -1]])
    >>> round(Bernoulli(2, uncertain="ignore").loss(outputs, y).item(), 3)
    0.693
    """

    n_targets: int = 1
    uncertain: UncertainPolicy | None = None

    def __post_init__(self) -> None:
        BaseRegressionLikelihood.__post_init__(self)
        if self.uncertain is not None:
            require_policy(self.uncertain, "Bernoulli")

    @property
    def n_outputs(self) -> int:
        return self.n_targets * (3 if self.uncertain == "multi-class" else 1)

    def predict(self, outputs: Tensor) -> Distribution:
        log_odds = self._log_odds(self._parameters(outputs, "predict"))
        return _row_distribution(lambda x: distributions.Bernoulli(logits=x), log_odds)

    def log_odds(self, outputs: Tensor) -> Tensor:
        """Return the log odds of each target among the outputs.

        Parameters
        ----------
        outputs : Tensor of shape (n_rows, n_outputs)
            The outputs of the network.

        Returns
        -------
        Tensor of shape (n_rows, n_targets)
            Log odds, with targets on axis 1.
        """
        return self._log_odds(self._parameters(outputs, "log_odds")).movedim(-1, 1)

    def _log_odds(self, parameters: Tensor) -> Tensor:
        if self.uncertain != "multi-class":
            return parameters
        negative, positive, _ = parameters.chunk(3, -1)
        return positive - negative

    def _targets(self, y: Tensor, shape: torch.Size, caller: str) -> Tensor:
        targets = BaseRegressionLikelihood._targets(self, y, shape, caller)
        is_valid, fix = (targets >= 0) & (targets <= 1), FIX_LABELS
        if self.uncertain is None:
            fix += ", or uncertain='ignore' if -1 marks uncertain ones"
            require_valid(targets, is_valid, "y", caller, "must be between 0 and 1", fix)
            return targets
        is_marked = targets == UNCERTAIN
        require_valid(targets, is_valid | is_marked, "y", caller, "must be between 0 and 1, or -1")
        if self.uncertain == "multi-class":
            return targets
        named = {"ignore": torch.nan, "zeros": 0.0, "ones": 1.0}
        value = named[self.uncertain] if isinstance(self.uncertain, str) else self.uncertain
        floats = targets.to(torch.promote_types(targets.dtype, torch.get_default_dtype()))
        return floats.masked_fill(is_marked, value)

    def _target_losses(self, parameters: Tensor, targets: Tensor) -> Tensor:
        if self.uncertain != "multi-class":
            loss = functional.binary_cross_entropy_with_logits
            return loss(parameters, targets, reduction="none")
        negative, positive, uncertain = parameters.chunk(3, -1)
        total = torch.stack([negative, positive, uncertain]).logsumexp(0)
        certain = torch.lerp(negative, positive, targets)
        return total - torch.where(targets == UNCERTAIN, uncertain, certain)


def _row_distribution(kind: Callable[..., Distribution], *parameters: Tensor) -> Distribution:
    """Return a distribution over rows; the target axis is dropped if there is one target."""
    if parameters[0].shape[-1] == 1:
        return kind(*(parameter.squeeze(-1) for parameter in parameters))
    return Independent(kind(*parameters), 1)


def _require_positive(likelihood: BaseRegressionLikelihood, name: str, example: float) -> None:
    """Raise unless a setting is a positive number."""
    caller, fix = type(likelihood).__name__, f"Use {name}={example}"
    as_number(getattr(likelihood, name), name, caller, 0, fix=fix, is_open=True)


def require_type(value: Any, kind: Any, argument: str, caller: str, rule: str, fix: str) -> None:
    """Raise unless `value` is of some type."""
    if not isinstance(value, kind):
        raise BadTypeError(argument, caller, rule, type(value).__name__, fix)


def require_tensor(value: Any, argument: str, caller: str) -> None:
    """Raise unless `value` is a tensor."""
    fix = "Use torch.as_tensor(...)"
    require_type(value, Tensor, argument, caller, "must be a tensor", fix)


def require_valid(
    values: Tensor, is_valid: Tensor, argument: str, caller: str, rule: str, fix: str = FIX_LABELS
) -> None:
    """Raise at the first entry that is neither valid nor NaN.

    Skipped under torch.compile, where branching on values would break the graph.
    """
    if torch.compiler.is_compiling():
        return
    is_wrong = ~(is_valid | values.isnan()) if values.is_floating_point() else ~is_valid
    if is_wrong.any():
        row, *place = (int(index) for index in is_wrong.nonzero()[0])
        got = f"{values[(row, *place)].item():.6g}"
        column = None if not place else place[0] if len(place) == 1 else str(tuple(place))
        raise BadValueError(argument, caller, rule, got, fix, row, column)


def as_floor(floor: Any, caller: str) -> float:
    """Return a lower bound of a log variance, whose exponential fits into any float."""
    return as_number(floor, "floor", caller, -MAX_LOG, MAX_LOG, fix="Use floor=-4.0")


def floored(log_variance: Tensor, floor: float | None) -> Tensor:
    """Return log variances of at least `floor`: with an error of 0 the likelihood is unbounded.

    Below the floor, gradients that increase the log variance still pass.
    """
    if floor is None:
        return log_variance
    result: Tensor = _Floor.apply(log_variance, floor)  # type: ignore[no-untyped-call]
    return result


@final
class _Floor(torch.autograd.Function):
    """The maximum of a tensor and a floor; below it only upward gradients pass."""

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
    """Return losses times variance ** beta, with no gradient through the weight.

    At 0, rows of large variance hardly train the mean; at 1, all rows train it equally.
    """
    return losses * bounded_exp(beta * log_variance.detach()) if beta else losses


def bounded_exp(logarithm: Tensor) -> Tensor:
    """Return the exponential, bounded far below the largest float32."""
    return logarithm.clamp(max=MAX_LOG).exp()
