"""The penalized objective of vector and matrix scaling at a peer's solution and at ours.

probmetrics' "svs" and "sms" minimize mean log loss plus (K/n)(|b|^2 + |v|^2), and for matrices
(K(K-1)/n)|M|^2, in W = 1 + diag(v) + M, on logits scaled by a temperature before. Both are
evaluated by the same float64 function, on the logits that the peer was fitted on.
"""

from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from scipy.special import log_softmax

from benchmarks.datasets import generate_logits
from benchmarks.peers import probabilities
from dubito import Logits
from dubito.arrays import FloatArray, IntArray
from dubito.calibrate.affine import Basis, fit_affine
from dubito.data import Batch
from dubito.data.shards import ArrayShards

__all__ = ["Objectives", "objectives"]


class Objectives(NamedTuple):
    """The value of the same objective at two solutions."""

    theirs: float
    ours: float


def objectives(name: str, n_rows: int, n_classes: int) -> Objectives:
    """Return the objective of probmetrics' "svs" or "sms" at its solution and at ours."""
    logits, y = generate_logits(n_rows, n_classes)
    inputs = probabilities(logits)
    peer = import_module("probmetrics.calibrators").get_calibrator(name)
    peer.fit(inputs, y)
    to_logits = import_module("probmetrics.utils").multiclass_probs_to_logits
    scaled = to_logits(peer.ts_.predict_proba(inputs)).astype(np.float64)
    penalty = penalties(name, n_rows, n_classes)
    ours = fit_affine(ArrayShards(Batch.of(y, Logits(scaled))), Basis(1.0), penalty)
    return Objectives(
        objective(scaled, y, make_table(peer, name), penalty), objective(scaled, y, ours, penalty)
    )


def penalties(name: str, n_rows: int, n_classes: int) -> FloatArray:
    """Return the weight of each entry's square: a column for v, or K for diag(v) + M, and b."""
    own = n_classes / n_rows
    if name == "svs":
        return np.full((n_classes, 2), own)
    table = np.full((n_classes, n_classes + 1), own * (n_classes - 1))
    np.fill_diagonal(table, own)
    table[:, -1] = own
    return table


def make_table(peer: Any, name: str) -> FloatArray:
    """Return what a fitted peer adds to the identity, and its bias in the last column."""
    if name == "svs":
        return np.column_stack([peer.v_, peer.b_]).astype(np.float64) - [1, 0]
    table = np.asarray(peer.W_, np.float64)
    return table - np.eye(*table.shape)


def objective(logits: FloatArray, y: IntArray, table: FloatArray, penalty: FloatArray) -> float:
    """Return mean log loss plus penalty, in float64."""
    change, bias = table[:, :-1], table[:, -1]
    moved = logits * change[:, 0] if change.shape[1] == 1 else logits @ change.T
    scores = log_softmax(logits + moved + bias, axis=1)
    return float(-scores[np.arange(y.size), y].mean() + (penalty * table**2).sum())
