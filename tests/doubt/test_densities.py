"""Class densities, beside scikit-learn's discriminants and SciPy's normal distributions."""

import re
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.testing import assert_array_equal as same
from scipy import special, stats
from sklearn.discriminant_analysis import (
    LinearDiscriminantAnalysis,
    QuadraticDiscriminantAnalysis,
)
from sklearn.naive_bayes import GaussianNB

from dubito.arrays import as_count
from dubito.doubt import ClassConditionalDensity, uncertainty_scores
from dubito.errors import BadValueError, UnfittedError

RNG = np.random.default_rng(6)
Y = RNG.choice(3, 400, p=[0.6, 0.3, 0.1])
X = RNG.normal(size=(400, 4)) @ RNG.normal(size=(4, 4)) + RNG.normal(0, 1.5, (3, 4))[Y]
NEW = RNG.normal(0, 3, (60, 4))
KINDS: Any = ("shared", "per_class", "diagonal")


def bessel(y: Any) -> Any:
    """Return how much larger quadratic covariances are where scikit-learn divides by n - 1."""
    counts = np.bincount(y)
    return counts / (counts - 1)


def test_linear_posteriors_are_scikit_learns() -> None:
    peer = LinearDiscriminantAnalysis(solver="lsqr").fit(X, Y)
    found = ClassConditionalDensity(shrinkage=0.0).fit(X, Y)
    close(found.posteriors(NEW).array, peer.predict_proba(NEW), rtol=1e-7, atol=1e-12)
    close(found.covariance_, peer.covariance_)
    close(found.priors_, peer.priors_)
    close(found.means_, peer.means_)


def test_quadratic_posteriors_are_scikit_learns() -> None:
    peer = QuadraticDiscriminantAnalysis(store_covariance=True).fit(X, Y)
    found = ClassConditionalDensity(covariance="per_class", shrinkage=0.0).fit(X, Y)
    ratio = bessel(Y)[:, None, None]
    is_unbiased = not np.allclose(found.covariance_, peer.covariance_)
    close(found.covariance_ * (ratio if is_unbiased else 1), peer.covariance_, rtol=1e-9)
    found.covariance_ = np.stack(peer.covariance_)
    close(found.posteriors(NEW).array, peer.predict_proba(NEW), rtol=1e-7, atol=1e-12)


def test_naive_posteriors_are_scikit_learns() -> None:
    peer = GaussianNB(var_smoothing=0).fit(X, Y)
    found = ClassConditionalDensity(covariance="diagonal", shrinkage=0.0).fit(X, Y)
    close(found.posteriors(NEW).array, peer.predict_proba(NEW), rtol=1e-7, atol=1e-12)
    close(found.covariance_, peer.var_)


@pytest.mark.parametrize("covariance", KINDS)
def test_densities_are_sums_of_scipys(covariance: Any) -> None:
    found = ClassConditionalDensity(covariance=covariance).fit(X, Y)
    full: Any = {
        "shared": np.stack([found.covariance_] * 3),
        "per_class": found.covariance_,
        "diagonal": [np.diag(one) if one.ndim == 1 else one for one in found.covariance_],
    }[covariance]
    logs = [stats.multivariate_normal(found.means_[k], full[k]).logpdf(NEW) for k in range(3)]
    likelihoods = np.stack(logs, axis=1)
    close(found.log_likelihoods(NEW), likelihoods, rtol=1e-9)
    joint = likelihoods + np.log(np.bincount(Y) / 400)
    close(found.log_density(NEW), special.logsumexp(joint, axis=1), rtol=1e-9)
    same(found.score(NEW), -found.log_density(NEW))
    close(found.posteriors(NEW).array, special.softmax(joint, axis=1), rtol=1e-7, atol=1e-14)


def test_posteriors_carry_the_names_of_the_classes() -> None:
    found = ClassConditionalDensity().fit(X, np.array(["cat", "dog", "fox"])[Y]).posteriors(NEW)
    assert found.classes == ("cat", "dog", "fox")
    close(found.array.sum(axis=1), 1)
    assert found.array.shape == (60, 3)


@pytest.mark.parametrize("covariance", KINDS)
def test_one_class_has_a_density_and_a_certain_posterior(covariance: Any) -> None:
    plain, named = (
        ClassConditionalDensity(covariance=covariance).fit(X, y) for y in (None, ["a"] * 400)
    )
    same(plain.score(NEW), named.score(NEW))
    assert (plain.classes_, named.classes_) == (None, ("a",))
    assert named.posteriors(NEW).array.tolist() == [[1.0]] * 60
    assert plain.sample(3)[1].tolist() == [0, 0, 0]


