"""CIFAR-10 is read from its usual folder and from an npz file, and nothing else is unpickled."""

import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch

from studies.common.cifar import TEST_FILES, TRAIN_FILES, cifar10, read_cifar10

N_ROWS = 4  # a file


def batch(seed: int) -> dict[bytes, object]:
    """A file's content: rows of red, green and blue planes, and labels."""
    rng = np.random.default_rng(seed)
    rows = rng.integers(0, 256, (N_ROWS, 3 * 32 * 32), dtype=np.uint8)
    return {
        b"batch_label": b"a batch",
        b"data": rows,
        b"labels": rng.integers(0, 10, N_ROWS).tolist(),
    }


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder like cifar-10-batches-py."""
    for seed, name in enumerate((*TRAIN_FILES, *TEST_FILES)):
        (tmp_path / name).write_bytes(pickle.dumps(batch(seed), protocol=2))
    return tmp_path


def test_the_folder_and_an_npz_file_hold_the_same(folder: Path) -> None:
    batches = [batch(seed) for seed in range(6)]
    planes = [np.asarray(one[b"data"]).reshape(-1, 3, 32, 32) for one in batches]
    np.savez(
        folder / "cifar.npz",
        images_train=np.concatenate(planes[:5]).transpose(0, 2, 3, 1),
        labels_train=np.concatenate([one[b"labels"] for one in batches[:5]]),
        images_test=planes[5].transpose(0, 2, 3, 1),
        labels_test=np.asarray(batches[5][b"labels"], dtype=np.uint8),
    )
    for ours, theirs in zip(read_cifar10(folder), read_cifar10(folder / "cifar.npz"), strict=True):
        assert torch.equal(ours.pixels, theirs.pixels)
        assert torch.equal(ours.labels, theirs.labels)
    train, test = read_cifar10(folder)
    assert train.pixels.shape == (20, 3, 32, 32)
    first = np.asarray(batches[5][b"data"])[1].reshape(3, 32, 32)
    assert test.pixels[1, 2, 3, 4].item() == pytest.approx(first[2, 3, 4] / 255)


def test_parts_do_not_mix_and_the_test_is_the_same_for_all_seeds(folder: Path) -> None:
    first, other = (cifar10(folder, 10, 6, 3, seed) for seed in (0, 1))
    assert [len(part) for part in first] == [10, 6, 3]
    assert len(torch.unique(torch.cat([one.pixels.flatten(1) for one in first]), dim=0)) == 19
    assert not torch.equal(first.train.pixels, other.train.pixels)
    assert torch.equal(first.test.pixels, other.test.pixels)


def test_a_pickle_of_other_objects_raises(folder: Path) -> None:
    (folder / TEST_FILES[0]).write_bytes(pickle.dumps(print))
    with pytest.raises(ValueError, match=r"holds arrays\. Got builtins\.print"):
        read_cifar10(folder)


def test_a_path_without_images_raises(tmp_path: Path) -> None:
    broken, other = tmp_path / "broken.npz", tmp_path / "other.npz"
    broken.write_bytes(b"PK nothing")
    np.savez(other, x=1)
    for path in (tmp_path / "nowhere", tmp_path, broken, other):
        message = f"must be the folder cifar-10-batches-py or an npz file. Got {path}: "
        with pytest.raises(ValueError, match=re.escape(message)):
            read_cifar10(path)
