import pickle
from collections.abc import Iterator
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from sklearn import config_context
from sklearn.base import BaseEstimator, clone
from sklearn.calibration import CalibratedClassifierCV
from sklearn.datasets import load_breast_cancer, make_classification
from sklearn.ensemble import IsolationForest, VotingClassifier
from sklearn.exceptions import NotFittedError, UnsetMetadataPassedError
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LinearRegression, LogisticRegression, RidgeClassifier
from sklearn.metrics import log_loss
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    KFold,
    LeaveOneOut,
    RepeatedStratifiedKFold,
    StratifiedGroupKFold,
    StratifiedKFold,
    cross_val_predict,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from dubito.calibrate import BaseCalibrator, CalibratedClassifier, TemperatureScaling, VectorScaling
from dubito.data import Shards
from dubito.errors import BadTypeError, BadValueError, DubitoWarning
from dubito.outputs import Logits, Probabilities

Array = NDArray[Any]

NAMES = np.array(["bee", "cat", "ant"])


def rows_of(n_classes: int, n_rows: int = 240) -> tuple[Array, Array]:
    rows, labels = make_classification(
        n_rows, 6, n_informative=4, n_classes=n_classes, flip_y=0.2, random_state=0
    )
    return rows, labels


X3, CODES = rows_of(3)
Y3 = NAMES[CODES]
X2, Y2 = rows_of(2)


@pytest.mark.filterwarnings("ignore::dubito.errors.SingleClassWarning")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dubito.errors.BoundWarning")  # some checks fit noise
@pytest.mark.parametrize(
    "model",
    [
        CalibratedClassifier(),
        CalibratedClassifier(calibrator=TemperatureScaling()),
        CalibratedClassifier(DecisionTreeClassifier(random_state=0), TemperatureScaling(), cv=3),
        CalibratedClassifier(SVC(), VectorScaling(), cv=StratifiedKFold(3)),
    ],
)
def test_scikit_learns_own_checks_pass(model: CalibratedClassifier) -> None:
    results = check_estimator(model, on_skip=None, on_fail=None)
    # The one of array libraries other than NumPy runs only in a process set up for them.
    odd = {r["check_name"] for r in results if r["status"] != "passed"} - {"check_array_api_input"}
    assert odd == set(), next(r["exception"] for r in results if r["check_name"] in odd)


@pytest.mark.parametrize("estimator", [LogisticRegression(), SVC(), GaussianNB()])
@pytest.mark.parametrize(("x", "y"), [(X3, Y3), (X2, Y2)])
def test_prefit_is_the_calibrator_after_the_model(estimator: Any, x: Array, y: Array) -> None:
    model = clone(estimator).fit(x[:120], y[:120])
    ours = CalibratedClassifier(FrozenEstimator(model), TemperatureScaling()).fit(x[120:], y[120:])

    def said(rows: Array) -> Any:
        if isinstance(estimator, GaussianNB):
            return model.predict_proba(rows)
        return Logits(model.decision_function(rows))

    codes = np.searchsorted(model.classes_, y[120:])
    by_hand = TemperatureScaling().fit(said(x[120:]), codes).predict_proba(said(x))
    assert np.array_equal(ours.predict_proba(x), by_hand)
    assert np.array_equal(ours.predict(x), model.classes_[by_hand.argmax(axis=1)])


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [LogisticRegression(), SVC()])
@pytest.mark.parametrize(("x", "y"), [(X3, CODES), (X2, Y2)])
def test_temperatures_equal_scikit_learns(estimator: Any, x: Array, y: Array) -> None:
    frozen = FrozenEstimator(clone(estimator).fit(x[:120], y[:120]))
    for one, ensemble in ((frozen, "auto"), (estimator, False)):
        theirs = CalibratedClassifierCV(one, method="temperature", cv=5, ensemble=ensemble)
        ours = CalibratedClassifier(one, TemperatureScaling())
        expected = theirs.fit(x[120:], y[120:]).predict_proba(x)
        assert ours.fit(x[120:], y[120:]).predict_proba(x) == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("estimator", [LogisticRegression(), SVC(), GaussianNB()])
