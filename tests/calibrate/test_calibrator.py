"""What every calibrator of class probabilities promises, held by all of them."""

import inspect
import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special
from sklearn import config_context
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import KFold, cross_validate

import dubito.calibrate as package
from dubito import Logits, Members, MultiLabel, Normal, Probabilities, TopLabel
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
    cross_validate_calibrator,
)
from dubito.data import ArrayShards, Batch, Columns, scan
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoError,
    EmptyStateError,
    MissingLabelsWarning,
    UnfittedError,
)
from dubito.measure import get_scorer

Floats = NDArray[np.float64]

ALL: dict[str, tuple[int, BaseCalibrator]] = {
    "auto": (4, AutoCalibrator(cv=2)),
    "auto of two": (2, AutoCalibrator(cv=2)),
    "uncalibrated": (4, IdentityCalibrator()),
    "temperature": (4, TemperatureScaling()),
    "temperature of two": (2, TemperatureScaling()),
    "temperature of many": (70, TemperatureScaling()),
    "temperature by ece": (4, TemperatureScaling(objective="ece")),
    "vector": (4, VectorScaling(input="log_proba")),
    "vector with regularization": (4, VectorScaling(regularization=1.0, input="log_proba")),
    "vector of logits": (4, VectorScaling()),
    "vector of logits with regularization": (4, VectorScaling(regularization=1.0)),
    "matrix": (4, MatrixScaling(input="log_proba")),
    "matrix of logits": (4, MatrixScaling()),
    "structured": (4, StructuredMatrixScaling()),
    "structured with splines": (4, StructuredMatrixScaling(basis="spline")),
    "structured with radial basis functions": (4, StructuredMatrixScaling(basis="rbf")),
    "structured of two": (2, StructuredMatrixScaling()),
    "mixture": (4, EnsembleTemperatureScaling()),
    "forest": (4, ForestCalibration(n_estimators=5)),
    "forest of two": (2, ForestCalibration(n_estimators=5)),
    "platt": (2, PlattScaling()),
    "beta": (2, BetaCalibration()),
    "histogram": (2, HistogramBinning(n_bins=8)),
    "quantile histogram": (2, HistogramBinning(n_bins=6, strategy="quantile")),
    "isotonic": (2, IsotonicCalibration()),
    "platt a class": (4, OneVsRest(PlattScaling())),
    "beta a class": (4, OneVsRest(BetaCalibration())),
    "histogram a class": (4, OneVsRest(HistogramBinning(n_bins=8))),
    "quantile histogram a class": (4, OneVsRest(HistogramBinning(6, "quantile"))),
    "isotonic a class": (4, OneVsRest(IsotonicCalibration())),
}
# Of a stream, the bins or knots of these come from a grid of log odds.
GRIDDED = [name for name in ALL if "quantile" in name or "isotonic" in name]
# Fitted on logits, these depend on their offset per row, and take no probabilities.
ON_LOGITS = [name for name in ALL if "of logits" in name]
# Which rows fall in a fold depends on how many there are, in what order and of which class.
CROSS_FITTED = [name for name in ALL if "auto" in name]


class Case(NamedTuple):
    """A calibrator, and rows for it: outputs that are too sharp, labels, weights."""

    name: str
    calibrator: Any
    logits: Floats
    y: NDArray[np.int64]
    weight: Floats

    def fit(self, *arguments: Any) -> Any:
        return clone(self.calibrator).fit(*arguments)

    def predict(self, *arguments: Any) -> Floats:
        """Return what a calibrator fitted predicts for the case's own rows."""
        return np.asarray(self.fit(*arguments).predict_proba(Logits(self.logits)))


def made(n_rows: int, n_classes: int) -> tuple[Floats, NDArray[np.int64], Floats]:
    rng = np.random.default_rng(n_classes)
    calibrated = rng.normal(0, 1.5, (n_rows, n_classes)) + np.linspace(0, 1, n_classes)
    shares = special.softmax(calibrated, axis=1).cumsum(axis=1)
    y = np.minimum((shares < rng.random((n_rows, 1))).sum(axis=1), n_classes - 1)
    return 2.5 * calibrated - 0.3, y, rng.uniform(0.5, 2, n_rows)


