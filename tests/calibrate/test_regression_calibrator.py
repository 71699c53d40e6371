"""What every calibrator of regressions promises."""

import json
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import clone

from dubito import Normal, Probabilities, Quantiles, Samples
from dubito.calibrate import (
    QuantileRecalibration,
    VarianceScaling,
    cross_validate_calibrator,
)
from dubito.calibrate.regression import BaseRegressionCalibrator, cast_finite
from dubito.data import Batch, Columns, Shards, scan
from dubito.errors import (
    BadTypeError,
    BadValueError,
    EmptyStateError,
    MissingLabelsWarning,
    StateMismatchError,
    UnfittedError,
)
from dubito.outputs import BaseOutputs

RNG = np.random.default_rng(0)
N = 400
MEAN, STD = RNG.normal(size=N), np.exp(RNG.normal(size=N) / 2)
Y = MEAN + 2 * STD * RNG.normal(size=N)
LEVELS = np.array([0.05, 0.25, 0.5, 0.75, 0.95])
KINDS: dict[str, Any] = {
    "Normal": Normal(MEAN, STD),
    "Samples": Samples(MEAN[:, None] + STD[:, None] * RNG.normal(size=(N, 20))),
    "Quantiles": Quantiles(stats.norm.ppf(LEVELS, MEAN[:, None], STD[:, None]), LEVELS),
}
CALIBRATORS = [VarianceScaling(), QuantileRecalibration(levels=[0.05, 0.5, 0.95])]

each_calibrator = pytest.mark.parametrize(
    "calibrator", CALIBRATORS, ids=lambda one: type(one).__name__
)
each_kind = pytest.mark.parametrize("kind", KINDS)


class Parts(Shards):
    """A batch cut into parts, as if it were streamed."""

    def __init__(self, batch: Batch, n_parts: int = 3) -> None:
        self.batches_of = [batch.take(rows) for rows in np.array_split(range(len(batch)), n_parts)]

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.batches_of.__getitem__, i) for i in range(len(self.batches_of)))


def numbers(outputs: Any) -> NDArray[Any]:
    return np.asarray(outputs.std if isinstance(outputs, Normal) else outputs.array)


@each_kind
@each_calibrator
def test_a_calibrator_survives_json_and_pickle(
    calibrator: BaseRegressionCalibrator, kind: str
) -> None:
    outputs = KINDS[kind]
    fitted = clone(calibrator).fit(outputs, Y)
    expected = numbers(fitted.transform(outputs))
    read = type(calibrator).from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert numbers(read.transform(outputs)).tolist() == expected.tolist()
    again = pickle.loads(pickle.dumps(fitted))
    assert numbers(again.transform(outputs)).tolist() == expected.tolist()
    evidence = cross_validate_calibrator(fitted, outputs, Y)
    assert str(evidence).startswith("coverage of 90")
    assert str(cross_validate_calibrator(read, outputs, Y)) == str(evidence)
    assert read.summary() == again.summary() == fitted.summary()
    assert len(pickle.dumps(fitted)) < 30_000


@each_calibrator
def test_a_clone_has_the_settings_and_nothing_learned(
    calibrator: BaseRegressionCalibrator,
) -> None:
    unfitted = clone(clone(calibrator).fit(KINDS["Normal"], Y))
    assert unfitted.get_params() == calibrator.get_params()
    for method in ("transform", "summary", "to_dict"):
        arguments = [KINDS["Normal"]] if method == "transform" else []
        with pytest.raises(UnfittedError, match=f"not fitted yet.*before `{method}`"):
            getattr(unfitted, method)(*arguments)