@pytest.mark.parametrize(("x", "y"), [(X3, Y3), (X2, Y2)])
def test_cross_fitted_is_held_out_outputs_and_a_refit(estimator: Any, x: Array, y: Array) -> None:
    folds = StratifiedKFold(4, shuffle=True, random_state=1)
    ours = CalibratedClassifier(estimator, TemperatureScaling(), cv=folds).fit(x, y)
    is_score = hasattr(estimator, "decision_function")
    method, kind = ("decision_function", Logits) if is_score else ("predict_proba", Probabilities)
    held_out = cross_val_predict(estimator, x, y, cv=folds, method=method)
    calibrator = TemperatureScaling().fit(kind(held_out), np.searchsorted(np.unique(y), y))
    model = clone(estimator).fit(x, y)
    expected = calibrator.predict_proba(kind(getattr(model, method)(x)))
    assert ours.predict_proba(x) == pytest.approx(expected, abs=1e-9)
    assert ours.classes_.tolist() == np.unique(y).tolist()


@pytest.mark.slow
def test_probabilities_become_calibrated() -> None:
    x, y = load_breast_cancer(return_X_y=True)
    models = [GaussianNB(), CalibratedClassifier(GaussianNB(), TemperatureScaling())]
    raw, calibrated = (cross_val_predict(m, x, y, method="predict_proba") for m in models)
    assert log_loss(y, calibrated) < 0.5 * log_loss(y, raw)


@pytest.mark.parametrize("estimator", [LogisticRegression(), GaussianNB(), SVC()])
def test_columns_stay_aligned_where_a_fold_lacks_a_class(estimator: Any) -> None:
    bees, others = np.flatnonzero(Y3 == "bee"), np.flatnonzero(Y3 != "bee")
    first = np.append(others[::2], bees)  # the other half has no bee to learn from
    splits = [(first, others[1::2]), (others[1::2], others[::2]), (others, bees)]
    with pytest.warns(DubitoWarning, match=f": {bees.size} held-out rows are not used"):
        ours = CalibratedClassifier(estimator, TemperatureScaling(), cv=splits).fit(X3, Y3)

    parts, labels = [], []
    for train, test in splits[:2]:
        model = clone(estimator).fit(X3[train], Y3[train])
        if isinstance(estimator, GaussianNB):
            frame = pd.DataFrame(model.predict_proba(X3[test]), columns=model.classes_)
            frame = np.log(frame.reindex(columns=ours.classes_).clip(1e-12).fillna(1e-12))
        elif len(model.classes_) == 2:
            scores = model.decision_function(X3[test])
            frame = pd.DataFrame({"ant": 0.0, "cat": scores})
            frame.insert(1, "bee", frame.min(axis=1) + np.log(1e-12))
        else:
            frame = pd.DataFrame(model.decision_function(X3[test]), columns=model.classes_)
        parts.append(frame.to_numpy())
        labels.append(np.searchsorted(ours.classes_, Y3[test]))
    by_hand = TemperatureScaling().fit(Logits(np.concatenate(parts)), np.concatenate(labels))
    assert ours.calibrator_.temperature_ == pytest.approx(by_hand.temperature_)
    assert ours.predict_proba(X3).shape == (240, 3)


def test_a_fold_of_one_class_works_where_the_estimator_does() -> None:
    ants = np.flatnonzero(Y3 == "ant")
    splits = [(ants[::2], ants[1::2]), *StratifiedKFold(2).split(X3, Y3)]
    tree = DecisionTreeClassifier(max_depth=2, random_state=0)
    model = CalibratedClassifier(tree, TemperatureScaling(), cv=splits).fit(X3, Y3)
    assert model.score(X3, Y3) > 0.5


@pytest.mark.slow
def test_a_class_of_a_single_row_keeps_its_column() -> None:
    y = Y3.copy()
    y[0] = "yak"
    with pytest.warns() as caught:
        model = CalibratedClassifier(calibrator=TemperatureScaling()).fit(X3, y)
    assert [w.category for w in caught] == [UserWarning, DubitoWarning]
    assert caught[1].filename == __file__
    # The row that no fold could learn must not make the rest look overconfident.
    rest = CalibratedClassifier(calibrator=TemperatureScaling()).fit(X3[1:], Y3[1:])
    assert model.calibrator_.temperature_ == pytest.approx(rest.calibrator_.temperature_, rel=0.1)
    assert model.predict_proba(X3).shape == (240, 4)


