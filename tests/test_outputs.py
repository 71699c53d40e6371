"""Wrappers keep what they are given: its precision, its bytes, its names."""

import copy
import pickle
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose
from numpy.typing import NDArray

from dubito import (
    Logits,
    Members,
    MultiLabel,
    MultiLabelMembers,
    Normal,
    NormalMixture,
    Probabilities,
    Quantiles,
    RegressionMembers,
    Samples,
    TopLabel,
    audit,
    measure,
)
from dubito.data.labels import Labels
from dubito.decide import choose_threshold
from dubito.errors import BadTypeError, BadValueError
from dubito.outputs import BaseClassOutputs, BaseOutputs, as_outputs

Floats = NDArray[np.floating[Any]]

WRAPPERS: list[BaseOutputs] = [
    Logits([[1.0, 2.0], [0.0, -1.0], [3.0, 3.0]], classes=["cat", "dog"]),
    Probabilities([[0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]),
    Members([[[0.25, 0.75]] * 3, [[1.0, 0.0]] * 3], certainty=[[0.1, 0.2, 0.3], [4.0, 5.0, 6.0]]),
    TopLabel([0.9, 0.8, 0.7], [True, False, True]),
    Normal([1.0, 2.0, 3.0], [0.1, 0.2, 0.3]),
    Samples([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]),
    Quantiles([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]], levels=[0.1, 0.9]),
    MultiLabel([[0.1, 0.2], [0.3, 0.4], [1.0, 0.0]]),
    MultiLabelMembers([[[0.1, 0.2]] * 3, [[0.3, 0.4]] * 3]),
    RegressionMembers([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]], np.ones((2, 3)), "laplace"),
    NormalMixture([[1.0, 2.0, 3.0], [0.0, 0.0, 1.0]], np.ones((2, 3)), np.full((2, 3), 0.5)),
]

each_wrapper = pytest.mark.parametrize("outputs", WRAPPERS, ids=lambda o: type(o).__name__)


def arrays_of(outputs: BaseOutputs) -> dict[str, Floats]:
    names: tuple[str, ...] = outputs.__slots__
    fields = {name: getattr(outputs, name) for name in names}
    return {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}


@each_wrapper
def test_arrays_are_read_only(outputs: BaseOutputs) -> None:
    assert arrays_of(outputs)
    for array in arrays_of(outputs).values():
        assert not array.flags.writeable


@each_wrapper
def test_fields_are_fixed(outputs: BaseOutputs) -> None:
    for name, array in arrays_of(outputs).items():
        with pytest.raises(FrozenInstanceError):
            setattr(outputs, name, array)


@each_wrapper
def test_a_range_of_rows_is_a_view(outputs: BaseOutputs) -> None:
    part = outputs.take(slice(1, 3))
    assert type(part) is type(outputs)
    assert (len(outputs), len(part), part.n_rows) == (3, 2, 2)
    for name, array in arrays_of(part).items():
        whole = arrays_of(outputs)[name]
        rows = [slice(None)] * outputs.axes.index("row") + [slice(1, 3)]
        assert np.shares_memory(array, whole)
        assert not array.flags.writeable
        assert np.array_equal(array, whole if name == "levels" else whole[tuple(rows)])
    if isinstance(outputs, BaseClassOutputs):
        assert part.classes == outputs.classes  # type: ignore[attr-defined]


@each_wrapper
@pytest.mark.parametrize(
    ("duplicate", "is_shared"),
    [
        pytest.param(lambda outputs: pickle.loads(pickle.dumps(outputs)), False, id="pickle"),
        pytest.param(copy.deepcopy, False, id="deepcopy"),
        pytest.param(copy.copy, True, id="copy"),
    ],
)
def test_wrappers_round_trip(
    outputs: BaseOutputs, duplicate: Callable[[Any], Any], is_shared: bool
) -> None:
    restored = duplicate(outputs)
    assert type(restored) is type(outputs)
    assert repr(restored) == repr(outputs)
    for name, array in arrays_of(outputs).items():
        other = arrays_of(restored)[name]
        assert (other.dtype, other.tobytes()) == (array.dtype, array.tobytes())
        assert not other.flags.writeable
        assert np.shares_memory(other, array) == is_shared


