"""How well predicted areas lie upon true ones."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dubito.arrays import IntArray


class Overlap(NamedTuple):
    """Dice and intersection over union (IoU), means over the classes other than the background."""

    dice: float
    iou: float


def overlap(truth: IntArray, said: IntArray, n_classes: int) -> Overlap:
    """Return how areas overlap, the pixels of all images together; the background is class 0.

    >>> overlap(np.array([0, 1, 1]), np.array([0, 0, 1]), 2).iou
    0.5
    """
    counts = np.bincount((truth * n_classes + said).ravel(), minlength=n_classes**2)
    matrix = counts.reshape(n_classes, n_classes)
    both = np.diag(matrix)[1:]
    sizes = (matrix.sum(axis=0) + matrix.sum(axis=1))[1:]
    # A class that is nowhere, neither true nor said, overlaps with itself.
    is_there = sizes > 0
    dice = np.where(is_there, 2 * both / np.maximum(sizes, 1), 1.0)
    iou = np.where(is_there, both / np.maximum(sizes - both, 1), 1.0)
    return Overlap(float(dice.mean()), float(iou.mean()))