@pytest.fixture(params=[name for name in ALL if name not in CROSS_FITTED])
def plain_case(request: pytest.FixtureRequest) -> Case:
    n_classes, calibrator = ALL[request.param]
    return Case(request.param, calibrator, *made(300, n_classes))


def marked(name: str) -> Any:
    return pytest.param(name, marks=pytest.mark.slow) if name in CROSS_FITTED else name


@pytest.fixture(params=map(marked, ALL))
def case(request: pytest.FixtureRequest) -> Case:
    n_classes, calibrator = ALL[request.param]
    return Case(request.param, calibrator, *made(300, n_classes))


def assert_probabilities(p: NDArray[Any], shape: tuple[int, ...]) -> None:
    assert p.shape == shape
    assert np.isfinite(p).all()
    assert ((p > 0) & (p <= 1)).all()
    close(p.sum(axis=1, dtype=np.float64), 1, atol=1e-6)


@contextmanager
def raises_message(error: type[DubitoError], message: str) -> Iterator[None]:
    with pytest.raises(error) as caught:
        yield
    assert str(caught.value) == message


def test_the_suite_knows_every_calibrator() -> None:
    public = [getattr(package, name) for name in package.__all__]
    kinds = {
        kind
        for kind in public
        if isinstance(kind, type)
        and issubclass(kind, BaseCalibrator)
        and not inspect.isabstract(kind)
    }
    kinds.remove(ConfidenceCalibrator)  # takes scores: tests/calibrate/test_confidence.py
    assert {type(calibrator) for _, calibrator in ALL.values()} == kinds


def test_outputs_are_probabilities(case: Case) -> None:
    fitted = case.fit(Logits(case.logits), case.y, case.weight)
    assert_probabilities(fitted.predict_proba(Logits(case.logits)), case.logits.shape)
    new = np.random.default_rng(1).normal(0, 30, case.logits.shape)
    assert_probabilities(fitted.predict_proba(Logits(new)), new.shape)
    if case.name not in ON_LOGITS:
        assert_probabilities(fitted.predict_proba(special.softmax(new, axis=1)), new.shape)


def test_the_predicted_class_is_the_first_of_highest_probability(
    case: Case, monkeypatch: pytest.MonkeyPatch
) -> None:
    fitted = case.fit(Logits(case.logits), case.y, case.weight)
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", str(50 * case.logits.shape[1]))
    ulps = np.random.default_rng(2).integers(-2, 3, case.logits.shape)
    p = special.softmax(case.logits, axis=1)
    names = tuple(f"class {k}" for k in range(case.logits.shape[1]))
    logits: list[Any] = [
        Logits(case.logits, classes=names),
        Logits(1e4 * case.logits.astype(np.float32)),
        Logits(np.zeros(case.logits.shape)),
        Logits(1 + ulps * np.spacing(1.0)),
        Logits((1 + ulps * np.spacing(np.float32(1))).astype(np.float32)),
    ]
    others: list[Any] = [
        Probabilities(p.astype(np.float32)),
        Members([p, special.softmax(case.logits / 2, axis=1)]),
        p,
    ]
    for outputs in logits if case.name in ON_LOGITS else logits + others:
        predicted = fitted.predict(outputs)
        assert predicted.dtype == np.int64
        assert predicted.tolist() == fitted.predict_proba(outputs).argmax(axis=1).tolist()


def test_no_rows_have_no_probabilities(case: Case) -> None:
    fitted = case.fit(Logits(case.logits), case.y)
    none = Logits(case.logits[:0])
    assert fitted.predict(none).shape == (0,)
    assert fitted.predict_proba(none).shape == (0, case.logits.shape[1])
    assert fitted.transform(none).array.shape == (0, case.logits.shape[1])


def test_calibrated_logits_stand_for_the_same_probabilities(case: Case) -> None:
    fitted = case.fit(Logits(case.logits), case.y)
    logits = fitted.transform(Logits(case.logits))
    assert isinstance(logits, Logits)
    p = special.softmax(logits.array, axis=1)
    close(fitted.predict_proba(Logits(case.logits)), p, rtol=1e-9, atol=1.1e-12)


