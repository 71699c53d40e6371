"""A scikit-learn classifier whose answers cost least, checked by brute force."""

import pickle
import re
from typing import Any

import numpy as np
import pandas
import pytest
from numpy.typing import NDArray
from sklearn import config_context
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import (
    GridSearchCV,
    GroupKFold,
    StratifiedKFold,
    cross_val_predict,
    cross_val_score,
    cross_validate,
)
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.estimator_checks import check_estimator

from dubito.calibrate import CalibratedClassifier, TemperatureScaling
from dubito.decide import CostMatrix, CostSensitiveClassifier
from dubito.errors import BadTypeError, BadValueError
from tests.decide.growing import growing

Array = NDArray[Any]

NAMES = np.array(["ant", "bee", "cat"])
X, CODES = make_classification(240, 6, n_informative=4, n_classes=3, flip_y=0.2, random_state=0)
Y = NAMES[CODES]
TABLE = np.array([[0, 4, 2], [1, 0, 5], [3, 1, 0]])
COSTS = CostMatrix(TABLE, classes=NAMES.tolist())


def fitted(costs: CostMatrix | None = COSTS) -> CostSensitiveClassifier:
    return CostSensitiveClassifier(GaussianNB(), costs, TemperatureScaling()).fit(X, Y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dubito.errors.BoundWarning")  # some checks fit noise
@pytest.mark.filterwarnings("ignore::dubito.errors.SingleClassWarning")
@pytest.mark.parametrize(
    "model",
    [
        CostSensitiveClassifier(calibrator=TemperatureScaling()),
        CostSensitiveClassifier(DecisionTreeClassifier(random_state=0), None, TemperatureScaling()),
    ],
)
def test_scikit_learns_own_checks_pass(model: CostSensitiveClassifier) -> None:
    results = check_estimator(model, on_skip=None, on_fail=None)
    # The one of array libraries other than NumPy runs only in a process set up for them.
    odd = {r["check_name"] for r in results if r["status"] != "passed"} - {"check_array_api_input"}
    assert odd == set(), next(r["exception"] for r in results if r["check_name"] in odd)


def test_answers_cost_least() -> None:
    model = fitted()
    p = model.predict_proba(X)
    calibrated = CalibratedClassifier(GaussianNB(), TemperatureScaling()).fit(X, Y)
    assert np.array_equal(p, calibrated.predict_proba(X))
    assert np.array_equal(model.predict(X), NAMES[(p @ TABLE.T).argmin(axis=1)])
    assert model.classes_.tolist() == NAMES.tolist()
    assert (model.predict(X) != NAMES[p.argmax(axis=1)]).any()
    assert model.summary() == calibrated.summary()


def test_without_costs_it_is_the_calibrated_classifier() -> None:
    model = fitted(None)
    plain = CalibratedClassifier(GaussianNB(), TemperatureScaling()).fit(X, Y)
    assert np.array_equal(model.predict(X), plain.predict(X))
    assert model.score(X, Y) == pytest.approx(plain.score(X, Y) - 1)  # less its errors


def test_classes_of_costs_are_found_by_name() -> None:
    order = [2, 0, 1]
    turned = CostMatrix(TABLE[:, order], NAMES.tolist(), NAMES[order].tolist())
    assert np.array_equal(fitted(turned).predict(X), fitted().predict(X))


def test_one_may_be_asked() -> None:
    model = fitted(COSTS.with_reject(0.7, name="ask"))
    expected = np.column_stack([model.predict_proba(X) @ TABLE.T, np.full(240, 0.7)])
    answers = np.append(NAMES, "ask")[expected.argmin(axis=1)]
    assert np.array_equal(model.predict(X), answers)
    assert 0 < (answers == "ask").mean() < 1


def test_costs_may_grow_with_amounts() -> None:
    rate = np.array([[0, 1, 0], [0, 0, 2], [3, 0, 0]])
    model = fitted(CostMatrix(growing(TABLE, rate), classes=NAMES.tolist()))
    row_costs = np.random.default_rng(0).random(240) * 3
    p = model.predict_proba(X)
    expected = np.stack([(TABLE + a * rate) @ row for a, row in zip(row_costs, p, strict=True)])
    assert np.array_equal(model.predict(X, row_costs), NAMES[expected.argmin(axis=1)])
    with pytest.raises(BadTypeError) as caught:
        model.predict(X)
    assert re.search(r"`row_costs` .*got None\. Pass row_costs=\{'amount': ", str(caught.value))


@pytest.mark.slow
def test_classes_that_are_numbers_stay_numbers() -> None:
    model = CostSensitiveClassifier(GaussianNB(), CostMatrix.zero_one([0, 1, 2])).fit(X, CODES)
    assert model.predict(X).dtype == CODES.dtype
    asked = CostMatrix.zero_one([0, 1, 2]).with_reject(0.3)
    names = set(CostSensitiveClassifier(GaussianNB(), asked).fit(X, CODES).predict(X))
    assert names == {0, 1, 2, "reject"}


@pytest.mark.slow
def test_it_takes_part_in_pipelines_and_searches() -> None:
    cheap, dear = COSTS.with_reject(0.2), COSTS.with_reject(9.0)
    pipeline = make_pipeline(StandardScaler(), CostSensitiveClassifier(LogisticRegression(), COSTS))
    assert set(pipeline.fit(X, Y).predict(X)) <= set(NAMES)
    search = GridSearchCV(
        CostSensitiveClassifier(LogisticRegression(), calibrator=TemperatureScaling()),
        {"costs": [cheap, dear], "estimator__C": [0.1, 1.0]},
        cv=3,
    )
    search.fit(X, Y)
    assert search.best_params_["costs"] is cheap  # asking at 0.2 costs less than erring
    assert search.n_features_in_ == 6


def test_its_score_is_what_rows_cost() -> None:
    asked = CostMatrix.zero_one([0, 1, 2]).with_reject(0.3)
    model = CostSensitiveClassifier(GaussianNB(), asked, TemperatureScaling()).fit(X, CODES)
    said = model.predict(X)
    paid = [
        0.3 if answer == "reject" else float(answer != y)
        for answer, y in zip(said, CODES, strict=True)
    ]
    assert model.score(X, CODES) == pytest.approx(-np.mean(paid))
    assert np.isfinite(cross_val_score(model, X, CODES, cv=3)).all()


def test_costs_without_names_are_of_numbers_in_their_order() -> None:
    model = CostSensitiveClassifier(GaussianNB(), CostMatrix(TABLE), TemperatureScaling())
    assert np.array_equal(NAMES[model.fit(X, CODES).predict(X)], fitted().predict(X))
    assert model.costs_ is not None
    assert model.costs_.classes == (0, 1, 2)


def test_text_labels_need_names_unless_all_classes_cost_the_same() -> None:
    with pytest.raises(BadValueError) as caught:
        fitted(CostMatrix(TABLE))
    assert str(caught.value) == (
        "CostSensitiveClassifier: `costs` must name its classes, got none for the labels 'ant', "
        "'bee', 'cat'. Use CostMatrix(..., classes=['ant', 'bee', 'cat'])."
    )
    same = fitted(CostMatrix.zero_one(3).with_reject(0.4))
    named = fitted(CostMatrix.zero_one(NAMES.tolist()).with_reject(0.4))
    assert np.array_equal(same.predict(X), named.predict(X))


@pytest.mark.parametrize(("names", "positive"), [(["churn", "stay"], 0), (["no", "yes"], 1)])
def test_the_positive_class_is_stated_and_not_the_last_of_the_alphabet(
    names: list[str], positive: int
) -> None:
    y = np.array(names)[(CODES == 0).astype(int)]
    costs = CostMatrix.from_errors(false_positive=5, false_negative=100, pos_label=names[positive])
    model = CostSensitiveClassifier(GaussianNB(), costs, TemperatureScaling()).fit(X, y)
    p = model.predict_proba(X)[:, positive]
    expected = np.array(names)[np.where(100 * p > 5 * (1 - p), positive, 1 - positive)]
    assert model.predict(X).tolist() == expected.tolist()
    default = CostMatrix.from_errors(false_positive=5, false_negative=100)
    choices = " or ".join(f"pos_label={name!r}" for name in names)
    with pytest.raises(BadValueError, match=f"got 1. Pass {choices}."):
        CostSensitiveClassifier(GaussianNB(), default, TemperatureScaling()).fit(X, y)


META: list[tuple[str, Any]] = [
    ("soft", lambda model: VotingClassifier([("one", model)], voting="soft")),
    ("hard", lambda model: VotingClassifier([("one", model)])),
    ("stacked", lambda model: StackingClassifier([("one", model)], cv=3)),
]


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "make"), META)
@pytest.mark.parametrize("has_costs", [True, False])
def test_meta_estimators_take_it_with_named_classes(kind: str, make: Any, has_costs: bool) -> None:
    model = CalibratedClassifier(GaussianNB(), TemperatureScaling())
    if has_costs:
        model = CostSensitiveClassifier(GaussianNB(), COSTS, TemperatureScaling())
    found = make(model).fit(X, Y).predict(X)
    assert set(found) <= set(NAMES)
    if kind == "hard":
        assert np.array_equal(found, clone(model).fit(X, Y).predict(X))
    elif kind == "soft":
        assert np.array_equal(found, NAMES[clone(model).fit(X, Y).predict_proba(X).argmax(axis=1)])
    p = cross_val_predict(model, X, Y, cv=3, method="predict_proba")
    plain = CalibratedClassifier(GaussianNB(), TemperatureScaling())
    assert np.array_equal(p, cross_val_predict(plain, X, CODES, cv=3, method="predict_proba"))


