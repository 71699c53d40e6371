from typing import Any, cast

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

from dubito.errors import BadTypeError, BadValueError
from dubito.learn import DeepEnsemble

INPUTS = torch.linspace(-1, 1, 12).reshape(3, 4)


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 3))


def train(model: nn.Module) -> None:
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    order = torch.randperm(3)
    for _ in range(3):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(INPUTS[order]), torch.tensor([0, 1, 2])[order])
        torch.autograd.backward(loss)
        optimizer.step()


def test_members_are_what_each_model_says_in_evaluation() -> None:
    ensemble = DeepEnsemble.train(network, train, n_members=3)
    assert all(module.training for model in ensemble.models for module in model.modules())
    members = ensemble(INPUTS)
    assert all(module.training for model in ensemble.models for module in model.modules())
    expected = [softmax(one.eval()(INPUTS).detach().numpy(), axis=1) for one in ensemble.models]
    np.testing.assert_allclose(members.array, expected, rtol=1e-6)
    again = DeepEnsemble(ensemble.models)(INPUTS)
    assert (again.array == members.array).all()


def test_training_is_seeded_for_each_member() -> None:
    random = torch.get_rng_state()
    first = DeepEnsemble.train(network, train, 2, random_state=5)(INPUTS).array
    assert torch.get_rng_state().equal(random)
    assert (DeepEnsemble.train(network, train, 2, random_state=5)(INPUTS).array == first).all()
    assert (DeepEnsemble.train(network, train, 3, random_state=5)(INPUTS).array[:2] == first).all()
    assert (first[0] != first[1]).any()
    assert (DeepEnsemble.train(network, train, 2, random_state=6)(INPUTS).array != first).any()


def test_what_is_no_ensemble_is_reported() -> None:
    model, number = network(), cast(Any, 3)
    with pytest.raises(
        BadValueError,
        match=r"`models` .*, got one of them twice\. Use a factory that makes a new model in "
        "each call",
    ):
        DeepEnsemble.train(lambda: model, train, 2)
    with pytest.raises(
        BadValueError,
        match=r"`models` .*, got none\. Pass \[make_model\(\), make_model\(\), \.\.\.\]",
    ):
        DeepEnsemble([])
    with pytest.raises(
        BadTypeError,
        match=r"`models\[0\]` must be a torch module, got int\. "
        r"Pass \[make_model\(\), make_model\(\), \.\.\.\]",
    ):
        DeepEnsemble([number])
    with pytest.raises(
        BadTypeError,
        match="`models` must be a list of trained models, got "
        r"int\. Pass \[make_model\(\), make_model\(\), "
        r"\.\.\.\]",
    ):
        DeepEnsemble(number)
    with pytest.raises(
        BadValueError,
        match=r"DeepEnsemble\.train: `n_members` must be an integer of at "
        r"least 1, got 0\. Use n_members=5",
    ):
        DeepEnsemble.train(network, train, 0)
