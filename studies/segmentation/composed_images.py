"""Images of shapes before textures, with a label for each pixel, and borders no one is sure of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple, Self, final

import torch
from torch import Tensor
from torch.nn import functional

from studies.common.images import FOLDER, Images

SIDE = 32
HALF = SIDE // 2
KNOWN = (0, 8, 9)  # T-shirts, bags and boots have the labels 1, 2 and 3
UNSEEN = (1, 3, 5)  # trousers, dresses and sandals are not learned
UNSEEN_LABEL = len(KNOWN) + 1
N_CLASSES = len(KNOWN) + 1  # with the background
SILHOUETTE = 0.15  # pixels above belong to the shape
TEST_SEED = 20_000  # the images to judge by are the same whatever the seed


@final
@dataclass(frozen=True, slots=True, eq=False)
class Composed:
    """Images, rows x 1 x 32 x 32, and labels of their pixels: true ones, and as someone drew them.

    Shapes that are not learned have the true label 4.
    """

    pixels: Tensor
    truth: Tensor
    drawn: Tensor

    def __len__(self) -> int:
        return len(self.pixels)

    def take(self, rows: slice) -> Self:
        """Some of the images."""
        return type(self)(self.pixels[rows], self.truth[rows], self.drawn[rows])


class ComposedParts(NamedTuple):
    """Images to learn from, to choose on and to judge by, and some that hold an unseen shape."""

    train: Composed
    validation: Composed
    test: Composed
    ood: Composed


def composed_parts(
    n_train: int, n_validation: int, n_test: int, seed: int, folder: Path = FOLDER
) -> ComposedParts:
    """Return images of two shapes each; some hold one that was never learned.

    Shapes to judge by come from Fashion-MNIST's test images.
    """
    learned, evaluate = (read_once(folder, split) for split in ("train", "t10k"))
    generator = torch.Generator().manual_seed(seed)
    drawn = compose(learned, (KNOWN, KNOWN), n_train + n_validation, generator)
    generator = torch.Generator().manual_seed(TEST_SEED)
    return ComposedParts(
        drawn.take(slice(0, n_train)),
        drawn.take(slice(n_train, None)),
        compose(evaluate, (KNOWN, KNOWN), n_test, generator),
        compose(evaluate, (KNOWN, UNSEEN), n_test, generator),
    )


@cache
def read_once(folder: Path, split: str) -> Images:
    """Return the images of a split, which many runs of one process take shapes from."""
    return Images.read(folder, split)


def compose(
    shapes: Images, kinds: Sequence[Sequence[int]], n_rows: int, generator: torch.Generator
) -> Composed:
    """Return images with a shape in each half, whose class is one of that half's `kinds`.

    Which half is left and which is right is drawn at random, like places and sizes.
    """
    scene = texture(n_rows, generator)
    truth = torch.zeros(n_rows, SIDE, SIDE, dtype=torch.long)
    is_turned = torch.rand(n_rows, generator=generator) < 0.5
    for number, classes in enumerate(kinds):
        drawn = shapes.draw(classes, n_rows, generator)
        for row in range(n_rows):
            piece = resized(drawn.pixels[row], generator)
            size = piece.shape[-1]
            left = HALF * int(is_turned[row] != bool(number))
            down, right = (
                int(torch.randint(room - size + 1, (1,), generator=generator))
                for room in (SIDE, HALF)
            )
            here = row, slice(down, down + size), slice(left + right, left + right + size)
            is_shape = piece > SILHOUETTE
            scene[here] = torch.where(is_shape, 0.25 + 0.75 * piece, scene[here])
            label = label_of(int(drawn.labels[row]))
            truth[here] = torch.where(is_shape, label, truth[here])
    noisy = scene + 0.05 * torch.randn(scene.shape, generator=generator)
    return Composed(noisy.clamp(0, 1).unsqueeze(1), truth, unsure(truth, generator))


def label_of(kind: int) -> int:
    """Return the label of a class of Fashion-MNIST."""
    return KNOWN.index(kind) + 1 if kind in KNOWN else UNSEEN_LABEL


def resized(shape: Tensor, generator: torch.Generator) -> Tensor:
    """Return a shape 13 to 16 pixels high and wide."""
    size = int(torch.randint(13, HALF + 1, (1,), generator=generator))
    return functional.interpolate(shape.unsqueeze(0), size=(size, size), mode="area")[0, 0]


def texture(n_rows: int, generator: torch.Generator) -> Tensor:
    """Return backgrounds: blots of several sizes, as bright as the darker shapes."""
    found = torch.zeros(n_rows, 1, SIDE, SIDE)
    for cells in (4, 8, 16):
        blots = torch.rand(n_rows, 1, cells, cells, generator=generator)
        found += functional.interpolate(blots, size=SIDE, mode="bilinear") / 5
    return found.squeeze(1)


def borders(labels: Tensor) -> Tensor:
    """Return which pixels have both shape and background among themselves and their neighbors."""
    is_shape = (labels > 0).float().unsqueeze(1)
    most = functional.max_pool2d(is_shape, 3, 1, 1)
    least = -functional.max_pool2d(-is_shape, 3, 1, 1)
    return (most != least).squeeze(1)


def unsure(labels: Tensor, generator: torch.Generator) -> Tensor:
    """Return labels whose border pixels are shape or background by the toss of a coin."""
    nearest = functional.max_pool2d(labels.float().unsqueeze(1), 3, 1, 1).squeeze(1).long()
    is_shape = torch.rand(labels.shape, generator=generator) < 0.5
    return torch.where(borders(labels), torch.where(is_shape, nearest, 0), labels)
