"""Two parts that sum to the total, neither below 0, each by its plain formula."""

import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import special, stats

from dubito import Logits, Members, Normal, Probabilities, Quantiles, Samples
from dubito.doubt import (
    UncertaintyDecomposition,
    decompose_uncertainty,
    softmax_decomposition,
    uncertainty_scores,
    vote,
)
from dubito.doubt.ensembles import mean_and_std
from dubito.errors import BadTypeError, BadValueError

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])
each_way = pytest.mark.parametrize("by", ["entropy", "variance"])
each_width = pytest.mark.parametrize("n_classes", [2, 3, 10, 64, 1023, 1500])


def made(
    n_passes: int, n_rows: int, n_classes: int, dtype: Precision = np.float64, seed: int = 0
) -> Floats:
    """Return probabilities of passes, some of them exactly 0."""
    rng = np.random.default_rng(seed)
    shares = special.softmax(rng.normal(0, 3, (n_passes, n_rows, n_classes)), axis=2)
    shares *= rng.random(shares.shape) < 0.8
    shares[..., 0] += 1e-3
    return np.asarray(shares / shares.sum(axis=2, keepdims=True), dtype)


def reference(array: Floats, by: str) -> tuple[Floats, Floats, Floats]:
    """Return total, aleatoric and epistemic uncertainty, straight from their definitions."""
    p = array.astype(np.float64)
    mean = p.mean(axis=0)
    if by == "variance":
        total = (mean * (1 - mean)).sum(axis=-1)
        return total, (p * (1 - p)).sum(axis=-1).mean(axis=0), p.var(axis=0).sum(axis=-1)
    total = special.entr(mean).sum(axis=-1)
    aleatoric = special.entr(p).sum(axis=-1).mean(axis=0)
    return total, aleatoric, special.rel_entr(p, mean[np.newaxis]).sum(axis=-1).mean(axis=0)


def parts(uncertainty: UncertaintyDecomposition) -> tuple[Floats, Floats, Floats]:
    return uncertainty.total, uncertainty.aleatoric, uncertainty.epistemic


@each_way
@each_precision
@each_width
def test_the_parts_are_those_of_the_formulas(by: Any, dtype: Precision, n_classes: int) -> None:
    array = made(7, 40, n_classes, dtype)
    uncertainty = decompose_uncertainty(Members(array), by=by)
    for found, expected in zip(parts(uncertainty), reference(array, by), strict=True):
        assert found.shape == (40,)
        assert found.dtype == np.float64
        # Float32 rows sum to 1 but for 1e-7, which the plain divergence takes for a distance.
        close(found, expected, rtol=1e-10, atol=1e-13 if dtype is np.float64 else 2e-7)
    close(uncertainty.total, uncertainty.aleatoric + uncertainty.epistemic, atol=1e-12, rtol=0)


def test_entropy_agrees_with_scipy_row_by_row() -> None:
    array = made(4, 9, 5)
    uncertainty = decompose_uncertainty(array)
    for row in range(9):
        mean = array[:, row].mean(axis=0)
        close(uncertainty.total[row], stats.entropy(mean))
        close(uncertainty.epistemic[row], np.mean([stats.entropy(p, mean) for p in array[:, row]]))


def test_mutual_information_is_that_of_the_joint_table() -> None:
    array = made(6, 1, 4)
    joint = array[:, 0] / 6  # of pass and label
    apart = joint.sum(axis=1, keepdims=True) * joint.sum(axis=0, keepdims=True)
    expected = special.rel_entr(joint, apart).sum()
    close(decompose_uncertainty(array).epistemic[0], expected, rtol=1e-12)


