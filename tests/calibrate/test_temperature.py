"""One number: the best one, within its bounds, and no class ever changes."""

import tracemalloc
import warnings
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.testing import assert_allclose as close
from numpy.typing import NDArray
from scipy import optimize, special

from dubito import Logits, Probabilities
from dubito.calibrate import TemperatureScaling
from dubito.errors import BadValueError, BoundWarning, EmptyStateError
from dubito.measure import expected_calibration_error

Floats = NDArray[np.floating[Any]]
Precision = type[np.floating[Any]]

each_precision = pytest.mark.parametrize("dtype", [np.float32, np.float64])


def made(
    n_rows: int, n_classes: int, dtype: Precision = np.float64, sharper: float = 2.5, seed: int = 0
) -> tuple[Floats, NDArray[np.int64]]:
    """Return logits that are too sharp by a factor, and labels."""
    rng = np.random.default_rng(seed + n_classes)
    calibrated = rng.normal(0, 1.5, (n_rows, n_classes))
    draws = rng.random((n_rows, 1))
    y = (special.softmax(calibrated, axis=1).cumsum(axis=1) < draws).sum(axis=1)
    return (sharper * calibrated).astype(dtype), np.minimum(y, n_classes - 1)


def at(temperature: float, n_classes: int) -> TemperatureScaling:
    scaling = TemperatureScaling()
    scaling.n_classes_, scaling.classes_, scaling.temperature_ = n_classes, None, temperature
    return scaling


def reference(logits: Floats, q: Floats, weight: Any = None) -> float:
    """Return the temperature where the derivative of the log loss is 0, by bisection."""
    z = logits.astype(np.float64)
    weight = np.ones(len(z)) if weight is None else weight
    wanted = weight @ (q * z).sum(axis=1)

    def slope(log_beta: float) -> float:
        p = special.softmax(np.exp(log_beta) * z, axis=1)
        return float(weight @ (p * z).sum(axis=1) - wanted)

    found: float = optimize.brentq(slope, np.log(1e-5), np.log(1e3), xtol=1e-13)
    return float(np.exp(-found))


@each_precision
@pytest.mark.parametrize("n_classes", [2, 10, 200])
@pytest.mark.parametrize("sharper", [0.05, 0.5, 1.0, 2.5, 30.0])
def test_the_temperature_is_that_of_the_reference(
    dtype: Precision, n_classes: int, sharper: float
) -> None:
    logits, y = made(3000, n_classes, dtype, sharper)
    expected = reference(logits, np.eye(n_classes)[y])
    found = TemperatureScaling().fit(Logits(logits), y).temperature_
    assert found == pytest.approx(expected, rel=1e-6)
    assert found == pytest.approx(sharper, rel=0.2)


@each_precision
@pytest.mark.parametrize("n_classes", [2, 10, 200])
def test_weights_and_label_probabilities_enter_the_loss(dtype: Precision, n_classes: int) -> None:
    logits, y = made(2000, n_classes, dtype)
    rng = np.random.default_rng(1)
    weight = rng.random(2000) * (rng.random(2000) < 0.7)
    soft = 0.9 * np.eye(n_classes)[y] + 0.1 * rng.dirichlet(np.ones(n_classes), 2000)
    found = TemperatureScaling().fit(Logits(logits), soft, weight)
    assert found.temperature_ == pytest.approx(reference(logits, soft, weight), rel=1e-6)


@each_precision
def test_probabilities_of_exactly_0_stand_for_the_floor(dtype: Precision) -> None:
    p = np.array([[1, 0, 0], [0.5, 0.5, 0], [0, 0.25, 0.75], [0.2, 0.3, 0.5]], dtype)
    y = [0, 1, 0, 2]
    expected = reference(np.log(np.maximum(p.astype(np.float64), 1e-12)), np.eye(3)[y])
    assert TemperatureScaling().fit(p, y).temperature_ == pytest.approx(expected, rel=1e-6)