def test_splits_without_usable_training_rows_raise() -> None:
    model = CalibratedClassifier(GaussianNB(), TemperatureScaling(), cv=[])
    with pytest.raises(BadValueError, match=r"got 0 splits with no such row\. Pass cv=Stratified"):
        model.fit(X3, Y3)
    ants, others = np.flatnonzero(Y3 == "ant"), np.flatnonzero(Y3 != "ant")
    with pytest.raises(BadValueError, match="hold out rows of classes that it trains on"):
        model.set_params(cv=[(others, ants)]).fit(X3, Y3)


def test_a_frozen_model_says_which_classes_there_are() -> None:
    frozen = FrozenEstimator(LogisticRegression().fit(X3, Y3))
    few = Y3 != "cat"
    model = CalibratedClassifier(frozen, TemperatureScaling()).fit(X3[few], Y3[few])
    assert model.classes_.tolist() == ["ant", "bee", "cat"]
    assert model.calibrator_.classes_ == ("ant", "bee", "cat")
    assert model.estimator_ is frozen
    message = r"TemperatureScaling: `y` must be one of the classes \('ant', 'bee', 'cat'\)"
    with pytest.raises(BadValueError, match=message):
        model.fit(X3[:2], ["ant", "yak"])


@pytest.mark.slow
def test_one_vs_one_scores_raise() -> None:
    pairs = SVC(decision_function_shape="ovo")
    piped = make_pipeline(StandardScaler(), pairs)
    frozen = FrozenEstimator(clone(piped).fit(X3, Y3))
    for one in (pairs, piped, frozen, GridSearchCV(piped, {"svc__C": [1]}, cv=2)):
        with pytest.raises(
            BadValueError, match=r"got scores of pairs .*\. Set decision_function_sh"
        ):
            CalibratedClassifier(one, TemperatureScaling()).fit(X3, Y3)
    model = CalibratedClassifier(pairs, TemperatureScaling()).fit(X2, Y2)  # two make one pair
    same = CalibratedClassifier(SVC(), TemperatureScaling()).fit(X2, Y2)
    assert np.array_equal(model.predict_proba(X2), same.predict_proba(X2))


def test_invalid_arguments_raise() -> None:
    bad: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"estimator": LinearRegression()}, BadTypeError, "must be a scikit-learn classifier"),
        ({"estimator": IsolationForest()}, BadTypeError, "got IsolationForest"),
        ({"estimator": GaussianNB}, BadTypeError, "got <class"),
        ({"estimator": "svc"}, BadTypeError, "got 'svc'"),
        ({"estimator": OneColumn()}, BadValueError, r"got outputs of shape \(\d+, 1\)"),
        ({"estimator": FrozenEstimator(SVC())}, NotFittedError, "not fitted"),
        ({"calibrator": "isotonic"}, BadTypeError, r"got 'isotonic'\. Pass TemperatureScaling\(\)"),
        ({"calibrator": LogisticRegression()}, BadTypeError, "a calibrator of dubito"),
        ({"cv": "prefit"}, BadValueError, r"Wrap a fitted model in FrozenEstimator\(model\)"),
        ({"cv": 1}, ValueError, "n_splits=2 or more"),
        ({"cv": 2.5}, ValueError, "Expected `cv` as an integer"),
    ]
    for settings, error, text in bad:
        with pytest.raises(error, match=text):
            CalibratedClassifier(**{"calibrator": TemperatureScaling(), **settings}).fit(X3, Y3)


class OneColumn(DecisionTreeClassifier):
    def predict_proba(self, X: Any, check_input: bool = True) -> Array:  # noqa: N803
        return np.asarray(super().predict_proba(X)[:, 1:2])


def test_a_model_without_probabilities_or_scores_raises() -> None:
    hard = VotingClassifier([("bayes", GaussianNB())])
    with pytest.raises(
        BadTypeError, match=r"must have decision_function or predict_proba, got Voting"
    ):
        CalibratedClassifier(hard, TemperatureScaling()).fit(X2, Y2)


