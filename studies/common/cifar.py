"""CIFAR-10 as tensors, from its usual folder of Python batches or from an npz file."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any, final
from zipfile import BadZipFile

import numpy as np
import torch

from studies.common.images import ByteArray, Images, Parts

TRAIN_FILES = tuple(f"data_batch_{number}" for number in range(1, 6))
TEST_FILES = ("test_batch",)
SIDE = 32
# A pickle may call anything that it names; these only create arrays of bytes.
NAMES_OF_ARRAYS = {
    ("_codecs", "encode"),
    ("numpy", "dtype"),
    ("numpy", "ndarray"),
    ("numpy.core.multiarray", "_reconstruct"),
    ("numpy._core.multiarray", "_reconstruct"),
}


def cifar10(path: Path, n_train: int, n_validation: int, n_test: int, seed: int) -> Parts:
    """Return images of each part: training and validation of one split, test of the other.

    The seed selects the training images; the test images are always the first ones.
    """
    generator = torch.Generator().manual_seed(seed)
    learned, evaluated = read_cifar10(path)
    drawn = learned.draw(range(10), n_train + n_validation, generator)
    rows = torch.arange(len(drawn))
    test = evaluated.take(torch.arange(n_test))
    return Parts(drawn.take(rows[:n_train]), drawn.take(rows[n_train:]), test)


def read_cifar10(path: Path) -> tuple[Images, Images]:
    """Return the training and the test images.

    `path` is the folder cifar-10-batches-py, or an npz file with `images_train` (rows x height x
    width x channels), `labels_train`, `images_test` and `labels_test`.
    """
    try:
        if path.is_dir():
            return of_batches(path, TRAIN_FILES), of_batches(path, TEST_FILES)
        with np.load(path, allow_pickle=False) as arrays:
            train, test = (
                as_images(arrays[f"images_{part}"].transpose(0, 3, 1, 2), arrays[f"labels_{part}"])
                for part in ("train", "test")
            )
        return train, test
    except (OSError, EOFError, KeyError, ValueError, pickle.UnpicklingError, BadZipFile) as error:
        raise ValueError(
            "`path` of read_cifar10 must be the folder cifar-10-batches-py or an npz file. "
            f"Got {path}: {error}. Try --cifar PATH."
        ) from error


def of_batches(folder: Path, names: Sequence[str]) -> Images:
    """Return the images of some of the folder's files."""
    batches = []
    for name in names:
        with (folder / name).open("rb") as file:
            batches.append(ArrayUnpickler(file, encoding="bytes").load())
    rows = np.concatenate([batch[b"data"] for batch in batches])
    labels = np.concatenate([batch[b"labels"] for batch in batches])
    return as_images(rows.reshape(-1, 3, SIDE, SIDE), labels)


def as_images(pixels: ByteArray, labels: Any) -> Images:
    """Return bytes, rows x channels x height x width, as images in [0, 1]."""
    return Images(
        torch.from_numpy(np.ascontiguousarray(pixels)).float() / 255,
        torch.from_numpy(np.asarray(labels, dtype=np.int64)),
    )


@final
class ArrayUnpickler(pickle.Unpickler):
    """Unpickles the dicts of lists and arrays in CIFAR-10's files, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in NAMES_OF_ARRAYS:
            raise pickle.UnpicklingError(f"A batch of CIFAR-10 holds arrays. Got {module}.{name}.")
        return super().find_class(module, name)