LAYOUTS: dict[str, Callable[[Floats], Floats]] = {
    "C": lambda array: array,
    "Fortran": np.asfortranarray,
    "strided": lambda array: np.repeat(array, 3, axis=0)[::3],
    "backwards": lambda array: array[::-1].copy()[::-1],
    "byte-swapped": lambda array: array.astype(array.dtype.newbyteorder()),
    "read-only": lambda array: np.frombuffer(array.tobytes(), array.dtype).reshape(array.shape),
}


@st.composite
def nasty(draw: Any, n_dimensions: int = 2) -> Floats:
    """Logits: ties, one class dominating, saturated, huge and tiny, in any precision and layout."""
    dtype = draw(st.sampled_from([np.float16, np.float32, np.float64]))
    info = np.finfo(dtype)
    special = [0.0, -0.0, 1.0, -1.0, 1e4, -1e4, info.max, info.min, info.tiny]
    elements = st.sampled_from([float(x) for x in special]) | st.floats(-100, 100, width=16)
    shape = draw(st.tuples(*[st.integers(1, 4)] * (n_dimensions - 1), st.integers(2, 5)))
    array = draw(hnp.arrays(dtype, shape, elements=elements))
    return LAYOUTS[draw(st.sampled_from(sorted(LAYOUTS)))](array)


def plain_softmax(logits: Floats) -> Floats:
    with np.errstate(over="ignore"):
        distance = logits.astype(np.float64) - logits.max(axis=-1, keepdims=True)
    shares = np.exp(distance)
    return np.asarray(shares / shares.sum(axis=-1, keepdims=True))


def as_shares_of(logits: Floats) -> Floats:
    """Probabilities in the precision and byte order of the logits they come from."""
    return plain_softmax(logits).astype(logits.dtype)


def kept_dtype(array: Floats) -> Any:
    return np.dtype("float64" if array.dtype.itemsize == 8 else "float32")


@pytest.mark.slow
@settings(max_examples=75)
@given(nasty())
def test_logits_keep_every_number_and_leave_the_callers_bytes_alone(array: Floats) -> None:
    before = array.tobytes()
    outputs = Logits(array)
    assert array.tobytes() == before
    assert not outputs.array.flags.writeable
    assert outputs.array.dtype == kept_dtype(array)
    assert np.array_equal(outputs.array, array)


@settings(max_examples=75)
@given(nasty())
def test_probabilities_are_rows_that_sum_to_one_and_leave_the_callers_bytes_alone(
    logits: Floats,
) -> None:
    array = as_shares_of(logits)
    before = array.tobytes()
    outputs = Probabilities(array)
    assert array.tobytes() == before
    assert not outputs.array.flags.writeable
    assert outputs.array.dtype == kept_dtype(array)
    assert (outputs.array >= 0).all()
    assert_allclose(outputs.array.sum(axis=1), 1, atol=2e-6)
    assert_allclose(outputs.array, array, atol=1e-3)


@given(nasty(), st.integers(0, 100))
def test_permuting_the_classes_permutes_the_probabilities(logits: Floats, seed: int) -> None:
    array = as_shares_of(logits)
    order = np.random.default_rng(seed).permutation(array.shape[1])
    permuted = Probabilities(array[:, order]).array
    assert_allclose(permuted, Probabilities(array).array[:, order], rtol=1e-6, atol=1e-30)


@given(nasty(n_dimensions=3))
def test_members_leave_the_callers_bytes_alone_and_average(logits: Floats) -> None:
    array = as_shares_of(logits)
    before = array.tobytes()
    outputs = Members(array)
    assert array.tobytes() == before
    assert not outputs.array.flags.writeable
    assert (outputs.n_passes, outputs.n_rows, outputs.n_classes) == array.shape
    assert_allclose(outputs.mean.array, array.astype(np.float64).mean(axis=0), atol=1e-3)
    assert_allclose(outputs.mean.array.sum(axis=1), 1, atol=2e-6)