@each_kind
@each_calibrator
def test_weight_2_is_a_row_that_came_twice(calibrator: BaseRegressionCalibrator, kind: str) -> None:
    outputs, weight = KINDS[kind], RNG.integers(0, 3, N)
    twice = np.repeat(np.arange(N), weight)
    weighted = clone(calibrator).fit(outputs, Y, sample_weight=weight)
    repeated = clone(calibrator).fit(outputs.take(twice), Y[twice])
    expected = numbers(repeated.transform(outputs))
    assert numbers(weighted.transform(outputs)) == pytest.approx(expected, rel=1e-9, abs=1e-9)


@each_kind
@each_calibrator
def test_missing_targets_are_left_out_and_counted(
    calibrator: BaseRegressionCalibrator, kind: str
) -> None:
    outputs, y = KINDS[kind], np.where(np.arange(N) < 7, np.nan, Y)
    name = type(calibrator).__name__
    with pytest.warns(MissingLabelsWarning, match=f"{name}: 7 of 400 rows have") as caught:
        fitted = clone(calibrator).fit(outputs, y)
    assert caught[0].filename == __file__
    expected = clone(calibrator).fit(outputs.take(slice(7, None)), Y[7:])
    assert numbers(fitted.transform(outputs)) == pytest.approx(numbers(expected.transform(outputs)))
    with pytest.warns(MissingLabelsWarning, match=f"{name}: 7 of 400 rows have") as streamed:
        clone(calibrator).fit(Parts(Batch.of(y, outputs)))
    assert [one.filename for one in streamed] == [__file__]
    assert cross_validate_calibrator(calibrator, outputs, y).n_rows == 393


@pytest.mark.slow
@each_calibrator
def test_targets_are_calibrated_one_by_one(calibrator: BaseRegressionCalibrator) -> None:
    def both(array: NDArray[Any], other: NDArray[Any]) -> NDArray[Any]:
        return np.stack([array, other], axis=-1)

    samples, quantiles = KINDS["Samples"].array, KINDS["Quantiles"].array
    pairs: list[tuple[Any, Any, Any]] = [
        (Normal(both(MEAN, MEAN), both(STD, 3 * STD)), Normal(MEAN, STD), Normal(MEAN, 3 * STD)),
        (Samples(both(samples, 2 * samples)), Samples(samples), Samples(2 * samples)),
        (
            Quantiles(both(quantiles, 2 * quantiles), LEVELS),
            Quantiles(quantiles, LEVELS),
            Quantiles(2 * quantiles, LEVELS),
        ),
    ]
    for joint, *single in pairs:
        together = clone(calibrator).fit(joint, both(Y, Y + 1))
        each = [clone(calibrator).fit(one, y) for one, y in zip(single, (Y, Y + 1), strict=True)]
        found = numbers(together.transform(joint))
        for j, (one, outputs) in enumerate(zip(each, single, strict=True)):
            expected = numbers(one.transform(outputs))
            assert found[..., j] == pytest.approx(expected, rel=1e-8, abs=1e-8)
        assert "2 targets" in together.summary()


@each_calibrator
def test_a_regression_has_no_class_to_predict(calibrator: BaseRegressionCalibrator) -> None:
    assert not hasattr(calibrator, "predict")


def test_the_evidence_is_out_of_sample_and_the_same_each_time() -> None:
    evidence, again = (
        str(cross_validate_calibrator(VarianceScaling(), KINDS["Normal"], Y)) for _ in range(2)
    )
    assert evidence == again
    order = np.random.default_rng(0).permutation(N)
    covered, crps = np.empty(N, dtype=bool), np.empty(N)
    z = (Y - MEAN) / STD
    for fold in np.array_split(order, 5):
        others = np.setdiff1d(order, fold)
        factor = np.sqrt((z[others] ** 2).mean())
        covered[fold] = np.abs(z[fold]) <= stats.norm.ppf(0.95) * factor
        u = z[fold] / factor
        tail = 2 * stats.norm.pdf(u) - 1 / np.sqrt(np.pi)
        crps[fold] = STD[fold] * factor * (u * (2 * stats.norm.cdf(u) - 1) + tail)
    assert f"to {covered.mean():.2f}, CRPS" in evidence
    assert f"to {crps.mean():.4g}, cross-fitted on 400 rows" in evidence


