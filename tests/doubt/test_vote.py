"""The class that views vote for, against a count by hand."""

import re
from collections import defaultdict
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray

from dubito import Members
from dubito.doubt import vote
from dubito.doubt.ensembles import _top_classes, _vote_weights
from dubito.errors import BadValueError

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

CONFIDENCES = [0.3575, 0.3309, 0.3409, 0.3105, 0.2684]
CERTAINTIES = [0.4999, 0.4999, 0.4998, 0.4999, 0.4999]


def views(
    classes: list[int], confidences: list[float], n_classes: int = 10, certainty: Any = None
) -> Members:
    """Return views of one row, whose other classes share what a view does not give its top."""
    array = np.repeat((1 - np.array(confidences)[:, None]) / (n_classes - 1), n_classes, axis=1)
    array[np.arange(len(classes)), classes] = confidences
    wrapped = None if certainty is None else np.array(certainty)[:, None]
    return Members(array[:, None], certainty=wrapped)


def made(n_passes: int, n_rows: int, n_classes: int, dtype: Precision = np.float64) -> Members:
    rng = np.random.default_rng(0)
    array = rng.dirichlet(np.full(n_classes, 0.5), (n_passes, n_rows)).astype(dtype)
    return Members(array, certainty=rng.random((n_passes, n_rows)).astype(dtype))


def counted(members: Members, by: str, threshold: float | None) -> tuple[list[int], list[float]]:
    """Return winners and their fractions, counted row by row."""
    winners: list[int] = []
    shares: list[float] = []
    for row in range(members.n_rows):
        tally: dict[int, float] = defaultdict(float)
        for view in range(members.n_passes):
            p = members.array[view, row]
            assert members.certainty is not None
            value = {
                "mode": 1.0,
                "confidence": float(p.max()),
                "certainty": float(members.certainty[view, row]),
            }[by]
            tally[int(p.argmax())] += value if threshold is None else float(value >= threshold)
        if not any(tally.values()):
            winner, share = counted(members.take(slice(row, row + 1)), "mode", None)
            winners, shares = winners + winner, shares + share
            continue
        best = max(tally.values())
        winners.append(min(k for k, weight in tally.items() if weight >= best - 1e-12))
        shares.append(best / sum(tally.values()))
    return winners, shares


def test_the_printed_example() -> None:
    members = views([7, 7, 7, 4, 4], CONFIDENCES, certainty=CERTAINTIES)
    _, confidence = _top_classes(members)
    hard = _vote_weights(members, confidence, "confidence", 0.34)
    assert hard[:, 0].tolist() == [1, 0, 1, 0, 0]
    assert vote(members, by="confidence", threshold=0.34).prediction.tolist() == [7]
    assert vote(members, by="confidence", threshold=0.34).agreement.tolist() == [1.0]
    sure = _vote_weights(members, confidence, "certainty", 0.34)
    assert sure[:, 0].tolist() == [1, 1, 1, 1, 1]
    found = vote(members, by="certainty", threshold=0.34)
    assert (found.prediction.tolist(), found.agreement.tolist()) == ([7], [0.6])
    soft = vote(members, by="confidence")
    assert soft.prediction.tolist() == [7]
    close(soft.agreement, sum(CONFIDENCES[:3]) / sum(CONFIDENCES))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n_classes", [2, 3, 100])
@pytest.mark.parametrize("threshold", [None, 0.0, 0.3, 0.6, 2.0])
@pytest.mark.parametrize("by", ["confidence", "certainty"])
def test_votes_are_those_counted_by_hand(
    dtype: Precision, n_classes: int, threshold: float | None, by: Any
) -> None:
    members = made(5, 60, n_classes, dtype)
    found = vote(members, by=by, threshold=threshold)
    winners, shares = counted(members, by, threshold)
    assert found.prediction.tolist() == winners
    close(found.agreement, shares, rtol=1e-6 if dtype is np.float32 else 1e-12)


@pytest.mark.parametrize("n_classes", [2, 3, 100])
def test_the_mode_is_the_most_frequent_class(n_classes: int) -> None:
    members = made(6, 80, n_classes)
    found = vote(members)
    winners, shares = counted(members, "mode", None)
    assert found.prediction.tolist() == winners
    close(found.agreement, shares)
    tops = members.array.argmax(axis=2)
    counts = [np.bincount(column, minlength=n_classes) for column in tops.T]
    assert found.prediction.tolist() == [int(count.argmax()) for count in counts]
    assert found.agreement.tolist() == [count.max() / 6 for count in counts]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_the_mean_is_that_of_probabilities(dtype: Precision) -> None:
    members = made(5, 80, 7, dtype)
    found = vote(members, by="mean")
    mean = members.array.mean(axis=0, dtype=np.float64)
    assert (found.prediction == mean.argmax(axis=1)).all()
    close(found.agreement, mean.max(axis=1), rtol=1e-6)


@pytest.mark.parametrize("by", ["mode", "mean", "confidence", "certainty"])
def test_of_a_tie_the_first_class_wins(by: Any) -> None:
    members = views([2, 1], [0.6, 0.6], 3, certainty=[0.3, 0.3])
    found = vote(members, by=by)
    assert found.prediction.tolist() == [1]
    close(found.agreement, [0.4] if by == "mean" else [0.5])


