"""Label noise: noisy labels on purpose, and losses that are robust to them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, final

import numpy as np
import torch
from torch import Tensor, distributions

from dubito.arrays import (
    FloatArray,
    IntArray,
    RandomState,
    as_array,
    as_count,
    as_distributions,
    as_floats,
    as_fraction,
    as_number,
    draw_seed,
    require_everywhere,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.class_likelihoods import BaseClassLikelihood, Categorical
from dubito.learn.likelihoods import require_tensor, require_valid

CALLER = "flip_labels"
MIN_PROBABILITY = 1e-4  # probabilities are clipped to this and 1 - this, so that logs are finite


class NoisyLabels(NamedTuple):
    """Noisy labels, and which of them were flipped; tensors if tensors were given."""

    noisy: Any
    is_flipped: Any

    def __repr__(self) -> str:
        return f"NoisyLabels({int(self.is_flipped.sum())} of {len(self.noisy)} labels flipped)"


def flip_labels(
    y: Any,
    rate: float | None = None,
    pairs: Iterable[tuple[int, int]] | None = None,
    *,
    one_way: Mapping[int, int] | None = None,
    n_classes: int | None = None,
    transition: Any = None,
    random_state: RandomState = 0,
) -> NoisyLabels:
    """Return labels that are wrong with a given probability, and which of them are.

    Use it to study what a loss does with label noise. Exactly one of `pairs`, `one_way`,
    `n_classes` and `transition` must be given; classes that it does not name are unchanged.

    Parameters
    ----------
    y : array-like or Tensor of int
        Class indices of any shape.
    rate : float, optional
        The probability that a label is flipped; not used with `transition`.
    pairs : iterable of (int, int), optional
        Classes that are confused with each other, both ways.
    one_way : dict, optional
        Maps a class to the one it is mistaken for.
    n_classes : int, optional
        A flipped label is any other class with equal probability.
    transition : array-like of shape (n_classes, n_classes), optional
        The probability of each given label (columns) for each true class (rows).
    random_state : int, RandomState or None, default=0
        The seed.

    Returns
    -------
    NoisyLabels
        The labels, and which of them were flipped.

    References
    ----------
    Patrini et al., "Making deep neural networks robust to label noise: a loss correction
    approach", 2017.

    Examples
    --------
    >>> from dubito.learn import flip_labels
    >>> flip_labels([0, 1, 6], rate=1.0, pairs=[(0, 6)]).noisy.tolist()
    [6, 1, 0]
    """
    labels = _as_labels(y)
    kinds = {"pairs": pairs, "one_way": one_way, "n_classes": n_classes, "transition": transition}
    given = [name for name, value in kinds.items() if value is not None]
    if len(given) != 1:
        rule = "needs exactly one of `pairs`, `one_way`, `n_classes` and `transition`"
        got = " and ".join(given) or "none"
        raise BadValueError("", CALLER, rule, got, "Use for example pairs=[(3, 8)]")
    if transition is None:
        n_seen = int(labels.max(initial=0)) + 1
        fraction = as_fraction(rate, "rate", CALLER)
        matrix = _transition_matrix(kinds[given[0]], given[0], fraction, n_seen)
    elif rate is not None:
        rule, fix = "must be None with a transition matrix", "Put the rates into the matrix"
        raise BadValueError("rate", CALLER, rule, repr(rate), fix)
    else:
        matrix = _as_transition(transition)
    noisy = _draw_labels(labels, matrix, np.random.default_rng(draw_seed(random_state, CALLER)))
    is_flipped = noisy != labels
    if isinstance(y, torch.Tensor):
        return NoisyLabels(torch.from_numpy(noisy).to(y), torch.from_numpy(is_flipped).to(y.device))
    return NoisyLabels(noisy, is_flipped)


def _as_labels(y: Any) -> IntArray:
    """Return class indices of any shape as int64, always a copy."""
    array = as_array(y.detach().cpu() if isinstance(y, torch.Tensor) else y, "y", CALLER)
    if array.dtype.kind not in "iu":
        rule, fix = "must hold class indices", "Use .astype(int) once every label is an integer"
        raise BadTypeError("y", CALLER, rule, f"dtype {array.dtype}", fix)
    fix = "Drop rows without a label"
    require_everywhere(array >= 0, array, "y", CALLER, "must not be negative", fix)
    return array.astype(np.int64)


def _as_transition(value: Any) -> FloatArray:
    """Return a square matrix whose rows are distributions."""
    matrix = as_floats(value, "transition", CALLER)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        rule, fix = "must be true classes x given classes", "Use one row and one column per class"
        raise BadValueError("transition", CALLER, rule, f"shape {matrix.shape}", fix)
    return as_distributions(matrix, "transition", CALLER)


def _transition_matrix(kind: Any, name: str, rate: float, n_seen: int) -> FloatArray:
    """Return the probability of each label given the true class."""
    if name == "n_classes":
        n_classes = as_count(kind, "n_classes", CALLER, least=max(2, n_seen))
        matrix = np.full((n_classes, n_classes), rate / (n_classes - 1))
        np.fill_diagonal(matrix, 1 - rate)
        return matrix
    moves = _as_moves(kind, name)
    matrix = np.eye(max([n_seen, *(max(move) + 1 for move in moves)]))
    for old, new in moves:
        matrix[old, old], matrix[old, new] = 1 - rate, rate
    return matrix


def _as_moves(kind: Any, name: str) -> list[tuple[int, int]]:
    """Return which class is mistaken for which; a class has at most one other."""
    fix = "Use pairs=[(3, 8), (1, 7)]" if name == "pairs" else "Use one_way={1: 7}"
    try:
        moves = [(old, new) for old, new in (kind.items() if name == "one_way" else kind)]
    except (AttributeError, TypeError, ValueError) as error:
        rule = "must be pairs of class indices" if name == "pairs" else "must be a dict"
        raise BadTypeError(name, CALLER, rule, repr(kind), fix) from error
    for old, new in moves:
        if not all(isinstance(c, int | np.integer) and c >= 0 for c in (old, new)) or old == new:
            rule = "must name two different class indices"
            raise BadValueError(name, CALLER, rule, f"{old!r} to {new!r}", fix)
    if name == "one_way":
        return moves
    named = [class_ for pair in moves for class_ in pair]
    twice = next((class_ for class_ in named if named.count(class_) > 1), None)
    if twice is not None:
        rule, got = "must name each class once", f"class {twice!r} twice"
        raise BadValueError("pairs", CALLER, rule, got, "Use a transition matrix")
    return moves + [(new, old) for old, new in moves]


def _draw_labels(labels: IntArray, matrix: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return a label for each true one, drawn from its row of the matrix."""
    rule = f"must be below {len(matrix)}, the number of rows of the matrix"
    fix = "Use one row and one column per class"
    require_everywhere(labels < len(matrix), labels, "y", CALLER, rule, fix)
    uniforms = rng.random(labels.shape)
    bounds = np.cumsum(matrix, axis=1, dtype=np.float64)
    bounds /= bounds[:, -1:]  # exactly 1 from the last possible class on: none beyond is drawn
    noisy = np.empty_like(labels)
    for class_ in np.unique(labels):
        rows = labels == class_
        noisy[rows] = np.searchsorted(bounds[class_], uniforms[rows], side="right")
    return noisy


