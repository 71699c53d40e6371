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
from scipy import special
from sklearn.base import clone

from dubito import Logits, Members, Normal, Probabilities, TopLabel
from dubito.data import ArrayShards, Batch, Shards
from dubito.doubt.conformal.classifier import (
    ConformalClassifier,
    PredictionSets,
    _canonical,
    _descending_order,
    _row_uniforms,
)
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
each_method = pytest.mark.parametrize("method", ["lac", "aps"])
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
    honest = rng.normal(0, 1.5, (n_rows, n_classes))
    return 2 * honest, (honest + rng.gumbel(size=honest.shape)).argmax(axis=1)


def score(p: Floats, k: int, share: float | None) -> float:
    """Return 1 - p of a class, or the sum of more probable ones and a share of its own."""
    if share is None:
        return float(1 - p[k])
    before = sum(p[j] for j in range(len(p)) if p[j] > p[k] or (p[j] == p[k] and j < k))
    return float(before + share * p[k])


def reference(
    p: Floats, y: Any, new: Floats, level: float, shares: tuple[Any, Any], is_past: bool
) -> list[list[bool]]:
    """Return sets of new rows, class by class, by the k-th smallest score.

    Where sums are not randomized, the class that takes its sum past the threshold is in.
    """
    scores = sorted(score(p[i], y[i], shares[0][i]) for i in range(len(p)))
    k = int(np.ceil((len(p) + 1) * level))
    threshold = scores[k - 1] if k <= len(p) else np.inf
    return [
        [
            score(row, j, shares[1][i]) <= threshold + 1e-12
            or (is_past and score(row, j, 0.0) < threshold)
            for j in range(len(row))
        ]
        for i, row in enumerate(new)
    ]


def shares(outputs: Any, sets: Any) -> Any:
    if sets.method == "lac":
        return [None] * outputs.n_rows
    is_drawn = sets.randomize
    return (
        _row_uniforms(_canonical(outputs), sets.random_state)
        if is_drawn
        else np.ones(outputs.n_rows)
    )


@pytest.mark.parametrize(
    "sets",
    [
        ConformalClassifier(0.85),
        ConformalClassifier(0.85, "aps"),
        ConformalClassifier(0.85, "aps", random_state=7),
        ConformalClassifier(0.85, "aps", randomize=False),
    ],
)
@each_precision
@pytest.mark.parametrize("is_logits", [True, False])
def test_sets_are_those_of_the_reference(sets: Any, dtype: Any, is_logits: bool) -> None:
    logits, y = made(300)
    array = logits.astype(dtype) if is_logits else special.softmax(logits, axis=1).astype(dtype)
    p = special.softmax(array.astype(np.float64), axis=1) if is_logits else array
    wrap: Any = Logits if is_logits else Probabilities
    known, new = array[:200], array[200:]
    found = clone(sets).fit(wrap(known), y[:200]).predict(wrap(new))
    both = shares(wrap(known), sets), shares(wrap(new), sets)
    exact = p.astype(np.float64)
    expected = reference(exact[:200], y, exact[200:], 0.85, both, not sets.randomize)
    assert found.contains.tolist() == expected
    assert found.sizes.tolist() == [sum(row) for row in expected]
    held = [expected[i][y[200 + i]] for i in range(100)]
    assert found.coverage(y[200:]) == pytest.approx(np.mean(held))


def test_the_threshold_is_the_log_odds_of_the_score() -> None:
    p = np.array([[0.9, 0.1], [0.8, 0.2], [0.6, 0.4], [0.3, 0.7]])
    sets = ConformalClassifier(0.6).fit(p, [0, 0, 0, 0])
    assert sets.thresholds_["all"] == pytest.approx(special.logit(0.4))
    assert sets.n_rows_ == {"all": 4}
    # A probability that ties with the threshold is in; here no class of the second row is.
    assert sets.predict([[0.6, 0.4], [0.5, 0.5]]).contains.tolist() == [[True, False], [False] * 2]
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
@settings(max_examples=150)
@given(
    nasty_rows(),
    st.sampled_from([0.3, 0.5, 0.75, 0.8, 0.9]),
    st.sampled_from(["lac", "aps"]),
    st.booleans(),
    st.booleans(),
)
def test_of_any_rows_at_least_the_level_is_covered_by_the_others(
    rows: tuple[Floats, Any], level: float, method: Any, randomize: bool, is_streamed: bool
) -> None:
    # Exchangeable rows are any of n + 1 in turn: this is the guarantee, without chance.
    logits, y = rows
    n_covered = 0
    for i in range(len(y)):
        known, labels = np.delete(logits, i, axis=0), np.delete(y, i)
        batch = Batch.of(labels, Logits(known))
        sets = ConformalClassifier(level, method, randomize)
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
    sets = ConformalClassifier(0.9, method).fit(outputs, y).predict(outputs)
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