@pytest.mark.parametrize("covariance", KINDS)
def test_posteriors_far_from_everything_are_still_probabilities(covariance: Any) -> None:
    found = ClassConditionalDensity(covariance=covariance).fit(X, Y)
    array = found.posteriors([[1e6] * 4, [-1e308] * 4]).array
    close(array.sum(axis=1), 1)
    assert np.isfinite(found.log_density([[1e308] * 4])).all()


@pytest.mark.slow
@pytest.mark.parametrize("covariance", KINDS)
def test_samples_are_distributed_as_learned(covariance: Any) -> None:
    found = ClassConditionalDensity(covariance=covariance).fit(X, np.array(["a", "b", "c"])[Y])
    features, labels = found.sample(40_000, random_state=1)
    again = ClassConditionalDensity(covariance=covariance, shrinkage=0.0).fit(features, labels)
    assert again.classes_ == ("a", "b", "c")
    assert np.abs(again.priors_ - found.priors_).max() < 0.01
    spread = np.sqrt(X.var(axis=0))
    assert (np.abs(again.means_ - found.means_) < 0.15 * spread).all()
    size = np.abs(found.covariance_).max()
    assert np.abs(again.covariance_ - found.covariance_).max() < 0.1 * size
    same(features, found.sample(40_000, random_state=1)[0])
    assert not np.array_equal(features, found.sample(40_000, random_state=2)[0])


def test_samples_keep_the_types_of_names() -> None:
    found = ClassConditionalDensity().fit(X, [["a", 1, True][code] if code else "a" for code in Y])
    assert set(map(type, found.sample(200)[1].tolist())) <= {str, int, bool}


def test_settings_are_checked() -> None:
    with pytest.raises(
        BadValueError, match=r"`covariance` .*, got 'full'\. Use covariance='shared'"
    ):
        ClassConditionalDensity(covariance="full").fit(X, Y)  # type: ignore[arg-type]
    with pytest.raises(
        BadValueError,
        match="ClassConditionalDensity: `shrinkage` must be 'auto' or a "
        r"number between 0 and 1, got 2\. Use shrinkage='auto'",
    ):
        ClassConditionalDensity(shrinkage=2).fit(X, Y)


@pytest.mark.parametrize("method", ["score", "posteriors", "log_density", "log_likelihoods"])
def test_nothing_is_said_before_a_fit(method: str) -> None:
    with pytest.raises(UnfittedError, match=r"ClassConditionalDensity.*fit"):
        getattr(ClassConditionalDensity(), method)(X)
    with pytest.raises(UnfittedError, match=r"ClassConditionalDensity.*fit"):
        ClassConditionalDensity().sample(1)


@pytest.mark.parametrize("n", [0, -1, 1.5, True, None])
def test_numbers_of_draws_are_whole(n: Any) -> None:
    with pytest.raises(
        BadValueError,
        match=re.escape(f"got {n!r}. Use n=1."),
    ):
        as_count(n, "n", "caller")


def test_settings_count_at_the_next_fit_only() -> None:
    found = ClassConditionalDensity("per_class").fit(X, Y).set_params(covariance="diagonal")
    same(found.score(NEW), ClassConditionalDensity("per_class").fit(X, Y).score(NEW))


@pytest.mark.parametrize("random_state", ["a", -1, 2**32, True, 1.5])
def test_an_invalid_random_state_raises(random_state: Any) -> None:
    density = ClassConditionalDensity().fit(X, Y)
    with pytest.raises(
        BadValueError, match=rf"`random_state` .*, got {random_state!r}\. Pass random_state=0"
    ):
        density.sample(3, random_state=random_state)


def test_a_random_state_is_none_a_seed_or_a_generator() -> None:
    density = ClassConditionalDensity().fit(X, Y)
    first, second = (density.sample(3, random_state=None)[0] for _ in range(2))
    assert not np.array_equal(first, second)
    first, second = (density.sample(3, np.random.RandomState(1))[0] for _ in range(2))
    same(first, second)


def test_one_class_has_no_uncertainty_of_outputs() -> None:
    found = uncertainty_scores(ClassConditionalDensity().fit(X).posteriors(NEW))
    for uncertainty in (found.margin_uncertainty, found.least_confidence, found.entropy):
        assert uncertainty.tolist() == [0.0] * 60
