from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

from dubito.errors import BadTypeError, BadValueError
from dubito.learn import TestTimeAugmentation, flip_views, identity_view, shift_views

IMAGES = torch.arange(2 * 3 * 4.0).reshape(2, 1, 3, 4)


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(12, 3), nn.BatchNorm1d(3), nn.Dropout(0.5))


def test_members_are_what_is_said_of_each_view() -> None:
    model = network().train()
    views = [identity_view, *flip_views((-1, -2)), *shift_views(1), lambda one: one * 2]
    members = TestTimeAugmentation(model, views)(IMAGES)
    assert all(module.training for module in model.modules())
    images = IMAGES.numpy()
    padded = np.pad(images, ((0, 0), (0, 0), (1, 1), (1, 1)), mode="edge")
    expected = [
        images,
        images[..., ::-1],
        images[..., ::-1, :],
        padded[..., 1:-1, :-2],
        padded[..., 1:-1, 2:],
        padded[..., :-2, 1:-1],
        padded[..., 2:, 1:-1],
        images * 2,
    ]
    model.eval()
    for one, view in zip(members.array, expected, strict=True):
        said = model(torch.from_numpy(view.copy())).detach().numpy()
        np.testing.assert_allclose(one, softmax(said, axis=1), rtol=1e-5)


def test_shifts_beyond_the_image_repeat_its_border() -> None:
    assert shift_views(9)[0](IMAGES)[0, 0].tolist() == [[0] * 4, [4] * 4, [8] * 4]


def test_views_may_write_and_draw() -> None:
    kept = IMAGES.clone()
    views: list[Any] = [torch.Tensor.zero_, lambda one: one + torch.randn_like(one)]
    first = TestTimeAugmentation(network(), views)(IMAGES).array
    assert IMAGES.equal(kept)
    assert (TestTimeAugmentation(network(), views)(IMAGES).array == first).all()
    assert (TestTimeAugmentation(network(), views, random_state=1)(IMAGES).array != first).any()


def test_the_model_is_left_as_it_was_when_a_view_raises() -> None:
    model = network().train()
    random = torch.get_rng_state()
    with pytest.raises(RuntimeError):
        TestTimeAugmentation(model, [lambda one: one[..., 1:]])(IMAGES)
    assert all(module.training for module in model.modules())
    assert torch.get_rng_state().equal(random)


def test_what_are_no_views_is_reported() -> None:
    with pytest.raises(
        BadValueError,
        match=r"`views` .*, got none\. Pass \[identity_view, \*flip_views\(\), "
        r"\*shift_views\(1\)\]",
    ):
        TestTimeAugmentation(network(), [])
    number: Any = 3
    with pytest.raises(
        BadTypeError,
        match=r"`views\[1\]` must be a function from tensor to "
        r"tensor, got int\. Pass \[identity_view, "
        r"\*flip_views\(\), \*shift_views\(1\)\]",
    ):
        TestTimeAugmentation(network(), [identity_view, number])
    with pytest.raises(
        BadTypeError,
        match="`views` must be a list of functions from tensor "
        r"to tensor, got int\. Pass \[identity_view, "
        r"\*flip_views\(\), \*shift_views\(1\)\]",
    ):
        TestTimeAugmentation(network(), number)
    with pytest.raises(
        BadValueError,
        match="shift_views: `n_pixels` must be an integer of "
        r"at least 1, got 0\. Use n_pixels=1",
    ):
        shift_views(0)


def test_wrong_models_and_inputs_are_reported() -> None:
    with pytest.raises(
        BadTypeError, match=r"`model` .*, got str\. Wrap the model in an nn\.Module"
    ):
        TestTimeAugmentation("net", [identity_view])  # type: ignore[arg-type]
    with pytest.raises(
        BadTypeError, match=r"`inputs` .*, got dict\. Use a model that takes one tensor"
    ):
        TestTimeAugmentation(nn.Flatten(), [identity_view])({"x": torch.ones(1, 2)})  # type: ignore[arg-type]