def test_a_fit_returns_the_calibrator_and_leaves_its_settings(case: Case) -> None:
    calibrator = clone(case.calibrator)
    before = repr(calibrator.get_params())
    assert calibrator.fit(Logits(case.logits), case.y) is calibrator
    assert repr(calibrator.get_params()) == before


def test_a_second_fit_forgets_the_first(case: Case) -> None:
    once = case.fit(Logits(case.logits), case.y)
    twice = case.fit(Logits(case.logits[:200] / 2), case.y[:200])
    first = summary_with_evidence(twice, Logits(case.logits[:200] / 2), case.y[:200])
    assert first != summary_with_evidence(once, Logits(case.logits), case.y)
    twice.fit(Logits(case.logits), case.y)
    expected = once.predict_proba(Logits(case.logits))
    close(twice.predict_proba(Logits(case.logits)), expected, atol=1e-9)
    assert twice.summary() == once.summary()


def summary_with_evidence(fitted: Any, outputs: Any, y: Any = None) -> str:
    return f"{fitted.summary()}; {cross_validate_calibrator(fitted, outputs, y)}"


def test_permuting_rows_changes_nothing(plain_case: Case) -> None:
    order = np.random.default_rng(0).permutation(len(plain_case.y))
    whole = plain_case.predict(Logits(plain_case.logits), plain_case.y, plain_case.weight)
    permuted = plain_case.predict(
        Logits(plain_case.logits[order]), plain_case.y[order], plain_case.weight[order]
    )
    close(permuted, whole, atol=1e-6)


def test_permuting_classes_permutes_the_answer(plain_case: Case) -> None:
    order = np.random.default_rng(0).permutation(plain_case.logits.shape[1])
    order = order[::-1] if (order == np.arange(order.size)).all() else order
    logits, labels = Logits(plain_case.logits[:, order]), np.argsort(order)[plain_case.y]
    permuted = plain_case.fit(logits, labels, plain_case.weight).predict_proba(logits)
    whole = plain_case.predict(Logits(plain_case.logits), plain_case.y, plain_case.weight)
    close(permuted, whole[:, order], atol=1e-6)


def test_a_weight_of_2_is_a_row_twice(plain_case: Case) -> None:
    weight = np.where(np.arange(300) % 3 == 0, 2.0, 1.0)
    rows = np.repeat(np.arange(300), weight.astype(int))
    weighted = plain_case.predict(Logits(plain_case.logits), plain_case.y, weight)
    close(
        plain_case.predict(Logits(plain_case.logits[rows]), plain_case.y[rows]), weighted, atol=1e-6
    )


def test_a_weight_of_0_is_no_row(case: Case) -> None:
    is_used = np.arange(300) % 3 > 0
    weighted = case.predict(Logits(case.logits), case.y, is_used.astype(float))
    close(case.predict(Logits(case.logits[is_used]), case.y[is_used]), weighted, atol=1e-6)


def assert_warned_once(caught: pytest.WarningsRecorder, case: Case) -> None:
    """Assert one warning, at the caller of the fit, about the third of its rows without a label."""
    (message,) = [one for one in caught if one.category is MissingLabelsWarning]
    assert message.filename == __file__
    assert str(message.message) == (
        f"{type(case.calibrator).__name__}: 100 of 300 rows have no label and were left out."
    )


def test_a_missing_label_is_no_row(case: Case) -> None:
    is_used = np.arange(300) % 3 > 0
    with pytest.warns(MissingLabelsWarning) as caught:
        partly = case.predict(Logits(case.logits), np.where(is_used, case.y, np.nan))
    assert_warned_once(caught, case)
    close(case.predict(Logits(case.logits[is_used]), case.y[is_used]), partly, atol=1e-6)


