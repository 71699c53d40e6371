import pickle

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import get_scorer as sklearn_scorer
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from dubito import Logits, measure
from dubito.data import Batch
from dubito.errors import BadTypeError, BadValueError
from dubito.measure import get_scorer
from dubito.measure.intervals import CATALOG

X, NUMBERS = load_iris(return_X_y=True)
Y = np.array(["setosa", "versicolor", "virginica"])[NUMBERS]
RNG = np.random.default_rng(0)
MODEL = make_pipeline(StandardScaler(), LogisticRegression())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "theirs"), [("log_loss", "neg_log_loss"), ("accuracy", "accuracy")]
)
def test_scores_equal_scikit_learns_own(name: str, theirs: str) -> None:
    ours = cross_val_score(MODEL, X, Y, scoring=get_scorer(name))
    assert ours == pytest.approx(cross_val_score(MODEL, X, Y, scoring=sklearn_scorer(theirs)))


@pytest.mark.parametrize("name", sorted(set(CATALOG) - {"coverage_at_risk"}))
def test_every_metric_scores(name: str) -> None:
    assert np.isfinite(cross_val_score(MODEL, X, Y, scoring=get_scorer(name), cv=3)).all()


@pytest.mark.slow
def test_settings_searches_and_pickles() -> None:
    one = get_scorer("expected_calibration_error", n_bins=5)
    assert pickle.loads(pickle.dumps(one)) == one
    search = GridSearchCV(MODEL, {"logisticregression__C": [0.01, 1.0]}, scoring=one, cv=3)
    assert search.fit(X, Y).best_params_ == {"logisticregression__C": 1.0}


def test_the_error_for_an_unknown_name_lists_the_known_ones() -> None:
    with pytest.raises(BadValueError, match="one of accuracy, area_under"):
        get_scorer("ece")


def test_settings_that_would_fail_inside_a_search_raise_before_it() -> None:
    with pytest.raises(BadValueError, match="must be arguments of log_loss"):
        get_scorer("log_loss", bins=3)
    with pytest.raises(BadTypeError, match="must have predict_proba, got SVC"):
        get_scorer("log_loss")(SVC().fit(X, Y), X, Y)


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_a_metric_of_a_batch_equals_its_function(name: str) -> None:
    settings = {"risk": 0.6} if name == "coverage_at_risk" else {}
    y, outputs = RNG.integers(0, 4, 200), Logits(RNG.normal(size=(200, 4)))
    weight = RNG.random(200)
    batch = Batch.of(y, outputs, sample_weight=weight)
    of_batch = CATALOG[name].function(None, batch, **settings)
    function = getattr(measure, name)
    assert of_batch == pytest.approx(function(y, outputs, sample_weight=weight, **settings))


@pytest.mark.parametrize("name", sorted(CATALOG))
def test_better_outputs_score_better(name: str) -> None:
    settings = {"risk": 0.3} if name == "coverage_at_risk" else {}
    rng = np.random.default_rng(1)
    logits = rng.normal(0, 2, (3000, 4))
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    y = np.minimum((p.cumsum(axis=1) < rng.random((3000, 1))).sum(axis=1), 3)
    noise = rng.normal(0, 4, (3000, 4))
    good, bad = (CATALOG[name].function(y, Logits(z), **settings) for z in (logits, logits + noise))
    assert (good > bad) == CATALOG[name].is_higher_better
