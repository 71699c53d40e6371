"""Images that are read in no time, in the shape of Fashion-MNIST's files."""

import gzip
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch

N_TRAIN, N_TEST = 600, 300


@pytest.fixture(scope="session")
def tiny_fashion(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of few images, whose class is the row of pixels that is bright."""
    folder = tmp_path_factory.mktemp("fashion")
    rng = np.random.default_rng(0)
    for split, n_rows in (("train", N_TRAIN), ("t10k", N_TEST)):
        labels = (np.arange(n_rows) % 10).astype(np.uint8)
        pixels = rng.integers(0, 60, (n_rows, 28, 28), dtype=np.uint8)
        pixels[np.arange(n_rows), 4 + 2 * labels] = 255
        write_idx(folder / f"{split}-images-idx3-ubyte.gz", pixels)
        write_idx(folder / f"{split}-labels-idx1-ubyte.gz", labels)
    return folder


@pytest.fixture
def one_thread() -> Iterator[None]:
    """PyTorch on one thread: for matrices so small, threads cost more than they save."""
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(n_threads)


def write_idx(path: Path, array: npt.NDArray[np.uint8]) -> None:
    """Write an array of bytes as a gzipped idx file."""
    head = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    path.write_bytes(gzip.compress(head + array.tobytes(), compresslevel=1))
