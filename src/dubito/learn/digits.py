"""A small network that learns digits from labels of which some are wrong: what the demo is of."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dubito.arrays import BoolArray
from dubito.learn.augment import identity_view, shift_views
from dubito.learn.label_noise import flip_labels
from dubito.learn.uncertainty_aware import UncertaintyAware

__all__ = [
    "DigitParts",
    "Digits",
    "LIKELIHOOD",
    "N_CLASSES",
    "SWAPPED",
    "SWAP_RATE",
    "VIEWS",
    "digit_parts",
    "trained_network",
]

N_CLASSES = 8  # 8 and 9 are never seen in training
SWAPPED = [(0, 6), (1, 7), (3, 5)]
SWAP_RATE = 0.2
N_TRAIN, N_VALIDATION = 700, 370
N_EPOCHS = 60
LIKELIHOOD = UncertaintyAware(N_CLASSES)
VIEWS = [identity_view, *shift_views(1)]


class Digits(NamedTuple):
    """Images, rows x 1 x 8 x 8 between 0 and 1, and what they really show."""

    images: torch.Tensor
    labels: torch.Tensor

    @property
    def is_swapped_kind(self) -> BoolArray:
        """Which rows are of a kind that is taken for another in training."""
        return np.isin(self.labels.numpy(), SWAPPED)


class DigitParts(NamedTuple):
    """Digits to train on, to calibrate on and to test on, and those that are never learned."""

    train: Digits
    validation: Digits
    test: Digits
    strange: Digits


def digit_parts(seed: int = 0) -> DigitParts:
    """Return scikit-learn's digits in four parts, labels as they are.

    >>> [len(part.labels) for part in digit_parts()]
    [700, 370, 373, 354]
    """
    pixels, labels = load_digits(return_X_y=True)
    is_known = labels < N_CLASSES
    known = np.random.default_rng(seed).permutation(np.flatnonzero(is_known))
    rows = [*np.split(known, [N_TRAIN, N_TRAIN + N_VALIDATION]), np.flatnonzero(~is_known)]
    images = torch.from_numpy(pixels / 16).float().reshape(-1, 1, 8, 8)
    return DigitParts(*(Digits(images[one], torch.from_numpy(labels[one])) for one in rows))


def trained_network(digits: Digits, seed: int = 0) -> tuple[nn.Module, torch.Tensor, BoolArray]:
    """Return a network, the labels it was trained on, and which of these are wrong.

    Images are shifted now and then, so that the network may be asked about shifted ones.
    """
    noisy, is_flipped = flip_labels(digits.labels, SWAP_RATE, SWAPPED, seed=seed)
    model = network()
    rows = TensorDataset(digits.images, noisy)
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-2)
    for _ in range(N_EPOCHS):
        for images, labels in DataLoader(rows, batch_size=64, shuffle=True):
            view = VIEWS[int(torch.randint(len(VIEWS), (1,)))]
            optimizer.zero_grad()
            torch.autograd.backward(LIKELIHOOD.loss(model(view(images)), labels))
            optimizer.step()
    return model.eval(), noisy, is_flipped.numpy()


def network() -> nn.Module:
    """Return a network that is yet to learn, with dropout to ask it several times."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(64, 128),
        nn.BatchNorm1d(128),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(128, 64),
        nn.ReLU(),
        nn.Dropout(0.3),
        nn.Linear(64, LIKELIHOOD.n_outputs),
    )
