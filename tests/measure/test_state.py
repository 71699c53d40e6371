"""What every state promises: neutral when empty, whole from any split, the same after JSON."""

import itertools
import json
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dubito import Logits, Members, MultiLabel, Normal, Probabilities, TopLabel
from dubito.data import Batch
from dubito.errors import (
    BadTypeError,
    BadValueError,
    DubitoError,
    EmptyStateError,
    StateMismatchError,
)
from dubito.measure import (
    AuditState,
    BootstrapState,
    CalibrationTestState,
    ClasswiseCalibrationState,
    MultiLabelState,
    ProperScoresState,
    RankingState,
    RegressionState,
    ReliabilityState,
    SmoothCalibrationErrorState,
    State,
)

STATES: list[type[State]] = [
    AuditState,
    CalibrationTestState,
    ClasswiseCalibrationState,
    ProperScoresState,
    RankingState,
    ReliabilityState,
    BootstrapState,
    SmoothCalibrationErrorState,
]


def logits(rng: np.random.Generator, n: int) -> Batch:
    return Batch.of(rng.integers(0, 4, n), Logits(rng.normal(0, 3, (n, 4))))


def float32_with_weights(rng: np.random.Generator, n: int) -> Batch:
    wide = Logits(rng.normal(0, 3, (n, 70)).astype(np.float32))
    return Batch.of(rng.integers(0, 70, n), wide, sample_weight=rng.integers(0, 3, n))


def impossible_and_missing(rng: np.random.Generator, n: int) -> Batch:
    labels = np.where(rng.random(n) < 0.3, np.nan, rng.integers(0, 2, n))
    return Batch.of(labels, Probabilities(rng.integers(0, 2, n).astype(float)))


def soft_labels(rng: np.random.Generator, n: int) -> Batch:
    return Batch.of(rng.dirichlet([1, 1, 1], n), Probabilities(rng.dirichlet([1, 1, 1], n)))


def members(rng: np.random.Generator, n: int) -> Batch:
    return Batch.of(rng.integers(0, 3, n), Members(rng.dirichlet([1, 1, 1], (5, n))))


def top_labels(rng: np.random.Generator, n: int) -> Batch:
    return Batch.of(None, TopLabel(rng.random(n), rng.random(n) < 0.5))


BATCHES = [logits, float32_with_weights, impossible_and_missing, soft_labels, members, top_labels]

conforming = pytest.mark.parametrize(
    ("kind", "make"),
    [
        pytest.param(kind, make, id=f"{kind.__name__}-{make.__name__}")
        for kind in STATES
        for make in BATCHES
        if not (kind is ClasswiseCalibrationState and make is top_labels)
    ],
)


