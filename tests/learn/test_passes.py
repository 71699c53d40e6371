from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import expit, softmax
from torch import nn

from dubito.errors import BadTypeError, BadValueError
from dubito.learn import (
    Bernoulli,
    Categorical,
    Gaussian,
    LogitNoise,
    SquaredError,
    UncertaintyAware,
)
from dubito.learn.passes import _as_members, flatten_maps, to_array, wrap_outputs
from dubito.outputs import Logits

RNG = np.random.default_rng(0)


def logits_of(outputs: torch.Tensor, likelihood: Any) -> Any:
    found = wrap_outputs(outputs, likelihood, "Passes")
    assert isinstance(found, Logits)
    return found.array


def test_outputs_are_logits_without_a_likelihood() -> None:
    passes = RNG.normal(size=(4, 5, 3))
    members = _as_members([torch.from_numpy(one) for one in passes], None, "Passes")
    np.testing.assert_allclose(members.array, softmax(passes, axis=2), rtol=1e-12)
    assert members.certainty is None


@pytest.mark.parametrize("likelihood", [Categorical(3), SquaredError(3)])
def test_raw_logits_are_kept_under_likelihoods_of_classes(likelihood: object) -> None:
    rows = torch.from_numpy(RNG.normal(size=(5, 3)))
    assert (logits_of(rows, likelihood) == rows.numpy()).all()


def test_likelihoods_that_draw_draw_the_same_for_all_passes() -> None:
    rows, random = torch.from_numpy(RNG.normal(size=(5, 6))), torch.get_rng_state()
    likelihood = LogitNoise(3, n_samples=4000)
    members = _as_members([rows, rows], likelihood, "Passes")
    assert torch.get_rng_state().equal(random)
    assert (members.array[0] == members.array[1]).all()
    noise = np.exp(rows[:, 3:].numpy() / 2) * np.random.default_rng(1).normal(size=(4000, 5, 3))
    expected = softmax(rows[:, :3].numpy() + noise, axis=2).mean(axis=0)
    np.testing.assert_allclose(members.array[0], expected, atol=0.03)


def test_certainties_come_with_uncertainty_aware_outputs() -> None:
    passes = RNG.normal(size=(4, 5, 3)).astype(np.float32)
    members = _as_members([torch.from_numpy(one) for one in passes], UncertaintyAware(2), "Passes")
    np.testing.assert_allclose(members.array, softmax(passes[:, :, :2], axis=2), rtol=1e-5)
    assert members.certainty is not None
    expected = np.exp(-np.maximum(passes[:, :, 2], -4))
    np.testing.assert_allclose(members.certainty, expected, rtol=1e-5)


def test_yes_or_no_is_of_two_classes() -> None:
    members = _as_members([torch.tensor([[0.0], [2.0]])] * 2, Bernoulli(), "Passes")
    expected = softmax([[0, 0], [0, 2]], axis=1)
    np.testing.assert_allclose(members.array, np.stack([expected] * 2), rtol=1e-6)


def test_pixels_are_rows() -> None:
    maps = torch.arange(24.0).reshape(2, 3, 2, 2)
    rows = flatten_maps(maps)
    assert rows.shape == (8, 3)
    assert rows[5].tolist() == maps[1, :, 0, 1].tolist()
    assert _as_members([maps, maps], None, "Passes").array.shape == (2, 8, 3)


@pytest.mark.parametrize("kind", [torch.float16, torch.bfloat16])
def test_half_precision_goes_up(kind: torch.dtype) -> None:
    assert to_array(torch.ones(2, dtype=kind)).dtype == np.float32


def test_arrays_share_nothing_with_the_tensor() -> None:
    tensor = nn.Parameter(torch.ones(2))
    array = to_array(tensor)
    array[0] = 5
    assert tensor.tolist() == [1, 1]


def test_what_cannot_be_read_is_reported() -> None:
    with pytest.raises(
        BadTypeError,
        match=r"`likelihood` .*, got Linear\. Use likelihood=Bernoulli\(\) for binary log odds, "
        r"Gaussian\(\) or another regression likelihood for targets, Categorical\(n_classes\) for "
        "classes",
    ):
        wrap_outputs(torch.zeros(2, 1), nn.Linear(1, 1), "Passes")
    with pytest.raises(
        BadTypeError, match=r"`model` .*, got tuple\. Wrap it in a module that returns one head"
    ):
        _as_members([(torch.zeros(1), torch.zeros(1))], None, "Passes")


@pytest.mark.parametrize("likelihood", [None, Categorical(3), SquaredError(3), UncertaintyAware(3)])
def test_logits_keep_their_level(likelihood: Any) -> None:
    n_outputs = 3 if likelihood is None else likelihood.n_outputs
    rows = 1000 + torch.from_numpy(RNG.normal(size=(5, n_outputs)).astype(np.float32))
    assert (logits_of(rows, likelihood) == rows[:, :3].numpy()).all()


def test_noise_in_logits_leaves_log_probabilities() -> None:
    rows = 1000 + torch.from_numpy(RNG.normal(size=(5, 6)))
    rows[:, 3:] = -30
    found = logits_of(rows, LogitNoise(3, floor=-30.0))
    np.testing.assert_allclose(found, rows[:, :3].log_softmax(1), rtol=0, atol=1e-5)


def test_classes_are_on_axis_1() -> None:
    maps = torch.from_numpy(RNG.normal(size=(2, 4, 3, 2)))
    found = _as_members([maps, maps], UncertaintyAware(3), "Passes")
    expected = softmax(maps[:, :3].numpy(), axis=1).transpose(0, 2, 3, 1).reshape(-1, 3)
    np.testing.assert_allclose(found.array[0], expected, rtol=1e-12)
    assert found.certainty is not None
    s = np.maximum(maps[:, 3].numpy().ravel(), -4)
    np.testing.assert_allclose(found.certainty[1], np.exp(-s), rtol=1e-12)
    steps = torch.from_numpy(RNG.normal(size=(2, 3, 5)))
    assert _as_members([steps], Categorical(3), "Passes").array.shape == (1, 10, 3)
    assert logits_of(steps[:, :1], Bernoulli()).shape == (10, 2)


def test_sequences_of_ambiguous_axes_raise() -> None:
    steps = torch.zeros(2, 5, 3)
    cases: list[tuple[Any, str]] = [(None, "classes"), (Bernoulli(3), "3"), (Gaussian(3), "3")]
    for likelihood, name in cases:
        with pytest.raises(
            BadValueError,
            match=rf"`outputs` .*\(rows, {name}\).*, got shape \(2, 5, 3\)\. Call \.flatten"
            r"\(0, 1\) in the model for a sequence with the outputs last",
        ):
            wrap_outputs(steps, likelihood, "Passes")
    with pytest.raises(
        BadValueError,
        match=r"Categorical\.logits: `outputs` must have shape \(rows, 3\) or "
        r"\(images, 3, height, width\), got shape \(2, 5, 4\)\. Use a "
        "last layer with 3 outputs",
    ):
        wrap_outputs(torch.zeros(2, 5, 4), Categorical(3), "Passes")


def test_views_may_vote_by_the_other_certainty() -> None:
    rows = torch.from_numpy(RNG.normal(size=(5, 3)))
    likelihood = UncertaintyAware(2, certainty_form="sigmoid")
    found = _as_members([rows], likelihood, "Passes")
    assert found.certainty is not None
    np.testing.assert_allclose(found.certainty[0], 1 - expit(rows[:, 2].numpy()), rtol=1e-12)
