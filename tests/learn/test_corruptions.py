from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import torch
from scipy import ndimage
from sklearn.datasets import load_digits

from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.learn import CORRUPTIONS, corrupt
from dubito.learn.corruptions import BLUR, CONTRAST, NOISE, OCCLUSION, SHIFT

SEVERITIES = range(1, 6)
each = pytest.mark.parametrize("kind", CORRUPTIONS)


def pictures(n: int = 4, channels: int = 3, height: int = 20, width: int = 24) -> torch.Tensor:
    """Return smooth pictures, as real ones are, between 0.1 and 0.9."""
    noise = np.random.default_rng(0).random((n, channels, height, width))
    smooth = ndimage.gaussian_filter(noise, (0, 0, 2, 2))
    low, high = smooth.min(), smooth.max()
    return torch.tensor(0.1 + 0.8 * (smooth - low) / (high - low), dtype=torch.float32)


@each
def test_severity_makes_it_worse(kind: str) -> None:
    images = pictures(n=16)
    before = images.clone()
    errors = [(corrupt(images, kind, s) - images).square().mean().item() for s in SEVERITIES]
    assert errors[0] > 0
    assert errors == sorted(errors)
    assert torch.equal(images, before)


def digits() -> torch.Tensor:
    return torch.from_numpy(load_digits().images[:100, None] / 16)


@each
@pytest.mark.parametrize("side", [5, 8, 28, 64])
def test_each_severity_is_worse_than_the_one_before_at_any_size(kind: str, side: int) -> None:
    images = digits() if side == 8 else pictures(100, 1, side, side)
    errors = [(corrupt(images, kind, s) - images).square().mean().item() for s in SEVERITIES]
    assert errors[0] > 1e-6
    assert all(1.02 * low < high for low, high in pairwise(errors))


@pytest.mark.parametrize("side", range(5, 40))
def test_each_severity_hides_more(side: int) -> None:
    hidden = [
        (corrupt(torch.zeros(1, 1, side, side), "occlusion", s) > 0).sum().item()
        for s in SEVERITIES
    ]
    assert sorted(set(hidden)) == hidden


@each
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
def test_images_keep_shape_type_and_range(kind: str, dtype: torch.dtype) -> None:
    images = torch.rand(3, 1, 8, 8).to(dtype)
    worse = corrupt(images, kind, 5)
    assert worse.shape == images.shape
    assert worse.dtype == dtype
    assert ((worse >= 0) & (worse <= 1)).all()


@each
def test_a_seed_repeats_itself_and_no_images_are_fine(kind: str) -> None:
    images = pictures()
    assert torch.equal(
        corrupt(images, kind, 3, random_state=1), corrupt(images, kind, 3, random_state=1)
    )
    is_random = kind in ("noise", "occlusion", "shift")
    differs = not torch.equal(
        corrupt(images, kind, 3, random_state=1), corrupt(images, kind, 3, random_state=2)
    )
    assert differs == is_random
    assert corrupt(images[:0], kind, 3).shape == (0, 3, 20, 24)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_blur_is_the_normal_filter_of_scipy(severity: int) -> None:
    images = pictures().double()
    width = 0.4 + BLUR[severity - 1] * 20
    reach = int(np.ceil(3 * width))
    expected = ndimage.gaussian_filter1d(images.numpy(), width, 2, mode="nearest", radius=reach)
    expected = ndimage.gaussian_filter1d(expected, width, 3, mode="nearest", radius=reach)
    np.testing.assert_allclose(corrupt(images, "blur", severity), expected, atol=1e-12)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_contrast_and_noise_have_their_size(severity: int) -> None:
    images = pictures()
    spread = corrupt(images, "contrast", severity).std(dim=(1, 2, 3)) / images.std(dim=(1, 2, 3))
    np.testing.assert_allclose(spread, CONTRAST[severity - 1], rtol=1e-4)
    gray = torch.full((10, 1, 40, 40), 0.5)
    noise = corrupt(gray, "noise", severity) - gray
    # Beyond 0 and 1 values are cut off, which the strongest noise reaches.
    assert noise.std().item() == pytest.approx(NOISE[severity - 1], rel=0.1)


@pytest.mark.parametrize("severity", SEVERITIES)
def test_a_square_of_gray_hides_the_rest(severity: int) -> None:
    images = torch.zeros(5, 2, 20, 24)
    hidden = corrupt(images, "occlusion", severity) == 0.5
    edge = round(OCCLUSION[severity - 1] * 20)
    for mask in hidden.numpy().reshape(-1, 20, 24):
        assert mask.sum() == edge**2
        rows, columns = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        assert len(rows) == len(columns) == edge
    assert (hidden[:, 0] == hidden[:, 1]).all()


@pytest.mark.parametrize("severity", SEVERITIES)
def test_a_shift_moves_all_channels_alike(severity: int) -> None:
    images = torch.zeros(6, 2, 21, 21)
    images[:, :, 10, 10] = 1
    moved = corrupt(images, "shift", severity)
    for one in moved:
        assert torch.equal(one[0], one[1])
        row, column = (int(place) for place in one[0].nonzero()[0])
        distance = np.hypot(row - 10, column - 10)
        assert abs(distance - (0.6 + SHIFT[severity - 1] * 21)) < 1
        assert one[0].sum() == 1


IMAGES = torch.zeros(1, 1, 4, 4)
BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: corrupt(IMAGES, "rain", 1),
        BadValueError,
        r"`kind` .*, got 'rain'\. Use kind='noise'",
    ),
    (
        lambda: corrupt(IMAGES, "noise", 6),
        BadValueError,
        r"`severity` .*, got 6\. Use severity=3",
    ),
    (
        lambda: corrupt(IMAGES, "noise", 1, random_state=-1),
        BadValueError,
        r"`random_state` .*, got -1\. Pass random_state=0",
    ),
    (
        lambda: corrupt(IMAGES[0], "noise", 1),
        BadValueError,
        r"`images` .*, got torch\.float32 of shape \(1, 4, 4\)\. Use \.float\(\) / 255",
    ),
    (
        lambda: corrupt(IMAGES - 2, "noise", 1),
        BadValueError,
        r"`images` .*, got -2\. Divide by 255 before, and normalize after",
    ),
    (
        lambda: corrupt([[0.0]], "noise", 1),  # type: ignore[arg-type]
        BadTypeError,
        r"`images` .*, got list\. Use torch\.as_tensor\(\.\.\.\)",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_what_is_wrong_is_reported(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
