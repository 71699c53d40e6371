"""Labels made wrong on purpose, to see what a network makes of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch

from dubito.arrays import (
    FloatArray,
    IntArray,
    as_array,
    as_distributions,
    as_floats,
    as_share,
    require_everywhere,
)
from dubito.errors import BadTypeError, BadValueError
from dubito.learn.likelihood import as_count

__all__ = ["NoisyLabels", "flip_labels"]

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
    seed: int = 0,
) -> NoisyLabels:
    """Return labels of which each is wrong with a chance of `rate`, and which ones are.

    `pairs` are taken for each other, both ways; `one_way` maps a class to what it is taken for;
    `n_classes` alone makes a wrong label any other class alike. `transition`, true classes x given
    classes, rows that sum to 1, says it all and needs no rate. One of the four; what they do not
    name stays as it is. Patrini et al., "Making deep neural networks robust to label noise", 2017.

    >>> flip_labels([0, 1, 6], rate=1.0, pairs=[(0, 6)]).noisy.tolist()
    [6, 1, 0]
    """
    labels = as_labels(y)
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
        matrix = as_transition(transition)
    else:
        share = as_share(rate, "rate", CALLER)
        matrix = transition_of(ways[given[0]], given[0], share, int(labels.max(initial=0)) + 1)
    rng = np.random.default_rng(as_count(seed, "seed", CALLER, least=0))
    noisy = drawn(labels, matrix, rng)
    is_flipped = noisy != labels
    if isinstance(y, torch.Tensor):
        return NoisyLabels(torch.from_numpy(noisy).to(y), torch.from_numpy(is_flipped).to(y.device))
    return NoisyLabels(noisy, is_flipped)


def as_labels(y: Any) -> IntArray:
    """Return class numbers of any shape as int64, never the caller's own array."""
    array = as_array(y.detach().cpu() if isinstance(y, torch.Tensor) else y, "y", CALLER)
    if array.dtype.kind not in "iu":
        rule, fix = "class numbers", "`.astype(int)` once every label is a whole number"
        raise BadTypeError("y", CALLER, rule, f"dtype {array.dtype}", fix)
    fix = "leaving out rows without a label"
    require_everywhere(array >= 0, array, "y", CALLER, "class numbers, 0 or above", fix)
    return array.astype(np.int64)


def as_transition(value: Any) -> FloatArray:
    """Return a square matrix of chances, given the true class."""
    matrix = as_floats(value, "transition", CALLER)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        rule, fix = "true classes x given classes", "one row and one column a class"
        raise BadValueError("transition", CALLER, rule, f"shape {matrix.shape}", fix)
    return as_distributions(matrix, "transition", CALLER)


def transition_of(way: Any, name: str, rate: float, n_least: int) -> FloatArray:
    """Return the chances of each label given the true class, for one of the named ways."""
    if name == "n_classes":
        n_classes = as_count(way, "n_classes", CALLER, least=max(2, n_least))
        matrix = np.full((n_classes, n_classes), rate / (n_classes - 1))
        np.fill_diagonal(matrix, 1 - rate)
        return matrix
    moves = moves_of(way, name)
    matrix = np.eye(max([n_least, *(max(move) + 1 for move in moves)]))
    for old, new in moves:
        matrix[old, old], matrix[old, new] = 1 - rate, rate
    return matrix


def moves_of(way: Any, name: str) -> list[tuple[int, int]]:
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


def drawn(labels: IntArray, matrix: FloatArray, rng: np.random.Generator) -> IntArray:
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
