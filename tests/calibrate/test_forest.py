"""Forest calibration: what leaves count, pulled towards vector scaling."""

import json
import re
from typing import Any

import numpy as np
import pytest

from dubito import Logits, Probabilities
from dubito.calibrate import BaseCalibrator, ForestCalibration, VectorScaling
from dubito.errors import BadValueError
from dubito.measure import log_loss

RNG = np.random.default_rng(0)
P = RNG.random(3000)
Y = RNG.random(3000) < np.where((P > 0.3) & (P < 0.8), 0.8, 0.1)  # high in the middle alone


def test_it_follows_what_no_rising_curve_can() -> None:
    fitted = ForestCalibration().fit(P[:2000], Y[:2000])
    known = np.where((P > 0.3) & (P < 0.8), 0.8, 0.1)
    forest = log_loss(Y[2000:], fitted.transform(P[2000:]))
    vector = log_loss(Y[2000:], VectorScaling(1.0).fit(P[:2000], Y[:2000]).transform(P[2000:]))
    best = log_loss(Y[2000:], Probabilities(known[2000:]))
    assert forest < best + 0.3 * (vector - best)


def test_leaves_too_large_to_split_are_the_pulled_class_counts() -> None:
    fitted = ForestCalibration(n_estimators=3, min_samples_leaf=2000, prior_weight=4.0).fit(
        P[:2000], Y[:2000]
    )
    prior = VectorScaling(regularization=1.0).fit(P[:2000], Y[:2000]).predict_proba(P[2000:])
    counts = np.bincount(Y[:2000].astype(int))
    assert fitted.predict_proba(P[2000:]) == pytest.approx((counts + 4 * prior) / 2004, rel=1e-9)
    assert fitted.column_.tolist() == [-1, -1, -1]
    again = BaseCalibrator.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert (again.predict_proba(P) == fitted.predict_proba(P)).all()


@pytest.mark.slow
def test_a_strong_pull_is_vector_scaling() -> None:
    fitted = ForestCalibration(prior_weight=1e12).fit(P[:500], Y[:500])
    prior = VectorScaling(regularization=1.0).fit(P[:500], Y[:500])
    assert fitted.predict_proba(P) == pytest.approx(prior.predict_proba(P), abs=1e-6)


def test_no_pull_stays_finite() -> None:
    fitted = ForestCalibration(prior_weight=0).fit(P[:500], Y[:500])
    assert np.isfinite(fitted.transform(P).array).all()


def test_more_rows_than_it_may_look_at_are_sampled() -> None:
    fitted = ForestCalibration(n_estimators=2, max_samples=100).fit(P, Y)
    assert fitted.weights_.sum() == pytest.approx(200)
    other = ForestCalibration(n_estimators=2, max_samples=100, random_state=1).fit(P, Y)
    assert fitted.threshold_.tolist() != other.threshold_.tolist()


@pytest.mark.slow
def test_it_comes_back_from_json_to_the_last_digit() -> None:
    logits = RNG.normal(size=(400, 3))
    y = (logits + RNG.gumbel(size=logits.shape)).argmax(axis=1)
    fitted = ForestCalibration(n_estimators=4).fit(Logits(logits), y)
    again = BaseCalibrator.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert (again.predict_proba(Logits(logits)) == fitted.predict_proba(Logits(logits))).all()


def test_it_says_what_it_is() -> None:
    words = ForestCalibration(n_estimators=4).fit(P[:500], Y[:500]).summary()
    assert words.startswith("4 trees of about ")
    assert words.endswith("leaves, on vector scaling")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"n_estimators": 0},
            "ForestCalibration: `n_estimators` must be an integer of at least 1, got 0.",
        ),
        ({"n_estimators": 2.5}, "must be an integer of at least 1, got 2.5. Use n_estimators=12."),
        ({"max_samples": True}, "must be an integer of at least 2, got True."),
        (
            {"min_samples_leaf": -1},
            "ForestCalibration: `min_samples_leaf` must be a finite number of at least 0",
        ),
        (
            {"prior_weight": np.nan},
            "ForestCalibration: `prior_weight` must be a finite number of at least 0",
        ),
    ],
)
def test_invalid_settings_raise(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadValueError, match=re.escape(message)):
        ForestCalibration(**settings).fit(P[:50], Y[:50])
