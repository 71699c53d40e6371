"""The virtual class, against the paper's steps in plain NumPy."""

import json
import pickle
import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special
from sklearn.base import clone

from dubito.data import Batch, Shards
from dubito.doubt import VirtualLogitMatching
from dubito.errors import BadTypeError, BadValueError
from dubito.measure import roc_auc

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])


class Parts(Shards):
    """A batch cut into parts, as if it were streamed."""

    def __init__(self, batch: Batch, n_parts: int) -> None:
        self.batches_of = [batch.take(rows) for rows in np.array_split(range(len(batch)), n_parts)]

    def parts(self) -> Iterator[Callable[[], Batch]]:
        return (partial(self.batches_of.__getitem__, i) for i in range(len(self.batches_of)))


def made(
    n_rows: int, n_features: int, n_classes: int, dtype: Precision = np.float64
) -> tuple[Floats, Floats, Floats]:
    """Return features that are mostly in few directions, and a last layer."""
    rng = np.random.default_rng(n_features)
    spread = np.geomspace(3, 0.1, n_features)
    weights = rng.normal(0, 1, (n_classes, n_features))
    y = rng.integers(0, n_classes, n_rows)
    features = rng.normal(0, spread, (n_rows, n_features)) + weights[y]
    return features.astype(dtype), weights.astype(dtype), rng.normal(0, 1, n_classes).astype(dtype)


def reference(
    known: Floats,
    queries: Floats,
    weights: Floats,
    bias: Floats,
    n_dimensions: int,
    weight: Floats | None = None,
) -> Floats:
    """Return the score of Wang et al. 2022, section 4, with its sign turned."""
    x, z, w, b = (a.astype(np.float64) for a in (known, queries, weights, bias))
    share = np.full(len(x), 1 / len(x)) if weight is None else weight / weight.sum()
    origin = -np.linalg.pinv(w) @ b
    # The main space by a singular value decomposition of the rows, not of their second moment.
    _, _, directions = np.linalg.svd(np.sqrt(share)[:, None] * (x - origin), full_matrices=True)
    main = directions[:n_dimensions].T

    def residual(rows: Floats) -> Floats:
        off = rows - origin
        return np.asarray(np.linalg.norm(off - off @ main @ main.T, axis=1))

    alpha = (share @ (x @ w.T + b).max(axis=1)) / (share @ residual(x))
    logits = z @ w.T + b
    virtual = alpha * residual(z)
    # -log of the probability of all classes but the virtual one, and of that one: the log odds.
    p = special.softmax(np.column_stack([logits, virtual]), axis=1)
    with np.errstate(divide="ignore"):
        odds = np.log(p[:, -1]) - np.log(p[:, :-1].sum(axis=1))
    exact = virtual - special.logsumexp(logits, axis=1)
    is_held = np.abs(exact) < 30
    close(odds[is_held], exact[is_held], rtol=1e-6, atol=1e-6)
    return np.asarray(exact)


@each_precision
@pytest.mark.parametrize(
    ("n_features", "n_classes", "n_dimensions"),
    [(2, 2, 1), (6, 3, 2), (6, 3, 0), (20, 4, 10), (5, 12, 4)],
)
def test_scores_are_those_of_the_paper(
    dtype: Precision, n_features: int, n_classes: int, n_dimensions: int
) -> None:
    known, weights, bias = made(300, n_features, n_classes, dtype)
    queries = np.concatenate([known[:20], 3 * known[20:40]])
    uncertainty = VirtualLogitMatching(weights, bias, n_dimensions).fit(known)
    found = uncertainty.score(queries)
    assert found.dtype == np.float64
    close(found, reference(known, queries, weights, bias, n_dimensions), rtol=1e-8, atol=1e-8)


def test_without_a_bias_the_origin_is_0() -> None:
    known, weights, _ = made(200, 6, 3)
    uncertainty = VirtualLogitMatching(weights, n_dimensions=2).fit(known)
    assert uncertainty.origin_.tolist() == [0.0] * 6
    close(uncertainty.score(known), reference(known, known, weights, np.zeros(3), 2), rtol=1e-8)


def test_the_origin_is_where_all_logits_are_nearest_to_0() -> None:
    known, weights, bias = made(200, 6, 3)
    uncertainty = VirtualLogitMatching(weights, bias).fit(known)
    close(weights @ uncertainty.origin_ + bias, 0, atol=1e-12)


