from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax
from torch import nn

from dubito.doubt import decompose_uncertainty, vote
from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.learn import MonteCarloDropout, UncertaintyAware

INPUTS = torch.linspace(-1, 1, 12).reshape(3, 4)


def network(n_outputs: int = 3) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.4), nn.Linear(16, n_outputs)
    )


def state_of(model: nn.Module) -> Any:
    modes = [module.training for module in model.modules()]
    return modes, {name: one.tolist() for name, one in model.state_dict().items()}


def test_passes_are_those_of_dropout_alone() -> None:
    """The reference draws the same masks by hand, and batch norm from its running figures."""
    model = network().train()
    with torch.no_grad():
        model(torch.randn(64, 4))  # some running figures
    members = MonteCarloDropout(model, n_passes=3, random_state=7)(INPUTS)
    head, last = model[:3].eval(), model[4]
    torch.manual_seed(7)
    with torch.no_grad():
        hidden = head(INPUTS)
        masks = [nn.functional.dropout(torch.ones_like(hidden), 0.4) for _ in range(3)]
        expected = [softmax(last(hidden * mask).numpy(), axis=1) for mask in masks]
    np.testing.assert_allclose(members.array, expected, rtol=1e-5)


@pytest.mark.parametrize("is_training", [False, True])
def test_the_model_is_left_as_it_was(is_training: bool) -> None:
    model = network().train(is_training)
    before, random = state_of(model), torch.get_rng_state()
    first = MonteCarloDropout(model, 4)(INPUTS)
    assert state_of(model) == before
    assert torch.get_rng_state().equal(random)
    assert (MonteCarloDropout(model, 4)(INPUTS).array == first.array).all()
    assert (MonteCarloDropout(model, 4, random_state=1)(INPUTS).array != first.array).any()


def test_the_model_is_left_as_it_was_when_a_pass_raises() -> None:
    model = network().train()
    before, random = state_of(model), torch.get_rng_state()
    with pytest.raises(RuntimeError, match="shapes"):
        MonteCarloDropout(model)(torch.ones(3, 5))
    assert state_of(model) == before
    assert torch.get_rng_state().equal(random)
    assert torch.is_grad_enabled()


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Dropout(), (4,)),
        (nn.Dropout1d(), (2, 2)),
        (nn.Dropout2d(), (2, 1, 2)),
        (nn.Dropout3d(), (2, 1, 1, 2)),
        (nn.AlphaDropout(), (4,)),
        (nn.FeatureAlphaDropout(), (2, 2)),
    ],
)
def test_every_kind_of_dropout_wakes_up(layer: nn.Module, shape: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Unflatten(1, shape), layer, nn.Flatten())
    rows = MonteCarloDropout(model, 20)(torch.ones(1, 4)).array
    assert len(np.unique(rows, axis=0)) > 1


def test_dropout_of_transformers_wakes_up_too() -> None:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.5, batch_first=True)
    model = nn.Sequential(nn.Unflatten(1, (1, 4)), layer, nn.Flatten())
    assert torch.backends.mha.get_fastpath_enabled()
    members = MonteCarloDropout(model, 5)(INPUTS)
    assert torch.backends.mha.get_fastpath_enabled()
    assert len(np.unique(members.array, axis=0)) == 5


class Rows(nn.Module):
    """Runs a layer on rows of four numbers that are taken for a sequence, and drops nothing."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = x[:, None].repeat(1, 6, 1)
        is_attention = isinstance(self.layer, nn.MultiheadAttention)
        found: torch.Tensor = self.layer(*[steps] * (3 if is_attention else 1))[0]
        return found[:, -1]


@pytest.mark.parametrize(
    "layer",
    [
        nn.LSTM(4, 3, num_layers=2, dropout=0.5, batch_first=True),
        nn.GRU(4, 3, num_layers=2, dropout=0.5, batch_first=True),
        nn.MultiheadAttention(4, 2, dropout=0.5, batch_first=True),
    ],
)
def test_dropout_inside_of_layers_wakes_up(layer: nn.Module) -> None:
    model = Rows(layer).eval()
    members = MonteCarloDropout(model, 5)(INPUTS)
    assert len(np.unique(members.array, axis=0)) == 5
    mixed = MonteCarloDropout(nn.Sequential(nn.Dropout(0.0), model), 5)(INPUTS)
    assert (mixed.array == members.array).all()
    assert not any(module.training for module in model.modules())


class Hidden(nn.Module):
    """Drops in its own code, and has a batch norm."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = nn.functional.dropout(self.norm(x), 0.5, self.training)
        return found


def test_layers_that_drop_unseen_are_named() -> None:
    model = nn.Sequential(Hidden(), nn.Linear(4, 3)).train()
    before = state_of(model)
    for layer in ("0", model[0]):
        members = MonteCarloDropout(model, 5, layers=[layer])(INPUTS)
        assert len(np.unique(members.array, axis=0)) == 5
        assert state_of(model) == before
    both = nn.Sequential(Hidden(), nn.Dropout(0.5))
    assert MonteCarloDropout(both, layers=["0"]).layers == [both[1], both[0]]


def test_wrong_layers_are_reported() -> None:
    cases: list[tuple[Any, str]] = [
        (
            ["body"],
            r"`layers\[0\]` .*, got 'body'\. Use one of 0, 1, 2, 3, 4",
        ),
        (
            "0",
            r"`layers` .*, got '0'\. Use layers=\['0'\]",
        ),
        (
            3,
            r"`layers` .*, got int\. Use layers=\['encoder'\]",
        ),
    ]
    for layers, message in cases:
        with pytest.raises(DubitoError, match=message):
            MonteCarloDropout(network(), layers=layers)


def test_a_model_that_is_no_module_is_reported() -> None:
    with pytest.raises(
        BadTypeError, match=r"`model` .*, got function\. Wrap the model in an nn\.Module"
    ):
        MonteCarloDropout(lambda x: x)  # type: ignore[arg-type]


def test_certainties_and_confidences_feed_the_vote() -> None:
    members = MonteCarloDropout(network(4), 10, likelihood=UncertaintyAware(3))(INPUTS)
    assert members.certainty is not None
    assert members.certainty.shape == (10, 3)
    assert vote(members, by="certainty", threshold=1.0).prediction.shape == (3,)
    assert vote(members, by="confidence").prediction.shape == (3,)
    assert (decompose_uncertainty(members).epistemic > 0).all()


def test_named_inputs_reach_the_model() -> None:
    members = MonteCarloDropout(network(), 2)(input=INPUTS)
    assert (members.array == MonteCarloDropout(network(), 2)(INPUTS).array).all()


@pytest.mark.parametrize("model", [nn.Linear(4, 3), nn.Sequential(nn.Dropout(0.0))])
def test_a_model_without_dropout_raises(model: nn.Module) -> None:
    with pytest.raises(
        BadValueError,
        match=rf"`model` .*, got {type(model).__name__} without\. Add nn\.Dropout\(0\.2\) before "
        "the last layer, name `layers`, or use DeepEnsemble",
    ):
        MonteCarloDropout(model)


def test_settings_are_checked() -> None:
    with pytest.raises(
        BadValueError,
        match=r"MonteCarloDropout: `n_passes` must be an integer .* got 0\. Use n_passes=10",
    ):
        MonteCarloDropout(network(), 0)
    with pytest.raises(
        BadValueError,
        match=r"MonteCarloDropout: `random_state` .*, got -1\. "
        "Pass random_state=0",
    ):
        MonteCarloDropout(network(), random_state=-1)
