"""Saved objects are restored the same, and an untrusted file is safe to read or raises."""

import copy
import json
import pickle
import warnings
from collections.abc import Iterator
from importlib import import_module
from inspect import isabstract
from typing import Any

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.base import clone as sklearn_clone
from sklearn.model_selection import KFold, cross_val_score

from dubito import Logits, MultiLabel, Normal, Quantiles, Samples
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
    QuantileRecalibration,
    StructuredMatrixScaling,
    TemperatureScaling,
    VarianceScaling,
    VectorScaling,
)
from dubito.calibrate.cross_validation import make_folds
from dubito.data import ArrayShards, Batch
from dubito.decide import LinearPool, LogLinearPool, OODGate, RiskBound
from dubito.doubt import (
    SCALE,
    BayesianLogisticRegression,
    ClassConditionalDensity,
    ConformalClassifier,
    ConformalOutlierDetector,
    ConformalPredictiveSystem,
    ConformalRegressor,
    DecisionBoundaryDistance,
    JointDensity,
    MahalanobisDistance,
    MultiLabelRiskControl,
    NearestNeighborDistance,
    OnlineConformal,
    PredictionIntervals,
    ReAct,
    RiskControl,
    VirtualLogitMatching,
)
from dubito.errors import BadTypeError, BadValueError, DubitoError, DubitoWarning, UnfittedError
from dubito.serialization.objects import HOMES, Serializable, _to_plain, clone

EMPTY: dict[str, Any] = {"format": 1, "params": {}, "fitted": {}}
LABELS = np.arange(30) % 3
LOGITS = np.eye(3)[LABELS] + np.random.default_rng(0).normal(size=(30, 3))
FEATURES = np.random.default_rng(1).normal(size=(30, 4)) + np.eye(3, 4)[LABELS]
TARGETS = FEATURES @ [1.0, 2.0, 3.0, 4.0]
SCORES, TWO = LOGITS[:, :2], LABELS % 2
SPREAD = {
    "Normal": Normal(TARGETS + 1, np.full(30, 0.5)),
    "Samples": Samples(TARGETS[:, np.newaxis] + np.linspace(-1, 2, 19)),
    "Quantiles": Quantiles(TARGETS[:, np.newaxis] + np.array([-1.0, 0, 2]), [0.1, 0.5, 0.9]),
}


def auto() -> AutoCalibrator:
    """Return a mixture of everything, as a contest on many rows would choose it."""
    mixture = AutoCalibrator(time_budget=0).fit(Logits(LOGITS), LABELS)
    members: list[Any] = [
        TemperatureScaling(),
        OneVsRest(IsotonicCalibration()),
        ForestCalibration(n_estimators=2),
        StructuredMatrixScaling(basis="rbf"),
    ]
    mixture.calibrators_ = [one.fit(Logits(LOGITS), LABELS) for one in members]
    mixture.weights_ = np.full(4, 0.25)
    return mixture