@pytest.mark.parametrize(
    ("n_features", "n_main"), [(1, 0), (5, 2), (64, 32), (767, 383), (768, 512), (2048, 1000)]
)
def test_the_main_space_has_as_many_directions_as_the_authors_took(
    n_features: int, n_main: int
) -> None:
    uncertainty = VirtualLogitMatching(np.ones((1, n_features)))
    uncertainty.n_features_ = n_features
    assert uncertainty._subspace_dimension() == n_main


def test_weights_of_rows_count_as_repeats() -> None:
    known, weights, bias = made(100, 6, 3)
    repeats = np.arange(100) % 3
    uncertainty = VirtualLogitMatching(weights, bias, 2).fit(known, sample_weight=repeats)
    repeated = VirtualLogitMatching(weights, bias, 2).fit(np.repeat(known, repeats, axis=0))
    close(uncertainty.score(known), repeated.score(known), rtol=1e-9, atol=1e-9)
    expected = reference(known, known, weights, bias, 2, repeats.astype(np.float64))
    close(uncertainty.score(known), expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("n_parts", [1, 2, 7])
def test_streams_give_what_arrays_give(n_parts: int) -> None:
    known, weights, bias = made(120, 6, 3)
    batch = Batch.of(None, np.full((120, 2), 0.5), features=known)
    found = VirtualLogitMatching(weights, bias, 2).fit(Parts(batch, n_parts))
    expected = VirtualLogitMatching(weights, bias, 2).fit(known)
    close(found.score(known), expected.score(known), rtol=1e-10, atol=1e-10)


def test_ood_inputs_off_the_main_space_are_doubted() -> None:
    known, weights, bias = made(500, 20, 4)
    uncertainty = VirtualLogitMatching(weights, bias, 12).fit(known)
    outliers = known[250:] + np.random.default_rng(0).normal(0, 1, (250, 20))
    is_outlier = np.arange(500) >= 250
    scores = uncertainty.score(np.concatenate([known[:250], outliers]))
    assert roc_auc(is_outlier, scores) > 0.9
    # On average, a known row's virtual logit is its largest logit.
    virtual = uncertainty.score(known) + special.logsumexp(known @ weights.T + bias, axis=1)
    close(virtual.mean(), (known @ weights.T + bias).max(axis=1).mean(), rtol=1e-10)


@pytest.mark.slow
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(0, 5), st.just(4)),
        elements=st.sampled_from([0.0, -0.0, 1.0, -1e3, 1e8, 1e200, -1e308, 1e-300]),
    ),
    st.sampled_from([np.float16, np.float32, np.float64]),
)
def test_no_score_is_other_than_a_number(queries: Floats, dtype: Precision) -> None:
    known, weights, bias = made(60, 4, 3)
    limit = float(np.finfo(dtype).max)
    scores = (
        VirtualLogitMatching(weights, bias, 2)
        .fit(known)
        .score(np.clip(queries, -limit, limit).astype(dtype))
    )
    assert scores.shape == (len(queries),)
    assert np.isfinite(scores).all()


def test_it_is_the_same_after_json_pickle_and_clone() -> None:
    known, weights, bias = made(80, 5, 3)
    uncertainty = VirtualLogitMatching(weights, bias, 2).fit(known)
    expected = uncertainty.score(known)
    kept = VirtualLogitMatching.from_dict(json.loads(json.dumps(uncertainty.to_dict())))
    assert (kept.score(known) == expected).all()
    assert (pickle.loads(pickle.dumps(uncertainty)).score(known) == expected).all()
    assert (clone(uncertainty).fit(known).score(known) == expected).all()


def test_the_callers_arrays_are_left_alone() -> None:
    arrays = made(80, 5, 3)
    before = [array.copy() for array in arrays]
    known, weights, bias = arrays
    VirtualLogitMatching(weights, bias, 2).fit(known).score(known)
    assert all((new == old).all() for new, old in zip(arrays, before, strict=True))


def error_of(uncertainty: VirtualLogitMatching, known: Any) -> str:
    with pytest.raises(BadValueError) as caught:
        uncertainty.fit(known)
    return str(caught.value)