def test_certain_label_probabilities_are_plain_labels(case: Case) -> None:
    soft = np.eye(case.logits.shape[1])[case.y]
    softly = case.predict(Logits(case.logits), soft, case.weight)
    close(softly, case.predict(Logits(case.logits), case.y, case.weight), atol=1e-6)


def test_label_probabilities_are_rows_of_every_class(plain_case: Case) -> None:
    n_classes = plain_case.logits.shape[1]
    soft = 0.8 * np.eye(n_classes)[plain_case.y] + 0.2 / n_classes
    rows, classes = np.divmod(np.arange(300 * n_classes), n_classes)
    each = plain_case.predict(Logits(plain_case.logits[rows]), classes, soft[rows, classes])
    softly = plain_case.predict(Logits(plain_case.logits), soft)
    if "ece" not in plain_case.name:  # which compares the label with the predicted class
        close(softly, each, atol=1e-6)
    assert_probabilities(softly, plain_case.logits.shape)


def test_probabilities_and_logits_are_the_same(case: Case) -> None:
    p = special.softmax(case.logits, axis=1)
    by_logits = case.fit(Logits(case.logits), case.y)
    if case.name in ON_LOGITS:
        name = type(by_logits).__name__
        rule = "must be Logits where input is 'logits', got Probabilities"
        fix = "Pass Logits, or fit with input='log_proba'"
        with raises_message(BadTypeError, f"{name}.predict_proba: `outputs` {rule}. {fix}."):
            by_logits.predict_proba(p)
        strict = clone(by_logits).set_params(input="logits")
        with raises_message(BadTypeError, f"{name}: `outputs` {rule}. {fix}."):
            strict.fit(p, case.y)
        return
    by_shares = case.fit(Probabilities(p), case.y)
    expected = by_logits.predict_proba(Logits(case.logits))
    close(by_shares.predict_proba(Logits(case.logits)), expected, atol=1e-6)
    close(by_logits.predict_proba(p), expected, atol=1e-6)


def test_members_are_their_mean(case: Case) -> None:
    p = special.softmax(case.logits, axis=1)
    passes = Members([p, special.softmax(case.logits / 2, axis=1)])
    by_mean = case.predict(passes.mean, case.y)
    close(case.predict(passes, case.y), by_mean, atol=1e-12)


def test_float32_is_close_to_float64(case: Case) -> None:
    narrow = case.logits.astype(np.float32)
    wide = narrow.astype(np.float64)
    fitted = case.fit(Logits(narrow), case.y)
    p = fitted.predict_proba(Logits(narrow))
    assert p.dtype == np.float32
    assert fitted.transform(Logits(narrow)).array.dtype == np.float32
    close(p, case.fit(Logits(wide), case.y).predict_proba(Logits(wide)), atol=2e-6)


def test_classes_may_have_names(case: Case) -> None:
    names = tuple(f"class {k}" for k in range(case.logits.shape[1]))
    outputs = Logits(case.logits, classes=names)
    fitted = case.fit(outputs, [names[code] for code in case.y])
    plain = case.fit(Logits(case.logits), case.y)
    assert fitted.classes_ == names
    assert plain.classes_ is None
    assert fitted.transform(outputs).classes == names
    expected = plain.predict_proba(outputs)
    close(fitted.predict_proba(outputs), expected, atol=1e-9)
    close(fitted.predict_proba(Logits(case.logits)), expected, atol=1e-9)


def test_classes_in_another_order_raise(case: Case) -> None:
    names = tuple(f"c{k}" for k in range(case.logits.shape[1]))
    fitted = case.fit(Logits(case.logits, names), [names[code] for code in case.y])
    kind = type(case.calibrator).__name__
    message = (
        f"{kind}.predict_proba: `outputs` must have the classes {names}, as during fit, "
        f"got {names[::-1]}. Pass the columns of the fit, in the same order."
    )
    with raises_message(BadValueError, message):
        fitted.predict_proba(Logits(case.logits, names[::-1]))


