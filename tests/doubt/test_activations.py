"""Norms and angles agree with plain NumPy, and with the softmax that they are parts of."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special

from dubito.data import load_fashion_mnist
from dubito.doubt import (
    familiarity,
    feature_norm,
    mental_model,
    negative_feature_norm,
    softmax_decomposition,
    unfamiliarity,
)
from dubito.errors import BadTypeError, BadValueError

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

each_precision = pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
OF_A_LAYER: list[Callable[..., Any]] = [
    familiarity,
    unfamiliarity,
    mental_model,
    softmax_decomposition,
]
each_of_a_layer = pytest.mark.parametrize("function", OF_A_LAYER)


def layer(
    dtype: Precision = np.float64, n_rows: int = 40, n_classes: int = 5, n_features: int = 7
) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(n_classes)
    z, w = rng.normal(0, 3, (n_rows, n_features)), rng.normal(size=(n_classes, n_features))
    return z.astype(dtype), w.astype(dtype)


def cosines(z: Floats, w: Floats) -> Floats:
    """Return each cosine on its own, in a plain loop."""
    z, w = z.astype(np.float64), w.astype(np.float64)
    return np.array(
        [[a @ b / (np.linalg.norm(a) * np.linalg.norm(b)) for b in w] for a in z], np.float64
    )


def simplex(n_classes: int) -> Floats:
    """Return unit vectors whose cosines to each other are all -1 / (K - 1)."""
    centerd = np.eye(n_classes) - 1 / n_classes
    return np.asarray(centerd / np.linalg.norm(centerd, axis=1, keepdims=True))


@each_precision
def test_norms_and_cosines_against_plain_loops(dtype: Precision) -> None:
    z, w = layer(dtype)
    norms = np.linalg.norm(z.astype(np.float64), axis=1)
    closest = cosines(z, w).max(axis=1)
    assert feature_norm(z).dtype == familiarity(z, w).dtype == np.float64
    close(feature_norm(z), norms, rtol=1e-13)
    close(negative_feature_norm(z), -norms, rtol=1e-13)
    close(familiarity(z, w), closest, rtol=1e-13)
    close(unfamiliarity(z, w), 1 - closest, rtol=1e-12)


def test_many_blocks_are_as_one(monkeypatch: pytest.MonkeyPatch) -> None:
    z, w = layer()
    norms, closest, parts = feature_norm(z), familiarity(z, w), softmax_decomposition(z, w)
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "30")
    close(feature_norm(z), norms, rtol=1e-15)
    close(familiarity(z, w), closest, rtol=1e-14)
    close(softmax_decomposition(z, w).uncertainty_by_norm, parts.uncertainty_by_norm, rtol=1e-12)
    close(softmax_decomposition(z, w).uncertainty, parts.uncertainty, rtol=1e-12)


@pytest.mark.parametrize("scale", [1e-320, 1e-200, 1e30, 1e200, 1e305])
def test_neither_tiny_nor_huge_features_lose_their_norm_or_angle(scale: float) -> None:
    z, w = np.array([[3.0, 4.0], [1.0, -1.0]]) * scale, np.eye(2) * scale
    close(feature_norm(z), np.array([5, np.sqrt(2)]) * scale, rtol=1e-3)
    close(familiarity(z, w), [0.8, np.sqrt(0.5)], rtol=1e-3)


@each_of_a_layer
def test_zero_features_and_weights_have_the_cosine_0(function: Callable[..., Any]) -> None:
    z, w = np.array([[0.0, 0.0], [1.0, 1.0]]), np.array([[0.0, 0.0], [-1.0, 0.0]])
    found = function(z, w)
    if function is softmax_decomposition:
        assert found.familiarity.tolist() == [0, 0]
        close(found.uncertainty, [0.5, 1 - special.expit(1.0)])
    else:
        expected = {familiarity: 0.0, unfamiliarity: 1.0, mental_model: -0.5}
        assert found[0] == expected[function]


@pytest.mark.parametrize("n_classes", [2, 3, 10])
@pytest.mark.parametrize("a", [1e-3, 0.5, 3.0, 20.0])
def test_the_simplex_form_is_the_softmax_of_a_simplex(n_classes: int, a: float) -> None:
    rng = np.random.default_rng(0)
    w = np.hstack([simplex(n_classes), np.zeros((n_classes, 3))])
    apart = np.hstack([np.zeros((n_classes, n_classes)), rng.normal(0, 5, (n_classes, 3))])
    z = a * w + apart
    p = special.softmax(z @ w.T, axis=1)
    close(mental_model(z, w, form="simplex"), -p.max(axis=1), rtol=0, atol=1e-9)
    # The published form is surer of a row of which a part points at no class.
    published = mental_model(z, w, form="published")
    assert (published <= -p.max(axis=1)).all()
    assert a > 3 or (published < -p.max(axis=1) - 1e-6).all()


@each_precision
@pytest.mark.parametrize("n_classes", [2, 5, 30])
def test_both_forms_are_those_of_the_formula(dtype: Precision, n_classes: int) -> None:
    z, w = layer(dtype, n_classes=n_classes)
    norm, c, k = np.linalg.norm(z.astype(float), axis=1), cosines(z, w).max(axis=1), n_classes
    published = -1 / (1 + (k - 1) * np.exp(-norm * (1 / (k - 1) + c)))
    close(mental_model(z, w), published, rtol=1e-12)
    consistent = -1 / (1 + (k - 1) * np.exp(-norm * c * k / (k - 1)))
    close(mental_model(z, w, form="simplex"), consistent, rtol=1e-12)


def test_both_forms_agree_where_a_row_points_at_a_class() -> None:
    w = simplex(4)
    close(mental_model(2 * w, w), mental_model(2 * w, w, form="simplex"), rtol=1e-12)


def plain_parts(z: Floats, w: Floats, b: Floats) -> tuple[Floats, Floats, Floats]:
    """Return the three largest probabilities row by row, by the definitions."""
    norms, lengths, angles = (
        np.linalg.norm(z, axis=1),
        np.linalg.norm(w, axis=1),
        cosines(z, w),
    )
    orders = [np.argsort(-(row @ w.T)) for row in z]
    pull = np.mean([(lengths * angle)[o] for angle, o in zip(angles, orders, strict=True)], axis=0)
    bias = np.mean([b[o] for o in orders], axis=0)
    whole = [special.softmax(row @ w.T + b).max() for row in z]
    by_angle = [special.softmax(norms.mean() * lengths * angle + b).max() for angle in angles]
    by_norm = [special.softmax(norm * pull + bias).max() for norm in norms]
    return np.array(whole), np.array(by_angle), np.array(by_norm)


@pytest.mark.parametrize("has_bias", [True, False])
@pytest.mark.parametrize("n_classes", [2, 5, 70])
def test_the_parts_against_plain_loops(has_bias: bool, n_classes: int) -> None:
    z, w = layer(n_classes=n_classes)
    z /= 4
    b = np.random.default_rng(1).normal(size=n_classes) if has_bias else None
    parts = softmax_decomposition(z, w, b)
    whole, by_angle, by_norm = plain_parts(z, w, np.zeros(n_classes) if b is None else b)
    close(parts.norm, np.linalg.norm(z, axis=1), rtol=1e-13)
    close(parts.familiarity, cosines(z, w).max(axis=1), rtol=1e-13)
    close(parts.uncertainty, 1 - whole, rtol=1e-9, atol=1e-13)
    close(parts.uncertainty_by_angle, 1 - by_angle, rtol=1e-9, atol=1e-13)
    close(parts.uncertainty_by_norm, 1 - by_norm, rtol=1e-9, atol=1e-13)


def test_rows_of_one_norm_differ_by_their_angles_alone() -> None:
    z, w = layer()
    z /= np.linalg.norm(z, axis=1, keepdims=True)
    parts = softmax_decomposition(z, w)
    close(parts.uncertainty_by_angle, parts.uncertainty, rtol=1e-9)
    close(parts.uncertainty_by_norm, parts.uncertainty_by_norm[0], rtol=1e-9)


def test_rows_of_one_direction_differ_by_their_norms_alone() -> None:
    z, w = layer()
    b = np.random.default_rng(2).normal(size=5)
    z = np.linspace(0.9, 1.1, 9)[:, np.newaxis] * z[0]
    parts = softmax_decomposition(z, w, b)
    close(parts.uncertainty_by_norm, parts.uncertainty, rtol=1e-9)
    close(parts.uncertainty_by_angle, parts.uncertainty_by_angle[0], rtol=1e-9)


def test_without_a_bias_longer_features_never_raise_uncertainty() -> None:
    z, w = layer(n_rows=200)
    parts = softmax_decomposition(z, w)
    order = np.argsort(parts.norm)
    assert (np.diff(parts.uncertainty_by_norm[order]) <= 0).all()


@pytest.mark.parametrize("has_bias", [True, False])
def test_per_class_parts_give_the_softmax(has_bias: bool) -> None:
    z, w = layer()
    b = np.linspace(-1, 1, 5) if has_bias else np.zeros(5)
    parts = softmax_decomposition(z, w, b if has_bias else None)
    close(parts.class_norms, [np.sqrt(sum(one * one for one in row)) for row in w], rtol=1e-12)
    close(parts.cosines, cosines(z, w), rtol=1e-9, atol=1e-12)
    expected = []
    for row in z:
        p = np.exp([row @ one + shift for one, shift in zip(w, b, strict=True)])
        expected.append(p / p.sum())
    close(parts.probabilities, expected, rtol=1e-9)
    logits = parts.norm[:, np.newaxis] * parts.class_norms * parts.cosines + b
    close(special.softmax(logits, axis=1), expected, rtol=1e-9)
    close(parts.uncertainty, 1 - parts.probabilities.max(axis=1), atol=1e-12)


def test_the_parts_of_a_real_layer_make_its_logits() -> None:
    sample = load_fashion_mnist()
    parts = softmax_decomposition(sample.test_features, sample.weight, sample.bias)
    p = special.softmax(sample.test_logits.astype(np.float64), axis=1)
    # Features came as float16.
    close(parts.uncertainty, 1 - p.max(axis=1), atol=0.02)


@st.composite
def nasty_layers(draw: Any) -> tuple[Floats, Floats]:
    dtype: Precision = draw(st.sampled_from([np.float32, np.float64]))
    info = np.finfo(dtype)
    special_values = [0.0, -0.0, 1.0, -1.0, 1e4, float(info.tiny), float(info.max), float(info.min)]
    anything = st.floats(-1e3, 1e3, width=32 if dtype is np.float32 else 64)
    elements = st.sampled_from(special_values) | anything
    n_rows, n_classes, n_features = (draw(st.integers(low, 4)) for low in (1, 2, 1))
    z: Floats = draw(hnp.arrays(dtype, (n_rows, n_features), elements=elements))
    w: Floats = draw(hnp.arrays(dtype, (n_classes, n_features), elements=elements))
    return z, w


@pytest.mark.slow
@settings(max_examples=100)
@given(nasty_layers())
def test_nothing_of_a_nasty_layer_leaves_its_range(given_layer: tuple[Floats, Floats]) -> None:
    z, w = given_layer
    before = z.copy(), w.copy()
    norm, c = feature_norm(z), familiarity(z, w)
    assert (np.isfinite(norm) & (norm >= 0)).all()
    assert (norm >= np.abs(z).max(axis=1) * (1 - 1e-12)).all()
    assert ((c >= -1) & (c <= 1)).all()
    for form in ("published", "simplex"):
        model = mental_model(z, w, form)
        assert ((model >= -1) & (model <= 0)).all()
    parts = softmax_decomposition(z, w, np.ones(len(w)))
    for uncertainty in (parts.uncertainty, parts.uncertainty_by_angle, parts.uncertainty_by_norm):
        assert ((uncertainty >= 0) & (uncertainty <= 1 - 1 / len(w) + 1e-9)).all()
    assert (z == before[0]).all()
    assert (w == before[1]).all()


def test_one_class_has_a_familiarity() -> None:
    assert familiarity([[2.0, 0.0]], [[1.0, 0.0]]).tolist() == [1.0]


def test_no_rows_have_no_scores() -> None:
    z, w = np.empty((0, 2)), np.eye(2)
    assert feature_norm(z).shape == familiarity(z, w).shape == mental_model(z, w).shape == (0,)


@each_of_a_layer
def test_weights_of_another_shape_raise(function: Callable[..., Any]) -> None:
    with pytest.raises(
        BadValueError,
        match=r"`weights` must have shape \(n_classes, 3\), like the features, got shape \(2, "
        r"5\)\. Pass the features that the layer takes",
    ):
        function(np.ones((4, 3)), np.ones((2, 5)))


@each_of_a_layer
def test_transposed_weights_raise(function: Callable[..., Any]) -> None:
    with pytest.raises(
        BadValueError,
        match=r"`weights` must have shape \(n_classes, 3\).*, got shape \(3, 2\)\. Pass weights\.T",
    ):
        function(np.ones((4, 3)), np.ones((3, 2)))


@pytest.mark.parametrize("function", [mental_model, softmax_decomposition])
def test_a_softmax_of_one_class_raises(function: Callable[..., Any]) -> None:
    with pytest.raises(
        BadValueError,
        match=r"`weights` must have at least 2 classes, got 1\. Pass one row per class",
    ):
        function([[1.0]], [[1.0]])


@each_of_a_layer
def test_one_dimensional_weights_raise(function: Callable[..., Any]) -> None:
    with pytest.raises(
        BadValueError,
        match=r"`weights` .*, got shape \(1,\)\. Use `\.reshape\(-1, 1\)` for a single column",
    ):
        function([[1.0]], [1.0])


@each_of_a_layer
def test_weights_of_nan_raise(function: Callable[..., Any]) -> None:
    with pytest.raises(
        BadValueError,
        match=r"`weights` .*, got nan in row 1, column 0\. Drop invalid rows, or fix what "
        "produced them",
    ):
        function([[1.0]], [[1.0], [np.nan]])


@pytest.mark.parametrize("function", [feature_norm, negative_feature_norm])
def test_invalid_features_raise(function: Callable[..., Any]) -> None:
    with pytest.raises(
        BadValueError,
        match=r"`features` .*, got shape \(2,\)\. Use `\.reshape\(-1, 1\)` for a single column",
    ):
        function([1.0, 2.0])
    with pytest.raises(
        BadValueError,
        match=r"`features` .*, got inf in row 0, column 1\. Drop invalid rows, or fix what "
        "produced them",
    ):
        function([[1.0, np.inf]])
    with pytest.raises(BadTypeError):
        function(None)


def test_a_bias_of_another_shape_raises() -> None:
    with pytest.raises(
        BadValueError, match=r"`bias` .*, got shape \(3,\)\. Pass the bias of the same layer"
    ):
        softmax_decomposition(np.ones((4, 3)), np.ones((2, 3)), [0.0, 0.0, 0.0])


def test_a_decomposition_of_no_rows_raises() -> None:
    with pytest.raises(BadValueError, match=r"`features` .*, got 0\. Pass more rows"):
        softmax_decomposition(np.empty((0, 3)), np.ones((2, 3)))


def test_an_unknown_form_raises() -> None:
    with pytest.raises(BadValueError, match=r"`form` .*, got 'own'\. Use form='published'"):
        mental_model([[1.0]], [[1.0], [2.0]], form="own")  # type: ignore[arg-type]
