"""A sequential test: as in a plain loop, valid while the claim is true, fast when it is not."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dubito.errors import BadTypeError, BadValueError, DubitoError
from dubito.monitor import SequentialAlarm
from dubito.monitor.sequential import EDGE, TOO_HIGH, TOO_LOW, _gains, _reserve


def reference(stated: Any, found: Any, share: Any, tolerance: float) -> list[tuple[float, float]]:
    """Return both e-values after each label, bet by bet."""
    n_bets = len(TOO_HIGH)
    wealth = [[1 - _reserve(0)] * n_bets, [1 - _reserve(0)] * n_bets]
    seen = []
    for t, (p, x, s) in enumerate(zip(stated, found, share, strict=True)):
        for side, bets in enumerate((TOO_HIGH, TOO_LOW)):
            claim = p - tolerance if side == 0 else p + tolerance
            inner = min(max(claim, EDGE), 1 - EDGE)
            for j, (slope, shift) in enumerate(bets):
                odds = (inner / (1 - inner)) ** slope * np.exp(shift)
                other = odds / (1 + odds)
                is_open = (other < inner and claim >= EDGE) if side == 0 else (
                    other > inner and claim <= 1 - EDGE
                )  # fmt: skip
                ratio = x * other / inner + (1 - x) * (1 - other) / (1 - inner)
                factor = 1 + s * (ratio - 1) if is_open else 1.0
                wealth[side][j] = wealth[side][j] * factor + _reserve(t) - _reserve(t + 1)
        over, under = (np.mean(side) + _reserve(t + 1) for side in wealth)
        seen.append((float(over), float(under)))
    return seen


SHARES = st.floats(0, 1) | st.sampled_from([0.0, 1e-9, 0.5, 1 - 1e-9, 1.0])


@pytest.mark.slow
@settings(max_examples=60)
@given(
    hnp.arrays(np.float64, st.integers(1, 25), elements=SHARES),
    st.sampled_from([0.0, 0.05, 0.7]),
    st.data(),
)
def test_it_matches_a_plain_loop(stated: Any, tolerance: float, data: Any) -> None:
    n = len(stated)
    found = data.draw(hnp.arrays(np.float64, n, elements=SHARES))
    weight = data.draw(hnp.arrays(np.float64, n, elements=st.floats(0, 20)))
    before = stated.copy(), found.copy(), weight.copy()
    alarm = SequentialAlarm(0.05, tolerance, 20.0).update(stated, found, weight)
    seen = reference(stated, found, weight / 20, tolerance)
    assert alarm.e_value == pytest.approx(min(np.mean(seen[-1]), np.exp(700)), rel=1e-8)
    largest = max(1.0, *(float(np.mean(pair)) for pair in seen))
    assert alarm.p_value == pytest.approx(max(1 / largest, np.exp(-700)), rel=1e-8)
    over = [k + 1 for k, pair in enumerate(seen) if np.mean(pair) >= 20]
    assert alarm.alarmed_after == (over[0] if over else None)
    if over:
        assert alarm.direction == ("over" if np.argmax(seen[over[0] - 1]) == 0 else "under")
    assert all(np.array_equal(a, b) for a, b in zip(before, (stated, found, weight), strict=True))


@settings(max_examples=40)
@given(st.lists(st.integers(0, 60), max_size=4), st.booleans())
def test_batches_and_json_do_not_matter(cuts: list[int], is_true: bool) -> None:
    rng = np.random.default_rng(0)
    stated = rng.uniform(0.3, 1, 60)
    found = rng.random(60) < (stated if is_true else stated**4)
    whole = SequentialAlarm(alpha=0.2).update(stated, found)
    alarm = SequentialAlarm(alpha=0.2)
    for rows in np.split(np.arange(60), sorted(cuts)):
        alarm = alarm.update(stated[rows], found[rows])
        alarm = SequentialAlarm.from_dict(json.loads(json.dumps(alarm.to_dict(), allow_nan=False)))
    assert alarm.log_wealth == pytest.approx(whole.log_wealth)
    assert alarm.p_value == pytest.approx(whole.p_value)
    kept = [(one.alarmed_after, one.direction, one.n_labels) for one in (alarm, whole)]
    assert kept[0] == kept[1]
    assert whole.has_alarmed is not is_true


@pytest.mark.slow
@settings(max_examples=100)
@given(SHARES, SHARES, st.sampled_from([0.0, 1e-7, 0.1]))
def test_no_bet_wins_in_expectation_while_the_claim_is_true(
    stated: float, where: float, tolerance: float
) -> None:
    low, high = max(stated - tolerance, 0), min(stated + tolerance, 1)
    mean = low + where * (high - low)
    right = _gains(np.array([stated]), np.array([1.0]), tolerance)[0]
    wrong = _gains(np.array([stated]), np.array([0.0]), tolerance)[0]
    assert (mean * right + (1 - mean) * wrong <= 1e-9).all()
    assert (np.minimum(right, wrong) >= -1).all()


def test_means_stated_too_high_too_low_or_within_tolerance() -> None:
    rng = np.random.default_rng(1)
    found = rng.random(3000) < 0.8
    assert SequentialAlarm().update(np.full(3000, 0.9), found).direction == "over"
    assert SequentialAlarm().update(np.full(3000, 0.7), found).direction == "under"
    assert not SequentialAlarm().update(np.full(3000, 0.8), found).has_alarmed
    wide = SequentialAlarm(tolerance=0.12)
    assert not wide.update(np.full(3000, 0.9), found).has_alarmed
    assert not wide.update(np.full(3000, 0.7), found).has_alarmed


def test_an_alarm_stays_and_a_new_one_has_no_evidence() -> None:
    new = SequentialAlarm()
    assert new.e_value == pytest.approx(1.0)
    assert (new.p_value, new.has_alarmed, new.direction) == (1.0, False, None)
    alarm = new.update([0.9] * 10, [0] * 10)
    assert not new.n_labels
    later = alarm.update([0.9] * 20, [1] * 20)
    assert later.e_value < alarm.e_value
    assert later.has_alarmed
    assert (later.alarmed_after, later.p_value) == (alarm.alarmed_after, alarm.p_value)
    assert alarm.update([], []) is alarm


def test_rising_uncertainty_is_detected() -> None:
    rng = np.random.default_rng(2)
    before, after = rng.beta(1, 9, 4000), rng.beta(1.3, 7, 4000)
    mean = float(before[:2000].mean())
    quiet = SequentialAlarm(tolerance=0.01).update(np.full(2000, mean), before[2000:])
    assert not quiet.has_alarmed
    assert quiet.update(np.full(4000, mean), after).direction == "under"


def test_weights_make_the_claim_about_all_rows() -> None:
    # Calibrated over all rows: right 90 % of the time on those seldom sampled, 70 % on others.
    rng = np.random.default_rng(3)
    is_often = rng.random(40_000) < 0.5
    found = rng.random(40_000) < np.where(is_often, 0.7, 0.9)
    chance = np.where(is_often, 1.0, 0.1)
    seen = rng.random(40_000) < chance
    stated = np.full(int(seen.sum()), 0.8)
    assert SequentialAlarm().update(stated, found[seen]).direction == "over"
    weighted = SequentialAlarm(max_weight=10).update(stated, found[seen], 1 / chance[seen])
    assert not weighted.has_alarmed


BAD: list[tuple[Any, type[DubitoError], str]] = [
    (lambda: SequentialAlarm(alpha=0), BadValueError, r"`alpha`.*between 0 and 1.* 0\b"),
    (
        lambda: SequentialAlarm(tolerance=-0.1),
        BadValueError,
        r"`tolerance`.*between 0 and 1.*-0\.1",
    ),
    (
        lambda: SequentialAlarm(max_weight=0.0),
        BadValueError,
        r"`max_weight` must be a finite number above 0, got 0\.0\. Pass 1 / the smallest sampling",
    ),
    (lambda: SequentialAlarm().update([1.5], [1]), BadValueError, r"`stated`.*1\.5 in row 0"),
    (lambda: SequentialAlarm().update([0.5], [np.nan]), BadValueError, r"`observed`.*nan in row 0"),
    (lambda: SequentialAlarm().update([0.5], [1, 0]), BadValueError, r"`observed`.*`stated`.*2"),
    (
        lambda: SequentialAlarm().update([0.5, 0.5], [1, 0], [1]),
        BadValueError,
        r"`weight`.*`stated`.*1",
    ),
    (
        lambda: SequentialAlarm().update([0.5], [1], [3.0]),
        BadValueError,
        r"`weight` must be from 0 to max_weight = 1, got 3\.0 in row 0\. .*larger max_weight",
    ),
    (lambda: SequentialAlarm().update(0.5, [1]), BadTypeError, r"`stated`.*a single float"),
    (
        lambda: SequentialAlarm.from_dict({**SequentialAlarm().to_dict(), "log_wealth": [1.0]}),
        BadValueError,
        r"`log_wealth` must be a list of 12 numbers, got 1\. ",
    ),
]


@pytest.mark.parametrize("has_alarmed", [False, True])
@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("alpha", ["evil", 0, 1.5, None]),
        ("tolerance", ["evil", -0.1, 2]),
        ("max_weight", ["evil", 0, -1, np.inf]),
        ("n_labels", ["evil", -1, 1.5, None, True]),
        ("log_wealth", ["evil", [1.0], [np.nan] * 12, [[0.0]] * 12, None]),
        ("log_largest", ["evil", -1, np.nan, None]),
        ("alarmed_after", ["evil", 0, 1.5, 1000]),
        ("direction", ["evil", 1, True]),
        ("other", [1]),
    ],
)
def test_malformed_values_are_refused_by_name(
    name: str, values: list[Any], has_alarmed: bool
) -> None:
    alarm = SequentialAlarm().update([0.9] * 20, [not has_alarmed] * 20)
    assert alarm.has_alarmed is has_alarmed
    good = alarm.to_dict()
    for value in values:
        with pytest.raises(BadValueError, match=f"`{name}`|'{name}'"):
            SequentialAlarm.from_dict({**good, name: value})
    bad: list[Any] = [{}, [], None, "evil", {**good, "x": 1}, dict(list(good.items())[1:])]
    for one in bad:
        with pytest.raises(DubitoError):
            SequentialAlarm.from_dict(one)


def test_values_that_contradict_each_other_are_refused() -> None:
    quiet = SequentialAlarm().update([0.9] * 10, [True] * 10).to_dict()
    raised = SequentialAlarm().update([0.9] * 100, [False] * 100).to_dict()
    for values, name in (
        ({**quiet, "direction": "over"}, "direction"),
        ({**quiet, "log_largest": 50.0}, "log_largest"),
        ({**quiet, "alarmed_after": 5, "direction": "over"}, "log_largest"),
        ({**raised, "direction": None}, "direction"),
        ({**raised, "n_labels": 1}, "alarmed_after"),
        ({**raised, "log_largest": 0.0}, "log_largest"),
    ):
        with pytest.raises(BadValueError, match=f"`{name}`"):
            SequentialAlarm.from_dict(values)


@pytest.mark.parametrize(("call", "kind", "message"), BAD)
def test_bad_arguments_raise_an_error(call: Any, kind: type[DubitoError], message: str) -> None:
    with pytest.raises(kind, match=message):
        call()
