"""Composed images and their borders match their definition."""

from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage

from studies.segmentation.composed_images import N_CLASSES, borders, composed_parts, unsure


def test_images_to_judge_by_are_the_same_for_all_seeds(blocks: Path) -> None:
    first, other = (composed_parts(6, 4, 5, seed, blocks) for seed in (0, 1))
    assert [len(part) for part in first] == [6, 4, 5, 5]
    assert torch.equal(first.test.pixels, other.test.pixels)
    assert torch.equal(first.ood.truth, other.ood.truth)
    assert not torch.equal(first.train.pixels, other.train.pixels)
    assert set(first.train.truth.flatten().tolist()) <= {0, 1, 2, 3}
    for truth in first.ood.truth:
        assert (truth == N_CLASSES).any()
        assert ((truth > 0) & (truth < N_CLASSES)).any()


def test_borders_are_where_growth_and_shrinkage_differ_and_tossed_there_alone() -> None:
    labels = torch.zeros(1, 32, 32, dtype=torch.long)
    labels[0, 5:14, 3:13], labels[0, 20:30, 18:28] = 2, 3
    is_shape = labels[0].numpy() > 0
    square = np.ones((3, 3))
    grown = ndimage.binary_dilation(is_shape, square)
    shrunk = ndimage.binary_erosion(is_shape, square, border_value=1)
    expected = grown & ~shrunk
    found = borders(labels)[0].numpy()
    assert (found == expected).all()
    generator = torch.Generator().manual_seed(0)
    tosses = torch.stack([unsure(labels, generator)[0] for _ in range(200)]).numpy()
    assert (tosses[:, ~expected] == labels[0].numpy()[~expected]).all()
    shares = (tosses[:, expected] > 0).mean(axis=0)
    assert shares.mean() == pytest.approx(0.5, abs=0.02)
    assert 0.3 < shares.min() < shares.max() < 0.7
