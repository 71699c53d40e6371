"""Mixtures of regressions and several binary labels, beside SciPy and plain NumPy."""

import re
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from scipy import stats

from dubito import (
    Members,
    MultiLabel,
    MultiLabelMembers,
    Normal,
    NormalMixture,
    Quantiles,
    RegressionMembers,
    Samples,
    audit,
)
from dubito.arrays import FloatArray
from dubito.doubt import ConformalRegressor, decompose_uncertainty, entropy, vote
from dubito.errors import BadTypeError, BadValueError
from dubito.measure import RegressionAudit, continuous_ranked_probability_score, log_loss

RNG = np.random.default_rng(3)
MEANS, STDS = RNG.normal(0, 2, (3, 40)), RNG.uniform(0.2, 2, (3, 40))
WEIGHTS = RNG.dirichlet([1, 1, 1], 40).T
EQUAL = np.full((3, 40), 1 / 3)
Y = RNG.normal(size=40)
SCALES = {"normal": STDS, "laplace": STDS / np.sqrt(2)}
FAMILIES: dict[str, Any] = {"normal": stats.norm, "laplace": stats.laplace}

Mixture = RegressionMembers | NormalMixture
CASES: list[tuple[Mixture, str, FloatArray]] = [
    (RegressionMembers(MEANS, STDS), "normal", EQUAL),
    (RegressionMembers(MEANS, STDS, "laplace"), "laplace", EQUAL),
    (NormalMixture(MEANS, STDS, WEIGHTS), "normal", WEIGHTS),
]
each_mixture = pytest.mark.parametrize(("mixture", "family", "weights"), CASES)


def reference(method: str, family: str, weights: FloatArray) -> FloatArray:
    found = getattr(FAMILIES[family], method)(Y, MEANS, SCALES[family])
    return np.asarray((weights * found).sum(axis=0))


@each_mixture
def test_density_and_cdf_are_scipys(mixture: Mixture, family: str, weights: FloatArray) -> None:
    close(np.exp(mixture.log_density(Y)), reference("pdf", family, weights), rtol=1e-12)
    close(mixture.cdf(Y), reference("cdf", family, weights), rtol=1e-12)


@each_mixture
def test_moments_follow_the_law_of_total_variance(
    mixture: Mixture, family: str, weights: FloatArray
) -> None:
    mean = (weights * MEANS).sum(axis=0)
    variance = (weights * (STDS**2 + MEANS**2)).sum(axis=0) - mean**2
    close(mixture.mean, mean, rtol=1e-12, atol=1e-12)
    close(mixture.variance, variance, rtol=1e-10)
    close(mixture.normal.mean, mean, rtol=1e-12, atol=1e-12)
    close(mixture.normal.std, np.sqrt(variance), rtol=1e-10)


@each_mixture
def test_quantiles_invert_the_cdf(mixture: Mixture, family: str, weights: FloatArray) -> None:
    levels = [0.001, 0.1, 0.5, 0.9, 0.999]
    found = mixture.quantiles(levels)
    assert isinstance(found, Quantiles)
    assert found.levels.tolist() == levels
    for column, level in zip(found.array.T, levels, strict=True):
        close(mixture.cdf(column), level, rtol=1e-10)


@pytest.mark.parametrize("family", ["normal", "laplace"])
def test_a_single_member_has_the_quantiles_of_its_family(family: Any) -> None:
    one = RegressionMembers(MEANS[:1], STDS[:1], family).quantiles([0.05, 0.7]).array
    for column, level in zip(one.T, (0.05, 0.7), strict=True):
        close(column, FAMILIES[family].ppf(level, MEANS[0], SCALES[family][0]), rtol=1e-12)


@each_mixture
def test_draws_are_distributed_as_the_mixture(
    mixture: Mixture, family: str, weights: FloatArray
) -> None:
    draws = mixture.take(np.arange(3)).sample(4000, random_state=1)
    assert isinstance(draws, Samples)
    assert draws.array.shape == (3, 4000)
    for row, values in enumerate(draws.array):
        one = mixture.take(np.full(values.size, row))
        assert stats.kstest(one.cdf(values), "uniform").pvalue > 1e-3
    assert (mixture.sample(5).array == mixture.sample(5).array).all()