def test_a_single_class_raises() -> None:
    with pytest.raises(BadValueError, match=r"at least 2 classes, got 1 class, \['ant'\]"):
        CalibratedClassifier(GaussianNB(), TemperatureScaling()).fit(X3, ["ant"] * len(X3))


@pytest.mark.slow
def test_weights_go_to_both() -> None:
    weight = np.random.default_rng(0).uniform(0.1, 3, 240)
    folds = StratifiedKFold(3)
    ours = CalibratedClassifier(LogisticRegression(), TemperatureScaling(), cv=folds)
    ours.fit(X3, Y3, sample_weight=weight.tolist())
    scores = np.empty((240, 3))
    for train, test in folds.split(X3, Y3):
        model = LogisticRegression().fit(X3[train], Y3[train], weight[train])
        scores[test] = model.decision_function(X3[test])
    calibrator = TemperatureScaling().fit(Logits(scores, NAMES[[2, 0, 1]]), Y3, weight)
    model = LogisticRegression().fit(X3, Y3, weight)
    expected = calibrator.predict_proba(Logits(model.decision_function(X3)))
    assert ours.predict_proba(X3) == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_weights_reach_the_last_step_of_a_pipeline() -> None:
    weight = np.random.default_rng(0).uniform(0.1, 3, 240)
    pipe = Pipeline([("all", "passthrough"), ("model", LogisticRegression())])
    plain, piped = (
        CalibratedClassifier(one, TemperatureScaling()).fit(X3, Y3, weight)
        for one in (LogisticRegression(), pipe)
    )
    assert np.array_equal(plain.predict_proba(X3), piped.predict_proba(X3))
    with config_context(enable_metadata_routing=True):
        asked = Pipeline([("model", LogisticRegression().set_fit_request(sample_weight=True))])
        routed = CalibratedClassifier(asked, TemperatureScaling()).fit(X3, Y3, weight)
    assert np.array_equal(plain.predict_proba(X3), routed.predict_proba(X3))


def test_weights_that_only_the_calibrator_can_use_warn() -> None:
    for one in (KNeighborsClassifier(), make_pipeline(StandardScaler(), KNeighborsClassifier())):
        model = CalibratedClassifier(one, TemperatureScaling())
        with pytest.warns(DubitoWarning, match=r"takes no sample_weight; only the cal") as caught:
            model.fit(X3, Y3, np.ones(240))
        assert caught[0].filename == __file__
    with pytest.raises(BadValueError, match="CalibratedClassifier: `sample_weight`"):
        model.fit(X3, Y3, np.ones(239))


@pytest.mark.slow
def test_groups_stay_whole() -> None:
    groups = np.arange(240) // 4
    by_number = CalibratedClassifier(calibrator=TemperatureScaling(), cv=3)
    for splitter in (StratifiedGroupKFold(3), GroupKFold(3)):
        ours = clone(by_number).set_params(cv=splitter).fit(X3, Y3, groups=groups)
        splits = iter(list(splitter.split(X3, Y3, groups)))
        same = clone(by_number).set_params(cv=splits).fit(X3, Y3)
        assert np.array_equal(ours.predict_proba(X3), same.predict_proba(X3))
        if isinstance(splitter, StratifiedGroupKFold):
            by_number.fit(X3, Y3, groups=groups)
            assert np.array_equal(ours.predict_proba(X3), by_number.predict_proba(X3))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        by_number.fit(X3, Y3, groups=groups[1:])


@pytest.mark.slow
def test_fewer_groups_than_folds_make_fewer_folds() -> None:
    groups = np.arange(240) % 2
    few = CalibratedClassifier(calibrator=TemperatureScaling(), cv=5).fit(X3, Y3, groups=groups)
    two = clone(few).set_params(cv=StratifiedGroupKFold(2)).fit(X3, Y3, groups=groups)
    assert np.array_equal(few.predict_proba(X3), two.predict_proba(X3))
    with pytest.raises(
        BadValueError, match="CalibratedClassifier: `groups` must have at least 2 different"
    ):
        few.fit(X3, Y3, groups=np.zeros(240))


class KeepsGroups(BaseCalibrator):
    def fit(
        self, outputs: Any, y: Any = None, sample_weight: Any = None, groups: Any = None
    ) -> Any:
        super().fit(outputs, y, sample_weight)
        self.kept = groups
        return self

    def _learn(self, shards: Shards) -> None:
        self.n_rows_ = shards.sum(len)

    def _logits(self, outputs: Logits | Probabilities) -> Array:
        return outputs.array

    def _describe(self) -> str:
        return f"{self.n_rows_} rows"