def fitted() -> Iterator[Serializable]:
    """Yield something fitted of every kind that is saved, and of every form it has."""
    logits, scores = Logits(LOGITS, ("a", "b", "c")), Logits(SCORES)
    names = ["abc"[k] for k in LABELS]
    for calibrator in (
        TemperatureScaling(),
        VectorScaling(),
        MatrixScaling(),
        StructuredMatrixScaling(),
        StructuredMatrixScaling(basis="spline"),
        StructuredMatrixScaling(basis="rbf"),
        EnsembleTemperatureScaling(),
        IdentityCalibrator(),
        OneVsRest(PlattScaling()),
        OneVsRest(IsotonicCalibration()),
        ForestCalibration(n_estimators=2, prior_weight=0),
    ):
        yield calibrator.fit(logits, names)
    yield auto()
    for binary in (PlattScaling(), BetaCalibration(), HistogramBinning(3), IsotonicCalibration()):
        yield binary.fit(scores, TWO)
    yield ConfidenceCalibrator().fit(1 / (1 + np.exp(-FEATURES[:, 0])), TWO)
    gaps = np.where(np.arange(30) % 7, FEATURES[:, 1], np.nan)
    several = {"judge": gaps, "agreement": 1.0 * (FEATURES[:, 2] > 0)}
    yield ConfidenceCalibrator().fit(several, TWO, groups=["even", "odd"] * 15)
    yield MultiLabelCalibrator(cv=2).fit(MultiLabel.from_logits(LOGITS), np.eye(3)[LABELS])
    yield VarianceScaling().fit(SPREAD["Normal"], TARGETS)
    yield VarianceScaling().fit(Normal(FEATURES, np.ones((30, 4))), FEATURES + 1)
    yield QuantileRecalibration().fit(SPREAD["Samples"], TARGETS)
    yield QuantileRecalibration([0.2, 0.8]).fit(Normal(FEATURES, np.ones((30, 4))), FEATURES + 1)
    for uncertainty in (
        MahalanobisDistance(),
        MahalanobisDistance(normalize=True),
        ClassConditionalDensity(),
        ClassConditionalDensity("per_class"),
        ClassConditionalDensity("diagonal"),
        NearestNeighborDistance(3),
        NearestNeighborDistance(3, normalize=False),
        MahalanobisDistance(relative=True),
        VirtualLogitMatching(np.eye(3, 4) + 1, np.ones(3), 2),
        ReAct(np.eye(3, 4) + 1, np.ones(3)),
        DecisionBoundaryDistance(np.eye(3, 4)),
    ):
        yield uncertainty.fit(FEATURES, names)
    yield SCALE(np.eye(3, 4) + 1).fit(np.abs(FEATURES))
    yield BayesianLogisticRegression().fit(FEATURES, names)
    yield BayesianLogisticRegression(covariance="diagonal", fit_intercept=False).fit(
        FEATURES, LABELS
    )
    yield JointDensity(2).fit(FEATURES[:, :2], TARGETS)
    yield ConformalOutlierDetector(0.1).fit(TARGETS)
    for sets in (
        ConformalClassifier(0.8, "aps"),
        ConformalClassifier(0.8, "lac", allow_empty=False),
        ConformalClassifier(0.8, "raps", penalty=0.1, k_reg=1),
        ConformalClassifier(0.8, "saps", conditional="class"),
    ):
        yield sets.fit(logits, names)
    yield ConformalClassifier(0.5).fit(logits, names, ["even", "odd"] * 15)
    yield MultiLabelRiskControl(target=0.6).fit(MultiLabel.from_logits(LOGITS), np.eye(3)[LABELS])
    yield RiskControl(0.5).fit(np.outer(np.linspace(0, 1, 30), [0.1, 0.9]), [0.2, 0.4])
    for kind, outputs in SPREAD.items():
        yield ConformalRegressor(0.8, "quantiles").fit(outputs, TARGETS)
        if kind != "Quantiles":
            yield ConformalRegressor(0.8, "normalized").fit(outputs, TARGETS)
        yield ConformalRegressor(0.6, "adaptive").fit(outputs, TARGETS)
        yield ConformalRegressor(0.6, "absolute", symmetric=False, n_bins=2).fit(outputs, TARGETS)
        yield ConformalPredictiveSystem(0.8, "adaptive").fit(outputs, TARGETS)
    online = OnlineConformal(0.8)
    online.replay(TARGETS, TARGETS + 1)
    yield online
    yield RiskBound(0.1).with_threshold(0.75, "Accept above 0.75.")
    batch = Batch.of(LABELS, Logits(LOGITS), features=FEATURES)
    for score in ("energy", MahalanobisDistance(), ["energy", MahalanobisDistance()]):
        gate = OODGate(score, alpha=0.1).resolved(has_features=True)
        yield gate.cross_fit(ArrayShards(batch), batch, make_folds(batch, 3))[0]
    yield LinearPool().fit([logits, Logits(LOGITS / 3, ("a", "b", "c"))], names)
    yield LogLinearPool(fit_intercept=True).fit([Logits(LOGITS), Logits(LOGITS[:, ::-1])], LABELS)


def made() -> list[Serializable]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DubitoWarning)
        return list(fitted())


KEPT = made()
each_kept = pytest.mark.parametrize(
    "kept", KEPT, ids=[f"{k}-{type(one).__name__}" for k, one in enumerate(KEPT)]
)


