"""Fashion-MNIST comes in parts that do not mix, drawn by a seed."""

from pathlib import Path

import pytest
import torch

from studies.common.images import fashion_mnist, read_idx


def test_parts_have_their_sizes_and_do_not_mix() -> None:
    parts = fashion_mnist(300, 200, 100, seed=0)
    assert [len(part) for part in parts] == [300, 200, 100]
    assert parts.train.pixels.shape == (300, 1, 28, 28)
    assert 0 <= parts.train.pixels.min() < parts.train.pixels.max() <= 1
    rows = torch.cat([part.pixels.flatten(1) for part in parts])
    assert len(torch.unique(rows, dim=0)) == 600
    assert sum(len(labels) for _, labels in parts.train) == 300


def test_a_seed_draws_other_images_to_learn_from_and_the_same_test() -> None:
    first, again, other = (fashion_mnist(50, 10, 20, seed) for seed in (0, 0, 1))
    assert torch.equal(first.train.pixels, again.train.pixels)
    assert not torch.equal(first.train.pixels, other.train.pixels)
    assert torch.equal(first.test.pixels, other.test.pixels)


def test_more_images_than_there_are_raise() -> None:
    with pytest.raises(ValueError, match="must be at most the 60000 images"):
        fashion_mnist(60_000, 1, 1, seed=0)


def test_a_missing_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="dataset-fashion-mnist"):
        read_idx(tmp_path / "none.gz")
