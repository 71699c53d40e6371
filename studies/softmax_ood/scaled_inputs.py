"""Inputs scaled along a direction: ReLU networks in few and in many dimensions."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

from dubito import Logits
from dubito.arrays import FloatArray
from dubito.doubt import least_confidence
from dubito.learn import Categorical
from dubito.measure import roc_auc
from studies.common.images import Images
from studies.common.networks import seeded
from studies.common.training import Recipe, train

FACTORS = (1, 2, 5, 10, 20, 50)
DIMENSIONS = (2, 20, 200)
N_CLASSES = 3
RADIUS = 3.0  # of the circle that classes lie on, in standard deviations of each
LIKELIHOOD = Categorical(N_CLASSES)


def blobs(n_rows: int, n_dimensions: int, generator: torch.Generator) -> Images:
    """Return rows of three classes that differ in two directions; all others are noise."""
    labels = torch.randint(N_CLASSES, (n_rows,), generator=generator)
    angles = 2 * torch.pi * labels / N_CLASSES
    rows = torch.randn((n_rows, n_dimensions), generator=generator)
    rows[:, 0] += RADIUS * angles.cos()
    rows[:, 1] += RADIUS * angles.sin()
    return Images(rows, labels)


def far_confidence(n_dimensions: int, n_rows: int, recipe: Recipe, seed: int) -> FloatArray:
    """Return mean confidence and AUROC: of known rows, and of random directions at each factor.

    At factor 1, a direction is as long as the median known row. The AUROC is that of least
    confidence, random directions against known rows: above 0.5 they are less confident, near 0.5
    they saturate, below 0.5 the network extrapolates. That of known rows is 0.5 by definition.
    """
    generator = seeded(seed)
    network = nn.Sequential(
        *(nn.Linear(n_dimensions, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU()),
        nn.Linear(64, N_CLASSES),
    )

    def loss(outputs: Tensor, labels: Tensor, rows: Tensor) -> Tensor:
        return LIKELIHOOD.loss(outputs, labels)

    train(network, blobs(n_rows, n_dimensions, generator), loss, recipe, generator)
    known = blobs(n_rows, n_dimensions, generator).pixels
    directions = torch.randn(known.shape, generator=generator)
    length = known.norm(dim=1).median() / directions.norm(dim=1, keepdim=True)
    requested = [known, *(directions * length * factor for factor in FACTORS)]
    with torch.no_grad():
        doubts = [least_confidence(Logits(network(rows).numpy())) for rows in requested]
    is_far = np.repeat([False, True], n_rows)
    aurocs = [roc_auc(is_far, np.concatenate([doubts[0], one])) for one in doubts]
    return np.array([[1 - one.mean() for one in doubts], aurocs])