@given(nasty(n_dimensions=3))
def test_members_of_logits_are_their_softmax(logits: Floats) -> None:
    before = logits.tobytes()
    outputs = Members.of([Logits(one) for one in logits])
    assert logits.tobytes() == before
    assert_allclose(outputs.array, plain_softmax(logits), rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_outputs_own_their_arrays_or_share_what_is_read_only(dtype: Any) -> None:
    matrix, cube = np.full((3, 4), 0.25, dtype), np.full((2, 3, 4), 0.25, dtype)
    made: dict[str, Callable[[], BaseOutputs]] = {
        "Logits": lambda: Logits(matrix),
        "Probabilities": lambda: Probabilities(matrix),
        "Members": lambda: Members(cube, certainty=cube[:, :, 0]),
        "TopLabel": lambda: TopLabel(matrix[:, 0], matrix[:, 0]),
        "Normal": lambda: Normal(matrix, matrix),
        "Samples": lambda: Samples(matrix),
        "Quantiles": lambda: Quantiles(matrix, np.linspace(0.1, 0.9, 4)),
        "MultiLabel": lambda: MultiLabel(matrix),
        "MultiLabelMembers": lambda: MultiLabelMembers(cube),
        "RegressionMembers": lambda: RegressionMembers(cube, cube),
        "NormalMixture": lambda: NormalMixture(matrix.T, matrix.T, matrix.T),
    }
    owned = {name: make() for name, make in made.items()}
    matrix[:], cube[:] = np.nan, np.nan
    for name, outputs in owned.items():
        for array in arrays_of(outputs).values():
            assert np.isfinite(array).all(), name
            assert not array.flags.writeable, name
    matrix[:], cube[:] = 0.25, 0.25
    matrix.flags.writeable = cube.flags.writeable = False
    for name in made.keys() - {"TopLabel"}:
        shared = cube if "Members" in name else matrix
        assert np.shares_memory(next(iter(arrays_of(made[name]()).values())), shared), name
    plain = np.full((3, 4), 0.25, dtype)
    assert np.shares_memory(as_outputs(plain, "outputs", "audit").array, plain)  # type: ignore[attr-defined]


def test_a_changed_array_changes_no_figures() -> None:
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(200, 3)), rng.integers(0, 3, 200)
    outputs, labels = Logits(z), Labels(y)
    wanted = audit(y, outputs).to_dict()
    z[:], y[:] = 1e6, 1 << 40
    assert audit(labels, outputs).to_dict() == wanted


def test_a_changed_data_frame_changes_no_figures() -> None:
    frame = pd.DataFrame(np.full((3, 2), 0.5))
    outputs = Logits(frame)
    frame.iloc[:, :] = 7.0
    assert (outputs.array == 0.5).all()


def test_reprs_are_short() -> None:
    matrix = np.full((5000, 10), 0.1, np.float32)
    assert repr(Logits(matrix)) == "Logits(5000 rows x 10 classes, float32)"
    assert repr(Probabilities(matrix[:1])) == "Probabilities(1 row x 10 classes, float32)"
    assert repr(Members(matrix[np.newaxis])) == "Members(1 pass x 5000 rows x 10 classes, float32)"
    assert repr(TopLabel([0.5, 0.5], [1, 0])) == "TopLabel(2 rows, float64)"
    assert repr(Normal([[1.0, 2.0]], [[1.0, 1.0]])) == "Normal(1 row x 2 targets, float64)"
    assert repr(Samples([[1.0, 2.0]])) == "Samples(1 row x 2 draws, float64)"
    assert repr(Quantiles([[1.0, 2.0]], [0.1, 0.9])) == "Quantiles(1 row x 2 levels, float64)"


@pytest.mark.parametrize("shape", [(3,), (3, 1)])
def test_one_column_is_the_positive_class_of_two(shape: tuple[int, ...]) -> None:
    one = np.array([0.25, 0.5, 1.0]).reshape(shape)
    assert Probabilities(one).array.tolist() == [[0.75, 0.25], [0.5, 0.5], [0.0, 1.0]]
    assert Logits(one).array.tolist() == [[0.0, 0.25], [0.0, 0.5], [0.0, 1.0]]
    assert Probabilities(one, classes=["no", "yes"]).n_classes == 2


def test_one_column_a_pass_is_the_positive_class_of_two() -> None:
    assert Members([[[0.25]], [[0.5]]]).array.tolist() == [[[0.75, 0.25]], [[0.5, 0.5]]]


