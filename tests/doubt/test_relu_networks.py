"""Activation patterns against plain loops; rays against the network itself, far out."""

from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray

from dubito.doubt import activation_patterns, ray_confidence
from dubito.errors import BadTypeError, BadValueError

Floats = NDArray[np.floating[Any]]
Layers = list[tuple[Floats, Any]]


def layers_of(sizes: tuple[int, ...], seed: int = 0, bias: float = 1.0) -> Layers:
    rng = np.random.default_rng(seed)
    return [
        (rng.normal(size=(b, a)) / np.sqrt(a), bias * rng.normal(size=b))
        for a, b in pairwise(sizes)
    ]


def logits_of(layers: Layers, x: Floats) -> Floats:
    """Return the logits of one input, in a plain loop."""
    for number, (w, b) in enumerate(layers):
        x = np.array([row @ x + shift for row, shift in zip(w, b, strict=True)])
        if number < len(layers) - 1:
            x = np.array([max(one, 0.0) for one in x])
    return x


def top(logits: Floats) -> float:
    p = np.exp(logits - logits.max())
    return float((p / p.sum()).max())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_patterns_against_plain_loops(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    known, new = (rng.normal(size=(n, 6)).clip(0).astype(dtype) for n in (50, 30))
    found = activation_patterns(new, known)
    for row, n_shared, distance in zip(new, found.n_shared, found.distance, strict=True):
        apart = [sum((a > 0) != (b > 0) for a, b in zip(row, one, strict=True)) for one in known]
        assert (n_shared, distance) == (apart.count(0), min(apart))
    assert found.n_shared.any()
    assert found.n_shared.dtype == found.distance.dtype == np.int64
    own = activation_patterns(known, known)
    assert (own.n_shared >= 1).all()
    assert not own.distance.any()


def test_many_blocks_of_patterns_are_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    known, new = rng.normal(size=(50, 9)), rng.normal(size=(30, 9))
    whole = activation_patterns(new, known)
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "100")
    parts = activation_patterns(new, known)
    assert (whole.n_shared == parts.n_shared).all()
    assert (whole.distance == parts.distance).all()


@pytest.mark.parametrize("sizes", [(3, 4), (3, 8, 4), (5, 16, 12, 3)])
def test_confidence_is_that_of_the_network(sizes: tuple[int, ...]) -> None:
    layers = layers_of(sizes)
    rng = np.random.default_rng(1)
    origin, directions, factors = (
        rng.normal(size=sizes[0]),
        rng.normal(size=(7, sizes[0])),
        [0, 1.5],
    )
    found = ray_confidence(layers, origin, directions, factors)
    expected = [[top(logits_of(layers, origin + t * d)) for t in factors] for d in directions]
    close(found.confidence, expected, rtol=1e-9)
    # Far out, a logit is linear in the factor: its slope is a difference of two far points.
    near, far = (np.array([logits_of(layers, origin + t * d) for d in directions])
                 for t in (1e6, 2e6))  # fmt: skip
    close(found.slopes, (far - near) / 1e6, rtol=1e-9, atol=1e-9)
    assert (found.limit == 1).all()
    close(ray_confidence(layers, origin, directions, [1e9]).confidence, 1, rtol=1e-9)


def test_slopes_are_the_logits_without_biases() -> None:
    layers = layers_of((5, 16, 12, 3))
    directions = np.random.default_rng(1).normal(size=(7, 5))
    found = ray_confidence(layers, np.ones(5), directions, [1.0])
    bare = [(w, np.zeros(len(w))) for w, _ in layers]
    close(found.slopes, [logits_of(bare, d) for d in directions], rtol=1e-9)
    # Homogeneity: without biases, an input three times as long has logits three times as large.
    close(ray_confidence(bare, np.zeros(5), 3 * directions, [1.0]).slopes, 3 * found.slopes)
    again = ray_confidence([(w, None) for w, _ in layers], np.zeros(5), directions, [2.0])
    expected = [top(2 * logits_of(bare, d)) for d in directions]
    close(again.confidence[:, 0], expected, rtol=1e-9)