@each_calibrator
def test_a_sample_of_many_rows_is_cross_validated(
    calibrator: BaseRegressionCalibrator,
) -> None:
    n_rows = 20_500
    batch = Batch.of(RNG.normal(size=n_rows), Normal(np.zeros(n_rows), np.ones(n_rows)))
    evidence = cross_validate_calibrator(calibrator, Parts(batch))
    assert str(evidence).endswith("cross-fitted on 20,000 rows")


def test_a_single_row_has_no_evidence() -> None:
    one = Normal([0.0], [1.0])
    assert (
        VarianceScaling().fit(one, [2.0]).summary()
        == "predicted standard deviations were too small: multiplied by 2"
    )
    with pytest.raises(BadValueError, match="must label at least 2 rows, got 1"):
        cross_validate_calibrator(VarianceScaling(), one, [2.0])
    two = Normal([0.0] * 2, [1.0] * 2)
    assert cross_validate_calibrator(VarianceScaling(), two, [2.0, 2.0]).n_rows == 2


def test_coverage_is_left_out_where_no_two_levels_make_an_interval() -> None:
    outputs = Quantiles(np.sort(RNG.normal(size=(50, 2))), [0.2, 0.6])
    evidence = cross_validate_calibrator(VarianceScaling(), outputs, RNG.normal(size=50))
    assert str(evidence).startswith("CRPS ")


@each_calibrator
def test_rows_of_a_frame_are_streamed(calibrator: BaseRegressionCalibrator) -> None:
    import pandas

    frame = pandas.DataFrame({"mean": MEAN, "std": STD, "y": Y})
    shards = scan(frame, Columns(label="y", mean="mean", std="std"))
    streamed = clone(calibrator).fit(shards)
    exact = clone(calibrator).fit(KINDS["Normal"], Y)
    found, expected = (numbers(one.transform(KINDS["Normal"])) for one in (streamed, exact))
    scale = STD if found.ndim == 1 else STD[:, np.newaxis]
    assert found / scale == pytest.approx(expected / scale, abs=0.02)


@each_calibrator
def test_invalid_arguments_of_a_fit_raise(calibrator: BaseRegressionCalibrator) -> None:
    name = type(calibrator).__name__

    def message(*arguments: Any, **weights: Any) -> str:
        with pytest.raises((BadTypeError, BadValueError)) as caught:
            clone(calibrator).fit(*arguments, **weights)
        return str(caught.value)

    assert message(Probabilities([0.5]), [1]) == (
        f"{name}: `outputs` must be Normal, Samples or Quantiles, got Probabilities. "
        "Wrap them, e.g. Normal(mean, std)."
    )
    assert message(Samples([[1.0]]), [1.0]) == (
        f"{name}: `outputs` must have at least 2 draws per row, got 1. "
        "Pass more draws: one has no spread."
    )
    assert "must have at least 2 levels per row, got 1." in message(
        Quantiles([[1.0]], [0.5]), [1.0]
    )
    one = Normal([0.0], [1.0])
    targets = f"{name}: `y` must be given, got None. Pass one number per row."
    assert message(one) == message(Parts(Batch.of(None, one), 1)) == targets
    assert message(one, [[1.0]]).startswith(
        f"{name}: `y` must have the shape (1,) of the predictions, got shape (1, 1)."
    )
    assert message(one, [np.inf]).startswith(f"{name}: `y` must be finite, got inf in row 0.")
    assert message(one, [1.0, 2.0]).startswith(f"{name}: `y` must have length 1")
    assert message(one, ["a"]).startswith(f"{name}: `y` must be an array of real numbers,")
    shards = Parts(Batch.of(Y, KINDS["Normal"]))
    assert message(shards, Y) == (
        f"{name}: `y` must be None when `outputs` is shards, got ndarray. "
        "Hold it in the shards instead: Columns(label=...)."
    )
    assert "`sample_weight` must be None" in message(shards, sample_weight=Y)
    with pytest.raises(EmptyStateError, match=f"{name} needs at least 1 labeled row"):
        clone(calibrator).fit(Normal([0.0], [1.0]), [1.0], sample_weight=[0.0])
    with pytest.raises(EmptyStateError, match=f"{name} needs at least 1 labeled row"):
        clone(calibrator).fit(Normal([0.0], [1.0]), [np.nan])
    mixed = Parts(Batch.of(Y, KINDS["Normal"]))
    mixed.batches_of.append(Batch.of(Y, KINDS["Samples"]))
    with pytest.raises(StateMismatchError, match="kinds and targets"):
        clone(calibrator).fit(mixed)


