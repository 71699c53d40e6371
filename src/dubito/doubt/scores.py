"""Uncertainty scores from the outputs alone: 1 - MSP, entropy, margin, energy, in one pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np

from dubito.arrays import FloatArray, contiguous
from dubito.errors import BadTypeError
from dubito.kernels import uncertainty as fused
from dubito.kernels.blocks import map_in_order, row_blocks
from dubito.kernels.row_statistics import NARROW
from dubito.outputs import Logits, Members, Probabilities, TopLabel, as_outputs

KINDS = "Logits, Probabilities, Members or an array of probabilities"


@final
@dataclass(frozen=True, slots=True, eq=False)
class UncertaintyScores:
    """Doubts from the outputs, one number a row each; `energy` is None but for logits."""

    least_confidence: FloatArray
    entropy: FloatArray
    margin_uncertainty: FloatArray
    energy: FloatArray | None


def uncertainty_scores(outputs: Any) -> UncertaintyScores:
    """Return every doubt that the outputs hold, in one pass over the matrix.

    Take it where more than one is wanted: all cost as much as any.

    >>> uncertainty_scores([[0.5, 0.25, 0.25]]).margin_uncertainty.tolist()
    [0.75]
    """
    return output_doubts_of(outputs, "outputs", "uncertainty_scores")


def least_confidence(outputs: Any) -> FloatArray:
    """Return 1 - the largest probability, a row each.

    What to try first. It keeps its digits where the model is nearly sure: logits that lead by 50 or
    60 still differ. Hendrycks and Gimpel, "A baseline for detecting misclassified and
    out-of-distribution examples in neural networks", 2017.

    >>> least_confidence([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]).tolist()
    [0.5, 0.0]
    """
    if isinstance(outputs, TopLabel):
        return 1 - outputs.confidence
    return output_doubts_of(outputs, "outputs", "least_confidence").least_confidence


def entropy(outputs: Any) -> FloatArray:
    """Return the entropy of the probabilities in nats, a row each: 0 when sure, at most log K.

    Unlike the confidence it tells doubt between two classes from doubt among many. Shannon, "A
    mathematical theory of communication", 1948.

    >>> entropy([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]]).round(4).tolist()
    [1.3863, 0.0]
    """
    return output_doubts_of(outputs, "outputs", "entropy").entropy


def margin_uncertainty(outputs: Any) -> FloatArray:
    """Return 1 - the lead of the largest probability over the second, a row each, from 0 to 1.

    Take it where the choice between the best two is what can go wrong. Scheffer et al., "Active
    hidden Markov models for information extraction", 2001.

    >>> margin_uncertainty([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]]).tolist()
    [0.75, 1.0]
    """
    return output_doubts_of(outputs, "outputs", "margin_uncertainty").margin_uncertainty


def energy(outputs: Logits) -> FloatArray:
    """Return -log(sum(exp(logits))), a row each: high where no class is spoken for loudly.

    The softmax forgets how large the logits are; the energy does not. Liu et al., "Energy-based
    out-of-distribution detection", 2020.

    >>> energy(Logits([[8.0, 8.0], [1.0, 1.0]])).round(4).tolist()
    [-8.6931, -1.6931]
    """
    if not isinstance(outputs, Logits):
        fix = "Logits(...), as the energy of probabilities is 0 whatever the model thinks"
        raise BadTypeError("outputs", "energy", "Logits", type(outputs).__name__, fix)
    found = output_doubts_of(outputs, "outputs", "energy").energy
    assert found is not None
    return found


def output_doubts_of(outputs: Any, argument: str, caller: str) -> UncertaintyScores:
    """Return every doubt of the outputs that came as an argument of `caller`."""
    wrapped = as_outputs(outputs, argument, caller)
    if isinstance(wrapped, Members):
        wrapped = wrapped.mean
    if not isinstance(wrapped, Logits | Probabilities):
        is_top = isinstance(wrapped, TopLabel)
        fix = "least_confidence, all that a top label tells" if is_top else "a classifier's outputs"
        raise BadTypeError(argument, caller, KINDS, type(wrapped).__name__, fix)
    array, is_logits = wrapped.array, isinstance(wrapped, Logits)
    n_rows, n_classes = array.shape
    # One column too many, so that any range of columns has the one layout kernels are compiled for.
    doubts = np.empty((fused.N_DOUBTS, n_rows + 1))[:, :n_rows]
    pass_over = fused.narrow_doubts if n_classes <= NARROW else fused.wide_doubts

    def fill(rows: slice) -> None:
        pass_over(contiguous(array[rows]), is_logits, doubts[:, rows])

    for _ in map_in_order(fill, row_blocks(n_rows, n_classes)):
        pass
    if n_classes == 1:  # a class without rivals leads by everything
        doubts[fused.NARROW_MARGIN] = 0.0
    return UncertaintyScores(
        least_confidence=doubts[fused.LEAST_CONFIDENCE],
        entropy=doubts[fused.ENTROPY],
        margin_uncertainty=doubts[fused.NARROW_MARGIN],
        energy=doubts[fused.ENERGY] if is_logits else None,
    )