def test_codes_of_names_that_are_not_sorted_give_probabilities_only() -> None:
    turned = CostMatrix(TABLE, classes=["cat", "ant", "bee"])
    model = CostSensitiveClassifier(GaussianNB(), turned, TemperatureScaling())
    assert cross_val_predict(model, X, Y, cv=3, method="predict_proba").shape == (240, 3)
    with pytest.raises(BadValueError, match=r"`costs` must have the classes \(0, 1, 2\), got"):
        model.fit(X, CODES).predict(X)


def test_groups_and_weights_reach_the_calibrator() -> None:
    groups, weight = np.arange(240) // 12, np.random.default_rng(0).random(240)
    settings: dict[str, Any] = {"calibrator": TemperatureScaling(), "cv": GroupKFold(4)}
    ours = CostSensitiveClassifier(GaussianNB(), **settings).fit(X, Y, weight, groups)
    theirs = CalibratedClassifier(GaussianNB(), **settings).fit(X, Y, weight, groups)
    assert np.array_equal(ours.predict_proba(X), theirs.predict_proba(X))


def test_it_is_cloned_pickled_and_unfitted_at_first() -> None:
    model = fitted()
    restored = pickle.loads(pickle.dumps(model))
    assert np.array_equal(restored.predict(X), model.predict(X))
    fresh = clone(model)
    with pytest.raises(NotFittedError):
        fresh.predict(X)
    with pytest.raises(NotFittedError):
        fresh.summary()
    assert model.n_features_in_ == 6