# Four classes before and after temperature scaling with T = 5.8934, as the literature prints them.
PRINTED = (
    (
        (9.99686837e-01, 4.67872553e-07, 3.06890026e-04, 5.80308551e-06),
        (0.6816287, 0.05747936, 0.17277414, 0.08811776),
    ),
    (
        (9.99612272e-01, 5.80648384e-06, 3.51151451e-04, 3.07460177e-05),
        (0.6409527, 0.08286864, 0.16622284, 0.10995582),
    ),
    (
        (9.97133374e-01, 3.59399237e-05, 2.61593983e-03, 2.14804168e-04),
        (0.5618934, 0.09902193, 0.20496799, 0.1341167),
    ),
    (
        (9.95973289e-01, 4.75247180e-05, 3.75530589e-03, 2.23892945e-04),
        (0.5515181, 0.10193248, 0.21395408, 0.13259539),
    ),
    (
        (9.99999762e-01, 2.49505733e-12, 2.24622028e-07, 8.51538617e-10),
        (0.89758205, 0.00964449, 0.06682549, 0.0259479),
    ),
)


@pytest.mark.parametrize(("before", "after"), PRINTED)
def test_the_printed_example(before: tuple[float, ...], after: tuple[float, ...]) -> None:
    outputs = Logits(np.log([before]))
    close(at(5.8934, 4).predict_proba(outputs), [after], atol=1e-6, rtol=0)
    close(at(5.8934, 4).predict_proba([before]), [after], atol=1e-6, rtol=0)


@st.composite
def nasty_logits(draw: Any) -> Floats:
    dtype: Precision = draw(st.sampled_from([np.float32, np.float64]))
    info = np.finfo(dtype)
    one, least = dtype(1), float(info.smallest_subnormal)
    close_by = [float(np.nextafter(one, dtype(0))), 1.0, float(np.nextafter(one, dtype(2)))]
    special_values = [0.0, -0.0, least, -least, 3 * least, float(info.tiny), 1e4, -1e4, *close_by]
    thousands = [
        float(np.nextafter(dtype(1e4), dtype(0))),
        float(np.nextafter(dtype(1e4), dtype(2e4))),
    ]
    anything = st.floats(-1e4, 1e4, width=32 if dtype is np.float32 else 64)
    shape = draw(st.tuples(st.integers(1, 4), st.sampled_from([2, 3, 66])))
    elements = st.sampled_from(special_values + thousands) | anything
    array: Floats = draw(hnp.arrays(dtype, shape, elements=elements))
    return array


@pytest.mark.slow
@settings(max_examples=100)
@given(nasty_logits(), st.floats(1e-4, 1e6))
def test_no_class_changes_at_any_temperature(logits: Floats, temperature: float) -> None:
    scaling = at(temperature, logits.shape[1])
    p = scaling.predict_proba(Logits(logits))
    expected = logits.argmax(axis=1).tolist()
    assert p.argmax(axis=1).tolist() == expected
    assert scaling.transform(Logits(logits)).array.argmax(axis=1).tolist() == expected
    close(p.sum(axis=1, dtype=np.float64), 1, atol=1e-5)


@pytest.mark.slow
@given(hnp.arrays(np.uint8, st.tuples(st.integers(1, 4), st.sampled_from([2, 3, 66]))), st.data())
def test_no_class_of_nearly_equal_probabilities_changes(steps: Any, data: Any) -> None:
    dtype: Precision = data.draw(st.sampled_from([np.float32, np.float64]))
    scaling = at(data.draw(st.floats(1e-4, 1e6)), steps.shape[1])
    base = dtype(1) / dtype(steps.shape[1])
    p = np.asarray(base + (steps % 4) * np.spacing(base), dtype)
    outputs = Probabilities(p)
    assert scaling.predict_proba(outputs).argmax(axis=1).tolist() == p.argmax(axis=1).tolist()


@pytest.mark.filterwarnings("ignore::dubito.errors.SingleClassWarning")
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::dubito.errors.BoundWarning")
@settings(max_examples=80)
@given(nasty_logits(), st.data())
def test_the_fitted_temperature_is_positive_and_changes_no_class(logits: Floats, data: Any) -> None:
    n_rows, n_classes = logits.shape
    y = data.draw(hnp.arrays(np.int64, n_rows, elements=st.integers(0, n_classes - 1)))
    scaling = TemperatureScaling().fit(Logits(logits), y)
    assert 0.99e-4 <= scaling.temperature_ <= 1.01e6
    p = scaling.predict_proba(Logits(logits))
    assert p.argmax(axis=1).tolist() == logits.argmax(axis=1).tolist()


