import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dubito import Logits
from dubito.arrays import FloatArray
from dubito.calibrate.calibrator import log_odds as kernel_log_odds
from dubito.learn import modules as maps

ROWS = hnp.arrays(
    np.float64,
    hnp.array_shapes(min_dims=2, max_dims=2, min_side=2, max_side=6),
    elements=st.floats(-1000, 1000),
)


@given(ROWS)
def test_log_odds_are_those_of_the_kernels(
    rows: FloatArray,
) -> None:
    found = maps._log_odds(torch.from_numpy(rows)).numpy()
    np.testing.assert_allclose(found, kernel_log_odds(Logits(rows)), atol=1e-6)


@given(ROWS)
def test_gradients_are_finite_everywhere(
    rows: FloatArray,
) -> None:
    logits = torch.from_numpy(rows.copy()).requires_grad_()
    curve = maps.PlattCurve(slope=1.5, intercept=-0.5)
    curves = maps.OneVsRestMap(curve for _ in range(rows.shape[1]))
    curves(logits).sum().backward()
    assert logits.grad is not None
    assert torch.isfinite(logits.grad).all()


def test_a_row_that_no_class_wants_stays_unchanged() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0], [0.0, 0.0, 0.0]], dtype=torch.float64)
    none = maps.OneVsRestMap(maps.PlattCurve(slope=0.0, intercept=-100.0) for _ in range(3))
    assert none(logits).equal(logits.log_softmax(-1))


def test_a_share_of_nothing_is_no_part() -> None:
    logits = torch.tensor([[2.0, 0.0]], dtype=torch.float64)
    mixed = maps.Mixed([maps.Tempered(temperature=2.0), maps.Uniform()], np.array([1.0, 0.0]))
    assert torch.allclose(mixed(logits), (logits / 2).log_softmax(-1))


def test_a_beta_curve_of_ones_changes_nothing() -> None:
    odds = torch.linspace(-20, 20, 9, dtype=torch.float64)
    assert torch.allclose(maps.BetaCurve(coefficients=np.array([1.0, 1.0, 0.0]))(odds), odds)
    binary = maps.Binary(maps.PlattCurve(slope=2.0, intercept=1.0))
    assert torch.allclose(binary(torch.tensor([[0.0, 3.0]])).diff(), torch.tensor(7.0))