@pytest.mark.slow
def test_invalid_costs_raise() -> None:
    with pytest.raises(BadTypeError) as caught:
        CostSensitiveClassifier(GaussianNB(), TABLE).fit(X, Y)  # type: ignore[arg-type]
    assert re.search(
        r"`costs` .*got ndarray\. Use CostMatrix\(costs\), or CostMatrix\.from_loss\(loss,",
        str(caught.value),
    )
    with pytest.raises(BadValueError) as wrong:
        CostSensitiveClassifier(GaussianNB(), CostMatrix.zero_one(2)).fit(X, Y)
    assert re.search(r"cost matrix .*got outputs with 3\. Use one cost column", str(wrong.value))


def test_row_costs_and_weights_are_routed_to_fit_and_score() -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(120, 2))
    y, weight = (x[:, 0] + rng.normal(size=120) > 0).astype(int), rng.uniform(0.5, 2, 120)
    amounts = pandas.DataFrame({"amount": rng.uniform(1, 9, 120)})
    costs = CostMatrix([[0, "amount"], [2, 0]], classes=[0, 1]).with_reject(0.5)
    with config_context(enable_metadata_routing=True):
        inner = LogisticRegression().set_fit_request(sample_weight=True)
        model = CostSensitiveClassifier(inner, costs, TemperatureScaling(), cv=2)
        model.set_fit_request(sample_weight=True)
        model.set_score_request(sample_weight=True, row_costs=True)
        params, cv = {"sample_weight": weight, "row_costs": amounts}, StratifiedKFold(2)
        found = cross_validate(model, x, y, params=params, cv=cv)
        scores = []
        for train, test in cv.split(x, y):
            alone = CostSensitiveClassifier(inner, costs, TemperatureScaling(), cv=2)
            alone.fit(x[train], y[train], weight[train])
            scores.append(alone.score(x[test], y[test], weight[test], amounts.iloc[test]))
        assert found["test_score"].tolist() == scores