def test_several_targets_of_a_draw_are_of_one_member() -> None:
    far = RegressionMembers([[[-100.0, -100.0]], [[100.0, 100.0]]], np.ones((2, 1, 2)))
    draws = far.sample(200).array
    assert draws.shape == (1, 200, 2)
    assert (np.sign(draws[..., 0]) == np.sign(draws[..., 1])).all()
    assert np.unique(np.sign(draws)).tolist() == [-1, 1]
    assert far.mean.tolist() == [[0, 0]]
    assert far.epistemic_variance.tolist() == [[10000, 10000]]
    assert far.quantiles([0.5]).array.shape == (1, 1, 2)


def test_members_are_decomposed_into_aleatoric_and_epistemic_variance() -> None:
    members = RegressionMembers(MEANS, STDS)
    found = decompose_uncertainty(members)
    close(found.aleatoric, (STDS**2).mean(axis=0), rtol=1e-12)
    close(found.epistemic, MEANS.var(axis=0), rtol=1e-12)
    close(members.aleatoric_variance, found.aleatoric, rtol=1e-12)
    close(members.epistemic_variance, found.epistemic, rtol=1e-12)
    close(found.total, members.variance, rtol=1e-12)
    listed = [Normal(*pair) for pair in zip(MEANS, STDS, strict=True)]
    assert (decompose_uncertainty(listed).epistemic == found.epistemic).all()
    assert RegressionMembers([[0.1]] * 3, [[1.0]] * 3).epistemic_variance.tolist() == [0]
    with pytest.raises(BadValueError, match=r"for a regression, got 'entropy'\. Use by='variance'"):
        decompose_uncertainty(members, by="entropy")
    with pytest.raises(BadValueError, match=r"at least 2 passes .*, got 1\. Use an ensemble"):
        decompose_uncertainty(RegressionMembers(MEANS[:1], STDS[:1]))


def test_what_a_mixture_returns_is_audited() -> None:
    members = RegressionMembers(MEANS, STDS)
    for outputs in (members.normal, members.sample(50), members.quantiles([0.1, 0.5, 0.9])):
        assert audit(Y, outputs).n_rows == 40


def test_there_may_be_no_rows() -> None:
    empty = NormalMixture(MEANS, STDS, WEIGHTS).take(slice(0, 0))
    assert len(empty) == len(empty.normal) == len(empty.sample(3)) == 0
    assert len(RegressionMembers(np.empty((2, 0)), np.empty((2, 0)))) == 0


def test_a_short_form_is_shown() -> None:
    assert repr(CASES[0][0]) == "RegressionMembers(3 passes x 40 rows, float64)"
    assert repr(CASES[2][0]) == "NormalMixture(3 components x 40 rows, float64)"
    assert repr(MultiLabel([[0.5, 1.0]])) == "MultiLabel(1 row x 2 labels, float64)"


LABELS = RNG.uniform(size=(4, 6, 3))