@st.composite
def nasty_members(draw: Any) -> Floats:
    dtype: Precision = draw(st.sampled_from([np.float32, np.float64, np.float16]))
    shape = draw(st.tuples(st.integers(2, 5), st.integers(1, 4), st.sampled_from([2, 3, 70])))
    tiny = [0.0, 1e-300, float(np.finfo(np.float32).smallest_subnormal), 1e-30, 1e-8, 1.0, 1e6]
    entries = st.sampled_from(tiny) | st.floats(0, 1)
    shares = draw(hnp.arrays(np.float64, shape, elements=entries))
    shares[..., draw(st.integers(0, shape[2] - 1))] += draw(st.sampled_from([1e-3, 1.0, 1e9]))
    return np.asarray(shares / shares.sum(axis=2, keepdims=True), dtype)


@pytest.mark.slow
@settings(max_examples=100)
@given(nasty_members(), st.sampled_from(["entropy", "variance"]))
def test_parts_are_never_negative_and_always_add_up(array: Floats, by: Any) -> None:
    uncertainty = decompose_uncertainty(Members(array), by=by)
    n_classes = array.shape[2]
    highest = np.log(n_classes) if by == "entropy" else 1 - 1 / n_classes
    for part in parts(uncertainty):
        assert (part >= 0).all()
        assert (part <= highest + 1e-6).all()
    close(uncertainty.total, uncertainty.aleatoric + uncertainty.epistemic, atol=1e-12, rtol=0)


@pytest.mark.slow
@given(nasty_members(), st.sampled_from(["entropy", "variance"]), st.integers(2, 9))
def test_equal_members_have_no_epistemic_uncertainty(array: Floats, by: Any, n_passes: int) -> None:
    uncertainty = decompose_uncertainty(Members(np.repeat(array[:1], n_passes, axis=0)), by=by)
    assert (uncertainty.epistemic == 0).all()
    close(uncertainty.total, uncertainty.aleatoric, rtol=1e-14)


@each_way
@each_precision
def test_certain_members_that_disagree_have_no_aleatoric_uncertainty(
    by: Any, dtype: Precision
) -> None:
    array = np.eye(4, dtype=dtype)[[[0], [1], [2], [2]]]
    uncertainty = decompose_uncertainty(array, by=by)
    mean = np.array([0.25, 0.25, 0.5])
    expected = special.entr(mean).sum() if by == "entropy" else 1 - (mean**2).sum()
    assert uncertainty.aleatoric.tolist() == [0.0]
    close(uncertainty.epistemic, expected, rtol=1e-14)
    close(uncertainty.total, expected, rtol=1e-14)


@pytest.mark.parametrize("step", [1e-3, 1e-5, 1e-7, 1e-9])
def test_epistemic_uncertainty_of_members_that_nearly_agree_keeps_its_digits(step: float) -> None:
    p, off = np.array([0.5, 0.5]), np.array([step, -step])
    members = np.stack([p + off, p - off])[:, np.newaxis]
    # Two classes and two members, each way off by a relative t = 2 step:
    # half of (1 + t) log(1 + t) + (1 - t) log(1 - t), for each class and on average.
    t = members[0, 0, 0] - members[1, 0, 0]
    expected = t**2 / 2 + t**4 / 12 + t**6 / 30
    close(decompose_uncertainty(members).epistemic, expected, rtol=1e-7)


@each_way
def test_the_order_of_passes_and_classes_does_not_matter(by: Any) -> None:
    array = made(5, 30, 6)
    expected = parts(decompose_uncertainty(array, by=by))
    for other in (array[::-1], array[:, :, ::-1], np.asfortranarray(array)):
        for found, part in zip(parts(decompose_uncertainty(other, by=by)), expected, strict=True):
            close(found, part, rtol=1e-12, atol=1e-15)