def test_a_layer_that_does_not_fit_the_features_raises() -> None:
    known, weights, bias = made(50, 4, 3)
    assert re.search(
        r"`weights` .*, got shape \(4, 3\)\. Pass weights\.T",
        error_of(VirtualLogitMatching(weights.T, bias), known),
    )
    assert re.search(
        r"`weights` .*, got shape \(3, 2\)\. Pass the features that the layer takes",
        error_of(VirtualLogitMatching(weights[:, :2], bias), known),
    )
    assert re.search(
        r"weights.*[Gg]ot shape \(4,\)", error_of(VirtualLogitMatching(weights[0]), known)
    )
    assert re.search(
        r"`bias` .*, got shape \(2,\)\. Pass the bias of the same layer",
        error_of(VirtualLogitMatching(weights, bias[:2]), known),
    )
    assert re.search(
        "bias.*[Gg]ot nan in row 1",
        error_of(VirtualLogitMatching(weights, [0.0, np.nan, 0.0]), known),
    )


def test_a_principal_space_that_does_not_fit_the_features_raises() -> None:
    known, weights, bias = made(50, 4, 3)
    wrong: Any
    for wrong in (4, -1, 2.0, True):
        assert re.search(
            re.escape(f"got {wrong!r}. Use n_dimensions=2."),
            error_of(VirtualLogitMatching(weights, bias, wrong), known),
        )
    flat = known * [1.0, 1.0, 0.0, 0.0]
    assert re.search(
        r"`features` .*, got no residual\. Lower n_dimensions, or use more rows",
        error_of(VirtualLogitMatching(weights, n_dimensions=2), flat),
    )


def test_logits_that_are_low_everywhere_raise() -> None:
    known, weights, _ = made(50, 4, 3)
    message = error_of(VirtualLogitMatching(0 * weights, [-1.0, -2.0, -1.5]), known)
    assert re.search(r"`weights` .*, got -1\. Pass the layer's own weights and bias", message)


def test_features_too_large_to_be_squared_raise() -> None:
    known, weights, bias = made(50, 4, 3)
    assert re.search(
        r"`features` .*, got an overflow\. Divide the features by a constant first",
        error_of(VirtualLogitMatching(weights, bias, 2), known * 1e200),
    )


class Frame:
    """Something that only defines how to be read as an array, as data frames do."""

    def __init__(self, array: Floats) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: Any = None) -> Floats:
        return np.array(self.array, dtype=dtype)


def test_the_layer_is_copied_at_the_fit() -> None:
    features, weights, bias = made(80, 6, 3)
    uncertainty = VirtualLogitMatching(weights, bias).fit(features)
    expected = uncertainty.score(features)
    weights *= -3
    bias += 5
    assert (uncertainty.score(features) == expected).all()
    uncertainty.set_params(weights=None, bias=None, n_dimensions=1)
    assert (uncertainty.score(features) == expected).all()


def test_weights_that_json_cannot_hold_are_kept_as_learned() -> None:
    features, weights, bias = made(80, 6, 3)
    uncertainty = VirtualLogitMatching(Frame(weights), Frame(bias)).fit(features)
    kept = VirtualLogitMatching.from_dict(json.loads(json.dumps(uncertainty.to_dict())))
    assert kept.weight_.tolist() == weights.tolist()
    assert (kept.score(features) == uncertainty.score(features)).all()


def test_a_layer_that_is_missing_is_reported() -> None:
    with pytest.raises(
        BadTypeError, match=r"`weights` .*, got None\. Use VirtualLogitMatching\(weights, bias\)"
    ):
        VirtualLogitMatching().fit([[1.0, 2.0]])


def test_labels_are_not_even_read() -> None:
    features, weights, bias = made(80, 6, 3)
    expected = VirtualLogitMatching(weights, bias).fit(features).score(features)
    for y in ([None] * 40 + [0] * 40, [-1.5] * 80):
        assert (
            VirtualLogitMatching(weights, bias).fit(features, y).score(features) == expected
        ).all()


def test_weights_are_shown_by_their_shape() -> None:
    score = VirtualLogitMatching(np.ones((10, 512)), np.ones(10))
    expected = "VirtualLogitMatching(weights of shape (10, 512), n_dimensions=None)"
    assert repr(score) == expected
    assert repr(VirtualLogitMatching()).startswith("VirtualLogitMatching(weights of shape None")
