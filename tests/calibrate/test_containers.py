"""Tensors in, tensors out; data frames in, data frames out: the same for every calibrator."""

import pickle
from typing import Any

import array_api_strict
import numpy as np
import pandas as pd
import polars as pl
import pytest
import sklearn
from sklearn.base import clone
from sklearn.utils import estimator_checks

from dubito import CostMatrix, Logits, MultiLabel, Policy, Probabilities, Scores, audit
from dubito.calibrate import (
    AutoCalibrator,
    BaseCalibrator,
    BetaCalibration,
    ConfidenceCalibrator,
    EnsembleTemperatureScaling,
    ForestCalibration,
    HistogramBinning,
    IdentityCalibrator,
    IsotonicCalibration,
    MatrixScaling,
    MultiLabelCalibrator,
    OneVsRest,
    PlattScaling,
    StructuredMatrixScaling,
    TemperatureScaling,
    VectorScaling,
)
from dubito.errors import BadValueError

MANY: list[BaseCalibrator] = [
    AutoCalibrator(),
    EnsembleTemperatureScaling(),
    ForestCalibration(n_estimators=5),
    IdentityCalibrator(),
    MatrixScaling(),
    OneVsRest(IsotonicCalibration()),
    StructuredMatrixScaling(),
    TemperatureScaling(),
    VectorScaling(),
]
BINARY: list[BaseCalibrator] = [
    BetaCalibration(),
    HistogramBinning(),
    IsotonicCalibration(),
    PlattScaling(),
]
RNG = np.random.default_rng(0)
Z = 3 * RNG.normal(size=(100, 3))
Y = (Z / 2 + RNG.gumbel(size=Z.shape)).argmax(axis=1)
P = np.exp(Z) / np.exp(Z).sum(axis=1, keepdims=True)
COLUMNS = ["p_cat", "p_dog", "p_fox"]


@pytest.fixture(scope="module")
def torch() -> Any:
    return pytest.importorskip("torch")


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("calibrator", [*MANY, *BINARY], ids=lambda one: type(one).__name__)
def test_tensors_come_back_as_tensors(calibrator: Any, torch: Any) -> None:
    n_classes = 2 if calibrator in BINARY else 3
    z, y = Z[:, :n_classes].astype(np.float32), Y % n_classes
    fitted = clone(calibrator).fit(Logits(torch.from_numpy(z)), torch.from_numpy(y))
    given = torch.tensor(z, requires_grad=True)
    found, wanted = fitted.predict_proba(Logits(given)), fitted._predict_proba(Logits(z))
    assert isinstance(found, torch.Tensor)
    assert found.dtype == torch.float32
    np.testing.assert_array_equal(found.numpy(), wanted)
    logits = fitted.transform(Logits(given))
    np.testing.assert_array_equal(logits.numpy(), fitted._transform(Logits(z)).array)
    strict = array_api_strict.asarray(z)
    again = fitted.predict_proba(Logits(strict))
    assert again.__array_namespace__() is array_api_strict
    np.testing.assert_array_equal(np.from_dlpack(again), wanted)
    assert isinstance(fitted.predict_proba(Logits(z)), np.ndarray)
    assert isinstance(fitted.transform(Logits(z)), Logits)


@pytest.mark.torch
@pytest.mark.slow
def test_tensors_are_taken_everywhere(torch: Any) -> None:
    z, y = torch.tensor(Z, requires_grad=True), torch.tensor(Y)
    assert audit(y, Logits(z)).figures == audit(Y, Logits(Z)).figures
    p = z.softmax(1)
    scaling: Any = TemperatureScaling().fit(p, y)
    np.testing.assert_allclose(scaling.predict_proba(p), scaling.predict_proba(P), atol=1e-12)
    assert scaling.predict_proba(Logits(z.bfloat16())).dtype == torch.float32
    costs = CostMatrix.zero_one(3).with_reject(0.3)
    for prior in (None, [0.2, 0.3, 0.5]):
        policy = Policy.fit(
            Logits(z), y, costs=costs, calibrator=TemperatureScaling(), deploy_prior=prior
        )
        decided = policy.decide(Logits(z))
        assert isinstance(decided.action, np.ndarray)
        np.testing.assert_allclose(policy.predict_proba(Logits(z)), decided.probabilities)
        assert isinstance(policy.predict_proba(Logits(z)), torch.Tensor)
    scores = ConfidenceCalibrator().fit(Scores(z), y == 1)
    assert isinstance(scores.predict_proba(z), torch.Tensor)
    labels = MultiLabelCalibrator().fit(MultiLabel.from_logits(z), (z.detach() > 1).double())
    assert isinstance(labels.predict_proba(MultiLabel.from_logits(z)), torch.Tensor)
    assert isinstance(labels.transform(z.sigmoid()), torch.Tensor)