@each_precision
@pytest.mark.parametrize("n_classes", [2, 10, 200])
def test_the_three_limits(dtype: Precision, n_classes: int) -> None:
    logits, _ = made(50, n_classes, dtype)
    outputs, p = Logits(logits), special.softmax(logits.astype(np.float64), axis=1)
    one_hot = np.eye(n_classes)[logits.argmax(axis=1)]
    close(at(1e-9, n_classes).predict_proba(outputs), one_hot, atol=1e-11)
    close(at(1.0, n_classes).predict_proba(outputs), np.maximum(p, 1e-12), rtol=1e-5)
    close(at(1e9, n_classes).predict_proba(outputs), 1 / n_classes, rtol=1e-6)


@each_precision
@pytest.mark.parametrize("n_classes", [2, 3, 100])
def test_separable_rows_end_at_the_bound(dtype: Precision, n_classes: int) -> None:
    y = np.arange(200) % n_classes
    logits = np.random.default_rng(0).normal(0, 0.1, (200, n_classes)) + np.eye(n_classes)[y]
    with pytest.warns(BoundWarning) as caught:
        scaling = TemperatureScaling().fit(Logits(logits.astype(dtype)), y)
    assert scaling.temperature_ == pytest.approx(1e-4)
    assert str(caught[0].message) == (
        "The temperature ended at its bound of 0.0001: every prediction is correct, and more "
        "confidence only lowers the loss. Check the labels."
    )
    p = scaling.predict_proba(Logits(logits.astype(dtype)))
    close(p, np.eye(n_classes)[y], atol=1e-11)


@each_precision
@pytest.mark.parametrize("n_classes", [2, 3, 100])
def test_outputs_that_contradict_the_labels_end_at_the_other_bound(
    dtype: Precision, n_classes: int
) -> None:
    y = np.arange(200) % n_classes
    logits = np.random.default_rng(0).normal(0, 0.1, (200, n_classes)) - np.eye(n_classes)[y]
    with pytest.warns(BoundWarning) as caught:
        scaling = TemperatureScaling().fit(Logits(logits.astype(dtype)), y)
    assert scaling.temperature_ == pytest.approx(1e6)
    assert str(caught[0].message) == (
        "The temperature ended at its bound of 1e+06: the outputs are unrelated to the labels, or "
        "contradict them. Check the labels."
    )
    assert caught[0].filename == __file__
    close(scaling.predict_proba(Logits(logits.astype(dtype))), 1 / n_classes, rtol=1e-4)


@each_precision
def test_rows_that_are_sure_and_right_already_end_at_the_bound_too(dtype: Precision) -> None:
    y = np.arange(40) % 4
    outputs = Logits((1e4 * np.eye(4)[y]).astype(dtype))
    with pytest.warns(BoundWarning):
        scaling = TemperatureScaling().fit(outputs, y)
    assert scaling.temperature_ == pytest.approx(1e-4)
    close(scaling.predict_proba(outputs), np.eye(4)[y], atol=1e-11)


def test_constant_scores_need_no_temperature() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaling = TemperatureScaling().fit(Logits(np.full((9, 3), 7.0)), np.arange(9) % 3)
    assert scaling.temperature_ == 1
    close(scaling.predict_proba(Logits(np.full((1, 3), 7.0))), [[1 / 3] * 3])


def test_rows_that_are_all_alike_take_the_share_of_the_top_class() -> None:
    scaling = TemperatureScaling().fit(Logits(np.tile([9.0, 0.0], (10, 1))), [0] * 7 + [1] * 3)
    close(scaling.predict_proba(Logits([[9.0, 0.0]])), [[0.7, 0.3]], atol=1e-7)


