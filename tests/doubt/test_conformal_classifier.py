"""Sets of classes: those of a slow reference, and covered as promised."""

import json
import pickle
import re
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from scipy import special, stats
from sklearn.base import clone

from dubito import Logits, Members, Normal, Probabilities, TopLabel
from dubito.data import ArrayShards, Batch, Shards
from dubito.doubt import ConformalClassifier, PredictionSets
from dubito.doubt.conformal.classifier import _uniforms
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoWarning,
    EmptyStateError,
    MissingLabelsWarning,
    StateMismatchError,
    UnfittedError,
)

Floats = NDArray[np.floating[Any]]

quiet = pytest.mark.filterwarnings("ignore::dubito.errors.DubitoWarning")
each_method = pytest.mark.parametrize("method", ["lac", "aps", "raps", "saps"])
exact_method = pytest.mark.parametrize("method", ["lac", "aps"])
PENALTIES: dict[str, Any] = {
    "lac": {}, "aps": {}, "raps": {"penalty": 0.1, "k_reg": 1}, "saps": {"penalty": 0.1}
}  # fmt: skip
each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])


class Parts(Shards):
    """A batch cut into parts, as if it were streamed."""

    def __init__(self, batch: Batch, n_parts: int = 3) -> None:
        self.batches_of = [batch.take(rows) for rows in np.array_split(range(len(batch)), n_parts)]

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.batches_of.__getitem__, i) for i in range(len(self.batches_of)))


def made(n_rows: int, n_classes: int = 4, seed: int = 0) -> tuple[Floats, NDArray[np.int64]]:
    """Return logits that are twice too sharp, and labels."""
    rng = np.random.default_rng(seed)
    calibrated = rng.normal(0, 1.5, (n_rows, n_classes))
    return 2 * calibrated, (calibrated + rng.gumbel(size=calibrated.shape)).argmax(axis=1)


def score(p: Floats, k: int, u: float, sets: ConformalClassifier) -> float:
    """Return the textbook's score of a class; ties are ranked by column."""
    before = [p[j] for j in range(len(p)) if p[j] > p[k] or (p[j] == p[k] and j < k)]
    rank, penalty = len(before) + 1, sets.penalty or 0
    if sets.allow_empty_ is False and rank == 1:
        return -1.0
    if sets.method == "lac":
        return float(1 - p[k])
    if sets.method == "saps":
        return float(u * p.max() if rank == 1 else p.max() + (rank - 2 + u) * penalty)
    penalized = penalty * max(rank - (sets.k_reg or 0), 0) if sets.method == "raps" else 0
    return float(sum(before) + u * p[k] + penalized)


def reference(
    p: Floats, y: Any, new: Floats, sets: ConformalClassifier, uniforms: tuple[Any, Any]
) -> list[list[bool]]:
    """Return sets of new rows, class by class, by the k-th smallest score."""
    scores = sorted(score(p[i], y[i], uniforms[0][i], sets) for i in range(len(p)))
    threshold = scores[int(np.ceil((len(p) + 1) * sets.level)) - 1]
    return [
        [score(row, j, uniforms[1][i], sets) <= threshold + 1e-12 for j in range(len(row))]
        for i, row in enumerate(new)
    ]


@pytest.mark.parametrize(
    "sets",
    [
        ConformalClassifier(0.85),
        ConformalClassifier(0.85, allow_empty=False),
        ConformalClassifier(0.85, "aps"),
        ConformalClassifier(0.85, "aps", randomize=True),
        ConformalClassifier(0.85, "aps", randomize=True, random_state=7, allow_empty=False),
        ConformalClassifier(0.85, "raps", penalty=0.05, k_reg=1),
        ConformalClassifier(0.85, "raps", False, penalty=0.02, k_reg=2, allow_empty=True),
        ConformalClassifier(0.85, "saps", penalty=0.1),
        ConformalClassifier(0.85, "saps", False, True, penalty=0.1),
    ],
)
@each_precision
@pytest.mark.parametrize("is_logits", [True, False])
@pytest.mark.parametrize("n_classes", [4, 60])
def test_sets_are_those_of_the_reference(
    sets: Any, dtype: Any, is_logits: bool, n_classes: int
) -> None:
    n, m = (200, 100) if n_classes == 4 else (60, 20)
    logits, y = made(n + m, n_classes)
    array = logits.astype(dtype) if is_logits else special.softmax(logits, axis=1).astype(dtype)
    wrap: Any = Logits if is_logits else Probabilities
    known, new = wrap(array[:n]), wrap(array[n:])
    fitted = clone(sets).fit(known, y[:n])
    found = fitted.predict(new)
    drawn = [_uniforms(one, fitted.is_randomized_, sets.random_state) for one in (known, new)]
    p = special.softmax(array.astype(np.float64), axis=1) if is_logits else array.astype(np.float64)
    p = p / p.sum(axis=1, keepdims=True)
    expected = reference(p[:n], y, p[n:], fitted, (drawn[0], drawn[1]))
    assert found.contains.tolist() == expected
    assert found.sizes.tolist() == [sum(row) for row in expected]
    held = [expected[i][y[n + i]] for i in range(m)]
    assert found.coverage(y[n:]) == pytest.approx(np.mean(held))


