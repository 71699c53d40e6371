"""Uncertainty scores from the outputs alone: 1 - MSP, entropy, margin, energy in one pass; GEN."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
from scipy.special import entr, expit, logsumexp

from dubito.arrays import ArrayResult, FloatArray, as_count, as_fraction, contiguous
from dubito.errors import BadTypeError
from dubito.kernels import uncertainty as fused
from dubito.kernels.blocks import row_blocks, run_in_order
from dubito.kernels.row_statistics import NARROW
from dubito.outputs import (
    Logits,
    MultiLabel,
    MultiLabelMembers,
    Probabilities,
    TopLabel,
    as_class_matrix,
    as_multilabel,
)


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class UncertaintyScores(ArrayResult):
    """Uncertainty scores of the outputs; larger always means more uncertain.

    Attributes
    ----------
    least_confidence : ndarray of shape (n_rows,)
        1 - the largest probability (1 - MSP).
    entropy : ndarray of shape (n_rows,)
        Entropy in nats.
    margin_uncertainty : ndarray of shape (n_rows,)
        1 - the difference of the two largest probabilities.
    energy : ndarray of shape (n_rows,) or None
        -logsumexp of the logits; None for probabilities.
    """

    least_confidence: FloatArray
    entropy: FloatArray
    margin_uncertainty: FloatArray
    energy: FloatArray | None


def uncertainty_scores(outputs: Any) -> UncertaintyScores:
    """Return all uncertainty scores of the outputs, in one pass over the matrix.

    Use it if you need more than one score: all of them cost as much as any one.

    Parameters
    ----------
    outputs : Logits, Probabilities, Members or array-like of shape (n_rows, n_classes)
        Model outputs; a plain array is probabilities, and members are averaged.

    Returns
    -------
    UncertaintyScores
        Scores per row.

    Examples
    --------
    >>> from dubito.doubt import uncertainty_scores
    >>> uncertainty_scores([[0.5, 0.25, 0.25]]).margin_uncertainty.tolist()
    [0.75]
    """
    return _score_outputs(outputs, "uncertainty_scores")


def least_confidence(outputs: Any) -> FloatArray:
    """Return 1 - MSP: one minus the maximum softmax probability.

    The score to try first. It is computed without cancellation: rows whose top logit leads by 50
    or by 60 still differ.

    Parameters
    ----------
    outputs : Logits, Probabilities, Members, TopLabel or array-like of shape (n_rows, n_classes)
        Model outputs; a plain array is probabilities, and members are averaged.

    Returns
    -------
    ndarray of shape (n_rows,)
        Scores from 0 to 1 - 1/K; larger means more uncertain.

    References
    ----------
    Hendrycks and Gimpel, "A baseline for detecting misclassified and out-of-distribution
    examples in neural networks", 2017.

    Examples
    --------
    >>> from dubito.doubt import least_confidence
    >>> least_confidence([[0.5, 0.25, 0.25], [0.0, 1.0, 0.0]]).tolist()
    [0.5, 0.0]
    """
    if isinstance(outputs, TopLabel):
        return 1 - outputs.confidence
    return _score_outputs(outputs, "least_confidence").least_confidence


def entropy(outputs: Any) -> FloatArray:
    """Return the entropy of the class probabilities, in nats.

    Unlike the confidence, it distinguishes uncertainty between two classes from uncertainty
    among many.

    Parameters
    ----------
    outputs : Logits, Probabilities, Members or array-like of shape (n_rows, n_classes)
        Model outputs; a plain array is probabilities, and members are averaged.

    Returns
    -------
    ndarray of shape (n_rows,)
        Entropies from 0 to log K.

    References
    ----------
    Shannon, "A mathematical theory of communication", 1948.

    Examples
    --------
    >>> from dubito.doubt import entropy
    >>> entropy([[0.25, 0.25, 0.25, 0.25], [0.0, 1.0, 0.0, 0.0]]).round(4).tolist()
    [1.3863, 0.0]
    """
    return _score_outputs(outputs, "entropy").entropy


def margin_uncertainty(outputs: Any) -> FloatArray:
    """Return 1 - (largest probability - second largest).

    Use it where confusing the two most probable classes is the risk.

    Parameters
    ----------
    outputs : Logits, Probabilities, Members or array-like of shape (n_rows, n_classes)
        Model outputs; a plain array is probabilities, and members are averaged.

    Returns
    -------
    ndarray of shape (n_rows,)
        Scores from 0 to 1; larger means more uncertain.

    References
    ----------
    Scheffer et al., "Active hidden Markov models for information extraction", 2001.

    Examples
    --------
    >>> from dubito.doubt import margin_uncertainty
    >>> margin_uncertainty([[0.5, 0.25, 0.25], [0.5, 0.5, 0.0]]).tolist()
    [0.75, 1.0]
    """
    return _score_outputs(outputs, "margin_uncertainty").margin_uncertainty


def energy(outputs: Logits | MultiLabel) -> FloatArray:
    """Return the energy: -logsumexp(logits), or for several labels the sum of their energies.

    The softmax discards the magnitude of the logits; the energy keeps it, which often separates
    OOD inputs better. For several labels per row it is -sum(log(1 + exp(logits))) (JointEnergy).

    Parameters
    ----------
    outputs : Logits or MultiLabel
        Logits of the classes, or `MultiLabel.from_logits`.

    Returns
    -------
    ndarray of shape (n_rows,)
        Scores; larger means more uncertain.

    References
    ----------
    Liu et al., "Energy-based out-of-distribution detection", 2020.
    Wang et al., "Can multi-label classification networks know what they don't know?", 2021.

    Examples
    --------
    >>> from dubito import Logits, MultiLabel
    >>> from dubito.doubt import energy
    >>> energy(Logits([[8.0, 8.0], [1.0, 1.0]])).round(4).tolist()
    [-8.6931, -1.6931]
    >>> energy(MultiLabel.from_logits([[8.0, 8.0], [1.0, 1.0]])).round(4).tolist()
    [-16.0007, -2.6265]
    """
    if isinstance(outputs, MultiLabel):
        found = label_uncertainty(outputs).joint_energy
        if found is None:
            rule, fix = "must be made from logits", "Use MultiLabel.from_logits(logits)"
            raise BadTypeError("outputs", "energy", rule, "MultiLabel of probabilities", fix)
        return found
    if not isinstance(outputs, Logits):
        rule, fix = "must be Logits", "Wrap the logits: the energy of probabilities is always 0"
        raise BadTypeError("outputs", "energy", rule, type(outputs).__name__, fix)
    scores = _score_outputs(outputs, "energy").energy
    assert scores is not None
    return scores


def generalized_entropy(outputs: Any, gamma: float = 0.1, max_classes: int = 100) -> FloatArray:
    """Return the generalized entropy (GEN) of the class probabilities.

    The sum of p^gamma (1 - p)^gamma over the most probable classes. A small `gamma` makes small
    deviations from one-hot probabilities count, where entropy sees hardly any.

    Parameters
    ----------
    outputs : Logits, Probabilities, Members or array-like of shape (n_rows, n_classes)
        Model outputs; a plain array is probabilities, and members are averaged.
    gamma : float, default=0.1
        The exponent, above 0 and below 1.
    max_classes : int, default=100
        How many of the most probable classes are summed; of fewer classes, all.

    Returns
    -------
    ndarray of shape (n_rows,)
        Scores; larger means more uncertain.

    References
    ----------
    Liu et al., "GEN: pushing the limits of softmax-based out-of-distribution detection", 2023.

    Examples
    --------
    >>> from dubito.doubt import generalized_entropy
    >>> generalized_entropy([[0.5, 0.5], [0.9999, 0.0001]], gamma=0.5).round(4).tolist()
    [1.0, 0.02]
    """
    caller = "generalized_entropy"
    exponent = as_fraction(gamma, "gamma", caller, is_open=True, fix="Use gamma=0.1")
    n_top = as_count(max_classes, "max_classes", caller)
    wrapped = as_scored_outputs(outputs, "outputs", caller)
    scores = np.zeros(wrapped.n_rows)

    def fill(rows: slice) -> None:
        # In logarithms: neither 1 - p of the top class nor the power of a tiny p loses digits.
        part = wrapped.array[rows].astype(np.float64)
        with np.errstate(divide="ignore", over="ignore"):
            odds = -np.sort(-(part if isinstance(wrapped, Logits) else np.log(part)), axis=1)
            odds -= odds[:, :1].copy()  # beside large logits a log-sum-exp would be lost
            rest = logsumexp(odds[:, 1:], axis=1) if odds.shape[1] > 1 else -np.inf
            total = np.logaddexp(odds[:, 0], rest)
            others = odds[:, 1:n_top] - total[:, np.newaxis]
            scores[rows] = np.exp(exponent * (odds[:, 0] - total + rest - total))
        scores[rows] += np.exp(exponent * (others + np.log1p(-np.exp(others)))).sum(axis=1)

    run_in_order(fill, row_blocks(*wrapped.array.shape))
    return scores


@final
@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LabelUncertainty(ArrayResult):
    """Uncertainty of each of several labels per row; larger always means more uncertain.

    Attributes
    ----------
    least_confidence : ndarray of shape (n_rows, n_labels)
        The probability of the less probable outcome of each label.
    entropy : ndarray of shape (n_rows, n_labels)
        Entropy of each label in nats, from 0 to log 2.
    joint_entropy : ndarray of shape (n_rows,)
        Entropy of all labels of a row together, if they are independent: the sum over labels.
    joint_energy, max_logit : ndarray of shape (n_rows,) or None
        OOD scores: -sum(log(1 + exp(logits))), which is `energy`, and minus the largest logit;
        None for probabilities.
    """

    least_confidence: FloatArray
    entropy: FloatArray
    joint_entropy: FloatArray
    joint_energy: FloatArray | None
    max_logit: FloatArray | None


def label_uncertainty(outputs: Any) -> LabelUncertainty:
    """Return the uncertainty of several labels per row, by label and by row.

    Parameters
    ----------
    outputs : MultiLabel, MultiLabelMembers or array-like of shape (n_rows, n_labels)
        Probabilities of labels; members are averaged. Made from logits, labels of probability
        1 - 1e-20 and 1 - 1e-30 still differ.

    Returns
    -------
    LabelUncertainty

    Examples
    --------
    >>> from dubito.doubt import label_uncertainty
    >>> found = label_uncertainty([[0.5, 0.9], [1.0, 0.0]])
    >>> found.least_confidence.round(2).tolist(), found.joint_entropy.round(3).tolist()
    ([[0.5, 0.1], [0.0, 0.0]], [1.018, 0.0])
    """
    known = as_multilabel(outputs, "label_uncertainty")
    odds = known.log_odds.astype(np.float64)
    rare = expit(-np.abs(odds))
    entropies = entr(rare) - (1 - rare) * np.log1p(-rare)
    joint = entropies.sum(axis=1)
    if known.odds is None:
        return LabelUncertainty(rare, entropies, joint, None, None)
    energies = -np.logaddexp(0.0, odds).sum(axis=1)
    return LabelUncertainty(rare, entropies, joint, energies, -odds.max(axis=1))


def as_scored_outputs(outputs: Any, argument: str, caller: str) -> Logits | Probabilities:
    """Return outputs that have every score."""
    if isinstance(outputs, MultiLabel | MultiLabelMembers):
        rule, got = "must hold one class per row", f"{type(outputs).__name__}, several labels"
        fix = "Use label_uncertainty(outputs), or pass one label: outputs.label(k)"
        raise BadTypeError(argument, caller, rule, got, fix)
    is_top = isinstance(outputs, TopLabel)
    fix = "Use least_confidence for TopLabel" if is_top else "Pass a classifier's outputs"
    return as_class_matrix(outputs, argument, caller, fix)


def _score_outputs(outputs: Any, caller: str) -> UncertaintyScores:
    """Return all uncertainty scores of the outputs."""
    wrapped = as_scored_outputs(outputs, "outputs", caller)
    array, is_logits = wrapped.array, isinstance(wrapped, Logits)
    n_rows, n_classes = array.shape
    # One extra column, so that every range of columns has the layout kernels are compiled for.
    scores = np.empty((fused.N_SCORES, n_rows + 1))[:, :n_rows]
    kernel = fused.narrow_scores if n_classes <= NARROW else fused.wide_scores

    def fill(rows: slice) -> None:
        kernel(contiguous(array[rows]), is_logits, scores[:, rows])

    run_in_order(fill, row_blocks(n_rows, n_classes))
    if n_classes == 1:  # without a second class, the margin is 1
        scores[fused.MARGIN_UNCERTAINTY] = 0.0
    return UncertaintyScores(
        least_confidence=scores[fused.LEAST_CONFIDENCE],
        entropy=scores[fused.ENTROPY],
        margin_uncertainty=scores[fused.MARGIN_UNCERTAINTY],
        energy=scores[fused.ENERGY] if is_logits else None,
    )