@each_calibrator
def test_outputs_of_another_kind_or_shape_than_fitted_raise(
    calibrator: BaseRegressionCalibrator,
) -> None:
    name, fitted = type(calibrator).__name__, clone(calibrator).fit(KINDS["Normal"], Y)
    with pytest.raises(BadTypeError) as wrong_kind:
        fitted.transform(KINDS["Samples"])
    assert str(wrong_kind.value) == (
        f"{name}.transform: `outputs` must be Normal, as during fit, got Samples. "
        "Fit on outputs of this kind."
    )
    with pytest.raises(BadValueError) as wrong_shape:
        fitted.transform(Normal([[0.0, 1.0]], [[1.0, 1.0]]))
    assert str(wrong_shape.value) == (
        f"{name}.transform: `outputs` must have no target axis, as during fit, "
        "got a target axis of length 2. Pass the targets of the fit, in the same order."
    )
    with pytest.raises(BadTypeError, match=f"{name}.transform: `outputs` must be Normal, Samples"):
        fitted.transform([0.5])


def test_a_dict_of_something_else_raises() -> None:
    values = QuantileRecalibration().fit(KINDS["Normal"], Y).to_dict()
    with pytest.raises(BadValueError) as other:
        VarianceScaling.from_dict(values)
    assert str(other.value) == (
        "VarianceScaling.from_dict: `values` must be a VarianceScaling, "
        "got 'QuantileRecalibration'. Pass what VarianceScaling.to_dict returned, "
        "or use QuantileRecalibration.from_dict."
    )
    with pytest.raises(BadTypeError, match="got format 9"):
        QuantileRecalibration.from_dict({**values, "format": 9})
    with pytest.raises(BadTypeError, match="a dict that `to_dict` returned, got a list"):
        VarianceScaling.from_dict([])  # type: ignore[arg-type]


@each_kind
@each_calibrator
def test_outputs_keep_their_float_type_and_no_rows_stay_no_rows(
    calibrator: BaseRegressionCalibrator, kind: str
) -> None:
    outputs = KINDS[kind]
    single: dict[str, BaseOutputs] = {
        "Normal": Normal(MEAN.astype(np.float32), STD.astype(np.float32)),
        "Samples": Samples(KINDS["Samples"].array.astype(np.float32)),
        "Quantiles": Quantiles(KINDS["Quantiles"].array.astype(np.float32), LEVELS),
    }
    fitted = clone(calibrator).fit(single[kind], Y)
    found = numbers(fitted.transform(single[kind]))
    assert found.dtype == np.float32
    exact = numbers(clone(calibrator).fit(outputs, Y).transform(outputs))
    assert found == pytest.approx(exact, rel=1e-3, abs=1e-3)
    assert len(fitted.transform(outputs.take(slice(0, 0)))) == 0


def test_numbers_beyond_a_float_type_become_its_largest() -> None:
    most = np.finfo(np.float32).max
    assert cast_finite(np.array([1e300, -1e300, 1.0]), np.dtype(np.float32)).tolist() == [
        most,
        -most,
        1.0,
    ]