@each_way
def test_blocks_and_threads_leave_every_digit_as_it_was(
    by: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    array = made(3, 200, 5)
    whole = parts(decompose_uncertainty(array, by=by))
    monkeypatch.setenv("DUBITO_BLOCK_ENTRIES", "45")
    for one in (array, np.asfortranarray(array)):
        for found, expected in zip(parts(decompose_uncertainty(one, by=by)), whole, strict=True):
            assert (found == expected).all()


def test_passes_come_as_members_arrays_lists_or_outputs() -> None:
    array = made(3, 8, 4)
    expected = decompose_uncertainty(Members(array)).epistemic
    assert (decompose_uncertainty(array).epistemic == expected).all()
    assert (decompose_uncertainty(array.tolist()).epistemic == expected).all()
    assert (
        decompose_uncertainty([Probabilities(one) for one in array]).epistemic == expected
    ).all()
    with np.errstate(divide="ignore"):
        logits = np.maximum(np.log(array), -1000)
    close(decompose_uncertainty([Logits(one) for one in logits]).epistemic, expected, rtol=1e-9)


@each_way
def test_maps_give_a_number_a_pixel(by: Any) -> None:
    array = made(3, 2 * 4 * 5, 6)
    uncertainty = decompose_uncertainty(array.reshape(3, 2, 4, 5, 6), by=by)
    assert uncertainty.total.shape == (2, 4, 5)
    for found, expected in zip(
        parts(uncertainty), parts(decompose_uncertainty(array, by=by)), strict=True
    ):
        assert (found.ravel() == expected).all()


def test_no_rows_are_no_numbers() -> None:
    assert decompose_uncertainty(np.empty((2, 0, 3))).total.shape == (0,)


@pytest.mark.slow
@each_way
def test_members_are_neither_copied_nor_changed(by: Any) -> None:
    array = made(5, 20_000, 20, np.float32)
    members, before = Members(array), array[:, ::1000].copy()
    decompose_uncertainty(array[:, :2], by=by)
    tracemalloc.start()
    try:
        decompose_uncertainty(members, by=by)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 30 * array.shape[1] + 1e6 < array.nbytes
    assert (array[:, ::1000] == before).all()


@pytest.mark.parametrize("shape", [(50,), (50, 3)])
@each_precision
def test_normals_follow_the_law_of_total_variance(shape: tuple[int, ...], dtype: Precision) -> None:
    rng = np.random.default_rng(0)
    means = rng.normal(0, 2, (4, *shape)).astype(dtype)
    stds = (rng.random((4, *shape)) + 0.1).astype(dtype)
    members = [Normal(m, s) for m, s in zip(means, stds, strict=True)]
    uncertainty = decompose_uncertainty(members)
    second = (stds.astype(np.float64) ** 2 + means.astype(np.float64) ** 2).mean(axis=0)
    close(uncertainty.total, second - means.mean(axis=0, dtype=np.float64) ** 2, rtol=1e-10)
    close(uncertainty.aleatoric, (stds.astype(np.float64) ** 2).mean(axis=0), rtol=1e-12)
    close(uncertainty.epistemic, means.astype(np.float64).var(axis=0), rtol=1e-12)
    assert (decompose_uncertainty(members, by="variance").total == uncertainty.total).all()


def test_samples_stand_for_what_they_were_drawn_from() -> None:
    draws = np.random.default_rng(0).normal(5, 2, (3, 20, 100)) + np.arange(3)[:, None, None]
    uncertainty = decompose_uncertainty([Samples(one) for one in draws])
    close(uncertainty.aleatoric, draws.var(axis=2, ddof=1).mean(axis=0), rtol=1e-12)
    close(uncertainty.epistemic, draws.mean(axis=2).var(axis=0), rtol=1e-12)
    single = decompose_uncertainty([Samples(one[:, :1]) for one in draws])
    assert (single.aleatoric == 0).all()


@pytest.mark.parametrize("shape", [(9, 5), (9, 2), (9, 5, 3)])
@pytest.mark.parametrize("size", [1e-200, 1.0, 1e200])
def test_moments_are_numpys_whatever_the_size(shape: tuple[int, ...], size: float) -> None:
    draws = np.random.default_rng(1).normal(3, 1, shape)
    mean, std = mean_and_std(Samples(draws * size))
    close(mean / size, draws.mean(axis=1), rtol=1e-12)
    close(std / size, draws.std(axis=1, ddof=1), rtol=1e-12)


@pytest.mark.slow
@given(st.floats(-1e150, 1e150), st.floats(1e-150, 1e150), st.integers(2, 7), st.integers(1, 5))
def test_equal_normals_or_samples_have_no_epistemic_uncertainty(
    mean: float, std: float, n_members: int, n_rows: int
) -> None:
    normal = Normal(np.full(n_rows, mean), np.full(n_rows, std))
    assert (decompose_uncertainty([normal] * n_members).epistemic == 0).all()
    samples = Samples(np.full((n_rows, 3), mean))
    uncertainty = decompose_uncertainty((samples,) * n_members)
    assert (uncertainty.total == 0).all()


def error_of(kind: type[Exception], members: Any, by: Any = None) -> str:
    with pytest.raises(kind) as caught:
        decompose_uncertainty(members, by=by)
    return str(caught.value)


def test_one_pass_cannot_be_split() -> None:
    message = r"`members` .*, got 1\. Use an ensemble, dropout passes or augmented views"
    normal = Normal([0.0], [1.0])
    assert re.search(message, error_of(BadValueError, Members([[[0.5, 0.5]]])))
    assert re.search(message, error_of(BadValueError, normal))
    assert re.search(message, error_of(BadValueError, [normal]))


def test_members_that_cannot_be_decomposed_raise() -> None:
    p, normal = np.full((2, 3), 1 / 3), Normal([0.0], [1.0])
    assert re.search(
        r"`by` .*, got 'range'\. Use by='entropy'", error_of(BadValueError, [p, p], "range")
    )
    assert re.search(
        r"`by` .*, got 'entropy'\. Use by='variance'",
        error_of(BadValueError, [normal, normal], "entropy"),
    )
    assert re.search(
        r"`members` .*, got Probabilities\. Use Members\.of\(\[pass_1, pass_2, \.\.\.\]\)",
        error_of(BadTypeError, Probabilities(p)),
    )
    assert re.search(
        r"`members` .*, got shape \(2, 3\)\. Use np\.stack\(\[pass_1, pass_2, \.\.\.\]\)",
        error_of(BadValueError, p),
    )
    assert re.search(
        r"`members\[1\]` .*, got Quantiles\. Pass outputs of one kind",
        error_of(BadTypeError, [normal, Quantiles([[0.0]], [0.5])]),
    )
    assert re.search(
        r"`members\[1\]` .*, got shape \(2,\)\. Pass the same rows in each",
        error_of(BadValueError, [normal, Normal([0.0, 0.0], [1.0, 1.0])]),
    )
    assert re.search(
        r"`members` .*, got an overflow\. Use a larger unit for the target",
        error_of(BadValueError, [normal, Normal([0.0], [1e200])]),
    )
    assert "passes[0]" in error_of(BadTypeError, [Quantiles([[0.0]], [0.5])] * 2)
    assert "rows that sum to 1" in error_of(BadValueError, np.ones((2, 3, 4)))


def test_results_are_shown_by_their_means() -> None:
    members = np.repeat([[[0.5, 0.5]], [[0.5, 0.5]]], 2000, axis=1)
    parts = "shape (2000,), mean total 0.6931, mean aleatoric 0.6931, mean epistemic 0"
    assert repr(decompose_uncertainty(members)) == f"UncertaintyDecomposition({parts})"
    assert repr(vote(members)) == "Vote(shape (2000,), mean agreement 1)"
    scores = uncertainty_scores(members[0])
    means = "mean least_confidence 0.5, mean entropy 0.6931, mean margin_uncertainty 1"
    assert repr(scores) == f"UncertaintyScores(shape (2000,), {means})"
    found = repr(softmax_decomposition(np.ones((2000, 2)), np.eye(2)))
    assert found.startswith("SoftmaxDecomposition(shape (2000,), mean norm 1.414, ")
    assert "array" not in found