def same(a: Any, b: Any) -> bool:
    if isinstance(a, dict):
        return set(a) == set(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and a and isinstance(a[0], dict):
        return all(same(one, other) for one, other in zip(a, b, strict=True))
    if isinstance(a, list):
        return bool(np.allclose(a, b, rtol=1e-12, atol=1e-12))
    if a is None:
        return b is None
    return bool(a == b or np.isclose(a, b, rtol=1e-12, atol=1e-12))


@pytest.mark.slow
@conforming
@settings(max_examples=8)
@given(seed=st.integers(0, 2**32 - 1), cuts=st.lists(st.integers(0, 40), max_size=4))
def test_any_split_gives_the_state_of_the_whole(
    kind: type[State],
    make: Callable[[np.random.Generator, int], Batch],
    seed: int,
    cuts: list[int],
) -> None:
    batch = make(np.random.default_rng(seed), 40)
    edges = [0, *sorted(cuts), 40]
    parts = [kind.of(batch.take(slice(*pair))) for pair in itertools.pairwise(edges)]
    forwards = parts[0]
    for part in parts[1:]:
        forwards = forwards + part
    backwards = parts[-1]
    for part in reversed(parts[:-1]):
        backwards = part + backwards
    whole = kind.of(batch).to_dict()
    assert same(forwards.to_dict(), whole)
    assert same(backwards.to_dict(), whole)


@conforming
def test_no_rows_are_neutral(
    kind: type[State], make: Callable[[np.random.Generator, int], Batch]
) -> None:
    batch = make(np.random.default_rng(0), 20)
    state, empty = kind.of(batch), kind.of(batch.take(slice(0, 0)))
    assert (empty + state).to_dict() == state.to_dict() == (state + empty).to_dict()
    if kind is BootstrapState:  # what it holds of no rows is no value at all
        assert empty.value == {}
        return
    with pytest.raises(EmptyStateError, match="at least 1 labeled row"):
        _ = empty.value


def test_what_is_done_to_a_row_does_not_depend_on_its_neighbors() -> None:
    # 0.6 closes a bin; a neighbor that must be renormalized must not move it out of it.
    p = np.tile([0.6, 0.3, 0.1], (20, 1))
    p[-1] = [0.333, 0.333, 0.333]
    whole = ReliabilityState.of(Batch.of(np.zeros(20, int), p))
    alone = ReliabilityState.of(Batch.of(np.zeros(19, int), p[:-1]))
    last = ReliabilityState.of(Batch.of([0], p[-1:]))
    assert (alone + last).count.tolist() == whole.count.tolist()


@pytest.mark.parametrize("kind", STATES, ids=lambda kind: kind.__name__)
def test_rows_without_truth_have_no_value(kind: type[State]) -> None:
    with pytest.raises(BadTypeError):
        kind.of(Batch.of(None, [[0.5, 0.5]]))


def test_states_of_other_kinds_or_classes_do_not_add() -> None:
    two, three = (AuditState.of(Batch.of([0], np.full((1, k), 1 / k))) for k in (2, 3))
    top = AuditState.of(Batch.of(None, TopLabel([0.5], [1])))
    for left, right in ((two, three), (two, top), (two.scores, two.test), (two.scores, 1)):
        with pytest.raises(StateMismatchError):
            _ = left + right  # type: ignore[operator]


@pytest.mark.parametrize("kind", [AuditState, ProperScoresState, RankingState])
def test_a_dict_without_all_fields_raises(kind: type[State]) -> None:
    with pytest.raises(BadValueError, match=r"`\w+` .*(must have|the keys)"):
        kind.from_dict({"weight": 1})


@conforming
def test_a_state_goes_through_json_and_comes_back(
    kind: type[State], make: Callable[[np.random.Generator, int], Batch]
) -> None:
    state = kind.of(make(np.random.default_rng(1), 30))
    text = json.dumps(state.to_dict(), allow_nan=False)
    assert kind.from_dict(json.loads(text)).to_dict() == state.to_dict()


def entries(values: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the path to each entry of nested dicts and of lists of dicts."""
    found = [path] if path else []
    if isinstance(values, dict):
        inner = list(values)
    else:
        is_parts = isinstance(values, list) and values and isinstance(values[0], dict)
        inner = list(range(len(values))) if is_parts else []
    return found + [one for key in inner for one in entries(values[key], (*path, key))]


malformed = st.sampled_from(["evil", {"x": 1}, [["x"]], [{}], float("nan"), True, [[1], [2, 3]]])
READABLE = {
    **{kind.__name__: kind.of(BATCHES[0](np.random.default_rng(0), 30)) for kind in STATES},
    "regression": RegressionState.of(Batch.of([0.5, 2.0], Normal([0.0, 1.0], [1.0, 1.0]))),
    "labels": MultiLabelState.of(Batch.of([[1, 0]], MultiLabel([[0.9, 0.2]])), n_buckets=2),
}


@pytest.mark.parametrize("name", READABLE)
@settings(max_examples=20)
@given(data=st.data(), value=malformed)
def test_a_malformed_value_is_refused_by_its_name(name: str, data: Any, value: Any) -> None:
    state = READABLE[name]
    values = json.loads(json.dumps(state.to_dict()))
    *inner, last = path = data.draw(st.sampled_from(entries(values)))
    holder = values
    for key in inner:
        holder = holder[key]
    holder[last] = value
    dotted = "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in path)[1:]
    with pytest.raises(DubitoError, match=re.escape(f"`{dotted}")):
        type(state).from_dict(values)


@pytest.mark.parametrize("values", [None, [], "evil", {}, {"weight": 1}, {1: 2}])
def test_what_is_no_state_is_refused(values: Any) -> None:
    for state in READABLE.values():
        with pytest.raises(DubitoError):
            type(state).from_dict(values)