@pytest.mark.slow
@pytest.mark.parametrize("calibrator", [*MANY, MultiLabelCalibrator()], ids=str)
def test_data_frames_keep_index_and_columns(calibrator: Any) -> None:
    is_several = isinstance(calibrator, MultiLabelCalibrator)
    y = (RNG.random(P.shape) < P).astype(float) if is_several else Y
    frame = pd.DataFrame(P, index=np.arange(100) * 7, columns=COLUMNS)
    kind = "log_proba" if isinstance(calibrator, MatrixScaling | VectorScaling) else None
    fitted = clone(calibrator).set_params(**({"input": kind} if kind else {})).fit(frame, y)
    assert isinstance(fitted.predict_proba(frame), np.ndarray)
    wanted = fitted._predict_proba(P)
    fitted.set_output(transform="pandas")
    for found in (fitted.predict_proba(frame), np.exp(fitted.transform(frame))):
        assert found.index.equals(frame.index)
        assert [*found.columns] == COLUMNS
    pd.testing.assert_frame_equal(
        fitted.predict_proba(frame), pd.DataFrame(wanted, frame.index, COLUMNS)
    )
    fitted.set_output(transform="polars")
    found = pickle.loads(pickle.dumps(fitted)).predict_proba(pl.DataFrame(P, schema=COLUMNS))
    assert found.equals(pl.DataFrame(wanted, schema=COLUMNS))


def test_columns_are_named_by_the_fit_or_the_classes() -> None:
    scaling: Any = TemperatureScaling().fit(P, Y).set_output(transform="pandas")
    assert [*scaling.predict_proba(P).columns] == ["class0", "class1", "class2"]
    names = ["cat", "dog", "fox"]
    scaling.fit(Probabilities(P, names), np.array(names)[Y])
    assert [*scaling.transform(Probabilities(P, names)).columns] == names
    assert [*scaling.get_feature_names_out(COLUMNS)] == names
    frame = pd.DataFrame(P, index=np.arange(100)[::-1])
    assert scaling.transform(Probabilities(frame, names)).index[0] == 99
    scaling.set_output(transform="default")
    assert isinstance(scaling.transform(P), Logits)
    with pytest.raises(BadValueError, match=r"`transform` must be 'default', 'pandas' or 'polars'"):
        scaling.set_output(transform="arrow")


@pytest.mark.parametrize("wrap", [pd.DataFrame, pl.DataFrame, Probabilities], ids=str)
def test_a_data_frame_has_the_columns_of_the_fit(wrap: Any) -> None:
    def framed(columns: list[str]) -> Any:
        p = P[:, [COLUMNS.index(one) for one in columns]]
        frame = pd.DataFrame(p, columns=columns)
        if wrap is Probabilities:
            return Probabilities(frame)
        return frame if wrap is pd.DataFrame else pl.DataFrame(p, schema=columns)

    scaling: Any = VectorScaling().fit(framed(COLUMNS), Y).set_output(transform="pandas")
    costs = CostMatrix.zero_one(3).with_reject(0.3)
    fitted = Policy.fit(framed(COLUMNS), Y, costs=costs, calibrator=TemperatureScaling())
    policy = Policy.from_json(fitted.to_json())
    assert [*scaling.feature_names_in_] == COLUMNS
    calls = [scaling.predict_proba, scaling.transform, scaling.predict]
    for call in [*calls, policy.decide, policy.predict_proba, policy.explain]:
        call(framed(COLUMNS)), call(P)
        with pytest.raises(BadValueError, match=r"'p_fox' as column 0\. Pass frame\[\['p_cat'"):
            call(framed(COLUMNS[::-1]))
        others = pd.DataFrame(P, columns=["p_cat", "p_dog", "p_fish"])
        with pytest.raises(BadValueError, match=r"'p_fish' as column 2\. Rename"):
            call(others)
        call(pd.DataFrame(P))  # without names
    # Where classes are named, columns of other names can hold them.
    named = TemperatureScaling().fit(Probabilities(framed_with("logit"), COLUMNS), _labels())
    named.predict_proba(Probabilities(framed_with("p"), COLUMNS))
    with pytest.raises(BadValueError, match="as column 0"):
        named.predict_proba(Probabilities(framed_with("logit").iloc[:, ::-1], COLUMNS))


