"""Image corruptions in five severities, to test whether uncertainty rises with them."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from dubito.arrays import RandomState, as_count, draw_seed
from dubito.errors import BadValueError
from dubito.learn.likelihoods import require_tensor

CALLER = "corrupt"

# By severity 1 to 5: the standard deviation of noise on values between 0 and 1; widths, shifts and
# edges as fractions of the shorter side, plus some pixels so that they matter on the smallest
# images too; the contrast that is left.
NOISE = (0.04, 0.08, 0.12, 0.18, 0.26)
BLUR = (0.012, 0.02, 0.03, 0.045, 0.065)
CONTRAST = (0.75, 0.5, 0.4, 0.3, 0.15)
SHIFT = (0.05, 0.1, 0.15, 0.2, 0.3)
OCCLUSION = (0.14, 0.26, 0.38, 0.5, 0.62)
MIN_BLUR, MIN_SHIFT = 0.4, 0.6  # pixels


def corrupt(images: Tensor, kind: str, severity: int, random_state: RandomState = 0) -> Tensor:
    """Return corrupted images.

    Parameters
    ----------
    images : Tensor of shape (n_images, n_channels, height, width)
        Images with values between 0 and 1.
    kind : {"noise", "blur", "contrast", "shift", "occlusion"}
        Normal noise, Gaussian blur, less contrast, a shift in a random direction, or a gray
        square.
    severity : int
        From 1 to 5, relative to the size of the images.
    random_state : int, RandomState or None, default=0
        The seed; the draws are the same on every device.

    Returns
    -------
    Tensor
        Images of the same shape and dtype.

    References
    ----------
    In the manner of Hendrycks and Dietterich, "Benchmarking neural network robustness to common
    corruptions and perturbations", 2019.

    Examples
    --------
    >>> import torch
    >>> from dubito.learn import corrupt
    >>> corrupt(torch.tensor([[[[0.0, 1.0]]]]), "contrast", severity=2)
    tensor([[[[0.2500, 0.7500]]]])
    """
    _require_images(images)
    if kind not in CORRUPTIONS:
        rule = "must be one of " + ", ".join(map(repr, CORRUPTIONS))
        raise BadValueError("kind", CALLER, rule, repr(kind), "Use kind='noise'")
    level = as_count(severity, "severity", CALLER, 1, len(NOISE), example=3) - 1
    generator = torch.Generator().manual_seed(draw_seed(random_state, CALLER))
    wide = images.to(torch.promote_types(images.dtype, torch.float32))
    return KINDS[kind](wide, level, generator).clamp(0, 1).to(images.dtype)


def _require_images(images: Any) -> None:
    """Raise unless these are images with values between 0 and 1."""
    require_tensor(images, "images", CALLER)
    if images.ndim != 4 or 0 in images.shape[1:] or not images.is_floating_point():
        rule = "must be floating point of shape (images, channels, height, width)"
        got, fix = f"{images.dtype} of shape {tuple(images.shape)}", "Use .float() / 255"
        raise BadValueError("images", CALLER, rule, got, fix)
    is_valid = (images >= 0) & (images <= 1)
    if not is_valid.all():
        got = f"{images[~is_valid][0].item():.6g}"
        fix = "Divide by 255 before, and normalize after"
        raise BadValueError("images", CALLER, "must be between 0 and 1", got, fix)


def _noisy(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Add normal noise to every value."""
    draws = torch.randn(images.shape, generator=generator, dtype=torch.float64)
    return images + NOISE[level] * draws.to(images)


def _blurred(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Convolve with a Gaussian window, repeating the border."""
    width = MIN_BLUR + BLUR[level] * _shorter_side(images)
    reach = ceil(3 * width)
    offsets = torch.arange(-reach, reach + 1).to(images)
    window = (-0.5 * (offsets / width).square()).exp()
    window = window / window.sum()
    padded = functional.pad(images, (reach,) * 4, mode="replicate")
    # Sums of shifted images: autocast would run a convolution in half precision.
    rows = _weighted_sum(
        window, [padded[:, :, i : i + images.shape[2]] for i in range(len(window))]
    )
    return _weighted_sum(window, [rows[..., i : i + images.shape[3]] for i in range(len(window))])


def _weighted_sum(weights: Tensor, shifted: list[Tensor]) -> Tensor:
    """Return the weighted sum of images."""
    return (weights[:, None, None, None, None] * torch.stack(shifted)).sum(0)


def _low_contrast(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Shrink all values towards the mean of their image."""
    mean = images.mean(dim=(1, 2, 3), keepdim=True)
    return mean + CONTRAST[level] * (images - mean)


def _shifted(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Shift each image in a random direction, repeating the border."""
    n_images, _, height, width = images.shape
    angles = 2 * torch.pi * torch.rand(n_images, generator=generator, dtype=torch.float64)
    distance = MIN_SHIFT + SHIFT[level] * _shorter_side(images)
    down = (distance * angles.sin()).round().long()
    right = (distance * angles.cos()).round().long()
    rows = (torch.arange(height) - down[:, None]).clamp(0, height - 1).to(images.device)
    columns = (torch.arange(width) - right[:, None]).clamp(0, width - 1).to(images.device)
    each = torch.arange(n_images, device=images.device)[:, None, None]
    return images.movedim(1, -1)[each, rows[:, :, None], columns[:, None, :]].movedim(-1, 1)


def _occluded(images: Tensor, level: int, generator: torch.Generator) -> Tensor:
    """Cover a random square of each image with gray."""
    n_images, _, height, width = images.shape
    side = _shorter_side(images)
    edge = min(side, max(level + 1, round(OCCLUSION[level] * side)))
    draws = torch.rand((2, n_images, 1), generator=generator, dtype=torch.float64)
    is_covered = []
    for draw, size in zip(draws, (height, width), strict=True):
        first = (draw * (size - edge + 1)).long()
        places = torch.arange(size)
        is_covered.append((places >= first) & (places < first + edge))
    is_square = is_covered[0][:, None, :, None] & is_covered[1][:, None, None, :]
    return images.masked_fill(is_square.to(images.device), 0.5)


def _shorter_side(images: Tensor) -> int:
    """Return the smaller of height and width."""
    return min(images.shape[2:])


KINDS: dict[str, Callable[[Tensor, int, torch.Generator], Tensor]] = {
    "blur": _blurred,
    "contrast": _low_contrast,
    "noise": _noisy,
    "occlusion": _occluded,
    "shift": _shifted,
}
CORRUPTIONS = tuple(KINDS)
