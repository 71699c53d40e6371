"""In-distribution points are flagged at the rate alpha, whatever their scores."""

import json
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy import stats
from sklearn.base import clone

from dubito import Logits, Probabilities
from dubito.data import ArrayShards, Batch, Shards
from dubito.doubt import ConformalOutlierDetector, entropy
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoWarning,
    EmptyStateError,
    UnfittedError,
)

Floats = NDArray[np.floating[Any]]

quiet = pytest.mark.filterwarnings("ignore::dubito.errors.DubitoWarning")
nasty = st.sampled_from([0.0, -0.0, 1.0, 0.5, 5e-324, -5e-324, 1e308, -1e308, 1 / 3]) | st.floats(
    -1e300, 1e300
)
doubts = hnp.arrays(np.float64, st.integers(1, 40), elements=nasty)
epsilons = st.sampled_from([0.01, 0.05, 0.1, 0.3, 1 / 3, 0.5, 0.9])


class Parts(Shards):
    """A batch cut into parts, as if it were streamed."""

    def __init__(self, batch: Batch, n_parts: int = 3) -> None:
        self.batches_of = [batch.take(rows) for rows in np.array_split(range(len(batch)), n_parts)]

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.batches_of.__getitem__, i) for i in range(len(self.batches_of)))


def reference(known: Floats, new: Floats) -> list[float]:
    """Return p-values by counting, point by point."""
    return [(1 + sum(k >= d for k in known.tolist())) / (len(known) + 1) for d in new.tolist()]


def batch_of(values: Floats, weight: Any = None) -> Batch:
    """Return rows whose feature is an OOD score."""
    outputs = np.full((len(values), 2), 0.5)
    return Batch.of(None, outputs, features=values[:, None], sample_weight=weight)


def feature(features: Any) -> Any:
    return features[:, 0]


@pytest.mark.slow
@quiet
@given(doubts, doubts, epsilons)
def test_p_values_are_counts_and_decide_what_is_outliers(
    known: Floats, new: Floats, alpha: float
) -> None:
    region = ConformalOutlierDetector(alpha).fit(known)
    new = np.concatenate([new, known])
    p = reference(known, new)
    assert region.p_value(new).tolist() == p
    assert region.predict(new).tolist() == [value < alpha for value in p]
    assert region.predict(new).tolist() == (new > region.threshold_).tolist()


@pytest.mark.slow
@quiet
@given(doubts, epsilons)
def test_of_any_points_at_most_epsilon_are_outliers_beside_the_others(
    values: Floats, alpha: float
) -> None:
    # Exchangeable points are any of n + 1 values in turn: this is the guarantee, without chance.
    if len(values) < 2:
        return
    n_flagged = 0
    for i in range(len(values)):
        others = np.delete(values, i)
        n_flagged += int(ConformalOutlierDetector(alpha).fit(others).predict(values[i : i + 1])[0])
    assert n_flagged <= alpha * len(values)


@pytest.mark.slow
@pytest.mark.parametrize("alpha", [0.01, 0.05])
@pytest.mark.parametrize("n_rows", [150, 199])
def test_the_share_of_known_points_flagged_follows_its_law(alpha: float, n_rows: int) -> None:
    rng = np.random.default_rng(0)
    n_new, n_draws = 100, 2000
    counts = []
    for _ in range(n_draws):
        uncertainty = rng.standard_cauchy(n_rows + n_new)
        region = ConformalOutlierDetector(alpha).fit(uncertainty[:n_rows])
        counts.append(int(region.predict(uncertainty[n_rows:]).sum()))
    beyond = int(np.ceil(round(alpha * (n_rows + 1), 9))) - 1  # known scores above the threshold
    law = stats.betabinom(n_new, beyond, n_rows + 1 - beyond)
    assert law.mean() <= alpha * n_new
    standard_error = law.std() / np.sqrt(n_draws)
    assert np.mean(counts) == pytest.approx(law.mean(), abs=4 * standard_error)
    chances = law.pmf(np.arange(n_new + 1))
    likely = chances * n_draws >= 8
    found = np.bincount(counts, minlength=n_new + 1)
    pooled = np.append(found[likely], found[~likely].sum())
    expected = np.append(chances[likely], 1 - chances[likely].sum()) * n_draws
    assert stats.chisquare(pooled, expected).pvalue > 0.001