@pytest.mark.parametrize("kind", [Logits, Probabilities])
def test_no_rows_are_outputs_too(kind: Any) -> None:
    assert (len(kind(np.empty((0, 3)))), kind(np.empty((0, 3))).n_classes) == (0, 3)
    assert (len(kind([])), kind([]).n_classes) == (0, 2)


def test_no_rows_of_several_passes_are_outputs_too() -> None:
    outputs = Members(np.empty((2, 0, 3)))
    assert (outputs.n_passes, outputs.n_rows, outputs.mean.n_rows) == (2, 0, 0)


@pytest.mark.parametrize(
    "names", [["cat", "dog"], ("cat", "dog"), np.array(["cat", "dog"]), {"cat": 0, "dog": 1}]
)
def test_names_of_classes_become_plain_text(names: Any) -> None:
    classes = Logits([[1.0, 2.0]], classes=names).classes
    assert classes == ("cat", "dog")
    assert {type(name) for name in classes} == {str}


@pytest.mark.parametrize("names", [np.array([3, 7]), np.array([0.5, 1.5]), np.array([False, True])])
def test_numbers_may_name_classes(names: Any) -> None:
    assert repr(Probabilities([[0.5, 0.5]], classes=names).classes) == repr(tuple(names.tolist()))


def test_members_of_mixed_passes() -> None:
    passes = [Logits([[0.0, 0.0]]), Probabilities([[0.25, 0.75]]), [[1.0, 0.0]], [0.5]]
    expected = [[[0.5, 0.5]], [[0.25, 0.75]], [[1.0, 0.0]], [[0.5, 0.5]]]
    assert Members.of(passes).array.tolist() == expected
    assert Members.of(one for one in passes).array.tolist() == expected
    assert Members.of(np.array(expected)).array.tolist() == expected


def test_members_keep_names_and_certainty() -> None:
    passes = [Logits([[0.0, 1.0]], classes=["cat", "dog"])] * 2
    outputs = Members.of(passes, certainty=[[0.5], [7.0]])
    assert outputs.classes == outputs.mean.classes == ("cat", "dog")
    assert outputs.certainty is not None
    assert outputs.certainty.tolist() == [[0.5], [7.0]]


def test_one_pass_nearly_one_is_renormalized_and_the_others_kept() -> None:
    outputs = Members([[[0.5, 0.5]], [[0.5, 0.4995]]])
    assert outputs.array[0].tolist() == [[0.5, 0.5]]
    assert_allclose(outputs.array.sum(axis=2), 1, rtol=1e-15)


@pytest.mark.parametrize("correct", [[True, False], [1, 0], [1.0, 0.0], np.array([1, 0], np.uint8)])
def test_top_labels_take_booleans_and_numbers(correct: Any) -> None:
    outputs = TopLabel(np.array([0.5, 1.0], np.float32), correct)
    assert outputs.correct.tolist() == [1.0, 0.0]
    assert outputs.confidence.dtype == outputs.correct.dtype == np.float64


@pytest.mark.parametrize("shape", [(4,), (4, 2)])
def test_normal_takes_one_target_or_several(shape: tuple[int, ...]) -> None:
    outputs = Normal(np.zeros(shape, np.float32), np.ones(shape, np.float32))
    assert (outputs.n_rows, outputs.mean.shape, outputs.std.shape) == (4, shape, shape)
    assert outputs.mean.dtype == outputs.std.dtype == np.float32


@pytest.mark.parametrize("shape", [(4, 3), (4, 3, 2)])
def test_samples_and_quantiles_take_one_target_or_several(shape: tuple[int, ...]) -> None:
    array = np.sort(np.random.default_rng(0).normal(size=shape), axis=1)
    assert Samples(array).n_rows == Quantiles(array, [0.1, 0.5, 0.9]).n_rows == 4


def test_quantiles_may_be_equal_or_far_apart() -> None:
    huge = np.finfo(np.float64).max
    assert Quantiles([[-huge, 0.0, huge], [1.0, 1.0, 1.0]], [0.1, 0.5, 0.9]).n_rows == 2