@pytest.mark.slow
@given(st.permutations([0.1, 0.2, 0.7, 0.3, 0.6]), st.permutations([0.7, 0.1, 0.2, 0.6, 0.3]))
def test_rounding_makes_and_breaks_no_tie(first: list[float], second: list[float]) -> None:
    certainty = np.array(first + second)[:, None]
    array = np.eye(2)[[1] * 5 + [0] * 5][:, None]
    found = vote(Members(array, certainty=certainty), by="certainty")
    assert found.prediction.tolist() == [0]
    spread = np.stack([first, second], axis=1)[:, None]
    shares = np.concatenate([spread, 1.0 - spread.sum(axis=2, keepdims=True)], axis=2)
    shares = np.clip(shares, 0, None) / np.clip(shares, 0, None).sum(axis=2, keepdims=True)
    both = Members(np.concatenate([shares, shares[:, :, [1, 0, 2]]]))
    assert vote(both, by="mean").prediction[0] != 1


@pytest.mark.slow
@given(st.data(), st.sampled_from(["mode", "mean", "confidence", "certainty"]))
def test_the_order_of_views_does_not_matter(data: Any, by: Any) -> None:
    members = made(6, 20, 4, data.draw(st.sampled_from([np.float32, np.float64])))
    order = data.draw(st.permutations(range(6)))
    assert members.certainty is not None
    other = Members(members.array[order], certainty=members.certainty[order])
    found, expected = vote(other, by=by), vote(members, by=by)
    assert (found.prediction == expected.prediction).all()
    close(found.agreement, expected.agreement, rtol=1e-12)
    assert ((found.agreement > 0) & (found.agreement <= 1)).all()


def test_where_no_view_has_weight_it_is_the_mode() -> None:
    members = views([1, 1, 0], [0.4, 0.4, 0.5], 3, certainty=[0.0, 0.0, 0.0])
    for found in (
        vote(members, by="confidence", threshold=0.9),
        vote(members, by="certainty", threshold=0.1),
        vote(members, by="certainty"),
    ):
        assert found.prediction.tolist() == [1]
        close(found.agreement, [2 / 3])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_value_that_equals_the_threshold_reaches_it(dtype: Precision) -> None:
    array = np.array([[[0.7, 0.3]], [[0.4, 0.6]], [[0.4, 0.6]]], dtype)
    members = Members(array)
    limit = 0.7 if dtype is not np.float16 else float(members.array[0, 0, 0])
    found = vote(members, by="confidence", threshold=limit)
    assert (found.prediction.tolist(), found.agreement.tolist()) == ([0], [1.0])


def test_certainties_of_any_size_can_be_summed() -> None:
    for size in (1e308, 5e-324):
        members = views([1, 1, 0], [0.9, 0.9, 0.9], 2, certainty=[size, size, size])
        found = vote(members, by="certainty")
        assert found.prediction.tolist() == [1]
        close(found.agreement, [2 / 3])


def test_one_view_decides_alone() -> None:
    members = views([3], [0.5], certainty=[0.2])
    for by in ("mode", "confidence", "certainty"):
        found = vote(members, by=by)
        assert (found.prediction.tolist(), found.agreement.tolist()) == ([3], [1.0])


def test_maps_give_a_class_a_pixel() -> None:
    members = made(3, 12, 4)
    for by in ("mode", "mean"):
        found = vote(members.array.reshape(3, 1, 3, 4, 4), by=by)
        assert found.prediction.shape == found.agreement.shape == (1, 3, 4)
        assert (found.prediction.ravel() == vote(members, by=by).prediction).all()


def test_blocks_leave_every_digit_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    members = made(3, 100, 5)
    turned = Members(np.asfortranarray(members.array), certainty=members.certainty)
    for by in ("mode", "mean", "confidence"):
        expected = vote(members, by=by)
        with monkeypatch.context() as patch:
            patch.setenv("DUBITO_BLOCK_ENTRIES", "31")
            for one in (members, turned):
                found = vote(one, by=by)
                assert (found.prediction == expected.prediction).all()
                assert (found.agreement == expected.agreement).all()


def error_of(members: Any, by: Any, threshold: Any = None) -> str:
    with pytest.raises(BadValueError) as caught:
        vote(members, by=by, threshold=threshold)
    return str(caught.value)


def test_invalid_arguments_raise() -> None:
    members = views([0, 1], [0.6, 0.7], 2)
    assert re.search(
        r"`members\.certainty` .*, got None\. Use Members\(array, certainty=\.\.\.\)",
        error_of(members, "certainty"),
    )
    assert re.search(r"`by` .*, got 'median'\. Use by='mode'", error_of(members, "median"))
    assert re.search(
        r"`threshold` .*, got 0\.5\. Use by='confidence' or by='certainty'",
        error_of(members, "mean", 0.5),
    )
    for wrong in (np.nan, np.inf, "high", True):
        assert re.search(
            re.escape(f"got {wrong!r}. Use threshold=0.5."),
            error_of(members, "confidence", wrong),
        )
    negative = views([0, 1], [0.6, 0.7], 2, certainty=[0.5, -1.0])
    assert re.search(
        r"`members\.certainty` .*, got -1\.0 of pass 1 in row 0\. Use np\.exp\(-log_variance\)",
        error_of(negative, "certainty"),
    )
    assert re.search(
        r"`members` .*, got shape \(3, 2\)\. Use np\.stack\(\[pass_1, pass_2, \.\.\.\]\)",
        error_of(np.full((3, 2), 0.5), "mode"),
    )
