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
    as_distributions,
    as_floats,
    as_share,
    draw_seed,
    require_everywhere,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.class_likelihoods import BaseClassLikelihood, Categorical
from dubito.learn.likelihoods import as_count, as_number, require_tensor

CALLER = "flip_labels"
WAYS = ("pairs", "one_way", "n_classes", "transition")


class NoisyLabels(NamedTuple):
    """Labels with noise, and which of them are wrong now; tensors if tensors came."""

    noisy: Any
    is_flipped: Any


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
    """Return labels of which each is wrong with a chance of `rate`, and which ones are.

    `pairs` are taken for each other, both ways; `one_way` maps a class to what it is taken for;
    `n_classes` alone makes a wrong label any other class alike. `transition`, true classes x given
    classes, rows that sum to 1, says it all and needs no rate. One of the four; what they do not
    name stays as it is. Patrini et al., "Making deep neural networks robust to label noise", 2017.

    >>> flip_labels([0, 1, 6], rate=1.0, pairs=[(0, 6)]).noisy.tolist()
    [6, 1, 0]
    """
    labels = _as_labels(y)
    ways = {"pairs": pairs, "one_way": one_way, "n_classes": n_classes, "transition": transition}
    given = [name for name in WAYS if ways[name] is not None]
    if len(given) != 1:
        rule = "given, or else `one_way`, `n_classes` or `transition`, and only one of them"
        got = " and ".join(given) or "none"
        raise BadValueError("pairs", CALLER, rule, got, "pairs=[(3, 8)]")
    if transition is not None:
        if rate is not None:
            rule, fix = "None with a transition matrix", "the rates in the matrix"
            raise BadValueError("rate", CALLER, rule, repr(rate), fix)
        matrix = _as_transition(transition)
    else:
        share = as_share(rate, "rate", CALLER)
        matrix = _transition_of(ways[given[0]], given[0], share, int(labels.max(initial=0)) + 1)
    rng = np.random.default_rng(draw_seed(random_state, CALLER))
    noisy = _drawn(labels, matrix, rng)
    is_flipped = noisy != labels
    if isinstance(y, torch.Tensor):
        return NoisyLabels(torch.from_numpy(noisy).to(y), torch.from_numpy(is_flipped).to(y.device))
    return NoisyLabels(noisy, is_flipped)


def _as_labels(y: Any) -> IntArray:
    """Return class numbers of any shape as int64, never the caller's own array."""
    array = as_array(y.detach().cpu() if isinstance(y, torch.Tensor) else y, "y", CALLER)
    if array.dtype.kind not in "iu":
        rule, fix = "class numbers", "`.astype(int)` once every label is a whole number"
        raise BadTypeError("y", CALLER, rule, f"dtype {array.dtype}", fix)
    fix = "leaving out rows without a label"
    require_everywhere(array >= 0, array, "y", CALLER, "class numbers, 0 or above", fix)
    return array.astype(np.int64)


def _as_transition(value: Any) -> FloatArray:
    """Return a square matrix of chances, given the true class."""
    matrix = as_floats(value, "transition", CALLER)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        rule, fix = "true classes x given classes", "one row and one column a class"
        raise BadValueError("transition", CALLER, rule, f"shape {matrix.shape}", fix)
    return as_distributions(matrix, "transition", CALLER)


def _transition_of(way: Any, name: str, rate: float, n_least: int) -> FloatArray:
    """Return the chances of each label given the true class, for one of the named ways."""
    if name == "n_classes":
        n_classes = as_count(way, "n_classes", CALLER, least=max(2, n_least))
        matrix = np.full((n_classes, n_classes), rate / (n_classes - 1))
        np.fill_diagonal(matrix, 1 - rate)
        return matrix
    moves = _moves_of(way, name)
    matrix = np.eye(max([n_least, *(max(move) + 1 for move in moves)]))
    for old, new in moves:
        matrix[old, old], matrix[old, new] = 1 - rate, rate
    return matrix


def _moves_of(way: Any, name: str) -> list[tuple[int, int]]:
    """Return what is taken for what; no class can be taken for two others."""
    fix = "pairs=[(3, 8), (1, 7)]" if name == "pairs" else "one_way={1: 7}"
    try:
        moves = [(old, new) for old, new in (way.items() if name == "one_way" else way)]
    except (AttributeError, TypeError, ValueError) as error:
        rule = "pairs of class numbers" if name == "pairs" else "a dict of class numbers"
        raise BadTypeError(name, CALLER, rule, repr(way), fix) from error
    for old, new in moves:
        if not all(isinstance(c, int | np.integer) and c >= 0 for c in (old, new)) or old == new:
            rule = "two different class numbers, 0 or above"
            raise BadValueError(name, CALLER, rule, f"{old!r} to {new!r}", fix)
    if name == "one_way":
        return moves
    named = [class_ for pair in moves for class_ in pair]
    twice = next((class_ for class_ in named if named.count(class_) > 1), None)
    if twice is not None:
        rule, got = "pairs of different classes", f"class {twice!r} twice"
        raise BadValueError("pairs", CALLER, rule, got, "a transition matrix")
    return moves + [(new, old) for old, new in moves]


def _drawn(labels: IntArray, matrix: FloatArray, rng: np.random.Generator) -> IntArray:
    """Return a label for each true one, drawn from its row of the matrix."""
    require_everywhere(
        labels < len(matrix),
        labels,
        "y",
        CALLER,
        f"class numbers below {len(matrix)}, the rows of the matrix",
        "one row and one column a class",
    )
    chances = rng.random(labels.shape)
    bounds = np.cumsum(matrix, axis=1, dtype=np.float64)
    bounds /= bounds[:, -1:]  # exactly 1 from the last possible class on: none beyond is drawn
    noisy = np.empty_like(labels)
    for class_ in np.unique(labels):
        rows = labels == class_
        noisy[rows] = np.searchsorted(bounds[class_], chances[rows], side="right")
    return noisy


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
        self, n_rows: int, n_classes: int, regularization: float = 3.0, momentum: float = 0.7
    ) -> None:
        super().__init__()
        caller = "EarlyLearningRegularization"
        as_count(n_rows, "n_rows", caller)
        as_count(n_classes, "n_classes", caller, least=2)
        self.regularization = as_number(
            regularization, "regularization", caller, "regularization=3.0", above=0
        )
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
        return fit + self.regularization * torch.log1p(-agreement).mean()

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
