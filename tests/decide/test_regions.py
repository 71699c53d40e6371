"""Decision regions: each point as decided alone, lines where costs are equal, areas counted."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from dubito import Logits, Members, Normal, Probabilities
from dubito.decide import CostMatrix, decision_regions
from dubito.errors import BadTypeError, BadValueError, DubitoError

MEANS = [(-1.5, 0.0), (1.5, 0.0), (0.0, 2.0)]


def posterior(features: Any) -> Any:
    """Return the posteriors of three Gaussian classes of different width."""
    spread = [stats.multivariate_normal(mean, 1 + k / 2) for k, mean in enumerate(MEANS)]
    joint = np.stack([np.atleast_1d(one.pdf(features)) for one in spread], axis=1)
    return joint / joint.sum(axis=1, keepdims=True)


@pytest.mark.slow
@settings(max_examples=25)
@given(st.integers(0, 10_000), st.integers(2, 12), st.booleans())
def test_each_point_is_decided_as_it_would_be_alone(seed: int, n: int, has_reject: bool) -> None:
    rng = np.random.default_rng(seed)
    table = rng.uniform(0, 1, (4, 3))
    costs = CostMatrix(table)
    if has_reject:
        costs = costs.with_reject(0.3)
        table = np.vstack([table, [0.3] * 3])
    regions = decision_regions(posterior, (-3, 2), (-2, 4), costs, n_points=n)
    area = np.zeros(len(table))
    for row, y in enumerate(np.linspace(-2, 4, n)):
        for column, x in enumerate(np.linspace(-3, 2, n)):
            p = posterior(np.array([[x, y]])).ravel()
            action = int(np.argmin(table @ p))
            assert regions.action[row, column] == action
            assert regions.cost[row, column] == pytest.approx((table @ p)[action])
            assert regions.confidence[row, column] == pytest.approx(p.max())
            is_edge = (row in (0, n - 1)) + (column in (0, n - 1))
            area[action] += 0.5**is_edge
    np.testing.assert_allclose(regions.area_fraction, area / (n - 1) ** 2, atol=1e-12)
    assert regions.reject == (4 if has_reject else None)
    assert (regions.x[[0, -1]].tolist(), regions.y[[0, -1]].tolist()) == ([-3, 2], [-2, 4])


def test_along_lines_the_two_actions_cost_the_same() -> None:
    costs = CostMatrix([[0, 2, 1], [1, 0, 3], [2, 1, 0]]).with_reject(0.4)
    regions = decision_regions(posterior, (-4, 4), (-4, 5), costs, n_points=300)
    assert {tuple(pair) for pair in regions.between.tolist()} >= {(0, 3), (1, 3), (2, 3)}
    expected = posterior(regions.segments.reshape(-1, 2)) @ costs.array.T
    pair = np.repeat(regions.between, 2, axis=0)
    rows = np.arange(len(pair))
    first, second = expected[rows, pair[:, 0]], expected[rows, pair[:, 1]]
    np.testing.assert_allclose(first, second, atol=1e-3)
    np.testing.assert_allclose(first, expected.min(axis=1), atol=1e-3)


def test_a_circle_has_its_length_and_area() -> None:
    def inside(features: Any) -> Any:
        return Logits(1 - (features**2).sum(axis=1))

    regions = decision_regions(inside, (-2, 2), (-2, 2), n_points=301)
    radius = np.linalg.norm(regions.segments, axis=2)
    np.testing.assert_allclose(radius, 1, atol=1e-4)
    ends = regions.segments
    assert np.linalg.norm(ends[:, 1] - ends[:, 0], axis=1).sum() == pytest.approx(2 * np.pi, 1e-4)
    assert regions.area_fraction[1] == pytest.approx(np.pi / 16, abs=1e-3)
    assert regions.area_fraction.sum() == pytest.approx(1)


def test_reject_lies_between_two_thresholds() -> None:
    costs = CostMatrix.zero_one(2).with_reject(0.25, name="ask")
    regions = decision_regions(lambda z: z[:, 0], (0, 1), (0, 1), costs, n_points=8)
    assert regions.actions == ("0", "1", "ask")
    assert regions.reject == 2
    for pair, x in [((0, 2), 0.25), ((1, 2), 0.75)]:
        lines = regions.segments[(regions.between == pair).all(axis=1)]
        np.testing.assert_allclose(lines[..., 0], x, atol=1e-8)
        length = np.linalg.norm(lines[:, 1] - lines[:, 0], axis=1).sum()
        assert length == pytest.approx(1)
    assert len(np.unique(regions.between, axis=0)) == 2


def test_where_all_tie_reject_takes_everything() -> None:
    costs = CostMatrix.zero_one(2).with_reject(0.5)
    regions = decision_regions(lambda z: np.full(len(z), 0.5), (0, 1), (0, 1), costs, n_points=3)
    assert (regions.action == 2).all()
    assert regions.area_fraction.tolist() == [0, 0, 1]
    assert len(regions.segments) == 0


def test_any_outputs_will_do_and_names_decide() -> None:
    slopes = np.array([[1.0, -1.0, 0.2], [0.3, 0.5, -1.0]])
    kinds = [
        lambda z: Logits(z @ slopes, classes=["cat", "dog", "fox"]),
        lambda z: Probabilities(special.softmax(z @ slopes, axis=1), ["cat", "dog", "fox"]),
        lambda z: Members(special.softmax(z @ slopes, axis=1)[np.newaxis], ["cat", "dog", "fox"]),
    ]
    swapped = CostMatrix.zero_one(["fox", "dog", "cat"])
    found = [decision_regions(kind, (-1, 1.1), (-2, 2.3), n_points=20) for kind in kinds]
    for regions in found:
        assert regions.actions == ("cat", "dog", "fox")
        np.testing.assert_array_equal(regions.action, found[0].action)
        np.testing.assert_allclose(regions.segments, found[0].segments, atol=1e-12)
    other = decision_regions(kinds[0], (-1, 1.1), (-2, 2.3), swapped, n_points=20)
    names = np.array(other.actions)[other.action]
    assert names.tolist() == np.array(("cat", "dog", "fox"))[found[0].action].tolist()


def test_nothing_can_be_written_to() -> None:
    regions = decision_regions(lambda z: z[:, 0], (0, 1), (0, 1), n_points=3)
    for name in ("x", "y", "action", "cost", "confidence", "segments", "between", "area_fraction"):
        assert not getattr(regions, name).flags.writeable


RATED = CostMatrix([[0, "amount"], [1, 0]])

BAD: list[tuple[dict[str, Any], type[DubitoError], str]] = [
    (
        {"posterior": [[0.5, 0.5]]},
        BadTypeError,
        r"`posterior` .*got list\. Pass model\.predict_proba",
    ),
    (
        {"posterior": lambda z: [0.5]},
        BadValueError,
        r"`posterior\(features\)` .*got 1\. Return one row of",
    ),
    (
        {"posterior": lambda z: Normal(z[:, 0], np.ones(len(z)))},
        BadTypeError,
        r"`posterior\(features\)` .*got Normal\. Pass the whole distribution over classes",
    ),
    (
        {"x": (1, 0)},
        BadValueError,
        r"`x` .*got \[1\.0, 0\.0\]\. Pass x=\(0, 1\)",
    ),
    (
        {"x": (-1e308, 1e308)},
        BadValueError,
        r"`x` .*got \[-1e\+308, 1e\+308\]\. Pass x=\(0, 1\)",
    ),
    (
        {"y": np.zeros(50)},
        BadValueError,
        r"`y` .*got shape \(50,\)\. Pass y=\(0, 1\)",
    ),
    (
        {"n_points": 1},
        BadValueError,
        r"`n_points` .*got 1\. Use n_points=200",
    ),
    (
        {"costs": RATED},
        BadValueError,
        r"`costs` must have no expressions of columns, got amount\. Use costs\.at\(\{'amount'",
    ),
    (
        {"costs": [[0, 1], [1, 0]]},
        BadTypeError,
        r"`costs` .*got list\. Use CostMatrix\(costs\), or CostMatrix\.from_loss\(loss,",
    ),
]


@pytest.mark.parametrize(("change", "kind", "message"), BAD)
def test_invalid_arguments_raise(change: Any, kind: type[DubitoError], message: str) -> None:
    given_ = {"posterior": lambda z: z[:, 0], "x": (0, 1), "y": (0, 1), "n_points": 3}
    with pytest.raises(kind) as caught:
        decision_regions(**{**given_, **change})
    assert re.search(message, str(caught.value))