def test_the_threshold_is_the_log_odds_of_the_score() -> None:
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
    sets = ConformalClassifier(0.6).fit(p, [0, 0, 0, 0])
    assert sets.thresholds_["all"] == pytest.approx(special.logit(0.4))
    assert sets.n_rows_ == {"all": 4}
    # A probability that ties with the threshold is in; here no class of the second row is.
    assert sets.predict([[0.6, 0.4], [0.5, 0.5]]).contains.tolist() == [[True, False], [False] * 2]
    full = ConformalClassifier(0.8, allow_empty=False).fit(p, [0, 0, 0, 0])
    assert full.thresholds_["all"] == pytest.approx(special.logit(0.7))
    assert full.predict([[0.6, 0.4], [0.2, 0.8]]).contains.tolist() == [[True, True], [False, True]]
    # The top class of three rows of four is right, and always in: no other is needed for 0.6.
    full = ConformalClassifier(0.6, allow_empty=False).fit(p, [0, 0, 0, 0])
    assert full.predict([[0.6, 0.4], [0.45, 0.55]]).sizes.tolist() == [1, 1]
    assert full.predict([[0.45, 0.55]]).names(0) == [1]


@st.composite
def nasty_rows(draw: Any) -> tuple[Floats, Any]:
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    shape = draw(st.tuples(st.integers(2, 12), st.integers(2, 4)))
    values = st.sampled_from([0.0, 1.0, -1.0, 30.0, -30.0, 100.0, 1e4, -1e4])
    logits = draw(hnp.arrays(dtype, shape, elements=values))
    y = draw(hnp.arrays(np.int64, shape[0], elements=st.integers(0, shape[1] - 1)))
    return logits, y