def test_binary_labels_are_one_classifier_each() -> None:
    members = MultiLabelMembers(LABELS)
    assert (members.n_passes, members.n_rows, members.n_labels) == (4, 6, 3)
    close(members.mean.array, LABELS.mean(axis=0), rtol=1e-15)
    found = decompose_uncertainty(members)
    assert found.total.shape == (6, 3)
    for k in range(3):
        one = Members(np.stack([1 - LABELS[..., k], LABELS[..., k]], axis=-1))
        assert (members.label(k).array == one.array).all()
        close(members.mean.label(k).array, one.mean.array, rtol=1e-15)
        close(found.epistemic[:, k], decompose_uncertainty(one).epistemic, rtol=1e-12)
        assert (vote(members).prediction[:, k] == vote(one).prediction).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda: RegressionMembers([1.0], [1.0]),
            "RegressionMembers: `means` must be passes x rows (x targets), got shape (1,). Use "
            "np.stack([first, second, ...]).",
        ),
        (
            lambda: RegressionMembers(np.empty((0, 2)), np.empty((0, 2))),
            "`means` must be passes x rows (x targets), got shape (0, 2). Use np.stack",
        ),
        (
            lambda: RegressionMembers([[1.0, np.nan]], [[1.0, 1.0]]),
            "`means` must be finite, got nan in row 0, column 1. Drop invalid rows",
        ),
        (
            lambda: RegressionMembers([[1.0]], [[1.0, 2.0]]),
            "`stds` must have the shape of `means`, (1, 1), got shape (1, 2). Pass one",
        ),
        (
            lambda: RegressionMembers([[1.0]], [[0.0]]),
            "`stds` must be positive, got 0.0 in row 0, column 0. Set a floor, such as 1e-6.",
        ),
        (
            lambda: RegressionMembers([[1.0]], [[1.0]], "cauchy"),  # type: ignore[arg-type]
            "`family` must be 'normal' or 'laplace', got 'cauchy'. Use family='normal'.",
        ),
        (
            lambda: NormalMixture([[1.0]], [[1.0]], [1.0]),
            "`weights` must be components x rows, (1, 1), got shape (1,). Pass one weight per "
            "component and row.",
        ),
        (
            lambda: NormalMixture([[1.0, 2.0]], [[1.0, 1.0]], [[1.0, 0.5]]),
            "`weights` must have rows that sum to 1, got a sum of 0.5 in row 1. Divide each row",
        ),
        (
            lambda: CASES[0][0].cdf([1.0]),
            "RegressionMembers.cdf: `y` must have the shape (40,) of the rows, got shape (1,). "
            "Pass one target per row.",
        ),
        (
            lambda: CASES[2][0].quantiles([0.5, 0.1]),
            "NormalMixture: `levels` must increase strictly between 0 and 1, got [0.5, 0.1]. Use "
            "levels such as [0.1, 0.5, 0.9].",
        ),
        (
            lambda: MultiLabel([[0.5], [1.5]]),
            "MultiLabel: `array` must be between 0 and 1, got 1.5 in row 1, column 0. Divide "
            "percentages by 100.",
        ),
        (
            lambda: MultiLabelMembers([[0.5]]),
            "MultiLabelMembers: `array` must be passes x rows x labels, got shape (1, 1).",
        ),
    ],
)
def test_what_is_no_mixture_is_reported(make: Any, message: str) -> None:
    with pytest.raises(BadValueError, match=re.escape(message)):
        make()


def test_members_of_a_regression_do_not_vote() -> None:
    with pytest.raises(BadTypeError, match=r"must be Members or an array, got RegressionMembers\."):
        vote(RegressionMembers(MEANS, STDS))


def test_metrics_take_the_normal_of_a_mixture() -> None:
    members = RegressionMembers(MEANS, STDS)
    expected = continuous_ranked_probability_score(Y, members.normal)
    assert continuous_ranked_probability_score(Y, members) == expected
    found = audit(Y, members)
    assert isinstance(found, RegressionAudit)
    assert found.continuous_ranked_probability_score == pytest.approx(expected, rel=1e-12)
    remedy = r"Pass its \.normal \(moment-matched\), \.quantiles\(levels\) or \.sample\(\)"
    with pytest.raises(BadTypeError, match=rf"got RegressionMembers\. {remedy}"):
        ConformalRegressor().fit(members, Y)
    ConformalRegressor().fit(members.normal, Y)


def test_metrics_take_one_label_at_a_time() -> None:
    labels = np.arange(6) % 2
    several = MultiLabel(LABELS[0])
    message = r"got MultiLabel\. Pass its \.label\(k\), one label"
    with pytest.raises(BadTypeError, match=message):
        log_loss(np.zeros((6, 3)), several)
    with pytest.raises(BadTypeError, match=r"Use label_uncertainty\(outputs\)"):
        entropy(several)
    log_loss(labels, several.label(0))
    entropy(several.label(0))
    with pytest.raises(BadValueError, match="must be rows x 3 labels"):
        audit(labels, several)