def test_epsilon_is_a_setting_that_needs_no_second_fit() -> None:
    region = ConformalOutlierDetector(0.01).fit(np.arange(1000.0))
    assert region.threshold_ == 990
    region.alpha = 0.1
    assert region.threshold_ == 900
    assert region.predict(np.arange(1000.0)).sum() == 99


@pytest.mark.slow
@given(hnp.arrays(np.float64, 30, elements=st.floats(-10, 10)), st.data())
def test_a_weight_counts_rows(known: Floats, data: Any) -> None:
    weight = data.draw(hnp.arrays(np.int64, 30, elements=st.integers(0, 3)))
    weight[0] = 30
    region = ConformalOutlierDetector().fit(known, weight)
    repeated = ConformalOutlierDetector().fit(np.repeat(known, weight))
    assert region.p_value(known).tolist() == repeated.p_value(known).tolist()
    assert region.threshold_ == repeated.threshold_


@pytest.mark.slow
@quiet
@given(doubts, doubts, st.integers(1, 4))
def test_a_stream_gives_no_lower_p_value_and_one_of_a_doubt_little_lower(
    known: Floats, new: Floats, n_parts: int
) -> None:
    new = np.concatenate([new, known])
    streamed = ConformalOutlierDetector().fit(
        Parts(batch_of(known), n_parts), score=feature, of="features"
    )
    exact = ConformalOutlierDetector().fit(known)
    p = streamed.p_value(new)
    assert p.tolist() == exact.p_value(new).tolist()


@pytest.mark.slow
def test_a_stream_of_real_scores_is_exact() -> None:
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 4, (60_000, 5))
    batch = Batch.of(None, Logits(logits))

    def least_confidence(outputs: Any) -> Floats:
        return Batch.of(None, outputs).rows.least_confidence

    streamed = ConformalOutlierDetector(0.01).fit(Parts(batch, 7), score=least_confidence)
    memory = ConformalOutlierDetector(0.01).fit(ArrayShards(batch), score=least_confidence)
    exact = ConformalOutlierDetector(0.01).fit(least_confidence(batch.outputs))
    assert memory.scores_.tolist() == exact.scores_.tolist()
    assert streamed.scores_.tolist() == exact.scores_.tolist()
    assert streamed.threshold_ == exact.threshold_


def test_a_stream_flags_where_entropy_piles_up_below_log_2() -> None:
    p = 0.5 + np.random.default_rng(0).normal(0, 0.005, 50_000)
    outputs = Probabilities(np.column_stack([p, 1 - p]))
    streamed = ConformalOutlierDetector(0.01).fit(Parts(Batch.of(None, outputs), 9), score=entropy)
    assert streamed.threshold_ == ConformalOutlierDetector(0.01).fit(entropy(outputs)).threshold_
    assert 0.009 < streamed.predict(entropy(outputs)).mean() < 0.01


def test_shards_weigh_their_rows_and_may_give_the_whole_batch() -> None:
    values, weight = np.arange(40.0), np.arange(40.0) % 3
    shards = Parts(batch_of(values, weight))
    region = ConformalOutlierDetector().fit(shards, score=lambda b: b.features[:, 0], of="batch")
    expected = ConformalOutlierDetector().fit(values, weight)
    assert region.p_value(values).tolist() == expected.p_value(values).tolist()


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int64])
def test_scores_of_any_precision_are_taken_and_left_unchanged(dtype: Any) -> None:
    known = np.arange(100).astype(dtype)
    region = ConformalOutlierDetector().fit(known)
    assert region.threshold_ == 95
    assert region.p_value(known)[-1] == 2 / 101
    assert known.dtype == dtype
    assert known.flags.writeable


@pytest.mark.parametrize("alpha", [0.5, 1 / 3, 0.1, 0.05, 0.01, 0.007, 0.001])
def test_too_few_rows_are_reported_how_many_it_takes(alpha: float) -> None:
    needed = next(n for n in range(1, 2000) if 1 / (n + 1) < alpha)
    with pytest.warns(DubitoWarning) as caught:
        region = ConformalOutlierDetector(alpha).fit(
            np.arange(needed - 1.0) if needed > 1 else [1.0]
        )
    message = str(caught[0].message)
    assert f"{max(needed - 1, 1)} calibration rows are too few" in message
    assert message.endswith(f"at alpha={alpha:g}. Use at least {needed:,} rows.")
    assert caught[0].filename == __file__
    assert region.threshold_ == np.inf
    assert not region.predict([1e308])[0]
    enough = ConformalOutlierDetector(alpha).fit(np.arange(float(needed)))
    assert enough.predict([1e308])[0]


