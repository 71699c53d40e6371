"""The study of segmentation runs; its images, overlaps and weights are what they say."""

from dataclasses import dataclass
from math import log
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy import ndimage
from sklearn import metrics

from studies.composed_images import N_CLASSES, borders, composed_parts, unsure
from studies.mean_teacher import (
    WEIGHTS,
    Lesson,
    agreement,
    follow,
    sure_pixels,
    surer_pixels,
    taught,
)
from studies.overlap import overlap
from studies.segmentation import main, told_apart
from studies.segmentation_telling import ASKED, DOUBTS, chosen
from studies.tiny_unet import TinyUNet
from tests.studies.conftest import write_idx


@pytest.fixture(scope="module")
def blocks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files like Fashion-MNIST's, whose images are blocks as wide as their label says."""
    folder = tmp_path_factory.mktemp("blocks")
    for split in ("train", "t10k"):
        labels = (np.arange(200) % 10).astype(np.uint8)
        pixels = np.zeros((200, 28, 28), dtype=np.uint8)
        for one, label in zip(pixels, labels, strict=True):
            one[4:24, 4 : 14 + label] = 200
        write_idx(folder / f"{split}-images-idx3-ubyte.gz", pixels)
        write_idx(folder / f"{split}-labels-idx1-ubyte.gz", labels)
    return folder


def test_it_prints_its_tables(
    tmp_path: Path, blocks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    where = ["--folder", str(blocks), "--cache", str(tmp_path), "-o", str(tmp_path / "out")]
    main(["--quick", *where])
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith("|")]
    assert len(lines) == (2 * len(ASKED) * len(DOUBTS) + 2) + (4 + 2) + (1 + len(WEIGHTS) + 2)
    assert (tmp_path / "out" / "segmentation.png").stat().st_size > 10_000
    kept = [dict(np.load(path)) for path in (tmp_path / "segmentation-quick").glob("Doubt*.npz")]
    assert len(kept) == 2
    for one in kept:
        assert one["aurocs"].shape == (2, 3, 3)
        assert ((one["aurocs"] >= 0) & (one["aurocs"] <= 1)).all()
        aleatoric, epistemic, total = np.moveaxis(one["means"], -1, 0)
        assert aleatoric + epistemic == pytest.approx(total, abs=1e-6)


def test_images_to_judge_by_are_the_same_for_all_seeds(blocks: Path) -> None:
    first, other = (composed_parts(6, 4, 5, seed, blocks) for seed in (0, 1))
    assert [len(part) for part in first] == [6, 4, 5, 5]
    assert torch.equal(first.test.pixels, other.test.pixels)
    assert torch.equal(first.strange.truth, other.strange.truth)
    assert not torch.equal(first.train.pixels, other.train.pixels)
    assert set(first.train.truth.flatten().tolist()) <= {0, 1, 2, 3}
    for truth in first.strange.truth:
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


def test_overlap_is_that_of_scikit_learn() -> None:
    rng = np.random.default_rng(0)
    truth, said = rng.integers(0, 4, (2, 3, 8, 8))
    pair = truth.ravel(), said.ravel()
    found = overlap(truth, said, 4)
    shapes = {"labels": [1, 2, 3], "average": "macro"}
    assert found.dice == pytest.approx(metrics.f1_score(*pair, **shapes))
    assert found.iou == pytest.approx(metrics.jaccard_score(*pair, **shapes))
    assert overlap(truth * 0, truth * 0, 4) == (1.0, 1.0)


def test_auroc_asks_which_of_two_pixels_has_more_doubt() -> None:
    assert told_apart(np.array([3.0, 2.0]), np.array([1.0, 2.0])) == pytest.approx(3.5 / 4)


def test_pixels_weigh_less_the_more_doubt_there_is() -> None:
    doubt = torch.tensor([0.0, 0.8, 1.0]) * log(N_CLASSES)
    assert sure_pixels(doubt, 0.0).tolist() == [1, 0, 0]
    assert sure_pixels(doubt, 0.9).tolist() == [1, 1, 0]
    assert surer_pixels(doubt, 0.5).tolist() == pytest.approx([1, 0.2, 0], abs=1e-6)


def test_agreement_counts_pixels_by_their_weights_and_leaves_the_teacher_alone() -> None:
    generator = torch.Generator().manual_seed(0)
    student, teacher = torch.randn(2, 1, 4, 2, 2, generator=generator).requires_grad_()
    weights = torch.tensor([[[1.0, 0.0], [0.5, 0.0]]])
    p, q = (one.detach().softmax(1).numpy()[0] for one in (student, teacher))
    gaps = ((p - q) ** 2).mean(axis=0)
    found = agreement(student, teacher, weights)
    assert found.item() == pytest.approx((gaps[0, 0] + 0.5 * gaps[1, 0]) / 1.5)
    assert torch.autograd.grad(found, teacher, allow_unused=True) == (None,)


def test_the_teacher_is_a_mean_of_what_the_student_was() -> None:
    teacher, first, second = (torch.nn.Linear(1, 1).requires_grad_(False) for _ in range(3))
    follow(teacher, first, 0.0)
    follow(teacher, second, 0.75)
    expected = 0.75 * first.weight + 0.25 * second.weight
    assert teacher.weight.item() == pytest.approx(expected.item(), abs=1e-6)


def test_agreement_changes_what_is_learnt_and_a_seed_repeats_it() -> None:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.rand(6, 1, 8, 8, generator=generator)
    labels = torch.randint(N_CLASSES, (6, 8, 8), generator=generator)
    lesson = Lesson(3, 2, n_passes=2, widths=(4, 4, 4))

    def learnt(strength: float, weight: str) -> torch.Tensor:
        teacher = taught(
            lesson, (pixels, labels), pixels, strength=strength, weight=WEIGHTS.get(weight), seed=1
        )
        assert not teacher.training
        return torch.cat([one.flatten() for one in teacher.parameters()])

    ways = [learnt(1.0, way) for way in ("mean teacher", "mean teacher, surer pixels more")]
    alone = learnt(0.0, "")
    assert torch.equal(ways[0], learnt(1.0, "mean teacher"))
    assert not torch.equal(ways[0], alone)
    assert not torch.equal(ways[0], ways[1])


def test_a_network_says_something_of_each_pixel() -> None:
    outputs = TinyUNet(5, (4, 8, 12), 0.1)(torch.zeros(2, 1, 12, 16))
    assert outputs.shape == (2, 5, 12, 16)


@dataclass(frozen=True)
class Way:
    """What a run is told apart by."""

    method: str
    seed: int
    strength: float


def test_the_strength_is_chosen_on_validation_images() -> None:
    def run(validation: float, test: float) -> dict[str, np.ndarray]:
        return {"validation": np.array([validation, 0]), "test": np.array([test, 0])}

    runs = {
        Way("a", 0, 0.1): run(0.5, 0.9),
        Way("a", 0, 1.0): run(0.6, 0.7),
        Way("a", 1, 0.1): run(0.8, 0.8),
        Way("b", 0, 0.1): run(0.9, 0.8),
    }
    strength, test = chosen(runs, "a", 0)
    assert (strength, test[0]) == (1.0, 0.7)
