"""Chow's rule, ties included, and thresholds whose promises hold."""

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import special, stats

from dubito import Logits, Members, Probabilities, TopLabel
from dubito.decide import (
    CostMatrix,
    ThresholdChoice,
    choose_threshold,
    optimal_actions,
    reject_by_threshold,
    reject_threshold,
)
from dubito.errors import BadValueError, DubitoError, EmptyStateError, MissingLabelsWarning

N_DRAWS = 400  # of rows that a threshold is chosen on


def by_cost(outputs: Any, n_classes: int, threshold: float) -> list[bool]:
    costs = CostMatrix.zero_one(n_classes).with_reject(1 - threshold)
    return [bool(action == n_classes) for action in optimal_actions(outputs, costs)]


@st.composite
def sixteenths(draw: Any) -> Any:
    n_classes = draw(st.integers(2, 5))
    cuts = st.lists(st.integers(0, 16), min_size=n_classes - 1, max_size=n_classes - 1)
    rows = draw(st.lists(cuts, min_size=1, max_size=6))
    return np.array([np.diff([0, *sorted(row), 16]) / 16 for row in rows])


@pytest.mark.slow
@settings(max_examples=100)
@given(sixteenths(), st.integers(0, 16), st.sampled_from([np.float16, np.float32, np.float64]))
def test_chows_rule_is_a_reject_cost_ties_included(p: Any, sixteenth: int, dtype: Any) -> None:
    threshold = sixteenth / 16
    expected = (p.max(axis=1) <= threshold).tolist()
    assert reject_by_threshold(p.astype(dtype), threshold).tolist() == expected
    assert by_cost(p.astype(dtype), p.shape[1], threshold) == expected


@pytest.mark.slow
@settings(max_examples=100)
@given(
    hnp.arrays(
        np.float64,
        st.tuples(st.integers(1, 5), st.sampled_from([2, 3, 10, 66])),
        elements=st.floats(-40, 40) | st.sampled_from([0.0, 1e4, -1e4]),
    ),
    st.floats(0, 1),
)
def test_chows_rule_on_logits(logits: Any, threshold: float) -> None:
    uncertainty = 1 - special.softmax(logits, axis=1).max(axis=1)
    is_clear = np.abs(uncertainty - (1 - threshold)) > 3e-9
    found = reject_by_threshold(Logits(logits), threshold)
    assert found[is_clear].tolist() == (uncertainty >= 1 - threshold)[is_clear].tolist()
    costs = np.array(by_cost(Logits(logits), logits.shape[1], threshold))
    assert found[is_clear].tolist() == costs[is_clear].tolist()


@pytest.mark.parametrize("n_classes", [2, 3, 7, 10, 100])
def test_one_rejects_all_and_less_than_one_class_in_k_none(n_classes: int) -> None:
    rng = np.random.default_rng(n_classes)
    p = rng.dirichlet(np.ones(n_classes), 50)
    p = np.vstack([p, np.full(n_classes, 1 / n_classes), np.eye(n_classes)[0]])
    for outputs in (p, p.astype(np.float32), Logits(np.log(np.maximum(p, 1e-30)))):
        assert reject_by_threshold(outputs, 1.0).all()
        assert not reject_by_threshold(outputs, 1 / n_classes - 1e-6).any()
    assert reject_by_threshold(p, 1 / n_classes).nonzero()[0].tolist() == [50]


def test_the_threshold_of_a_cost_and_other_kinds_of_outputs() -> None:
    assert [reject_threshold(cost) for cost in (0, 0.25, 1)] == [1.0, 0.75, 0.0]
    members = Members([[[0.9, 0.1]], [[0.7, 0.3]]])
    assert reject_by_threshold(members, 0.85).tolist() == [True]
    assert reject_by_threshold(TopLabel([0.9, 0.5], [1, 0]), 0.6).tolist() == [False, True]


def n_tolerated(m: int, risk: float, level: float) -> int:
    """Return how many errors of m rows a test tolerates, -1 for none at all."""
    return int((stats.binom.cdf(np.arange(m + 1), m, risk) <= level).sum()) - 1