@pytest.mark.filterwarnings("ignore::dubito.errors.SingleClassWarning")
@pytest.mark.parametrize("label", [0, 2])
def test_labels_of_one_class_only(label: int) -> None:
    logits, _ = made(100, 3)
    logits[:, label] += 2
    scaling = TemperatureScaling().fit(Logits(logits), np.full(100, label))
    expected = reference(logits, np.eye(3)[np.full(100, label)])
    assert scaling.temperature_ == pytest.approx(expected, rel=1e-6)


def test_fewer_rows_than_classes() -> None:
    logits, y = made(7, 50)
    found = TemperatureScaling().fit(Logits(logits), y).temperature_
    assert found == pytest.approx(reference(logits, np.eye(50)[y]), rel=1e-6)


@each_precision
def test_logits_of_ten_thousand(dtype: Precision) -> None:
    rng = np.random.default_rng(0)
    logits = np.where(np.eye(4)[rng.integers(0, 4, 400)] == 1, 1e4, -1e4).astype(dtype)
    y = np.where(rng.random(400) < 0.9, logits.argmax(axis=1), rng.integers(0, 4, 400))
    scaling = TemperatureScaling().fit(Logits(logits), y)
    assert scaling.temperature_ == pytest.approx(reference(logits, np.eye(4)[y]), rel=1e-6)
    share = (logits.argmax(axis=1) == y).mean()
    close(scaling.predict_proba(Logits(logits)).max(axis=1), share, rtol=1e-5)


@pytest.mark.parametrize("n_bins", [5, 15])
def test_the_objective_ece_lowers_it_as_far_as_a_grid_does(n_bins: int) -> None:
    logits, y = made(2000, 5, sharper=3.0)
    # A second kind of rows, so that no one temperature is right for all.
    logits[::3] *= 0.3

    def error(temperature: float) -> float:
        outputs = Logits(logits / temperature)
        return expected_calibration_error(y, outputs, n_bins=n_bins)

    by_loss = TemperatureScaling().fit(Logits(logits), y).temperature_
    by_error = TemperatureScaling(objective="ece", n_bins=n_bins).fit(Logits(logits), y)
    assert error(by_error.temperature_) <= error(by_loss)
    near = by_loss * np.exp(np.linspace(-1.5, 1.5, 61))
    best = min(error(temperature) for temperature in near)
    assert error(by_error.temperature_) <= best + 0.003


