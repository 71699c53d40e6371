"""Three data sets with corrupted inputs, as features for densities and a classifier."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self, final

import numpy as np
import torch
from sklearn.datasets import load_digits, load_wine
from torch import Tensor
from torch.nn import functional

from dubito.arrays import FloatArray, IntArray
from dubito.learn import corrupt
from studies.common.images import fashion_mnist

PAIRS = {
    "wine": ((0, 1),),
    "digits": ((0, 1), (2, 3)),
    "Fashion-MNIST": ((0, 1), (2, 3)),
}
SPREADS = (0.25, 0.5, 1.0, 1.5, 2.0)  # of noise, in standard deviations of a table's columns
POOLED = 14  # side of larger images


@final
@dataclass(frozen=True, slots=True, eq=False)
class Source:
    """Training and test rows: tables (rows x columns) or images, as tensors."""

    name: str
    seed: int
    train: Tensor
    y_train: IntArray
    test: Tensor
    y_test: IntArray

    @classmethod
    def drawn(
        cls, name: str, seed: int, rows: Tensor, labels: IntArray, n_train: int, n_test: int
    ) -> Self:
        """Split rows at random."""
        order = np.random.default_rng(seed).permutation(len(labels))
        train, test = order[:n_train], order[n_train : n_train + n_test]
        return cls(name, seed, rows[train], labels[train], rows[test], labels[test])

    @property
    def is_table(self) -> bool:
        """Whether the rows are a table rather than images."""
        return self.train.ndim == 2

    @property
    def kinds(self) -> tuple[str, ...]:
        """The corruptions of the inputs."""
        return ("noise",) if self.is_table else ("noise", "blur")

    def worse(self, rows: Tensor, kind: str, level: int, seed: int) -> Tensor:
        """Return rows with noise or blur, of level 1 to 5."""
        if not self.is_table:
            return corrupt(rows, kind, level, seed)
        generator = torch.Generator().manual_seed(seed)
        draws = torch.randn(rows.shape, generator=generator, dtype=rows.dtype)
        return rows + SPREADS[level - 1] * self.train.std(0) * draws

    def features(self, rows: Tensor) -> FloatArray:
        """Return features: standardized columns, or (pooled) pixels."""
        if self.is_table:
            return ((rows - self.train.mean(0)) / self.train.std(0)).numpy()
        if rows.shape[-1] > POOLED:
            rows = functional.adaptive_avg_pool2d(rows, POOLED)
        return rows.flatten(1).double().numpy()


def source_of(name: str, n_train: int, n_test: int, seed: int, folder: Path) -> Source:
    """Return a data set; the seed draws its split (for Fashion-MNIST, only training rows)."""
    if name == "wine":
        table, labels = load_wine(return_X_y=True)
        return Source.drawn(name, seed, torch.from_numpy(table), labels, n_train, n_test)
    if name == "digits":
        images = torch.from_numpy(load_digits().images).float().unsqueeze(1) / 16
        return Source.drawn(name, seed, images, load_digits().target, n_train, n_test)
    parts = fashion_mnist(n_train, 0, n_test, seed, folder)
    train, test = parts.train, parts.test
    return Source(name, seed, train.pixels, train.labels.numpy(), test.pixels, test.labels.numpy())