def test_the_shares_are_as_good_as_random_and_hang_on_the_seed() -> None:
    # Rows that differ in little: one entry, by one unit of its last place.
    array = np.tile(np.array([0.25, 0.75]), (20_000, 1))
    array[:, 0] += np.arange(20_000) * np.spacing(0.25)
    drawn = _row_uniforms(array, 0)
    assert ((drawn >= 0) & (drawn < 1)).all()
    counts = np.histogram(drawn, 20, (0, 1))[0]
    assert ((counts - 1000) ** 2 / 1000).sum() < 43.8  # chi-square of 19, 0.1 %
    assert abs(np.corrcoef(drawn[1:], drawn[:-1])[0, 1]) < 0.03
    assert abs(np.corrcoef(drawn, _row_uniforms(array, 1))[0, 1]) < 0.03
    assert drawn.tolist() == _row_uniforms(array[::-1], 0)[::-1].tolist()
    assert _row_uniforms(array[:1], 2**64 - 1)[0] != _row_uniforms(array[:1], 2**63)[0]


def test_of_equal_classes_the_first_comes_first() -> None:
    p = np.repeat(np.arange(60.0), 3).reshape(1, -1) / np.arange(1.0, 6.0)[:, None]
    p[0] += np.random.default_rng(0).permutation(180) / 1000
    assert _descending_order(p).tolist() == np.argsort(-p, axis=1, kind="stable").tolist()


def test_sets_that_are_not_randomized_hold_those_that_are() -> None:
    logits, y = made(2000)
    outputs, new = Logits(logits[:1000]), Logits(logits[1000:])
    plain = ConformalClassifier(0.9, "aps", randomize=False).fit(outputs, y[:1000]).predict(new)
    drawn = ConformalClassifier(0.9, "aps").fit(outputs, y[:1000]).predict(new)
    assert plain.sizes.mean() > drawn.sizes.mean()
    assert plain.coverage(y[1000:]) >= drawn.coverage(y[1000:])
    assert plain.sizes.min() == 1
    assert (plain.contains >= drawn.contains).mean() > 0.99


@each_method
def test_members_speak_by_their_mean_and_arrays_are_probabilities(method: Any) -> None:
    logits, y = made(200)
    members = Members(special.softmax([logits, logits / 2], axis=2))
    a = ConformalClassifier(0.8, method).fit(members, y).predict(members)
    b = ConformalClassifier(0.8, method).fit(members.mean.array, y).predict(members.mean)
    assert a.contains.tolist() == b.contains.tolist()


@each_method
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


@each_method
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


@each_method
def test_too_few_rows_give_every_class_and_a_warning(method: Any) -> None:
    logits, y = made(30)
    with pytest.warns(DubitoWarning) as caught:
        sets = ConformalClassifier(0.9, method).fit(Logits(logits[:8]), y[:8])
    assert re.search(
        r"ConformalClassifier: too few rows for level=0\.9 \(8\), so sets hold every class\. Use "
        r"at least 9 rows\.",
        str(caught[0].message),
    )
    assert caught[0].filename == __file__
    assert sets.thresholds_ == {"all": None}
    assert sets.predict(Logits(logits)).contains.all()
    groups = ["a"] * 20 + ["b"] * 8 + ["c"] * 2
    with pytest.warns(DubitoWarning) as caught:
        sets = ConformalClassifier(0.9, method).fit(Logits(logits), y, groups)
    assert re.search(
        r"ConformalClassifier: too few rows for level=0\.9 \(b: 8, c: 2\), so sets hold every "
        r"class\. Use at least 9 rows\.",
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
    for twin in (ConformalClassifier.from_dict(kept), pickle.loads(pickle.dumps(sets))):
        assert twin.predict(Logits(logits), groups).contains.tolist() == expected
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
            lambda: ConformalClassifier(method="raps").fit(Logits(LOGITS), LABELS),  # type: ignore[arg-type]
            BadValueError,
            r"`method` .*, got 'raps'\. Use method='lac'",
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
            "Check that not all labels are missing and not all weights are 0",
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
            r"`groups` .*, got None\. Pass groups to both or to neither",
        ),
        (
            lambda: FITTED.predict(Logits(LOGITS), [1] * 20),
            BadTypeError,
            r"`groups` .*, got groups\. Pass groups to both or to neither",
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
        r"positive weight, got 0\. Check that not all "
        "labels are missing and not all weights are 0",
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
    first = ConformalClassifier(0.85, "aps").fit(wrap(array), y).predict(wrap(array)).contains
    for copy in copies:
        found = ConformalClassifier(0.85, "aps").fit(wrap(copy), y).predict(wrap(copy))
        assert (found.contains == first).all()


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