@pytest.mark.parametrize("shape", [(50, 4), (50, 4, 2)])
def test_crossing_quantiles_are_sorted_on_request_and_counted(shape: tuple[int, ...]) -> None:
    array = np.sort(np.random.default_rng(0).normal(size=shape), axis=1)
    array[[3, 20]] = array[[3, 20], ::-1]
    given, levels = array.copy(), [0.1, 0.4, 0.6, 0.9]
    outputs = Quantiles(array, levels, rearrange=True)
    assert_allclose(outputs.array, np.sort(array, axis=1))
    assert outputs.n_rearranged == 2
    assert outputs.take(slice(0, 10)).n_rearranged == 1
    assert pickle.loads(pickle.dumps(outputs)).n_rearranged == 2
    assert np.array_equal(array, given)
    assert Quantiles(array[:3], levels).n_rearranged == 0
    with pytest.raises(
        BadValueError, match=r"in 2 of 50 rows, first in row 3, column 1: .* at level 0\.4 is below"
    ):
        Quantiles(array, levels)


@each_wrapper
def test_wrapped_outputs_stay_as_they_are(outputs: BaseOutputs) -> None:
    assert as_outputs(outputs, "outputs", "audit") is outputs


def test_a_plain_array_is_probabilities() -> None:
    outputs = as_outputs([[0.25, 0.75]], "outputs", "audit")
    assert isinstance(outputs, Probabilities)
    assert (outputs.array.tolist(), outputs.classes) == ([[0.25, 0.75]], None)
    assert not outputs.array.flags.writeable


TOP = TopLabel([0.9, 0.8, 0.7, 0.6] * 10, [1, 1, 0, 1] * 10)


@pytest.mark.parametrize(
    "function",
    [
        lambda *rows: audit(*rows, n_resamples=0).to_dict(),
        measure.accuracy,
        measure.expected_calibration_error,
        measure.maximum_calibration_error,
        measure.debiased_calibration_error,
        measure.smooth_calibration_error,
        lambda *rows: measure.calibration_test(*rows).p_value,
        lambda *rows: measure.reliability_curve(*rows).confidence.tolist(),
        lambda *rows: measure.risk_coverage_curve(*rows).area,
        measure.area_under_risk_coverage,
        measure.excess_area_under_risk_coverage,
        measure.area_under_generalized_risk_coverage,
        lambda *rows: measure.coverage_at_risk(*rows, risk=0.1),
        lambda *rows: str(measure.confidence_interval(measure.accuracy, *rows, n_resamples=40)),
        lambda *rows: choose_threshold(*rows, risk=0.5).threshold,
    ],
)
def test_top_labels_hold_their_correctness_and_stand_alone(function: Callable[..., Any]) -> None:
    assert function(TOP) == function(None, TOP)


def test_labels_without_outputs_are_named() -> None:
    with pytest.raises(BadTypeError, match=r"audit: `outputs` must be an array .* got None"):
        audit([0, 1])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_normalized_on_request(dtype: Any) -> None:
    rng = np.random.default_rng(0)
    exact = rng.dirichlet([0.5] * 7, 500)
    rounded = exact.round(2).astype(dtype)
    with pytest.raises(BadValueError, match=r"Use Probabilities\(array, normalize=True\)"):
        Probabilities(rounded)
    before = rounded.copy()
    found = Probabilities(rounded, normalize=True).array
    assert found.dtype == dtype
    assert (rounded == before).all()
    wanted = rounded.astype(np.longdouble) / rounded.astype(np.longdouble).sum(axis=1)[:, None]
    assert_allclose(found, wanted.astype(float), rtol=4 * np.finfo(dtype).eps)
    assert Probabilities([0.25], normalize=True).array.tolist() == [[0.75, 0.25]]


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        ([[0.5, 0.4], [0.0, 0.0]], "must have rows with a positive sum, got 0.0 in row 1"),
        ([[0.5, -0.4]], "must be non-negative, got -0.4 in row 0, column 1"),
        ([[0.5, np.nan]], "must be finite, got nan in row 0, column 1"),
    ],
)
def test_what_cannot_be_normalized_is_named(rows: list[list[float]], words: str) -> None:
    with pytest.raises(BadValueError, match=words):
        Probabilities(rows, normalize=True)