def reference_at_risk(uncertainty: Any, is_wrong: Any, risk: float, delta: float) -> float | None:
    """Return the lowest threshold of the fallback procedure, for scores without ties.

    Tests are where one more error is tolerated (all of them, for so few rows), from the start on.
    """
    n, order = len(uncertainty), np.argsort(uncertainty)
    edges, is_bad = np.append(1 - uncertainty[order], 0.0), is_wrong[order]
    for later in ({0.25: 0.01, 0.5: 0.01, 0.75: 0.01, 1.0: 0.1}, {1.0: 0.05}):
        level = delta * (1 - sum(later.values()))
        tolerated = [n_tolerated(m, risk, level) for m in range(n + 1)]
        steps = [m for m in range(1, n + 1) if tolerated[m] > tolerated[m - 1]]
        if steps and steps[0] <= min(later) * n:
            break
    else:
        return None
    start = max([m for m in steps if m <= (0.6 * steps[0] * n) ** 0.5] or [steps[0]])
    tests = {m for m in steps if m >= start}
    if start == steps[0]:
        tests |= set(range(start, min([*steps[1:2], n])))
    gains = {start: level}
    for fraction, part in later.items():
        at = max(int(fraction * n), start)
        gains[at] = gains.get(at, 0.0) + part * delta
    best, wealth = None, 0.0
    for m in sorted(tests | set(gains)):
        wealth += gains.get(m, 0.0)
        if wealth and stats.binom.cdf(is_bad[:m].sum(), m, risk) <= wealth:
            best = float(edges[m])
        else:
            wealth = 0.0
    return best


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_the_choice_at_a_risk_is_that_of_the_reference(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = (60, 100, 150, 200)[seed]
    y, logits = made(rng, n)
    uncertainty = 1 - special.softmax(logits, axis=1).max(axis=1)
    is_wrong = logits.argmax(axis=1) != y
    for risk in (0.02, 0.05, 0.1, 0.2, 0.6):
        choice = choose_threshold(y, Logits(logits), risk=risk, delta=0.1)
        expected = reference_at_risk(uncertainty, is_wrong, risk, 0.1)
        assert choice.is_met == (expected is not None)
        assert choice.threshold == pytest.approx(1.0 if expected is None else expected, abs=1e-12)
        is_in = uncertainty < 1 - choice.threshold - 1e-9
        assert choice.coverage == is_in.mean()
        assert choice.risk == (is_wrong[is_in].mean() if is_in.any() else 0.0)
        assert choice.n == n
        assert (choice.risk_bound == risk) if choice.is_met else (choice.risk_bound > risk)


def test_it_keeps_at_least_twice_as_many_rows_as_eight_sequences_did() -> None:
    """Eight sequences that shared delta kept 10.8 % of 500 such rows; 46.6 % could be kept."""
    rng = np.random.default_rng(0)
    kept = []
    for _ in range(40):
        y, logits = made(rng, 500)
        kept.append(choose_threshold(y, Logits(logits), risk=0.1).coverage)
    assert np.mean(kept) > 0.216


def test_frequency_weights_are_numbers_of_rows() -> None:
    rng = np.random.default_rng(0)
    y, logits = made(rng, 300)
    weight = rng.integers(0, 4, 300)
    copies = np.repeat(np.arange(300), weight)
    for setting in ({"risk": 0.15}, {"coverage": 0.7}, {"risk": 0.001}):
        found = choose_threshold(y, Logits(logits), sample_weight=weight, **setting)
        assert found == choose_threshold(y[copies], Logits(logits[copies]), **setting)
    half = choose_threshold(y, Logits(logits), risk=0.15, sample_weight=np.full(300, 0.5))
    assert 120 < half.n < 180
    with pytest.raises(BadValueError, match=r"`sample_weight` must sum to at most 100,000,000, g"):
        choose_threshold(y, Logits(logits), risk=0.1, sample_weight=np.full(300, 1e6))


def made(rng: Any, n: int, n_classes: int = 3, sharper: float = 1.0) -> tuple[Any, Any]:
    """Return labels and logits that may be too sharp."""
    calibrated = rng.normal(0, 2, (n, n_classes))
    draws = rng.random((n, 1))
    y = (special.softmax(calibrated, axis=1).cumsum(axis=1) < draws).sum(axis=1)
    return np.minimum(y, n_classes - 1), sharper * calibrated


def held(choice: ThresholdChoice, confidence: Any, is_wrong: Any) -> tuple[float, float]:
    """Return the risk and coverage of a choice on very many other rows."""
    is_in = confidence > choice.threshold
    return (float(is_wrong[is_in].mean()) if is_in.any() else 0.0), float(is_in.mean())


@pytest.mark.slow
@pytest.mark.parametrize(("risk", "delta", "n"), [(0.2, 0.2, 300), (0.18, 0.1, 600)])
def test_the_risk_is_kept_in_as_many_resamples_as_promised(
    risk: float, delta: float, n: int
) -> None:
    rng = np.random.default_rng(0)
    y, logits = made(rng, 300_000, sharper=1.5)
    p = special.softmax(logits, axis=1)
    confidence, is_wrong = p.max(axis=1), p.argmax(axis=1) != y
    n_broken = n_met = 0
    for _ in range(N_DRAWS):
        rows = rng.integers(0, len(y), n)
        choice = choose_threshold(y[rows], p[rows], risk=risk, delta=delta)
        n_met += choice.is_met
        n_broken += choice.is_met and held(choice, confidence, is_wrong)[0] > risk
    assert n_broken <= N_DRAWS * delta
    assert n_met > N_DRAWS / 2  # a promise that is never made is no promise


def met_by_luck(delta: float, seed: int) -> int:
    """Count, of 1,000 draws, promises of a risk that is just exceeded at every threshold."""
    rng = np.random.default_rng(seed)
    n_met = 0
    for _ in range(1000):
        confidence = special.expit(rng.uniform(0, 14, 200))
        rows = TopLabel(confidence, rng.random(200) >= 0.2001)
        n_met += choose_threshold(None, rows, risk=0.2, delta=delta).is_met
    return n_met


@pytest.mark.slow
def test_trying_many_thresholds_does_not_make_luck_a_promise() -> None:
    assert 20 < met_by_luck(0.2, seed=0) <= 200


@pytest.mark.slow
@pytest.mark.parametrize("n", [100, 400])
def test_ties_and_confident_errors_do_not_break_the_promise(n: int) -> None:
    """Scores of few values; the most confident rows are the worst, and others just too bad."""
    values = np.array([1.0, 0.95, 0.9, 0.8, 0.7, 0.6])
    frequency = np.array([0.07, 0.05, 0.2, 0.28, 0.2, 0.2])
    rates = np.array([0.5, 0.02, 0.15, 0.19, 0.3, 0.4])
    risks = np.cumsum(frequency * rates) / np.cumsum(frequency)
    rng = np.random.default_rng(n)
    n_broken = 0
    for _ in range(N_DRAWS):
        kind = rng.choice(6, n, p=frequency)
        rows = TopLabel(values[kind], rng.random(n) >= rates[kind])
        choice = choose_threshold(None, rows, risk=0.2, delta=0.1)
        n_accepted = np.count_nonzero(values > choice.threshold)
        n_broken += bool(n_accepted) and risks[n_accepted - 1] > 0.2
    assert n_broken <= N_DRAWS * 0.1


@pytest.mark.slow
@pytest.mark.parametrize("digits", [12, 1])  # ties by the dozen
@pytest.mark.parametrize(("coverage", "delta", "n"), [(0.8, 0.1, 100), (0.5, 0.05, 300)])
def test_the_coverage_and_its_risk_are_kept_too(
    coverage: float, delta: float, n: int, digits: int
) -> None:
    rng = np.random.default_rng(1)
    y, logits = made(rng, 300_000, 2)
    confidence = np.round(special.softmax(logits, axis=1).max(axis=1), digits)
    is_wrong = logits.argmax(axis=1) != y
    n_uncovered, n_risky, shares = 0, 0, []
    for _ in range(N_DRAWS):
        rows = rng.integers(0, len(y), n)
        outputs = TopLabel(confidence[rows], ~is_wrong[rows])
        choice = choose_threshold(None, outputs, coverage=coverage, delta=delta)
        risk, share = held(choice, confidence, is_wrong)
        n_uncovered += share < coverage
        n_risky += risk > choice.risk_bound
        shares.append(share)
    # Without ties the chance is just below delta, so that three standard deviations are let pass.
    slack = N_DRAWS * delta + 3 * np.sqrt(N_DRAWS * delta * (1 - delta))
    assert n_uncovered <= slack
    assert n_risky <= slack
    assert np.mean(shares) < coverage + (0.12 if digits == 12 else 0.35)


@pytest.mark.slow
@given(
    hnp.arrays(np.float64, st.integers(1, 30), elements=st.sampled_from([0.3, 0.5, 0.9, 1.0])),
    st.data(),
)
def test_any_rows_give_a_choice_that_is_consistent(confidence: Any, data: Any) -> None:
    n = len(confidence)
    right = data.draw(hnp.arrays(np.bool_, n))
    setting = data.draw(st.sampled_from(["risk", "coverage"]))
    value = data.draw(st.sampled_from([0.0, 1e-300, 0.01, 0.5, 0.99, 1.0]))
    choice = choose_threshold(None, TopLabel(confidence, right), **{setting: value}, delta=0.1)
    is_in = ~reject_by_threshold(TopLabel(confidence, right), choice.threshold)
    assert choice.coverage == is_in.mean()
    assert choice.risk == pytest.approx((~right[is_in]).mean() if is_in.any() else 0)
    assert 0 <= choice.threshold <= 1
    assert choice.risk <= choice.risk_bound <= 1
    if setting == "coverage":
        assert choice.is_met
        assert choice.coverage >= value
    elif not choice.is_met:
        assert (choice.threshold, choice.coverage) == (1.0, 0.0)


def test_no_risk_can_be_promised_to_be_none_and_any_to_be_one() -> None:
    rows = TopLabel([0.9] * 50, [1] * 50)
    assert not choose_threshold(None, rows, risk=0.0).is_met
    everything = choose_threshold(None, rows, risk=1.0)
    assert (everything.is_met, everything.threshold, everything.coverage) == (True, 0.0, 1.0)


def test_words() -> None:
    right = TopLabel([0.9] * 90 + [0.6] * 10, [1] * 90 + [0] * 10)
    assert choose_threshold(None, right, risk=0.1).summary == (
        "90.0 % of 100 rows are accepted (minimum confidence 0.6). Their error rate is 0.00 %, "
        "and at most 10 % with 95 % confidence."
    )
    assert choose_threshold(None, right, risk=0.01).summary == (
        "No threshold guarantees an error rate of at most 1 % with 95 % confidence on 100 rows; "
        "the bound for the 100 most confident rows is 16.4 %. All rows are rejected. Use at least "
        "304 accepted rows without an error, or a higher limit."
    )
    assert choose_threshold(None, right, coverage=0.8).summary == (
        "90.0 % of 100 rows are accepted (minimum confidence 0.9). Their error rate is 0.00 %, "
        "and at most 5.16 %; coverage at least 80 %, each with 95 % confidence."
    )
    few = TopLabel([0.9] * 3, [1] * 3)
    assert choose_threshold(None, few, coverage=0.8).summary == (
        "100.0 % of 3 rows are accepted (minimum confidence 0). Their error rate is 0.00 %, "
        "and at most 63.16 %; coverage at least 80 %, each with 95 % confidence. "
        "With so few rows, only the threshold that accepts all is guaranteed."
    )
    assert choose_threshold(None, few, risk=0.0).summary == (
        "No threshold guarantees an error rate of at most 0 % with 95 % confidence on 3 rows; the "
        "bound for the 3 most confident rows is 63.2 %. All rows are rejected. Use a higher limit."
    )


def test_rows_without_a_label_are_left_out() -> None:
    p = [[0.9, 0.1]] * 60 + [[0.1, 0.9]]
    with pytest.warns(MissingLabelsWarning) as caught:
        choice = choose_threshold([0] * 60 + [None], p, risk=0.1)
    assert caught[0].filename == __file__
    assert (choice.n, choice.coverage, choice.is_met) == (60, 1.0, True)


ROW = Probabilities([[0.9, 0.1]])

BAD: list[tuple[Any, type[DubitoError], str]] = [
    (
        lambda: choose_threshold([0], ROW),
        BadValueError,
        r"`risk` .*got neither\. Pass risk=0\.02 or coverage=0\.8",
    ),
    (
        lambda: choose_threshold([0], ROW, risk=0.1, coverage=0.5),
        BadValueError,
        r"`risk` .*got both\. Pass risk=0\.02 or coverage=0\.8",
    ),
    (
        lambda: choose_threshold([0], ROW, risk=2.0),
        BadValueError,
        r"`risk`.*2\.0\.",
    ),
    (
        lambda: choose_threshold([0], ROW, risk=0.1, delta=0.0),
        BadValueError,
        r"`delta`.*0\.0\.",
    ),
    (
        lambda: choose_threshold([[0.5, 0.5]], ROW, risk=0.1),
        BadValueError,
        r"`y_true` .*got 0\.5 in row 0\. Pass the most probable",
    ),
    (
        lambda: choose_threshold([], np.zeros((0, 2)), risk=0.1),
        EmptyStateError,
        "A threshold needs at least 1 labeled row of positive weight, got 0. Pass at least one "
        "labeled row with a positive weight.",
    ),
    (
        lambda: reject_threshold(1.5),
        BadValueError,
        r"`cost`.*1\.5\.",
    ),
    (
        lambda: reject_by_threshold(ROW, -0.1),
        BadValueError,
        r"`threshold`.*-0\.1\.",
    ),
]


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_invalid_arguments_raise(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind) as caught:
        call()
    assert re.search(message, str(caught.value))
