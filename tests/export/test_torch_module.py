from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from dubito import Logits
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    BetaCalibration,
    EnsembleTemperatureScaling,
    ForestCalibration,
    HistogramBinning,
    IdentityCalibrator,
    IsotonicCalibration,
    MatrixScaling,
    OneVsRest,
    PlattScaling,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from dubito.errors import BadTypeError, BadValueError, UnfittedError
from dubito.export import to_module

MANY: list[BaseCalibrator] = [
    IdentityCalibrator(),
    TemperatureScaling(),
    VectorScaling(),
    VectorScaling(input="log_proba"),
    MatrixScaling(),
    MatrixScaling(input="log_proba"),
    StructuredMatrixScaling(),
    StructuredMatrixScaling(basis="spline"),
    StructuredMatrixScaling(basis="rbf"),
    EnsembleTemperatureScaling(),
    OneVsRest(PlattScaling()),
    OneVsRest(BetaCalibration()),
    OneVsRest(IsotonicCalibration()),
    OneVsRest(HistogramBinning()),
    ForestCalibration(),
]
CASES = [(one, k) for k in (2, 5) for one in MANY] + [(PlattScaling(), 2), (BetaCalibration(), 2)]


def logits_and_labels(n_classes: int, kind: Any = np.float32) -> tuple[Any, Any]:
    rng = np.random.default_rng(0)
    logits = (4 * rng.normal(size=(800, n_classes))).astype(kind)
    return logits, (logits / 3 + rng.gumbel(size=logits.shape)).argmax(axis=1)


def nasty(n_classes: int, kind: Any) -> Any:
    """Return rows that are usual, far off, all alike, and sure beyond any float."""
    rng = np.random.default_rng(1)
    usual, far = (scale * rng.normal(size=(60, n_classes)) for scale in (5, 300))
    return np.concatenate([usual, far, np.zeros((1, n_classes)), 1e4 * np.eye(n_classes)]).astype(
        kind
    )


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize(("calibrator", "k"), CASES, ids=lambda one: str(one))
def test_a_module_says_what_predict_proba_says(
    calibrator: BaseCalibrator, k: int, kind: Any
) -> None:
    logits, y = logits_and_labels(k)
    fitted = calibrator.fit(Logits(logits), y)
    rows = nasty(k, kind)
    module = to_module(fitted)
    said = module(torch.from_numpy(rows))
    expected = fitted.predict_proba(Logits(rows))
    assert said.numpy().dtype == expected.dtype
    np.testing.assert_allclose(said, expected, rtol=0, atol=1e-6)
    logs = module.log_probabilities(torch.from_numpy(rows).double())
    np.testing.assert_allclose(logs.exp(), fitted.predict_proba(Logits(rows.astype(float))),
                               rtol=0, atol=1e-6)  # fmt: skip
    assert torch.isfinite(logs).all()


def test_a_mixture_can_be_appended_if_its_parts_can() -> None:
    logits, y = logits_and_labels(4)
    auto = AutoCalibrator().fit(Logits(logits[:90]), y[:90])
    assert all(
        isinstance(one, IdentityCalibrator | TemperatureScaling) for one in auto.calibrators_
    )
    said = to_module(auto)(torch.from_numpy(nasty(4, np.float32)))
    np.testing.assert_allclose(said, auto.predict_proba(Logits(nasty(4, np.float32))), atol=1e-6)
    auto.calibrators_, auto.weights_ = [MANY[1], MANY[4]], np.array([0.25, 0.75])
    for one in auto.calibrators_:
        one.fit(Logits(logits), y)
    said = to_module(auto)(torch.from_numpy(nasty(4, np.float32)))
    np.testing.assert_allclose(said, auto.predict_proba(Logits(nasty(4, np.float32))), atol=1e-6)


def test_integer_logits_raise() -> None:
    logits, y = logits_and_labels(3)
    module = to_module(TemperatureScaling().fit(Logits(logits), y))
    for call in (module, module.log_probabilities):
        with pytest.raises(BadTypeError, match=r"`logits` .*, got torch\.int64\. Call \.float\(\)"):
            call(torch.tensor([[3, 0, 1]]))


@pytest.mark.parametrize("calibrator", MANY, ids=lambda one: str(one))
def test_it_is_kept_and_moved_with_its_network(calibrator: BaseCalibrator) -> None:
    logits, y = logits_and_labels(3)
    fitted = calibrator.fit(Logits(logits), y)
    network = nn.Sequential(nn.Linear(4, 3), to_module(fitted))
    inputs = torch.randn(6, 4, requires_grad=True)
    said = network(inputs)
    assert not list(network[1].parameters())
    other = nn.Sequential(nn.Linear(4, 3), to_module(fitted))
    for buffer in other.buffers():
        buffer.zero_()
    other.load_state_dict(network.state_dict())
    assert other(inputs).equal(said)
    said.square().sum().backward()
    assert inputs.grad is not None
    assert torch.isfinite(inputs.grad).all()
    np.testing.assert_allclose(network.float()(inputs).detach(), said.detach(), atol=1e-4)


def test_it_is_exported_with_its_network() -> None:
    logits, y = logits_and_labels(3)
    fitted = StructuredMatrixScaling(basis="rbf").fit(Logits(logits), y)
    network = nn.Sequential(nn.Linear(4, 3), to_module(fitted)).eval()
    rows = torch.export.Dim("rows")
    exported = torch.export.export(network, (torch.ones(6, 4),), dynamic_shapes=({0: rows},))
    inputs = torch.randn(9, 4)
    assert exported.module()(inputs).allclose(network(inputs))


def test_one_logit_and_maps_are_taken_as_wrappers_take_them() -> None:
    logits, y = logits_and_labels(2)
    platt = PlattScaling().fit(Logits(logits), y)
    odds = np.array([-3.0, 0.0, 2.0], np.float32)
    module = to_module(platt)
    for shaped in (odds, odds[:, np.newaxis]):
        said = module(torch.from_numpy(shaped))
        np.testing.assert_allclose(said, platt.predict_proba(Logits(odds)), atol=1e-7)
    maps = torch.randn(2, 2, 3, 4)
    said = module(maps)
    assert said.shape == maps.shape
    assert said[1, :, 2, 3].equal(module(maps[1:, :, 2, 3])[0])


def test_half_precision_comes_back_unchanged() -> None:
    logits, y = logits_and_labels(3)
    module = to_module(TemperatureScaling().fit(Logits(logits), y))
    assert module(torch.zeros(1, 3, dtype=torch.bfloat16)).dtype == torch.bfloat16


def test_another_number_of_columns_raises() -> None:
    logits, y = logits_and_labels(3)
    with pytest.raises(
        BadValueError, match=r"`logits` .*, got shape \(2, 4\)\. Pass the same columns"
    ):
        to_module(TemperatureScaling().fit(Logits(logits), y))(torch.zeros(2, 4))


def test_what_cannot_be_exported_is_reported() -> None:
    fix = r"got Linear\. Fit a Policy, .* such as AutoCalibrator\(\)"
    with pytest.raises(BadTypeError, match=rf"dubito\.export supports policies and .*, {fix}"):
        to_module(nn.Linear(1, 1))
    with pytest.raises(UnfittedError, match=r"TemperatureScaling.*fit"):
        to_module(TemperatureScaling())
