"""Images made worse, in five severities, to see whether doubt rises with them."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dubito.arrays import RandomState, draw_seed
from dubito.errors import BadValueError
from dubito.learn.likelihoods import require_tensor

CALLER = "corrupt"

# By severity 1 to 5: standard deviations of values between 0 and 1; widths, moves and edges as
# shares of the shorter side, with pixels on top so that they count on the smallest images too; the
# contrast that is left.
NOISE = (0.04, 0.08, 0.12, 0.18, 0.26)
BLUR = (0.012, 0.02, 0.03, 0.045, 0.065)
CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
SHIFT = (0.05, 0.1, 0.15, 0.2, 0.3)
OCCLUSION = (0.14, 0.26, 0.38, 0.5, 0.62)
LEAST_BLUR, LEAST_SHIFT = 0.4, 0.6  # pixels


def corrupt(images: Tensor, kind: str, severity: int, random_state: RandomState = 0) -> Tensor:
    """Return images with "noise", "blur", less "contrast", a "shift" or an "occlusion".

    `images` are images x channels x height x width, values between 0 and 1. What is random is drawn
    for each image, the same on every device for a `random_state`. In the manner of Hendrycks and
    Dietterich, "Benchmarking neural network robustness to common corruptions", 2019.

    >>> corrupt(torch.tensor([[[[0.0, 1.0]]]]), "contrast", severity=2)
    tensor([[[[0.2500, 0.7500]]]])
    """
    _require_images(images)
    if kind not in CORRUPTIONS:
        rule = "one of " + ", ".join(map(repr, CORRUPTIONS))
        raise BadValueError("kind", CALLER, rule, repr(kind), "kind='noise'")
    if isinstance(severity, bool) or not isinstance(severity, int) or not 1 <= severity <= 5:
        rule = "a whole number from 1 to 5"
        raise BadValueError("severity", CALLER, rule, repr(severity), "severity=3")
    generator = torch.Generator().manual_seed(draw_seed(random_state, CALLER))
    wide = images.to(torch.promote_types(images.dtype, torch.float32))
    return KINDS[kind](wide, severity - 1, generator).clamp(0, 1).to(images.dtype)


def _require_images(images: Any) -> None:
    """Raise unless these are images whose values are between 0 and 1."""
    require_tensor(images, "images", CALLER)
    if images.ndim != 4 or 0 in images.shape[1:] or not images.is_floating_point():
        rule = "images x channels x height x width of floating point"
        got, fix = f"{images.dtype} of shape {tuple(images.shape)}", "`.float() / 255`"
        raise BadValueError("images", CALLER, rule, got, fix)
    is_fine = (images >= 0) & (images <= 1)
    if not is_fine.all():
        got = f"{images[~is_fine][0].item():.6g}"
        fix = "dividing by 255 before, and normalizing after"
        raise BadValueError("images", CALLER, "of values between 0 and 1", got, fix)


def _noisy(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Add normal noise to every value."""
    draws = torch.randn(images.shape, generator=generator, dtype=torch.float64)
    return images + NOISE[level] * draws.to(images)


def _blurred(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Take the mean of neighbors under a normal window; edges are continued outwards."""
    width = LEAST_BLUR + BLUR[level] * _shorter_side(images)
    reach = ceil(3 * width)
    places = torch.arange(-reach, reach + 1).to(images)
    window = (-0.5 * (places / width).square()).exp()
    window = window / window.sum()
    padded = functional.pad(images, (reach,) * 4, mode="replicate")
    # Sums of moved images, not a convolution, which autocast would take to half precision.
    rows = _sum_of(window, [padded[:, :, i : i + images.shape[2]] for i in range(len(window))])
    return _sum_of(window, [rows[..., i : i + images.shape[3]] for i in range(len(window))])


def _sum_of(weights: Tensor, moved: list[Tensor]) -> Tensor:
    """Return the weighted sum of images."""
    return (weights[:, None, None, None, None] * torch.stack(moved)).sum(0)


def _faded(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Move all values towards the mean of their image."""
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    return mean + CONTRAST[level] * (images - mean)


def _shifted(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Move each image in a direction of its own; edges are continued inwards."""
    n_images, _, height, width = images.shape
    angles = 2 * torch.pi * torch.rand(n_images, generator=generator, dtype=torch.float64)
    distance = LEAST_SHIFT + SHIFT[level] * _shorter_side(images)
    down = (distance * angles.sin()).round().long()
    right = (distance * angles.cos()).round().long()
    rows = (torch.arange(height) - down[:, None]).clamp(0, height - 1).to(images.device)
    columns = (torch.arange(width) - right[:, None]).clamp(0, width - 1).to(images.device)
    each = torch.arange(n_images, device=images.device)[:, None, None]
    return images.movedim(1, -1)[each, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


def _occluded(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Hide a square of each image, somewhere inside, under gray."""
    n_images, _, height, width = images.shape
    side = _shorter_side(images)
    edge = min(side, max(level + 1, round(OCCLUSION[level] * side)))
    draws = torch.rand((2, n_images, 1), generator=generator, dtype=torch.float64)
    is_hidden = []
    for draw, size in zip(draws, (height, width), strict=True):
        first = (draw * (size - edge + 1)).long()
        places = torch.arange(size)
        is_hidden.append((places >= first) & (places < first + edge))
    is_square = is_hidden[0][:, None, :, None] & is_hidden[1][:, None, None, :]
    return images.masked_fill(is_square.to(images.device), 0.5)


def _shorter_side(images: Tensor) -> int:
    """Return height or width, whichever is less."""
    return min(images.shape[2:])


KINDS: dict[str, Callable[[Tensor, int, torch.Generator], Tensor]] = {
    "blur": _blurred,
    "contrast": _faded,
    "noise": _noisy,
    "occlusion": _occluded,
    "shift": _shifted,
}
CORRUPTIONS = tuple(KINDS)
