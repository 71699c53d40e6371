from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import nn

from dubito.errors import BadTypeError
from dubito.learn.passes import evaluation_mode, require_module, seeded


class Counter(nn.Module):
    """Changes its buffers in every way there is, even in evaluation."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("in_place", torch.zeros(1))
        self.register_buffer("rebound", torch.zeros(1))
        self.register_buffer("cache", None)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.get_buffer("in_place").add_(1)
        self.rebound = self.get_buffer("rebound") + 1
        self.cache = x
        return x


class Strict(nn.Sequential):
    """Does more than set a mode in `train()`."""

    def train(self, mode: bool = True) -> "Strict":
        raise AssertionError("train() was called")


def mixed_model() -> nn.Module:
    model = Strict(nn.Linear(2, 2), nn.BatchNorm1d(2), nn.Dropout(0.5), Counter())
    model[1].training = False
    return model


def state_of(model: nn.Module) -> Any:
    modes = [module.training for module in model.modules()]
    return modes, {name: (id(one), one.tolist()) for name, one in model.named_buffers()}


@pytest.mark.parametrize("is_raising", [False, True])
def test_modes_and_buffers_are_as_they_were(is_raising: bool) -> None:
    model = mixed_model()
    before, kept = state_of(model), dict(model.named_parameters())
    try:
        with evaluation_mode(model, [model.get_submodule("2")]):
            assert not torch.is_grad_enabled()
            assert [m.training for m in model.modules()] == [False, False, False, True, False]
            model(torch.ones(3, 2))
            assert model.get_submodule("3").get_buffer("in_place") == 1
            if is_raising:
                raise RuntimeError("a pass went wrong")
    except RuntimeError:
        assert is_raising
    assert state_of(model) == before
    assert torch.is_grad_enabled()
    assert all(one is kept[name] for name, one in model.named_parameters())
    assert getattr(model.get_submodule("3"), "cache") is None  # noqa: B009


def test_batch_norm_learns_nothing_meanwhile() -> None:
    model = nn.BatchNorm1d(2)
    with evaluation_mode(model):
        model(torch.full((4, 2), 9.0))
    assert model.running_mean is not None
    assert model.running_mean.tolist() == [0, 0]
    assert model.training


def test_random_numbers_go_on_as_if_nothing_was_drawn() -> None:
    torch.manual_seed(3)
    expected = torch.rand(2)
    torch.manual_seed(3)
    with seeded(0):
        first = torch.rand(2)
    assert torch.rand(2).equal(expected)
    with seeded(0):
        assert torch.rand(2).equal(first)


@pytest.mark.parametrize("is_used", [False, True])
def test_graphics_cards_are_restored_where_they_are_in_use(
    is_used: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    forked: list[list[int]] = []

    def fork(devices: Any) -> AbstractContextManager[None]:
        forked.append(list(devices))
        return nullcontext()

    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: is_used)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.random, "fork_rng", fork)
    monkeypatch.setattr(torch, "manual_seed", lambda seed: None)
    with seeded(0):
        pass
    assert forked == [[0, 1] if is_used else []]


def test_a_module_is_required() -> None:
    require_module(nn.Linear(1, 1), "Passes")
    with pytest.raises(
        BadTypeError,
        match="Passes: `model` must be a torch module, got "
        r"dict\. Wrap the model in an nn\.Module",
    ):
        require_module({}, "Passes")