def said(kept: Any, seed: int = 0) -> Any:
    """Return the numbers that something fitted gives for rows that suit it, extreme ones too."""
    rng = np.random.default_rng(seed)
    if isinstance(kept, ConformalOutlierDetector):
        return kept.p_value([-1e300, 0.0, 5.0, 1e300])
    if isinstance(kept, RiskBound):
        return np.array([kept.threshold_, kept.max_risk])
    if isinstance(kept, OnlineConformal):
        again = OnlineConformal.from_dict(kept.to_dict())  # what is predicted waits
        assert kept.kind_ == "points"
        found = again.predict([0.0, 1.0])
        assert isinstance(found, PredictionIntervals)
        return np.stack([found.low, found.high])
    if isinstance(kept, RiskControl):
        return np.array([kept.threshold_, *kept.mean_losses_, *kept.bounds_])
    if isinstance(kept, OODGate):
        rows = rng.normal(size=(5, min(kept.n_features or 1, 50)))
        kept.predict(Logits(rng.normal(size=(5, 3))), rows)
        return kept.ood_scores(Logits(rng.normal(size=(5, 3))), rows)
    if isinstance(kept, ConfidenceCalibrator):
        n_scores = min(kept.n_scores_, 50)
        scores = np.clip(rng.normal(size=(5, n_scores)), 0, 1)
        groups = ["even", "odd", "new", "even", "odd"]
        p, ends = kept.predict_proba(scores, groups), kept.predict_interval(scores, groups)
        return np.vstack([p, *(np.column_stack([one, 1 - one]) for one in ends.T)])
    if isinstance(kept, BaseCalibrator | LinearPool | LogLinearPool | ConformalClassifier):
        rows = rng.normal(size=(5, min(kept.n_classes_, 50))) * [[1], [1], [1], [100], [1e6]]
        if isinstance(kept, ConformalClassifier):
            return kept.predict(Logits(rows), ["even"] * 5 if kept.is_grouped_ else None).contains
        outputs: Any = [Logits(rows), Logits(rows.astype(np.float32))]
        if isinstance(kept, BaseCalibrator):
            kept.transform(outputs[1])
            return np.concatenate([kept.predict_proba(one) for one in outputs])
        return kept.predict_proba([Logits(rows)] * min(kept.weights_.size, 50))
    if isinstance(kept, MultiLabelCalibrator):
        rows = rng.normal(size=(5, min(kept.n_labels_, 50))) * [[1], [1], [1], [100], [1e6]]
        kept.transform(MultiLabel.from_logits(rows.astype(np.float32)))
        return kept.predict_proba(MultiLabel.from_logits(rows))
    if isinstance(kept, MultiLabelRiskControl):
        return kept.predict(rng.random((5, min(kept.n_labels_, 50)))).contains
    if isinstance(
        kept,
        VarianceScaling | QuantileRecalibration | ConformalRegressor | ConformalPredictiveSystem,
    ):
        return intervals(kept, rng)
    rows = rng.normal(size=(5, min(kept.n_features_, 50))) * [[1], [1], [1], [1e6], [1e100]]
    if isinstance(kept, BayesianLogisticRegression):
        return kept.members(rows, 3).array.reshape(-1, len(kept.classes_))
    rows = np.abs(rows) if isinstance(kept, SCALE) else rows
    return np.concatenate([kept.score(rows), kept.score(rows[:4].astype(np.float32))])


def intervals(kept: Any, rng: np.random.Generator) -> Any:
    n_targets = getattr(kept, "n_targets_", None)
    shape = (5,) if n_targets is None else (5, min(n_targets, 50))
    mean = rng.normal(size=shape)
    outputs: Any = Normal(mean, np.ones(shape))
    if kept.kind_ in ("Samples", "Quantiles"):
        levels = np.array(getattr(kept, "levels_", None) or np.arange(1, 20) / 20)
        steps = np.arange(float(levels.size)).reshape(1, -1, *[1] * len(shape[1:]))
        array = mean[:, np.newaxis] + steps
        outputs = Samples(array) if kept.kind_ == "Samples" else Quantiles(array, levels)
    if isinstance(kept, ConformalRegressor):
        found = kept.predict(mean if kept.kind_ == "array" else outputs)
        assert (found.low <= found.high).all()
        return np.nan_to_num(np.stack([found.low, found.high]), nan=np.nan)
    if isinstance(kept, ConformalPredictiveSystem):
        return kept.predict(outputs).quantile([0.1, 0.5, 0.9]).array
    calibrated: Any = kept.transform(outputs)
    return calibrated.std if isinstance(calibrated, Normal) else calibrated.array


def test_every_kind_that_is_kept_is_held_to_this() -> None:
    offered = [getattr(home, name) for home in map(import_module, HOMES) for name in home.__all__]
    kinds = [one for one in offered if isinstance(one, type) and issubclass(one, Serializable)]
    assert {one for one in kinds if not isabstract(one)} == {type(one) for one in KEPT}