def test_a_limit_below_1_where_classes_grow_alike() -> None:
    # Two classes share the only unit that grows; their offsets decide, the third class is gone.
    layers = [(np.array([[1.0], [-1.0]]), [0.5, 0.25]),
              (np.array([[2.0, 0.0], [2.0, 0.0], [0.0, 9.0]]), [0.0, 0.3, 5.0])]  # fmt: skip
    found = ray_confidence(layers, [0.0], [[1.0], [0.0]], [1e3])
    close(found.limit[0], 1 / (1 + np.exp(-0.3)), rtol=1e-9)
    close(found.confidence[0], found.limit[0], rtol=1e-9)
    # A direction of 0 leads nowhere.
    close(found.limit[1], top(logits_of(layers, np.zeros(1))), rtol=1e-9)
    assert found.slopes[1].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
def test_equal_slopes_are_equal_up_to_rounding(scale: float) -> None:
    # 0.1 + 0.2 + 0.3 and 0.3 + 0.2 + 0.1 differ by rounding; exactly, both classes grow alike.
    head = scale * np.array([[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.0, 0.0, 0.0]])
    layers = [(np.ones((3, 1)), None), (head, [0.0, 1.0, 5.0])]
    close(ray_confidence(layers, [0.0], [[1.0]], [1.0]).limit, 1 / (1 + np.exp(-1)), rtol=1e-9)
    # A unit of slope 0.1 + 0.2 - 0.3 stays at its offset, below 0: it never becomes active.
    flat = [
        (np.eye(3), None),
        (scale * np.array([[0.1, 0.2, -0.3], [1.0, 0.0, 0.0]]), [-1.0, 0.0]),
        (np.array([[9e30, 1.0], [0.0, 2.0]]), None),
    ]
    found = ray_confidence(flat, np.zeros(3), np.ones((1, 3)), [1.0])
    close(found.slopes, [[scale, 2 * scale]], rtol=1e-9)
    # A class that is really slower is left behind, by however little.
    behind = [(np.ones((3, 1)), None), (head * np.array([[1.0], [1 - 1e-12], [0.0]]), None)]
    close(ray_confidence(behind, [0.0], [[1.0]], [1.0]).limit, 1.0, rtol=1e-9)


def test_arguments_that_do_not_fit_raise() -> None:
    layers = layers_of((3, 4, 2))
    with pytest.raises(BadValueError, match=r"`directions` must have 3 columns.*, got 2"):
        ray_confidence(layers, np.zeros(3), np.ones((1, 2)), [1.0])
    message = (
        r"`layers\[1\]` .*\(n_outputs, 4\), like the outputs of layers\[0\], got shape \(4, 3\)"
    )
    with pytest.raises(BadValueError, match=message):
        ray_confidence(layers[:1] * 2, np.zeros(3), np.ones((1, 3)), [1.0])
    with pytest.raises(BadValueError, match=r"`layers\[0\]` .*\(n_outputs, 3\), like `origin`"):
        ray_confidence(layers[1:], np.zeros(3), np.ones((1, 3)), [1.0])
    with pytest.raises(BadValueError, match=r"`layers\[0\]\[1\]` must have shape \(4,\)"):
        ray_confidence([(layers[0][0], [1.0])], np.zeros(3), np.ones((1, 3)), [1.0])
    with pytest.raises(BadTypeError, match=r"`layers\[0\]` must be a pair .*, got ndarray"):
        ray_confidence([layers[0][0]], np.zeros(3), np.ones((1, 3)), [1.0])  # type: ignore[list-item]
    with pytest.raises(BadTypeError, match=r"`layers` must be a list .*, got object"):
        ray_confidence(object(), np.zeros(3), np.ones((1, 3)), [1.0])  # type: ignore[arg-type]
    with pytest.raises(BadValueError, match=r"`activations` .*Use `.reshape\(2, -1\)`"):
        activation_patterns(np.ones((2, 3, 4, 4)), np.ones((2, 48)))
    with pytest.raises(BadValueError, match="`layers` must have at least 1 layer, got 0"):
        ray_confidence([], np.zeros(3), np.ones((1, 3)), [1.0])
    with pytest.raises(BadValueError, match=r"`reference` must have 3 units.*, got 2"):
        activation_patterns(np.ones((1, 3)), np.ones((1, 2)))
    with pytest.raises(BadValueError, match="`reference` must have at least 1 row"):
        activation_patterns(np.ones((1, 3)), np.ones((0, 3)))
