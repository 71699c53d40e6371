"""Independence within classes: contradicted where models share something, and only there."""

import re
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from scipy import special, stats

from dubito import Logits
from dubito.decide import conditional_independence_test
from dubito.errors import BadValueError


def made(shared: float, n_rows: int = 1500, seed: int = 0, n_models: int = 2) -> Any:
    """Return logits of models whose inputs share some noise, and labels."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 3, n_rows)
    noise = rng.normal(0, 1, (n_rows, 3))
    own = rng.normal(0, 1, (n_models, n_rows, 3))
    logits = 2 * np.eye(3)[y] + shared * noise + np.sqrt(1 - shared**2) * own
    return [Logits(one) for one in logits], y


def test_the_correlation_is_that_of_ranks_within_a_class() -> None:
    (a, b), y = made(0.6)
    keep = y == 1
    one_class = [a.take(np.flatnonzero(keep)), b.take(np.flatnonzero(keep))]
    found = conditional_independence_test(one_class, y[keep])
    odds = [special.logit(special.softmax(m.array, axis=1)[:, 1]) for m in one_class]
    expected = stats.spearmanr(*odds).statistic
    close(found.correlation, [[1, expected], [expected, 1]], rtol=1e-9)
    assert found.n_rows == keep.sum()


def test_classes_are_pooled_by_their_rows() -> None:
    (a, b), y = made(0.6, n_rows=60)
    found = conditional_independence_test([a, b], y)
    total = freedom = 0.0
    for k in range(3):
        rows = y == k
        odds = [special.logit(special.softmax(m.array[rows], axis=1)[:, k]) for m in (a, b)]
        total += (rows.sum() - 1) * stats.spearmanr(*odds).statistic
        freedom += rows.sum() - 1
    assert found.correlation[0, 1] == pytest.approx(total / freedom)
    expected = 2 * stats.norm.sf(abs(total) / np.sqrt(freedom))
    assert found.p_value[0, 1] == pytest.approx(expected)


@pytest.mark.slow
def test_p_values_of_independent_models_are_uniform() -> None:
    values = [
        conditional_independence_test(*made(0.0, 60, seed)).p_value[0, 1] for seed in range(300)
    ]
    assert stats.kstest(values, "uniform").pvalue > 1e-3


def test_classes_that_differ_are_no_dependence() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 2000)
    hard = np.where(y == 0, 0.1, 3.0)[:, np.newaxis] * np.eye(2)[y]
    models = [Logits(hard + rng.normal(0, 1, (2000, 2))) for _ in range(2)]
    assert not conditional_independence_test(models, y).is_contradicted


def test_words_where_it_is_contradicted() -> None:
    found = conditional_independence_test(*made(0.6))
    assert found.is_contradicted
    assert found.summary() == (
        "The data contradict conditional independence (rank correlation "
        f"{found.correlation[0, 1]:.2f} of models 0 and 1, p = {found.p_value[0, 1]:.2g}, "
        "1,500 rows): the product counts shared evidence more than once and is over-confident. "
        "Use LogLinearPool."
    )


def test_words_where_models_avoid_each_other() -> None:
    (a, _), y = made(0.0, 300)
    opposite = Logits(4 * np.eye(3)[y] - a.array)
    assert "is under-confident" in (conditional_independence_test([a, opposite], y).summary())


def test_words_where_it_is_not() -> None:
    found = conditional_independence_test(*made(0.0))
    assert not found.is_contradicted
    assert found.summary() == (
        "The data do not contradict conditional independence (rank correlation "
        f"{found.correlation[0, 1]:.2f} of models 0 and 1, p = {found.p_value[0, 1]:.2g}, "
        "1,500 rows)."
    )


def test_the_most_dependent_pair_is_named() -> None:
    (a, b), y = made(0.0, n_rows=400)
    found = conditional_independence_test([a, b, Logits(b.array + 0.1 * a.array)], y)
    assert found.is_contradicted
    assert "of models 1 and 2" in found.summary()


def test_a_p_value_that_is_next_to_0_is_not_said_to_be_0() -> None:
    (a, _), y = made(0.0)
    assert "rank correlation 1.00 of models 0 and 1, p < 1e-99, " in (
        conditional_independence_test([a, a], y).summary()
    )


@pytest.mark.parametrize("n_rows", [1, 2, 5])
def test_rows_that_are_all_alike_contradict_nothing(n_rows: int) -> None:
    same = np.full((n_rows, 2), 0.5)
    found = conditional_independence_test([same, same], [0] * n_rows)
    assert found.p_value.tolist() == [[1, 1], [1, 1]]
    assert found.correlation[0, 1] == 0
    assert not found.is_contradicted


def test_a_single_model_raises() -> None:
    with pytest.raises(BadValueError) as caught:
        conditional_independence_test([[[0.5, 0.5]]], [0])
    assert re.search(r"`outputs` .*got 1\. Pass \[outputs_a, outputs_b\]", str(caught.value))