@pytest.mark.slow
def test_groups_reach_a_calibrator_that_takes_them() -> None:
    groups = (np.arange(240) // 4).tolist()
    folds = GroupKFold(3)
    model = CalibratedClassifier(calibrator=KeepsGroups(), cv=folds).fit(X3, Y3, groups=groups)
    held_out = np.concatenate([test for _, test in folds.split(X3, Y3, groups)])
    assert np.array_equal(model.calibrator_.kept, held_out // 4)
    frozen = CalibratedClassifier(FrozenEstimator(SVC().fit(X3, Y3)), KeepsGroups())
    assert frozen.fit(X3, Y3, groups=groups).calibrator_.kept.tolist() == groups
    assert frozen.fit(X3, Y3).calibrator_.kept is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "cv",
    [
        RepeatedStratifiedKFold(n_splits=2, n_repeats=2, random_state=0),
        KFold(3, shuffle=True, random_state=0),
        LeaveOneOut(),
        [(np.arange(240) < 200, np.arange(240) >= 200)],
    ],
)
def test_any_splitter_will_do(cv: Any) -> None:
    model = CalibratedClassifier(GaussianNB(), TemperatureScaling(), cv=cv).fit(X3, Y3)
    usual = CalibratedClassifier(GaussianNB(), TemperatureScaling()).fit(X3, Y3)
    assert model.predict_proba(X3) == pytest.approx(usual.predict_proba(X3), abs=0.15)


@pytest.mark.slow
def test_searches_and_pipelines_take_it() -> None:
    inner = CalibratedClassifier(LogisticRegression(), TemperatureScaling(), cv=3)
    outer = make_pipeline(StandardScaler(), inner)
    grid = {
        "calibratedclassifier__estimator__C": [1e-6, 1.0],
        "calibratedclassifier__calibrator__objective": ["log_loss", "ece"],
    }
    search = GridSearchCV(outer, grid, scoring="neg_log_loss", cv=2).fit(X3, Y3)
    assert search.best_params_["calibratedclassifier__estimator__C"] == 1.0
    assert set(search.best_estimator_.classes_) == set(NAMES)
    inside = CalibratedClassifier(GridSearchCV(SVC(), {"C": [1, 2]}, cv=2), TemperatureScaling())
    assert inside.fit(X3, Y3).score(X3, Y3) > 0.7


@pytest.mark.slow
def test_it_pickles_and_clones() -> None:
    model = CalibratedClassifier(SVC(), TemperatureScaling(objective="ece")).fit(X3, Y3)
    again = pickle.loads(pickle.dumps(model))
    assert np.array_equal(again.predict_proba(X3), model.predict_proba(X3))
    fresh = clone(model)
    assert not hasattr(fresh, "classes_")
    assert not hasattr(fresh, "n_features_in_")
    assert fresh.calibrator.objective == "ece"


def test_fit_leaves_what_it_was_given_alone() -> None:
    estimator, calibrator, weight = LogisticRegression(), TemperatureScaling(), np.ones(240)
    CalibratedClassifier(estimator, calibrator).fit(X3, Y3, weight)
    assert not hasattr(estimator, "classes_")
    assert not hasattr(calibrator, "n_classes_")
    assert weight.flags.writeable


@pytest.mark.slow
def test_a_failed_fit_leaves_it_unfitted() -> None:
    model = CalibratedClassifier(calibrator=TemperatureScaling(objective="mse"))  # type: ignore[arg-type]
    with pytest.raises(BadValueError, match="objective"):
        model.fit(X3, Y3)
    for method in (model.predict, model.predict_proba):
        with pytest.raises(NotFittedError):
            method(X3)
    with pytest.raises(NotFittedError):
        model.summary()


def containers() -> Iterator[tuple[Any, Any]]:
    yield X3.tolist(), Y3.tolist()
    yield csr_array(X3), Y3
    yield pd.DataFrame(X3, columns=list("abcdef")), pd.Series(Y3, dtype="category")
    yield pd.DataFrame(X3, columns=list("abcdef")), pd.Series(Y3)


@pytest.mark.slow
@pytest.mark.parametrize(("X", "y"), list(containers()))
def test_features_pass_through_as_they_are(X: Any, y: Any) -> None:  # noqa: N803
    model = CalibratedClassifier(calibrator=TemperatureScaling()).fit(X, y)
    usual = CalibratedClassifier(calibrator=TemperatureScaling()).fit(X3, Y3)
    assert model.predict_proba(X) == pytest.approx(usual.predict_proba(X3), abs=1e-4)
    assert model.n_features_in_ == 6
    if isinstance(X, pd.DataFrame):
        assert model.feature_names_in_.tolist() == list("abcdef")
    assert hasattr(model, "feature_names_in_") == isinstance(X, pd.DataFrame)
    assert set(model.predict(X)) <= set(NAMES)


def test_features_need_not_be_numbers() -> None:
    texts = [f"{'wool' if label else 'silk'} {i}" for i, label in enumerate(Y2)]
    noisy = np.where(np.arange(Y2.size) % 10 == 0, 1 - Y2, Y2)

    class Wool(DecisionTreeClassifier):
        def fit(self, X: Any, y: Any) -> Any:  # noqa: N803
            return super().fit([["wool" in one, len(one)] for one in X], y)

        def predict_proba(self, X: Any, check_input: bool = True) -> Array:  # noqa: N803
            return np.asarray(super().predict_proba([["wool" in one, len(one)] for one in X]))

    model = CalibratedClassifier(Wool(max_depth=1), TemperatureScaling()).fit(texts, noisy)
    assert model.score(texts, Y2) == 1


@pytest.mark.slow
def test_precomputed_kernels_are_split_both_ways() -> None:
    kernel = X3 @ X3.T
    model = CalibratedClassifier(SVC(kernel="precomputed"), TemperatureScaling()).fit(kernel, Y3)
    plain = CalibratedClassifier(SVC(kernel="linear"), TemperatureScaling()).fit(X3, Y3)
    assert model.predict_proba(kernel) == pytest.approx(plain.predict_proba(X3), abs=1e-3)


def test_single_precision_stays() -> None:
    model = CalibratedClassifier(RidgeClassifier(), TemperatureScaling())
    x = X3.astype(np.float32)
    assert model.fit(x, Y3).predict_proba(x).dtype == np.float32


def test_true_and_false_are_classes() -> None:
    model = CalibratedClassifier(GaussianNB(), TemperatureScaling()).fit(X2, Y2 == 1)
    assert model.classes_.tolist() == [False, True]
    assert model.predict(X2).dtype == bool


@pytest.mark.slow
def test_folds_in_parallel_give_the_same() -> None:
    model = CalibratedClassifier(SVC(), TemperatureScaling())
    alone = model.fit(X3, Y3).predict_proba(X3)
    with joblib.parallel_config(backend="threading", n_jobs=2):
        assert np.array_equal(model.fit(X3, Y3).predict_proba(X3), alone)


def test_the_summary_is_the_calibrators() -> None:
    model = CalibratedClassifier(GaussianNB(), TemperatureScaling()).fit(X3, Y3)
    assert model.summary() == model.calibrator_.summary()
    assert model.summary().startswith("T = ")


def test_tags_are_the_estimators() -> None:
    def tags(estimator: BaseEstimator) -> Any:
        return CalibratedClassifier(estimator).__sklearn_tags__()

    assert tags(LogisticRegression()).input_tags.sparse
    assert not tags(GaussianNB()).input_tags.sparse
    assert tags(SVC(kernel="precomputed")).input_tags.pairwise
    assert not tags(KNeighborsClassifier()).classifier_tags.multi_label


WEIGHT, GROUP = np.random.default_rng(3).uniform(0.2, 3, 240), np.arange(240) // 4


@pytest.fixture
def routing() -> Iterator[None]:
    with config_context(enable_metadata_routing=True):
        yield


@pytest.mark.usefixtures("routing")
def test_metadata_is_routed_to_whoever_requests_it() -> None:
    plain = LogisticRegression().set_fit_request(sample_weight=False)
    asking = LogisticRegression().set_fit_request(sample_weight=True)
    weighted, unweighted = (
        CalibratedClassifier(one, TemperatureScaling(), cv=3).fit(X3, Y3, sample_weight=WEIGHT)
        for one in (asking, plain)
    )
    by_hand = LogisticRegression()
    assert np.array_equal(weighted.estimator_.coef_, by_hand.fit(X3, Y3, WEIGHT).coef_)
    assert np.array_equal(unweighted.estimator_.coef_, by_hand.fit(X3, Y3).coef_)
    aliased = LogisticRegression().set_fit_request(sample_weight="importance")
    found = CalibratedClassifier(aliased, TemperatureScaling(), cv=3).fit(X3, Y3, importance=WEIGHT)
    assert np.array_equal(found.estimator_.coef_, weighted.estimator_.coef_)
    default = CalibratedClassifier(None, TemperatureScaling(), cv=3).fit(X3, Y3, WEIGHT)
    assert np.array_equal(default.predict_proba(X3), weighted.predict_proba(X3))
    with pytest.raises(UnsetMetadataPassedError, match=r"LogisticRegression\.fit"):
        CalibratedClassifier(LogisticRegression()).fit(X3, Y3, sample_weight=WEIGHT)
    with pytest.raises(TypeError, match="unexpected argument"):
        CalibratedClassifier(asking).fit(X3, Y3, other=WEIGHT)


@pytest.mark.usefixtures("routing")
def test_a_frozen_classifier_needs_no_request() -> None:
    frozen = FrozenEstimator(LogisticRegression().fit(X3, Y3))
    found = CalibratedClassifier(frozen, TemperatureScaling()).fit(X3, Y3, WEIGHT)
    outputs = Logits(frozen.decision_function(X3), frozen.classes_)
    expected = TemperatureScaling().fit(outputs, Y3, WEIGHT)
    assert found.calibrator_.temperature_ == expected.temperature_


@pytest.mark.usefixtures("routing")
def test_groups_are_routed_to_the_splitter() -> None:
    by_number, by_splitter = (
        CalibratedClassifier(LogisticRegression(), TemperatureScaling(), cv=cv).fit(
            X3, Y3, groups=GROUP
        )
        for cv in (3, StratifiedGroupKFold(3))
    )
    assert np.array_equal(by_number.predict_proba(X3), by_splitter.predict_proba(X3))
    with pytest.raises(ValueError, match="'groups' parameter should not be None"):
        CalibratedClassifier(cv=GroupKFold(3)).fit(X3, Y3)


@pytest.mark.slow
@pytest.mark.usefixtures("routing")
def test_metadata_goes_through_pipelines_searches_and_cross_validation() -> None:
    inner = LogisticRegression().set_fit_request(sample_weight=True)
    model = CalibratedClassifier(inner, TemperatureScaling(), cv=2)
    model.set_fit_request(sample_weight=True, groups=True).set_score_request(sample_weight=True)
    piped = make_pipeline(StandardScaler().set_fit_request(sample_weight=False), model)
    params = {"sample_weight": WEIGHT, "groups": GROUP}
    cv = GroupKFold(2)
    found = cross_validate(piped, X3, Y3, params=params, cv=cv, return_estimator=True)
    for (train, test), one, score in zip(
        cv.split(X3, Y3, GROUP), found["estimator"], found["test_score"], strict=True
    ):
        scaler = StandardScaler().fit(X3[train])
        alone = CalibratedClassifier(inner, TemperatureScaling(), cv=2).fit(
            scaler.transform(X3[train]), Y3[train], WEIGHT[train], GROUP[train]
        )
        assert np.array_equal(one.predict_proba(X3), alone.predict_proba(scaler.transform(X3)))
        assert score == alone.score(scaler.transform(X3[test]), Y3[test], WEIGHT[test])
    grid = {"calibratedclassifier__estimator__C": [0.1, 1]}
    search = GridSearchCV(piped, grid, cv=cv).fit(X3, Y3, **params)
    assert search.best_estimator_.score(X3, Y3, sample_weight=WEIGHT) > 0.5


def test_other_metadata_without_routing_raises() -> None:
    with pytest.raises(BadTypeError, match="enable_metadata_routing=True"):
        CalibratedClassifier().fit(X3, Y3, importance=WEIGHT)