@final
@dataclass(frozen=True, slots=True)
class GeneralizedCrossEntropy(BaseClassLikelihood):
    """One of several classes by the loss (1 - p ** q) / q (GCE), robust to wrong labels.

    Parameters
    ----------
    n_classes : int
        The number of classes.
    q : float, default=0.7
        Above 0 and at most 1. Near 0 it is cross-entropy; at 1 it is one minus the label's
        probability, which hardly follows a label that looks wrong.

    References
    ----------
    Zhang and Sabuncu, "Generalized cross entropy loss for training deep neural networks with
    noisy labels", 2018.

    Examples
    --------
    >>> import torch
    >>> from dubito.learn import GeneralizedCrossEntropy
    >>> GeneralizedCrossEntropy(2, q=1.0).loss(torch.tensor([[0.0, 0.0]]), torch.tensor([1]))
    tensor(0.5000)
    """

    n_classes: int
    q: float = 0.7

    def __post_init__(self) -> None:
        caller = "GeneralizedCrossEntropy"
        BaseClassLikelihood.__post_init__(self)
        if as_fraction(self.q, "q", caller) == 0:
            fix = "Use Categorical, its limit at 0"
            raise BadValueError("q", caller, "must be above 0", repr(self.q), fix)

    def _class_losses(self, parameters: Tensor, labels: Tensor) -> Tensor:
        # Through the logarithm: p ** q itself has an infinite slope at p = 0.
        losses = -torch.expm1(self.q * parameters.log_softmax(-1)) / self.q
        return (labels * losses).sum(-1)


