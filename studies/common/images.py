"""Fashion-MNIST as tensors, in disjoint parts."""

from __future__ import annotations

import gzip
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self, final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

FOLDER = Path("/usr/share/datasets/fashion-mnist")
READ_ROWS = 1_000  # batch size for evaluation

ByteArray = npt.NDArray[np.uint8]


@final
@dataclass(frozen=True, slots=True, eq=False)
class Images:
    """Images in [0, 1], rows x channels x height x width, and their labels."""

    pixels: Tensor
    labels: Tensor

    @classmethod
    def read(cls, folder: Path, split: str) -> Self:
        """The images of one split of Fashion-MNIST, `train` or `t10k`."""
        pixels = torch.from_numpy(read_idx(folder / f"{split}-images-idx3-ubyte.gz"))
        labels = torch.from_numpy(read_idx(folder / f"{split}-labels-idx1-ubyte.gz"))
        return cls(pixels.unsqueeze(1).float() / 255, labels.long())

    def __len__(self) -> int:
        return len(self.labels)

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        """Batches in order, as `dubito.learn.collect` takes them."""
        yield from zip(
            torch.split(self.pixels, READ_ROWS), torch.split(self.labels, READ_ROWS), strict=True
        )

    def take(self, rows: Tensor) -> Self:
        """The images of these row numbers, in this order."""
        return type(self)(self.pixels[rows], self.labels[rows])

    def draw(self, labels: Sequence[int], n_rows: int, generator: torch.Generator) -> Self:
        """At random, `n_rows` different images that have one of these labels."""
        rows = torch.isin(self.labels, torch.tensor(labels)).nonzero().squeeze(1)
        if n_rows > len(rows):
            raise ValueError(
                f"`n_rows` of Images.draw must be at most the {len(rows)} images with the labels "
                f"{list(labels)}. Got {n_rows}. Try fewer."
            )
        return self.take(rows[torch.randperm(len(rows), generator=generator)[:n_rows]])


class Parts(NamedTuple):
    """Images for training, for calibration and selection, and for testing."""

    train: Images
    validation: Images
    test: Images


def fashion_mnist(
    n_train: int, n_validation: int, n_test: int, seed: int, folder: Path = FOLDER
) -> Parts:
    """Return images of each part: training and validation of one split, test of the other.

    The seed selects the training images; the test images are always the first ones.
    """
    generator = torch.Generator().manual_seed(seed)
    drawn = Images.read(folder, "train").draw(range(10), n_train + n_validation, generator)
    rows = torch.arange(len(drawn))
    test = Images.read(folder, "t10k").take(torch.arange(n_test))
    return Parts(drawn.take(rows[:n_train]), drawn.take(rows[n_train:]), test)


def read_idx(path: Path) -> ByteArray:
    """The array of bytes in a gzipped idx file."""
    if not path.is_file():
        raise FileNotFoundError(
            f"`path` of read_idx must be a gzipped idx file. Got {path}. Try installing Debian's "
            "package dataset-fashion-mnist, or --folder."
        )
    content = gzip.decompress(path.read_bytes())
    n_axes = content[3]
    shape = np.frombuffer(content, dtype=">u4", count=n_axes, offset=4)
    return np.frombuffer(content, dtype=np.uint8, offset=4 + 4 * n_axes).reshape(shape).copy()