@each_kept
def test_it_comes_back_the_same_from_lists_and_from_arrays(kept: Any) -> None:
    values = kept.to_dict()
    text = json.loads(json.dumps(values, allow_nan=False))
    for written in (values, text, as_arrays(text)):
        restored = type(kept).from_dict(written)
        assert restored.to_dict() == values
        assert np.array_equal(said(restored), said(kept))
        for name, value in kept._learned().items():
            again = getattr(restored, name)
            assert type(again) is type(value)
            if isinstance(value, np.ndarray) and name not in ("threshold_", "reference_"):
                assert again.dtype == value.dtype


def as_arrays(value: Any) -> Any:
    """Return plain values with every list of numbers as an array, as a parser may return it."""
    if isinstance(value, dict):
        return {key: as_arrays(one) for key, one in value.items()}
    if not isinstance(value, list):
        return value
    parts = [as_arrays(one) for one in value]
    shapes = {getattr(one, "shape", type(one)) for one in parts}
    is_even = len(shapes) == 1 and isinstance(parts[0], int | float | np.ndarray)
    return np.array(parts) if is_even else parts


def test_float32_stays_where_an_array_came() -> None:
    fitted = NearestNeighborDistance(2).fit(FEATURES.astype(np.float32))
    values = fitted.to_dict()
    values["fitted"]["reference_"] = np.array(values["fitted"]["reference_"], dtype=">f4")
    restored = NearestNeighborDistance.from_dict(values)
    assert restored.reference_.dtype == np.float32
    assert np.array_equal(restored.score(FEATURES), fitted.score(FEATURES))


def test_what_was_read_is_not_what_was_given() -> None:
    values = EnsembleTemperatureScaling().fit(Logits(LOGITS), LABELS).to_dict()
    values["fitted"]["weights_"] = given = np.array(values["fitted"]["weights_"])
    restored = EnsembleTemperatureScaling.from_dict(values)
    given[:] = np.nan
    assert np.isfinite(restored.weights_).all()