@final
class EarlyLearningRegularization(torch.nn.Module):
    """Cross-entropy that keeps the network close to its early predictions (ELR).

    Networks fit correct labels first and memorize wrong ones later. ELR keeps a moving average of
    the predicted probabilities of each training row, and rewards agreement with it. Move it to
    the device of the network.

    Parameters
    ----------
    n_rows : int
        The number of rows of the training set.
    n_classes : int
        The number of classes.
    regularization : float, default=3.0
        The weight of the agreement.
    momentum : float, default=0.7
        The momentum of the moving average.

    References
    ----------
    Liu et al., "Early-learning regularization prevents memorization of noisy labels", 2020.

    Examples
    --------
    >>> import torch
    >>> from dubito.learn import EarlyLearningRegularization
    >>> likelihood = EarlyLearningRegularization(n_rows=2, n_classes=2)
    >>> outputs, y, rows = torch.zeros(1, 2), torch.tensor([0]), torch.tensor([1])
    >>> round(likelihood.loss(outputs, y, rows).item(), 3)
    0.206
    """

    averages: Tensor

    def __init__(
        self, n_rows: int, n_classes: int, regularization: float = 3.0, momentum: float = 0.7
    ) -> None:
        super().__init__()
        caller = "EarlyLearningRegularization"
        as_count(n_rows, "n_rows", caller)
        as_count(n_classes, "n_classes", caller, least=2)
        self.regularization = as_number(
            regularization, "regularization", caller, 0, fix="Use regularization=3.0", is_open=True
        )
        self.momentum = as_fraction(momentum, "momentum", caller)
        self.classes = Categorical(n_classes)
        self.register_buffer("averages", torch.zeros(n_rows, n_classes))

    @property
    def n_outputs(self) -> int:
        """The number of outputs per row that the network must have."""
        return self.classes.n_outputs

    def loss(self, outputs: Tensor, y: Tensor, rows: Tensor) -> Tensor:
        """Return the mean loss of a batch, and update the averages of its rows.

        Parameters
        ----------
        outputs : Tensor of shape (n, n_classes)
            The logits of the network.
        y : Tensor of shape (n,)
            Class indices, or label probabilities.
        rows : Tensor of int, shape (n,)
            The indices of the batch's rows in the training set.

        Returns
        -------
        Tensor
            A scalar.
        """
        loss = self.classes.loss(outputs, y)
        self._require_rows(rows, outputs)
        probabilities = self.classes.predict(outputs).probs
        probabilities = probabilities.clamp(MIN_PROBABILITY, 1 - MIN_PROBABILITY)
        current = probabilities.detach()
        current = current / current.sum(-1, keepdim=True)
        averages = self.momentum * self.averages[rows] + (1 - self.momentum) * current
        self.averages[rows] = averages.to(self.averages.dtype)
        agreement = (averages * probabilities).sum(-1)
        return loss + self.regularization * torch.log1p(-agreement).mean()

    def predict(self, outputs: Tensor) -> distributions.Categorical:
        """Return the predicted distribution of each row's class.

        Parameters
        ----------
        outputs : Tensor of shape (n, n_classes)
            The logits of the network.

        Returns
        -------
        torch.distributions.Categorical
            The distribution.
        """
        return self.classes.predict(outputs)

    def _require_rows(self, rows: Tensor, outputs: Tensor) -> None:
        caller = "EarlyLearningRegularization.loss"
        require_tensor(rows, "rows", caller)
        if rows.is_floating_point() or rows.dtype == torch.bool:
            rule, fix = "must hold row indices", "Pass the indices that the sampler drew"
            raise BadTypeError("rows", caller, rule, f"{rows.dtype}", fix)
        expected = (outputs.shape[0], *outputs.shape[2:])
        if rows.shape != expected:
            rule, fix = f"must have shape {expected}", "Pass one training-set index per row"
            raise BadValueError("rows", caller, rule, f"shape {tuple(rows.shape)}", fix)
        rule = f"must hold row indices from 0 to {len(self.averages) - 1}"
        fix = "Set n_rows to the size of the training set"
        is_row = (rows >= 0) & (rows < len(self.averages))
        require_valid(rows, is_row, "rows", caller, rule, fix)