def test_another_number_of_columns_raises(case: Case) -> None:
    fitted = case.fit(Logits(case.logits), case.y)
    kind, n_classes = type(case.calibrator).__name__, case.logits.shape[1]
    for method in ("predict", "predict_proba", "transform"):
        message = (
            f"{kind}.{method}: `outputs` must have {n_classes} columns, as during fit, got 5. "
            "Pass the columns of the fit, in the same order."
        )
        with raises_message(BadValueError, message):
            getattr(fitted, method)(Logits(np.zeros((2, 5))))


@pytest.mark.parametrize("outputs", [TopLabel([0.9], [True]), Normal([0.0], [1.0])])
def test_outputs_without_classes_raise(case: Case, outputs: Any) -> None:
    kind = type(case.calibrator).__name__
    fitted = case.fit(Logits(case.logits), case.y)
    rule = (
        "`outputs` must be Logits, Probabilities, Members or an array of probabilities, "
        f"got {type(outputs).__name__}. "
        "Pass the whole distribution over classes, or use VarianceScaling for regression."
    )
    with raises_message(BadTypeError, f"{kind}.predict_proba: {rule}"):
        fitted.predict_proba(outputs)
    for y in (None, [0.5]):
        with raises_message(BadTypeError, f"{kind}: {rule}"):
            case.fit(outputs, y)


def test_errors_name_the_labels_as_fit_does(case: Case) -> None:
    kind, n_classes = type(case.calibrator).__name__, case.logits.shape[1]
    logits = Logits(case.logits)
    bad: list[tuple[Any, str]] = [
        (
            np.where(case.y == 1, -1, case.y),
            f"be class indices from 0 to {n_classes - 1}, got -1 in row "
            f"{(case.y == 1).argmax()}. Use NaN or None for a missing label"
            + ", or map -1 and 1 to 0 and 1"
            * (n_classes == 2),
        ),
        (
            case.y[1:],
            "have length 300, like the outputs, got length 299. Align both in the same row order",
        ),
        (
            np.zeros(case.logits.shape),
            "have rows that sum to 1, got a sum of 0 in row 0. Divide each row by its sum",
        ),
    ]
    for y, rule in bad:
        with raises_message(BadValueError, f"{kind}: `y` must {rule}."):
            case.fit(logits, y)


def test_rows_without_labels_raise(case: Case, tmp_path: Path) -> None:
    message = (
        f"{type(case.calibrator).__name__}: `y` must hold the labels, got None. "
        "Pass the labels, or shards with a label column."
    )
    logits = Logits(case.logits)
    unlabeled = scan(streamed_file(case, tmp_path), Columns(logits="z_*"))
    for rows in (logits, ArrayShards(Batch.of(None, logits)), unlabeled):
        with raises_message(BadTypeError, message):
            case.fit(rows)


def test_nothing_can_be_asked_before_a_fit(case: Case) -> None:
    kind = type(case.calibrator).__name__
    for method, arguments in {
        "predict": (case.logits,),
        "predict_proba": (case.logits,),
        "transform": (case.logits,),
        "summary": (),
        "to_dict": (),
    }.items():
        message = f"This {kind} is not fitted yet. Call `fit` before `{method}`."
        with raises_message(UnfittedError, message):
            getattr(clone(case.calibrator), method)(*arguments)


def test_a_fit_that_fails_is_no_fit(case: Case) -> None:
    calibrator = clone(case.calibrator)
    if isinstance(calibrator, IdentityCalibrator):  # which learns nothing of any row
        assert_probabilities(
            calibrator.fit([[0.5, 0.5]], [0], [0.0]).predict_proba([[1, 0]]), (1, 2)
        )
        return
    with pytest.raises(EmptyStateError):
        calibrator.fit(Logits(case.logits), case.y, np.zeros(300))
    with pytest.raises(UnfittedError):
        calibrator.predict_proba(Logits(case.logits))


def test_what_json_keeps_says_the_same(case: Case) -> None:
    names = tuple(f"class {k}" for k in range(case.logits.shape[1]))
    outputs = Logits(case.logits, classes=names)
    fitted = case.fit(outputs, [names[code] for code in case.y])
    kept = json.loads(json.dumps(fitted.to_dict(), allow_nan=False))
    revived = BaseCalibrator.from_dict(kept)
    assert type(revived) is type(fitted)
    assert revived.classes_ == names
    expected = fitted.predict_proba(outputs)
    close(revived.predict_proba(outputs), expected, rtol=1e-12)
    assert type(fitted).from_dict(kept).to_dict() == kept
    assert repr(clone(revived)) == repr(clone(fitted))