N_MUTATIONS = 200
WILD: list[Any] = [
    np.nan, np.inf, -np.inf, -1, 0, 1, 2, 0.5, -0.5, 1e308, -1e308, 1e-308, 5e-324, 10**400,
    -(10**400), 2**53 + 1, 2**63, 10**5000, "x", "", None, [], {}, True, False, [[]], [[[1.0]]],
    [1.0, 2.0], [None], {"class": "PlattScaling"}, "PlattScaling", "BaseCalibrator",
    np.array([1.0, np.nan]), np.array(["a"]), np.array(1.0), np.float32(0.5), object(),
]  # fmt: skip
DEEP: Any = []
for _ in range(3000):
    DEEP = [DEEP]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where everything in a tree stands."""
    if path:
        yield path
    if len(path) == 10:
        return
    keys = (
        value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    )
    for key in keys:
        yield from places(value[key], (*path, key))


def holder(tree: Any, path: tuple[Any, ...]) -> Any:
    for key in path[:-1]:
        tree = tree[key]
    return tree


def mutated(values: bytes, rng: np.random.Generator) -> dict[str, Any]:
    """Return the saved values with one, two or three things changed, large lists no oftener."""
    tree: dict[str, Any] = pickle.loads(values)
    for _ in range(rng.integers(1, 4)):
        found = list(places(tree))
        # Short paths first: settings, and whole lists, not always one of a thousand leaves.
        length = rng.choice(sorted({len(path) for path in found}))
        alike = [path for path in found if len(path) == length]
        path, other = (alike[rng.integers(len(alike))] for _ in range(2))
        inside = holder(tree, path)
        how = rng.integers(6)
        if how == 0:
            del inside[path[-1]]
        elif how == 1 and isinstance(inside, dict):
            inside[str(rng.choice(["extra_", "classes_", "class", "evidence_"]))] = wild(rng)
        elif how == 1:
            inside.insert(path[-1], copy.deepcopy(inside[path[-1]]))
        elif how == 2:
            there = holder(tree, other)
            inside[path[-1]], there[other[-1]] = there[other[-1]], inside[path[-1]]
            if path == other[: len(path)] or other == path[: len(other)]:
                inside[path[-1]] = wild(rng)
        elif how == 3 and is_small(inside[path[-1]]):
            inside[path[-1]] += rng.choice([-1, 1, 1e-3, -1e3])
        else:
            inside[path[-1]] = wild(rng)
    return tree


def is_small(value: Any) -> bool:
    return type(value) in (int, float) and -1e300 < value < 1e300


def wild(rng: np.random.Generator) -> Any:
    chosen = rng.integers(len(WILD) + 1)
    return DEEP if chosen == len(WILD) else WILD[chosen]


@pytest.mark.slow
@each_kept
def test_mutated_files_raise_or_give_valid_results(kept: Any) -> None:
    values = pickle.dumps(kept.to_dict())
    n_read = 0
    for seed in range(N_MUTATIONS):
        tree = mutated(values, np.random.default_rng(seed))
        try:
            found = type(kept).from_dict(tree)
            numbers = said(found)
        except DubitoError:
            continue  # an entry that cannot be, or other classes, groups or levels than requested
        n_read += 1
        assert not np.isnan(numbers).any()
        assert np.isfinite(numbers).all() or isinstance(found, ConformalRegressor)
        if hasattr(found, "predict_proba"):
            is_one_class = not isinstance(found, MultiLabelCalibrator)
            assert not is_one_class or np.allclose(numbers.sum(axis=1), 1, atol=1e-5)
            assert (numbers >= 0).all()
    assert n_read < N_MUTATIONS / 2  # most mutations must be detected


def test_names_of_classes_come_back_as_they_were() -> None:
    for names in (("a", "b", "c"), (10, 20, 30), (True, "x", 1.5)):
        fitted = TemperatureScaling().fit(Logits(LOGITS, names), [names[k] for k in LABELS])
        restored = TemperatureScaling.from_dict(json.loads(json.dumps(fitted.to_dict())))
        assert restored.classes_ == names
        assert restored.n_classes_ == 3


@pytest.mark.parametrize(
    "value",
    [None, True, 3, 0.5, "name", [], [1.0, 2.0], [[1.0], [2.0, 3.0]], [{"a": [1.0]}], {"b": None}],
)
def test_plain_things_survive(value: Any) -> None:
    assert json.loads(json.dumps(_to_plain(value))) == value


def test_a_calibrator_inside_a_calibrator_survives_fitted_or_not() -> None:
    fitted = OneVsRest(PlattScaling()).fit(Logits(LOGITS), LABELS)
    kept = json.loads(json.dumps(fitted.to_dict()))
    assert kept["params"]["calibrator"]["fitted"] == {}
    restored = BaseCalibrator.from_dict(kept)
    assert isinstance(restored, OneVsRest)
    assert [type(one) for one in restored.calibrators_] == [PlattScaling] * 3
    with pytest.raises(UnfittedError):
        restored.calibrator.to_dict()


def test_a_splitter_is_not_kept() -> None:
    fitted = AutoCalibrator(cv=KFold(3), time_budget=0).fit(Logits(LOGITS), LABELS)
    assert "cv" not in fitted.to_dict()["params"]
    assert AutoCalibrator.from_dict(fitted.to_dict()).cv == 5


@pytest.mark.slow
def test_folds_given_as_rows_are_kept() -> None:
    for n_folds in (2, 4):  # as long as each other, or not
        splits = list(KFold(n_folds).split(LOGITS))
        fitted = AutoCalibrator(cv=splits, time_budget=0).fit(Logits(LOGITS), LABELS)
        values = json.loads(json.dumps(fitted.to_dict()))
        for written in (values, as_arrays(values)):
            restored = AutoCalibrator.from_dict(written)
            found = [[part.tolist() for part in fold] for fold in restored.cv]
            assert found == [[part.tolist() for part in fold] for fold in splits]
        restored.fit(Logits(LOGITS), LABELS)


@pytest.mark.slow
def test_the_evidence_of_a_selection_is_serialized() -> None:
    fitted = AutoCalibrator(time_budget=0).fit(Logits(LOGITS), LABELS)
    restored = AutoCalibrator.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert restored.summary() == fitted.summary()
    assert restored.evidence_ == fitted.evidence_
    assert str(restored.evidence_).endswith("cross-fitted on 30 rows")


def test_regressions_are_kept_too() -> None:
    rng = np.random.default_rng(0)
    outputs, y = Normal(np.zeros((50, 2)), np.ones((50, 2))), rng.normal(size=(50, 2))
    for kind in (VarianceScaling, QuantileRecalibration):
        fitted = kind().fit(outputs, y)
        restored = kind.from_dict(json.loads(json.dumps(fitted.to_dict())))
        first, second = fitted.transform(outputs), restored.transform(outputs)
        for name in ("mean", "std", "array"):
            if hasattr(first, name):
                assert np.array_equal(getattr(first, name), getattr(second, name))


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ([1], BadTypeError, "must be a dict that `to_dict` returned, got a list."),
        (
            {},
            BadTypeError,
            "must be a dict that `to_dict` returned, got a dict without the key 'class'.",
        ),
        (
            {"format": 2},
            BadTypeError,
            "must have format 1, got format 2. Use the version of dubito",
        ),
        ({"format": True}, BadTypeError, "got format True."),
        ({"format": 1}, BadTypeError, "got a dict without the key 'class'."),
        ({**EMPTY, "class": "Guess"}, BadValueError, "got 'Guess'."),
        ({**EMPTY, "class": "PlattScaling"}, BadValueError, "got 'PlattScaling'."),
        (
            {"class": "Policy", "format": 1, "report": {}},
            BadValueError,
            "must be a TemperatureScaling, got 'Policy'. Pass what TemperatureScaling.to_dict "
            "returned, or use Policy.from_dict.",
        ),
        ({**EMPTY, "class": "BaseCalibrator"}, BadValueError, "must be of a known class,"),
        ({**EMPTY, "class": ["TemperatureScaling"]}, BadValueError, "got a list."),
        ({**EMPTY, "class": "audit"}, BadValueError, "got 'audit'."),
        (EMPTY, BadTypeError, "must be a dict that `to_dict` returned"),
    ],
)
def test_what_cannot_be_read_says_so(values: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error) as caught:
        TemperatureScaling.from_dict(values)
    assert message in str(caught.value)


def changed(kept: Any, *path: Any, to: Any) -> dict[str, Any]:
    values: dict[str, Any] = copy.deepcopy(kept.to_dict())
    holder(values, path)[path[-1]] = to
    return values


TEMPERATURE = TemperatureScaling().fit(Logits(LOGITS), LABELS)
FOREST = ForestCalibration(n_estimators=2, prior_weight=0).fit(Logits(LOGITS), LABELS)
EACH = OneVsRest(IsotonicCalibration()).fit(Logits(LOGITS), LABELS)
MIXED = auto()
NODES = FOREST.column_.size


@pytest.mark.parametrize(
    ("kept", "path", "to", "message"),
    [
        (TEMPERATURE, "fitted.temperature_", -1, "a number from 1e-09 to 1e+09, got -1"),
        (TEMPERATURE, "fitted.temperature_", 10**400, "got a number beyond 2^128"),
        (TEMPERATURE, "fitted.temperature_", True, "got True"),
        (TEMPERATURE, "fitted.n_classes_", 2.5, "an integer of at least 2, got 2.5"),
        (TEMPERATURE, "fitted.classes_", ["a", "a", "b"], "distinct names, got one twice"),
        (TEMPERATURE, "fitted.classes_", ["a", "b"], "3 names, one per class, got 2"),
        (TEMPERATURE, "fitted.classes_", [None] * 3, "None, or a list of strings or numbers"),
        (TEMPERATURE, "params.n_bins", [1], "None, a boolean, a number or a string, got a list"),
        (FOREST, "fitted.prior_.fitted.bias_", [0.0, np.nan, 1.0], "got nan in row 1"),
        (FOREST, "fitted.roots_", [0, 0], "increasing, got 0 in row 1"),
        (FOREST, "fitted.roots_", [1, 2], "from 0 on, got 1"),
        (FOREST, "fitted.n_labels_", [0.5] * NODES, f"{NODES} integers, got a ragged list"),
        (FOREST, "fitted.n_labels_", [1] * NODES, f"{FOREST.labels_.size} labels in all"),
        (FOREST, "fitted.column_", [1] * NODES, "two later nodes per split"),
        (FOREST, "fitted.column_", [-1] * NODES, "two later nodes per split"),
        (FOREST, "fitted.column_", [-1, *FOREST.column_[1:].tolist()], "two later nodes"),
        (FOREST, "fitted.threshold_", [], "numbers, one per split, got 0"),
        (FOREST, "fitted.weights_", [0.0] * FOREST.labels_.size, "above 0 in each leaf"),
        (EACH, "fitted.calibrators_", [], "a list of 3, got 0"),
        (MIXED, "fitted.weights_", [0.5] * 4, "probabilities that sum to 1, got a sum of 2"),
        (MIXED, "fitted.weights_", [1.0], "4 numbers, got 1"),
    ],
)  # fmt: skip
def test_the_entry_that_is_wrong_is_named(kept: Any, path: str, to: Any, message: str) -> None:
    name = type(kept).__name__
    with pytest.raises(BadValueError) as caught:
        type(kept).from_dict(changed(kept, *path.split("."), to=to))
    start = f"{name}.from_dict: `{path}` must "
    assert str(caught.value).startswith(start)
    assert message in str(caught.value)
    assert str(caught.value).endswith(". Restore the values as they were written.")


def first(kind: type[Any], **settings: Any) -> Any:
    """Return what was fitted of a kind, with some settings."""
    fitting = (one for one in KEPT if type(one) is kind)
    return next(one for one in fitting if settings.items() <= one.get_params(deep=False).items())


BETA, BINS, CURVE = first(BetaCalibration), first(HistogramBinning), first(IsotonicCalibration)
SPLINE, RBF = (first(StructuredMatrixScaling, basis=basis) for basis in ("spline", "rbf"))
LEVELS, JOINT, REGION = (
    first(QuantileRecalibration),
    first(JointDensity),
    first(ConformalOutlierDetector),
)
FLAT = np.full((4, 4), 0.5).tolist()
SKEW = (np.eye(4) + np.eye(4, k=1)).tolist()


@pytest.mark.parametrize(
    ("kept", "path", "to", "message"),
    [
        (BETA, "fitted.coefficients_", [1.0, -1.0, 0.0], "two numbers from 0 up, and any third"),
        (BINS, "fitted.edges_", [0.0, 0.5, 0.4, 1.0], "increasing, got 0.4 in row 2"),
        (BINS, "fitted.edges_", [0.0, 0.5, 1.0], "4 numbers from 0 to 1, one more than values_"),
        (CURVE, "fitted.knots_", [1.0] * CURVE.knots_.size, "increasing, got 1.0 in row 1"),
        (CURVE, "fitted.values_", CURVE.values_[::-1].tolist(), "increasing"),
        (SPLINE, "fitted.centers_", [[0.0] * 3], "left out where basis is 'spline', got some"),
        (RBF, "fitted.weight_", [[0.0] * 3] * 3, "numbers, got 3 columns"),
        (first(OneVsRest), "fitted.calibrators_.0", BETA.to_dict(), "PlattScaling, like the"),
        (LEVELS, "fitted.observed_", [[0.0, 1.0, 2.0]], "2 numbers, got 3"),
        (
            first(MahalanobisDistance),
            "fitted.covariance_",
            FLAT,
            "symmetric and positive definite",
        ),
        (
            first(MahalanobisDistance),
            "fitted.covariance_",
            SKEW,
            "symmetric and positive definite",
        ),
        (
            first(ClassConditionalDensity),
            "fitted.covariance_",
            SKEW,
            "symmetric and positive definite",
        ),
        (first(ClassConditionalDensity), "fitted.priors_", [0.0, 0.5, 0.5], "got 0.0 in row 0"),
        (JOINT, "fitted.means_", [[0.0] * 2] * 2, "2 x 3, got 2 x 2"),
        (
            first(NearestNeighborDistance),
            "fitted.n_neighbors_",
            31,
            "at most 30, the number of rows",
        ),
        (
            first(NearestNeighborDistance),
            "fitted.reference_",
            [[1.0] * 4] * 30,
            "rows of length 1",
        ),
        (REGION, "fitted.scores_", [1.0] * REGION.scores_.size, "increasing, got 1.0 in row 1"),
        (
            first(ConformalClassifier),
            "fitted.n_rows_",
            {"some": 3.0},
            "of the groups of thresholds_",
        ),
        (first(ConformalClassifier), "fitted.is_grouped_", 1, "true or false, got 1"),
        (first(ConformalRegressor), "fitted.kind_", "normal", "one of 'array', 'Normal'"),
        (first(LinearPool), "fitted.weights_", [0.5, 0.6], "probabilities that sum to 1"),
        (first(LogLinearPool), "fitted.bias_", [0.0], "a list of 3 numbers, got 1"),
    ],
)
def test_what_does_not_go_together_is_named(kept: Any, path: str, to: Any, message: str) -> None:
    steps = [int(step) if step.isdigit() else step for step in path.split(".")]
    with pytest.raises(BadValueError) as caught:
        type(kept).from_dict(changed(kept, *steps, to=to))
    start, end = path.split(".0")[0], " Restore the values as they were written."
    assert str(caught.value).startswith(f"{type(kept).__name__}.from_dict: `{start}")
    assert str(caught.value).endswith(end)
    assert message in str(caught.value)


def test_messages_are_whole_sentences() -> None:
    values = changed(EACH, "fitted", "calibrators_", 1, "fitted", "knots_", 0, to="x")
    with pytest.raises(BadValueError) as caught:
        OneVsRest.from_dict(values)
    assert str(caught.value) == (
        "OneVsRest.from_dict: `fitted.calibrators_[1].fitted.knots_` must be a list of numbers, "
        "got a ragged list, or one of other values. Restore the values as they were written."
    )
    values = changed(TEMPERATURE, "fitted", to={"n_classes_": 3, "classes_": None})
    with pytest.raises(
        BadValueError,
        match="`fitted` must have the keys n_classes_, classes_, "
        r"temperature_, got no 'temperature_'\. Restore the values as they "
        "were written",
    ):
        TemperatureScaling.from_dict(values)
    values = changed(TEMPERATURE, "params", "speed", to=9)
    with pytest.raises(
        BadValueError,
        match="`params` must have no other keys than n_bins, "
        r"objective, got 'speed'\. Restore the values as they "
        "were written",
    ):
        TemperatureScaling.from_dict(values)


def test_settings_are_held_to_what_a_fit_demands() -> None:
    with pytest.raises(
        BadValueError,
        match=r"`objective` .*, got 'guess'\. Use "
        "objective='log_loss'",
    ):
        TemperatureScaling.from_dict(changed(TEMPERATURE, "params", "objective", to="guess"))


def test_only_what_belongs_there_may_be_inside() -> None:
    pool = LinearPool().fit([Logits(LOGITS)] * 2, LABELS)
    values = changed(MIXED, "fitted", "calibrators_", 0, to=pool.to_dict())
    with pytest.raises(BadValueError) as caught:
        AutoCalibrator.from_dict(values)
    assert str(caught.value) == (
        "AutoCalibrator.from_dict: `fitted.calibrators_[0]` must be a BaseCalibrator, got "
        "'LinearPool'. Restore the values as they were written."
    )
    other = TemperatureScaling().fit(Logits(SCORES), TWO).to_dict()
    with pytest.raises(
        BadValueError,
        match=r"`fitted\.calibrators_\[0\]` must be of 3 classes, got 2\. Restore "
        "the values as they were written",
    ):
        AutoCalibrator.from_dict(changed(MIXED, "fitted", "calibrators_", 0, to=other))


def test_things_inside_things_end() -> None:
    values = MIXED.to_dict()
    for _ in range(2000):
        values = changed_shallow(values)
    with pytest.raises(
        BadValueError,
        match=r"`(fitted\.calibrators_\[0\]\.?){6}` must be nested at most 5 levels deep, "
        r"got one more\. Restore the values as they were "
        "written",
    ):
        AutoCalibrator.from_dict(values)


def changed_shallow(values: dict[str, Any]) -> dict[str, Any]:
    learned = {**values["fitted"], "calibrators_": [values], "weights_": [1.0]}
    return {**values, "fitted": learned}


ESTIMATORS = [
    TemperatureScaling(objective="ece"),
    OneVsRest(BetaCalibration()),
    AutoCalibrator(cv=3),
    OODGate(MahalanobisDistance(normalize=True), alpha=0.02),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=repr)
def test_estimators_follow_the_contract_of_scikit_learn(estimator: Serializable) -> None:
    assert estimator.get_params() == BaseEstimator.get_params(estimator)
    assert estimator.get_params(deep=False) == BaseEstimator.get_params(estimator, deep=False)
    assert repr(estimator) == " ".join(BaseEstimator.__repr__(estimator).split())
    for restored in (clone(estimator), sklearn_clone(estimator)):
        assert type(restored) is type(estimator)
        assert repr(restored) == repr(estimator)


def test_a_clone_shares_nothing_and_is_not_fitted() -> None:
    fitted = OneVsRest(HistogramBinning(3)).fit(Logits(LOGITS), LABELS)
    unfitted = clone(fitted)
    assert not unfitted.__sklearn_is_fitted__()
    assert unfitted.calibrator is not fitted.calibrator
    unfitted.set_params(calibrator__n_bins=5)
    assert (unfitted.calibrator.n_bins, fitted.calibrator.n_bins) == (5, 3)
    with pytest.raises(ValueError, match="Invalid parameter 'bins'"):
        unfitted.set_params(bins=5)


def test_scikit_learn_cross_validates_a_calibrator() -> None:
    shares = np.exp(LOGITS) / np.exp(LOGITS).sum(axis=1, keepdims=True)
    found = cross_val_score(
        TemperatureScaling(), shares, LABELS, cv=KFold(3), scoring=lambda one, *_: one.temperature_
    )
    assert found[0] == TemperatureScaling().fit(shares[10:], LABELS[10:]).temperature_