def framed_with(prefix: str) -> pd.DataFrame:
    return pd.DataFrame(P, columns=[f"{prefix}_{k}" for k in range(3)])


def _labels() -> Any:
    return np.array(COLUMNS)[Y]


def test_without_a_data_frame_there_are_no_names() -> None:
    scaling = TemperatureScaling().fit(P, Y)
    assert not hasattr(scaling, "feature_names_in_")
    scaling.predict_proba(pd.DataFrame(P, columns=COLUMNS))


def test_fit_transform_is_fit_and_transform() -> None:
    wanted = TemperatureScaling().fit(P, Y, sample_weight=np.arange(100)).transform(P)
    found = TemperatureScaling().fit_transform(P, Y, sample_weight=np.arange(100))
    np.testing.assert_array_equal(found.array, wanted.array)
    frame = pd.DataFrame(P, columns=COLUMNS)
    chosen = MultiLabelCalibrator().set_output(transform="pandas")
    assert [*chosen.fit_transform(frame, P > 0.4).columns] == COLUMNS


def test_what_users_chose_does_not_reach_the_inside() -> None:
    costs = CostMatrix.zero_one(3).with_reject(0.3)
    chosen = TemperatureScaling().set_output(transform="pandas")
    policy = Policy.fit(Logits(Z), Y, costs=costs, calibrator=chosen)
    policy.calibrator.set_output(transform="polars")
    plain = Policy.fit(Logits(Z), Y, costs=costs, calibrator=TemperatureScaling())
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(chosen.fit(P, Y).set_output(transform="default").transform(P), Logits)
        assert isinstance(TemperatureScaling().fit(P, Y).transform(P), pd.DataFrame)
        found = policy.decide(Logits(Z))
        assert "reject" in policy.explain(Logits(Z))
    assert found.action.tolist() == plain.decide(Logits(Z)).action.tolist()


def _softmax(x: Any) -> Any:
    odds = np.exp(np.asarray(x) - np.max(np.asarray(x), axis=1, keepdims=True))
    p = odds / odds.sum(axis=1, keepdims=True)
    if isinstance(x, pd.DataFrame):
        return pd.DataFrame(p, x.index, x.columns)
    return pl.DataFrame(p, schema=x.columns, orient="row") if isinstance(x, pl.DataFrame) else p


class OfAnyNumbers(TemperatureScaling):  # type: ignore[misc]
    """A calibrator of numbers of any range that returns arrays, as scikit-learn's checks expect."""

    def fit(self, outputs: Any, y: Any = None, sample_weight: Any = None) -> Any:
        return super().fit(_softmax(outputs), y, sample_weight)

    def transform(self, outputs: Any) -> Any:
        found = super().transform(_softmax(outputs))
        return found.array if isinstance(found, Logits) else found


@pytest.mark.parametrize(
    "check",
    [
        "check_set_output_transform",
        "check_set_output_transform_pandas",
        "check_set_output_transform_polars",
        "check_global_output_transform_pandas",
        "check_global_set_output_transform_polars",
    ],
)
def test_the_checks_of_scikit_learn_pass(check: str) -> None:
    calibrator = OfAnyNumbers()
    assert callable(calibrator.set_output)  # without which the checks check nothing
    getattr(estimator_checks, check)("calibrator", calibrator)
