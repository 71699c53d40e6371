"""A mean teacher, which holds a student to agree with it, more where it doubts less.

Tarvainen and Valpola, "Mean teachers are better role models", 2017. Its doubt counts as in Yu et
al., "Uncertainty-aware self-ensembling model for semi-supervised 3D left atrium segmentation",
2019: the entropy of the mean over passes with dropout awake.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from math import exp, log
from typing import final

import torch
from torch import Tensor, nn

from dubito.doubt import decompose_uncertainty
from dubito.learn import Categorical, MonteCarloDropout
from studies.common.networks import seeded
from studies.segmentation.composed_images import N_CLASSES
from studies.segmentation.tiny_unet import TinyUNet

Weight = Callable[
    [Tensor, float], Tensor
]  # of each pixel's doubt and of the fraction of steps done
LIKELIHOOD = Categorical(N_CLASSES)
MOST_DOUBT = log(N_CLASSES)


@final
@dataclass(frozen=True, slots=True)
class Lesson:
    """How a student learns: steps, images a step of either kind, and how slowly its teacher moves.

    The teacher is the mean of the student's weights of about 1 / (1 - memory) steps.
    """

    n_steps: int
    batch_rows: int
    learning_rate: float = 1e-2
    memory: float = 0.99
    noise: float = 0.1
    n_passes: int = 3
    widths: tuple[int, int, int] = (16, 24, 32)
    dropout: float = 0.1


def confident_pixels(uncertainty: Tensor, share_done: float) -> Tensor:
    """Return 1 for pixels below a bound of doubt that rises from 3/4 of the most to all of it."""
    return (uncertainty < (0.75 + 0.25 * rising(share_done)) * MOST_DOUBT).float()


def weighted_pixels(uncertainty: Tensor, share_done: float) -> Tensor:
    """Return 1 without doubt, less in a line down to 0 at the most there can be."""
    return 1 - uncertainty / MOST_DOUBT


WEIGHTS: dict[str, Weight | None] = {
    "mean teacher": None,
    "mean teacher, certain pixels": confident_pixels,
    "mean teacher, weighted by certainty": weighted_pixels,
}


def taught(
    lesson: Lesson,
    labeled: tuple[Tensor, Tensor],
    unlabeled: Tensor,
    *,
    strength: float,
    weight: Weight | None,
    seed: int,
) -> nn.Module:
    """Return the teacher of a student that learns from labels and, by `strength`, from agreement.

    Without `weight` all pixels count alike. With a strength of 0 nothing but labels counts, and
    the teacher is still the mean of what the student was.
    """
    generator = seeded(seed)
    student = TinyUNet(N_CLASSES, lesson.widths, lesson.dropout)
    teacher = deepcopy(student).requires_grad_(False).eval()
    optimizer = torch.optim.Adam(student.parameters(), lr=lesson.learning_rate)
    pixels, labels = labeled
    for step in range(lesson.n_steps):
        share_done = step / lesson.n_steps
        optimizer.param_groups[0]["lr"] = lesson.learning_rate * (1 - share_done)
        rows = torch.randperm(len(pixels), generator=generator)[: lesson.batch_rows]
        loss = LIKELIHOOD.loss(student(pixels[rows]), labels[rows])
        if strength:
            others = torch.randperm(len(unlabeled), generator=generator)[: lesson.batch_rows]
            pull = strength * rising(min(1.0, 2 * share_done))
            images = unlabeled[others]
            weights = weights_of(weight, teacher, images, share_done, step, lesson)
            loss = loss + pull * agreement(
                student(noisy(images, lesson)), teacher(noisy(images, lesson)), weights
            )
        optimizer.zero_grad()
        torch.autograd.backward(loss)
        optimizer.step()
        follow(teacher, student, min(lesson.memory, 1 - 1 / (step + 1)))
    return teacher


def rising(share: float) -> float:
    """Return what rises from almost nothing to 1, slowly at first."""
    return exp(-5 * (1 - share) ** 2)


def noisy(images: Tensor, lesson: Lesson) -> Tensor:
    """Return images that are not quite the same at each look."""
    return images + lesson.noise * torch.randn_like(images)


def weights_of(
    weight: Weight | None,
    teacher: nn.Module,
    images: Tensor,
    share_done: float,
    step: int,
    lesson: Lesson,
) -> Tensor:
    """Return how much each pixel's agreement counts, by the teacher's doubt."""
    shape = (len(images), *images.shape[2:])
    if weight is None:
        return torch.ones(shape)
    passes = MonteCarloDropout(teacher, lesson.n_passes, likelihood=LIKELIHOOD, random_state=step)
    uncertainty = torch.from_numpy(
        decompose_uncertainty(passes(noisy(images, lesson))).total
    ).float()
    return weight(uncertainty.reshape(shape), share_done)


def agreement(student: Tensor, teacher: Tensor, weights: Tensor) -> Tensor:
    """Return the mean squared difference of probabilities, weighted over pixels: less is better."""
    gaps = (student.softmax(1) - teacher.detach().softmax(1)).square().mean(1)
    return (weights * gaps).sum() / weights.sum().clamp(min=1e-6)


def follow(teacher: nn.Module, student: nn.Module, memory: float) -> None:
    """Move the teacher's weights towards the student's."""
    for mine, other in zip(teacher.parameters(), student.parameters(), strict=True):
        mine.lerp_(other.detach(), 1 - memory)