def test_the_dict_of_another_calibrator_raises(case: Case) -> None:
    kept = case.fit(Logits(case.logits), case.y).to_dict()
    kind = type(case.calibrator)
    others: dict[bool, type[BaseCalibrator]] = {False: TemperatureScaling, True: VectorScaling}
    other = others[kind is TemperatureScaling]
    message = (
        f"{other.__name__}.from_dict: `values` must be a {other.__name__}, "
        f"got '{kind.__name__}'. Pass what {other.__name__}.to_dict returned, "
        f"or use {kind.__name__}.from_dict."
    )
    with raises_message(BadValueError, message):
        other.from_dict(kept)


def test_pickled_it_says_the_same(case: Case) -> None:
    fitted = case.fit(Logits(case.logits), case.y)
    data = pickle.dumps(fitted)
    revived = pickle.loads(data)
    expected = fitted.predict_proba(Logits(case.logits))
    close(revived.predict_proba(Logits(case.logits)), expected, rtol=1e-12)
    # What it learned, not what it learned from.
    assert len(data) < case.logits.nbytes + 20_000
    assert not hasattr(revived, "_shards")


def test_a_clone_has_the_settings_and_nothing_learned(case: Case) -> None:
    fitted = case.fit(Logits(case.logits), case.y)
    copy = clone(fitted)
    assert repr(copy) == repr(case.calibrator)
    with pytest.raises(UnfittedError):
        copy.predict_proba(Logits(case.logits))


def test_the_summary_and_its_cross_fitted_evidence_are_one_sentence(case: Case) -> None:
    fitted = case.fit(Logits(case.logits), case.y)
    summary = summary_with_evidence(fitted, Logits(case.logits), case.y)
    assert summary.endswith(", cross-fitted on 300 rows")
    assert "; log loss " in summary
    assert "\n" not in summary
    assert ". " not in summary
    kept = BaseCalibrator.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert summary_with_evidence(kept, Logits(case.logits), case.y) == summary


def test_the_callers_arrays_are_left_alone(case: Case) -> None:
    arrays = [case.logits, case.y, case.weight]
    copies = [array.copy() for array in arrays]
    fitted = case.fit(Logits(case.logits), case.y, case.weight)
    fitted.predict_proba(Logits(case.logits))[:] = 0
    fitted.transform(Logits(case.logits))
    fitted.summary()
    for array, copy in zip(arrays, copies, strict=True):
        assert array.tolist() == copy.tolist()
        assert array.flags.writeable


def streamed_file(case: Case, folder: Path, is_missing: Any = None) -> Path:
    columns: dict[str, Any] = {f"z_{k}": column for k, column in enumerate(case.logits.T)}
    table = pa.table(columns | {"y": pa.array(case.y, mask=is_missing), "w": case.weight})
    pq.write_table(table, folder / "rows.parquet")
    return folder / "rows.parquet"


def streamed(case: Case, folder: Path, is_missing: Any = None) -> Any:
    """Return the case's rows as shards of a file, in several batches."""
    path = streamed_file(case, folder, is_missing)
    return scan(path, Columns(label="y", logits="z_*", weight="w"))