def errors_on_grid(
    logits: NDArray[np.float64], y: NDArray[np.int64], temperatures: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the ECE in 15 bins at each temperature, by plain NumPy."""
    gaps = logits - logits.max(axis=1, keepdims=True)
    total = sum(np.exp(np.divide.outer(column, temperatures)) for column in gaps.T)
    confidence = 1 / np.asarray(total)
    bins = np.clip(np.ceil(confidence * 15).astype(int) - 1, 0, 14)
    residuals = confidence - (logits.argmax(axis=1) == y)[:, np.newaxis]
    places = bins + 15 * np.arange(temperatures.size)
    sums = np.bincount(places.ravel(), residuals.ravel(), 15 * temperatures.size)
    return np.asarray(np.abs(sums.reshape(-1, 15)).sum(axis=1) / len(y))


@pytest.mark.slow
def test_the_objective_ece_finds_the_global_minimum() -> None:
    temperatures = np.geomspace(0.05, 20, 20_000)
    for seed in range(15):
        rng = np.random.default_rng(seed)
        logits = rng.normal(0, rng.uniform(1, 4), (100, 3))
        p = special.softmax(logits / rng.uniform(0.5, 3), axis=1)
        y = np.minimum((p.cumsum(axis=1) < rng.random((100, 1))).sum(axis=1), 2)
        scaling = TemperatureScaling(objective="ece").fit(Logits(logits), y)
        error = expected_calibration_error(y, scaling.predict_proba(Logits(logits)))
        assert error <= errors_on_grid(logits, y, temperatures).min() + 1e-4


@pytest.mark.slow
@pytest.mark.parametrize(("dtype", "n_classes"), [(np.float32, 10), (np.float64, 200)])
def test_a_read_only_array_is_neither_copied_nor_changed(dtype: Precision, n_classes: int) -> None:
    n_rows = 10_000_000 // n_classes
    logits, y = made(n_rows, n_classes, dtype)
    logits.flags.writeable = False
    before = logits[::1000].copy()
    TemperatureScaling().fit(Logits(logits[:100]), y[:100])  # compiles
    tracemalloc.start()
    try:
        TemperatureScaling().fit(Logits(logits), y)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Some numbers a row, and none an entry.
    assert peak < 40 * n_rows + 5e6
    assert peak < logits.nbytes
    assert (logits[::1000] == before).all()


def test_a_row_without_a_label_or_weight_is_no_row() -> None:
    with pytest.raises(EmptyStateError) as caught:
        TemperatureScaling().fit(Logits([[1.0, 0.0]]), [0], [0.0])
    assert str(caught.value) == (
        "A temperature needs at least 1 labeled row of positive weight, got 0. Pass at least one "
        "labeled row with a positive weight."
    )


def test_an_unknown_objective_raises() -> None:
    with pytest.raises(BadValueError) as caught:
        TemperatureScaling(objective="brier").fit([[0.5, 0.5]], [0])  # type: ignore[arg-type]
    assert str(caught.value) == (
        "TemperatureScaling: `objective` must be 'log_loss' or 'ece', "
        "got 'brier'. Use objective='log_loss'."
    )


@pytest.mark.parametrize(
    ("sharper", "verdict"),
    [(3.0, "over-confident"), (0.3, "under-confident")],
)
def test_the_summary_says_which_way_confidence_was_off(sharper: float, verdict: str) -> None:
    logits, y = made(500, 3, sharper=sharper)
    scaling = TemperatureScaling().fit(Logits(logits), y)
    start = f"T = {scaling.temperature_:.3g}: {verdict}"
    assert scaling.summary().startswith(start)


def test_the_summary_of_what_was_right_says_so() -> None:
    logits, y = made(500, 3)
    temperature = TemperatureScaling().fit(Logits(logits), y).temperature_
    scaling = TemperatureScaling().fit(Logits(logits / temperature), y)
    assert scaling.summary() == "T = 1: neither over- nor under-confident"


@pytest.mark.filterwarnings("ignore:Values in x were outside bounds")  # SLSQP of SciPy 1.14
def test_temperature_is_the_largest_entropy_at_the_mean_logit_of_the_true_classes() -> None:
    logits, y = made(6, 3)
    scaling = TemperatureScaling().fit(Logits(logits), y)
    found = scaling.predict_proba(Logits(logits))
    wanted = logits[np.arange(6), y].sum()
    close((found * logits).sum(), wanted, rtol=1e-9)

    # The problem as stated, by a solver that knows nothing of softmax.
    def negative_entropy(q: Floats) -> Any:
        return -special.entr(q).sum()

    rules = [
        {"type": "eq", "fun": lambda q: q.reshape(6, 3).sum(axis=1) - 1},
        {"type": "eq", "fun": lambda q: q @ logits.ravel() - wanted},
    ]
    start, bounds = np.full(18, 1 / 3), [(1e-9, 1)] * 18
    options = {"maxiter": 500, "ftol": 1e-14}
    best = optimize.minimize(
        negative_entropy, start, bounds=bounds, constraints=rules, options=options, method="SLSQP"
    )
    assert best.success
    close(best.x.reshape(6, 3), found, atol=1e-4)
    close(-best.fun, special.entr(found).sum(), rtol=1e-7)
    # Any other probabilities that obey the constraints have less entropy, to second order.
    rng = np.random.default_rng(0)
    for _ in range(20):
        step = rng.normal(size=(6, 3))
        step -= step.mean(axis=1, keepdims=True)
        centered = logits - logits.mean(axis=1, keepdims=True)
        step -= centered * ((step * logits).sum() / (centered * logits).sum())
        for size in (1e-3, -1e-3):
            other = found + size * step * found.min() / np.abs(step).max()
            close([other.sum(), (other * logits).sum()], [6, wanted], rtol=1e-9)
            assert special.entr(other).sum() < special.entr(found).sum()
