"""The teacher is a mean of students, and pixels are weighted by their uncertainty."""

from math import log

import pytest
import torch

from studies.segmentation.composed_images import N_CLASSES
from studies.segmentation.mean_teacher import (
    WEIGHTS,
    Lesson,
    agreement,
    confident_pixels,
    follow,
    taught,
    weighted_pixels,
)


def test_uncertain_pixels_weigh_less() -> None:
    uncertainty = torch.tensor([0.0, 0.8, 1.0]) * log(N_CLASSES)
    assert confident_pixels(uncertainty, 0.0).tolist() == [1, 0, 0]
    assert confident_pixels(uncertainty, 0.9).tolist() == [1, 1, 0]
    assert weighted_pixels(uncertainty, 0.5).tolist() == pytest.approx([1, 0.2, 0], abs=1e-6)


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


def test_agreement_changes_what_is_learned_and_a_seed_repeats_it() -> None:
    generator = torch.Generator().manual_seed(0)
    pixels = torch.rand(6, 1, 8, 8, generator=generator)
    labels = torch.randint(N_CLASSES, (6, 8, 8), generator=generator)
    lesson = Lesson(3, 2, n_passes=2, widths=(4, 4, 4))

    def learned(strength: float, weight: str) -> torch.Tensor:
        teacher = taught(
            lesson, (pixels, labels), pixels, strength=strength, weight=WEIGHTS.get(weight), seed=1
        )
        assert not teacher.training
        return torch.cat([one.flatten() for one in teacher.parameters()])

    ways = [learned(1.0, way) for way in ("mean teacher", "mean teacher, weighted by certainty")]
    alone = learned(0.0, "")
    assert torch.equal(ways[0], learned(1.0, "mean teacher"))
    assert not torch.equal(ways[0], alone)
    assert not torch.equal(ways[0], ways[1])