@quiet
def test_an_epsilon_of_nothing_calls_nothing_outliers() -> None:
    assert ConformalOutlierDetector(5e-324).fit([1.0]).threshold_ == np.inf


def test_it_is_kept_pickled_and_cloned() -> None:
    region = ConformalOutlierDetector(0.1).fit(np.repeat(np.linspace(-1, 1, 21), 2))
    new = np.linspace(-2, 2, 99)
    kept = json.loads(json.dumps(region.to_dict(), allow_nan=False))
    for restored in (ConformalOutlierDetector.from_dict(kept), pickle.loads(pickle.dumps(region))):
        assert restored.p_value(new).tolist() == region.p_value(new).tolist()
        assert restored.threshold_ == region.threshold_
    assert not hasattr(clone(region), "scores_")


@pytest.mark.parametrize("ask", ["to_dict", "threshold_", "p_value", "predict"])
def test_nothing_is_reported_before_a_fit(ask: str) -> None:
    region = ConformalOutlierDetector()
    with pytest.raises(UnfittedError, match=r"ConformalOutlierDetector.*fit"):
        getattr(region, ask)(*[[0.5]] * (ask in ("p_value", "predict")))


def test_a_refit_that_fails_leaves_what_was() -> None:
    region = ConformalOutlierDetector().fit(np.arange(100.0))
    with pytest.raises(BadValueError):
        region.fit([np.nan])
    assert region.threshold_ == 95


DETECTOR = ConformalOutlierDetector
SHARDS = Parts(batch_of(np.arange(9.0)))


@pytest.mark.parametrize(
    ("fit", "error", "message"),
    [
        (
            lambda: DETECTOR().fit([0.1, np.nan]),
            BadValueError,
            "`scores` .*, got nan in row "
            r"1\. Drop invalid rows, or fix "
            "what produced them",
        ),
        (
            lambda: DETECTOR().fit([[0.1]]),
            BadValueError,
            r"`scores` .*, got shape \(1, 1\)\. "
            r"Use `\.ravel\(\)` for a single "
            "column",
        ),
        (
            lambda: DETECTOR().fit(np.arange(30.0)).p_value([np.inf]),
            BadValueError,
            r"`scores` .*, got inf in row 0\. Drop invalid rows, or fix what produced them",
        ),
        (lambda: DETECTOR(5).fit([0.1]), BadValueError, "alpha.*5.*100"),
        (
            lambda: DETECTOR().fit([0.1, 0.2], [1.0]),
            BadValueError,
            r"`sample_weight` must have length 2, .*, got length 1\. Align both in "
            "the same row order",
        ),
        (
            lambda: DETECTOR().fit([], []),
            EmptyStateError,
            "ConformalOutlierDetector needs at "
            "least 1 row of positive weight, "
            r"got 0\. Pass at least one row "
            "with a positive weight",
        ),
        (
            lambda: DETECTOR().fit([0.1], score=feature),
            BadTypeError,
            r"`score` must be None for an array.*Call \.fit\(score\(outputs\)\)\.",
        ),
        (
            lambda: DETECTOR().fit(SHARDS),
            BadTypeError,
            r"`score` must be a function.*NoneType.*Call \.fit\(shards, score=entropy\)\.",
        ),
        (
            lambda: DETECTOR().fit(SHARDS, [1.0], score=feature),
            BadTypeError,
            r"`sample_weight` must be None for shards, got list\. Name a weight column of the "
            "shards instead",
        ),
        (
            lambda: DETECTOR().fit(SHARDS, score=feature, of="rows"),  # type: ignore[arg-type]
            BadValueError,
            "`of` must be 'outputs', 'features' or 'batch', got 'rows'. Use of='outputs'",
        ),
        (
            lambda: DETECTOR().fit(SHARDS, score=lambda _: [1.0], of="features"),
            BadValueError,
            r"`score` must have length 3, like the batch, got length 1\. Align both "
            "in the same row order",
        ),
    ],
)
def test_invalid_arguments_raise(fit: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        fit()