@pytest.mark.slow
@quiet
@settings(max_examples=75)
@given(
    nasty_rows(),
    st.sampled_from([0.3, 0.5, 0.75, 0.8, 0.9]),
    st.sampled_from(["lac", "aps", "raps", "saps"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_of_any_rows_at_least_the_level_is_covered_by_the_others(
    rows: tuple[Floats, Any],
    level: float,
    method: Any,
    randomize: bool,
    is_streamed: bool,
    allow_empty: bool,
) -> None:
    # Exchangeable rows are any of n + 1 in turn: this is the guarantee, without chance.
    logits, y = rows
    n_covered = 0
    for i in range(len(y)):
        known, labels = np.delete(logits, i, axis=0), np.delete(y, i)
        batch = Batch.of(labels, Logits(known))
        is_random = randomize and method != "lac"
        sets = ConformalClassifier(level, method, is_random, allow_empty, **PENALTIES[method])
        sets.fit(Parts(batch, 2) if is_streamed else ArrayShards(batch))
        n_covered += sets.predict(Logits(logits[i : i + 1])).coverage(y[i : i + 1]) == 1
    assert n_covered >= level * len(y) - 1e-9


@each_method
@each_precision
def test_saturated_rows_still_differ(method: Any, dtype: Any) -> None:
    # Each top class is sure beyond float64's 1 - p, one row in four is wrong: the second is right.
    rng = np.random.default_rng(0)
    logits = np.tile([600.0, 500.0, 400.0, 300.0], (400, 1)) + rng.normal(size=(400, 4))
    y = (np.arange(400) % 4 == 0).astype(int)
    outputs = Logits(logits.astype(dtype))
    fitted = ConformalClassifier(0.9, method, **PENALTIES[method]).fit(outputs, y)
    sets = fitted.predict(outputs)
    assert sets.sizes.max() == 2
    assert not sets.contains[:, 2:].any()
    assert sets.coverage(y) >= 0.9


@each_method
def test_a_row_has_the_same_set_in_any_company(method: Any) -> None:
    logits, y = made(500)
    sets = ConformalClassifier(0.9, method).fit(Logits(logits), y)
    whole = sets.predict(Logits(logits)).contains
    single = [sets.predict(Logits(row[None])).contains[0] for row in logits[:50]]
    assert whole[:50].tolist() == np.array(single).tolist()
    assert sets.predict(Logits(logits[::-1])).contains[::-1].tolist() == whole.tolist()


def test_uniforms_are_as_good_as_random_and_depend_on_the_seed() -> None:
    # Rows that differ in little: one entry, by one unit of its last place.
    array = np.tile(np.array([0.25, 0.75]), (20_000, 1))
    array[:, 0] += np.arange(20_000) * np.spacing(0.25)
    drawn = _uniforms(Logits(array), True, 0)
    assert ((drawn >= 0) & (drawn < 1)).all()
    counts = np.histogram(drawn, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 43.8  # chi-square of 19, 0.1 %
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.03
    assert abs(np.corrcoef(drawn, _uniforms(Logits(array), True, 1))[0, 1]) < 0.03
    assert drawn.tolist() == _uniforms(Logits(array[::-1]), True, 0)[::-1].tolist()


@pytest.mark.parametrize("randomize", [False, True])
def test_of_equal_classes_the_first_comes_first(randomize: bool) -> None:
    equal = np.zeros((40, 100))
    y = np.arange(40) % 10
    sets = ConformalClassifier(0.5, "aps", randomize).fit(Logits(equal), y).predict(Logits(equal))
    expected = np.arange(100) < (6 if not randomize else sets.sizes[0])
    assert (sets.contains == expected).all()
    assert 5 <= sets.sizes[0] <= 6


def test_sets_without_randomization_are_never_empty_nor_inflated() -> None:
    # Saturated: nearly all of the mass is in the top class, which is right for 3 rows of 4.
    rng = np.random.default_rng(0)
    logits = rng.normal(0, 1, (4000, 100))
    rank = np.where(rng.random(4000) < 0.75, 0, rng.geometric(0.4, 4000))
    y = np.argsort(-logits, axis=1)[np.arange(4000), rank]
    known, new = Logits(20 * logits[:2000]), Logits(20 * logits[2000:])
    plain = ConformalClassifier(0.9, "aps").fit(known, y[:2000]).predict(new)
    assert plain.sizes.min() == 1
    assert plain.sizes.mean() < 5
    assert abs(plain.coverage(y[2000:]) - 0.9) < 0.03


@each_method
def test_members_speak_by_their_mean_and_arrays_are_probabilities(method: Any) -> None:
    logits, y = made(200)
    members = Members(special.softmax([logits, logits / 2], axis=2))
    a = ConformalClassifier(0.8, method, **PENALTIES[method]).fit(members, y).predict(members)
    b = (
        ConformalClassifier(0.8, method, **PENALTIES[method])
        .fit(members.mean.array, y)
        .predict(members.mean)
    )
    assert a.contains.tolist() == b.contains.tolist()


@exact_method
def test_each_group_has_the_threshold_its_own_rows(method: Any) -> None:
    logits, y = made(400)
    groups = np.array(["easy", "hard"])[np.arange(400) % 2]
    logits[groups == "hard"] *= -1
    sets = ConformalClassifier(0.9, method).fit(Logits(logits), y, groups)
    found = sets.predict(Logits(logits), groups)
    for name in ("easy", "hard"):
        rows = groups == name
        alone = ConformalClassifier(0.9, method).fit(Logits(logits[rows]), y[rows])
        assert sets.thresholds_[name] == alone.thresholds_["all"]
        expected = alone.predict(Logits(logits[rows])).contains
        assert found.contains[rows].tolist() == expected.tolist()
    assert found.sizes[groups == "hard"].mean() > found.sizes[groups == "easy"].mean()


@exact_method
def test_a_stream_gives_sets_that_are_little_larger_never_smaller(method: Any) -> None:
    logits, y = made(5000)
    groups = np.arange(5000) % 3
    batch = Batch.of(y, Logits(logits), groups=groups)
    streamed = ConformalClassifier(0.9, method).fit(Parts(batch))
    exact = ConformalClassifier(0.9, method).fit(Logits(logits), y, groups)
    for name, threshold in exact.thresholds_.items():
        above = streamed.thresholds_[name]
        assert threshold is not None
        assert above is not None
        assert 0 <= above - threshold <= abs(threshold) / 4096
    assert streamed.n_rows_ == exact.n_rows_
    found, expected = (s.predict(Logits(logits), groups).contains for s in (streamed, exact))
    assert (found >= expected).all()
    assert found.mean() < expected.mean() + 0.002


@exact_method
def test_too_few_rows_give_every_class_and_a_warning(method: Any) -> None:
    logits, y = made(30)
    with pytest.warns(DubitoWarning) as caught:
        sets = ConformalClassifier(0.9, method).fit(Logits(logits[:8]), y[:8])
    assert re.search(
        r"ConformalClassifier: too few rows for level=0\.9 \(8\), so sets contain every class\. "
        r"Use at least 9 rows\.",
        str(caught[0].message),
    )
    assert caught[0].filename == __file__
    assert sets.thresholds_ == {"all": None}
    assert sets.predict(Logits(logits)).contains.all()
    groups = ["a"] * 20 + ["b"] * 8 + ["c"] * 2
    with pytest.warns(DubitoWarning) as caught:
        sets = ConformalClassifier(0.9, method).fit(Logits(logits), y, groups)
    assert re.search(
        r"ConformalClassifier: too few rows for level=0\.9 \(b: 8, c: 2\), so sets contain every "
        r"class\. Use at least 9 rows in each group\.",
        str(caught[0].message),
    )
    assert sets.predict(Logits(logits), groups).contains[20:].all()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ConformalClassifier(0.9, method).fit(Logits(logits[:9]), y[:9])


def test_missing_labels_are_left_out_and_counted() -> None:
    logits, y = made(100)
    labels = [None if i % 4 == 0 else int(v) for i, v in enumerate(y)]
    with pytest.warns(MissingLabelsWarning, match="25 of 100 rows have no label"):
        sets = ConformalClassifier().fit(Logits(logits), labels)
    is_known = np.arange(100) % 4 > 0
    expected = ConformalClassifier().fit(Logits(logits[is_known]), y[is_known])
    assert sets.thresholds_ == expected.thresholds_
    found = sets.predict(Logits(logits))
    with pytest.warns(MissingLabelsWarning, match="25 of 100"):
        coverage = found.coverage(labels)
    assert coverage == expected.predict(Logits(logits[is_known])).coverage(y[is_known])


def test_classes_have_their_names() -> None:
    pets = Probabilities([[0.8, 0.2], [0.3, 0.7], [0.9, 0.1]], classes=["cat", "dog"])
    sets = ConformalClassifier(0.5).fit(pets, ["cat", "cat", "cat"]).predict(pets)
    assert sets.names(0) == ["cat"]
    assert sets.names(1) == []
    assert sets.coverage(["cat", "dog", "dog"]) == pytest.approx(1 / 3)
    plain = PredictionSets(np.array([[True, False, True]]))
    assert plain.names(0) == [0, 2]


def test_the_callers_array_stays_and_no_rows_have_no_sets() -> None:
    logits, y = made(50)
    before = logits.copy()
    sets = ConformalClassifier(method="aps").fit(Logits(logits), y)
    assert sets.predict(Logits(np.empty((0, 4)))).contains.shape == (0, 4)
    assert (logits == before).all()
    assert logits.flags.writeable
    assert not sets.predict(Logits(logits)).contains.flags.writeable


@each_method
def test_it_is_kept_pickled_and_cloned(method: Any) -> None:
    logits, y = made(60)
    groups = ["a"] * 55 + ["b"] * 5
    with pytest.warns(DubitoWarning, match="too few rows"):
        sets = ConformalClassifier(0.9, method, random_state=3).fit(Logits(logits), y, groups)
    expected = sets.predict(Logits(logits), groups).contains.tolist()
    kept = json.loads(json.dumps(sets.to_dict(), allow_nan=False))
    for restored in (ConformalClassifier.from_dict(kept), pickle.loads(pickle.dumps(sets))):
        assert restored.predict(Logits(logits), groups).contains.tolist() == expected
    assert clone(sets).get_params() == sets.get_params()


LOGITS, LABELS = made(20)
FITTED = ConformalClassifier(0.8).fit(Logits(LOGITS), LABELS)
NAMED = ConformalClassifier(0.8).fit(Logits(LOGITS, list("abcd")), [*"abcd"] * 5)
GROUPED = ConformalClassifier(0.5).fit(Logits(LOGITS), LABELS, [1, 2] * 10)
SETS = PredictionSets(np.ones((2, 3), dtype=bool))


@pytest.mark.parametrize(
    ("ask", "error", "message"),
    [
        (
            lambda: ConformalClassifier(method="top").fit(Logits(LOGITS), LABELS),  # type: ignore[arg-type]
            BadValueError,
            r"`method` .*, got 'top'\. Use method='lac'",
        ),
        (
            lambda: ConformalClassifier(method="raps", penalty=-1).fit(Logits(LOGITS), LABELS),
            BadValueError,
            r"`penalty` .*, got -1\. Use penalty=None to tune it",
        ),
        (
            lambda: ConformalClassifier(penalty=0.3).fit(Logits(LOGITS), LABELS),
            BadValueError,
            r"`penalty` cannot be used with method='lac', got 0\.3\. Leave out penalty",
        ),
        (
            lambda: ConformalClassifier(randomize=True).fit(Logits(LOGITS), LABELS),
            BadValueError,
            r"`randomize` cannot be used with method='lac', got True",
        ),
        (
            lambda: ConformalClassifier(method="saps", k_reg=3).fit(Logits(LOGITS), LABELS),
            BadValueError,
            r"`k_reg` cannot be used with method='saps', got 3",
        ),
        (
            lambda: ConformalClassifier(conditional="class").fit(
                Logits(LOGITS), LABELS, [1, 2] * 10
            ),
            BadTypeError,
            r"`groups` must be None if `conditional` is set.*Use either groups or conditional",
        ),
        (
            lambda: SETS.diagnose([0, 1]),
            BadTypeError,
            r"`level` must be given for these sets, got None\. Pass level=0\.9",
        ),
        (
            lambda: ConformalClassifier(random_state=-1).fit(Logits(LOGITS), LABELS),
            BadValueError,
            r"`random_state` .*, got -1\. Pass random_state=0",
        ),
        (
            lambda: ConformalClassifier(90).fit(Logits(LOGITS), LABELS),
            BadValueError,
            r"`level` .*, got 90\. Divide percentages by 100",
        ),
        (
            lambda: ConformalClassifier().fit(Logits(LOGITS)),
            BadTypeError,
            r"`y` .*, got None\. Pass y, or shards with a label column",
        ),
        (
            lambda: ConformalClassifier().fit(Logits(LOGITS), np.full((20, 4), 0.25)),
            BadValueError,
            r"`y` .*, got label probabilities\. Use the most probable class of each row",
        ),
        (
            lambda: ConformalClassifier().fit(Logits(LOGITS), [None] * 20),
            EmptyStateError,
            r"ConformalClassifier needs at least 1 labeled row of positive weight, got 0\. "
            "Pass at least one labeled row "
            "with a positive weight",
        ),
        (
            lambda: ConformalClassifier().fit(TopLabel([0.5], [True])),
            BadTypeError,
            r"`outputs` .*, got TopLabel\. Pass probabilities of all classes, or use "
            "ConformalRegressor for regression",
        ),
        (
            lambda: ConformalClassifier().fit(Parts(Batch.of(LABELS, Logits(LOGITS))), LABELS),
            BadTypeError,
            r"`y` .*, got ndarray\. Hold it in the shards instead: Columns\(label=\.\.\.\)",
        ),
        (
            lambda: FITTED.predict(Normal([0.0], [1.0])),
            BadTypeError,
            r"`outputs` .*, got Normal\. Pass probabilities of all classes, or use "
            r"ConformalRegressor "
            "for regression",
        ),
        (
            lambda: FITTED.predict([[0.5, 0.5]]),
            BadValueError,
            r"`outputs` must have 4 columns, as during fit, got 2\. Pass the columns "
            "of the fit, in the "
            "same order",
        ),
        (
            lambda: NAMED.predict(Logits(LOGITS, list("dcba"))),
            BadValueError,
            r"`outputs` .*, got \('d', 'c', 'b', 'a'\)\. Pass the columns of the fit, "
            "in the same order",
        ),
        (
            lambda: GROUPED.predict(Logits(LOGITS)),
            BadTypeError,
            r"was fitted with groups, got none\. Pass groups, or fit without",
        ),
        (
            lambda: FITTED.predict(Logits(LOGITS), [1] * 20),
            BadTypeError,
            r"was fitted without groups, got groups\. Leave out groups, or pass groups to fit",
        ),
        (
            lambda: GROUPED.predict(Logits(LOGITS), [1] * 7 + [3] + [2] * 12),
            BadValueError,
            r"`groups` .*, got 3 in row 7\. Fit on rows of every group",
        ),
        (
            lambda: ConformalClassifier().predict([[0.5, 0.5]]),
            UnfittedError,
            "ConformalClassifier.*fit",
        ),
        (
            lambda: SETS.coverage([0, 3]),
            BadValueError,
            r"`y` .*, got 3 in row 1\. Labels start at 0, and outputs need one column per "
            r"class \(there are 3\)",
        ),
        (
            lambda: SETS.coverage(np.full((2, 3), 1 / 3)),
            BadValueError,
            r"`y` .*, got label probabilities\. Use the most probable class of each row",
        ),
    ],
)
def test_what_cannot_be_is_reported(ask: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ask()


@pytest.mark.filterwarnings("ignore::dubito.errors.MissingLabelsWarning")
def test_coverage_of_no_labels_is_none() -> None:
    with pytest.raises(
        EmptyStateError,
        match="Coverage needs at least 1 labeled row of "
        r"positive weight, got 0\. Pass at least one labeled row "
        "with a positive weight",
    ):
        SETS.coverage([None, None])


def test_shards_of_different_classes_do_not_mix() -> None:
    one, two = Batch.of([0], [[0.5, 0.5]]), Batch.of([0], [[0.5, 0.25, 0.25]])
    shards = Parts(one, 1)
    shards.batches_of = [one, two]
    with pytest.raises(StateMismatchError, match="kinds of outputs"):
        ConformalClassifier().fit(shards)


def test_settings_count_at_the_next_fit_only() -> None:
    logits, y = made(300)
    fitted = ConformalClassifier(0.85, "aps").fit(Logits(logits), y)
    expected = fitted.predict(Logits(logits)).contains
    fitted.set_params(level=0.5, method="lac", randomize=False, random_state=9)
    assert (fitted.predict(Logits(logits)).contains == expected).all()


@pytest.mark.parametrize("wrap", [Logits, Probabilities])
def test_sums_hang_neither_on_precision_nor_on_the_sign_of_0(wrap: Any) -> None:
    logits, y = made(400)
    logits[::3, 1] = 0.0
    array = (logits if wrap is Logits else special.softmax(logits, axis=1)).astype(np.float32)
    if wrap is Probabilities:
        array[np.arange(400), array.argmin(axis=1)] = 0.0
        array /= array.sum(axis=1, keepdims=True)
    signed = np.where(array == 0, np.float32(-0.0), array)
    copies = [array, signed, array.astype(np.float64), signed.astype(np.float64)]
    assert np.signbit(signed).sum() > np.signbit(array).sum()
    for sets in (ConformalClassifier(0.85, "aps", True), ConformalClassifier(0.85, "saps")):
        first = sets.fit(wrap(array), y).predict(wrap(array)).contains
        for copy in copies:
            assert (sets.fit(wrap(copy), y).predict(wrap(copy)).contains == first).all()


@pytest.mark.parametrize("argument", ["randomize", "allow_empty"])
def test_what_is_true_or_false_is_nothing_else(argument: str) -> None:
    with pytest.raises(
        BadTypeError,
        match=f"`{argument}` must be True or False, got 'x'. Use {argument}=True",
    ):
        ConformalClassifier(**{argument: "x"}).fit([[0.5, 0.5]], [0])  # type: ignore[arg-type]


def test_sets_are_shown_by_their_mean_size() -> None:
    sets = PredictionSets(np.array([[True, False, True], [True, True, True]]))
    assert repr(sets) == "PredictionSets(2 rows x 3 classes, mean size 2.5)"
    assert repr(PredictionSets(np.empty((0, 3), bool))) == "PredictionSets(0 rows x 3 classes)"


@pytest.mark.parametrize("method", ["raps", "saps"])
def test_penalties_are_tuned_on_rows_that_do_not_calibrate(method: Any) -> None:
    logits, y = made(1000, 20)
    tuned = ConformalClassifier(0.9, method).fit(Logits(logits), y)
    assert tuned.n_rows_ == {"all": 700}
    assert tuned.penalty_ > 0
    given = ConformalClassifier(0.9, method, penalty=tuned.penalty_, k_reg=int(tuned.k_reg_))
    assert given.fit(Logits(logits), y).n_rows_ == {"all": 1000}
    fixed = ConformalClassifier(0.9, method, penalty=0.3).fit(Logits(logits), y)
    assert fixed.penalty_ == 0.3
    few = ConformalClassifier(0.9, method).fit(Logits(logits[:50]), y[:50])
    assert few.n_rows_ == {"all": 50}
    streamed = ConformalClassifier(0.9, method).fit(Parts(Batch.of(y, Logits(logits))))
    assert streamed.n_rows_ == tuned.n_rows_
    kept = ConformalClassifier.from_dict(json.loads(json.dumps(tuned.to_dict())))
    found = kept.predict(Logits(logits)).contains
    assert (found == tuned.predict(Logits(logits)).contains).all()


def test_tuned_sets_cover_evenly() -> None:
    logits, y = made(12_000, 30)
    known, new = Logits(logits[:4000]), Logits(logits[4000:])
    even = ConformalClassifier(0.9, "saps").fit(known, y[:4000]).predict(new)
    small = ConformalClassifier(0.9, "lac").fit(known, y[:4000]).predict(new)
    both = [one.diagnose(y[4000:], min_rows=200).by_size.deviation for one in (even, small)]
    assert both[0] < 0.04 < both[1]


@exact_method
def test_each_class_has_its_own_threshold(method: Any) -> None:
    logits, y = made(600, 3)
    logits[:, 2] -= 1.5  # the model rarely predicts class 2
    fitted = ConformalClassifier(0.9, method, conditional="class").fit(Logits(logits), y)
    assert list(fitted.thresholds_) == ["0", "1", "2"]
    found = fitted.predict(Logits(logits)).contains
    for k in range(3):
        rows = y == k
        alone = ConformalClassifier(0.9, method).fit(Logits(logits[rows]), y[rows])
        assert fitted.thresholds_[str(k)] == alone.thresholds_["all"]
        assert (found[:, k] == alone.predict(Logits(logits)).contains[:, k]).all()
        assert found[rows, k].mean() >= 0.9
    plain = ConformalClassifier(0.9, method).fit(Logits(logits), y).predict(Logits(logits))
    assert plain.contains[y == 2, 2].mean() < 0.85


def test_a_class_without_rows_is_in_every_set() -> None:
    logits, y = made(300, 3)
    y = y % 2
    with pytest.warns(DubitoWarning, match=r"too few rows for level=0\.9 \(2: 0\)"):
        fitted = ConformalClassifier(0.9, conditional="class").fit(Logits(logits), y)
    assert fitted.thresholds_["2"] is None
    assert fitted.predict(Logits(logits)).contains[:, 2].all()


def test_thresholds_by_class_work_with_a_density_ratio() -> None:
    logits, y = made(400, 3)
    ratio = np.exp(logits[:, 0] / 4)
    fitted = ConformalClassifier(0.8, "aps", conditional="class")
    fitted.fit(Logits(logits), y, density_ratio=ratio)
    found = fitted.predict(Logits(logits), density_ratio=ratio).contains
    for k in range(3):
        rows = y == k
        alone = ConformalClassifier(0.8, "aps")
        alone.fit(Logits(logits[rows]), y[rows], density_ratio=ratio[rows])
        expected = alone.predict(Logits(logits), density_ratio=ratio).contains
        assert (found[:, k] == expected[:, k]).all()


def test_classes_of_similar_scores_share_a_threshold() -> None:
    # Of 40 classes, 20 are easy and 20 are taken for another one half of the time.
    rng = np.random.default_rng(0)
    y = rng.integers(0, 40, 6000)
    taken = np.where((y >= 20) & (rng.random(6000) < 0.5), rng.integers(20, 40, 6000), y)
    logits = rng.normal(0, 0.5, (6000, 40))
    logits[np.arange(6000), taken] += 4
    fitted = ConformalClassifier(0.9, conditional="cluster").fit(Logits(logits[:4000]), y[:4000])
    groups = np.array(fitted.class_groups_)
    assert 2 <= len(fitted.thresholds_) < 40
    assert not {*groups[:20]} & {*groups[20:]}
    assert sum(fitted.n_rows_.values()) < 4000
    sets = fitted.predict(Logits(logits[4000:]))
    for rows in (y[4000:] < 20, y[4000:] >= 20):
        assert abs(sets.contains[rows, y[4000:][rows]].mean() - 0.9) < 0.03
    kept = ConformalClassifier.from_dict(json.loads(json.dumps(fitted.to_dict())))
    assert (kept.predict(Logits(logits[4000:])).contains == sets.contains).all()
    few = ConformalClassifier(0.9, conditional="cluster").fit(Logits(logits[:100]), y[:100])
    assert few.thresholds_.keys() == {"cluster 0"}


def test_classes_with_few_rows_are_reported() -> None:
    rng = np.random.default_rng(0)
    y = rng.integers(0, 100, 1000)
    logits = rng.normal(size=(1000, 100)) + 2 * np.eye(100)[y]
    with pytest.warns(DubitoWarning) as caught:
        fitted = ConformalClassifier(0.9, conditional="cluster").fit(Logits(logits), y)
    assert "of 100 classes are too rare to be clustered" in str(caught[0].message)
    assert caught[0].filename == __file__
    assert "rare classes" in fitted.thresholds_
    remedy = r"Use at least 9 rows of each class, or conditional='cluster'"
    with pytest.warns(DubitoWarning, match=remedy):
        ConformalClassifier(0.9, conditional="class").fit(Logits(logits[:700]), y[:700])
    values = fitted.to_dict()
    values["fitted"]["class_groups_"][0] = "none"
    with pytest.raises(BadValueError, match="class_groups_"):
        ConformalClassifier.from_dict(values)


def test_the_diagnosis_shows_what_chance_explains() -> None:
    rng = np.random.default_rng(0)
    sizes = np.repeat([1, 2, 4], [200, 100, 30])
    contains = np.arange(5) < sizes[:, np.newaxis]
    is_covered = rng.random(330) < 0.9
    y = np.where(is_covered, 0, 4)
    found = PredictionSets(contains, level=0.9).diagnose(y)
    assert found.by_size.strata.tolist() == [1, 2]
    assert found.by_size.n_rows.tolist() == [200, 100]
    expected = [is_covered[:200].mean(), is_covered[200:300].mean()]
    assert found.by_size.coverage.tolist() == expected
    assert found.by_size.deviation == pytest.approx(np.abs(np.array(expected) - 0.9).max())
    # The expected maximum by the exact distribution of both counts.
    p = [stats.binom.pmf(np.arange(n + 1), n, 0.9) for n in (200, 100)]
    off = [np.abs(np.arange(n + 1) / n - 0.9) for n in (200, 100)]
    exact = (np.outer(*p) * np.maximum(off[0][:, np.newaxis], off[1])).sum()
    assert found.by_size.by_chance == pytest.approx(exact, rel=0.05)
    assert found.by_class.strata.tolist() == [0, 4]
    assert found.by_class.coverage.tolist() == [1.0, 0.0]
    assert found.by_class.p_value < 0.01
    assert "By size: off by up to" in repr(found)
    assert "class 4: 0.0 % of" in repr(found)
    assert PredictionSets(contains).diagnose(y, level=0.5).by_size.deviation > 0.35
