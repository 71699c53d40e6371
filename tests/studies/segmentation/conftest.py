"""Images whose shapes are plain blocks."""

from pathlib import Path

import numpy as np
import pytest

from tests.studies.conftest import write_idx


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files like Fashion-MNIST's, whose images are blocks as wide as their label."""
    folder = tmp_path_factory.mktemp("blocks")
    for split in ("train", "t10k"):
        labels = (np.arange(200) % 10).astype(np.uint8)
        pixels = np.zeros((200, 28, 28), dtype=np.uint8)
        for one, label in zip(pixels, labels, strict=True):
            one[4:24, 4 : 14 + label] = 200
        write_idx(folder / f"{split}-images-idx3-ubyte.gz", pixels)
        write_idx(folder / f"{split}-labels-idx1-ubyte.gz", labels)
    return folder