def test_a_stream_gives_what_arrays_give(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    held = case.predict(Logits(case.logits), case.y, case.weight)
    shards = streamed(case, tmp_path)
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", str(60 * (case.logits.shape[1] + 2)))
    assert sum(1 for _ in shards.batches()) == 5
    off = np.abs(case.predict(shards) - held)
    if case.name in GRIDDED:
        # Log odds are rounded by at most 0.007: what changes is a step of the curve, seldom.
        assert np.median(off) < 0.004
        assert off.mean() < 0.01
    else:
        assert off.max() < 1e-9


def test_a_stream_warns_once_about_missing_labels(
    case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_used = np.arange(300) % 3 > 0
    shards = streamed(case, tmp_path, ~is_used)
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", str(60 * (case.logits.shape[1] + 2)))
    assert sum(1 for _ in shards.batches()) == 5
    with pytest.warns(MissingLabelsWarning) as caught:
        partly = case.predict(shards)
    assert_warned_once(caught, case)
    rows = case._replace(
        logits=case.logits[is_used], y=case.y[is_used], weight=case.weight[is_used]
    )
    labeled = case.predict(streamed(rows, tmp_path))
    close(partly, labeled, atol=1e-6)


def test_labels_passed_with_a_stream_raise(case: Case, tmp_path: Path) -> None:
    kind = type(case.calibrator).__name__
    message = (
        f"{kind}: `y` must be None when `outputs` is shards, got ndarray. "
        "Hold it in the shards instead: Columns(label=...)."
    )
    with raises_message(BadTypeError, message):
        case.fit(streamed(case, tmp_path), case.y)


def test_a_stream_has_a_summary_and_evidence_too(case: Case, tmp_path: Path) -> None:
    shards = streamed(case, tmp_path)
    summary = summary_with_evidence(case.fit(shards), shards)
    assert summary.endswith(", cross-fitted on 300 rows")


def separable(n_classes: int) -> tuple[Floats, NDArray[np.int64]]:
    y = np.arange(40) % n_classes
    noise = np.random.default_rng(0).normal(0, 0.1, (40, n_classes))
    return noise + np.eye(n_classes)[y], y


def contrary(n_classes: int) -> tuple[Floats, NDArray[np.int64]]:
    logits, y = separable(n_classes)
    return -logits, y


def one_class(n_classes: int) -> tuple[Floats, NDArray[np.int64]]:
    return made(40, n_classes)[0], np.full(40, n_classes - 1)


def two_rows(n_classes: int) -> tuple[Floats, NDArray[np.int64]]:
    return made(2, n_classes)[0], np.array([0, 1])


def one_row(n_classes: int) -> tuple[Floats, NDArray[np.int64]]:
    return made(1, n_classes)[0], np.array([1])


def constant(n_classes: int) -> tuple[Floats, NDArray[np.int64]]:
    return np.full((40, n_classes), 7.0), np.arange(40) % n_classes


def saturated(n_classes: int) -> tuple[Floats, NDArray[np.int64]]:
    logits, y = separable(n_classes)
    y = np.where(np.arange(40) % 5 == 0, 0, y)
    return np.where(logits == logits.max(axis=1, keepdims=True), 1e4, -1e4), y


def saturated_and_right(n_classes: int) -> tuple[Floats, NDArray[np.int64]]:
    logits, y = separable(n_classes)
    return 1e4 * (2 * np.eye(n_classes)[logits.argmax(axis=1)] - 1), y


@pytest.mark.filterwarnings("ignore::dubito.errors.BoundWarning")
@pytest.mark.filterwarnings("ignore::dubito.errors.SingleClassWarning")
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(
    "rows",
    [
        separable,
        contrary,
        one_class,
        two_rows,
        one_row,
        constant,
        saturated,
        saturated_and_right,
    ],
)
def test_extreme_rows_leave_all_finite(case: Case, rows: Any, dtype: type) -> None:
    logits, y = rows(case.logits.shape[1])
    fitted = case.fit(Logits(logits.astype(dtype)), y)
    for outputs in (logits, case.logits, 1e4 * case.logits):
        p = fitted.predict_proba(Logits(outputs.astype(dtype)))
        assert_probabilities(p, outputs.shape)
    if case.name not in ON_LOGITS:
        p = fitted.predict_proba(np.eye(logits.shape[1]))
        assert_probabilities(p, (logits.shape[1], logits.shape[1]))
    json.dumps(fitted.to_dict(), allow_nan=False)


@pytest.mark.parametrize(
    ("values", "rule"),
    [
        (
            None,
            "be a dict that `to_dict` returned, got None. Restore the values as they were written.",
        ),
        (
            {},
            "be a dict that `to_dict` returned, got a dict without the key 'class'. "
            "Restore the values as they were written.",
        ),
        (
            {"format": 99},
            "have format 1, got format 99. Use the version of dubito that wrote it.",
        ),
    ],
)
def test_a_dict_of_no_calibrator_raises(values: Any, rule: str) -> None:
    with raises_message(BadTypeError, f"BaseCalibrator.from_dict: `values` must {rule}"):
        BaseCalibrator.from_dict(values)


def test_an_unknown_calibrator_raises() -> None:
    kept = {"format": 1, "class": "annotations", "params": {}, "fitted": {}}
    message = (
        "BaseCalibrator.from_dict: `values` must be of a known class, "
        "got 'annotations'. Use the version of dubito that wrote it."
    )
    with raises_message(BadValueError, message):
        BaseCalibrator.from_dict(kept)


@pytest.mark.parametrize(
    "kind", [PlattScaling, BetaCalibration, HistogramBinning, IsotonicCalibration]
)
def test_binary_calibrators_raise_for_three_classes(kind: type[BaseCalibrator]) -> None:
    message = (
        f"{kind.__name__} supports exactly 2 classes, got 3. Use OneVsRest({kind.__name__}())."
    )
    with raises_message(BadValueError, message):
        kind().fit(Logits(np.zeros((2, 3))), [0, 1])


def test_metadata_of_a_calibrator_is_routed() -> None:
    rng = np.random.default_rng(0)
    p, weight = rng.dirichlet([1, 1, 1], 90), rng.uniform(0.5, 2, 90)
    y, cv = (np.log(p) + rng.gumbel(size=(90, 3))).argmax(axis=1), KFold(3)
    with pytest.raises(BadValueError, match="enable_metadata_routing=True"):
        TemperatureScaling().set_fit_request(sample_weight=True)
    with config_context(enable_metadata_routing=True):
        one = TemperatureScaling().set_fit_request(sample_weight=True)
        assert one.get_metadata_routing().fit.requests == {"sample_weight": True}
        for copied in (clone(one), pickle.loads(pickle.dumps(one))):
            assert copied.get_metadata_routing().fit.requests == {"sample_weight": True}
        settings: dict[str, Any] = {"scoring": get_scorer("log_loss"), "cv": cv}
        settings["return_estimator"] = True
        found = cross_validate(one, p, y, params={"sample_weight": weight}, **settings)
        for (train, _), fitted in zip(cv.split(p), found["estimator"], strict=True):
            expected = TemperatureScaling().fit(p[train], y[train], weight[train])
            assert fitted.temperature_ == expected.temperature_
        with pytest.raises(UnsetMetadataPassedError, match=r"TemperatureScaling\.fit"):
            cross_validate(TemperatureScaling(), p, y, params={"sample_weight": weight}, **settings)
        with pytest.raises(BadTypeError, match="must be among sample_weight, got 'groups'"):
            one.set_fit_request(groups=True)
        assert AutoCalibrator().set_fit_request(groups=True)
    assert not hasattr(one, "set_score_request")


def test_calibrated_columns_have_the_names_of_the_classes() -> None:
    p, y = [[0.9, 0.1], [0.2, 0.8]] * 5, [0, 1] * 5
    plain = TemperatureScaling().fit(p, y)
    assert plain.get_feature_names_out().tolist() == ["class0", "class1"]
    assert plain.get_feature_names_out(["no", "yes"]).tolist() == ["no", "yes"]
    with pytest.raises(BadValueError, match="must be 2 names"):
        plain.get_feature_names_out(["no"])
    with pytest.raises(UnfittedError):
        TemperatureScaling().get_feature_names_out()
    named = TemperatureScaling().fit(Probabilities(p, ["no", "yes"]), ["no", "yes"] * 5)
    assert named.get_feature_names_out(["a", "b"]).tolist() == ["no", "yes"]
    several = MultiLabelCalibrator().fit(MultiLabel(p, ["edema", "mass"]), [[1, 0], [0, 1]] * 5)
    assert several.get_feature_names_out().tolist() == ["edema", "mass"]
